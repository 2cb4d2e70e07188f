#!/usr/bin/python3
"""Models passed as descriptors: hearthd runs as a user without rights to the files, in all three forms that models
have; the effects of an engine's death, of the end of a connection and of a restart; and invalid descriptors, none of
which stays open. Needs root, because three users take part.
"""
import array, glob, os, resource, shutil, signal, socket, struct, subprocess, sys, time

import msgpack
from harness import BUILD, SRC, Box, Client, Refused, check, end

DAEMON, ALICE, BOB = 65534, 12345, 12346
FILES = 256  # descriptors that hearthd may open: passed files may take a quarter of them, and half of that for one user

if os.geteuid() != 0:
    print("1..0 # SKIP only root can be three users")
    sys.exit(0)


class User(Client):
    """A client with that uid: the kernel reports the uid that called connect()."""

    def __init__(self, path, uid):
        os.seteuid(uid)
        try:
            super().__init__(path)
        finally:
            os.seteuid(0)

    def send_with(self, fds, method, **params):
        self.id += 1
        data = msgpack.packb([0, self.id, method, [params]])
        n = self.s.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
        self.s.sendall(data[n:])
        return self.id

    def pass_file(self, path, flags=os.O_RDONLY, label=None):
        fd = os.open(path, flags)
        try:
            return self.answer(self.send_with([fd], "models.pass", path=label or path))
        finally:
            os.close(fd)


def refused(f, *args, **params):
    try:
        return "no error, but %s" % f(*args, **params)
    except Refused as e:
        return ": ".join(e.args)


def ask(c, **params):
    params = dict({"text": "Once upon a time", "max_tokens": 12, "sampling": {"temperature": 0}}, **params)
    return c.call("generate", **params)


