#!/usr/bin/python3
"""What sharing a GPU costs and holds: texts alone and in company, an engine's death, late prompts, many clients, two
users, forks, and memory that is given back.

    top_srcdir=. top_builddir=build PYTHONPATH=tests/daemon HEARTH_BACKEND=cuda tests/bench/sharing.py MODEL [ROW ...]

MODEL is a GGUF file with a context of at least 33,000 tokens. Each row has a daemon of its own, in the default
configuration but for what the row says, and prints one line; a row that fails says why, and the others go on. `users`
needs root, `memory` and `hog_*` a GPU; `devices` is for a machine with two.
"""
import ctypes, json, os, random, shutil, signal, subprocess, sys, threading, time, traceback
from statistics import median

sys.dont_write_bytecode = True
from harness import BACKEND, BUILD, Box

MODEL = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else sys.exit(__doc__)
GREEDY = {"temperature": 0}
VOCAB = range(300, 30000)  # ids that every model of real size has


def ids(seed, n):
    return random.Random(seed).choices(VOCAB, k=n)


class House(Box):
    """A daemon in the default configuration, with the model loaded."""

    def __init__(self, *lines, load=True):
        super().__init__("sharing")
        with open(self.dir + "/config/hearth/hearth.conf", "w") as f:
            f.write("".join(l + "\n" for l in ("backend = " + BACKEND, "engine = %s/engine" % self.dir,
                                               "streams = 128", "streams_per_uid = 128", *lines)))
        self.start()
        if load:
            self.client().call("models.load", model=MODEL)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if error[0]:
            print("\n".join("# " + l for l in self.log().splitlines()[-10:]))
        self.remove()

    def bench(self, *options):
        out = subprocess.run([BUILD + "/hearth", "bench", MODEL, "--json", "--no-start", *map(str, options)],
                             env=dict(self.env, HEARTH_SOCKET=self.socket), stdout=subprocess.PIPE, text=True)
        return json.loads(out.stdout)


class Stream:
    """A generation on a connection of its own: its tokens, and when each frame of them came."""

    def __init__(self, box, **params):
        self.c = box.client()
        self.tokens, self.times, self.result = [], [], None
        self.begun = time.monotonic()
        self.id = self.c.submit("generate", **{"model": MODEL, "ignore_eos": True, "sampling": GREEDY, **params})

    def read(self):
        """Reads the next frame with tokens; false at the end."""
        while True:
            m = self.c.read()
            if m is None or m[0] == 1:
                if m is None or m[2]:
                    raise RuntimeError(m)
                self.result = m[3]
                return False
            if m[1] == "stream.tokens" and m[2][0]["count"]:
                if m[2][0]["index"] != len(self.tokens):
                    raise RuntimeError("token %d came after %d" % (m[2][0]["index"], len(self.tokens)))
                self.tokens += m[2][0]["tokens"]
                self.times.append(time.monotonic())
                return True

    def read_until(self, done):
        while not done():
            if not self.read():
                raise RuntimeError("the answer ended too early: %d tokens" % len(self.tokens))

    def run(self):
        while self.read():
            pass
        return self

    def first_ms(self):
        return 1e3 * (self.times[0] - self.begun)

    def gap_ms(self):
        return 1e3 * max(b - a for a, b in zip(self.times, self.times[1:]))


def together(streams):
    threads = [threading.Thread(target=s.run) for s in streams]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def held():
    """Bytes of the card that are in use, by its driver."""
    out = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                         stdout=subprocess.PIPE, text=True)
    return int(out.stdout.split()[0]) << 20


def held_by_others():
    """The same once it no longer falls, as it does while an engine ends."""
    now, before = held(), None
    while now != before:
        time.sleep(1)
        now, before = held(), now
    return now


# --- rows ---------------------------------------------------------------------------------------------------------

def texts_row(mode):
    with House("invariant = " + mode) as box:
        ask = lambda i: Stream(box, tokens=ids(i, 40 + 13 * i), max_tokens=200)
        alone = [ask(i).run().tokens for i in range(16)]
        beside = [ask(i) for i in range(16)]
        together(beside)
        same = sum(a == b.tokens for a, b in zip(alone, beside))
        return "%d of 16 texts of 200 tokens are equal to their texts alone" % same


