#!/usr/bin/python3
"""The device fails under the real engine, as a lost GPU does, in every kind of call; no stream may lose a token.

The engine runs with fault injection (tests/fault/fault.h) between itself and the CPU; a file determines when a call
fails. Every text must equal that of an undisturbed run, and the client must get a notice of the pause. Prints TAP.
"""
import os, re, sys, time

sys.dont_write_bytecode = True
import harness
from harness import Box, Refused, check

PAGE = 16
LONG = "The king said to the miller that he would give him the half of his kingdom, and the miller went home. " * 24
FIRST = "Once upon a time there was a king who had three daughters, and the youngest"
SECOND = " But the old woman in the forest said:"
GREEDY, DICE = {"temperature": 0}, {"temperature": 0.8, "seed": 20261121}

box = Box("fault")


class Client(harness.Client):
    """Keeps the notices of streams besides their answers."""

    def __init__(self):
        super().__init__(box.socket)
        self.heard = {}

    def read(self):
        m = super().read()
        if m and m[0] == 2:
            self.heard.setdefault(m[1], []).append(m[2][0])
        return m

    def ask(self, text, n=40, sampling=GREEDY, **more):
        return self.submit("generate", model="tale", text=text, max_tokens=n, sampling=sampling, **more)

    def say(self, *args, **more):
        return self.answer(self.ask(*args, **more))

    def status(self):
        return self.call("status")["engine"]


def start(*lines):
    box.configure("threads = 2", *lines)
    box.start()
    return Client()


def same(want, got, why):
    check((got["text"], got["tokens"], got["finish_reason"]) == (want["text"], want["tokens"], want["finish_reason"]),
          "%s: the text of an undisturbed run" % why, (got, want))


def happened(c, why, heard=True):
    """Checks that the failure happened, and that the client, if it had a stream, was notified of a pause and of nothing
    worse."""
    names = {x["name"] for x in c.heard.get("notice", [])}
    check(names == ({"RECOVERING"} if heard else set()), "%s: what the client hears" % why, names)
    check(not os.path.exists(box.fault) and c.status()["restarts"] == 1, "%s: one engine was lost" % why, c.status())


def log_has(what):
    """Waits until the log has the text, for half a minute at most."""
    until = time.monotonic() + 30
    while what not in box.log() and time.monotonic() < until:
        pass
    return what in box.log()


