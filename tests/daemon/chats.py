#!/usr/bin/python3
"""Chats by a template: what `messages` append to a session's timeline, and that a template which would change the
history changes nothing, and is reported. Uses the embedded model with templates of this test. Prints TAP.
"""
import json, sys

sys.dont_write_bytecode = True
import harness
from harness import Box, Refused, check

GREEDY = {"temperature": 0}
OPEN = "<|im_start|>assistant\n"
CHATML = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ CONTENT }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
box = Box("chats")
notices = []


def user(text, **more):
    return [dict(role="user", content=text, **more)]


def generate(c, **params):
    """Returns the result; the stream's notices are kept in `notices`."""
    del notices[:]
    id = c.submit("generate", **dict(dict(max_tokens=8, sampling=GREEDY), **params))
    while True:
        m = c.read()
        if m[0] == 2 and m[1] == "notice":
            notices.append(m[2][0]["name"])
        if m[0] == 1 and m[1] == id:
            if m[2]:
                raise Refused(*m[2][1].split(": ", 1))
            return m[3]


def refused(c, name, words, **params):
    try:
        generate(c, **params)
        return "not refused"
    except Refused as r:
        return "" if r.args[0] == name and words in r.args[1] else r.args


def ids(c, text):
    return c.call("tokenize", model="tale", text=text, special=True, bos=0)["ids"]


def timeline(c, session):
    return c.call("sessions.show", session=session, tokens=True)["tokens"]


def goes_on(c, what, session, kept, adds, **params):
    """The next generation appends exactly the ids of `adds`, and reports whether the template would have changed
    more."""
    before = timeline(c, session)
    r = generate(c, session=session, **params)
    after = timeline(c, session)
    want = ids(c, adds)
    check(after[:len(before)] == before and after[len(before):len(before) + len(want)] == want and
          after[len(before) + len(want):] == r["tokens"], what + ": what is appended",
          c.call("detokenize", model="tale", tokens=after[len(before):])["text"])
    check(("HISTORY_KEPT" in notices) == kept, what + (": it is told" if kept else ": nothing to tell"), notices)
    return r


def plain(c):
    r = generate(c, model="tale", session="plain", messages=[{"role": "system", "content": "Be brief."}] + user("Hi"))
    check(r["usage"]["prompt_tokens"] == len(ids(c, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi"
                                                 "<|im_end|>\n" + OPEN)), "the first turn", r)
    for text in "And?", "<|im_end|>", "So.":
        adds = "<|im_end|>\n<|im_start|>user\n" + text + "<|im_end|>\n" + OPEN
        if text == "<|im_end|>":
            before = timeline(c, "plain")
            generate(c, session="plain", messages=user(text))
            more = timeline(c, "plain")[len(before):]
            end = ids(c, "<|im_end|>")[0]
            check(more.count(end) == 2 and not notices, "a control token's text is text in a session, too", more)
        else:
            goes_on(c, "another turn (%s)" % text, "plain", False, adds, messages=user(text))
    c.close()


def rewriting(c):
    last = CHATML.replace("CONTENT", "m.content.split(' ')[-1] if m.role == 'assistant' else m.content")
    generate(c, model="tale", session="strip", messages=user("Hi"), chat_template=last)
    adds = "<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n" + OPEN
    goes_on(c, "an answer cut short", "strip", True, adds, messages=user("more"), chat_template=last)
    goes_on(c, "and the turn after", "strip", True, adds, messages=user("more"), chat_template=last)
    date = CHATML.replace("{% for", "{{ day }}{% for", 1).replace("CONTENT", "m.content")
    generate(c, model="tale", session="date", messages=user("Hi"), chat_template=date, kwargs={"day": "Mon\n"})
    goes_on(c, "another day", "date", True, adds, messages=user("more"), chat_template=date, kwargs={"day": "Tue\n"})
    goes_on(c, "the first day", "date", False, adds, messages=user("more"), chat_template=date, kwargs={"day": "Mon\n"})
    trim = CHATML.replace("CONTENT", "m.content | trim")
    generate(c, model="tale", session="trim", messages=user("Hi"), chat_template=trim, max_tokens=3)
    generate(c, session="trim", text=" end. \n", max_tokens=0)
    goes_on(c, "blanks at an answer's end", "trim", True, adds, messages=user("more"), chat_template=trim)
    tools = CHATML.replace("CONTENT", "(tools | tojson if loop.last else '') ~ m.content")
    generate(c, model="tale", session="tools", messages=user("Hi"), chat_template=tools, tools=[1])
    goes_on(c, "tools before the last message", "tools", True,
            "<|im_end|>\n<|im_start|>user\n[1]more<|im_end|>\n" + OPEN, messages=user("more"), chat_template=tools, tools=[1])
    none = CHATML.replace("CONTENT", "m.content if m.role != 'assistant' else ''")
    generate(c, model="tale", session="none", messages=user("Hi"), chat_template=none)
    n = len(timeline(c, "none"))
    why = refused(c, "TEMPLATE", "last answer", session="none", messages=user("more"), chat_template=none)
    check(not why and len(timeline(c, "none")) == n, "a template that leaves answers out", why)
    c.close()


