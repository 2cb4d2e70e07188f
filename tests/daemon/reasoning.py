#!/usr/bin/python3
"""Reasoning apart from text, with a model that generates scripted tokens: every family of markers, as special tokens
and as text; switches of templates; stop strings; sessions and what their templates get; streams that are attached to,
cancelled, and killed in the middle of reasoning. Prints TAP.
"""
import json, os, signal, sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.environ["top_srcdir"] + "/tests/tools")
import harness, script_model
from harness import Box, Refused, check

LONG = [" t%d" % i for i in range(400)]
THOUGHT = "".join(LONG)
SCRIPTS = {
    "@think": ["<think>", "\n", "Hm", ", is", " it", "?\n", "Yes", ".\n\n", "</think>", "\n\n\n", "It", " is", ".\n"],
    "@open": ["W", "ell", " well", "\n</", "th", "ink>\nFi", "ne", "."],
    "@plain": ["No", " thoughts", " at", " all"],
    "@long": LONG + ["[/THINK]", "En", "fin"],
    "@harmony": ["Think", "ing", "<|end|>", "<|start|>", "assistant", "<|channel|>", "final", "<|message|>", "Hel", "lo"],
    "@gemma": ["<|channel>", "thou", "ght\nOn", "e", "\n\n", "<channel|>", "Two"],
}
# A character in three tokens, U+FFFD itself, and bytes that are not UTF-8, within reasoning and after it.
BROKEN = {"@think": ["<think>", "\n", "Oh", "\udce2", "\udc98", "\udc83", " \ufffd", " so", ".\n\n", "</think>", "\n\n", "\udcf0",
                     "\udc9f", " A", "\ufffd", "\udcff", "\udcfe", "!"]}
# Control tokens after the reasoning, as ends that are ignored; the answer begins as the thought ends.
ENDS = {"@think": ["<think>", "\n", "Hm", " It", "</think>", "\n\n", "It", "<|end|>", " is", "<|start|>", "<|call|>", " it", ".\n"]}
# An answer without a thought between its markers, as special tokens and as text, and one that thinks after its first words.
NO_THOUGHT = {"@think": ["<think>", "\n\n", "</think>", "\n\n\n", "It", " is", ".\n"]}
NO_THOUGHT_AS_TEXT = {"@think": ["<th", "ink>\n", "\n</think", ">\n", "\nIt", " is", ".\n"]}
LATE = {"@think": ["I", " look", ".", "<think>", "\nHm", "!", "</think>", "\n\n", "It", " is"]}
CONTROL = ["<|end|>", "<|start|>", "<|channel|>", "<|message|>", "<|channel>", "<channel|>", "[THINK]", "[/THINK]", "<|return|>", "<|call|>"]
box = Box("reasoning")
os.mkdir(box.dir + "/models")
notices = []


def template(entry, sign="<think>", answers="{{ m.content }}", think=None):
    """A template of a family whose prompt ends with that entry. `think`: the end of the prompt if reasoning is
    disabled."""
    end = entry if not think else "{% if enable_thinking is defined and not enable_thinking %}" + think + "{% else %}" + entry + "{% endif %}"
    return ("{# " + sign + " #}{% for m in messages %}[{{ m.role }}] {% if m.role == 'assistant' %}" + answers +
            "{% else %}{{ m.content }}{% endif %}\n{% endfor %}{% if add_generation_prompt %}[assistant] " + end + "{% endif %}")


def generate(c, entry, how=None, **params):
    """Returns the result with its `frames`."""
    del notices[:]
    if how is not False:
        params = dict(dict(messages=[{"role": "user", "content": "Is it?"}], chat_template=template(entry, **(how or {}))), **params)
    return follow(c, c.submit("generate", **dict(dict(model="script", sampling={"temperature": 0}), **params)))


def follow(c, id, on_tokens=None):
    frames = []
    while True:
        m = c.read()
        if m is None:
            return frames
        if m[0] == 2 and m[1] == "notice":
            notices.append(m[2][0]["name"])
        if m[0] == 2 and m[1] == "stream.tokens":
            frames.append(m[2][0])
            if on_tokens:
                on_tokens(frames)
        if m[0] == 1 and m[1] == id:
            if m[2]:
                raise Refused(*m[2][1].split(": ", 1))
            return dict(m[3], frames=frames)


