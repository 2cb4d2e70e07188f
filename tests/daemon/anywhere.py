#!/usr/bin/python3
"""Mixtures of experts and models with recurrent states, with 32 clients at once: texts are generated as a whole,
interrupted anywhere and continued, forked (also while they are generated), with several choices, cancelled, abandoned
and requested again; meanwhile the engine, its device or hearthd dies, memory is yielded, and models are unloaded. Every
text must equal that of a run by itself.

It uses models beside the source tree; without them there is nothing to test. If run by root, every other client is
another user. $HEARTH_KILLS is the number of disturbances (24), another $HEARTH_SEED (1) draws others, $HEARTH_MODELS
names other models. Prints TAP.
"""
import ctypes, os, random, shutil, signal, sys, threading, time

sys.dont_write_bytecode = True
import harness
from harness import SRC, Box, Refused, Wrong, check

MODELS = ("deepseek_v3,dots1,gemma4-e4b,gemma4-moe,glm4_moe,gpt_oss,granitemoehybrid-moe,lfm2_moe,mamba2,mixtral,nemotron_h,"
          "qwen2_moe,qwen3_5_moe_text,qwen3_5_text,qwen3_moe,qwen3_next")
BLOWS, SEED = int(os.environ.get("HEARTH_KILLS", "24")), int(os.environ.get("HEARTH_SEED", 1))
CLIENTS, MADE, VOCAB, OTHER_UID, SETRESUID = 32, 60, 500, 65534, 117
WAYS = "whole", "cut", "fork", "fork_running", "left", "choices", "cancel"
LENGTHS = 3, 17, 40, 130  # of prompts: less than a page, more than one, and more than the distance of states

rng = random.Random(SEED)
shared = os.environ.get("HEARTH_SHARED", SRC + "/../shared") + "/models/hf-tiny"
models = [m for m in os.environ.get("HEARTH_MODELS", MODELS).split(",") if os.path.isdir(os.path.join(shared, m))]
if not models:
    print("1..0 # SKIP the tiny models are not here")
    sys.exit(0)
two_users = os.geteuid() == 0 and os.uname().machine == "x86_64"
box, alone = Box("anywhere"), Box("alone")
over = threading.Event()
wrong, done = [], {}


def prompts():
    """Four for each model, and one with the same beginning as another."""
    own = [[rng.randrange(20, VOCAB) for _ in range(n)] for n in LENGTHS]
    return own + [own[-1][:70] + [77, 78, 79]]


PROMPTS = {m: prompts() for m in models}
# The penalty considers the last 64 tokens, wherever the prompt ends, so an interrupted text continues unchanged; and it
# keeps greedy texts from repeating themselves.
GREEDY = {"temperature": 0, "repetition_penalty": 1.3}


def drawn(seed):
    return {"temperature": 1.2, "seed": seed, "top_k": 0, "top_p": 1, "min_p": 0, "repetition_penalty": 1.0}


def ask(m, tokens, n, sampling=GREEDY, **more):
    return dict(model=m, tokens=tokens, max_tokens=n, ignore_eos=True, sampling=sampling, **more)


