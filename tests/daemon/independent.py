#!/usr/bin/python3
"""An independent client: MessagePack-RPC written from PROTOCOL.md with python3-msgpack, without any of hearth's code.

It runs a private hearthd with the embedded model and checks everything on which other clients rely. Prints TAP.
"""
import json, os, re, socket, sys

sys.dont_write_bytecode = True
import harness
from harness import SRC, Box, check, msgpack


class Client:
    def __init__(self, path, hello=True, **params):
        self.s = socket.socket(socket.AF_UNIX)
        self.s.settimeout(120)
        self.s.connect(path)
        self.un = msgpack.Unpacker(raw=False, strict_map_key=False)
        self.id, self.events = 0, []
        if hello:
            self.greeting = self.call("hello", version_min=1, version_max=1, client="independent", **params)

    def send(self, raw):
        self.s.sendall(raw)

    def submit(self, method, **params):
        self.id += 1
        self.send(msgpack.packb([0, self.id, method, [params]]))
        return self.id

    def read(self):
        while True:
            for m in self.un:
                return m
            data = self.s.recv(65536)
            if not data:
                raise EOFError
            self.un.feed(data)

    def answer(self, id):
        while True:
            m = self.read()
            if m[0] == 1 and m[1] == id:
                return m[2], m[3]
            self.events.append(m)

    def call(self, method, **params):
        err, result = self.answer(self.submit(method, **params))
        if err is not None:
            raise RuntimeError(err)
        return result

    def error(self, method, **params):
        err, result = self.answer(self.submit(method, **params))
        return err

    def generate(self, **params):
        self.events = []
        return self.call("generate", **params)


def frames(c):
    """From the events of the last generate: (begin, text, whether the indices are consecutive)."""
    begin = [e[2][0] for e in c.events if e[1] == "stream.begin"]
    tokens = [e[2][0] for e in c.events if e[1] == "stream.tokens"]
    at, ok = 0, True
    for t in tokens:
        ok = ok and t["index"] == at
        at += t["count"]
    return begin, "".join(t["text"] for t in tokens), ok, at


GREEDY = {"temperature": 0}
FROG = "<|im_start|>user\nTell me the tale of the frog king.<|im_end|>\n<|im_start|>assistant\n"
golden = json.load(open(SRC + "/tests/golden/data/tale-q4_k_m.json"))
case = {c["prompt"]: c for c in golden["cases"]}