def texts():
    return texts_row("auto")


def texts_all():
    return texts_row("all")


def killed():
    """The engine dies half a second into the answer to 27,600 tokens."""
    ask = dict(tokens=ids(1, 27600), max_tokens=1200)
    with House() as box:
        undisturbed = Stream(box, **ask).run().tokens
    with House() as box:  # another one, which has no KV of the first
        Stream(box, tokens=ids(2, 27600), max_tokens=32).run()  # the first prompt of a process is slower
        s = Stream(box, **ask)
        s.read_until(lambda: s.times and s.times[-1] - s.times[0] >= 0.5)
        os.kill(box.client().call("status")["engine"]["pid"], signal.SIGKILL)
        s.run()
        return "pause %.0f ms, text %s an undisturbed run's" % (
            s.gap_ms(), "equal to" if s.tokens == undisturbed else "differs from")


def late():
    with House() as box:
        r = box.bench("--clients", 16, "--prompt", 128, "--output", 1500, "--late", 16000, "--arrivals", 20)
        return "first token of 16,000 tokens %.0f ms, others' longest gap %.1f, keystroke %.1f (%d arrivals)" % (
            r["late_ttft_ms"], r["others_longest_gap_ms"], r["keystroke_ttft_ms"], r["late_prompts"])


def sixty():
    with House() as box:
        return "60 clients of 512 in, 256 out: %.2f s" % box.bench("--clients", 60, "--prompt", 512, "--output", 256)[
            "duration"]


def common():
    with House() as box:
        r = box.bench("--clients", 4, "--prompt", 4100, "--shared", 4000, "--output", 2)
        return "4 clients with 4,000 of 4,100 tokens in common: computed %d, first token %.0f ms" % (
            r["total_computed_tokens"], r["mean_ttft_ms"])


def users():
    """One client of a user, fifteen of another: prompts alone, then streams."""
    with House("model_dir = " + os.path.dirname(MODEL), "attach_grace = 0") as box:
        for path in box.dir, box.dir + "/run", os.path.dirname(box.socket):
            os.chmod(path, 0o755)
        os.chmod(box.socket, 0o666)
        name = os.path.basename(MODEL)[:-5]

        def crowd(uid, clients, prompt, made, seconds, to):
            """Tokens of prompts and answers that so many clients of that user get in that time; mean first token."""
            pid = os.fork()
            if pid:
                return pid
            try:
                os.setgid(uid), os.setuid(uid)
                end, done, first = time.monotonic() + seconds, [0], []

                def client(k):
                    i = 0
                    while time.monotonic() < end:
                        i += 1
                        s = Stream(box, model=name, tokens=ids(hash((uid, k, i, prompt)), prompt), max_tokens=made)
                        while s.read():
                            if time.monotonic() > end:
                                break
                        first.append(s.first_ms())
                        done[0] += len(s.tokens) if made > 1 else prompt
                        s.c.close()

                threads = [threading.Thread(target=client, args=(k,)) for k in range(clients)]
                for t in threads:
                    t.start()
                for t in threads:
                    t.join()
                os.write(to, b"%d %d %.1f\n" % (uid, done[0], median(first)))
            finally:
                os._exit(0)

        def beside(prompt, made, groups):
            r, w = os.pipe()
            for pid in [crowd(uid, n, prompt, made, 5, w) for uid, n in groups]:
                os.waitpid(pid, 0)
            os.close(w)
            got = [l.split() for l in os.fdopen(r)]
            return {int(u): (int(n), float(ms)) for u, n, ms in got}

        one, many = 65533, 65534
        p = beside(900, 1, ((one, 1), (many, 15)))
        d = beside(64, 4000, ((one, 1), (many, 15)))
        whole = beside(64, 4000, ((many, 16),))
        return "prompts: the one client has %.1f %%, first token %.0f ms; decode: %.2f of an equal stream, first token " \
               "%.1f ms, total %.1f %% of one user's" % (
                   100 * p[one][0] / (p[one][0] + p[many][0]), p[one][1], d[one][0] / (d[many][0] / 15), d[one][1],
                   100 * (d[one][0] + d[many][0]) / whole[many][0])


