#!/usr/bin/python3
"""KV that outlives its engine: turns are saved, and come back after every way of losing the device's pages.

A private hearthd with the embedded model. Each session says its two turns once in peace; then the same turns with
something between them, and the texts must be equal. Waits are for counters of `status`, which move on by themselves.
Prints TAP.
"""
import glob, os, resource, shutil, signal, socket, subprocess, sys, tempfile, time

try:
    import msgpack
except ImportError:
    print("1..0 # SKIP python3-msgpack is not installed")
    sys.exit(0)

BUILD, SRC = os.environ["top_builddir"], os.environ["top_srcdir"]
PAGE = 16
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


class Client:
    def __init__(self, path):
        self.s = socket.socket(socket.AF_UNIX)
        self.s.settimeout(120)
        self.s.connect(path)
        self.un = msgpack.Unpacker(raw=False, strict_map_key=False)
        self.id, self.answers = 0, {}
        self.call("hello", version_min=1, version_max=1, client="tiers")

    def submit(self, method, **params):
        self.id += 1
        self.s.sendall(msgpack.packb([0, self.id, method, [params]]))
        return self.id

    def answer(self, id):
        while id not in self.answers:
            for m in self.un:
                if m[0] == 1:
                    self.answers[m[1]] = m[2:]
                break
            else:
                data = self.s.recv(65536)
                if not data:
                    raise EOFError
                self.un.feed(data)
        err, result = self.answers.pop(id)
        if err is not None:
            raise RuntimeError(err)
        return result

    def call(self, method, **params):
        return self.answer(self.submit(method, **params))

    def say(self, session, text, n=100, **more):
        return self.call("generate", model="tale", session=session, text=text, max_tokens=n,
                         sampling={"temperature": 0.8, "seed": 7}, **more)

    def kv(self):
        return self.call("status")["engine"]["kv"]

    def await_kv(self, what):
        """Until the counters say so; half a minute at most."""
        until = time.monotonic() + 30
        while True:
            k = self.kv()
            if what(k) or time.monotonic() > until:
                return k


tmp = tempfile.mkdtemp(prefix="hearth-tiers.")
env = dict(os.environ, XDG_RUNTIME_DIR=tmp + "/run", XDG_STATE_HOME=tmp + "/state", XDG_CONFIG_HOME=tmp + "/config",
           XDG_DATA_HOME=tmp + "/data", HOME=tmp)
env.pop("HEARTH_SOCKET", None)
for d in ("run", "config", "config/hearth", "models"):
    os.mkdir(tmp + "/" + d, 0o700)
tale = glob.glob(SRC + "/contrib/models/tale*.gguf")[0]
shutil.copy(tale, tmp + "/models/tale.gguf")
with open(tale, "rb") as f:  # another model: the same, with one weight changed
    other = bytearray(f.read())
other[-100] ^= 1
with open(tmp + "/models/other.gguf", "wb") as f:
    f.write(other)
sock, folder = tmp + "/run/hearth/hearth.sock", tmp + "/state/hearth/kv"


def configure(*lines):
    with open(tmp + "/config/hearth/hearth.conf", "w") as f:
        f.write("".join(l + "\n" for l in ("model_dir = %s/models" % tmp, "threads = 2") + lines))


class Daemon:
    def __init__(self):
        r, w = os.pipe()
        self.p = subprocess.Popen([BUILD + "/hearthd", "--foreground", "--ready-fd", str(w)], env=env, pass_fds=[w],
                                  stdin=subprocess.DEVNULL, stderr=open(tmp + "/log", "ab"))
        os.close(w)
        assert os.read(r, 1), open(tmp + "/log").read()
        os.close(r)
        self.c = Client(sock)

    def stop(self):
        self.p.send_signal(signal.SIGTERM)
        assert self.p.wait(60) == 0


