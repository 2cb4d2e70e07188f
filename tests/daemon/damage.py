#!/usr/bin/python3
"""Damages KV files, journals and rows of the database, and starts hearthd on them.

KV that is damaged must be computed again, and damaged rows and journals must be refused with a name; whatever is sound
must still work, and the next request must succeed. $HEARTH_DAMAGES is the number of rounds (80), another $HEARTH_SEED
(1) draws others. Prints TAP.
"""
import os, random, resource, shutil, sys

sys.dont_write_bytecode = True
from harness import Box, Refused, Wrong

DAMAGES = int(os.environ.get("HEARTH_DAMAGES", "80"))
SEED = int(os.environ.get("HEARTH_SEED", 1))
SESSIONS, STREAMS = 6, 3
rng = random.Random(SEED)
box = Box("damage")
victim = box.dir + "/victim"
links = []  # the original contents of linked files; all links point to the victim, which has the last of them
counts = {}

TEXT = "The king said to the miller that he would give him the half of his kingdom, and the miller went home. "


# --- the undamaged state -------------------------------------------------------------------------------------

def ask(c, n, session, text, **more):
    return c.call("generate", model="tale", text=text, max_tokens=n, session=session,
                  sampling={"temperature": 0.8, "seed": 7}, **more)


def build():
    """Makes sessions of two turns, and streams that were interrupted by the death of hearthd."""
    box.start()
    c = box.client()
    for i in range(SESSIONS):
        ask(c, 40, "s%d" % i, "Tale %d. " % i + TEXT * (i + 1), request="first%d" % i)
        ask(c, 20, "s%d" % i, " And then", request="second%d" % i)
    box.stop()  # by then the engine has written all of its files
    box.engine("--fault", box.fault)
    box.fail("hang=100")  # so that no stream ends, however late the kill is
    box.start()
    c = box.client()
    c.submit_all(*(("generate", dict(model="tale", text="Long ago %d, " % i, max_tokens=150, session="run%d" % i,
                                     request="run%d" % i, sampling={"temperature": 0.8, "seed": 7}))
                   for i in range(STREAMS)))
    seen = {}
    while len(seen) < STREAMS or min(seen.values()) < 8:
        m = c.read()
        if m[0] == 2 and m[1] == "stream.tokens":
            seen[m[2][0]["stream"]] = m[2][0]["index"] + m[2][0]["count"]
        elif m[0] == 1:
            raise Wrong("a stream ended before it was cut short: %s" % m[2])
    box.kill()
    box.engine()


class Answers:
    """What hearthd returns for each of these; an error is an answer."""

    def __init__(self):
        c = box.client()
        self.fresh = ask(c, 12, None, "Once upon a time")["text"]
        self.streams = {r: self.attach(c, r) for r in requests}
        self.next = {s: self.go_on(c, s) for s in sessions}
        self.again = ask(c, 12, None, "Once upon a time")["text"]
        c.close()

    @staticmethod
    def attach(c, request):
        try:
            r = c.call("stream.attach", request=request)
            return r["text"], r["tokens"], r["finish_reason"]
        except Refused as e:
            return e

    @staticmethod
    def go_on(c, session):
        try:
            r = c.call("generate", session=session, text=" In the end", max_tokens=12, sampling={"temperature": 0})
            return r["text"], r["tokens"], r["usage"]["prompt_tokens"]
        except Refused as e:
            return e


sessions = ["s%d" % i for i in range(SESSIONS)]
requests = [w + str(i) for i in range(SESSIONS) for w in ("first", "second")] + ["run%d" % i for i in range(STREAMS)]


# --- damage --------------------------------------------------------------------------------------------------

def data_of(path):
    with open(path, "rb") as f:
        return bytearray(f.read())


def put(path, data):
    with open(path, "wb") as f:
        f.write(data)