def fork():
    """Forks of a session of 2,000 turns and 32,000 tokens; eight of them decode, then eight separate ones."""
    with House() as box:
        c = box.client()
        page, turns = 0, [{"role": "text", "text": "x", "n_tokens": 16, "created": 1.0, "tokens": ids(i, 16)}
                          for i in range(2000)]
        while turns:
            c.call("sessions.import", page=page, more=len(turns) > 1000, turns=turns[:1000], version=1, name="long",
                   model=MODEL)
            page, turns = page + 1, turns[1000:]
        Stream(box, session="long", text="", max_tokens=1).run()
        ms = []
        for i in range(20):
            begun = time.monotonic()
            c.call("sessions.fork", session="long", names=["f%d" % i])
            ms.append(1e3 * (time.monotonic() - begun))

        def rate(asks):
            streams = [Stream(box, max_tokens=400, **a) for a in asks]
            together(streams)
            begun, ended = max(s.times[0] for s in streams), min(s.times[-1] for s in streams)
            # the first frames of all have come, and the last of none
            n = sum(sum(begun < t <= ended for t in s.times) for s in streams)
            return n / (ended - begun), max(s.result["usage"]["computed_tokens"] for s in streams)

        forks = [{"session": "f%d" % i, "text": " %d" % i} for i in range(8)]
        branches, computed = rate(forks)
        separate, _ = rate([{"tokens": ids(i, 32000)} for i in range(8)])
        return "round trip %.2f ms (median of 20); 8 branches %.0f tok/s (%d tokens computed), 8 separate %.0f" % (
            median(ms), branches, computed, separate)


def back():
    """Memory is yielded beside a stream of 4,000 tokens, and given back."""
    with House() as box:
        s = Stream(box, tokens=ids(1, 4000), max_tokens=3000)
        s.read_until(lambda: len(s.tokens) >= 100)
        reader = threading.Thread(target=s.run)
        reader.start()
        c, begun = box.client(), time.monotonic()
        r = c.call("yield", all=True)
        freed = time.monotonic()
        time.sleep(1)  # the card is another's
        given = time.monotonic()
        c.call("yield", seconds=0)
        reader.join()
        return "yielded %.1f GB in %.0f ms; streams %.0f ms after it was given back, %d tokens" % (
            r["freed"] / 1e9, 1e3 * (freed - begun), 1e3 * (min(t for t in s.times if t > given) - given),
            len(s.tokens))


def memory():
    """What is held on the card."""
    before = held_by_others()
    with House("engine_idle = 2") as box:
        loaded = held() - before
        Stream(box, tokens=ids(1, 4000), max_tokens=2).run()
        session = held() - before
        box.client().call("yield", all=True, seconds=1)
        yielded = held() - before
        box.client().call("models.unload", model=MODEL)
        deadline = time.monotonic() + 60
        while box.client().call("status")["engine"]["pid"] and time.monotonic() < deadline:
            time.sleep(0.1)
        return "held after the load %.2f GB, with a session of 4,000 tokens %.2f, after yield %.2f, after engine_idle " \
               "%.2f" % (loaded / 1e9, session / 1e9, yielded / 1e9, (held() - before) / 1e9)


def take(how, to):
    """In a process: takes all of the card but 2 GB, 1 GB at a time, and writes when it was first refused and had it."""
    cu = ctypes.CDLL("libcuda.so.1")
    context, free, total, p = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
    cu.cuInit(0), cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cu.cuCtxSetCurrent(context)
    cu.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    left, refused, begun = total.value - (2 << 30), None, time.monotonic()
    os.write(to, b"ready\n")
    if how == "asks":
        sys.stdin.readline()
        begun = time.monotonic()
    while left > 1 << 30 and time.monotonic() < begun + 20:
        if cu.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(1 << 30)) == 0:
            left -= 1 << 30
            continue
        refused = refused or time.monotonic()
        time.sleep(0.02)
    now = time.monotonic()
    return "%s %.0f ms after %s" % ("had it" if left <= 1 << 30 else "had not all of it", 1e3 * (
        now - (begun if how == "asks" or not refused else refused)), "yield" if how == "asks" else "its first refusal")