def parts(r):
    return r.get("reasoning"), r["text"]


def in_frames(r, what):
    return "".join(f.get(what, "") for f in r["frames"])


def says(r, what, reasoning, text, tokens=None):
    whole = in_frames(r, "reasoning") or None, in_frames(r, "text")
    check(parts(r) == (reasoning, text) == whole and sum(f["count"] for f in r["frames"]) == len(r["tokens"]), what,
          (parts(r), whole))
    if tokens is not None:
        check(r["usage"].get("reasoning_tokens", 0) == tokens, what + ": reasoning_tokens", r["usage"])


def families(c):
    says(generate(c, "@think"), "a family's tokens", "Hm, is it?\nYes.", "It is.\n", 9)
    says(generate(c, "@pieces", model="opened"), "its text, cut anywhere", "So </ think> no", "Okay!", 9)
    says(generate(c, "<think>\n@open"), "a template that does not end with it", None, "Well well\n</think>\nFine.", 0)
    says(generate(c, "@open<think>\n", max_tokens=0), "a prompt alone", None, "", 0)
    says(generate(c, "@plain"), "no thoughts", None, "No thoughts at all", 0)
    says(generate(c, "@harmony", {"sign": "<|channel|>"}), "harmony, closed", None, "ThinkingHello", 0)
    says(generate(c, "@gemma", {"sign": "<|channel>"}), "gemma4", "One", "Two", 6)
    says(generate(c, "[THINK]@long", {"sign": "[THINK]"}), "a marker, and then more", None, THOUGHT + "Enfin", 0)
    r = generate(c, "", how=False, text="@think")
    says(r, "raw text has none", None, "<think>\nHm, is it?\nYes.\n\n</think>\n\n\nIt is.\n", 0)
    r = generate(c, "@think", stop=["it"])
    says(r, "stop strings do not look at reasoning", "Hm, is it?\nYes.", "It is.\n")
    r = generate(c, "@think", stop=["is"])
    says(r, "but at text", "Hm, is it?\nYes.", "It ")
    check(r["finish_reason"] == "stop" and r["usage"]["reasoning_tokens"] == 9, "which they end", r)
    r = generate(c, "@think", stream=False)
    check(parts(r) == ("Hm, is it?\nYes.", "It is.\n") and not r["frames"], "without events", r)
    r = generate(c, "@think", max_tokens=6)
    says(r, "cut short in a thought", "Hm, is it?\n", "", 6)


def opened(c):
    """Prompts that end with the marker that begins reasoning: the entry is the token of the marker."""
    says(generate(c, "<|channel|>analysis<|message|>\n", {"sign": "<|channel|>"}, model="opened"), "harmony, begun by the prompt",
         "Thinking", "Hello", 3)
    says(generate(c, "[THINK]", {"sign": "[THINK]"}, model="opened"), "mistral, the same", THOUGHT, "Enfin", 401)
    says(generate(c, "<think> ", model="opened"), "and <think>, with a blank", "Well well", "Fine.", 6)


def switches(c):
    both = {"think": "@plain"}
    says(generate(c, "@think", both), "as the template has it", "Hm, is it?\nYes.", "It is.\n")
    says(generate(c, "@think", both, think="on"), "asked to think", "Hm, is it?\nYes.", "It is.\n")
    check(not notices, "which the template knows", notices)
    says(generate(c, "@think", both, think="off"), "asked not to", None, "No thoughts at all")
    check(not notices, "and that", notices)
    says(generate(c, "@think", both, think="off", kwargs={"enable_thinking": True}), "kwargs count last", "Hm, is it?\nYes.", "It is.\n")
    says(generate(c, "@think", think="off"), "a template without a switch", "Hm, is it?\nYes.", "It is.\n")
    check(notices == ["THINK_UNKNOWN"], "which is told", notices)
    effort = "{# <|channel|> #}{{ raise_exception(reasoning_effort) }}"
    for think, want in ("off", "low"), ("on", "medium"):
        try:
            generate(c, "", chat_template=effort, think=think)
            check(False, "an effort")
        except Refused as e:
            check(e.args == ("TEMPLATE", want), "harmony's effort, " + think, e)
    for what, params in ("go with messages", dict(text="x", think="on")), ("only on, off", dict(think="maybe")):
        try:
            generate(c, "@think", how=False if "text" in params else None, **params)
            check(False, "refused: " + what)
        except Refused as e:
            check(e.args[0] in ("INVALID_PARAMS", "UNSUPPORTED") and what in e.args[1], "refused: " + what, e)


