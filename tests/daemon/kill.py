#!/usr/bin/python3
"""Kills clients, engines and daemons at random moments of streams; every stream must end as if nothing had been.

$HEARTH_KILLS is how many (18, one of each kind), $HEARTH_SEED repeats a campaign. A client's death is its connection's: the kernel does
the same for a process. In the middle of a write hearthd is killed by kill-at.c. Prints TAP.
"""
import os, random, shutil, signal, socket, sqlite3, subprocess, sys, tempfile, time

try:
    import msgpack
except ImportError:
    print("1..0 # SKIP python3-msgpack is not installed")
    sys.exit(0)

BUILD = os.environ["top_builddir"]
KILLS = int(os.environ.get("HEARTH_KILLS", "18"))
SEED = int(os.environ.get("HEARTH_SEED", random.SystemRandom().randrange(1 << 32)))
TARGETS = "client", "engine", "daemon"
PHASES = "queued", "prefill", "decode", "journal", "fold", "ended"
rng = random.Random(SEED)
tmp = tempfile.mkdtemp(prefix="hearth-kill.")
sock = tmp + "/run/hearth/hearth.sock"
env = dict(os.environ, XDG_RUNTIME_DIR=tmp + "/run", XDG_STATE_HOME=tmp + "/state", XDG_CONFIG_HOME=tmp + "/config",
           XDG_DATA_HOME=tmp + "/data", HOME=tmp)
for name in "HEARTH_SOCKET", "KILL_AT":
    env.pop(name, None)
os.mkdir(tmp + "/run", 0o700)
preload = BUILD + "/tests/daemon/.libs/kill-at.so"
gate = tmp + "/armed"
daemon = None
torn = 0  # kills in the middle of a write


class Wrong(Exception):
    pass


def start(kill_at=None):
    """A daemon; with kill_at = (NAME, N) one that dies in the Nth write to such a file after arm()."""
    global daemon
    e = env
    if kill_at:
        e = dict(env, LD_PRELOAD=preload, KILL_AT="%s %d %s" % (*kill_at, gate))
        e["ASAN_OPTIONS"] = e.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
    r, w = os.pipe()
    daemon = subprocess.Popen([BUILD + "/hearthd", "--foreground", "--ready-fd", str(w)], env=e, pass_fds=[w],
                              stdin=subprocess.DEVNULL, stderr=open(tmp + "/log", "ab"))
    os.close(w)
    ready = os.read(r, 1)
    os.close(r)
    if not ready:
        raise Wrong("hearthd did not start")


def arm():
    open(gate, "w").close()


def bury(asked=False):
    """Waits for hearthd's end, which was asked for or a kill."""
    if os.path.exists(gate):
        os.unlink(gate)
    status = daemon.wait(60)
    if status != (0 if asked else -signal.SIGKILL):
        raise Wrong("hearthd ended with status %d" % status)
    db = sqlite3.connect(tmp + "/state/hearth/sessions.db")
    found = db.execute("PRAGMA integrity_check").fetchall()
    db.close()
    if found != [("ok",)]:
        raise Wrong("the database: %s" % found)


class Client:
    def __init__(self):
        self.s = socket.socket(socket.AF_UNIX)
        self.s.settimeout(60)
        self.s.connect(sock)
        self.un = msgpack.Unpacker(raw=False, strict_map_key=False)
        self.id = 0

    def submit(self, method, **params):
        self.id += 1
        self.s.sendall(msgpack.packb([0, self.id, method, [params]]))
        return self.id

    def read(self):
        """A message; None at the end of the connection."""
        while True:
            for m in self.un:
                return m
            try:
                data = self.s.recv(65536)
            except ConnectionError:
                data = b""
            if not data:
                return None
            self.un.feed(data)

    def call(self, method, **params):
        i = self.submit(method, **params)
        while True:
            m = self.read()
            if m is None:
                raise Wrong("hearthd hung up over %s" % method)
            if m[0] == 1 and m[1] == i:
                if m[2]:
                    raise Wrong("%s: %s" % (method, m[2][1]))
                return m[3]

    def close(self):
        self.s.close()