def split(path, to):
    """Splits the model in two parts, as llama.cpp's tool does: the keys and the first half of the tensors, and the
    rest."""
    data = open(path, "rb").read()
    n_tensor, n_key = struct.unpack_from("<QQ", data, 8)
    at, size = 24, {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def text(at):
        return at + 8 + struct.unpack_from("<Q", data, at)[0]

    def value(at, kind):
        if kind == 8:
            return text(at)
        if kind != 9:
            return at + size[kind]
        inner, n = struct.unpack_from("<IQ", data, at)
        at += 12
        for _ in range(n):
            at = value(at, inner)
        return at

    for _ in range(n_key):
        at = text(at)
        at = value(at + 4, struct.unpack_from("<I", data, at)[0])
    keys, tensors = data[24:at], []
    for _ in range(n_tensor):
        begin = at
        at = text(at)
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 4
        tensors.append((data[begin:at], struct.unpack_from("<Q", data, at)[0]))
        at += 8
    start = (at + 31) // 32 * 32
    ends = sorted(o for _, o in tensors) + [len(data) - start]

    def key(name, kind, form, v):
        return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I" + form, kind, v)

    for no in range(2):
        own = tensors[:n_tensor // 2] if no == 0 else tensors[n_tensor // 2:]
        extra = key("split.no", 2, "H", no) + key("split.count", 2, "H", 2) + key("split.tensors.count", 5, "i", n_tensor)
        infos = body = b""
        for info, offset in own:
            infos += info + struct.pack("<Q", len(body))
            body += data[start + offset:start + ends[ends.index(offset) + 1]]
            body += b"\0" * (-len(body) % 32)
        head = data[:8] + struct.pack("<QQ", len(own), (n_key if no == 0 else 0) + 3) + (keys if no == 0 else b"") + extra
        head += infos
        with open("%s-%05d-of-00002.gguf" % (to, no + 1), "wb") as f:
            f.write(head + b"\0" * (-len(head) % 32) + body)


def open_files(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def until(f, seconds=30):
    deadline = time.monotonic() + seconds
    while not f() and time.monotonic() < deadline:
        time.sleep(0.02)
    return f()


box = Box("passed")
tale = glob.glob(SRC + "/contrib/models/tale*.gguf")[0]
home = box.dir + "/home"


def start():
    env, pipe = box.env, os.pipe()
    with open(box.dir + "/log", "ab") as log:
        box.daemon = subprocess.Popen(
            [BUILD + "/hearthd", "--foreground", "--ready-fd", str(pipe[1])], env=env, pass_fds=[pipe[1]], stderr=log,
            stdin=subprocess.DEVNULL, user=DAEMON, group=DAEMON, extra_groups=[],
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES)))
    os.close(pipe[1])
    ready = os.read(pipe[0], 1)
    os.close(pipe[0])
    if ready:
        os.chmod(os.path.dirname(box.socket), 0o755)
        os.chmod(box.socket, 0o666)
    return bool(ready)


def hearth(*args, uid=ALICE):
    env = dict(box.env, HEARTH_SOCKET=box.socket, HOME=home, NO_COLOR="1")
    r = subprocess.run([BUILD + "/hearth", *args], env=env, user=uid, group=uid, extra_groups=[], capture_output=True,
                       stdin=subprocess.DEVNULL, timeout=120)
    return r.stdout.decode() + ("" if r.returncode == 0 else "\nstatus %d: %s" % (r.returncode, r.stderr.decode()))


try:
    os.mkdir(home)
    own = home + "/own.gguf"
    shutil.copy(tale, own)
    split(tale, home + "/part")
    tiny = os.environ.get("HEARTH_SHARED", "") + "/models/hf-tiny/llama"
    folder = home + "/folder" if os.path.isdir(tiny) else None
    if folder:
        shutil.copytree(tiny, folder)
    for path, dirs, names in os.walk(home):
        for name in [path] + [path + "/" + n for n in names]:
            os.chown(name, ALICE, ALICE)
            os.chmod(name, 0o700 if os.path.isdir(name) else 0o400)
    os.chmod(own, 0o600)
    os.chmod(box.dir, 0o777)
    for path, dirs, names in os.walk(box.dir):
        for name in [path] + [path + "/" + n for n in names]:
            if not name.startswith(home):
                os.chown(name, DAEMON, DAEMON)
    os.chmod(box.dir + "/engine", 0o755)
    os.chmod(box.dir + "/run", 0o755)
    try:
        started = start()
    except PermissionError:
        started = False
    if not started:
        print("1..0 # SKIP another user cannot run what was built here")
        sys.exit(0)

    # --- a file of the user's own
    alice, bob = User(box.socket, ALICE), User(box.socket, BOB)
    want = ask(bob, model="tale")["tokens"]
    why = refused(ask, alice, model=own)
    check(why.startswith("PERMISSION") and "models.pass" in why, "a path in a home is refused, with the next step", why)
    check(alice.pass_file(own) == {}, "its descriptor is taken")
    check(ask(alice, model=own)["tokens"] == want, "and the model answers")
    shown = alice.call("models.show", model=own)
    check((shown["path"], shown["name"], shown["bytes"]) == (own, "own", os.path.getsize(own)), "it is shown by its path",
          shown)
    why = refused(ask, bob, model=own)
    check(why.startswith("PERMISSION"), "it is nobody else's", why)
    for name in "//%d%s" % (ALICE, own), "//%d%s" % (BOB, own):
        why = refused(ask, bob, model=name)
        check(why.startswith("PERMISSION"), "not by the engine's name for it either", why)
    paths = lambda c: [m.get("path") for m in c.call("status")["engine"]["models"] if not m["vocab_only"]]
    check(own in paths(alice) and own not in paths(bob), "others are not told what it is called",
          (paths(alice), paths(bob)))

    # --- engines come and go
    engine = lambda: bob.call("status")["engine"]["pid"]
    ask(alice, model=own, session="tales", text="Once", max_tokens=20)
    kept = lambda: [s["kv_bytes"] for s in alice.call("sessions.list")["sessions"] if s["name"] == "tales"][0]
    check(until(kept), "its KV is on the disk")
    page = kept()
    alone = ask(alice, model=own, text="There was a fox", max_tokens=200)["tokens"]
    id = alice.submit("generate", model=own, text="There was a fox", max_tokens=200, sampling={"temperature": 0})
    while True:
        m = alice.read()
        if m[0] == 2 and m[1] == "stream.tokens" and m[2][0]["index"] > 20:
            break
    os.kill(engine(), signal.SIGKILL)
    check(alice.answer(id)["tokens"] == alone, "a stream goes on in the next engine, which has the file too")
    os.kill(engine(), signal.SIGKILL)
    check(ask(alice, session="tales", text=" and then")["finish_reason"] == "length", "so does a session, a request later")

    # --- other forms
    for part in 1, 2:
        alice.pass_file("%s/part-%05d-of-00002.gguf" % (home, part))
    check(ask(alice, model=home + "/part-00001-of-00002.gguf")["tokens"] == want, "a split model is passed part by part")
    if folder:
        why = refused(alice.pass_file, folder)
        check("one by one" in why, "a folder's own descriptor is refused, with the next step", why)
        for name in os.listdir(folder):
            if os.path.isfile(folder + "/" + name):
                alice.pass_file(folder + "/" + name)
        got = ask(alice, model=folder + "/")
        check(len(got["tokens"]) == 12, "a folder is passed file by file", got)

    # --- what is not a model's file
    before = open_files(box.daemon.pid)
    big, made = os.pipe()
    zero = os.open("/dev/zero", os.O_RDONLY)
    empty = home + "/empty"
    open(empty, "w").close()
    bad = User(box.socket, BOB)
    for flags, path, says in ((os.O_PATH, own, "O_RDONLY"), (os.O_RDWR, own, "O_RDONLY"), (os.O_RDONLY, "/dev/zero", "no regular file"),
                              (os.O_RDONLY, home, "folder"), (os.O_RDONLY, empty, "empty")):
        why = refused(bad.pass_file, path, flags, "/x.gguf")
        check(why.startswith("INVALID_PARAMS") and says in why, "refused: flags %o of %s" % (flags, os.path.basename(path)), why)
    why = refused(bad.answer, bad.send_with([big], "models.pass", path="/x.gguf"))
    check("no regular file" in why, "refused: a pipe", why)
    for label in "x.gguf", "//1/x.gguf", "/", "/x/", "/" + "y" * 4000:
        why = refused(bad.pass_file, tale, os.O_RDONLY, label)
        check(why.startswith("INVALID_PARAMS") and "path" in why, "refused: the path %s" % label[:12], why)
    why = refused(bad.call, "models.pass", path="/x.gguf")
    check("no descriptor came" in why, "refused: no descriptor", why)
    why = refused(bad.answer, bad.send_with([zero], "status"))
    check(why.startswith("INVALID_REQUEST") and "models.pass alone" in why, "refused: a descriptor with another message", why)
    why = refused(bad.answer, bad.send_with([zero, big], "models.pass", path="/x.gguf"))
    check("2 descriptors" in why, "refused: two descriptors", why)
    check(bad.call("status")["pid"] == box.daemon.pid, "the connection goes on")
    id = bad.send_with([zero] * 40, "models.pass", path="/x.gguf")
    m = bad.read()
    check(m[1] == 0 and "more descriptors" in m[2][1] and bad.read() is None, "forty descriptors end it, by name", m)
    for _ in range(20):  # a frame that never ends, with a descriptor in it
        bad = User(box.socket, BOB)
        bad.s.sendmsg([b"\x94\x00"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [zero]))])
        bad.close()
    check(until(lambda: open_files(box.daemon.pid) <= before), "none of them stays open", (before, open_files(box.daemon.pid)))

    # --- the limits
    greedy, n = User(box.socket, BOB), 0
    why = ""
    while not why and n < FILES:
        why = refused(greedy.pass_file, tale, os.O_RDONLY, "/%d.gguf" % n)
        why = "" if why == "no error, but {}" else why
        n += 1
    check(n - 1 == FILES // 8 and why.startswith("LIMIT"), "of one user's files an eighth of the descriptors are open", (n, why))
    check(ask(alice, model=own)["tokens"] == want, "others are served as before")
    greedy.close()
    check(until(lambda: open_files(box.daemon.pid) <= before), "they go with the connection", (before, open_files(box.daemon.pid)))

    # --- a file that changes
    cut = home + "/cut.gguf"
    shutil.copy(tale, cut)
    alice.pass_file(cut)
    ask(alice, model=cut)
    os.truncate(cut, 1 << 20)
    why = refused(ask, alice, model=cut, text="Another text, which is computed anew")
    check("MODEL_INVALID" in why, "a file that is cut off is told by name", why)
    check(ask(bob, model="tale")["tokens"] == want, "and the engine lives")
    shutil.copy(tale, cut + ".new")
    os.rename(cut + ".new", cut)
    alice.pass_file(cut)
    check(ask(alice, model=cut)["tokens"] == want, "the file that took its place is passed anew")

    # --- the end of a connection
    alice.close()
    master = User(box.socket, DAEMON)
    alice = User(box.socket, ALICE)
    check(ask(alice, session="tales", text=" so")["finish_reason"] == "length", "a model in memory stays known")
    check(until(lambda: kept() >= 2 * page), "two pages of KV are on the disk", (kept(), page))
    alice.close()
    for path in list(paths(master)):
        if path.startswith(home):
            os.kill(engine(), signal.SIGKILL)  # nothing is loaded any more
            break
    ask(bob, model="tale")

    def swept():
        User(box.socket, BOB).close()
        return open_files(box.daemon.pid) <= before - 2
    check(until(swept), "what nobody uses is closed", (before, open_files(box.daemon.pid)))
    alice = User(box.socket, ALICE)
    why = refused(ask, alice, session="tales", text=" but")
    check(why.startswith("MODEL_NOT_PASSED") and own in why and "pass it again" in why, "its session says so", why)

    # --- hearthd's restart, and the command
    alice.close(), bob.close(), master.close()
    box.stop()
    start()
    alice = User(box.socket, ALICE)
    why = refused(ask, alice, session="tales", text=" but")
    check(why.startswith("MODEL_NOT_PASSED"), "after a restart the model is to be passed again", why)
    alice.pass_file(own)
    r = ask(alice, session="tales", text=" but")
    check(r["usage"]["reused_tokens"] >= 32, "then the session goes on, with its KV", r["usage"])
    alice.close()
    said = hearth("run", "-n", "8", "--temp", "0", "-m", own, "Once upon a time")
    check("status" not in said and said.strip() != "", "the command passes a model by itself", said)
    said = hearth("run", "-n", "8", "--temp", "0", "-m", home + "/part-00001-of-00002.gguf", "Once upon a time")
    check("status" not in said and said.strip() != "", "and one of parts", said)
    if folder:
        said = hearth("show", folder)
        check("status" not in said and folder in said, "and a folder", said)
    box.stop()
    start()
    said = hearth("run", "-n", "8", "-s", "tales", " and so")
    check("status" not in said and said.strip() != "", "and again for a session, after a restart", said)
    said = hearth("run", "-n", "8", "-m", own, "Once", uid=BOB)
    check("status 1" in said and "Permission denied" in said, "one who may not read it is told that", said)
    check(own in paths(User(box.socket, ALICE)), "it is in memory")
    for args in ["doctor"], ["ps"], ["top", "--once"]:
        said = hearth(*args, uid=BOB)
        check("status" not in said and own not in said and "own" not in said.split(), "hearth %s of another user" % args[0], said)
finally:
    end(box)
