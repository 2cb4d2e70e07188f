#!/usr/bin/python3
"""Kills clients, engines, devices and daemons at random moments of streams; every stream must end as if undisturbed.

$HEARTH_KILLS is the number of kills (28, one of each kind), another $HEARTH_SEED (1) draws others. The killed clients
are processes of the command `hearth`. kill-at.c kills hearthd and its engine in the middle of a write; the device fails
by fault injection (tests/fault/fault.h). After each kill the session continues with another turn, which must also equal
the undisturbed one, whatever KV it finds. Prints TAP.
"""
import os, random, signal, subprocess, sys, time

sys.dont_write_bytecode = True
from harness import BUILD, Box, Wrong

KILLS = int(os.environ.get("HEARTH_KILLS", "28"))
SEED = int(os.environ.get("HEARTH_SEED", 1))
TARGETS = "client", "engine", "device", "daemon"
PHASES = "queued", "prefill", "decode", "journal", "fold", "kv", "ended"
rng = random.Random(SEED)
box = Box("kill")
torn = dict.fromkeys(("journal", "fold", "kv"), 0)  # kills in the middle of a write
restored = 0  # tokens whose KV was restored from files


def bury(asked=False):
    """Waits for the exit of hearthd, which was requested or a kill, and checks that the database opens cleanly."""
    box.bury(0 if asked else -signal.SIGKILL)
    found = box.sql("PRAGMA integrity_check")
    if found != [("ok",)]:
        raise Wrong("the database: %s" % found)


def check_kv():
    """Checks that the folder matches the manifest. Only while no engine runs."""
    kv = box.state + "/kv/"
    files = {f: os.stat(kv + f).st_size for f in os.listdir(kv)}
    rows = dict(box.sql("SELECT name, bytes FROM kv_file"))
    if files != rows:
        raise Wrong("KV files %s, rows %s" % (sorted(set(files.items()) - set(rows.items())),
                                              sorted(set(rows.items()) - set(files.items()))))


class Stream:
    """What a client has received of one stream, over all of its connections."""

    def __init__(self, params):
        self.params, self.number, self.result = params, None, None
        self.tokens, self.frames = [], []  # frames: (index, count, text)
        self.client, self.notices = None, []

    def generate(self):
        """Sends the request, or retries: from the beginning, and what was received before must come again."""
        self.known, self.tokens, self.frames = self.tokens, [], []
        self.client = box.client()
        self.id = self.client.submit("generate", **self.params)

    def attach(self, by_number):
        self.known = []
        self.frames = [f for f in self.frames if f[1] > 0]  # the text that was held back to the end comes again
        self.client = box.client()
        who = {"stream": self.number} if by_number else {"request": self.params["request"]}
        self.id = self.client.submit("stream.attach", **{"from": len(self.tokens)}, **who)

    def step(self):
        """Reads one message; False if the stream or the connection has ended."""
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
        if set(self.notices) - {"RECOVERING"}:
            raise Wrong("notices: %s" % self.notices)


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
    """Makes an older turn in the session, if the case has one."""
    if case["session"] == "old":
        c.call("generate", model="tale", session="s%d" % round, text="Long ago, ", max_tokens=3,
               sampling={"temperature": 0})


def timeline(c, case, round):
    if case["session"] is None:
        return None
    s = c.call("sessions.show", session="s%d" % round, tokens=True)
    return s["tokens"], len(s["turns"])


def next_turn(c, case, round):
    """The session's next turn or, without a session, the same request again."""
    global restored
    p = dict(params(case, round), request="n%d" % round)
    if case["session"]:
        p.update(text=" And then", max_tokens=8, stop=[])
    r = c.call("generate", **p)
    restored += r["usage"].get("restored_tokens", 0) if round >= 0 else 0
    return r["text"], r["tokens"]