class Stream:
    """What a client has of one stream, over all of its connections."""

    def __init__(self, params):
        self.params, self.number, self.result = params, None, None
        self.tokens, self.frames = [], []  # frames: (index, count, text)
        self.client, self.notices = None, []

    def generate(self):
        """Asks, or asks again: from the beginning, and what was there must come again."""
        self.known, self.tokens, self.frames = self.tokens, [], []
        self.client = Client()
        self.id = self.client.submit("generate", **self.params)

    def attach(self, by_number):
        self.known = []
        self.frames = [f for f in self.frames if f[1] > 0]  # the text held back to the end comes again
        self.client = Client()
        who = {"stream": self.number} if by_number else {"request": self.params["request"]}
        self.id = self.client.submit("stream.attach", **{"from": len(self.tokens)}, **who)

    def step(self):
        """Reads one message; False where the stream has ended or the connection has."""
        m = self.client.read()
        if m is None:
            return False
        if m[0] == 1:
            if m[2]:
                raise Wrong("the stream's answer: %s" % m[2][1])
            self.result = m[3]
            return False
        name, body = m[1], m[2][0]
        if name == "stream.begin":
            if self.number not in (None, body["stream"]):
                raise Wrong("stream %s became %s" % (self.number, body["stream"]))
            self.number = body["stream"]
        elif name == "stream.tokens":
            if body["index"] != len(self.tokens) or body["count"] != len(body["tokens"]):
                raise Wrong("index %s, want %d" % (body["index"], len(self.tokens)))
            self.tokens += body["tokens"]
            self.frames.append((body["index"], body["count"], body["text"]))
            n = min(len(self.tokens), len(self.known))
            if self.tokens[:n] != self.known[:n]:
                raise Wrong("a retry brought other tokens")
        elif name == "notice":
            self.notices.append(body["name"])
        return True

    def until(self, done):
        while not done(self) and self.step():
            pass

    def check(self, want):
        r, text = self.result, "".join(f[2] for f in self.frames)
        for what, got, right in (("text", r["text"], want["text"]), ("streamed text", text, want["text"]),
                                 ("tokens", r["tokens"], want["tokens"]), ("streamed tokens", self.tokens, want["tokens"]),
                                 ("finish_reason", r["finish_reason"], want["finish_reason"]),
                                 ("prompt", r["usage"]["prompt_tokens"], want["usage"]["prompt_tokens"])):
            if got != right:
                raise Wrong("%s: %r, undisturbed %r" % (what, got, right))


LONG = "The king said to the miller that he would give him the half of his kingdom, and the miller went home. " * 24
CASES = [dict(text=text, max_tokens=n, stop=stop, sampling=sampling, session=session)
         for text, n, stop in (("Once upon a time there was a king", 40, []), (LONG, 24, []),
                               ("The princess said to the frog: ", 60, ["and", ". "]))
         for sampling in ({"temperature": 0}, {"temperature": 0.8, "seed": 20261121})
         for session in (None, "new", "old")]


def params(case, round):
    p = dict(model="tale", request="r%d" % round, **case)
    if case["session"] is None:
        del p["session"]
    else:
        p["session"] = "s%d" % round
    return p


def first_turn(c, case, round):
    """An older turn in the session, where the case wants one."""
    if case["session"] == "old":
        c.call("generate", model="tale", session="s%d" % round, text="Long ago, ", max_tokens=3,
               sampling={"temperature": 0})


def timeline(c, case, round):
    if case["session"] is None:
        return None
    s = c.call("sessions.show", session="s%d" % round, tokens=True)
    return s["tokens"], len(s["turns"])


def undisturbed(case, i):
    c, st = Client(), Stream(params(case, -1 - i))
    first_turn(c, case, -1 - i)
    st.generate()
    st.until(lambda s: False)
    st.result["timeline"] = timeline(c, case, -1 - i)
    st.check(st.result)
    c.close()
    return st.result


