#!/usr/bin/python3
"""The device that takes a GPU's time and computes nothing (tests/fault/paced.h), with which planning is measured:
models load as on a GPU, several steps are in flight, and its output depends only on the position.
"""
import sys

sys.dont_write_bytecode = True
import harness
from harness import Box, Client, check

COUNT = 40


def start(by):
    box.engine("--paced", by)
    box.configure("model_dir = %s/models" % box.dir, "threads = 2", "kv_ram = 0", "kv_disk = 0")
    box.start()
    return Client(box.socket)


def ask(c, text):
    return c.submit("generate", model="tale", text=text, max_tokens=COUNT, ignore_eos=True, sampling={"temperature": 0})


box = Box("paced")
box.models()
try:
    c = start("0.1,trials,slow")
    alone = c.answer(ask(c, "Once upon a time"))
    m = c.call("status")["engine"]["models"][0]
    check(m["where"] == "cuda:0" and m["self_check"].startswith("passed"), "it is taken for a GPU, and trusted", m)
    check(alone["usage"]["completion_tokens"] == COUNT and alone["text"], "it generates", alone)
    both = [ask(c, "There was a fox. " * 30), ask(c, "A crow")]
    texts = [c.answer(i)["text"] for i in both]
    check(texts == [alone["text"]] * 2, "two at once have what follows any prompt", (texts, alone["text"]))
    box.stop()
    for by in "0", "1,quick":
        try:
            c = start(by)
            refused = c.answer(ask(c, "x"))
        except (harness.Refused, harness.Wrong) as e:
            refused = e
        check("FACTOR[,trials][,slow][,computes]" in box.log() + str(refused), "%s is refused" % by, refused)
        box.stop()
finally:
    harness.end(box)
