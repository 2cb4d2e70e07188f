#!/usr/bin/python3
"""The work that hearthd's loop does in one iteration, while all clients wait, is bounded whatever clients request: the
bytes of messages and of database pages, and the rows, as counted by `status` beside each row of rows.py.

    top_srcdir=. top_builddir=build tests/daemon/turns.py [ROW ...]
"""
import sys, threading

sys.dont_write_bytecode = True
import rows
from harness import Box, Client, check, end

# An iteration handles up to 16 MiB plus one frame, and one answer of the engine, or of the thread that reads long
# sessions.
BYTES = 40 << 20
PARTS = 3 << 20  # while a session is written in parts
ROWS = 1024
rows.SESSIONS = 600
COMPUTE = "8 prompts of 900 tokens", "32 streams", "eval, 1,000 greedy"  # work of the engine

box = Box("turns")
try:
    box.models()
    box.configure("model_dir = %s/models" % box.dir, "memory_per_uid = 4G")
    rows.large_vocabulary(box.dir + "/models/vocabulary.gguf", 1 << 16)
    box.start()
    c = box.client()
    c.call("generate", text="Warm.", model="tale", max_tokens=1)

    rows.large_session(c, "first")
    most = c.call("status")["longest"]
    check(most["bytes"] <= PARTS, "a session of 14 MiB is written in parts", most)

    def twice(c, act):
        act(c, box)
        act(c, box)

    for name in sys.argv[1:] or [r for r in rows.ROWS if r not in COMPUTE]:
        n, act, *before = rows.ROWS[name]
        for prepare in before:
            prepare(c, box)
        others = [threading.Thread(target=twice, args=(Client(box.socket), act)) for _ in range(n)]
        for t in others:
            t.start()
        for t in others:
            t.join()
        most = c.call("status")["longest"]
        print("# %-40s %s" % (name, most))
        check(0 < most["bytes"] <= BYTES and most["rows"] <= ROWS, "a turn is short beside: " + name, most)
    lines = [l for l in box.log().splitlines() if " error:" in l or " warn:" in l]
    check(not lines, "nothing went wrong", lines)
finally:
    end(box)
