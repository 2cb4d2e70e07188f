#!/usr/bin/python3
"""Many sessions of two models at once, while engines, devices and daemons are killed.

Each client sends the turns of its session one after another, and retries with the same request id if it has lost its
daemon; every text must equal that of an undisturbed run of the session by itself. The pool holds a part of the
sessions, host memory a part of their KV. kill.py kills at chosen moments of one stream; here streams wait for each
other, share pages and are resubmitted together. $HEARTH_KILLS is the number of kills (24), another $HEARTH_SEED (1)
draws others. Prints TAP.
"""
import os, random, signal, sys, threading, time

sys.dont_write_bytecode = True
import harness
from harness import Box, Refused, Wrong, check

KILLS = int(os.environ.get("HEARTH_KILLS", "24"))
SEED = int(os.environ.get("HEARTH_SEED", 1))
CLIENTS = 8
TURNS = ("Once upon a time there was a king who had three daughters, and the youngest",
         " But the old woman in the forest said:", " The next morning", " And",
         " Then the king said to the miller that he would give him the half of his kingdom, and the miller")
rng = random.Random(SEED)
box = Box("storm")
box.models()


def params(k, turn, round):
    """The requests of client k: every other one is greedy, two in four use the other model."""
    sampling = {"temperature": 0} if k % 2 else {"temperature": 0.8, "seed": k}
    return dict(model=("tale", "other")[k // 2 % 2], session="%s %d" % (round, k), text=TURNS[turn], max_tokens=40,
                sampling=sampling, request="%s %d %d" % (round, k, turn))


def said(result):
    return result["text"], result["tokens"], result["finish_reason"]


class Sessions(threading.Thread):
    """A client: one session after another until the end, or until something is wrong."""

    over = threading.Event()

    def __init__(self, k):
        super().__init__()
        self.k, self.turns, self.wrong = k, 0, None

    def say(self, turn, round):
        while True:  # a daemon that was killed is started again
            try:
                c = box.client()
                try:
                    return c.call("generate", **params(self.k, turn, round))
                finally:
                    c.close()
            except (ConnectionError, FileNotFoundError, Wrong):
                time.sleep(0.01)

    def run(self):
        round = 0
        while not self.over.is_set():
            for turn in range(len(TURNS)):
                try:
                    got, right = said(self.say(turn, round)), want[self.k, turn]
                except Refused as e:
                    got, right = e, "an answer"
                if got != right:
                    self.wrong = "client %d, session %d, turn %d: %r, undisturbed %r" % (self.k, round, turn, got, right)
                    self.over.set()
                    return
                self.turns += 1
            round += 1


def strike():
    """Kills one of them, and returns its kind."""
    what = rng.choice(("engine", "device", "daemon"))
    if what == "device":
        box.fail("%s=%d" % (rng.choice(("any", "load", "step", "save", "restore")), rng.randrange(1, 20)))
    elif what == "daemon":
        box.kill()
        box.start()
    else:
        c = box.client()
        engine = c.call("status")["engine"]
        c.close()
        how = rng.choice((signal.SIGKILL, signal.SIGSEGV))
        if engine["state"] != "running":  # dying before it is ready would fail its requests
            return "nobody"
        try:
            os.kill(engine["pid"], how)
        except ProcessLookupError:
            return "nobody"
    return what


print("# seed %d, %d kills" % (SEED, KILLS))
try:
    lines = "model_dir = %s/models" % box.dir, "threads = 2"
    box.configure(*lines, "kv_disk = 0", "kv_ram = 0")
    box.start()
    c = box.client()
    want = {(k, turn): said(c.call("generate", **params(k, turn, "peace")))
            for k in range(CLIENTS) for turn in range(len(TURNS))}
    page = c.call("status")["engine"]["models"][0]["page_bytes"]
    box.stop()

    # No stream is given up because of the engines that die, since this test kills them.
    box.configure(*lines, "stream_retries = 16", "kv_bytes = %d" % (32 * page), "kv_ram = %d" % (8 * page), "kv_disk = 1G")
    box.engine("--fault", box.fault)
    box.start()
    clients = [Sessions(k) for k in range(CLIENTS)]
    for t in clients:
        t.start()
    struck = {}
    for _ in range(KILLS):
        if not Sessions.over.wait(rng.uniform(0.05, 0.6)):
            what = strike()
            struck[what] = struck.get(what, 0) + 1
    Sessions.over.set()
    for t in clients:
        t.join()
    wrong = [t.wrong for t in clients if t.wrong]
    print("# %d turns; struck: %s; %d devices failed" % (sum(t.turns for t in clients), struck,
                                                          box.log().count("the device fails in a")))
    check(not wrong, "every turn has the text of an undisturbed run", "\n".join(wrong))
    check(all(t.turns for t in clients), "every client came to say something", [t.turns for t in clients])
    box.stop()
    check(box.sql("PRAGMA integrity_check") == [("ok",)], "the database is whole")
finally:
    Sessions.over.set()
    harness.end(box)
sys.exit(harness.failed > 0)