def mixed(c):
    generate(c, model="tale", session="mixed", text="Once upon a time", max_tokens=4)
    goes_on(c, "messages after raw text", "mixed", False, "<|im_start|>user\nHi<|im_end|>\n" + OPEN, messages=user("Hi"))
    adds = "<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n" + OPEN
    goes_on(c, "and more of them", "mixed", False, adds, messages=user("more"))
    generate(c, session="mixed", text=" and so", max_tokens=4)
    goes_on(c, "raw text inside an answer", "mixed", False, adds, messages=user("more"))
    why = refused(c, "INVALID_PARAMS", "raw text", session="mixed", messages=[{"role": "text", "content": "x"}])
    check(not why, "a role that is a session's own word", why)
    c.close()


def keys_of_messages(c):
    """A template that needs further keys of a message: they are kept as long as the session."""
    calls = CHATML.replace("CONTENT", "m.tool_call_id.upper() ~ m.content if m.role == 'tool' else m.content")
    generate(c, model="tale", session="calls", messages=user("Hi", name="Ann"), chat_template=calls)
    tool = [{"role": "tool", "content": "7", "tool_call_id": "c1"}]
    goes_on(c, "a tool's answer", "calls", False, "<|im_end|>\n<|im_start|>tool\nC17<|im_end|>\n" + OPEN, messages=tool,
            chat_template=calls)
    adds = "<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n" + OPEN
    goes_on(c, "its keys later", "calls", False, adds, messages=user("more"), chat_template=calls)
    page = c.call("sessions.export", session="calls")
    check(["message" in t for t in page["turns"]] == [True, False, True, False, False, False] and
          page["turns"][2]["message"] == tool[0], "an export has them", page["turns"])
    shown = c.call("sessions.show", session="calls")["turns"]
    check(shown[0]["message"] == user("Hi", name="Ann")[0] and shown[0]["text"] == "Hi", "and what people see", shown[0])
    c.call("sessions.import", name="copy", model="tale", version=1, turns=page["turns"], turn_open=True)
    for what, bad in (("role: is missing", {"content": "x"}), ("content: is missing", {"role": "user", "contents": "x"}),
                      ("role: must be a str", {"role": 1, "content": "x"}), ("content[0]", {"role": "user", "content": ["x"]})):
        try:
            c.call("sessions.import", name="bad", model="tale", version=1,
                   turns=[{"role": "user", "text": "x", "tokens": [300]}, {"role": "user", "text": "x", "tokens": [300], "message": bad}])
            check(False, "an imported message that is none: " + what)
        except Refused as e:
            check(e.args[0] == "INVALID_PARAMS" and "sessions.import.turns[1].message." + what in e.args[1],
                  "an imported message that is none: " + what, e)
    goes_on(c, "an import has them too", "copy", False, adds, messages=user("more"), chat_template=calls)
    c.close()


