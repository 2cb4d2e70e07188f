#!/usr/bin/python3
"""generate with n: each choice has the text of a single request with its seed, and the prompt is computed once; also
for readers that are slow, attach, cancel or retry, and when the engine and hearthd are killed in the middle. Prints
TAP.
"""
import os, signal, sys, time

sys.dont_write_bytecode = True
import harness
from harness import Box, Refused, check

PROMPT = "Once upon a time there was a king who had three daughters. " * 20
TOKENS = 40
box = Box("choices")


def ask(**more):
    return dict(dict(model="tale", text=PROMPT, max_tokens=TOKENS, ignore_eos=True, sampling={"seed": 1000}), **more)


def follow(c, id, on_frame=None):
    """Returns the result with its `frames`; if the connection ends, only the frames."""
    frames = []
    while True:
        m = c.read()
        if m is None:
            return frames
        if m[0] == 2 and m[1] in ("stream.begin", "stream.tokens"):
            frames.append(m[2][0])
            if on_frame:
                on_frame(frames)
        if m[0] == 1 and m[1] == id:
            if m[2]:
                raise Refused(*m[2][1].split(": ", 1))
            return dict(m[3], frames=frames)


def several(c, on_frame=None, **more):
    return follow(c, c.submit("generate", **ask(**more)), on_frame)


def refused(c, symbol, says, **more):
    try:
        several(c, **more)
        check(False, "refused: " + says)
    except Refused as e:
        check(e.args[0] == symbol and says in e.args[1], "refused: " + says, e)


def told(frames, i):
    return "".join(f.get("text", "") for f in frames if f["choice"] == i)


def are(r, what, n, since=0):
    """Checks that each choice equals a single request, and so do its frames."""
    bad = [i for i, x in enumerate(r["choices"]) if (x["index"], x["seed"], x["finish_reason"]) != (i, 1000 + i, "length") or
           x["text"] != ALONE[i]["text"] or x["tokens"] != ALONE[i]["tokens"] or
           told(r["frames"], i) != ALONE[i]["text"] and not since]
    first = r["text"] == ALONE[0]["text"] and r["seed"] == 1000 and r["usage"]["completion_tokens"] == n * TOKENS
    check(len(r["choices"]) == n and not bad and first, what, (bad, {k: r[k] for k in ("seed", "usage")}))


def running(c):
    return [s for s in c.call("streams.list")["streams"] if s["state"] != "ended"]


def await_running(c):
    """Waits until a stream runs, for a few seconds at most, since it may have ended between two looks."""
    until = time.monotonic() + 5
    while not running(c) and time.monotonic() < until:
        pass


def plain(c):
    before = c.call("status")["engine"].get("tokens_computed", 0)
    r = several(c, n=16)
    computed = c.call("status")["engine"]["tokens_computed"] - before
    are(r, "sixteen choices, each as alone", 16)
    prompt = r["usage"]["prompt_tokens"]
    check(prompt > 250 and computed <= prompt + 16 * (TOKENS + 16), "the prompt is computed once", (prompt, computed))
    begins = [f for f in r["frames"] if "model" in f]
    check(len({f["stream"] for f in begins}) == 16 and sorted(f["choice"] for f in begins) == list(range(16)) and
          {f["stream"]: f["choice"] for f in begins} == {f["stream"]: f["choice"] for f in r["frames"]} and
          [x["stream"] for x in r["choices"]] == sorted(x["stream"] for x in r["choices"]),
          "each is a stream, and its events say which")
    r = several(c, n=3, sampling={})
    seeds = [x["seed"] for x in r["choices"]]
    check(seeds == [r["seed"] + i for i in range(3)] and len({x["text"] for x in r["choices"]}) == 3, "a seed is drawn once", seeds)
    r = several(c, n=2, sampling={"seed": 2**64 - 1}, max_tokens=1)
    check([x["seed"] for x in r["choices"]] == [2**64 - 1, 0], "seeds go round", r["choices"])
    are(several(c, n=1), "one is one of several", 1)
    check("choices" not in several(c), "without n there are none")
    r = several(c, n=2, stream=False)
    check(not r["frames"] and [x["text"] for x in r["choices"]] == [a["text"] for a in ALONE[:2]], "without events", r)
    r = several(c, n=2, logprobs=1)
    check(all(len(x["logprobs"]) == TOKENS for x in r["choices"]), "with logprobs")
    r = several(c, n=2, messages=[{"role": "user", "content": "Hi"}], text=None, max_tokens=4)
    check(len(r["choices"]) == 2 and all(len(x["tokens"]) == 4 for x in r["choices"]), "of messages", r)
    for n, says in (0, "generate.n: 0 is under 1"), (17, "generate.n: 17 is over 16"), (-1, "generate.n: -1 is under 1"), (1.0, "generate.n"):
        refused(c, "INVALID_PARAMS", says, n=n)
    refused(c, "INVALID_PARAMS", "without a session", n=2, session="s")
    r = several(c, n=1, session="s", max_tokens=2)
    check(len(r["choices"]) == 1 and c.call("sessions.show", session="s")["turns"][1]["text"] == r["text"], "one may have a session", r)
    refused(c, "CONTEXT_FULL", "context", n=2, text=PROMPT * 20)
    r = c.call("generate", **ask(n=4, dry=True))
    check(r["prompt_tokens"] == prompt and r["fits"], "dry is about one", r)