def truncated(path, others):
    data = data_of(path)
    put(path, data[:rng.choice((0, 1, len(data) // 2, len(data) - 1, rng.randrange(len(data))))])


def extended(path, others):
    put(path, data_of(path) + bytes(rng.randrange(1, 5000)))


def flipped(path, others):
    data = data_of(path)
    at = rng.choice((rng.randrange(len(data)), rng.randrange(min(len(data), 512))))
    data[at] ^= 1 << rng.randrange(8)
    put(path, data)


def zeroed(path, others):
    data = data_of(path)
    at = rng.randrange(len(data))
    n = min(4096, len(data) - at)
    if not any(data[at:at + n]):
        data[at:at + n] = b"\xff" * n
    else:
        data[at:at + n] = bytes(n)
    put(path, data)


def wrong_version(path, others):
    data = data_of(path)
    data[8] += 1 + rng.randrange(100)  # after the eight bytes of magic, in both formats
    put(path, data)


def wrong_owner(path, others):
    os.chown(path, 12345, 12345)


def for_all(path, others):
    os.chmod(path, 0o666)


def symlinked(path, others):
    links.append(data_of(path))
    put(victim, links[-1])
    os.unlink(path)
    os.symlink(victim, path)


def directory(path, others):
    os.unlink(path)
    os.mkdir(path)


def fifo(path, others):
    os.unlink(path)
    os.mkfifo(path)


def anothers(path, others):
    """What another one of its kind holds; its row, where it has one, says the size."""
    put(path, data_of(rng.choice([o for o in others if os.path.basename(o) != os.path.basename(path)])))


def gone(path, others):
    os.unlink(path)


FILES = [truncated, extended, flipped, flipped, zeroed, wrong_version, for_all, symlinked, directory, fifo, anothers, gone]
if os.geteuid() == 0:
    FILES.append(wrong_owner)

# Changes to the rows of a session; each must be refused, or harmless.
ROWS = ["UPDATE sessions SET model = x'ff' WHERE name = ?1",
        "UPDATE sessions SET path = 'no/path' WHERE name = ?1",
        "UPDATE sessions SET path = '/nowhere/tale.gguf' WHERE name = ?1",
        "UPDATE sessions SET id = 'nonsense ' || name WHERE name = ?1",
        "UPDATE sessions SET name = CAST(x'00ff' || name AS BLOB) WHERE name = ?1",
        "UPDATE sessions SET uid = 12345 WHERE name = ?1",
        "UPDATE sessions SET uid = -1 WHERE name = ?1",
        "UPDATE sessions SET turn_open = 7, created = 9e999, used = -1 WHERE name = ?1",
        "UPDATE sessions SET used = 9e999 WHERE name = ?1",
        "UPDATE sessions SET bytes = bytes + 9000000000000000000 WHERE name = ?1",
        "UPDATE sessions SET n_tok = n_tok + 1 WHERE name = ?1",
        "UPDATE sessions SET n_turns = -1 WHERE name = ?1",
        "UPDATE sessions SET sum = sum + 1 WHERE name = ?1",
        "UPDATE sessions SET pinned = x'ff' WHERE name = ?1",
        "DELETE FROM sessions WHERE name = ?1",
        "UPDATE turns SET tokens = substr(tokens, 1, length(tokens) - 1) WHERE session = (SELECT id FROM sessions WHERE name = ?1)",
        "UPDATE turns SET tokens = substr(tokens, 1, 8) WHERE seq = 1 AND session = (SELECT id FROM sessions WHERE name = ?1)",
        "UPDATE turns SET tokens = x'ffffffff' || substr(tokens, 5) WHERE seq = 0 AND session = (SELECT id FROM sessions WHERE name = ?1)",
        "UPDATE turns SET tokens = x'00000001' || substr(tokens, 5) WHERE seq = 0 AND session = (SELECT id FROM sessions WHERE name = ?1)",
        "UPDATE turns SET tokens = 'text' WHERE seq = 2 AND session = (SELECT id FROM sessions WHERE name = ?1)",
        "UPDATE turns SET seq = seq + 10 WHERE seq = 1 AND session = (SELECT id FROM sessions WHERE name = ?1)",
        "UPDATE turns SET text = CAST(text AS TEXT) || 'x' WHERE seq = 1 AND session = (SELECT id FROM sessions WHERE name = ?1)",
        "UPDATE turns SET role = x'00', made = x'c1' WHERE seq = 1 AND session = (SELECT id FROM sessions WHERE name = ?1)",
        "UPDATE turns SET session = substr(session, 2) || 'f' WHERE seq = 2 AND session = (SELECT id FROM sessions WHERE name = ?1)",
        "DELETE FROM turns WHERE seq = 1 AND session = (SELECT id FROM sessions WHERE name = ?1)"]
KV_ROWS = ["UPDATE kv_file SET name = substr(name, 2) WHERE name = ?1",
           "UPDATE kv_file SET bytes = bytes + 1 WHERE name = ?1",
           "UPDATE kv_file SET uid = 12345, pos = 160000 WHERE name = ?1",
           "UPDATE kv_file SET tokens = -1 WHERE name = ?1",
           "UPDATE kv_file SET session = 'ffffffffffffffff' WHERE name = ?1",
           "UPDATE kv_file SET fingerprint = 'ffffffffffffffff' WHERE name = ?1",
           "UPDATE kv_file SET used = -9e999 WHERE name = ?1",
           "DELETE FROM kv_file WHERE name = ?1"]


def count(what, how):
    counts.setdefault(what, {}).setdefault(how, 0)
    counts[what][how] += 1


def harm(pristine):
    """Damages several things. Returns the KV files, requests and sessions that may be affected."""
    shutil.rmtree(box.state)
    shutil.copytree(pristine, box.state)
    links.clear()
    hurt = {"kv": {}, "journal": {}, "session": {}}
    kv = sorted(pristine + "/kv/" + f for f in os.listdir(pristine + "/kv"))
    for path in rng.sample(kv, len(kv) * 3 // 4):
        path = path.replace(pristine, box.state)
        if rng.randrange(6) == 0:
            how = rng.choice(KV_ROWS)
            box.sql(how, os.path.basename(path))
            count("KV rows", how.split(" WHERE")[0])
        else:
            how = rng.choice(FILES)
            how(path, kv)
            count("KV files", how.__name__)
        hurt["kv"][os.path.basename(path)] = how
    journals = {r: "%s/journal/%d" % (pristine, n) for r, n in numbers.items()}
    for request in rng.sample(sorted(journals), 3) + [rng.choice([r for r in journals if r.startswith("run")])]:
        if request in hurt["journal"]:
            continue
        how = rng.choice(FILES)
        how(journals[request].replace(pristine, box.state), sorted(journals.values()))
        count("journals", how.__name__)
        hurt["journal"][request] = how
    for session in rng.sample(sessions, 2):
        how = rng.choice(ROWS)
        box.sql(how, session)
        count("rows", how.split(" WHERE")[0][:60])
        hurt["session"][session] = how
    return hurt


# --- the results ---------------------------------------------------------------------------------------------

def same(what, got, want):
    if got != want:
        raise Wrong("%s: %r, undisturbed %r" % (what, got, want))


def same_or_refused(what, got, want):
    if isinstance(got, Refused):
        if len(got.args) < 2 or len(got.args[1]) < 10:
            raise Wrong("%s is refused with %r" % (what, got.args))
    else:
        same(what, got, want)


def removable(hurt):
    """A damaged session is removed when its owner requests it, and its name can be used again."""
    c = box.client()
    for s in [s["id"] for s in c.call("sessions.list")["sessions"] if s.get("damaged")] + list(hurt["session"]):
        try:
            c.call("sessions.remove", session=s)
        except Refused as e:
            if e.args[0] != "SESSION_NOT_FOUND":
                raise Wrong("session %s cannot be removed: %r" % (s, e.args))
    if [s for s in c.call("sessions.list")["sessions"] if s.get("damaged")]:
        raise Wrong("there are damaged sessions after all of them were removed")
    for s in hurt["session"]:
        if ask(c, 4, s, "Once")["usage"]["completion_tokens"] != 4:
            raise Wrong("session %s cannot be made anew" % s)
    c.close()


def survive(hurt, want):
    before = len(box.log())
    box.start()
    got = Answers()
    same("a fresh request", got.fresh, want.fresh)
    same("a fresh request again", got.again, want.again)
    for r in requests:
        (same_or_refused if r in hurt["journal"] else same)("stream " + r, got.streams[r], want.streams[r])
    for s in sessions:
        (same_or_refused if s in hurt["session"] else same)("session " + s, got.next[s], want.next[s])
    removable(hurt)
    box.stop()
    log = box.log()[before:]
    for r, how in hurt["journal"].items():
        if how not in (gone, for_all) and "journal/%d" % numbers[r] not in log and "journal %d" % numbers[r] not in log and \
                "stream %d" % numbers[r] not in log:
            raise Wrong("the log does not name journal %d, %s" % (numbers[r], how.__name__))
    for f, how in hurt["kv"].items():
        if how in (truncated, extended, wrong_owner, symlinked, directory, fifo, gone) and f not in log and \
                owners[f] not in hurt["session"]:  # it is removed with its session, without a message
            raise Wrong("the log does not name KV file %s, %s" % (f, how.__name__))
    found = box.sql("PRAGMA integrity_check")
    if found != [("ok",)]:
        raise Wrong("the database: %s" % found)
    if links and data_of(victim) != links[-1]:
        raise Wrong("what a link pointed to was written to")


def full_disk(pristine, want):
    """The engine's files may not grow, as on a full disk: all texts are right, and no partial file is left."""
    shutil.rmtree(box.state)
    shutil.copytree(pristine, box.state)
    for f in os.listdir(box.state + "/kv"):  # otherwise there would be nothing to write
        os.unlink(box.state + "/kv/" + f)
    os.truncate(box.dir + "/log", 0)  # the limit applies to the log, too
    box.start()
    c = box.client()
    c.call("models.load", model="tale")
    engine = c.call("status")["engine"]["pid"]
    resource.prlimit(engine, resource.RLIMIT_FSIZE, (20000, resource.RLIM_INFINITY))
    got = Answers()
    status = c.call("status")
    for what in "fresh", "again", "streams", "next":
        same(what + " on a full disk", getattr(got, what), getattr(want, what))
    if status["engine"]["pid"] != engine or status["engine"]["restarts"]:
        raise Wrong("the engine did not outlive a full disk")
    c.close()
    box.stop()
    left = [f for f in os.listdir(box.state + "/kv") if not f.endswith(".kv")]
    if left:
        raise Wrong("a full disk left %s" % left)
    if "File too large" not in box.log():
        raise Wrong("nobody said that the disk is full")


def removed(pristine):
    """A removed session's files are removed with it, and no others."""
    shutil.rmtree(box.state)
    shutil.copytree(pristine, box.state)
    had = set(os.listdir(pristine + "/kv"))
    its = {f for f in had if owners[f] == "s0"}
    if not its:
        raise Wrong("no KV file is session s0's: %s" % owners)
    box.start()
    c = box.client()
    c.call("sessions.remove", session="s0")
    c.close()
    left = set(os.listdir(box.state + "/kv"))
    if left & had != had - its:
        raise Wrong("session s0 had %s, and these are left: %s" % (its, left))
    box.stop()


print("# seed %d" % SEED)
wrong, rounds = None, 0
try:
    build()
    pristine = box.dir + "/pristine"
    shutil.copytree(box.state, pristine)
    box.start()
    c = box.client()
    numbers = {r: c.call("stream.attach", request=r)["stream"] for r in requests}
    c.close()
    want = Answers()
    box.stop()
    owners = dict(box.sql("SELECT k.name, s.name FROM kv_file k LEFT JOIN sessions s ON s.id = k.session"))
    print("# %d KV files, %d journals, %d sessions" % (len(os.listdir(pristine + "/kv")), len(os.listdir(pristine + "/journal")),
                                                     SESSIONS + STREAMS))
    if any(isinstance(v, Refused) for v in [*want.streams.values(), *want.next.values()]):
        raise Wrong("undisturbed, something is refused: %s %s" % (want.streams, want.next))
    while sum(sum(k.values()) for k in counts.values()) < DAMAGES:
        hurt = harm(pristine)
        try:
            survive(hurt, want)
        except Exception as e:
            wrong = "round %d: %s: %s\n%s" % (rounds, type(e).__name__, e, "\n".join(
                "%s %s: %s" % (kind, name, getattr(how, "__name__", how)) for kind, v in hurt.items() for name, how in v.items()))
            break
        rounds += 1
    if not wrong:
        full_disk(pristine, want)
        removed(pristine)
except Wrong as e:
    wrong = str(e)
finally:
    log = box.log().splitlines()
    box.remove()
for what, how in sorted(counts.items()):
    print("# %s: %s" % (what, ", ".join("%s %d" % x for x in sorted(how.items()))))
if wrong:
    print("# " + wrong.replace("\n", "\n# ")[:3000])
    print("\n".join("# log: " + l for l in log[-60:]))
print("%sok 1 - %d damages in %d starts: recomputed or refused, and the next request works; a full disk; a removed session" % (
    "not " if wrong else "", sum(sum(k.values()) for k in counts.values()), rounds))
print("1..1")
sys.exit(wrong is not None)