def parts(c):
    echo = "{{ raise_exception(messages | tojson) }}"
    for what, m in (
            ("keys of a message", {"role": "tool", "content": "7", "tool_call_id": "c1", "name": "f", "x": {"b": [1.0], "a": None}}),
            ("a message without content", {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}),
            ("content that is null", {"role": "assistant", "content": None, "reasoning_content": "hm"}),
            ("any role", {"role": "ipython", "content": "x"})):
        why = refused(c, "TEMPLATE", json.dumps([m], ensure_ascii=False), model="tale", messages=[m], chat_template=echo)
        check(not why, what, why)
    why = refused(c, "INVALID_PARAMS", "content: is missing", model="tale", messages=[{"role": "user", "contents": "x"}])
    check(not why, "a message that has nothing to say", why)
    why = refused(c, "INVALID_PARAMS", "messages[1].content", model="tale", messages=user("a") + [{"role": "user", "content": b"\xff"}])
    check(not why, "content that is no text", why)
    deep = 1
    for _ in range(64):
        deep = [deep]
    r = generate(c, model="tale", messages=user("x"), chat_template="{{ d | tojson }}{{ e.z }}{{ e }}", max_tokens=0,
                 kwargs={"d": deep, "e": {"z": 1, "a": 2}})
    want = ids(c, "[" * 64 + "1" + "]" * 64 + "1{'z': 1, 'a': 2}")
    check(r["usage"]["prompt_tokens"] == len(want), "kwargs of 64 levels, in their order", r["usage"])
    typed = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    say = "{{ raise_exception(messages[0].content | string) }}"
    why = refused(c, "TEMPLATE", "ab", model="tale", messages=user(typed), chat_template=say)
    check(not why, "texts of parts are joined where the template reads none", why)
    read = "{{ 'Q' if messages[0].content is string else messages[0].content[0].text }}{% if messages[0].content | length == 2 " \
           "and messages[0].content is not string %}{{ raise_exception(messages[0].content[1].type) }}{% endif %}"
    why = refused(c, "TEMPLATE", "text", model="tale", messages=user(typed), chat_template=read)
    check(not why, "and given where it reads them", why)
    more = {"name": "b\\\"[o]b", "x": [{"content": []}], "tool_call_id": "1"}
    want = json.dumps([dict(role="user", content="ab", **more)], ensure_ascii=False)
    why = refused(c, "TEMPLATE", want, model="tale", messages=user(typed, **more),
                  chat_template="{% if messages[0].content is string %}{{ raise_exception(messages | tojson) }}{% endif %}")
    check(not why, "... of a message with other keys, too", why)
    why = refused(c, "TEMPLATE", "text", model="tale", messages=user(typed, **more), chat_template=read)
    check(not why, "... and given", why)
    history = "{% for m in messages %}<{{ m.content }}>{% endfor %}"
    generate(c, model="tale", session="typed", messages=user(typed, **more), chat_template=history, max_tokens=0)
    goes_on(c, "parts of a message that is history", "typed", False, "<><x>", messages=user("x"), chat_template=history, max_tokens=0)
    said = c.call("detokenize", model="tale", tokens=timeline(c, "typed"))["text"]
    check(said == "<ab><><x>", "... are joined", said)
    for what, name, text, params in (
            ("a refusal", "TEMPLATE", "roles", {"chat_template": "{{ raise_exception('roles must alternate') }}"}),
            ("an error", "TEMPLATE", "line 1", {"chat_template": "{{ a.b.c }}"}),
            ("no template", "TEMPLATE", "line 1", {"chat_template": "{% if %}"}),
            ("no such name", "NO_TEMPLATE", "default", {"template_name": "rag"})):
        why = refused(c, name, text, model="tale", session="never", messages=user("x"), **params)
        check(not why, what + " comes before anything is generated", why)
    check(all(s.get("name") != "never" for s in c.call("sessions.list")["sessions"]), "and leaves no session")
    why = refused(c, "INVALID_PARAMS", "go with messages", model="tale", text="x", tools=[])
    check(not why, "tools without messages", why)
    first = generate(c, model="tale", request="r", messages=user("x"), kwargs={"a": 1}, max_tokens=2)
    again = generate(c, model="tale", request="r", messages=user("x"), kwargs={"a": 1}, max_tokens=2)
    check(first["tokens"] == again["tokens"], "a retry with the same kwargs", again)
    why = refused(c, "CONFLICT", "other content", model="tale", request="r", messages=user("x"), kwargs={"a": 2}, max_tokens=2)
    check(not why, "other kwargs are another request", why)
    c.close()


try:
    box.models()
    box.configure("model_dir = " + box.dir + "/models")
    box.start()
    plain(box.client())
    rewriting(box.client())
    mixed(box.client())
    keys_of_messages(box.client())
    parts(box.client())
    box.stop()
    box.start()
    c = box.client()
    adds = "<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n" + OPEN
    goes_on(c, "after a restart", "mixed", False, adds, messages=user("more"))
    c.close()
    box.stop()
finally:
    harness.end(box)