def again(c):
    r = several(c, n=3, request="r")
    d = box.client()
    are(follow(d, d.submit("generate", **ask(n=3, request="r"))), "the same request again", 3)
    refused(d, "CONFLICT", "other content", n=4, request="r")
    refused(d, "CONFLICT", "other content", request="r")
    several(d, request="lone", max_tokens=2)
    refused(d, "CONFLICT", "other content", n=2, request="lone", max_tokens=2)
    refused(d, "CONFLICT", "other content", n=1, request="lone", max_tokens=2)
    are(follow(d, d.submit("stream.attach", request="r")), "all are attached to by the request", 3)
    got = follow(d, d.submit("stream.attach", request="r", **{"from": 30}))
    are(got, "from a token of each", 3, since=30)
    check(all(ALONE[i]["text"].endswith(told(got["frames"], i)) and 0 < len(told(got["frames"], i)) < len(ALONE[i]["text"])
              for i in range(3)), "which come from there on")
    got = follow(d, d.submit("stream.attach", stream=r["choices"][1]["stream"]))
    check(got["text"] == ALONE[1]["text"] and "choices" not in got and told(got["frames"], 1) == got["text"], "one by its stream", got)
    mine = [s for s in c.call("streams.list", ended=True)["streams"] if s.get("request") == "r"]
    check(sorted(s["choice"] for s in mine) == [0, 1, 2], "the list tells them apart", mine)
    d.close()


def cancelled(c):
    def one(frames):
        of_it = [f["stream"] for f in frames if f["choice"] == 1 and "count" in f]
        if len(of_it) == 1 and frames[-1]["choice"] == 1:  # its first tokens have arrived
            c.submit("cancel", stream=of_it[0])
    r = several(c, one, n=3, request="one", max_tokens=200)
    why = [x["finish_reason"] for x in r["choices"]]
    lone = several(c, max_tokens=200)
    check(why == ["length", "cancelled", "length"] and r["text"] == lone["text"] and
          0 < len(r["choices"][1]["tokens"]) < 200, "one is cancelled, the others go on", why)
    d = box.client()
    try:
        got = [follow(d, d.submit("stream.attach", request="one", **{"from": 200}))["choices"]]
    except Refused as e:
        got = e.args
    check(got[0] == "INVALID_PARAMS", "a choice with fewer tokens than the client has is not said to have failed", got)
    d.close()

    def all(frames):
        if len(frames) == 12:
            c.submit("cancel", request="all")
    r = several(c, all, n=3, request="all", max_tokens=200)
    check([x["finish_reason"] for x in r["choices"]] == ["cancelled"] * 3, "all are cancelled by the request", r["choices"])
    check(not running(c), "and nothing runs")


def slow(c):
    d = box.client()
    id = d.submit("generate", **ask(n=16, logprobs=20))
    await_running(c)
    t = several(c, max_tokens=3)
    check(t["tokens"] == ALONE[0]["tokens"][:3], "another client is served beside a slow reader")
    while any(s["state"] == "running" for s in running(c)):
        pass
    are(follow(d, id), "who reads late gets all of it", 16)
    d.close()