def sessions(c):
    kept = {"answers": "{% if m.reasoning_content %}@think<think>\n{{ m.reasoning_content }}\n\n</think>\n\n\n"
            "{% else %}@plain{% endif %}{{ m.content }}"}
    generate(c, "@think", kept, session="kept")
    turn = c.call("sessions.show", session="kept")["turns"][1]
    check((turn.get("reasoning"), turn["text"]) == ("Hm, is it?\nYes.", "It is.\n"), "a turn has it apart", turn)
    check(turn["generation"]["usage"]["reasoning_tokens"] == 9, "and its usage", turn)
    generate(c, "@plain", kept, session="kept")
    check(not notices, "a template that wants reasoning_content gets it", notices)
    generate(c, "@think", session="strip")
    generate(c, "@plain", session="strip")
    check(notices == ["HISTORY_KEPT"], "one that leaves it out is told of", notices)
    echo = "{# SIGN #}{% if messages | length > 1 %}{{ raise_exception(messages[1] | tojson) }}{% endif %}"
    answer = {"role": "assistant", "content": "It is.\n"}
    inside = dict(answer, content="<think>\nHm, is it?\nYes.\n</think>\n\nIt is.\n")
    for what, sign, want in (("reasoning_content", "<think>", dict(answer, reasoning_content="Hm, is it?\nYes.")),
                             ("message.thinking", "<|channel|>", dict(answer, thinking="Hm, is it?\nYes.")),
                             ("message.reasoning", "[THINK]", dict(answer, reasoning="Hm, is it?\nYes.")),
                             ("nothing", "<think>", inside)):
        try:
            generate(c, "", chat_template=echo.replace("SIGN", sign + what), session="kept")
        except Refused as e:
            check(e.args[0] == "TEMPLATE" and json.loads(e.args[1]) == want, "a template that reads %s" % what, e)
    page = c.call("sessions.export", session="kept")
    c.call("sessions.import", name="copy", model="script", version=1, turns=page["turns"], turn_open=True)
    again = c.call("sessions.show", session="copy")["turns"]
    check([t.get("reasoning") for t in again] == [None, "Hm, is it?\nYes.", None, None], "export and import keep it", again)
    generate(c, "@plain", kept, session="copy")
    check(not notices, "and give it to the template", notices)
    try:
        c.call("sessions.import", name="bad", model="script", version=1, turn_open=True,
               turns=[{"role": "assistant", "text": "a", "tokens": [1], "reasoning": "b"}])
        check(False, "reasoning that nothing made")
    except Refused as e:
        check(e.args[0] == "INVALID_PARAMS" and "reasoning" in e.args[1], "reasoning that nothing made", e)


