#!/usr/bin/python3
"""A model in memory whose file is damaged or gone: it is unloaded, or not pinned any more, all the same. Prints TAP."""
import os, sys

sys.dont_write_bytecode = True
import harness
from harness import Box, Refused, check

box = Box("gone")
try:
    box.models()
    box.configure("model_dir = %s/models" % box.dir, "threads = 2")
    box.start()
    c = box.client()

    def held():
        return c.call("status")["engine"]["memory"]["weights"]

    def rows(name):
        return [m for m in c.call("status")["engine"]["models"] if m["name"] == name]

    path = box.dir + "/models/other.gguf"
    with open(path, "rb") as f:
        good = f.read()
    for what in "damaged", "gone", "gone, by its path":
        c.call("models.pin", model="other")
        check(held() > 4e6 and rows("other")[0]["pinned"], what + ": it is in memory", rows("other"))
        if what == "damaged":
            with open(path, "wb") as f:
                f.write(good[:1000])
        else:
            os.unlink(path)
        name = path if "path" in what else "other"
        c.call("models.pin", model=name, pinned=False)
        check(not rows("other")[0]["pinned"], what + ": it is not pinned any more", rows("other"))
        c.call("models.unload", model=name)
        check(held() == 0, what + ": it is unloaded", rows("other"))
        with open(path + ".new", "wb") as f:
            f.write(good)
        os.rename(path + ".new", path)
    try:
        c.call("models.unload", model="none")
        check(False, "what there never was is refused")
    except Refused as e:
        check(e.args[0] == "MODEL_NOT_FOUND", "what there never was is refused", e)
    check(c.call("status")["engine"]["restarts"] == 0, "no engine was lost")
finally:
    harness.end(box)
