#!/usr/bin/python3
"""What is removed or preempted to make room, when sessions are over their limit of bytes, and when several streams are
requested at once. Prints TAP.
"""
import os, signal, sys, threading, time

sys.dont_write_bytecode = True
from harness import Box, Refused, Wrong, check, end, refused

GREEDY = {"temperature": 0, "logit_bias": [[0, -100]]}
box = Box("room")


def until(is_so, what):
    """Sends requests to hearthd, and so waits for iterations of its loop, until the condition is true."""
    late = time.monotonic() + 60
    while not is_so():
        if time.monotonic() > late:
            raise Wrong("not within a minute: " + what)
        c.call("streams.list")


def reread(*lines):
    before = box.log().count("was read again")
    box.configure(*lines)
    box.daemon.send_signal(signal.SIGHUP)
    until(lambda: box.log().count("was read again") > before, "the configuration is read again")


def names(c):
    return sorted(s["name"] for s in c.call("sessions.list")["sessions"])


def turn(c, session, **more):
    return c.call("generate", model="tale", session=session, text="Once upon a time there was a king. " * 8, max_tokens=4,
                  sampling=GREEDY, **more)


def load(tokens, one, told):
    """Requests so many tokens again and again, so that some requests end while others continue."""
    m = box.client()
    while True:
        m.call("generate", max_tokens=tokens, **one)
        os.write(told, b".")