def hog(how, busy):
    """hearth holds 60 GB, and another program wants the card."""
    answered = ""
    with House("gpu_memory = 60G", "kv_bytes = 52G") as box:
        for i in range(13):  # cached KV fills what may be held
            Stream(box, tokens=ids(i, 32000), max_tokens=1).run()
        has = held()
        if busy:
            stream = Stream(box, tokens=ids(99, 32000), max_tokens=2000)
            stream.read_until(lambda: stream.tokens)
        other = subprocess.Popen([sys.executable, __file__, MODEL, "take", how], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True)
        other.stdout.readline()
        if how == "asks":
            begun, c = time.monotonic(), box.client()
            other.stdin.write("\n"), other.stdin.flush()
            c.call("yield", all=True, seconds=60)
            answered = " (yield was answered after %.0f)" % (1e3 * (time.monotonic() - begun))
        told = "of %.0f GB held, %s%s" % (has / 1e9, other.stdout.readline().strip(), answered)
        other.kill(), other.wait()
        if busy:
            box.client().call("yield", seconds=0)
            told += "; the stream has %d tokens of 2,000" % len(stream.run().tokens)
        return told


def hog_idle():
    return hog("asks", False)


def hog_busy():
    return hog("asks", True)


def hog_polled_idle():
    return hog("polls", False)


def hog_polled_busy():
    return hog("polls", True)


def devices():
    """Where the model and a copy of it under another name are, and what both make at once."""
    with House("model_dir = " + os.path.dirname(MODEL), load=False) as box:
        other = box.dir + "/other.gguf"
        shutil.copy(MODEL, other)
        asks = [dict(model=m, tokens=ids(i, 512), max_tokens=400) for i, m in enumerate((MODEL, other))]
        alone = [Stream(box, **a).run() for a in asks]
        beside = [Stream(box, **a) for a in asks]
        together(beside)
        rate = [len(s.tokens) / (s.times[-1] - s.times[0]) for s in alone + beside]
        where = [m["where"] for m in box.client().call("status")["engine"]["models"]]
        return "on %s: alone %.0f and %.0f tok/s, at once %.0f and %.0f, texts %s" % (
            " and ".join(where), *rate,
            "equal" if [s.tokens for s in alone] == [s.tokens for s in beside] else "differ")


def neighbour():
    """A short request beside a prompt of 8,000 tokens; the prompt is cancelled."""
    with House() as box:
        first, ended = [], []
        for i in range(5):
            big = Stream(box, tokens=ids(i, 8000), max_tokens=1, request="big %d" % i)
            time.sleep(1 + 0.13 * i)
            first.append(Stream(box, tokens=ids(100 + i, 5), max_tokens=1).run().first_ms())
            begun = time.monotonic()
            box.client().call("cancel", request="big %d" % i)
            if big.run().result["finish_reason"] != "cancelled":
                raise RuntimeError("the prompt had ended before its cancel")
            ended.append(1e3 * (time.monotonic() - begun))
        return "first token of 5 tokens %.0f ms, worst %.0f; the prompt ends %.0f ms after its cancel, worst %.0f" % (
            median(first), max(first), median(ended), max(ended))


ROWS = {f.__name__: f for f in (texts, texts_all, killed, late, sixty, common, users, fork, back, memory, hog_idle, hog_busy,
                                hog_polled_idle, hog_polled_busy, devices, neighbour)}


def main(names):
    for name in names or ROWS:
        begun = time.monotonic()
        try:
            print("%-10s %s  [%.0f s]" % (name, ROWS[name](), time.monotonic() - begun), flush=True)
        except Exception:
            print("%-10s failed: %s" % (name, traceback.format_exc()), flush=True)


if sys.argv[2:3] == ["take"]:
    print(take(sys.argv[3], 1), flush=True)
    sys.stdin.read()
else:
    main(sys.argv[2:])
