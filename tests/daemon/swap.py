#!/usr/bin/python3
"""Two models and memory for one: their sessions take turns, and each restores its KV from the tiers that exist.

It uses a private hearthd with tale in two types, from the data beside the source tree. The engine's address space is
limited, so that the second pool does not fit beside the first, as with two large models on one GPU. Then the pools are
made tiny. Every text must equal that of an undisturbed run. Prints TAP.
"""
import os, resource, shutil, sys

sys.dont_write_bytecode = True
import harness
from harness import Box, Refused, check

MODELS = "tale-q8_0", "tale-q4_0"
DATA = os.environ.get("HEARTH_SHARED", "../shared") + "/models/tale/"
if not all(os.path.exists(DATA + m + ".gguf") for m in MODELS):
    print("1..0 # SKIP no %s in %s" % (" and ".join(MODELS), DATA))
    sys.exit(0)

PAGE = 16
TURNS = ("Once upon a time there was a king who had three daughters, and the youngest",
         " But the old woman in the forest said:", " The next morning", " And at the end of the road")
SAMPLINGS = {"temperature": 0}, {"temperature": 0.8, "seed": 20261121}
TIERS = ("1G", "16M"), ("1G", "0"), ("0", "16M"), ("0", "0")  # kv_disk, kv_ram
POOL = 1 << 30  # address space, which is scarce here; half of it is more than threads and their heaps need

box = Box("swap")
box.engine("--restore", "always")  # on a loaded machine computing so few tokens may be judged quicker
os.mkdir(box.dir + "/models")
for m in MODELS:
    shutil.copy(DATA + m + ".gguf", box.dir + "/models/")


class Client(harness.Client):
    """Keeps the names of the notices."""

    def __init__(self):
        super().__init__(box.socket)
        self.told = []

    def read(self):
        m = super().read()
        if m and m[:2] == [2, "notice"]:
            self.told.append(m[2][0]["name"])
        return m

    def ask(self, model, session, turn, sampling, n=60):
        return self.submit("generate", model=model, session=session, text=TURNS[turn], max_tokens=n, sampling=sampling)

    def say(self, *args, **more):
        return self.answer(self.ask(*args, **more))

    def status(self):
        return self.call("status")["engine"]

    def loaded(self):
        return [m["name"] for m in self.status()["models"] if m["pages_total"]]


def start(*lines):
    box.configure("model_dir = %s/models" % box.dir, "threads = 2", *lines)
    box.start()
    return Client()