def one(target, phase, i, round, want):
    """One kill, and what became of the stream."""
    global torn
    case = CASES[i]
    c, st = Client(), Stream(params(case, round))
    first_turn(c, case, round)
    engine = c.call("status")["engine"]["pid"]
    n = len(want["tokens"])
    at = {"queued": 0, "prefill": 0, "decode": rng.randrange(1, max(2, n - 1)), "journal": rng.randrange(1, max(2, n)),
          "fold": n, "ended": n}[phase]
    inside = target == "daemon" and phase in ("journal", "fold")
    if inside:  # a daemon of its own kind: its head, appended ids and tokens are writes; a fold is four or more
        daemon.terminate()
        c.close()
        bury(asked=True)
        start(("/journal/", at + 1) if phase == "journal" else ("sessions.db-wal", rng.randrange(1, 5)))
        arm()
    try:
        st.generate()
        if phase == "prefill":
            st.until(lambda s: s.number is not None)
        elif phase != "queued":
            st.until(lambda s: inside is False and phase != "ended" and len(s.tokens) >= at)
        if phase in ("queued", "prefill", "decode"):
            time.sleep(rng.random() * 0.004)
    except (ConnectionError, FileNotFoundError):
        if not inside:
            raise
    c.close()
    if target == "client":
        st.client.close()
    elif target == "engine" and engine:
        try:
            os.kill(engine, rng.choice((signal.SIGKILL, signal.SIGSEGV)))
        except ProcessLookupError:
            pass
    elif target == "daemon":
        if not inside:
            daemon.kill()
        elif st.result:
            raise Wrong("the write that was to be the last did not come")
        st.until(lambda s: s.result)  # what had been sent before
        torn += inside
        bury()
        start()
    if target != "engine" or st.result: # what has ended can be had again
        ended, st.result = st.result, None
        known = st.number is not None
        how = rng.randrange(3) if known else 2
        if how == 2:
            st.generate()
        else:
            st.attach(how == 0)
        if ended and how == 2:
            st.known = ended["tokens"]
    st.until(lambda s: s.result)
    if st.result is None:
        raise Wrong("the connection ended before the stream")
    st.check(want)
    c = Client()
    if timeline(c, case, round) != want["timeline"]:
        raise Wrong("the session's timeline is %r, undisturbed %r" % (timeline(c, case, round), want["timeline"]))
    c.close()
    return st


print("# seed %d, %d kills" % (SEED, KILLS))
done = {}
wrong = None
try:
    start()
    wants = [undisturbed(case, i) for i, case in enumerate(CASES)]
    plan = [(t, p) for p in PHASES for t in TARGETS]
    plan = (plan * (KILLS // len(plan) + 1))[:KILLS]
    rng.shuffle(plan)
    for round, (target, phase) in enumerate(plan):
        i = rng.randrange(len(CASES))
        if phase == "prefill":
            i = rng.choice([k for k, x in enumerate(CASES) if x["text"] is LONG])
        if phase == "fold" and target == "daemon":
            i = rng.choice([k for k, x in enumerate(CASES) if x["session"]])
        try:
            one(target, phase, i, round, wants[i])
        except Exception as e:
            wrong = "kill %d, the %s, %s, case %d: %s: %s" % (round, target, phase, i, type(e).__name__, e)
            break
        done[target, phase] = done.get((target, phase), 0) + 1
    if not wrong:
        daemon.terminate()
        bury(asked=True)
finally:
    if daemon and daemon.poll() is None:
        daemon.kill()
        daemon.wait()
    log = open(tmp + "/log", errors="replace").read().splitlines()
    shutil.rmtree(tmp, ignore_errors=True)
for p in PHASES:
    print("# %-8s" % p + "".join("  %s %d" % (t, done.get((t, p), 0)) for t in TARGETS))
print("# in the middle of a write: %d" % torn)
if wrong:
    print("# " + wrong.replace("\n", "\n# ")[:3000])
    print("\n".join("# log: " + l for l in log[-40:]))
print("%sok 1 - %d of %d kills: every stream ended with the text of an undisturbed run, every token once, every database "
      "whole" % ("not " if wrong else "", sum(done.values()), KILLS))
print("1..1")
sys.exit(wrong is not None)