def closing(c):
    """How an answer is closed that has no text, or control tokens after it; and what is text of an answer at all."""
    strict = ("{# [THINK] #}{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]{% elif m.content is string %}"
              "{% if not m.content %}{{ raise_exception('an answer has text') }}{% endif %}{{ m.content }}<|eot|>{% else %}"
              "{% for block in m.content %}{{ '[THINK]' + block['thinking'] if block.type == 'thinking' else block.text }}{% endfor %}<|eot|>"
              "{% endif %}{% endfor %}")
    text = lambda name: c.call("detokenize", model="strict", tokens=[i for t in c.call("sessions.export", session=name)["turns"] for i in t["tokens"]])["text"]
    says(generate(c, "", chat_template=strict, model="strict", session="whole"), "blocks of thinking", "Hm.", "Yes")
    says(generate(c, "", chat_template=strict, model="strict", session="whole"), "the next turn", "Hm.", "Yes")
    check(not notices, "a template that reads blocks has it in the content", notices)
    generate(c, "", chat_template=strict, model="strict", session="thinks", max_tokens=2)
    says(generate(c, "", chat_template=strict, model="strict", session="thinks", max_tokens=0), "an answer cut in its thought goes on", None, "")
    marker = c.call("tokenize", model="strict", text="[/THINK]", special=True)["ids"]
    check(marker[0] in c.call("sessions.export", session="thinks")["turns"][2]["tokens"], "and its marker is the token", text("thinks"))
    generate(c, "", chat_template=strict, model="strict", session="none", max_tokens=0)
    says(generate(c, "", chat_template=strict, model="strict", session="none"), "an answer without text is refused by no template", "Hm.", "Yes")
    check("[/INST]<|eot|>[INST]" in text("none"), "and stays empty", text("none"))
    twice = "{# [THINK] #}{% for m in messages %}{{ m.role }} {% if m.role == 'user' %}{{ m.content }}[/INST]{% else %}{{ m.content }}<|eot|>{% endif %}{% endfor %}{% if add_generation_prompt %}assistant @ended{% endif %}"
    for i in range(2):
        generate(c, "", chat_template=twice, model="strict", session="ended")
    check("Fine<|eot|>user" in text("ended"), "what the model wrote after its text is not written again", text("ended"))
    r = generate(c, "", chat_template=twice.replace("@ended", "@call"), model="strict")
    says(r, "the markup of a call is text", None, '[TOOL_CALLS]weather[ARGS]{"city": 1}')
    r = generate(c, "", how=False, model="html", text="@html")
    check(r["text"] == "Not <s>this</s> but that", "Gemma's </s> is markup", r)


def turns(c, name):
    return [(t["role"], t.get("reasoning"), t["text"]) for t in c.call("sessions.show", session=name)["turns"]]


