"""Clients that request much work, one row each: their number, what each does repeatedly, and what one does before.
tests/bench/bystander.py measures how long other clients wait beside them, tests/daemon/turns.py bounds the work that
hearthd does for them at a time.
"""
import os, struct, time

from harness import Client, Refused

EIGHT_MB = 8 * 1000 * 1000


def string(s):
    return struct.pack("<Q", len(s)) + s


def strings(key, all):
    return string(key) + struct.pack("<IIQ", 9, 8, len(all)) + b"".join(map(string, all))


def large_vocabulary(path, n):
    """A GGUF file without tensors: n tokens, and four merges for each."""
    letters = [bytes([c]) for c in range(33, 127)]
    tokens = letters + [b"%x" % i for i in range(n - len(letters))]
    merges = [b"%c %c" % (33 + i % 94, 33 + i // 94 % 94) for i in range(4 * n)]
    keys = [string(b"general.architecture") + struct.pack("<I", 8) + string(b"llama"),
            string(b"tokenizer.ggml.model") + struct.pack("<I", 8) + string(b"gpt2"),
            string(b"tokenizer.ggml.pre") + struct.pack("<I", 8) + string(b"llama-bpe"),
            strings(b"tokenizer.ggml.tokens", tokens), strings(b"tokenizer.ggml.merges", merges)]
    with open(path, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) + b"".join(keys))


LARGE = 14  # MiB of a large session
SESSIONS = 3000


def text(kind):
    return ("lorem ipsum dolor sit amet " * (EIGHT_MB // 27)) if kind == "words" else "a" * EIGHT_MB


def ask(c, method, **params):
    try:
        return c.call(method, **params)
    except Refused:
        return None


def vocabulary(c, box):
    path = box.dir + "/models/vocabulary.gguf"
    os.utime(path)  # the file counts as another one, because of its time
    ask(c, "tokenize", model=path, text="x")


def nils(c, box):
    frame = b"\x94\x00\x01\xa6status\x91\x81\xa1x\xdd" + struct.pack(">I", 1900000) + b"\xc0" * 1900000
    c.s.sendall(frame)
    c.read()


def idle(c, box):
    time.sleep(0.1)


def connect(c, box):
    for _ in range(100):
        try:
            Client(box.socket).close()
        except BlockingIOError:  # the backlog is full
            pass


def load(c, box):
    ask(c, "models.load", model="other")
    ask(c, "models.unload", model="other")


def small_session(c, name):
    ask(c, "sessions.import", version=1, name=name, model="tale", turns=[
        {"role": "text", "text": "Once upon a time", "tokens": [300, 301, 302], "n_tokens": 3}])


def large_session(c, name):
    turn = {"role": "text", "text": "lorem ipsum " * ((1 << 20) // 12), "tokens": [300] * 1000, "n_tokens": 1000}
    for page in range(LARGE):
        ask(c, "sessions.import", page=page, more=page < LARGE - 1, version=1, name=name, model="tale", replace=True,
            turns=[turn])


def import_small(c, box):
    small_session(c, "small %d" % time.monotonic_ns())


def many_sessions(c, box):
    for i in range(SESSIONS):
        small_session(c, "session %d" % i)


def pages(c, box):
    params = {}
    while params is not None:
        r = ask(c, "sessions.list", **params)
        params = {"from": r["next"]} if r and "next" in r else None


def remove_all(c, box):
    left = [s["id"] for s in ask(c, "sessions.list")["sessions"]]
    for id in left:
        ask(c, "sessions.remove", session=id)
    if not left:
        idle(c, box)


def backup(c, box):
    ask(c, "backup", path=box.dir + "/backup.db", replace=True)


def remove_large(c, box):
    for i in range(12):
        ask(c, "sessions.remove", session="large %d" % i)
    backup(c, box)


def twelve_large(c, box):
    for i in range(12):
        large_session(c, "large %d" % i)


def one_large(c, box):
    large_session(c, "large")


ROWS = {
    "nothing": (1, idle),
    "generate of 8 MB, refused": (1, lambda c, b: ask(c, "generate", model="tale", text=text("words"))),
    "tokenize of 8 MB": (1, lambda c, b: ask(c, "tokenize", model="tale", text=text("words"))),
    "tokenize of 8 MB, one word, 4 clients": (4, lambda c, b: ask(c, "tokenize", model="tale", text=text("a"))),
    "a vocabulary of 1,048,576 tokens": (1, vocabulary),
    "status with 1.9 M nils": (1, nils),
    "status with 1.9 M nils, 4 clients": (4, nils),
    "detokenize of 1,048,576 ids": (1, lambda c, b: ask(c, "detokenize", model="tale", tokens=[300] * 1048576)),
    "eval of 1,023 ids, top 1000": (1, lambda c, b: ask(c, "eval", model="tale", tokens=[300] * 1023, top=1000)),
    "eval, 1,000 greedy": (1, lambda c, b: ask(c, "eval", model="tale", tokens=[300], greedy=1000)),
    "connect and close, 2 clients": (2, connect),
    "models.list": (4, lambda c, b: ask(c, "models.list")),
    "another model loaded and unloaded": (1, load),
    "8 prompts of 900 tokens": (8, lambda c, b: ask(c, "generate", model="tale", max_tokens=1, tokens=[
        300 + os.getpid() % 1000] + [int(x) % 2000 + 300 for x in os.urandom(899)])),
    "32 streams": (32, lambda c, b: ask(c, "generate", model="tale", text="Once", max_tokens=200)),
    "sessions imported": (1, import_small),
    "all pages of the list": (1, pages, many_sessions),
    "backup": (1, backup),
    "sessions removed": (1, remove_all),
    "session of 14 MiB imported, replaced": (1, one_large),
    "session of 14 MiB exported (page 0)": (1, lambda c, b: ask(c, "sessions.export", session="large"), one_large),
    "session of 14 MiB shown, 4 clients": (
        4, lambda c, b: ask(c, "sessions.show", session="large", tokens=True), one_large),
    "12 x 14 MiB removed, then backup": (1, remove_large, twelve_large),
}