def limits():
    box.configure("model_dir = %s/models" % box.dir, "streams_per_uid = 4", "attach_grace = 600")
    box.start()
    c, d = box.client(), box.client()
    refused(c, "LIMIT", "limit", n=5)
    lone = d.submit("generate", **ask(max_tokens=600))
    await_running(c)
    waits = c.submit("generate", **ask(n=4, request="w"))
    queued = []
    while not queued:
        m = c.read()
        queued += [m[2][0]] if m[0] == 2 and m[1] == "stream.queued" else []
    check(queued[0]["request"] == "w" and len(running(d)) == 1, "four wait until there is room for four", queued)
    d.submit("cancel", stream=running(d)[0]["stream"])
    are(follow(c, waits), "and then begin", 4)
    follow(d, lone)
    delivered_again(c, d)
    c.close(), d.close()
    box.stop()


def delivered_again(c, d):
    """Choices that have ended count as streams while they are delivered again; there is room for 4."""
    big = ask(n=3, request="big", max_tokens=500, logprobs=20, ignore_eos=True)  # more than is written to a client at once
    want = [x["tokens"] for x in follow(c, c.submit("generate", **big))["choices"]]
    long = dict(model="tale", text="Once", max_tokens=1000, ignore_eos=True, stream=False)
    engine = d.call("status")["engine"]["pid"]
    for n, how in (3, "generate"), (3, "stream.attach"), (4, "generate"):
        os.kill(engine, signal.SIGSTOP)  # none of the others ends before it is cancelled
        for i in range(n):
            d.submit("generate", **long, request="%s %d %d" % (how, n, i))
        while len(running(d)) < n:
            pass
        again = c.submit(how, **(big if how == "generate" else {"request": "big"}))
        if n == 4:
            harness.refused(d, "LIMIT", "streams_per_uid", "stream.attach", request="big")
        os.kill(engine, signal.SIGCONT)
        for i in range(n):
            d.call("cancel", request="%s %d %d" % (how, n, i))
        try:
            got = follow(c, again)
            check([x["tokens"] for x in got["choices"]] == want, "%s beside %d others has all choices" % (how, n),
                  [(x["finish_reason"], x.get("error")) for x in got["choices"]])
        except Refused as e:
            check(False, "%s beside %d others" % (how, n), e)


def killed():
    box.start()
    c, hit = box.client(), []

    def kill_engine(frames):
        if not hit and len(frames) >= 40:
            hit.append(box.client().call("status")["engine"]["pid"])
            os.kill(hit[0], signal.SIGKILL)
    are(several(c, kill_engine, n=4, request="engine"), "the engine is killed", 4)
    check(len(hit) == 1, "in the middle")
    dead = []

    def kill_daemon(frames):
        if not dead and len(frames) >= 40:
            dead.append(box.kill())
    frames = several(c, kill_daemon, n=4, request="daemon")
    box.start()
    c = box.client()
    are(several(c, n=4, request="daemon"), "hearthd is killed, and asked again", 4)
    check(dead and all(ALONE[i]["text"].startswith(told(frames, i)) for i in range(4)), "what was told before stands")
    box.stop()
    # Killed while the journals of the choices are created: some exist, and the others are created by the retry.
    fine = 0
    for at in range(1, 5):
        box.start("daemon", "journal/", at)
        c = box.client()
        box.arm()
        try:
            several(c, n=4, request="begun %d" % at)
        except Exception:
            pass
        box.bury(-9)
        box.start()
        c = box.client()
        r = several(c, n=4, request="begun %d" % at)
        fine += [x["text"] for x in r["choices"]] == [a["text"] for a in ALONE[:4]]
        box.stop()
    check(fine == 4, "killed while they are begun", fine)


try:
    box.models()
    box.configure("model_dir = %s/models" % box.dir, "attach_grace = 600")
    box.start()
    c = box.client()
    ALONE = [several(c, sampling={"seed": 1000 + i}) for i in range(16)]
    box.stop()  # afterwards everything has to come from the disk
    box.start()
    c = box.client()
    plain(c)
    again(c)
    cancelled(c)
    slow(c)
    c.close()
    box.stop()
    killed()
    limits()
finally:
    harness.end(box)