class Somebody(threading.Thread):
    def __init__(self, k):
        super().__init__(daemon=True)
        self.k, self.rng, self.n, self.what = k, random.Random(SEED * 1000 + k), 0, "nothing"

    def call(self, method, **params):
        """Retries until it is answered: hearthd may be down, and others kill the engine that it needs."""
        while True:
            try:
                c = box.client()
                try:
                    return c.call(method, **params)
                finally:
                    c.close()
            except Refused as e:
                if e.args[0] not in ("ENGINE_FAILED", "SESSION_BUSY"):
                    raise
            except (ConnectionError, FileNotFoundError, PermissionError):
                pass
            except Wrong as e:
                if "hung up" not in str(e):
                    raise
            time.sleep(0.02)

    def watch(self, enough, **params):
        """Sends the request, and disconnects when so many tokens have arrived."""
        made = 0
        try:
            c = box.client()
            c.submit("generate", **params)
            while made < enough:
                m = c.read()
                if m is None or m[0] == 1:
                    break
                made += m[2][0]["count"] if m[1] == "stream.tokens" else 0
            c.close()
        except OSError:
            pass

    def same(self, how, got, want):
        if got != want:
            at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
            raise Wrong("%s: token %d of %d is another: %s, alone %s" % (how, at, len(want), got[at:at + 4], want[at:at + 4]))

    def whole(self, tag, m, i, prompt, text):
        seed = 1000 + i
        self.same("drawn", self.call("generate", request=tag, **ask(m, prompt, MADE, drawn(seed)))["tokens"], want[m, i, seed])

    def cut(self, tag, m, i, prompt, text):
        at, feed = 0, prompt
        while at < MADE:
            n = min(MADE - at, self.rng.choice((0, 1, 2, 15, 16, 17, 40)))
            got = self.call("generate", request="%s %d" % (tag, at), session=tag, **ask(m, feed, n))["tokens"]
            self.same("cut at %d" % at, got, text[at:at + n])
            feed, at = text[at + n:at + n + 1], at + n + 1
            if self.rng.random() < 0.1:
                try:
                    self.call("models.unload", model=m)
                except Refused:  # others are using it
                    pass

    def go_on(self, tag, m, name, at, prompt, text):
        """A fork with that many tokens generates the rest of the text."""
        all_ids = prompt + text
        feed = prompt[at:] if at < len(prompt) else all_ids[at:at + 1]
        n = len(all_ids) - at - len(feed)
        if feed:
            got = self.call("generate", request=tag, session=name, **ask(m, feed, n))["tokens"]
            self.same("forked at %d of %d" % (at, len(prompt)), got, all_ids[len(all_ids) - n:])

    def fork(self, tag, m, i, prompt, text):
        self.same("trunk", self.call("generate", request=tag, session=tag, **ask(m, prompt, MADE))["tokens"], text)
        for f in range(2):
            at, name = self.rng.randrange(len(prompt) + MADE), "%s.%d" % (tag, f)
            try:
                self.call("sessions.fork", session=tag, at=at, names=[name])
            except Refused as e:  # the retry of a request after which hearthd had died
                if e.args[0] != "SESSION_EXISTS":
                    raise
            self.go_on(name, m, name, at, prompt, text)

    def fork_running(self, tag, m, i, prompt, text):
        self.watch(self.rng.randrange(1, MADE), request=tag, session=tag, **ask(m, prompt, MADE))
        try:
            at = self.call("sessions.fork", session=tag, names=[tag + " fork"])["sessions"][0]["tokens"]
            self.go_on(tag + " fork", m, tag + " fork", at, prompt, text)
        except Refused as e:
            if e.args[0] not in ("SESSION_EXISTS", "SESSION_NOT_FOUND"):
                raise
        self.left(tag, m, i, prompt, text, session=tag)

    def left(self, tag, m, i, prompt, text, **more):
        """A client that has disconnected retries and gets all of it or, if it comes back too late, what was
        generated."""
        params = dict(ask(m, prompt, MADE, **more), request=tag)
        self.watch(self.rng.randrange(MADE), **params)
        r = self.call("generate", **params)
        self.same("again", r["tokens"], text[:len(r["tokens"])] if r["finish_reason"] == "cancelled" else text)

    def choices(self, tag, m, i, prompt, text):
        n, seed = self.rng.randrange(2, 4), 1000 + i
        got = self.call("generate", request=tag, n=n, **ask(m, prompt, MADE, drawn(seed)))["choices"]
        for k in range(min(n, 2)):
            self.same("choice %d" % k, got[k]["tokens"], want[m, i, seed + k])

    def cancel(self, tag, m, i, prompt, text):
        self.watch(self.rng.randrange(MADE // 2), request=tag, session=tag, **ask(m, prompt, MADE))
        self.call("cancel", request=tag)
        try:
            got = self.call("sessions.show", session=tag, tokens=True)["tokens"]
            self.same("cancelled", got, (prompt + text)[:len(got)])
        except Refused as e:
            if e.args[0] != "SESSION_NOT_FOUND":
                raise

    def run(self):
        if two_users and self.k % 2 and ctypes.CDLL(None).syscall(SETRESUID, OTHER_UID, OTHER_UID, OTHER_UID):
            wrong.append("another uid")  # a raw system call affects only this thread
        while not over.is_set():
            how = self.rng.choice(WAYS)
            m = self.rng.choice(models)
            i = self.rng.randrange(len(PROMPTS[m]))
            self.n += 1
            self.what = "client %d, %s %d, %s of %s" % (self.k, how, self.n, i, m)
            try:
                getattr(self, how)("%d %d" % (self.k, self.n), m, i, PROMPTS[m][i], want[m, i, "greedy"])
                done[how] = done.get(how, 0) + 1
            except Exception as e:
                wrong.append("%s: %s: %s" % (self.what, type(e).__name__, e))
                over.set()


def begin():
    box.start()
    if two_users:
        for path in box.dir, box.dir + "/run", os.path.dirname(box.socket):
            os.chmod(path, 0o755)
        os.chmod(box.socket, 0o666)


def strike():
    """Causes one disturbance and returns its kind, or None if it had no target."""
    what = rng.choice(("engine", "device", "daemon", "yield", "unload"))
    if what == "device":
        box.fail("%s=%d" % (rng.choice(("any", "load", "step", "save", "restore")), rng.randrange(1, 20)))
    elif what == "daemon":
        box.kill()
        begin()
    else:
        c = box.client()
        try:
            engine = c.call("status")["engine"]
            if what == "yield":
                c.call("yield", all=True, seconds=rng.choice((0.05, 0.3)))
            elif what == "unload":
                c.call("models.unload", model=rng.choice(models))
            elif engine["state"] == "running":
                os.kill(engine["pid"], rng.choice((signal.SIGKILL, signal.SIGSEGV)))
        except (Refused, ProcessLookupError):
            return None
        finally:
            c.close()
    return what


print("# seed %d, %d blows, %d models%s" % (SEED, BLOWS, len(models), ", two users" if two_users else ""))
try:
    for b in box, alone:
        for m in models:
            shutil.copytree(os.path.join(shared, m), b.dir + "/models/" + m)
        os.chmod(b.dir + "/models", 0o755)
    lines = "threads = 2", "stream_retries = 16", "connections_per_uid = 200"
    alone.configure("model_dir = %s/models" % alone.dir, *lines, "kv_disk = 0", "kv_ram = 0")
    alone.start()
    c, want = alone.client(), {}
    for m in models:
        for i, prompt in enumerate(PROMPTS[m]):
            for key, sampling in [("greedy", GREEDY)] + [(s, drawn(s)) for s in (1000 + i, 1001 + i)]:
                want[m, i, key] = c.call("generate", **ask(m, prompt, MADE, sampling))["tokens"]
        c.call("models.unload", model=m)
    alone.stop()
    said = [len(set(want[m, 0, "greedy"])) for m in models]
    check(min(said) > MADE // 4, "texts that say much", said)

    box.configure("model_dir = %s/models" % box.dir, *lines, "kv_bytes = 1M", "kv_ram = 2M", "kv_disk = 8M")
    box.engine("--fault", box.fault)
    begin()
    clients = [Somebody(k) for k in range(CLIENTS)]
    for t in clients:
        t.start()
    struck = {}
    for _ in range(BLOWS):
        if not over.wait(rng.uniform(0.05, 0.6)):
            what = strike()
            struck[what] = struck.get(what, 0) + 1
    over.set()
    for t in clients:
        t.join()
    print("# struck %s; done %s" % (struck, done))
    check(not wrong, "every text is what it is alone", "\n".join(wrong))
    check(len(done) == len(WAYS), "each way was gone to its end", done)
    box.stop()
    check(box.sql("PRAGMA integrity_check") == [("ok",)], "the database is whole")
finally:
    over.set()
    alone.remove()
    harness.end(box)
sys.exit(harness.failed > 0)
