#!/usr/bin/python3
"""Two uids and a full KV pool, with the real engine: a new request is admitted within a bounded number of steps, the
sequences that are preempted for it lose no token, and no text depends on any of it. Steps are counted, not seconds.
Needs root.
"""
import os, random, signal, sys

from harness import Box, check, end

CLIENTS, PROMPT, MADE, ASKED = 12, 200, 150, 8

if os.geteuid() != 0:
    print("1..0 # SKIP only root can be two users")
    sys.exit(0)


def ids(seed, n):
    r = random.Random(seed)
    return [r.randrange(300, 4000) for _ in range(n)]


def ask(client, seed, prompt, made):
    return generate(client, seed, prompt, made)["tokens"]


def generate(client, seed, prompt, made):
    return client.call("generate", model="tale", tokens=ids(seed, prompt), max_tokens=made,
                       sampling={"temperature": 0, "logit_bias": [[0, -100]]})


def crowd(box, tell):
    """A client of another uid, which reports what it gets until it is killed."""
    os.setgid(65534)
    os.setuid(65534)
    k = 0
    while True:
        c = box.client()
        for seed in range(tell[1], 1000000, CLIENTS):
            os.write(tell[0], b"%d %d\n" % (seed, hash(tuple(ask(c, seed, PROMPT, MADE)))))


box, pids = Box("fair"), []
try:
    box.models()
    # each of 12 needs 22 pages, and there are 100
    box.configure("model_dir = %s/models" % box.dir, "kv_bytes = %d" % (100 * 16 * 8 * 2 * 128 * 2), "streams_per_uid = 64")
    for path in box.dir, box.dir + "/run":
        os.chmod(path, 0o755)
    box.start()
    os.chmod(os.path.dirname(box.socket), 0o755)
    os.chmod(box.socket, 0o666)
    own = box.client()
    alone = [ask(own, -1 - i, 40, 4) for i in range(ASKED)]
    out, told = os.pipe()
    for k in range(CLIENTS):
        pid = os.fork()
        if pid == 0:
            try:
                crowd(box, (told, k))
            finally:
                os._exit(1)
        pids.append(pid)
    os.close(told)
    lines = os.fdopen(out)
    got = [lines.readline() for _ in range(4)]  # the pool is full by then
    engine = lambda: own.call("status")["engine"]
    most, beside, used = 0, [], 0
    for i in range(ASKED):
        e = engine()
        used = max([used] + [m["pages_used"] / m["pages_total"] for m in e["models"]])
        r = generate(own, -1 - i, 40, 4)
        beside.append(r["tokens"])
        life = own.call("streams.trace", stream=r["stream"])["events"]  # by the engine: this client may be slow
        most = max(most, max(int(f["value"]) for ev in life if ev["stage"] == "finished" for f in ev["fields"]
                             if f["name"] == "steps"))
    check(used >= 0.8, "the pool is full when newcomers come", used)
    check(most <= 40, "4 tokens of a newcomer take %d steps, 40 at most" % most)
    check(beside == alone, "its texts are those that it has alone")
    got += [lines.readline() for _ in range(12)]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    pids = []
    wrong = [l for l in got if hash(tuple(ask(own, int(l.split()[0]), PROMPT, MADE))) != int(l.split()[1])]
    check(not wrong, "so are those of who made way", wrong)
finally:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    end(box)
