#!/usr/bin/python3
"""A model for which the GPU has no room: what is reported before and after the load, that the texts are the same, and
the effect of `host_weights`. The GPU is a CPU that claims to be one (tests/fault/small.h), so that this runs anywhere.
"""
import os, subprocess, sys

sys.dont_write_bytecode = True
import harness
from harness import BUILD, Box, check

FACTOR = 32  # SMALL_FACTOR
GPU = 140 << 20
TEXT = "Once upon a time"


class Client(harness.Client):
    def say(self):
        return self.call("generate", model="tale", text=TEXT, max_tokens=20, sampling={"temperature": 0})["text"]

    def row(self):
        return self.call("status")["engine"]["models"][0]


def hearth(*words):
    r = subprocess.run([BUILD + "/hearth", *words], env=box.env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return r.stdout, r.stderr


def start(*lines, options=("--small", str(GPU))):
    box.engine(*options)
    box.configure("model_dir = %s/models" % box.dir, "threads = 2", "kv_ram = 0", "kv_disk = 0", *lines)
    box.start()
    return Client(box.socket)


box = Box("small")
box.models()
weights = FACTOR * os.path.getsize(box.dir + "/models/tale.gguf")
try:
    c = start(options=())
    want = c.say()
    m = c.row()
    check("host_bytes" not in m and m["speed"] == 0, "where there is room nothing is said of the host's memory", m)
    box.stop()

    c = start()
    out, err = hearth("load", "tale")
    check("does not fit into the GPU's memory" in err and "tokens/s" in err, "a load says first what is to be expected", err)
    check("loaded in" in out, "... and then that it is there", out)
    m = c.row()
    check(m["where"] == "cuda:0" and m["self_check"].startswith("passed"), "the GPU runs it", m)
    check(0.9 * weights < m["bytes"] <= weights, "its weights are all counted", (m["bytes"], weights))
    check(0 < m["host_bytes"] < m["bytes"], "some are in the host's memory", m)
    own, host = (m["bytes"] - m["host_bytes"]) / 1e9, m["host_bytes"] / 1e8
    check(1 / (own + host) <= m["speed"] < 1 / host * 1.5, "what is to be expected follows the rates", (m["speed"], own, host))
    share = round(100 * m["host_bytes"] / m["bytes"])
    for words in ["ps"], ["top", "--once"], ["doctor"]:
        out, err = hearth(*words)
        check("cuda:0 %d %%, host %d %%" % (100 - share, share) in out, words[0] + " says where they are", out)
    out, err = hearth("status")
    check("of its weights are in the host's memory: at most" in out, "status says so", out)
    check(c.call("status")["engine"]["memory"]["weights"] <= GPU, "the GPU holds no more than it has")
    check(c.say() == want, "the text is the same")
    out, err = hearth("load", "tale", "--json")
    check('"host_bytes":%d' % m["host_bytes"] in out and '"was_loaded":true' in out, "load --json tells it, too", out)
    c.call("models.unload", model="tale")
    memory = c.call("status")["engine"]["memory"]
    check(memory["weights"] == 0 == memory["pinned"], "an unload gives back both", memory)
    box.stop()

    c = start("host_weights = 1M")
    check(c.say() == want, "with less of the host's memory the CPU runs it")
    m = c.row()
    check(m["where"] == "cpu" and "host_bytes" not in m, "... and nothing is outside", m)
    check("GPU's memory has 0." in m["self_check"] and "the host's 0.0 GB of the" in m["self_check"],
          "... and the reason names both sizes", m["self_check"])
    box.stop()

    c = start("host_weights = 0")
    check(c.say() == want and c.row()["where"] == "cpu", "without any the CPU runs it", c.row())
    check("it needs 0.2 GB on the GPU (weights 0.1 GB" in c.row()["self_check"], "... with what it needs there", c.row())
    box.stop()

    c = start("host_weights = 0", options=("--small", str(230 << 20)))
    c.call("models.pin", model="tale")
    check(c.row()["where"] == "cuda:0", "one of two has room there, and is pinned", c.row())
    other = c.submit("generate", model="other", text=TEXT, max_tokens=1)
    try:
        c.answer(other)
        check(False, "the other one is refused")
    except harness.Refused as e:
        check(e.args[0] == "OUT_OF_MEMORY" and "are pinned" in e.args[1], "the other one is refused", e)
    check(c.say() == want, "and nobody waits behind it")
    box.stop()
finally:
    harness.end(box)
sys.exit(harness.failed > 0)
