#!/usr/bin/python3
"""Memory is yielded and taken back beside eight streams on the CPU, with the real engine: each stream is parked in the
middle of its text and ends with the text of a run by itself; nothing is held meanwhile, and no page afterwards.
"""
import os, sys, time

from harness import Box, Refused, check, end

STREAMS, MADE, YIELDS = 8, 300, 3


def prompt(k):
    return dict(model="tale", text="Once upon a time there were %d" % k, max_tokens=MADE, ignore_eos=True,
                sampling={"temperature": 0.8, "seed": k})


box = Box("yields")
try:
    box.models()
    box.configure("model_dir = %s/models" % box.dir, "streams_per_uid = 64")
    box.start()
    c, control = box.client(), box.client()
    alone = [c.call("generate", **prompt(k))["tokens"] for k in range(STREAMS)]
    check(all(len(t) == MADE for t in alone), "eight texts alone")

    got = {k: [] for k in range(STREAMS)}  # the tokens that events brought
    parked, streams = [], {}
    asked = [c.submit("generate", request="r%d" % k, **prompt(k)) for k in range(STREAMS)]

    def take(frame):
        if frame[0] == 1:
            answers[frame[1]] = frame
        if frame[0] != 2:
            return
        name, body = frame[1], frame[2][0]
        if name == "stream.begin":
            streams[body["stream"]] = int(body["request"][1:])
        elif name == "stream.tokens":
            k = streams[body["stream"]]
            check_index.append(body["index"] == len(got[k]))
            got[k] += body["tokens"]
        elif name == "notice" and body["name"] in ("PARKED", "RESUMED"):
            parked.append(body["name"])

    check_index, answers = [], {}
    for turn in range(1, YIELDS + 1):
        while min(len(t) for t in got.values()) < turn * MADE // (4 * YIELDS):  # long before their ends
            take(c.read())
        freed = control.call("yield", all=True, seconds=3600)["freed"]
        engine = control.call("status")["engine"]
        check(freed > 4e6 and engine["memory"]["weights"] == 0 == engine["memory"]["kv"] and engine["running"] == 0
              and engine["queued"] == STREAMS, "yield %d: nothing is held, and all wait" % turn, engine)
        try:
            control.call("models.load", model="tale")
            check(False, "a load is refused meanwhile")
        except Refused as e:
            check("OUT_OF_MEMORY" in str(e) and "yielded" in str(e), "a load is refused meanwhile", e)
        control.call("yield", seconds=0)
    while len(answers) < STREAMS:
        take(c.read())
    texts = [answers[a][3]["tokens"] for a in asked]
    check(texts == alone, "every text is the same as alone", [t == a for t, a in zip(texts, alone)])
    check(all(check_index) and all(got[k] == alone[k] for k in got), "no token was lost on the way, and none came twice")
    check(parked.count("PARKED") == STREAMS * YIELDS == parked.count("RESUMED"), "every stream was told", len(parked))
    model = control.call("status")["engine"]["models"][0]
    check(model["sequences"] == 0, "nothing runs", model)
    try:
        control.call("yield", bytes=1 << 60)
        check(False, "what nobody has")
    except Refused as e:
        check("LIMIT" in str(e) and "are free" in str(e) and "yield --end" in str(e), "what nobody has", e)
    control.call("yield", seconds=0)
    for bad in {}, {"all": True, "bytes": 5}:
        try:
            control.call("yield", **bad)
            check(False, "neither or both")
        except Refused as e:
            check("exactly one of bytes, all" in str(e), "neither or both are refused", e)
    own = control.call("status")["engine"]
    check(own["memory"]["kv"] >= 0 and own["restarts"] == 0, "the engine lived on")

    def waiting(restarts):
        """The engine's status, once a stream waits in it."""
        while True:
            e = control.call("status")["engine"]
            if e["restarts"] == restarts and e["state"] == "running" and e["queued"] == 1:
                return e

    # A pinned model stays loaded, and what was parked beside it continues all the same.
    control.call("models.pin", model="other")
    asked = c.submit("generate", request="beside", **prompt(2))
    while asked not in c.answers and c.read()[1] != "stream.tokens":
        pass
    control.call("yield", all=True, seconds=3600)
    engine = control.call("status")["engine"]
    check(engine["queued"] == 1 and engine["memory"]["weights"] > 0, "beside a pinned model a stream is parked", engine)
    control.call("yield", seconds=0)
    check(c.answer(asked)["tokens"] == alone[2], "... and goes on")
    control.call("models.pin", model="other", pinned=False)

    # During a yield, an engine that replaces one that died, and one that is started then, take nothing of what was
    # given back. A GPU's engine keeps its workspace, and the next one may use as much: for a small model that suffices.
    def holds(engine):
        return sum(engine["memory"][k] for k in ("weights", "kv", "workspace", "cache"))

    control.call("yield", all=True, seconds=3600)
    asked = c.submit("generate", request="again", **prompt(0))
    engine = waiting(0)
    kept = holds(engine)
    os.kill(engine["pid"], 9)
    while engine["restarts"] == 0 or engine["state"] != "running" or not (engine["queued"] or engine["tokens_computed"]):
        engine = control.call("status")["engine"]
    check(holds(engine) <= kept, "the next engine takes no more than the last one kept", (kept, engine))
    control.call("yield", seconds=0)
    check(c.answer(asked)["tokens"] == alone[0], "... and its stream ends as alone")
    box.stop()
    box.start()
    c, control = box.client(), box.client()
    check(control.call("yield", all=True, seconds=3600) == {"freed": 0, "free": 0}, "nobody runs, nothing is held")
    told = []

    def notices(frame):
        if frame[0] == 2 and frame[1] == "notice":
            told.append(frame[2][0]["name"])
        if frame[0] == 1:
            c.answers[frame[1]] = frame[2:]

    asked = c.submit("generate", request="later", **prompt(1))
    while not told:
        notices(c.read())
    engine = waiting(0)
    check(engine["memory"]["weights"] == 0 == engine["tokens_computed"], "an engine that starts then waits", engine)
    check(told == ["PARKED"], "... and says so, though its stream has not begun", told)
    control.call("yield", seconds=0)
    while asked not in c.answers:
        notices(c.read())
    check(told == ["PARKED", "RESUMED"], "... and when it begins", told)
    check(c.answer(asked)["tokens"] == alone[1], "... and its stream says what it says alone")

    # Of several yields at once the first is in effect, also for the next engine; those that are refused change nothing.
    for others in (dict(all=True, seconds=86400), dict(all=True, seconds=5)), (dict(seconds=0), dict(all=True, seconds=5)):
        first, *late = control.submit_all(("yield", dict(all=True, seconds=3600)), *(("yield", o) for o in others))
        control.answer(first)
        for i in late:
            try:
                control.answer(i)
                check(False, "a yield beside another is refused")
            except Refused as e:
                check("LIMIT" in str(e) and "already" in str(e), "a yield beside another is refused", e)
        status = control.call("status")
        check(3000 < status["yielded"] <= 3600, "... and the other one stays in effect", status["yielded"])
        control.call("yield", seconds=0)

    def until(what, is_so):
        stop = time.monotonic() + 30
        while not is_so() and time.monotonic() < stop:
            pass
        check(is_so(), what)

    def engine_has():
        return [(m["name"], m["pinned"]) for m in control.call("status")["engine"]["models"] if not m["vocab_only"]]

    # A pinned model that a yield has kept the next engine from loading is loaded when the yield has ended.
    control.call("models.pin", model="other")
    for n, ends in enumerate((dict(seconds=0), dict(all=True, seconds=0.1)), 1):
        os.kill(control.call("status")["engine"]["pid"], 9)
        until("the engine has ended", lambda: control.call("status")["engine"]["state"] == "absent")
        control.call("yield", all=True, seconds=3600)
        control.call("tokenize", model="tale", text="x")
        until("the pinned model was refused", lambda: box.log().count("a pinned model was not loaded") == n)
        control.call("yield", **ends)
        until("... and is loaded after all: %s" % ends, lambda: engine_has() == [("other", True)])

    # ... also if that engine, which holds nothing, has left by then. No status is asked: while it is, an engine stays.
    box.stop()
    box.configure("model_dir = %s/models" % box.dir, "engine_idle = 1")
    box.start()
    control = box.client()
    control.call("models.pin", model="other")
    gone = box.log().count("has left: it held no model")
    os.kill(control.call("status")["engine"]["pid"], 9)
    until("the engine has ended", lambda: control.call("status")["engine"]["state"] == "absent")
    control.call("yield", all=True, seconds=4)
    control.call("tokenize", model="tale", text="x")
    until("the next engine leaves", lambda: box.log().count("has left: it held no model") == gone + 1)
    until("... and another one loads the pinned model", lambda: engine_has() == [("other", True)])

    # An engine that dies in a yield: a stream whose model waits for memory holds up none of a model that is pinned.
    box.stop()
    box.engine("--small", "500000000")
    box.configure("model_dir = %s/models" % box.dir, "gpu_headroom = 0", "invariant = nothing")
    box.start()
    control, waits, goes_on = box.client(), box.client(), box.client()
    control.call("models.pin", model="tale")
    long = dict(text="Once upon a time", max_tokens=900, ignore_eos=True, sampling={"temperature": 0})
    for client, model in ((waits, "other"), (goes_on, "tale")):
        client.submit("generate", model=model, request=model, **long)
        while client.read()[1] != "stream.tokens":
            pass
    control.call("yield", all=True, seconds=3600)

    def state_of(request):
        return {s["request"]: s["state"] for s in control.call("streams.list")["streams"]}.get(request)

    os.kill(control.call("status")["engine"]["pid"], 9)
    until("both streams are recovered", lambda: state_of("other") == "recovering")
    until("the stream of the pinned model goes on", lambda: state_of("tale") != "recovering")
    check(state_of("other") == "recovering", "... and the other one waits", state_of("other"))
finally:
    end(box)