FIRST = "Once upon a time there was a king who had three daughters, and the youngest"
SECOND = " But the old woman in the forest said:"
d = None
try:
    # in peace
    configure("kv_disk = 0", "kv_ram = 0")
    d = Daemon()
    a1 = d.c.say("peace", FIRST)
    a2 = d.c.say("peace", SECOND)
    k = d.c.kv()
    check(k["pages_saved"] == 0 and k["files_written"] == 0 and a2["usage"]["restored_tokens"] == 0,
          "without tiers nothing is kept", k)
    d.stop()

    def is_second(r, why, restored=True):
        u = r["usage"]
        check(r["text"] == a2["text"] and r["tokens"] == a2["tokens"], "%s: the same text as in peace" % why,
              (r["text"], a2["text"]))
        check(u["prompt_tokens"] == u["reused_tokens"] + u["computed_tokens"] == a2["usage"]["prompt_tokens"] and
              0 <= u["restored_tokens"] <= u["reused_tokens"], "%s: the usage adds up" % why, u)
        # the timeline of the first turn but its last token was computed; full pages of it come back
        whole = (a1["usage"]["prompt_tokens"] + len(a1["tokens"]) - 1) // PAGE * PAGE
        if restored:
            check(u["restored_tokens"] == whole and u["reused_tokens"] >= whole, "%s: all full pages came back" % why,
                  (u, whole))
            check(r["timings"]["restore_ms"] > 0, "%s: and it is said how long that took" % why, r["timings"])

    # files
    configure("kv_disk = 1G", "kv_ram = 0")
    d = Daemon()
    begin = time.monotonic()
    r = d.c.say("restart", FIRST)
    ended = time.monotonic()
    k = d.c.await_kv(lambda k: k["files_written"])
    check(r["text"] == a1["text"], "saving changes no text")
    check(k["files_written"] == 1 and time.monotonic() - ended < 1 + (ended - begin),
          "a turn is in a file soon after its end", k)
    check(k["host_bytes"] == 0, "no host memory is kept where none is allowed", k)
    d.stop()
    d = Daemon()
    r = d.c.say("restart", SECOND)
    is_second(r, "hearthd restarted")
    e = d.c.call("status")["engine"]
    check(e["tokens_computed"] == r["usage"]["computed_tokens"] < 2 * PAGE + 10, "tokens_computed rises by the rest alone",
          e)
    check(e["kv"]["pages_restored"] * PAGE == r["usage"]["restored_tokens"] and e["kv"]["bytes_read"] > 0,
          "status counts what came back", e["kv"])

    # an engine that dies
    d.c.say("killed", FIRST)
    d.c.await_kv(lambda k: not k["moving"])
    os.kill(d.c.call("status")["engine"]["pid"], signal.SIGKILL)
    while True:  # hearthd sees its end, and starts another for the next question
        try:
            r = d.c.say("killed", SECOND)
            break
        except RuntimeError:
            pass
    is_second(r, "the engine was killed")

    # unloading, with files alone
    d.c.say("unload", FIRST)
    d.c.call("models.unload", model="tale")
    is_second(d.c.say("unload", SECOND), "the model was unloaded")

    # two sessions begin alike, and both are asked at once
    d.c.say("alike 1", FIRST)
    d.c.say("alike 2", FIRST)
    d.c.await_kv(lambda k: not k["moving"])
    d.c.call("models.unload", model="tale")
    ids = [d.c.submit("generate", model="tale", session=s, text=SECOND, max_tokens=100,
                      sampling={"temperature": 0.8, "seed": 7}) for s in ("alike 1", "alike 2")]
    for id in ids:
        r = d.c.answer(id)
        check(r["text"] == a2["text"] and r["usage"]["reused_tokens"] >= 6 * PAGE, "sessions that begin alike: the text",
              r["usage"])
    d.stop()

    # a damaged file
    names = glob.glob(folder + "/*.kv")
    check(names and all(os.stat(n).st_mode & 0o777 == 0o600 for n in names), "files are their owner's alone", names)
    for n in names:
        with open(n, "r+b") as f:
            f.seek(-100, 2)
            byte = f.read(1)
            f.seek(-100, 2)
            f.write(bytes([byte[0] ^ 1]))
    d = Daemon()
    d.c.say("damaged", FIRST)
    d.c.call("models.unload", model="tale")
    r = d.c.say("damaged", SECOND)
    is_second(r, "damaged files", restored=False)
    check(0 < r["usage"]["restored_tokens"] < (a1["usage"]["prompt_tokens"] + len(a1["tokens"]) - 1) // PAGE * PAGE,
          "what lies before the damage counts, and nothing after it", r["usage"])
    k = d.c.kv()
    bad = glob.glob(folder + "/*.bad")
    log = open(tmp + "/log").read()
    check(k["files_bad"] == len(bad) >= 1 and all(os.path.basename(b)[:-4] in log for b in bad),
          "a damaged file is set aside and named in the log", (k, bad, log[-1500:]))
    is_second(d.c.say("damaged again", FIRST) and d.c.say("damaged again", SECOND), "after damage", restored=False)
    d.stop()

    # a full disk
    shutil.rmtree(folder)
    d = Daemon()
    d.c.say("first", "Hello there", 2)
    engine = d.c.call("status")["engine"]["pid"]
    resource.prlimit(engine, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    d.c.say("unwritten", FIRST)
    r = d.c.say("unwritten", SECOND)
    is_second(r, "a full disk", restored=False)
    k = d.c.await_kv(lambda k: not k["moving"])
    check(k["files_written"] == 0 and k["host_bytes"] == 0 and os.listdir(folder) == [],
          "a full disk: no file, no rest of one, no host memory lost", (k, os.listdir(folder)))
    check(open(tmp + "/log").read().count("KV is not saved") == 1, "a full disk: it is logged, once")
    d.stop()

    # host memory alone
    configure("kv_disk = 0", "kv_ram = 64M")
    d = Daemon()
    d.c.say("ram", FIRST)
    d.c.call("models.unload", model="tale")
    d.c.call("generate", model="other", text=FIRST, max_tokens=30)
    d.c.call("models.unload", model="other")
    k = d.c.kv()
    check(k["host_pages"] > 0 and k["files_written"] == 0, "host memory alone keeps pages", k)
    is_second(d.c.say("ram", SECOND), "another model had the device")
    d.stop()

    # little host memory: the least recently used pages are dropped, and no more is kept than may be
    configure("kv_disk = 0", "kv_ram = 200K")
    d = Daemon()
    for i in range(8):
        d.c.say("many %d" % i, "%d. %s" % (i, FIRST))
    k = d.c.await_kv(lambda k: not k["moving"])
    check(k["pages_dropped"] > 0 and k["host_bytes"] <= 200 << 10, "what is dropped makes room", k)
    is_second(d.c.say("little", FIRST) and d.c.say("little", SECOND), "little host memory", restored=False)
    d.stop()

    # what was on its way at the end is finished
    configure("kv_disk = 1G", "kv_ram = 0")
    shutil.rmtree(folder, ignore_errors=True)
    d = Daemon()
    d.c.say("end", FIRST)
    d.stop()
    d = Daemon()
    is_second(d.c.say("end", SECOND), "stopped right after a turn")
    d.stop()
    d = None
finally:
    if d and d.p.poll() is None:
        d.p.kill()
        d.p.wait()
    if failed:
        print("# " + open(tmp + "/log").read()[-3000:].replace("\n", "\n# "))
    shutil.rmtree(tmp, ignore_errors=True)
print("1..%d" % count)
sys.exit(failed > 0)
