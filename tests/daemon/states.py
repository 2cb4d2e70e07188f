#!/usr/bin/python3
"""Sessions of models with recurrent states continue from what was kept of them, on all tiers, with the same texts.

It uses a private hearthd and tiny models beside the source tree; without them there is nothing to test. A long first
turn and a second one: in a batch of its own, batched with others, after the device's pages were lost, after a restart,
from the end of the prompt, with a damaged file of states. Prints TAP.
"""
import os, shutil, sys, time

sys.dont_write_bytecode = True
import harness
from harness import Box, check

PAGE, SAID, SLACK = 16, 128, 48  # tokens: of a page; between states of an answer; from a state to the end of the prompt
MODELS = "lfm2", "qwen3_5_moe_text", "granitemoehybrid-moe", "nemotron_h", "mamba2"
HYBRID = "qwen3_5_moe_text"

top = os.environ.get("top_srcdir", ".")
shared = os.environ.get("HEARTH_SHARED", top + "/../shared") + "/models/hf-tiny"
models = [m for m in MODELS if os.path.isdir(os.path.join(shared, m))]
if not models:
    print("1..0 # SKIP the tiny models are not here")
    sys.exit(0)


class Client(harness.Client):
    def say(self, model, session, text, n):
        return self.answer(self.ask(model, session, text, n))

    def ask(self, model, session, text, n):
        return self.submit("generate", model=model, session=session, text=text, max_tokens=n, ignore_eos=True,
                           sampling={"temperature": 0.7, "seed": 11})

    def engine(self):
        return self.call("status")["engine"]

    def quiet(self):
        """Waits until nothing is being moved any more, for half a minute at most."""
        until = time.monotonic() + 30
        while time.monotonic() < until and self.engine()["kv"]["moving"]:
            time.sleep(0.01)

    def row(self, model):
        return next(m for m in self.engine()["models"] if m["name"] == model)


STORY = "".join("The %s of the %s went to the %s. " % w for w in zip(
    3 * ("king", "daughter", "miller", "fox", "soldier", "queen", "servant", "tailor"),
    3 * ("mountain", "sea", "mill", "wood", "town", "castle", "house", "inn"),
    3 * ("well", "gate", "tower", "bridge", "garden", "field", "road")))[:560]
NEXT = " But one day" + STORY[:80]
BOOK, COPY = "Tales. " + STORY + STORY, "Copies. " + STORY + STORY
ASKS = [" %s asked: " % who + STORY[90::-1] for who in ("A king", "The miller", "Some fox", "His daughter")]
SAYS = 140  # tokens of an answer: more than the distance of states
# Whether an answer whose end is computed again, as part of a later prompt, has the bits that it was generated with:
# hearth.conf(5), invariant.
AGAIN = harness.BACKEND == "cpu"

box = Box("states")
box.engine("--restore", "always")  # on a loaded machine computing so few tokens may be judged quicker
os.makedirs(box.dir + "/models")
for name in models:
    shutil.copytree(os.path.join(shared, name), os.path.join(box.dir, "models", name))
# the same on a device with several steps in flight, as a GPU has them
PACED = HYBRID + "-paced"
if harness.BACKEND == "cpu" and HYBRID in models:
    shutil.copytree(os.path.join(shared, HYBRID), os.path.join(box.dir, "models", PACED))
    models.append(PACED)


def start(*lines):
    if lines:
        box.configure("model_dir = %s/models" % box.dir, "threads = 2", *lines)
    box.start()
    return Client(box.socket)


def turns(c, model, session, between=lambda: None, beside=0):
    answers = []
    session = model + " " + session
    for turn, text in enumerate((STORY, NEXT)):
        others = [c.ask(model, "%s beside %d" % (session, i), ("%d: " % i + STORY)[:60 + 90 * i], 40)
                  for i in range(beside if turn == 0 else 0)]
        answers.append(c.say(model, session, text, SAYS))
        for id in others:
            c.answer(id)
        between()
    return answers


def readers(c, model):
    """Sessions with a common beginning: none has less of it than was promised, whoever resumed there before."""
    answers = [c.say(model, "%s book %d" % (model, i), BOOK + ask, 20) for i, ask in enumerate(ASKS)]
    u = [r["usage"] for r in answers]
    check(u[1]["reused_tokens"] < 512 and all(n["reused_tokens"] >= 512 for n in u[2:]),
          "%s: from the third on sessions share their beginning" % model, u)
    first = c.say(model, model + " copy", COPY, 0)["usage"]
    u = [c.say(model, "%s copy %d" % (model, i), COPY + ask, 20)["usage"] for i, ask in enumerate(ASKS)]
    check(all(n["reused_tokens"] >= first["prompt_tokens"] - SLACK for n in u),
          "%s: all sessions share a beginning that was computed by itself" % model, (first, u))
    return answers


def files(fingerprints):
    """The KV files, by fingerprint."""
    found = {}
    for root, _, names in os.walk(box.dir):
        for n in names:
            if n.endswith(".kv"):
                found.setdefault(n.split("-")[0], []).append(os.path.join(root, n))
    return {k: v for k, v in found.items() if k not in fingerprints}


