#!/usr/bin/python3
"""Forks of sessions through a private hearthd: they share the parent's turns and KV, at any cut, also of a generation
that is running; what a removed parent leaves behind, and what it does not; adoption; kills. Prints TAP.
"""
import glob, os, shutil, sqlite3, sys, time

sys.dont_write_bytecode = True
import harness
from harness import Box, Refused, check, refused

GREEDY = {"temperature": 0, "repetition_penalty": 1.0}
box = Box("forks")
box.configure("threads = 2", "kv_disk = 64M")


def ids(c, name):
    return c.call("sessions.show", session=name, tokens=True)["tokens"]


def files():
    return box.sql("SELECT name, session, pos, tokens FROM kv_file")


def grep(word):
    """Whether the word is in any file of the database."""
    return any(word in open(f, "rb").read() for f in glob.glob(box.state + "/sessions.db*"))


try:
    box.start()
    c = box.client()
    # Five turns, raw and chat, so that cuts can be anywhere.
    c.call("generate", model="tale", session="story", text="Once upon a time there was a king", max_tokens=20, sampling=GREEDY)
    for ask in "Who was she?", "And the secretword?":
        c.call("generate", session="story", max_tokens=24, sampling=GREEDY,
               messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": ask}])
    whole = ids(c, "story")
    shown = c.call("sessions.show", session="story")
    turns = shown["turns"]
    kv = 0
    while not kv:  # until the engine has written a file
        kv = c.call("sessions.show", session="story")["session"].get("kv_bytes", 0)
    exported = c.call("sessions.export", session="story")["session"]
    check(exported.get("kv_bytes", 0) >= kv, "an export has the bytes of its KV files, too", (exported, kv))

    r = c.call("sessions.fork", session="story", count=2)["sessions"]
    check([s["name"] for s in r] == ["story.1", "story.2"] and
          all(s["tokens"] == len(whole) and s["shared"] == len(whole) and s["bytes"] == 0 and s["turns"] == len(turns) and
              s["parent"] == shown["session"]["id"] for s in r), "forks have all of it, and no bytes of their own", r)
    check(ids(c, "story.1") == whole, "by reference")
    check([(t["role"], t["text"]) for t in c.call("sessions.show", session="story.2")["turns"]] ==
          [(t["role"], t["text"]) for t in turns], "with its turns")
    rows = box.sql("SELECT count(*) FROM turns")
    check(rows == [(len(turns),)], "no turn was copied", rows)

    # Other sessions whose names begin so take no number, and a number is used again when its session is gone.
    for name in "story.md", "story.4x", "story.04":
        c.call("sessions.fork", session="story", names=[name])
    c.call("sessions.remove", session="story.1")
    r = c.call("sessions.fork", session="story", count=2)["sessions"]
    check([s["name"] for s in r] == ["story.1", "story.3"], "names are numbered from 1, without those that are used", r)

    # Every cut: the tokens, and how many are computed again.
    bad = []
    for at in range(len(whole) + 1):
        f = c.call("sessions.fork", session="story", at=at, names=["cut"])["sessions"][0]
        got = ids(c, "cut")
        page = c.call("sessions.export", session="cut")
        texts = sum(len(t["tokens"]) for t in page["turns"])
        if f["tokens"] != at or got != whole[:at] or texts != at:
            bad.append((at, f, got))
        if at in (1, 17, 40, 41, len(whole) - 1):
            u = c.call("generate", session="cut", tokens=[300], max_tokens=0)["usage"]
            if u["prompt_tokens"] != at + 1 or u["computed_tokens"] > 16:
                bad.append((at, u))
        c.call("sessions.remove", session="cut")
    check(not bad, "at every cut the tokens are the first ones, and at most 15 and the new one are computed", bad[:3])

    # A fork that is cut within an answer has the beginning of its text.
    at = 0
    for t in turns:
        if t["role"] == "assistant" and t["n_tokens"] > 6:
            break
        at += t["n_tokens"]
    c.call("sessions.fork", session="story", at=at + 5, names=["inside"])
    last = c.call("sessions.show", session="inside")["turns"][-1]
    check(last["role"] == "assistant" and last["n_tokens"] == 5 and last["text"] and t["text"].startswith(last["text"]) and
          last["text"] != t["text"], "a cut inside of an answer has the beginning of its text", (last, t))

    # If that is not valid UTF-8, it is as max_tokens would have left it.
    half, word = (c.call("tokenize", model="tale", text=t, bos=0)["ids"][0] for t in ("\u2603", " a"))
    odd = {"model": "tale", "text": "Once", "ignore_eos": True,
           "sampling": {"temperature": 0, "logit_bias": [[half, 100], [word, 99]], "presence_penalty": 50}}
    at = c.call("generate", session="odd", max_tokens=6, **odd)["usage"]["prompt_tokens"]
    want = [c.call("generate", max_tokens=n, **odd)["text"] for n in range(1, 6)]
    for n in range(1, 6):
        c.call("sessions.fork", session="odd", at=at + n, names=["odd.%d" % n])
    got = [c.call("sessions.show", session="odd.%d" % n)["turns"][-1]["text"] for n in range(1, 6)]
    check(want == got and "\ufffd" in want[1], "text that is no UTF-8 is as in an answer", (want, got))

    # Control tokens in an answer, such as ends that were ignored, have no text in a part of it either.
    end, word = (c.call("tokenize", model="tale", text=t, bos=0, special=True)["ids"][0] for t in ("<|im_end|>", " a"))
    ends = {"model": "tale", "text": "Once", "ignore_eos": True,
            "sampling": {"temperature": 0, "logit_bias": [[end, 100], [word, 99]], "presence_penalty": 50}}
    r = c.call("generate", session="ends", max_tokens=6, **ends)
    want = [c.call("generate", max_tokens=n, **ends)["text"] for n in range(1, 6)]
    for n in range(1, 6):
        c.call("sessions.fork", session="ends", at=r["usage"]["prompt_tokens"] + n, names=["ends.%d" % n])
    got = [c.call("sessions.show", session="ends.%d" % n)["turns"][-1]["text"] for n in range(1, 6)]
    check(want == got and end in r["tokens"][:5] and r["text"], "control tokens have no text in a part of an answer", (want, got))

    # Forks continue independently, and as the session itself would have.
    want = c.call("generate", session="story.2", text=" The end", max_tokens=12, sampling=GREEDY)
    got = c.call("generate", session="story.1", text=" The end", max_tokens=12, sampling=GREEDY)
    again = c.call("generate", session="story", text=" The end", max_tokens=12, sampling=GREEDY)
    check(want["text"] == got["text"] == again["text"], "forks go on as the session does", (want, got, again))
    check(len(ids(c, "story")) == len(ids(c, "story.1")) > len(whole), "each has its own")
    deep = "story.2"
    for i in range(20):
        name = "deep%d" % i
        c.call("sessions.fork", session=deep, names=[name])
        c.call("generate", session=name, tokens=[300 + i], max_tokens=0)
        deep = name
    check(ids(c, deep)[-20:] == [300 + i for i in range(20)] and ids(c, deep)[:len(whole)] == whole, "forks of forks")

    # A running generation, a part of whose text is held back because it may become a stop string.
    says = c.call("generate", model="tale", text="Once upon a time", max_tokens=60, ignore_eos=True, sampling=GREEDY)["text"]
    runner = box.client()
    runner.submit("generate", model="tale", session="running", text="Once upon a time", max_tokens=900, ignore_eos=True,
                  sampling=GREEDY, request="runs", stop=[says[5:] + "?!"])
    made = 0
    while made < 40:
        m = runner.read()
        made += m[2][0]["count"] if m[0] == 2 and m[1] == "stream.tokens" else 0
    live = c.call("sessions.fork", session="running", names=["live"])["sessions"][0]
    by_id = c.call("sessions.fork", session=live["parent"])["sessions"][0]
    check(by_id["name"] == "running.1", "a fork that is asked for by an id is called by the name", by_id)
    prompt = len(c.call("tokenize", model="tale", text="Once upon a time")["ids"])
    early = c.call("sessions.fork", session="running", at=prompt + 10, names=["early"])["sessions"][0]
    inside = c.call("sessions.fork", session="running", at=2, names=["prompt"])["sessions"][0]
    check(live["tokens"] >= prompt + 40 and early["tokens"] == prompt + 10 and inside["tokens"] == 2,
          "a session that a generation still makes is forked as far as it has come", (live, early, inside))
    u = c.call("generate", session="live", tokens=[300], max_tokens=1)["usage"]
    check(u["computed_tokens"] <= 16, "with the KV that there is", u)
    refused(c, "SESSION_BUSY", '"live" is a fork of', "sessions.adopt", session="live")
    c.call("cancel", request="runs")
    runner.answer(1)
    full = ids(c, "running")
    check(ids(c, "live")[:live["tokens"]] == full[:live["tokens"]] and ids(c, "early") == full[:prompt + 10],
          "and has its tokens")
    text = c.call("sessions.show", session="running")["turns"][-1]["text"]
    mine = c.call("sessions.show", session="early")["turns"][-1]
    check(mine["role"] == "completion" and text.startswith(mine["text"]) and mine["text"], "and its text", mine)
    c.call("sessions.fork", session="running", at=prompt + 10, names=["late"])
    late = c.call("sessions.show", session="late")["turns"][-1]
    check(mine["text"] == late["text"] and len(mine["text"]) > 5, "... what was held back then, too", (mine, late))

    # A session is renamed while a generation runs in it, and another one gets the old name.
    stored = ids(c, "running")[:prompt + 10]
    c.call("sessions.fork", session="running", at=len(stored), names=["before"])
    more = runner.submit("generate", session="before", text=" and", max_tokens=900, ignore_eos=True, sampling=GREEDY,
                         request="renamed")
    made = 0
    while made < 20:
        m = runner.read()
        made += m[2][0]["count"] if m[0] == 2 and m[1] == "stream.tokens" else 0
    c.call("sessions.rename", session="before", name="after")
    c.call("generate", model="tale", session="before", tokens=[300, 301], max_tokens=0)
    live = c.call("sessions.fork", session="after")["sessions"][0]
    other = c.call("sessions.fork", session="before")["sessions"][0]
    check(live["name"] == "after.1" and live["tokens"] >= len(stored) + 20,
          "a session that was renamed is forked as far as its generation has come", live)
    check(ids(c, other["id"]) == [300, 301], "and the one that has its old name by itself", ids(c, other["id"]))
    check([s["name"] for s in c.call("streams.list")["streams"]] == ["after"], "the stream goes by the new name")
    box.kill()
    box.start()
    c, runner = box.client(), box.client()
    more = runner.submit("stream.attach", request="renamed")
    made = 0
    while made < 40:
        m = runner.read()
        made += m[2][0]["count"] if m[0] == 2 and m[1] == "stream.tokens" else 0
    live = c.call("sessions.fork", session="after")["sessions"][0]
    check(live["tokens"] >= len(stored) + 40, "after a death of hearthd, too", live)
    c.call("cancel", request="renamed")
    runner.answer(more)
    check(ids(c, live["id"]) == ids(c, "after")[:live["tokens"]], "and has its tokens")

    # What a removed session leaves behind.
    c.call("generate", model="tale", session="old", text="Once upon a time there was an elephant called Vorderbein",
           max_tokens=40, sampling=GREEDY, ignore_eos=True)
    c.call("generate", session="old", text=" and Hinterbein, the other one", max_tokens=40, sampling=GREEDY, ignore_eos=True)
    old = c.call("sessions.show", session="old", tokens=True)
    first = sum(t["n_tokens"] for t in old["turns"][:2])
    c.call("sessions.fork", session="old", at=first, names=["heir"])
    c.call("sessions.fork", session="heir", names=["heir of heir"])
    c.call("sessions.remove", session="old")
    left = c.call("sessions.list")["sessions"]
    heir = [s for s in left if s["name"] == "heir"][0]
    check("old" not in [s["name"] for s in left] and "parent" not in heir and heir["shared"] == first,
          "a parent that was removed is in no list", heir)
    refused(c, "SESSION_NOT_FOUND", "no session", "sessions.show", session=old["session"]["id"])
    refused(c, "SESSION_NOT_FOUND", "has been removed", "sessions.adopt", session="heir")
    check(ids(c, "heir") == old["tokens"][:first] == ids(c, "heir of heir"), "its forks have what they had")
    check(not [f for f in files() if f[1] == old["session"]["id"] and f[2] + f[3] > first],
          "KV of what nobody has any more is gone", files())
    box.stop()
    check(grep(b"Vorderbein") and not grep(b"Hinterbein"), "and so is its text, but not what forks have")
    box.start()
    c = box.client()
    check(ids(c, "heir of heir") == old["tokens"][:first], "after a restart, too")
    c.call("sessions.remove", session="heir")
    check(ids(c, "heir of heir") == old["tokens"][:first], "one fork of two may go")
    c.call("sessions.remove", session="heir of heir")
    check(not [f for f in files() if f[1] == old["session"]["id"]], "with the last one its KV goes", files())
    box.stop()
    check(not grep(b"Vorderbein"), "and all of it")
    box.start()
    c = box.client()
    c.call("generate", model="tale", session="lost", text="Once upon a time there was an elephant called Ruessel",
           max_tokens=40, sampling=GREEDY, ignore_eos=True)
    lost = c.call("sessions.fork", session="lost", names=["kept"])["sessions"][0]["parent"]
    c.call("sessions.fork", session="kept", at=2, names=["short"])
    c.call("sessions.remove", session="lost")
    box.stop()  # all of its files are written by then
    had = [f for f in files() if f[1] == lost]
    box.start()
    c = box.client()
    c.call("sessions.adopt", session="short", replace=True)
    box.stop()
    check(had and not [f for f in files() if f[1] == lost] and not grep(b"Ruessel"),
          "what its last fork drops for a fork of its own goes, too", (had, files()))

    # Export, import and backup.
    box.start()
    c = box.client()
    page = c.call("sessions.export", session=deep)
    c.call("sessions.import", version=1, name="copy", model="tale", turns=page["turns"], turn_open=page["turn_open"])
    check(ids(c, "copy") == ids(c, deep), "an exported fork is whole")
    c.call("generate", model="tale", session="gone", text="A trunk of some length that is on the disk", max_tokens=40,
           sampling=GREEDY, ignore_eos=True)
    gone = c.call("sessions.fork", session="gone", names=["last"])["sessions"][0]["parent"]
    c.call("sessions.remove", session="gone")
    box.stop()  # all of its files are written by then
    kept = [f for f in files() if f[1] == gone]
    box.start()
    c = box.client()
    c.call("sessions.import", version=1, name="last", model="tale", turns=page["turns"], replace=True)
    check(kept and not [f for f in files() if f[1] == gone] and
          box.sql("SELECT count(*) FROM sessions WHERE id = ?", gone) == [(0,)],
          "an import in the place of the last fork takes what its parent left along", (kept, files()))
    c.call("backup", path=box.dir + "/copy.db")
    check(os.path.exists(box.dir + "/copy.db"), "and so is a backup")

    # Adoption.
    before = ids(c, "story")
    c.call("sessions.fork", session="story", names=["winner"])
    c.call("sessions.fork", session="story", names=["loser"])
    c.call("generate", session="winner", text=" And they lived", max_tokens=10, sampling=GREEDY)
    won = ids(c, "winner")
    c.call("sessions.fork", session="winner", names=["grandchild"])
    r = c.call("sessions.adopt", session="winner")["session"]
    check(r["name"] == "story" and ids(c, "story") == won and won[:len(before)] == before, "a fork's tail is its parent's", r)
    refused(c, "SESSION_NOT_FOUND", "winner", "sessions.show", session="winner")
    check(ids(c, "grandchild") == won and ids(c, "loser") == before, "other forks are what they were")
    u = c.call("generate", session="story", tokens=[300], max_tokens=0)["usage"]
    check(u["computed_tokens"] <= 16, "with its KV", u)
    refused(c, "CONFLICT", "are lost", "sessions.adopt", session="loser")
    refused(c, "CONFLICT", "another fork", "sessions.adopt", session="loser", replace=True)
    c.call("sessions.remove", session="grandchild")
    r = c.call("sessions.adopt", session="loser", replace=True)["session"]
    check(r["tokens"] == len(before) and ids(c, "story") == before, "what the parent had can be dropped", r)
    turn = {"session": "story", "text": " He", "max_tokens": 5, "sampling": GREEDY, "request": "kept"}
    kept = c.call("generate", **turn)
    c.call("sessions.fork", session="story", names=["back"])
    c.call("generate", session="story", text=" She", max_tokens=5, sampling=GREEDY, request="dropped")
    c.call("sessions.adopt", session="back", replace=True)
    check(c.call("generate", **turn)["stream"] == kept["stream"], "a request whose turn is kept is not made again")
    refused(c, "STREAM_NOT_FOUND", "dropped", "stream.attach", request="dropped")

    # Refusals that name the problem.
    refused(c, "SESSION_NOT_FOUND", "nonesuch", "sessions.fork", session="nonesuch")
    refused(c, "INVALID_PARAMS", "has", "sessions.fork", session="copy", at=100000)
    refused(c, "INVALID_PARAMS", "at: -1 is under 0", "sessions.fork", session="copy", at=-1)
    refused(c, "INVALID_PARAMS", "names: there are 1 for 2", "sessions.fork", session="copy", count=2, names=["x"])
    refused(c, "INVALID_PARAMS", "sessions.fork.names[1]: ", "sessions.fork", session="copy", count=2, names=["x", "y\n"])
    refused(c, "SESSION_EXISTS", '"story"', "sessions.fork", session="copy", count=2, names=["fresh", "story"])
    refused(c, "SESSION_NOT_FOUND", "fresh", "sessions.show", session="fresh")
    refused(c, "INVALID_PARAMS", "is an id", "sessions.fork", session="copy", names=["0123456789abcdef"])
    refused(c, "INVALID_PARAMS", "names[1]: has 257 bytes, and 256 is the limit", "sessions.fork", session="copy", count=2,
            names=["fresh", "m" * 257])
    refused(c, "SESSION_NOT_FOUND", "fresh", "sessions.show", session="fresh")
    c.call("sessions.fork", session="copy", names=["m" * 256])
    refused(c, "INVALID_PARAMS", "count", "sessions.fork", session="copy", count=65)
    refused(c, "SESSION_NOT_FOUND", "is no fork", "sessions.adopt", session="copy")
    box.stop()

    # A turn is dropped while a slow disk is still writing its KV.
    box.start(sync_ms=1000)
    c = box.client()
    c.call("generate", model="tale", session="slow", text="Once upon a time there was a king", max_tokens=20, ignore_eos=True,
           sampling=GREEDY)
    slow = c.call("sessions.fork", session="slow", at=20, names=["part"])["sessions"][0]["parent"]
    c.call("generate", session="slow", text=" He", max_tokens=100, ignore_eos=True, sampling=GREEDY)
    c.call("sessions.adopt", session="part", replace=True)
    box.stop()  # all files are written by then
    check(not [f for f in files() if f[1] == slow and f[2] + f[3] > 20], "a dropped turn leaves no KV, however late that is",
          files())

    # An engine is killed while it writes KV: nothing of that stays, although hearthd goes on.
    box.start(sync_ms=1000)
    c = box.client()
    c.call("generate", model="tale", session="torn", text="Once upon a time there was a queen", max_tokens=40, ignore_eos=True,
           sampling=GREEDY)
    until = time.monotonic() + 60
    while not glob.glob(box.state + "/kv/*.tmp") and time.monotonic() < until:
        pass
    torn = glob.glob(box.state + "/kv/*.tmp")
    engine = c.call("status")["engine"]["pid"]
    os.kill(engine, 9)
    c.call("sessions.remove", session="torn")
    while c.call("status")["engine"]["pid"] == engine:  # until hearthd has seen its death
        pass
    check(torn and not [p for p in torn if os.path.exists(p)], "a killed engine leaves no file that it was writing", torn)
    box.stop()

    # Killed during an adoption: before it is committed, and when the first of the streams that it drops is to be
    # removed.
    for n, done in (1, False), (2, True):
        box.start("daemon", "journal/", n)
        c = box.client()
        before = ids(c, "story")
        c.call("sessions.fork", session="story", names=["again%d" % n])
        late = {"session": "story", "text": " He", "max_tokens": 5, "sampling": GREEDY, "request": "late%d" % n}
        stream = c.call("generate", **late)["stream"]
        after = ids(c, "story")
        box.arm()
        try:
            c.call("sessions.adopt", session="again%d" % n, replace=True)
        except Exception:
            pass
        box.bury(-9)
        box.start()
        c = box.client()
        now = ids(c, "story")
        marks = glob.glob(box.state + "/journal/removing-*")
        check(now == (before if done else after) and before != after and not marks,
              "killed in an adoption, it is done or it is not", (n, marks))
        if done:
            refused(c, "STREAM_NOT_FOUND", late["request"], "stream.attach", request=late["request"])
        else:
            check(c.call("generate", **late)["stream"] == stream, "where it is not, the parent's streams are there")
        check(c.call("generate", **turn)["stream"] == kept["stream"], "... and those of turns that it keeps")
        box.stop()

    # A turn that another program's lock on the database keeps from being written, and that a later one has replaced, is
    # an error for whoever asks again, not only for who asked first.
    box.start()
    c = box.client()
    db = sqlite3.connect(box.state + "/sessions.db", isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    lost, stays = (dict(session="story", text=" It", max_tokens=4, sampling=GREEDY, request=r) for r in ("lost", "stays"))
    answers = [c.call("generate", **g) for g in (lost, stays)]
    check([a["finish_reason"] for a in answers] == ["error"] * 2, "two turns cannot be written", answers)
    db.close()
    check(c.call("generate", **stays)["finish_reason"] == "length", "the later one is when it can be")
    for again in "again", "after a restart":
        told = c.call("generate", **lost)
        check(told["finish_reason"] == "error" and told["error"].startswith("STORE"), "the other one is not: " + again, told)
        box.kill()
        box.start()
        c = box.client()
    box.stop()

    # A stream that could not be taken up, because its session is damaged, goes with the session.
    box.start()
    c = box.client()
    c.call("generate", model="tale", session="damaged", text="Once", max_tokens=3)
    c.submit("generate", session="damaged", text=" He", max_tokens=900, ignore_eos=True, request="torn off")
    while c.read()[1] != "stream.tokens":
        pass
    before = set(os.listdir(box.state + "/journal"))
    box.kill()
    box.sql("UPDATE sessions SET n_tok = n_tok + 1 WHERE name = 'damaged'")
    box.start()
    c = box.client()
    refused(c, "STREAM_NOT_FOUND", "torn off", "stream.attach", request="torn off")
    c.call("sessions.remove", session="damaged")
    after = set(os.listdir(box.state + "/journal"))
    check(len(before - after) == 2, "a stream that could not be taken up goes with its session", (before, after))
    box.stop()

    # Another model has taken the place of the one that made a session: a cut within a turn needs its vocabulary.
    tiny = os.environ.get("HEARTH_SHARED", "../shared") + "/models/tiny/phi3.gguf"
    if os.path.exists(tiny):
        box.start()
        c = box.client()
        path = box.dir + "/place.gguf"
        shutil.copy(tiny, path)
        made = c.call("generate", model=path, session="moved", text="Once upon", max_tokens=20, ignore_eos=True)
        c.call("models.unload", model=path)
        shutil.copy(glob.glob(harness.SRC + "/contrib/models/tale*.gguf")[0], path + ".new")
        os.rename(path + ".new", path)
        for at in made["usage"]["prompt_tokens"] + 8, made["usage"]["prompt_tokens"] - 1:
            refused(c, "MODEL_MISMATCH", "other texts", "sessions.fork", session="moved", at=at)
        box.stop()

    # Killed during a write, at each of the first ones: the fork exists or it does not, and everything is sound.
    sound, killed = True, 0
    for n in range(1, 9):
        box.start("daemon", "sessions.db-wal", n)
        c = box.client()
        base = len(ids(c, "story"))
        box.arm()
        made = []
        try:
            for i in range(4):
                c.call("sessions.fork", session="story", names=["k%d.%d" % (n, i)])
                made.append("k%d.%d" % (n, i))
            c.call("sessions.remove", session=made[0])
            made.pop(0)
        except Exception:
            pass
        if len(made) == 3 and box.daemon.poll() is None:
            box.kill()
        else:
            killed += 1
            box.bury(-9)
        box.start()
        c = box.client()
        names = [s["name"] for s in c.call("sessions.list")["sessions"]]
        sound = sound and set(made[1:]) <= set(names) and all(len(ids(c, m)) == base for m in made[1:])
        sound = sound and not any(s["damaged"] for s in c.call("sessions.list")["sessions"] if "damaged" in s)
        box.stop()
    check(sound and killed > 4, "killed in its writes, what was answered is there, whole", (sound, killed))
finally:
    harness.end(box)
