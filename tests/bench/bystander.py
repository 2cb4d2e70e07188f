#!/usr/bin/python3
"""How long other clients wait while one client requests much work: a bystander's first token, the gaps between its
tokens, and the round trip of models.list, beside each of the rows below. Milliseconds, p50 / p99 / max.

    top_srcdir=. top_builddir=build PYTHONPATH=tests/daemon tests/bench/bystander.py [SECONDS [ROW ...]]

A daemon of its own serves the embedded model on the CPU; the bystander and every other client are processes. The test
suite bounds the work that is done at a time (tests/daemon/turns.py, engine-long.c); here time is measured, and the
machine should be idle: the load average is printed with the figures.
"""
import multiprocessing, os, sys, time

sys.dont_write_bytecode = True
from harness import Box, Client
from rows import ROWS, large_vocabulary

PROMPT = {"model": "tale", "max_tokens": 40, "sampling": {"temperature": 0}}


def other(box, act, go_on):
    c = Client(box.socket)
    while go_on.value:
        act(c, box)


# --- the bystander ------------------------------------------------------------------------------------------------

def watch(box, seconds, report):
    c, lister = Client(box.socket), Client(box.socket)
    first, gaps, lists = [], [], []
    until = time.monotonic() + seconds
    n = 0
    while time.monotonic() < until:
        n += 1
        begun = last = time.monotonic()
        id = c.submit("generate", text="Story %d." % n, **PROMPT)
        begins = True
        while True:
            m = c.read()
            now = time.monotonic()
            if m[0] == 2 and m[1] == "stream.tokens":
                (first if begins else gaps).append(now - (begun if begins else last))
                begins, last = False, now
            elif m[0] == 1 and m[1] == id:
                break
        begun = time.monotonic()
        lister.call("models.list")
        lists.append(time.monotonic() - begun)
    report.put([first, gaps, lists])


def figures(v):
    v = sorted(1000 * x for x in v)
    return "%5.1f /%7.1f /%7.1f" % (v[len(v) // 2], v[min(len(v) - 1, len(v) * 99 // 100)], v[-1])


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 4
    rows = sys.argv[2:] or list(ROWS)
    box = Box("bystander")
    try:
        box.models()
        box.configure("model_dir = %s/models" % box.dir, "memory_per_uid = 4G")
        large_vocabulary(box.dir + "/models/vocabulary.gguf", 1 << 20)
        box.start()
        c = box.client()
        c.call("generate", text="Warm.", **PROMPT)
        print("%-38s %-24s %-24s %-24s load" % ("the other client", "first token", "gap", "models.list"))
        for name in rows:
            n, act, *before = ROWS[name]
            for prepare in before:
                prepare(c, box)
            go_on = multiprocessing.Value("b", 1)
            others = [multiprocessing.Process(target=other, args=(box, act, go_on)) for _ in range(n)]
            for p in others:
                p.start()
            report = multiprocessing.Queue()
            bystander = multiprocessing.Process(target=watch, args=(box, seconds, report))
            bystander.start()
            first, gaps, lists = report.get()
            go_on.value = 0
            for p in others:
                p.terminate()
                p.join()
            bystander.join()
            print("%-38s %-24s %-24s %-24s %.1f" % (name, figures(first), figures(gaps), figures(lists),
                                                    os.getloadavg()[0]), flush=True)
            c.call("generate", text="After.", **PROMPT)  # the work that the others left behind is done by then
    finally:
        box.remove()


main()