def forks(c):
    """A fork that is cut within an answer has the reasoning and the text up to there, and a template gets both."""
    def cuts(model):
        """Forks an answer after each of its tokens, and returns the number of tokens."""
        n = len(generate(c, "@think", session=model, model=model)["tokens"])
        whole = c.call("sessions.show", session=model)["session"]["tokens"]
        bad = []
        for k in range(1, n):
            want = generate(c, "@think", model=model, max_tokens=k)
            c.call("sessions.fork", session=model, at=whole - n + k, names=["cut"])
            turn = c.call("sessions.show", session="cut")["turns"][1]
            usage = turn["generation"]["usage"]
            if ((turn["role"], turn.get("reasoning"), turn["text"]) != ("assistant",) + parts(want) or
                    any(usage.get(u, 0) != want["usage"].get(u, 0) for u in ("completion_tokens", "reasoning_tokens"))):
                bad.append((k, turn, want))
            c.call("sessions.remove", session="cut")
        check(not bad, "a fork at each token of an answer has what max_tokens leaves of it: " + model, bad)
        return n

    for model in "broken", "no-thought", "no-thought-as-text", "late":
        cuts(model)
    cuts("ends")
    n = cuts("script")
    whole = c.call("sessions.show", session="script")["session"]["tokens"]
    c.call("sessions.fork", session="script", at=whole - n + 6, names=["thought"])
    c.call("sessions.fork", session="thought", at=whole - n + 4, names=["again"])
    check(turns(c, "again")[1:] == [("assistant", "Hm, is", "")], "and so has a fork of a fork", turns(c, "again"))
    try:
        generate(c, "", chat_template="{# <think> #}{% if messages | length > 1 %}{{ raise_exception(messages[1].reasoning_content) }}{% endif %}",
                 session="thought")
    except Refused as e:
        check(e.args == ("TEMPLATE", "Hm, is it?\n"), "a template gets the thought as far as it went", e)
    # Of a generation that is running, within its reasoning and after it.
    made = []

    def fork(frames):
        n = sum(f["count"] for f in frames)
        if not made and n >= 20:
            made.append(box.client().call("sessions.fork", session="live", names=["live fork"])["sessions"][0])
            box.client().call("sessions.fork", session="live", at=made[0]["tokens"] - 5, names=["early fork"])
    r = follow(c, long(c, session="live"), fork)
    prompt = r["usage"]["prompt_tokens"]
    k = made[0]["tokens"] - prompt
    want = "".join(LONG[:k]) if k < 401 else THOUGHT
    check(k >= 20 and turns(c, "live fork")[1:] == [("assistant", want, "".join(["En", "fin"][:max(0, k - 401)]))],
          "a fork of one that runs has what was thought by then", (k, turns(c, "live fork")))
    want = "".join(LONG[:k - 5]) if k - 5 < 401 else THOUGHT
    check(turns(c, "early fork")[1:] == [("assistant", want, "".join(["En", "fin"][:max(0, k - 5 - 401)]))],
          "... and some tokens before", (k, turns(c, "early fork")))
    c.call("generate", model="script", session="raw", text="@plain", max_tokens=3, sampling={"temperature": 0})
    whole = c.call("sessions.show", session="raw")["session"]["tokens"]
    c.call("sessions.fork", session="raw", at=whole - 1, names=["raw 2"])
    c.call("sessions.fork", session="raw 2", at=whole - 2, names=["raw 1"])
    check(turns(c, "raw 1")[1:] == [("completion", None, "No")], "a cut of a cut is of a completion still", turns(c, "raw 1"))
    # What the engine was asked about is gone when it answers; then the engine dies while it is asked.
    pid = c.call("status")["engine"]["pid"]
    c.call("generate", model="script", session="other", text="@think", max_tokens=3, sampling={"temperature": 0})
    os.kill(pid, signal.SIGSTOP)
    id = c.submit("sessions.fork", session="raw", at=whole - 1, names=["mixed"])
    for name, new in ("raw", "was raw"), ("other", "raw"):
        c.call("sessions.rename", session=name, name=new)
    os.kill(pid, signal.SIGCONT)
    try:
        c.answer(id)
        check(False, "another session of that name, and of that length", turns(c, "mixed"))
    except Refused as e:
        check(e.args[0] == "CONFLICT" and "changed" in e.args[1], "another session of that name, and of that length", e)
    os.kill(pid, signal.SIGSTOP)
    id = c.submit("sessions.fork", session="script", at=prompt_of(c, "script") + 5, names=["survivor"])
    c.call("sessions.list")  # the engine has been asked by now
    os.kill(pid, signal.SIGKILL)
    c.answer(id)
    check(turns(c, "survivor")[1:] == [("assistant", "Hm, is it", "")], "an engine that dies meanwhile is no matter", turns(c, "survivor"))


def prompt_of(c, name):
    """The number of tokens before the session's answer."""
    return c.call("sessions.show", session=name)["turns"][0]["n_tokens"]


def long(c, **params):
    return c.submit("generate", model="opened", sampling={"temperature": 0}, messages=[{"role": "user", "content": "Go"}],
                    chat_template=template("[THINK]", sign="[THINK]"), **params)


def streams(c):
    r = follow(c, long(c, request="whole"))
    says(r, "a long thought", THOUGHT, "Enfin", 401)
    for at in 0, 1, 200, 400, 401, 402, 403:
        d = box.client()
        got = follow(d, d.submit("stream.attach", request="whole", **{"from": at}))
        check((in_frames(got, "reasoning"), in_frames(got, "text")) == ("".join(LONG[at:]), "".join(["En", "fin"][max(0, at - 401):])) and
              parts(got) == parts(r) and got["frames"][:1] and got["frames"][0]["index"] == at or at == 403 and not got["frames"],
              "attached to from token %d" % at, (at, got))
        d.close()
    again = follow(c, long(c, request="whole"))
    says(again, "the same request again", THOUGHT, "Enfin", 401)
    # Cancelled in the middle: what was generated is valid, and a session continues with it.
    def cancel(frames):
        if len(frames) == 20:
            c.submit("cancel", request="stopped")
    r = follow(c, long(c, request="stopped", session="stopped"), cancel)
    n = len(r["tokens"])
    check(r["finish_reason"] == "cancelled" and parts(r) == ("".join(LONG[:n]), "") and 20 <= n < 400 and
          r["usage"]["reasoning_tokens"] == n, "cancelled in a thought", r)
    turn = c.call("sessions.show", session="stopped")["turns"][1]
    check((turn["reasoning"], turn["text"]) == (r["reasoning"], ""), "what the session has of it", turn)
    r = follow(c, long(c, session="stopped"))
    says(r, "and the turn after", THOUGHT, "Enfin", 401)