box = Box("independent")
try:
    box.start()
    c = Client(box.socket)
    g = c.greeting
    check(g["version"] == 1 and g["server"].startswith("hearth ") and isinstance(g["features"], list)
          and g["limits"]["frame_bytes"] >= 1 << 20, "hello answers version, server, features and limits", g)

    # one round trip, with hello pipelined with the first request
    p = Client(box.socket, hello=False)
    p.send(msgpack.packb([0, 1, "hello", [{"version_min": 1, "version_max": 1}]]) +
           msgpack.packb([0, 2, "generate", [{"model": "tale", "text": "Once upon a time", "max_tokens": 8,
                                              "sampling": GREEDY}]]))
    e1, r1 = p.answer(1)
    e2, r2 = p.answer(2)
    check(e1 is None and e2 is None and r2["finish_reason"] == "length", "hello and generate go in one write", (e1, e2))

    r = c.generate(model="tale", text="Once upon a time", max_tokens=64, sampling=GREEDY, request="r1")
    begin, text, consecutive, n = frames(c)
    check(r["tokens"] == case["Once upon a time"]["greedy"][:len(r["tokens"])] and len(r["tokens"]) >= 32,
          "greedy tokens are the golden ones", r)
    check(len(begin) == 1 and begin[0]["stream"] == r["stream"] and begin[0].get("request") == "r1" and
          c.events[0][1] == "stream.begin", "stream.begin comes first, with stream and request", c.events[:1])
    check(text == r["text"] and consecutive and n == r["usage"]["completion_tokens"],
          "the frames' texts concatenate to the result's, indices count on", (text, r))
    u = r["usage"]
    check(u["prompt_tokens"] == 4 == u["reused_tokens"] + u["computed_tokens"] and u["computed_tokens"] >= 1,
          "usage adds up", u)
    check(r.get("session") is None and c.call("sessions.list")["sessions"] == [],
          "a generation without a session keeps none", r.get("session"))

    # sessions
    a = c.generate(model="tale", session="s1", text="Once upon a time", max_tokens=20, sampling=GREEDY)
    b = c.generate(session="s1", text=" The king", max_tokens=10, sampling=GREEDY)
    whole = c.generate(model="tale", tokens=case["Once upon a time"]["tokens"] + a["tokens"] +
                       c.call("tokenize", model="tale", text=" The king", special=False)["ids"],
                       max_tokens=10, sampling=GREEDY)
    check(b["tokens"] == whole["tokens"], "a resumed session goes on as the whole timeline would", (b, whole))
    u = b["usage"]
    check(u["reused_tokens"] >= 4 + 20 - 1 and u["prompt_tokens"] == u["reused_tokens"] + u["computed_tokens"],
          "resuming computes the last token and the new ones", u)

    # the example of PROTOCOL.md
    example = re.search(r'"text": " time there was", "tokens": (\[[^]]*\]).*?"prompt_tokens": (\d+)',
                        open(SRC + "/libclient/PROTOCOL.md").read(), re.S)
    r = c.generate(model="tale", text="Once upon a", max_tokens=3, sampling=GREEDY)
    check(r["text"] == " time there was" and r["tokens"] == json.loads(example[1]) and
          r["usage"]["prompt_tokens"] == int(example[2]), "the protocol's example is true", (r, example[0]))

    # dry runs
    c.generate(model="tale", session="dry", text="Once upon a time there was a king who had three daughters",
               max_tokens=20, sampling=GREEDY)
    ask = dict(session="dry", text=" And then the king said to the queen that", max_tokens=4, sampling=GREEDY)
    dry = c.call("generate", dry=True, **ask)
    check(set(dry) == {"prompt_tokens", "reused_tokens", "fits"} and dry["fits"] is True, "dry has three fields", dry)
    again = c.call("generate", dry=True, **ask)
    r = c.generate(**ask)
    check(again == dry and dry["prompt_tokens"] == r["usage"]["prompt_tokens"] and
          r["usage"]["reused_tokens"] - 16 < dry["reused_tokens"] <= r["usage"]["reused_tokens"] and
          dry["reused_tokens"] % 16 == 0 and dry["reused_tokens"] >= 16,
          "dry is what it costs then, KV in full pages, and changes nothing", (dry, again, r["usage"]))
    told = [{"role": "user", "content": "Tell me the tale of the frog king."}]
    dry = c.call("generate", dry=True, model="tale", messages=told, max_tokens=8)
    r = c.generate(model="tale", messages=told, max_tokens=8, sampling=GREEDY)
    check(dry["prompt_tokens"] == r["usage"]["prompt_tokens"], "messages are counted with their template", (dry, r["usage"]))
    most = 1024 - 4
    fits = [c.call("generate", dry=True, model="tale", tokens=[300] * n, max_tokens=m)["fits"]
            for n, m in ((most, 4), (most + 1, 4), (1023, -1), (1024, -1), (1024, 0), (2000, -1))]
    check(fits == [True, False, True, False, True, False], "fits is about prompt and max_tokens", fits)
    check(c.call("streams.list", ended=False)["streams"] == [] and
          c.error("generate", dry=True, model="nonesuch", text="x")[1].startswith("MODEL_NOT_FOUND: "),
          "nothing runs for it, and errors are generate's")
    c.send(msgpack.packb([2, "generate", [{"request": "dry", "dry": True, "model": "tale", "text": "x"}]]))
    c.call("status")
    check(any(e[1] == "stream.error" and "generate.dry: needs an answer" in e[2][0]["error"][1] for e in c.events),
          "it is no notification", c.events)
    c.events = []
    c.call("sessions.remove", session="dry")

    d = Client(box.socket)
    s = d.call("sessions.list")["sessions"]
    check(len(s) == 1 and s[0]["name"] == "s1" and s[0]["tokens"] == u["prompt_tokens"] + 10, "another client lists it", s)
    check(d.generate(session=s[0]["id"], text=".", max_tokens=1, sampling=GREEDY)["session"] == s[0]["id"],
          "and resumes it by id")
    check(c.error("generate", model="/nowhere/else.gguf", session="s1", text="x")[1].split(":")[0] in
          ("MODEL_MISMATCH", "MODEL_NOT_FOUND"), "a session is bound to its model")
    c.call("sessions.rename", session="s1", name="s2")
    check(c.error("sessions.show", session="s1")[1].startswith("SESSION_NOT_FOUND: "), "renamed: the old name is gone")
    show = c.call("sessions.show", session="s2", tokens=True)
    check(len(show["tokens"]) == show["session"]["tokens"] and len(show["turns"]) >= 2, "show has turns and tokens", show)

    # messages
    m = c.generate(model="tale", messages=[{"role": "user", "content": "Tell me the tale of the frog king."}],
                   max_tokens=16, sampling=GREEDY)
    check(m["tokens"] == case[FROG]["greedy"][:16], "messages are rendered as ChatML", m)
    m2 = c.generate(model="tale", session="chat", max_tokens=16, sampling=GREEDY,
                    messages=[{"role": "user", "content": [{"type": "text", "text": "Tell me the tale of the "},
                                                           {"type": "text", "text": "frog king."}]}])
    check(m2["tokens"] == m["tokens"], "content may be typed parts", m2)
    e = c.error("generate", model="tale", messages=[{"role": "user", "content": [{"type": "image_url", "url": "x"}]}])
    check(e[0] == 1 and "image_url" in e[1], "a part type not known is refused by name", e)
    n0 = m2["usage"]["prompt_tokens"]
    m3 = c.generate(session="chat", messages=[{"role": "user", "content": "And then?"}], max_tokens=4, sampling=GREEDY)
    tail = c.call("tokenize", model="tale", special=True,
                  text="<|im_end|>\n<|im_start|>user\nAnd then?<|im_end|>\n<|im_start|>assistant\n")["ids"]
    t = c.call("sessions.show", session="chat", tokens=True)["tokens"]
    check(t[n0 + 16:n0 + 16 + len(tail)] == tail, "the next turn closes the one before and appends only itself", t)
    e = c.generate(model="tale", messages=[{"role": "user", "content": "<|im_end|>"}], max_tokens=1, sampling=GREEDY)
    check(e["usage"]["prompt_tokens"] > len(c.call("tokenize", model="tale", special=True, text=
          "<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n")["ids"]), "markup in content is plain text", e)

    # sampling
    hot = {"temperature": 0.9, "seed": 42}
    x = c.generate(model="tale", text="The princess said,", max_tokens=40, sampling=hot)
    y = c.generate(model="tale", text="The princess said,", max_tokens=40, sampling=hot)
    z = c.generate(model="tale", text="The princess said,", max_tokens=40, sampling={"temperature": 0.9})
    check(x["tokens"] == y["tokens"] and x["seed"] == 42 and isinstance(z["seed"], int), "a seed repeats, one is drawn", (x, z))
    again = c.generate(model="tale", text="The princess said,", max_tokens=40,
                       sampling={"temperature": 0.9, "seed": z["seed"]})
    check(again["tokens"] == z["tokens"], "a drawn seed repeats too")
    full = case["Once upon a time"]["text"]
    word = full.split()[6]
    r = c.generate(model="tale", text="Once upon a time", max_tokens=64, sampling=GREEDY, stop=[word])
    check(r["finish_reason"] == "stop" and r["text"] == full[:full.index(word)], "a stop string ends the text before it",
          (word, r["text"]))
    r = c.generate(model="tale", text="Once upon a time", max_tokens=3, sampling=GREEDY, logprobs=2)
    lp = r["logprobs"]
    check(len(lp) == 3 and all(len(t["top"]) == 2 and t["top"][0]["logprob"] <= 0 for t in lp), "logprobs", lp)
    r = c.generate(model="tale", text="Once upon a time", max_tokens=2, sampling=dict(GREEDY, logit_bias=[[77, 100.0]]))
    check(r["tokens"] == [77, 77], "logit bias", r)
    eos = [t["id"] for t in c.call("models.show", model="tale")["special"] if t["role"] == "eos"]
    ends = dict(model="tale", text="Once upon a time", max_tokens=3, sampling=dict(GREEDY, logit_bias=[[eos[0], 100.0]]))
    r = c.generate(**ends)
    check(r["tokens"] == [] and r["finish_reason"] == "stop", "an end token ends the text", r)
    r = c.generate(ignore_eos=True, **ends)
    check(r["tokens"] == eos * 3 and r["finish_reason"] == "length", "with ignore_eos it is a token like others", r)

    # refusals that name the problem
    for method in "embed",:
        e = c.error(method)
        check(e[0] == 1 and e[1].startswith("UNSUPPORTED: ") and method in e[1], "%s is reserved" % method, e)
    for field, v in ("adapter", "x"), ("grammar", "x"):
        e = c.error("generate", model="tale", text="x", **{field: v})
        check(e[0] == 1 and e[1].startswith("UNSUPPORTED: ") and field in e[1], "generate.%s is reserved" % field, e)
    e = c.error("nonesuch")
    check(e[0] == 1 and e[1].startswith("UNKNOWN_METHOD: "), "an unknown method", e)
    e = c.error("generate", model="tale", text="x", sampling={"temperature": float("nan")})
    check(e[0] == 1 and "temperature" in e[1], "NaN is refused and named", e)
    c.call("generate", model="tale", text="x", max_tokens=1, session="named")
    for method, field, value, params in (
            ("sessions.show", "session", 1, {}), ("sessions.remove", "session", 1, {}), ("sessions.list", "from", 1, {}),
            ("sessions.rename", "name", "a\n", {"session": "named"}), ("sessions.fork", "names", ["a\n"], {"session": "named"}),
            ("sessions.import", "name", "a\n", {"version": 1, "model": "tale"}), ("sessions.export", "from", -1, {"session": "named"}),
            ("models.load", "model", 1, {}), ("models.unload", "model", 1, {}), ("backup", "path", 1, {}),
            ("cancel", "stream", -1, {"request": "r"}), ("stream.attach", "stream", -1, {"request": "r"}),
            ("generate", "session", "a\n", {"model": "tale", "text": "x"}), ("generate", "tokens", [5000], {"model": "tale"}),
            ("detokenize", "tokens", [5000], {"model": "tale"}), ("eval", "tokens", [5000], {"model": "tale"})):
        e = c.error(method, **dict(params, **{field: value}))
        check(e and e[0] == 1 and e[1].startswith("INVALID_PARAMS: %s.%s" % (method, field)),
              "a refusal names %s.%s" % (method, field), e)
    c.call("sessions.remove", session="named")
    deep = Client(box.socket, hello=False)
    deep.send(b"\x91" * 81 + b"\xc0")
    m = deep.read()
    check(m[1] == 0 and m[2][1].startswith("TOO_LARGE: "), "a message that nests deeper than hello's limit", m)
    e = c.error("generate", model="nonesuch", text="x")
    check(e[0] == 1 and e[1].startswith("MODEL_NOT_FOUND: ") and "nonesuch" in e[1], "a model that is not there", e)
    e = c.error("generate", model="tale")
    check(e[0] == 1 and e[1].startswith("INVALID_PARAMS: "), "neither text, messages nor tokens", e)
    e = c.error("generate", model="tale", tokens=[5000])
    check(e[0] == 1 and "5000" in e[1], "a token id beyond the vocabulary", e)
    e = c.error("generate", model="tale", text="word " * 3000)
    check(e[0] == 1 and e[1].startswith("CONTEXT_FULL: "), "a prompt that does not fit", e)
    r = c.generate(model="tale", tokens=[300] * 1000, sampling=dict(GREEDY, logit_bias=[[i, -100.0] for i in range(3)]))
    check(r["finish_reason"] == "context_full" and r["usage"]["completion_tokens"] >= 24, "a full context says so",
          (r["finish_reason"], r["usage"]))

    # a session is exported page by page, and imported under another name
    def export(name):
        turns, at = [], 0
        while at is not None:
            page = c.call("sessions.export", session=name, **{"from": at})
            turns += page["turns"]
            at = page.get("next")
        return page, turns
    page, turns = export("chat")
    ids = [i for t in turns for i in t["tokens"]]
    check(page["version"] == 1 and ids == c.call("sessions.show", session="chat", tokens=True)["tokens"],
          "an export has the timeline", page)
    infos = [t["generation"] for t in turns if t["role"] == "assistant"]
    check(infos and all(m["usage"]["completion_tokens"] > 0 and "seed" in m["sampling"] for m in infos),
          "and how each turn was generated", infos)
    for i, t in enumerate(turns):
        r = c.call("sessions.import", page=i, more=i + 1 < len(turns), turns=[t], version=1, name="chat copy", model="tale",
                   turn_open=page["turn_open"])
    check(r["session"]["tokens"] == len(ids) and export("chat copy")[1] == turns, "an import in pages is the same", r)
    more = {"messages": [{"role": "user", "content": "And then?"}], "max_tokens": 8, "sampling": GREEDY}
    check(c.generate(session="chat", **more)["text"] == c.generate(session="chat copy", **more)["text"],
          "and goes on in the same words")
    e = c.error("sessions.import", version=1, name="chat copy", model="tale", turns=turns)
    check(e[0] == 1 and e[1].startswith("SESSION_EXISTS: "), "which is not written over", e)
    e = c.error("sessions.import", version=2, name="new", model="tale", turns=turns)
    check(e[0] == 1 and e[1].startswith("UNSUPPORTED: ") and "2" in e[1], "of an unknown version nothing is taken", e)
    c.call("sessions.remove", session="chat copy")
    b = c.call("backup", path=box.dir + "/copy.db")
    check(os.stat(box.dir + "/copy.db").st_size == b["bytes"] and os.stat(box.dir + "/copy.db").st_mode & 0o777 == 0o600,
          "a backup is a file of its own", b)

    # tokenize, detokenize, eval
    raw = b"caf\xc3\xa9 \xff\x00 <|im_end|>"
    ids = c.call("tokenize", model="tale", text=raw, special=False)["ids"]
    back = c.call("detokenize", model="tale", tokens=ids)
    check(back["bytes"] == raw and "\ufffd" in back["text"], "bytes go through tokenize and back", (ids, back))
    ev = c.call("eval", model="tale", tokens=case["Once upon a time"]["tokens"], top=8, greedy=8)
    want = case["Once upon a time"]
    check(ev["greedy"] == want["greedy"][:8] and all(
        a[0] == b[0] and abs(a[1] - b[1]) < 1e-3 for p, q in zip(ev["top"], want["top"]) for a, b in zip(p, q)),
        "eval gives the golden logits", ev["top"][:1])

    # cancel
    w = Client(box.socket)
    i = w.submit("generate", model="tale", text="Once", max_tokens=900, request="tocancel",
                 sampling={"temperature": 1.0, "seed": 1, "logit_bias": [[j, -100.0] for j in range(6)]})
    m = w.read()
    while m[1] != "stream.tokens":
        m = w.read()
    check(c.call("cancel", request="tocancel")["cancelled"] is True, "cancel by request id from another client")
    err, res = w.answer(i)
    check(err is None and res["finish_reason"] == "cancelled", "the cancelled stream ends with its text", (err, res))
    check(c.call("cancel", stream=res["stream"])["cancelled"] is False, "cancelling again finds nothing")
    w.send(msgpack.packb([0, 9001, "generate", [{"model": "tale", "session": "never", "request": "atonce",
                                                 "tokens": [301] * 900}]]) +
           msgpack.packb([0, 9002, "cancel", [{"request": "atonce"}]]))
    said = {}
    while len(said) < 2:
        m = w.read()
        if m[0] == 1:
            said[m[1]] = m[2:]
    (err, res), (_, done) = said[9001], said[9002]
    check(done["cancelled"] and err is None and res["finish_reason"] == "cancelled" and res["tokens"] == [] and
          "session" not in res and c.error("sessions.show", session="never")[1].startswith("SESSION_NOT_FOUND"),
          "cancelled before its first token it leaves no session, and names none", (err, res, done))

    # sixteen clients at once
    prompts = ["Once upon a time there was a %s who" % n for n in
               "king queen frog wolf smith tailor miller princess bear fox witch giant dwarf soldier hunter cat".split()]
    before = c.call("status")["engine"]
    alone = [c.generate(model="tale", text=t, max_tokens=32, sampling=hot)["text"] for t in prompts]
    mid = c.call("status")["engine"]
    clients = [Client(box.socket) for _ in prompts]
    asked = [w.submit("generate", model="tale", text=t + " ", max_tokens=32, sampling=hot) for w, t in zip(clients, prompts)]
    answers = [w.answer(id) for w, id in zip(clients, asked)]
    got, used = [r["text"] for _, r in answers], [r["usage"]["computed_tokens"] for _, r in answers]
    after = c.call("status")["engine"]
    alone2 = [c.generate(model="tale", text=t + " ", max_tokens=32, sampling=hot)["text"] for t in prompts]
    steps, rows = after["steps"] - mid["steps"], after["rows"] - mid["rows"]
    check(got == alone2, "sixteen at once: each text equals its text alone", [(a, b) for a, b in zip(got, alone2) if a != b][:1])
    check(rows / steps > 4, "sixteen at once share steps: %.1f rows a step" % (rows / steps))
    check(after["tokens_computed"] - mid["tokens_computed"] == sum(used), "tokens_computed rises by what the usages say",
          (after["tokens_computed"] - mid["tokens_computed"], used))

    # events in the form for an editor
    v = Client(box.socket, notify_as=["nvim_exec_lua", "return hearth_event(...)"])
    v.generate(model="tale", text="Once", max_tokens=2, sampling=GREEDY)
    check(all(e[0] == 2 and e[1] == "nvim_exec_lua" and e[2][0] == "return hearth_event(...)" and len(e[2]) == 2 and
              e[2][1][0] in ("stream.begin", "stream.tokens") and isinstance(e[2][1][1], dict) for e in v.events) and v.events,
          "notify_as wraps every event", v.events)

    # the daemon is restarted: the session is still there
    before = c.call("sessions.show", session="s2", tokens=True)["tokens"]
    box.stop()
    box.start()
    c = Client(box.socket)
    check(c.call("sessions.show", session="s2", tokens=True)["tokens"] == before, "a restart keeps the timeline")
    r = c.generate(session="s2", text=" And", max_tokens=4, sampling=GREEDY)
    u = r["usage"]
    check(u["reused_tokens"] + u["computed_tokens"] == u["prompt_tokens"] == len(before) + 1, "and it goes on", u)
    c.call("sessions.remove", session="s2")
    check(c.error("sessions.show", session="s2")[1].startswith("SESSION_NOT_FOUND: "), "removed is gone")
finally:
    harness.end(box)
sys.exit(harness.failed > 0)