try:
    box.start()
    c = box.client()

    # Three sessions, the first of which was used least recently: if it is used when the total is over the limit, others
    # are removed instead of it.
    for name in "old", "middle", "new":
        turn(c, name)
    size = c.call("sessions.list")["sessions"][0]["bytes"]
    reread("session_bytes_per_uid = %d" % (2 * size + size // 2))
    c.call("generate", session="old", text="And", max_tokens=1, dry=True)
    check(names(c) == ["middle", "new", "old"], "what is only measured removes nothing", names(c))
    tokens = c.call("sessions.show", session="old", tokens=True)["tokens"]
    r = c.call("sessions.fork", session="old")["sessions"][0]
    check(r["tokens"] == len(tokens) and c.call("sessions.show", session="old.1", tokens=True)["tokens"] == tokens,
          "a fork's parent is not what makes way for it", r)
    check(names(c) == ["new", "old", "old.1"], "the other does", names(c))
    reread("session_bytes_per_uid = %d" % (size + size // 2))
    r = c.call("generate", session="old", text=" And", max_tokens=1, sampling=GREEDY)
    check(r["usage"]["prompt_tokens"] > len(tokens), "nor is a session that goes on", r["usage"])
    check("old" in names(c) and "new" not in names(c), "others are", names(c))

    # Data that the forks of a turn would each need are written at once.
    reread()
    c.call("sessions.import", version=1, name="long", model="tale",
           turns=[{"role": "text", "text": b"x" * 400000, "tokens": [300 + i % 3000 for i in range(100000)]}])
    refused(c, "LIMIT", "each would have", "sessions.fork", session="long", at=99999, count=64)
    check(len(c.call("sessions.fork", session="long", at=99999, count=4)["sessions"]) == 4, "a few are made")

    # A request for more streams than are allowed is refused, and those behind it continue.
    reread("streams_per_uid = 4")
    busy = box.client()
    first = busy.submit("generate", model="tale", text="Once", max_tokens=4000, sampling=GREEDY, ignore_eos=True)
    until(lambda: c.call("streams.list")["streams"], "a stream runs")
    four = box.client()
    several = four.submit("generate", model="tale", text="The king", max_tokens=4, sampling=GREEDY, n=4)
    until(lambda: c.call("status")["waiting"] == 4, "four wait for it to end")
    reread("streams_per_uid = 2")
    c.call("cancel", stream=c.call("streams.list")["streams"][0]["stream"])
    try:
        four.answer(several)
        check(False, "more than there may be are refused")
    except Refused as e:
        check(e.args[0] == "LIMIT" and "4 streams are wanted, and 2 is the limit" in e.args[1],
              "more than there may be are refused", e)
    check(c.call("generate", model="tale", text="The king", max_tokens=2)["usage"]["completion_tokens"] == 2,
          "and nobody waits behind them")

    reread("streams_per_uid = 16")
    refused(c, "LIMIT", "16 choices each keep", "generate", model="tale", text="x" * (3 << 20), max_tokens=1, n=16)

    # A request for all streams gets them, however many requests wait for one stream each; and others continue while it
    # waits for a stream that does not end.
    if os.geteuid() == 0:
        reread("streams_per_uid = 16", "streams = 16", "queue = 100", "queue_per_uid = 100")
        for path in box.dir, box.dir + "/run", os.path.dirname(box.socket):
            os.chmod(path, 0o755)
        os.chmod(box.socket, 0o666)
        one = dict(model="tale", text="Once", sampling=GREEDY, ignore_eos=True, **{"class": "interactive"})
        out, told = os.pipe()
        other = os.fork()
        if other == 0:
            os.setgid(65534)
            os.setuid(65534)
            threads = [threading.Thread(target=load, args=(5 + 3 * k, one, told)) for k in range(24)]
            [t.start() for t in threads]
            [t.join() for t in threads]
        os.close(told)
        os.read(out, 1)
        # A steady load of a higher class does not keep another user waiting for ever.
        for streams, lower in (2, {"class": "normal"}), (2, {"class": "background"}), (16, {"class": "background", "n": 8}):
            reread("streams_per_uid = %d" % streams, "streams = %d" % streams, "queue = 100", "queue_per_uid = 100")
            until(lambda: c.call("status")["waiting"], "there are more of them than streams")
            try:
                begun, why = c.call("generate", model="tale", text="The king", max_tokens=2, deadline_ms=60000, **lower), ""
            except Refused as e:
                begun, why = None, e
            check(begun, "a request begins beside interactive ones of another user: %s" % lower, why)
        r = c.call("generate", model="tale", text="The king", max_tokens=2, n=16, **{"class": "interactive"})
        check(len(r["choices"]) == 16, "sixteen streams are had beside a steady load of single ones")
        endless = box.client()
        endless.submit("generate", model="tale", text="Once", max_tokens=1000000, ignore_eos=True, sampling=GREEDY, request="long")
        all_of_them = box.client()
        i = all_of_them.submit("generate", model="tale", text="The king", max_tokens=2, n=16)
        until(lambda: c.call("status")["waiting"] >= 16, "sixteen wait")
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)
        os.close(out)
        c.call("cancel", request="long")
        check(len(all_of_them.answer(i)["choices"]) == 16, "and where one runs for long when that is cancelled")
    reread("streams_per_uid = 16")

    # A request for one choice takes over a session whose client has disconnected, like a request without n.
    gone = box.client()
    gone.submit("generate", model="tale", session="left", text="Once", max_tokens=4000, sampling=GREEDY, ignore_eos=True)
    until(lambda: [s for s in c.call("streams.list")["streams"] if s["tokens"]], "a stream has tokens")
    gone.close()
    until(lambda: c.call("streams.list")["streams"][0]["attached"] == 0, "nobody reads it")
    r = c.call("generate", session="left", text=" And", max_tokens=2, sampling=GREEDY, n=1)
    check(len(r["choices"]) == 1 and r["choices"][0]["finish_reason"] == "length", "a session is taken over with n", r)

    # A turn that is still queued has its whole history, even if the fork that it continues is adopted meanwhile.
    template = "{% for m in messages %}[{{ loop.index }}] {{ m.content }}\n{% endfor %}"

    def say(session, text, **more):
        return dict(session=session, messages=[{"role": "user", "content": text}], max_tokens=12, sampling=GREEDY,
                    chat_template=template, **more)

    def family(name):
        c.call("generate", model="tale", **say(name, "My name is Hans."))
        for child, text in ("F", "I am a miller."), ("FH", "I have three sons."):
            c.call("sessions.fork", session=name + child[:-1], names=[name + child])
            c.call("generate", **say(name + child, text))

    family("a")
    family("b")
    c.call("generate", **say("aFH", "Who am I?"))
    want = c.call("sessions.show", session="aFH", tokens=True)["tokens"]
    c.call("yield", all=True, seconds=60)
    late = box.client()
    i = late.submit("generate", **say("bFH", "Who am I?"))
    until(lambda: c.call("streams.list")["streams"], "a turn waits for memory")
    c.call("sessions.adopt", session="bF")
    os.kill(c.call("status")["engine"]["pid"], signal.SIGKILL)
    until(lambda: c.call("status")["engine"]["restarts"] > 0, "the engine has died")
    c.call("yield", seconds=0)
    late.answer(i)
    check(c.call("sessions.show", session="bFH", tokens=True)["tokens"] == want, "an adopted fork's turns are there still")
finally:
    end(box)
