#!/usr/bin/python3
"""What one user asks for keeps no other user waiting, and makes hearthd forget nothing of others: dry runs of long
sessions, ended streams that nobody reads, long sessions that are shown, journals. Needs root for the second user.
"""
import os, sys

from harness import Box, Refused, check, end

if os.geteuid() != 0:
    print("1..0 # SKIP only root can be two users")
    sys.exit(0)

OTHER, MIB = 65534, 1 << 20


def as_other(work):
    """Runs work() as another uid; True if it came to its end."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgid(OTHER)
            os.setuid(OTHER)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def long_session(c, name, mib):
    for i in range(mib):
        c.call("sessions.import", page=i, more=i + 1 < mib, version=1, name=name, model="tale",
               turns=[{"role": "user" if i % 2 == 0 else "assistant", "text": "w " * (MIB // 2), "tokens": [1], "created": 1.0}])


def outcome(c, id):
    try:
        c.answer(id)
        return ""
    except Refused as e:
        return "%s: %s" % e.args


def short(c, request, **more):
    return c.call("generate", model="tale", text="Once", max_tokens=1, request=request, stream=False, **more)


def serve(*lines):
    """Starts a hearthd that the other user can connect to; a client of it."""
    box.configure("model_dir = %s/models" % box.dir, "streams = 16", *lines)
    box.start()
    for path in box.dir, box.dir + "/run", os.path.dirname(box.socket):
        os.chmod(path, 0o755)
    os.chmod(box.socket, 0o666)
    return box.client()


box = Box("isolation")
try:
    box.models()
    own = serve("memory_per_uid = 16M", "journal_bytes = 1M")
    long_session(own, "long", 6)

    # Dry runs: two of 6 MiB are below memory_per_uid, three are not.
    dry = dict(session="long", messages=[{"role": "user", "content": "x"}], dry=True)
    got = [outcome(own, id) for id in own.submit_all(*[("generate", dry)] * 8)]
    refused = [g for g in got if "LIMIT: generate.dry: unanswered dry runs" in g]
    check(refused and "" in got, "dry runs that send more than memory_per_uid are refused", got)
    check("fits" in own.call("generate", **dry), "and taken again once others are answered")

    # Shows: the other user's one comes after one of ours, not after all. However slowly we read, there is room for our
    # answers, of 6 MiB each: two of them would exceed 16M.
    own.close()
    box.stop()
    own = serve("memory_per_uid = 256M", "unsent_bytes = 256M", "journal_bytes = 1M")
    ready, go = os.pipe(), os.pipe()

    def show():
        c = box.client()
        long_session(c, "theirs", 1)
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        c.call("sessions.show", session="theirs")

    done = os.fork()
    if done == 0:
        os.setgid(OTHER)
        os.setuid(OTHER)
        show()
        os._exit(0)
    os.read(ready[0], 1)
    shows = own.submit_all(*[("sessions.show", {"session": "long"})] * 12)
    os.write(go[1], b"x")
    own.answer(shows[0])
    while True:  # reads our answers until the other user has its own
        pid, status = os.waitpid(done, os.WNOHANG)
        if pid or len(own.answers) == 11:
            break
        m = own.read()
        if m[0] == 1:
            own.answers[m[1]] = m[2:]
    check(pid and status == 0, "a session is shown between those of another user", len(own.answers))

    # Journals: ours exceed the limit, and the other user's request is still known.
    def first():
        short(box.client(), "mine", session="mine")

    def again():
        c = box.client()
        short(c, "mine", session="mine")
        if len(c.call("sessions.show", session="mine")["turns"]) != 2:
            raise SystemExit(1)

    check(as_other(first), "another user's request")
    for i in range(15):
        own.call("generate", model="tale", max_tokens=1, request="r%d" % i, stream=False, n=16, text="Once " * 900)
    files = os.listdir(box.state + "/journal")
    check(len(files) < 15 * 16, "journals are removed, as they exceed journal_bytes", len(files))
    check(as_other(again), "made again after many of ours, it is not carried out again")

    # Streams that nobody reads are none that run.
    own.close()
    box.stop()
    own = serve()
    texts = dict(model="tale", tokens=[300, 301], max_tokens=120, logprobs=20, stream=False, n=16,
                 sampling={"temperature": 0, "logit_bias": [[0, -100]]})
    for i in range(3):
        own.call("generate", request="unread%d" % i, **texts)
    readers = [box.client() for _ in range(3)]
    for i, c in enumerate(readers):
        c.submit("stream.attach", request="unread%d" % i)
    unread = 0
    while unread < 20:  # 48 streams, of which most do not fit into the sockets
        unread = own.call("status")["streams"]
    check(as_other(lambda: short(box.client(), "beside", deadline_ms=5000)), "many unread streams leave room for others")
finally:
    end(box)
