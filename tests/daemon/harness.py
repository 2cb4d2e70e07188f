"""The harness of the tests in Python: a private hearthd in a fresh folder, a client without a library, and TAP.

$HEARTH_BACKEND names the backend of their engines; without it they run on the CPU.
"""
import glob, os, shutil, signal, socket, sqlite3, subprocess, sys, tempfile

try:
    import msgpack
except ImportError:
    print("1..0 # SKIP python3-msgpack is not installed")
    sys.exit(0)

BACKEND = os.environ.get("HEARTH_BACKEND", "cpu")
BUILD, SRC = os.environ["top_builddir"], os.environ["top_srcdir"]
failed = count = 0


def check(ok, name, why=""):
    global failed, count
    count += 1
    failed += not ok
    print("%sok %d - %s" % ("" if ok else "not ", count, name))
    if not ok and why != "":
        print("# " + str(why).replace("\n", "\n# ")[:2000])
    sys.stdout.flush()
    return ok


def end(box):
    """For a `finally` clause: removes the folder, and shows its log if a check or the program failed."""
    if failed or sys.exc_info()[0]:
        print("\n".join("# " + l for l in box.log().splitlines()[-60:]))
    box.remove()
    print("1..%d" % count)


class Wrong(Exception):
    pass


class Refused(Exception):
    """An error response; [0] is its name."""


def refused(c, symbol, says, method, **params):
    """Checks that the call is refused with that name, and that the message contains `says`."""
    try:
        c.call(method, **params)
        check(False, "refused: " + says)
    except Refused as e:
        check(e.args[0] == symbol and says in e.args[1], "refused: " + says, e)


class Box:
    def __init__(self, name):
        self.dir = tempfile.mkdtemp(prefix="hearth-%s." % name)
        self.socket = self.dir + "/run/hearth/hearth.sock"
        self.state = self.dir + "/state/hearth"
        self.gate = self.dir + "/armed"
        self.fault = self.dir + "/fault"  # the file from which an engine with --fault learns when its device fails
        self.daemon = None
        d = self.dir
        self.env = dict(os.environ, XDG_RUNTIME_DIR=d + "/run", XDG_STATE_HOME=d + "/state", HOME=d,
                        XDG_CONFIG_HOME=d + "/config", XDG_DATA_HOME=d + "/data")
        for name in "HEARTH_SOCKET", "KILL_AT", "KILL_ENGINE_AT":
            self.env.pop(name, None)
        os.mkdir(d + "/run", 0o700)
        self.engine()
        self.configure()

    def configure(self, *lines):
        os.makedirs(self.dir + "/config/hearth", 0o700, exist_ok=True)
        with open(self.dir + "/config/hearth/hearth.conf", "w") as f:
            # An engine that is suspended for a while, as on a loaded machine, must not count as unresponsive. On a GPU
            # only `all` makes texts alone and in company, which the tests compare, the same.
            f.write("".join(l + "\n" for l in ("backend = " + BACKEND, "engine = %s/engine" % self.dir, *lines,
                                               "invariant = all", "engine_timeout = 1200")))

    def models(self):
        """A folder with the embedded model, and another one: the same with one weight changed."""
        os.mkdir(self.dir + "/models")
        with open(glob.glob(SRC + "/contrib/models/tale*.gguf")[0], "rb") as f:
            model = bytearray(f.read())
        for name in "tale", "other":
            with open("%s/models/%s.gguf" % (self.dir, name), "wb") as f:
                f.write(model)
            model[-100] ^= 1

    def engine(self, *options):
        """Engines that are started from here on also get these options. --fault, --small, --paced and --no-vocab, which
        must come first, are options of the tests' own engine (tests/fault/main.c)."""
        program = BUILD + ("/tests/fault" if {"--fault", "--small", "--paced", "--no-vocab"} & set(options) else "") + "/hearth-engine"
        with open(self.dir + "/engine.new", "w") as f:
            f.write('#!/bin/sh\nexec "%s" %s "$@"\n' % (program, " ".join(options)))
        os.chmod(f.name, 0o700)
        os.rename(f.name, self.dir + "/engine")

    def fail(self, when):
        """Lets the device fail then, in an engine with the options --fault, self.fault."""
        with open(self.fault + ".new", "w") as f:
            f.write(when)
        os.rename(f.name, self.fault)

    def start(self, who=None, name=None, n=0, sync_ms=0):
        """Starts a daemon. With `who` it, or its engine, dies in the Nth write to a file of that name after arm(); with
        `sync_ms` the engine's disk takes so much longer to sync."""
        env = self.env
        if sync_ms:
            env = dict(env, LD_PRELOAD=BUILD + "/tests/daemon/.libs/disk.so", SYNC_MS=str(sync_ms))
            env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
        if who:
            variable = "KILL_ENGINE_AT" if who == "engine" else "KILL_AT"
            env = dict(env, LD_PRELOAD=BUILD + "/tests/daemon/.libs/kill-at.so",
                       **{variable: "%s %d %s" % (name, n, self.gate)})
            env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
        r, w = os.pipe()
        with open(self.dir + "/log", "ab") as log:
            self.daemon = subprocess.Popen([BUILD + "/hearthd", "--foreground", "--ready-fd", str(w)], env=env,
                                           pass_fds=[w], stdin=subprocess.DEVNULL, stderr=log)
        os.close(w)
        ready = os.read(r, 1)
        os.close(r)
        if not ready:
            raise Wrong("hearthd did not start")

    def arm(self):
        open(self.gate, "w").close()

    def stop(self):
        self.daemon.terminate()
        self.bury(0)

    def kill(self):
        self.daemon.kill()
        self.bury(-signal.SIGKILL)

    def bury(self, want):
        """Waits for the exit of hearthd, which must have that status."""
        if os.path.exists(self.gate):
            os.unlink(self.gate)
        status = self.daemon.wait(60)
        if status != want:
            raise Wrong("hearthd ended with status %d" % status)

    def sql(self, text, *args):
        db = sqlite3.connect(self.state + "/sessions.db")
        rows = db.execute(text, args).fetchall()
        db.commit()
        db.close()
        return rows

    def client(self):
        return Client(self.socket)

    def log(self):
        with open(self.dir + "/log", errors="replace") as f:
            return f.read()

    def remove(self):
        if self.daemon and self.daemon.poll() is None:
            self.daemon.kill()
            self.daemon.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


class Client:
    def __init__(self, path):
        self.s = socket.socket(socket.AF_UNIX)
        self.s.settimeout(120)
        self.s.connect(path)
        self.un = msgpack.Unpacker(raw=False, strict_map_key=False)
        self.id, self.answers = 0, {}

    def submit(self, method, **params):
        return self.submit_all((method, params))[0]

    def submit_all(self, *calls):
        """Sends several requests in one write, so that hearthd reads them together."""
        first, self.id = self.id + 1, self.id + len(calls)
        self.s.sendall(b"".join(msgpack.packb([0, first + i, method, [params]]) for i, (method, params) in enumerate(calls)))
        return list(range(first, self.id + 1))

    def read(self):
        """Reads a message; None at the end of the connection."""
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

    def answer(self, id):
        while id not in self.answers:
            m = self.read()
            if m is None:
                raise Wrong("hearthd hung up over request %d" % id)
            if m[0] == 1:
                self.answers[m[1]] = m[2:]
        err, result = self.answers.pop(id)
        if err:
            raise Refused(*err[1].split(": ", 1))
        return result

    def call(self, method, **params):
        return self.answer(self.submit(method, **params))

    def close(self):
        self.s.close()