def undisturbed(case, i):
    c, st = box.client(), Stream(params(case, -1 - i))
    first_turn(c, case, -1 - i)
    st.generate()
    st.until(lambda s: False)
    want = st.result
    want["timeline"] = timeline(c, case, -1 - i)
    st.check(want)
    want["told"] = []  # bytes of text that have been sent after so many tokens
    for n in range(len(want["tokens"]) + 1):
        st.tokens = want["tokens"][:n]
        st.frames = []
        st.attach(True)
        st.until(lambda s: False)
        want["told"].append(len(want["text"].encode()) - len("".join(f[2] for f in st.frames).encode()))
        st.client.close()
    want["next"] = next_turn(c, case, -1 - i)
    c.close()
    return want


def command(case, round):
    """The request as a command line."""
    args = ["-m", "tale", "--request", "r%d" % round, "-n", str(case["max_tokens"])]
    args += ["--temp", str(case["sampling"]["temperature"])]
    if "seed" in case["sampling"]:
        args += ["--seed", str(case["sampling"]["seed"])]
    for stop in case["stop"]:
        args += ["--stop", stop]
    if case["session"]:
        args += ["-s", "s%d" % round]
    return [BUILD + "/hearth", "run", "--no-start", *args, case["text"]]


def output(args):
    p = subprocess.run(args, env=box.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600)
    return p.stdout, p.stderr.decode(errors="replace")


def kill_client(phase, case, round, want):
    """Kills a process of the command; another process continues, and gets the rest or all of the text."""
    c = box.client()
    first_turn(c, case, round)
    n = len(want["tokens"])
    text, told = want["text"].encode(), want["told"]
    need = {"queued": 0, "prefill": 0, "ended": len(text) + 1}.get(phase, len(text))
    if phase in ("decode", "journal"):
        need = told[rng.randrange(1, max(2, n))]
    child = subprocess.Popen(command(case, round), env=box.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL)
    got = data = b""
    if phase == "prefill":
        while child.poll() is None and c.call("status")["streams"] == 0:
            pass
    while len(got) < need and (data := os.read(child.stdout.fileno(), 4096)):
        got += data
    time.sleep({"queued": 0.008, "prefill": 0.004, "decode": 0.002, "kv": 0.02}.get(phase, 0) * rng.random())
    child.kill()
    got += child.stdout.read()
    child.wait()
    if not text.startswith(got):
        raise Wrong("the command wrote %r, undisturbed %r" % (got, text))
    if rng.randrange(2):
        rest, why = output([BUILD + "/hearth", "attach", "--no-start", "--request", "--from",
                            str(rng.choice([k for k in range(n + 1) if told[k] == len(got)])), "r%d" % round])
        if rest == b"" and "there is no stream" in why and got == b"":  # it had not sent its request yet
            rest, why = output(command(case, round))
    else:
        rest, why = output(command(case, round))
        if rest[:len(got)] != got:
            raise Wrong("the retry wrote %r after %r: %s" % (rest, got, why))
        rest = rest[len(got):]
    if got + rest != text:
        raise Wrong("the command wrote %r, and then %r: %s; undisturbed %r" % (got, rest, why, text))
    c.close()


def await_death(engine):
    """Waits for an engine that is about to die in a write; False if it had nothing left to write."""
    for _ in range(100):
        try:
            os.kill(engine, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.005)
    return False


def fail_device(phase, engine):
    """Lets the device fail in its next operation; in the phase "kv", what has ended is being saved."""
    if phase != "kv":
        box.fail("any=1")
    elif await_death(engine):
        torn[phase] += 1
    else:
        os.kill(engine, signal.SIGKILL)