def killed(c):
    hit = []

    def kill_engine(frames):
        if len(hit) < 2 and sum(f["count"] for f in frames) >= 50 + 100 * len(hit):
            pid = box.client().call("status")["engine"]["pid"]
            if pid and pid not in hit:
                hit.append(pid)
                os.kill(pid, signal.SIGKILL)
    r = follow(c, long(c, request="engine"), kill_engine)
    says(r, "the engine is killed in a thought, twice", THOUGHT, "Enfin", 401)
    check(len(hit) == 2 and "RECOVERING" in notices, "which is seen", (hit, notices))
    killed = []

    def kill_daemon(frames):
        if not killed and sum(f["count"] for f in frames) >= 60:
            killed.append(box.kill())
    frames = follow(c, long(c, request="daemon", session="daemon"), kill_daemon)
    had = "".join(f.get("reasoning", "") for f in frames)
    box.start()
    d = box.client()
    n = sum(f["count"] for f in frames)
    r = follow(d, d.submit("stream.attach", request="daemon", **{"from": n}))
    check(killed and 0 < n < 400 and parts(r) == (THOUGHT, "Enfin") and had + in_frames(r, "reasoning") == THOUGHT and
          in_frames(r, "text") == "Enfin" and r["usage"]["reasoning_tokens"] == 401, "hearthd is killed in a thought", (n, r))
    turn = d.call("sessions.show", session="daemon")["turns"][1]
    check((turn.get("reasoning"), turn["text"]) == (THOUGHT, "Enfin"), "and what the session has", turn)
    d.close()


try:
    script_model.write(box.dir + "/models/script.gguf", SCRIPTS, control=CONTROL, user=["<think>", "</think>"])
    script_model.write(box.dir + "/models/broken.gguf", BROKEN, user=["<think>", "</think>"])
    script_model.write(box.dir + "/models/ends.gguf", ENDS, control=CONTROL + ["<think>", "</think>"])
    script_model.write(box.dir + "/models/no-thought.gguf", NO_THOUGHT, control=["<think>", "</think>"])
    script_model.write(box.dir + "/models/no-thought-as-text.gguf", NO_THOUGHT_AS_TEXT)
    script_model.write(box.dir + "/models/late.gguf", LATE, control=["<think>", "</think>"])
    script_model.write(box.dir + "/models/strict.gguf",
                       {"[/INST]": ["[THINK]", "Hm", ".", "[/THINK]", "Yes"], "@ended": ["Fine", "<|eot|>"],
                        "@call": ["[TOOL_CALLS]", "weather", "[ARGS]", '{"city"', ": 1}"]},
                       control=["[INST]", "[/INST]", "[THINK]", "[/THINK]", "<|eot|>", "[TOOL_CALLS]", "[ARGS]"])
    script_model.write(box.dir + "/models/html.gguf", {"@html": ["Not ", "<s>", "this", "</s>", " but that", "<end_of_turn>"]},
                       control=["<eos>", "<end_of_turn>"])
    script_model.write(box.dir + "/models/opened.gguf",
                       {"\n": ["Think", "ing", "<|end|>", "<|start|>", "assistant", "<|channel|>", "final", "<|message|>", "Hel", "lo"],
                        "@pieces": ["<th", "ink>\nS", "o", " <", "/ thi", "nk>", " no\n<", "/thin", "k>\n\nO", "kay", "!"],
                        "[THINK]": LONG + ["[/THINK]", "En", "fin"], " ": ["W", "ell", " well", "\n</", "th", "ink>\nFi", "ne", "."]},
                       control=CONTROL)
    box.configure("model_dir = %s/models" % box.dir, "threads = 2", "attach_grace = 600")
    box.start()
    c = box.client()
    families(c)
    opened(c)
    switches(c)
    sessions(c)
    closing(c)
    forks(c)
    streams(c)
    killed(c)
    box.stop()
finally:
    harness.end(box)