NO_TIERS = "kv_disk = 0", "kv_ram = 0"
FAILED = "as a test asked"
SAMPLINGS = ("greedy", GREEDY), ("dice", DICE)
try:
    # undisturbed
    box.engine()
    c = start(*NO_TIERS)
    want = {}
    for name, s in SAMPLINGS:
        want["long", name] = c.say(LONG, sampling=s)
        want["first", name] = c.say(FIRST, sampling=s, session=name)
        want["second", name] = c.say(SECOND, sampling=s, session=name)
    want["runs"], want["waits"] = c.say(LONG, 100), c.say("Long ago: " + LONG, 100, DICE)
    box.stop()

    # in a step of the prompt, in steps of tokens, while a matrix is loaded
    box.engine("--fault", box.fault)
    for why, when, text in (("prefill", "step=1", LONG), ("late in the prefill", "step=2", LONG),
                            ("the first token", "step=2", FIRST), ("decode", "step=20", FIRST),
                            ("load", "load=3", FIRST), ("the first that comes", "any=1", FIRST)):
        for name, s in SAMPLINGS:
            c = start(*NO_TIERS)
            box.fail(when)
            same(want["long" if text is LONG else "first", name], c.say(text, sampling=s), "%s, %s" % (why, name))
            happened(c, "%s, %s" % (why, name))
            box.stop()

    # one stream holds the pool, the other one waits for it
    c = start(*NO_TIERS, "kv_bytes = 6M")
    box.fail("step=30")
    runs, waits = [c.answer(id) for id in (c.ask(LONG, 100), c.ask("Long ago: " + LONG, 100, DICE))]
    same(want["runs"], runs, "the stream that ran")
    same(want["waits"], waits, "the stream that waited")
    happened(c, "queued")
    lives = [[e["stage"] for e in c.call("streams.trace", stream=r["stream"])["events"]] for r in (runs, waits)]
    check(["admitted" in life[:life.index("engine-died")] for life in lives] == [True, False],
          "queued: one ran and one waited when it failed", lives)
    box.stop()

    # many streams at once
    c = start(*NO_TIERS)
    ids = [(name, c.ask(FIRST, sampling=s)) for name, s in SAMPLINGS * 4]
    box.fail("step=30")
    for name, id in ids:
        same(want["first", name], c.answer(id), "many, %s" % name)
    happened(c, "many")
    box.stop()

    # while KV is saved: its turn has ended, and that of another stream has not
    for why, busy in ("save", False), ("save beside a stream", True):
        c = start("kv_disk = 1G", "kv_ram = 0")
        session = why
        box.fail("save=1")
        other = c.ask(LONG, 400) if busy else None
        same(want["first", "dice"], c.say(FIRST, sampling=DICE, session=session), why)
        check(log_has(FAILED), "%s: it did happen" % why)
        if other:
            check(c.answer(other)["finish_reason"] == "length", "%s: the other stream ends" % why)
        same(want["second", "dice"], c.say(SECOND, sampling=DICE, session=session), "%s, the next turn" % why)
        box.stop()

    # while KV is restored from a file
    for name, s in SAMPLINGS:
        why = "restore, %s" % name
        c = start("kv_disk = 1G", "kv_ram = 0")
        same(want["first", name], c.say(FIRST, sampling=s, session=why), "before a %s" % why)
        box.stop()
        c = start()
        box.fail("restore=1")
        r = c.say(SECOND, sampling=s, session=why)
        same(want["second", name], r, why)
        check(r["usage"]["restored_tokens"] >= PAGE, "%s: the next engine restored" % why, r["usage"])
        happened(c, why)
        box.stop()

    # a step that never ends: the engine is given up, and its streams continue in the next one
    box.engine("--fault", box.fault, "--step-seconds", "4")
    for why, when in ("hangs in the prefill", "hang=1"), ("hangs in decode", "hang=20"):
        c = start(*NO_TIERS)
        box.fail(when)
        same(want["first", "dice"], c.say(FIRST, sampling=DICE), why)
        check("has not ended a step, a copy or a piece of a load in 4 s" in c.heard["notice"][0]["message"], why + ": the reason is told", c.heard)
        happened(c, why)
        box.stop()
    box.engine("--fault", box.fault)

    # an explicit load: the next engine carries it out
    c = start(*NO_TIERS)
    box.fail("load=1")
    r = c.call("models.load", model="tale")
    check(not r["was_loaded"] and log_has(FAILED) and c.status()["restarts"] == 1, "models.load is tried again", r)
    same(want["first", "greedy"], c.say(FIRST), "after a load that failed")
    box.stop()

    # the same for a load that never ends; no step is run here, whose time limit would be a tenth of that
    box.engine("--fault", box.fault, "--step-seconds", "1")
    c = start(*NO_TIERS)
    box.fail("hang-load=3")
    r = c.call("models.load", model="tale")
    check(not r["was_loaded"] and c.status()["restarts"] == 1, "a load that hangs is tried again", r)
    check(log_has("a piece of a load in 10 s"), "... with the reason in the log")
    box.stop()

    # the error is returned if the device of the next engine fails, too
    box.engine("--fault", "load=1")
    c = start(*NO_TIERS)
    try:
        check(False, "models.load is told of the device's failure", c.call("models.load", model="tale"))
    except Refused as e:
        check(e.args[0] == "ENGINE_FAILED" and FAILED in e.args[1] and c.status()["restarts"] == 1,
              "models.load is told of the device's failure", e)
    box.stop()

    # no engine starts: the reason is returned
    box.engine("--variant", "nonsense")
    c = start(*NO_TIERS)
    try:
        check(False, "no engine starts", c.say(FIRST))
    except Refused as e:
        check(e.args[0] == "ENGINE_FAILED" and "before it was ready" in e.args[1] and "variant" in e.args[1],
              "no engine starts: the reason is told", e)
    box.stop()

    # the device of every engine fails: the model is refused with the reason for a while, and other models are served
    box.engine("--fault", "step=1")
    c = start(*NO_TIERS)
    refusals = []
    for i in range(4):
        try:
            c.say(FIRST)
        except Refused as e:
            refusals.append(e.args)
    check(len(refusals) == 4 and all(r[0] == "ENGINE_FAILED" and FAILED in r[1] for r in refusals),
          "no engine lives: every request is told why", refusals)
    lost = c.status()["restarts"]
    check("refused for" in refusals[3][1] and lost == 8, "no engine lives: after three requests none is started",
          (refusals, lost))
    box.stop()

    # the engine's lines have the format of hearthd's, and obey its level
    stamp = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (hearthd|hearth-engine)\[\d+\] (error|warn|info): \S")
    lines = box.log().splitlines()
    check(all(stamp.match(l) for l in lines) and any(" hearth-engine[" in l for l in lines),
          "every line of the log has its time, program and level", [l for l in lines if not stamp.match(l)][:3])
    box.engine("--fault", box.fault)
    c = start(*NO_TIERS, "log_level = error")
    same(want["first", "greedy"], c.say(FIRST), "log_level = error")
    box.stop()
    rest = box.log().splitlines()[len(lines):]
    check(not rest, "nothing below the level is logged, by the engine neither", rest)
finally:
    harness.end(box)
sys.exit(harness.failed > 0)
