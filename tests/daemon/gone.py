#!/usr/bin/python3
"""A model in memory whose file is damaged or gone can be unloaded and unpinned all the same; so can a pinned model
while there is no engine, and after an engine that could not load it again. A file that has been replaced by another
model's is not used for a stream or a session that began with the first one. And a vocabulary for which there was no
memory when it was read. Prints TAP.
"""
import os, signal, struct, sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.environ["top_srcdir"] + "/tests/tools")
import harness, script_model
from harness import Box, Refused, check

box = Box("gone")
try:
    box.models()
    box.configure("model_dir = %s/models" % box.dir, "threads = 2")
    box.start()
    c = box.client()

    def held():
        return c.call("status")["engine"]["memory"]["weights"]

    def rows(name):
        return [m for m in c.call("status")["engine"]["models"] if m["name"] == name]

    path = box.dir + "/models/other.gguf"
    with open(path, "rb") as f:
        good = f.read()
    def put_back():
        with open(path + ".new", "wb") as f:
            f.write(good)
        os.rename(path + ".new", path)

    for what in "damaged", "gone", "gone, by its path":
        c.call("models.pin", model="other")
        check(held() > 4e6 and rows("other")[0]["pinned"], what + ": it is in memory", rows("other"))
        if what == "damaged":
            with open(path, "wb") as f:
                f.write(good[:1000])
        else:
            os.unlink(path)
        name = path if "path" in what else "other"
        r = c.call("models.pin", model=name, pinned=False)
        check(r["where"] == rows("other")[0]["where"] and r["bytes"] > 4e6, what + ": unpinning says that it stays in memory", r)
        check(not rows("other")[0]["pinned"], what + ": it is not pinned any more", rows("other"))
        c.call("models.unload", model=name)
        check(held() == 0, what + ": it is unloaded", rows("other"))
        put_back()
    c.call("tokenize", model="other", text="x")  # its vocabulary alone is in memory
    r = c.call("models.pin", model="other", pinned=False)
    check("where" not in r and r["bytes"] == 0, "unpinning says of a model that it is not in memory", r)
    try:
        c.call("models.unload", model="none")
        check(False, "what there never was is refused")
    except Refused as e:
        check(e.args[0] == "MODEL_NOT_FOUND", "what there never was is refused", e)
    check(c.call("status")["engine"]["restarts"] == 0, "no engine was lost")

    def mapped(pid=None):
        with open("/proc/%d/maps" % (pid or c.call("status")["engine"]["pid"])) as f:
            return [l for l in f if "/other.gguf" in l]

    # Another model is kept loaded, so that the engine stays: the space on the disk is freed with the last use of the
    # file.
    c.call("models.pin", model="tale")
    for what, steps in (("gone, then unloaded", (lambda: os.unlink(path), lambda: c.call("models.unload", model="other"))),
                        ("unloaded, then gone", (lambda: c.call("models.unload", model="other"), lambda: os.unlink(path)))):
        c.call("models.load", model="other")
        c.call("tokenize", model="other", text="x")  # so that its vocabulary is read
        check(len(mapped()) > 0, what + ": it was mapped")
        for step in steps:
            step()
        check(not rows("other") and not mapped(), what + ": its file is not mapped any more", (rows("other"), mapped()))
        try:
            c.call("models.unload", model="other")
            check(False, what + ": there is nothing to unload")
        except Refused as e:
            check(e.args[0] == "MODEL_NOT_FOUND", what + ": there is nothing to unload", e)
        put_back()
    # The same without anybody who asks the engine about its models.
    c.call("models.load", model="other")
    c.call("tokenize", model="other", text="x")  # its vocabulary is not being read any more, which takes the file
    check(len(mapped()) > 0, "gone, then unloaded to make room: it was mapped")
    pid = c.call("status")["engine"]["pid"]
    os.unlink(path)
    c.call("yield", all=True)
    check(not mapped(pid), "gone, then unloaded to make room: its file is not mapped any more", mapped(pid))
    c.call("yield", seconds=0)
    put_back()
    c.call("models.load", model="other")
    c.call("models.unload", model="other")
    c.call("status")
    check(len(mapped()) > 0, "one that is still there stays mapped, for who wants it next")
    c.call("models.unload", model="tale")

    def kill():
        """Kills the engine; the next one is started when it is needed."""
        os.kill(c.call("status")["engine"]["pid"], signal.SIGKILL)
        while c.call("status")["engine"]["state"] == "running":
            pass

    def pinned():
        """Returns the models that the next engine has pinned. It is told to pin them before it is told to load this
        model."""
        c.call("models.load", model="tale")
        try:
            c.call("models.load", model="other")
        except Refused:
            pass
        return [m["name"] for m in c.call("status")["engine"]["models"] if m["pinned"]]

    c.call("models.pin", model="other")
    kill()
    c.call("models.unload", model="other")
    check(pinned() == [], "what is unloaded while there is no engine is not pinned any more")
    for what, damage, let_go in (
            ("gone", os.unlink, lambda: c.call("models.unload", model="other")),
            ("damaged", lambda p: os.truncate(p, 1000), lambda: c.call("models.pin", model="other", pinned=False))):
        c.call("models.pin", model="other")
        damage(path)
        kill()
        check(pinned() == [], what + ": the next engine cannot load it")
        try:
            let_go()
            check(True, "... and it is let go")
        except Refused as e:
            check(False, "... and it is let go", e)
        put_back()
        kill()
        check(pinned() == [], "... for good")
    c.call("models.pin", model="other")
    kill()
    check(pinned() == ["other"], "what is not let go is loaded again")
    c.call("models.unload", model="other")

    # The file is replaced: when the engine dies, so does what it had in memory.
    for what in "the same", "another":
        other = box.client()
        asked = other.submit("generate", model="other", text="Once", max_tokens=900, ignore_eos=True)
        while other.read()[1] != "stream.tokens":
            pass
        if what == "another":
            put_back()
        kill()
        r = other.answer(asked)
        if what == "the same":
            check(r["usage"]["completion_tokens"] == 900, "a stream goes on with the same file", r)
        else:
            check(r["finish_reason"] == "error" and "MODEL_INVALID" in r["error"] and "replaced" in r["error"] and r["tokens"],
                  "and ends where there is another", r)
    # A session continues with a file whose vocabulary gives its ids the same meaning, and with no other.
    def tokens_of(gguf):
        """The offsets and lengths of the tokens' texts."""
        at = gguf.index(b"tokenizer.ggml.tokens") + len("tokenizer.ggml.tokens") + 8
        n, at, all = struct.unpack_from("<Q", gguf, at)[0], at + 8, []
        for _ in range(n):
            size = struct.unpack_from("<Q", gguf, at)[0]
            all.append((at + 8, size))
            at += 8 + size
        return all

    def swapped(gguf, used):
        """The same file with another text for the first token of at least three bytes that is in `used`, or that is
        not."""
        for id, (at, size) in enumerate(tokens_of(gguf)):
            if size >= 3 and (id in used[0]) == used[1] and gguf[at:at + size].isalpha():
                return gguf[:at] + gguf[at:at + size].swapcase() + gguf[at + size:]

    def put(data):
        with open(path + ".new", "wb") as f:
            f.write(data)
        os.rename(path + ".new", path)

    def goes_on(session):
        try:
            return c.call("generate", session=session, text=" and", max_tokens=3, sampling={"temperature": 0})["usage"]["completion_tokens"] == 3
        except Refused as e:
            return e

    text = "Once upon a time"
    ids = c.call("tokenize", model="other", text=text)["ids"]
    c.call("generate", model="other", session="old", text=text, max_tokens=3, sampling={"temperature": 0})
    c.call("sessions.fork", session="old", names=["fork"])
    c.call("sessions.fork", session="old", names=["half"], at=2)
    put(good[:-1] + bytes([good[-1] ^ 1]))
    check(goes_on("old") is True, "a session goes on with other weights of the same vocabulary", goes_on("old"))
    put(swapped(good, (ids, False)))
    check(goes_on("old") is True, "and where another token has another text", goes_on("old"))
    # What is known about the ids is kept when an answer is generated with a file whose vocabulary cannot be read.
    at = good.index(b"tokenizer.ggml.model") + len("tokenizer.ggml.model") + 12
    put(good[:at] + b"x" + good[at + 1:])
    r = c.call("generate", session="old", tokens=[5], max_tokens=1, sampling={"temperature": 0})
    check(r["usage"]["completion_tokens"] == 1 and not r["text"], "a file without a vocabulary goes on with ids", r)
    put(swapped(good, (ids, True)))
    for session in "old", "fork":
        e = goes_on(session)
        check(isinstance(e, Refused) and e.args[0] == "MODEL_MISMATCH" and "vocabulary" in e.args[1],
              "but not, as the session or as a fork, where its ids mean other texts", (session, e))
    try:
        c.call("generate", session="old", text="x", max_tokens=3, dry=True)
        check(False, "nor is it said what that would cost")
    except Refused as e:
        check(e.args[0] == "MODEL_MISMATCH", "nor is it said what that would cost", e)
    check(goes_on("half") is True, "of a fork that ends before the first answer nobody knows", goes_on("half"))
    put_back()
    check(goes_on("old") is True and goes_on("fork") is True, "and again with the file that it began with")
    script_model.write(path + ".new", {"@": ["ab"]})
    os.rename(path + ".new", path)
    try:
        c.call("generate", session="old", text="@", max_tokens=3)
        check(False, "a session's ids are not those of a smaller vocabulary")
    except Refused as e:
        check(e.args[0] == "MODEL_MISMATCH", "a session's ids are not those of a smaller vocabulary", e)

    box.stop()
    box.engine("--no-vocab", box.gate)
    box.start()
    c = box.client()
    calls = (("generate", dict(text="Once", max_tokens=1)), ("generate", dict(tokens=[5], max_tokens=1)),
             ("tokenize", dict(text="Once")), ("models.show", {}))
    box.arm()
    for method, params in calls:
        try:
            c.call(method, model="tale", **params)
            check(False, "without memory for the vocabulary %s fails" % method)
        except Refused as e:
            check(e.args == ("OUT_OF_MEMORY", "no memory for a vocabulary, as a test asked"),
                  "without memory for the vocabulary %s fails" % method, e)
    pid = c.call("status")["engine"]["pid"]
    os.unlink(box.gate)
    for method, params in calls:
        try:
            got = c.call(method, model="tale", **params)
            check(got.get("refusal") is None, "with memory it works again", got)
        except Refused as e:
            check(False, "with memory it works again", e)
    check(c.call("status")["engine"]["pid"] == pid, "in the same engine")

    # A model that was being pinned keeps its weights, since its file is not at fault.
    kill()
    box.arm()
    c.call("models.pin", model="tale")
    try:
        c.call("tokenize", model="tale", text="Once")  # with the weights, or by itself
        check(False, "without memory for the vocabulary of a pinned model tokenize fails")
    except Refused as e:
        check(e.args[0] == "OUT_OF_MEMORY", "without memory for the vocabulary of a pinned model tokenize fails", e)
    os.unlink(box.gate)
    for _ in range(2):  # afterwards all messages between the engine's threads have been processed
        c.call("models.load", model="other")
        c.call("models.unload", model="other")
    check(len(rows("tale")) == 1 and rows("tale")[0]["pinned"] and held() > 4e6, "it stays in memory, pinned", rows("tale"))
    check(c.call("tokenize", model="tale", text="Once")["ids"], "and with memory its vocabulary is read")
finally:
    harness.end(box)