def narrow(c):
    """Limits the engine's memory to what it has, plus half a pool."""
    pid = c.status()["pid"]
    with open("/proc/%d/statm" % pid) as f:
        used = int(f.read().split()[0]) * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (used + POOL // 2, resource.RLIM_INFINITY))


def same(want, got):
    return (got["text"], got["tokens"], got["finish_reason"]) == (want["text"], want["tokens"], want["finish_reason"])


try:
    # undisturbed
    c = start("kv_disk = 0", "kv_ram = 0")
    want = {(m, k, t): c.say(m, "%s %d" % (m, k), t, s)
            for t in range(len(TURNS)) for m in MODELS for k, s in enumerate(SAMPLINGS)}
    once = [c.submit("generate", model=MODELS[0], text="Once", max_tokens=200, sampling=s) for s in SAMPLINGS]
    once = [c.answer(id) for id in once]
    page_bytes = c.status()["models"][0]["page_bytes"]
    check(c.loaded() == list(MODELS), "in peace both models are there", c.loaded())
    box.stop()

    # taking turns
    for disk, ram in TIERS:
        why = "disk %s, ram %s" % (disk, ram)
        shutil.rmtree(box.state, ignore_errors=True)
        c = start("kv_disk = " + disk, "kv_ram = " + ram, "kv_bytes = %d" % POOL)
        c.call("models.load", model=MODELS[0])
        narrow(c)
        wrong, used, alone, before = [], [], True, {}
        for t in range(len(TURNS)):
            for m in MODELS:
                for k, s in enumerate(SAMPLINGS):
                    r = c.say(m, "%s %d" % (m, k), t, s)
                    if not same(want[m, k, t], r):
                        wrong.append((m, k, t, r["text"], want[m, k, t]["text"]))
                    u, n = r["usage"], before.get((m, k), 0)
                    # All earlier tokens but the last one were computed, and full pages of them can be restored. The
                    # other session of the model has just restored the pages that both begin with.
                    used.append((m, k, t, u, (n - 1) // PAGE * PAGE if n else 0))
                    before[m, k] = u["prompt_tokens"] + len(r["tokens"])
                    alone &= c.loaded() == [m]
        check(not wrong, "%s: the texts of an undisturbed run" % why, wrong[:2])
        check(alone, "%s: one model at a time" % why)
        if (disk, ram) != ("0", "0"):
            check(all(u["reused_tokens"] >= whole and u["restored_tokens"] >= (whole if k == 0 else 0)
                      for m, k, t, u, whole in used), "%s: all full pages came back" % why, used)
        else:
            check(all(u["restored_tokens"] == 0 and (k or u["reused_tokens"] == 0) for m, k, t, u, whole in used),
                  "%s: all was computed again" % why, used)
        check(c.status()["restarts"] == 0, "%s: no engine was lost" % why)
        box.stop()

    # both at once: they take turns, and none is refused
    shutil.rmtree(box.state, ignore_errors=True)
    c = start("kv_disk = 1G", "kv_ram = 0", "kv_bytes = %d" % POOL)
    c.call("models.load", model=MODELS[0])
    narrow(c)
    wrong = []
    for t in range(len(TURNS)):
        ids = [(m, k, t, c.ask(m, "%s %d" % (m, k), t, s)) for m in MODELS for k, s in enumerate(SAMPLINGS)]
        wrong += [key for *key, id in ids if not same(want[tuple(key)], c.answer(id))]
    check(not wrong, "both at once: the texts of an undisturbed run", wrong)
    check(c.told.count("WAITING") == c.told.count("RESUMED") > 0 and set(c.told) == {"WAITING", "RESUMED"},
          "both at once: who waits hears of it, and that it goes on", c.told)
    c.told.clear()
    runs, waits = [c.submit("generate", model=m, text="Once", max_tokens=500, sampling=SAMPLINGS[0],
                            request=m) for m in MODELS]
    while c.status()["queued"] == 0 and runs not in c.answers:
        pass
    check(c.status()["queued"] == 1, "both at once: one waits", c.status())
    c.call("cancel", request=MODELS[1])
    check(c.answer(waits)["finish_reason"] == "cancelled" and runs not in c.answers, "both at once: one that waits ends")
    check(c.told == ["WAITING"], "both at once: ... and had been told", c.told)
    check(c.answer(runs)["tokens"][:200] == once[0]["tokens"] and c.status()["queued"] == 0, "both at once: the other goes on")
    box.stop()

    # a pool that holds one of two sessions, which are used at once
    m = MODELS[0]
    for disk, ram in TIERS:
        why = "20 pages, disk %s, ram %s" % (disk, ram)
        shutil.rmtree(box.state, ignore_errors=True)
        c = start("kv_disk = " + disk, "kv_ram = " + ram, "kv_bytes = %d" % (20 * page_bytes))
        wrong = []
        for t in range(len(TURNS)):
            ids = [(k, c.ask(m, str(k), t, s)) for k, s in enumerate(SAMPLINGS)]
            wrong += [(k, t) for k, id in ids if not same(want[m, k, t], c.answer(id))]
        check(not wrong, "%s: the texts of an undisturbed run" % why, wrong)
        check(c.status()["models"][0]["pages_total"] == 20, "%s: that many there are" % why, c.status()["models"])
        box.stop()

    # pools that are too small for the sessions, down to a single page
    for pages in 8, 2, 1:
        for disk, ram in TIERS:
            why = "%d pages, disk %s, ram %s" % (pages, disk, ram)
            shutil.rmtree(box.state, ignore_errors=True)
            c = start("kv_disk = " + disk, "kv_ram = " + ram, "kv_bytes = %d" % (pages * page_bytes if pages > 1 else 1))
            ids = [c.submit("generate", model=m, session=str(k), text="Once", max_tokens=200, sampling=s)
                   for k, s in enumerate(SAMPLINGS)]
            got = [c.answer(id) for id in ids]
            check(all(g["tokens"] == once[k]["tokens"][:len(g["tokens"])] and g["finish_reason"] == "context_full" and
                      g["usage"]["prompt_tokens"] + len(g["tokens"]) == pages * PAGE for k, g in enumerate(got)),
                  "%s: as much of the texts as it holds" % why, got)
            try:
                check(False, "%s: more is refused" % why, c.say(m, "0", 0, SAMPLINGS[0]))
            except Refused as e:
                check(e.args[0] == "CONTEXT_FULL" and "%d pages" % pages in e.args[1], "%s: more is refused" % why, e)
            check(c.status()["restarts"] == 0, "%s: no engine was lost" % why)
            box.stop()
finally:
    harness.end(box)
sys.exit(harness.failed > 0)