try:
    for model in models:
        if model == PACED:
            box.engine("--paced", "0.2,computes", "--restore", "always")
            shutil.rmtree(box.state + "/kv")  # which has the other one's KV, by the same weights
        c = start("kv_disk = 0", "kv_ram = 0")
        want = turns(c, model, "peace")
        n, whole = want[1]["usage"], want[0]["usage"]["prompt_tokens"] + len(want[0]["tokens"])
        check(whole > 2 * SAID + SAYS - 50, "%s: a first turn that is long enough" % model, whole)
        check(n["reused_tokens"] in (whole - 1, whole) and n["reused_tokens"] + n["computed_tokens"] == n["prompt_tokens"],
              "%s: the second turn computes its own tokens alone" % model, (n, whole))
        m = c.row(model)
        check(0 < m["states_used"] < m["states_total"] and m["state_bytes"] > 0,
              "%s: status tells how many states are kept, of how many" % model, m)

        def same(got, how, again=False):
            """Compares both turns. again: the end of the first one's answer was computed again for the second."""
            n = 1 if again and not AGAIN else 2
            return check([a["tokens"] for a in got[:n]] == [a["tokens"] for a in want[:n]],
                         "%s: %s, the same tokens" % (model, how), [a["usage"] for a in got])
        same(turns(c, model, "again"), "with what was kept")
        ask = dict(model=model, text=STORY[:len(STORY) // 2], max_tokens=1)
        dry, u = c.call("generate", dry=True, **ask), c.call("generate", stream=False, **ask)["usage"]
        check(dry["reused_tokens"] == u["reused_tokens"] // PAGE * PAGE and u["prompt_tokens"] > 2 * PAGE,
              "%s: a dry run counts nothing beyond the last state" % model, (dry, u))
        same(turns(c, model, "company", beside=6), "in company")
        books = readers(c, model)
        c.call("sessions.fork", session=model + " peace", names=[model + " fork"])
        both = [c.say(model, model + name, NEXT[:20], 10) for name in (" peace", " fork")]
        check(both[0]["tokens"] == both[1]["tokens"], "%s: a fork goes on as its origin does" % model, both)
        check(all(r["usage"]["computed_tokens"] < 20 + SAID + PAGE for r in both), "%s: and computes little" % model,
              [r["usage"] for r in both])
        # Turns that end around a distance of states, which a device with several steps in flight has already passed:
        # each is continued from what was kept, and by its fork from nothing.
        prompt, ends = want[0]["usage"]["prompt_tokens"], range(-3, 3)
        for end in ends:
            name = "%s end %d" % (model, end)
            c.say(model, name, STORY, 2 * SAID - prompt % SAID + end)
            c.call("sessions.fork", session=name, names=[name + " fork"])
        kept = [c.say(model, "%s end %d" % (model, end), NEXT[:20], 10)["tokens"] for end in ends]
        c.call("models.unload", model=model)
        fresh = [c.say(model, "%s end %d fork" % (model, end), NEXT[:20], 10) for end in ends]
        other = sum(k != r["tokens"] for k, r in zip(kept, fresh))
        # computed again, a text may by chance be another; from a wrong state two of the six are
        check(other <= (not AGAIN) and not fresh[0]["usage"]["reused_tokens"],
              "%s: turns of every length are continued as if computed again" % model, (kept, fresh))
        box.stop()

        c = start("kv_disk = 1G", "kv_ram = 0")
        before = files(())
        r = c.say(model, model + " book", BOOK + ASKS[3], 20)
        check(r["tokens"] == books[3]["tokens"], "%s: with the same tokens" % model, r["usage"])

        def gone():
            c.quiet()
            c.call("models.unload", model=model)
        got = turns(c, model, "unloaded", gone)
        same(got, "unloaded between the turns", again=True)
        u, least = got[1]["usage"], whole - 1 - SAID - PAGE
        check(u["restored_tokens"] >= least, "%s: all but %d tokens at most came back" % (model, SAID + PAGE), (u, least))
        c.say(model, model + " restarted", STORY, SAYS)
        c.quiet()
        box.stop()
        c = start()
        r = c.say(model, model + " restarted", NEXT, SAYS)
        check(r["tokens"] == want[1]["tokens"] or not AGAIN, "%s: hearthd restarted, the same tokens" % model, r["usage"])
        check(r["usage"]["restored_tokens"] >= least, "%s: and as many are back" % model, r["usage"])
        c.quiet()
        c.call("models.unload", model=model)
        r = c.say(model, model + " from the prompt", STORY, SAYS)
        check(r["tokens"] == want[0]["tokens"], "%s: from the prompt's end, the same tokens" % model, r["usage"])
        p = r["usage"]["prompt_tokens"]
        check(r["usage"]["restored_tokens"] >= p - SLACK, "%s: of which nearly all are back" % model, r["usage"])
        c.quiet()
        box.stop()

        mine, damaged = files(before), 0
        for name in (f for group in mine.values() for f in group):
            with open(name, "r+b") as f:
                f.seek(-5, 2)
                byte = f.read(1)
                f.seek(-5, 2)
                f.write(bytes([byte[0] ^ 1]))
            damaged += 1
        c = start()
        r = c.say(model, model + " from the prompt", NEXT, SAYS)
        check(damaged and (r["tokens"] == want[1]["tokens"] or not AGAIN),
              "%s: with every file damaged, the same tokens" % model,
              (damaged, r["usage"]))
        check(r["usage"]["restored_tokens"] == 0 and r["usage"]["computed_tokens"] == r["usage"]["prompt_tokens"],
              "%s: all of them computed again" % model, r["usage"])
        box.stop()

        c = start("kv_disk = 0", "kv_ram = 256M")
        same(turns(c, model, "host", gone), "from host memory", again=True)
        # a cancelled generation leaves what it had
        id = c.submit("generate", model=model, session=model + " cancelled", text=STORY, max_tokens=300, ignore_eos=True,
                      request=model)
        c.call("cancel", request=model)
        c.answer(id)
        r = c.say(model, model + " after", STORY, SAYS)
        check(r["tokens"] == want[0]["tokens"], "%s: after one that was cancelled, the same tokens" % model, r["usage"])
        box.stop()
finally:
    harness.end(box)
sys.exit(harness.failed > 0)
