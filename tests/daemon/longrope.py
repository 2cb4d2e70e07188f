#!/usr/bin/python3
"""Longrope: a text that outgrows the original context is computed again with the other frequencies, and continues like
one that was longer from the start; in a batch of its own, batched with others, resumed from files, after kill -9 of the
engine.

It uses a private hearthd, and a tiny model with an original context of 64 from beside the source tree. Prints TAP.
"""
import os, shutil, signal, sys

sys.dont_write_bytecode = True
import harness
from harness import Box, check

ORIGINAL, PAGE = 64, 16
model = os.environ.get("HEARTH_SHARED", os.environ.get("top_srcdir", ".") + "/../shared") + "/models/hf-tiny/phi3-longrope"
if not os.path.isdir(model):
    print("1..0 # SKIP %s is not there" % model)
    sys.exit(0)


class Client(harness.Client):
    def ask(self, session, text, n):
        return self.submit("generate", model="m", session=session, text=text, max_tokens=n, ignore_eos=True,
                           sampling={"temperature": 0})

    def say(self, session, text, n):
        return self.answer(self.ask(session, text, n))


box = Box("longrope")
box.engine("--restore", "always")  # on a loaded machine computing so few tokens may be judged quicker
box.models()
shutil.copytree(model, box.dir + "/models/m")
SHORT, n = "once there was a king", 100


def start():
    box.configure("model_dir = %s/models" % box.dir, "threads = 2", "kv_ram = 0", "kv_disk = 1G")
    box.start()
    return Client(box.socket)


try:
    c = start()
    prompt = c.call("tokenize", model="m", text=SHORT, special=True)["ids"]
    check(len(prompt) < ORIGINAL - PAGE, "the prompt is within the original context", len(prompt))
    want = c.say("alone", SHORT, n)
    ids = prompt + want["tokens"]
    check(len(want["tokens"]) == n and len(ids) > ORIGINAL + PAGE, "the text goes on beyond it", len(ids))
    # The token after each beginning, which is computed as a whole and by itself.
    for at in (len(prompt), ORIGINAL - 1, ORIGINAL, ORIGINAL + 1, ORIGINAL + 2, len(ids) - 1):
        best = c.call("eval", model="m", tokens=ids[:at], top=1)["top"][-1][0][0]
        check(best == ids[at], "token %d is the one that %d tokens read at once give" % (at, at), (best, ids[at]))
    u = want["usage"]
    check(u["computed_tokens"] == len(prompt), "what was read again counts once", u)

    many = [c.ask("beside %d" % i, SHORT, n) for i in range(6)]
    check(all(c.answer(i)["tokens"] == want["tokens"] for i in many), "in company, the same tokens")

    more = c.say("alone", " and so", 20)
    u = more["usage"]
    check(u["reused_tokens"] >= len(ids) - 1, "the next turn computes its own tokens alone", u)
    ask = dict(model="m", tokens=ids, max_tokens=1)
    dry, u = c.call("generate", dry=True, **ask), c.call("generate", stream=False, **ask)["usage"]
    check(u["reused_tokens"] - PAGE < dry["reused_tokens"] <= u["reused_tokens"] and u["reused_tokens"] >= ORIGINAL,
          "a dry run of a long text looks for KV of the other frequencies", (dry, u))
    whole = c.say("whole", SHORT, 1)  # within the original context again: with the first frequencies
    check(whole["tokens"] == want["tokens"][:1], "a short text is read by the first frequencies", whole)
    box.stop()

    c = start()
    again = c.say("alone", " and so", 20)
    u = again["usage"]
    check(u["restored_tokens"] >= (len(ids) + 20) // PAGE * PAGE - PAGE, "after a restart it is restored from files", u)
    pid = c.call("status")["engine"]["pid"]
    late = c.ask("killed", SHORT, n)
    while c.read()[1] != "stream.tokens":  # the first of its hundred tokens
        pass
    os.kill(pid, signal.SIGKILL)
    check(c.answer(late)["tokens"] == want["tokens"], "the engine killed, the same tokens")
    box.stop()
finally:
    harness.end(box)
sys.exit(harness.failed > 0)