def kill_server(target, phase, case, round, want):
    """Kills the engine, its device or hearthd; the stream continues, or is requested again."""
    c, st = box.client(), Stream(params(case, round))
    first_turn(c, case, round)
    n = len(want["tokens"])
    at = {"queued": 0, "prefill": 0, "decode": rng.randrange(1, max(2, n - 1)), "journal": rng.randrange(1, max(2, n)),
          "fold": n, "kv": n, "ended": n}[phase]
    # Needs a daemon of its own. The journal's head, appended ids and tokens are one write each; a fold is four or more
    # writes to the database, the row of a file two or three; a file is one write for each page and one for its head. A
    # device that is to fail in a save is also told in advance.
    inside = {("daemon", "journal"): ("daemon", "/journal/", at + 1),
              ("daemon", "fold"): ("daemon", "sessions.db-wal", rng.randrange(1, 5)),
              ("daemon", "kv"): ("daemon", "sessions.db-wal", rng.randrange(1, 3)),
              ("engine", "kv"): ("engine", "/kv/", rng.randrange(1, 5)),
              ("device", "kv"): ()}.get((target, phase))
    if inside is not None:
        box.daemon.terminate()
        c.close()
        bury(asked=True)
        for f in os.listdir(box.state + "/kv") if phase == "kv" else ():
            os.unlink(box.state + "/kv/" + f)  # files that exist are not written again
        box.start(*inside)
        c = box.client()
        c.call("models.load", model="tale")
        if target == "device":
            box.fail("save=1")
        elif phase != "kv" or target == "engine":
            box.arm()
    engine = c.call("status")["engine"]["pid"]
    dies = inside and phase != "kv"
    try:
        st.generate()
        if phase == "prefill":
            st.until(lambda s: s.number is not None)
        elif phase != "queued":
            st.until(lambda s: not dies and phase not in ("kv", "ended") and len(s.tokens) >= at)
        if phase in ("queued", "prefill", "decode"):
            time.sleep(rng.random() * 0.004)
    except (ConnectionError, FileNotFoundError):
        if not dies:
            raise
    c.close()
    if target == "engine":
        if phase == "kv" and await_death(engine):
            torn[phase] += 1
        elif engine:
            try:
                os.kill(engine, rng.choice((signal.SIGKILL, signal.SIGSEGV)))
            except ProcessLookupError:
                pass
    elif target == "device":
        fail_device(phase, engine)
    else:
        if phase == "kv":  # its row is being written about now
            box.arm()
            time.sleep(rng.random() * 0.03)
            torn[phase] += box.daemon.poll() is not None
            box.daemon.kill()
        elif not inside:
            box.daemon.kill()
        elif st.result:
            raise Wrong("the write that was to be the last did not come")
        st.until(lambda s: s.result)  # what had been sent before
        if dies:
            torn[phase] += 1
        bury()
        box.start()
        c = box.client()
        if not c.call("status")["engine"]["pid"]:
            check_kv()
        c.close()
    if target == "daemon" or st.result:  # a stream that has ended can be attached to
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


def one(target, phase, i, round, want):
    """One kill, and what became of the stream and its session."""
    if target == "client":
        kill_client(phase, CASES[i], round, want)
    else:
        kill_server(target, phase, CASES[i], round, want)
    c = box.client()
    for what, got in ("timeline", timeline(c, CASES[i], round)), ("next", next_turn(c, CASES[i], round)):
        if got != want[what]:
            raise Wrong("the session's %s: %r, undisturbed %r" % (what, got, want[what]))
    c.close()


print("# seed %d, %d kills" % (SEED, KILLS))
done = {}
wrong = None
try:
    box.engine("--fault", box.fault)
    box.start()
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
    for _ in range(2 if not wrong else 0):  # and once more, for what the last engine left behind
        box.daemon.terminate()
        bury(asked=True)
        box.start()
    if not wrong:
        check_kv()
finally:
    log = box.log().splitlines()
    box.remove()
for p in PHASES:
    print("# %-8s" % p + "".join("  %s %d" % (t, done.get((t, p), 0)) for t in TARGETS))
print("# in the middle of a write: %s; %d devices failed; %d tokens came back from files" %
      (torn, sum("the device fails in a" in l for l in log), restored))
if wrong:
    print("# " + wrong.replace("\n", "\n# ")[:3000])
    print("\n".join("# log: " + l for l in log[-40:]))
print("%sok 1 - %d of %d kills: every stream ended with the text of an undisturbed run, every token once, every database "
      "whole" % ("not " if wrong else "", sum(done.values()), KILLS))
print("1..1")
sys.exit(wrong is not None)
