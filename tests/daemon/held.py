#!/usr/bin/python3
"""Text that is held back because a stop string may begin there is not lost if the stream ends before an engine has
resumed it. Prints TAP."""
import os, signal, sys, time

sys.dont_write_bytecode = True
import harness
from harness import Box, Wrong, check

PROMPT, LONG, SEEN = "Once upon a time", 600, 12

box = Box("held")


def begin(c, stop):
    """Begins a stream whose text is held back from some token on, and waits for that token."""
    id = c.submit("generate", model="tale", text=PROMPT, max_tokens=LONG, stop=[stop], session="s", logprobs=1,
                  sampling={"temperature": 0})
    n = 0
    while n < SEEN + 6:
        m = c.read()
        if not m or m[0] == 1:
            raise Wrong("the stream has ended: %r" % m)
        if m[1] == "stream.tokens":
            n, stream = m[2][0]["index"] + m[2][0]["count"], m[2][0]["stream"]
    return id, stream


def whole(c, what, got):
    """Checks that the text of all tokens is in the result, and in the session."""
    says = c.call("detokenize", model="tale", tokens=got["tokens"])["text"]
    turn = c.call("sessions.show", session="s")["turns"][-1]
    check(got["finish_reason"] == "cancelled" and len(got["tokens"]) >= SEEN and got["text"] == says and
          turn["text"] == says and len(got["logprobs"]) == len(got["tokens"]) == got["usage"]["completion_tokens"],
          what, "%r, and the tokens say %r" % (got, says))
    c.call("sessions.remove", session="s")


try:
    box.start()
    c = box.client()
    text = c.call("generate", model="tale", text=PROMPT, max_tokens=LONG, sampling={"temperature": 0})["text"]
    first = c.call("generate", model="tale", text=PROMPT, max_tokens=SEEN, sampling={"temperature": 0})["text"]
    stop = text[len(first):len(first) + 1000] + "#"
    id, stream = begin(c, stop)
    c.call("sessions.fork", session="s", names=["fork"])
    c.call("cancel", stream=stream)
    whole(c, "a stream that is cancelled", c.answer(id))
    fork = c.call("sessions.export", session="fork")["turns"][-1]
    check(len(fork["tokens"]) >= SEEN and
          fork["text"] == c.call("detokenize", model="tale", tokens=fork["tokens"])["text"],
          "a fork of a stream that runs", fork)
    for delay in 0, 0.01, 0.03, 0.1:
        id, stream = begin(c, stop)
        os.kill(c.call("status")["engine"]["pid"], signal.SIGKILL)
        time.sleep(delay)
        c.call("cancel", stream=stream)
        whole(c, "one that is cancelled %d ms after its engine died" % (1000 * delay), c.answer(id))
    id, stream = begin(c, stop)
    box.kill()
    c.close()
    box.start()
    c = box.client()
    c.call("cancel", stream=stream)
    whole(c, "one that is cancelled when hearthd has been killed and started", c.call("stream.attach", stream=stream))
finally:
    harness.end(box)
