#!/usr/bin/python3
"""32 clients that send the same documents at once, and eight forks of a session, beside cancellations, clients that
disconnect, a killed engine and a killed hearthd: every text equals that of a run by itself, in another hearthd without
other clients. Prints TAP.
"""
import os, select, signal, sys

sys.dont_write_bytecode = True
import harness
from harness import Box, Client, check

CLIENTS, TOKENS, FORKS = 32, 24, 8
WORDS = "the king and his three daughters went into the forest where an old woman lived in a house of bread ".split()
DOCUMENTS = [" ".join(WORDS[(i * k) % len(WORDS)] for i in range(300)) for k in (3, 7)]


def request(i):
    """One of two documents with an end of its own; every other request samples at random."""
    return {"model": "tale", "text": DOCUMENTS[i % 2] + " %d" % (i // 4), "max_tokens": TOKENS, "ignore_eos": True,
            "sampling": {"temperature": 0.9 if i % 2 else 0, "seed": i, "repetition_penalty": 1.0}}


def branch(i):
    return {"text": " And the %s" % WORDS[i], "max_tokens": TOKENS, "ignore_eos": True,
            "sampling": {"temperature": 1.0, "seed": 100 + i, "repetition_penalty": 1.0}}


def session(c):
    c.call("generate", model="tale", session="trunk", text=DOCUMENTS[0], max_tokens=20, ignore_eos=True,
           sampling={"temperature": 0})
    return [s["name"] for s in c.call("sessions.fork", session="trunk", count=FORKS)["sessions"]]


def events(clients, until, act=None):
    """Reads all clients' messages until `until` is true; act(i, n) is called with the number n of tokens that client i
    has."""
    made, ended = [0] * len(clients), {}
    while not until(made, ended):
        ready = select.select([c.s for c in clients if c and not c.gone], [], [], 60)[0]
        if not ready:
            raise harness.Wrong("nothing came for a minute")
        for i, c in enumerate(clients):
            if not c or c.s not in ready:
                continue
            try:
                data = c.s.recv(65536)
            except ConnectionError:
                data = b""
            if not data:
                c.gone = True
                continue
            c.un.feed(data)
            for m in c.un:
                if m[0] == 2 and m[1] == "stream.tokens":
                    made[i] += m[2][0]["count"]
                    if act:
                        act(i, made[i])
                elif m[0] == 1 and m[1] == c.id:
                    ended[i] = m[3] or m[2]
    return ended


def crowd(box, name):
    clients = []
    for i in range(CLIENTS):
        c = Client(box.socket)
        c.gone = False
        c.submit("generate", request="%s %d" % (name, i), **request(i))
        clients.append(c)
    return clients


def everybody(made, ended):
    return len(ended) == CLIENTS


def texts(ended):
    return [ended[i]["tokens"] if isinstance(ended[i], dict) else ended[i] for i in range(CLIENTS)]


alone, box = Box("alone"), Box("crowd")
for b in alone, box:
    b.configure("threads = 2", "streams_per_uid = 64", "connections_per_uid = 96")
try:
    alone.start()
    c = alone.client()
    want = [c.call("generate", **request(i))["tokens"] for i in range(CLIENTS)]
    want_forks = [c.call("generate", session=name, **branch(i))["tokens"] for i, name in enumerate(session(c))]
    alone.stop()

    # All at once: the same texts, and the common part is computed once.
    box.start()
    c = box.client()
    lengths = [len(c.call("tokenize", model="tale", text=request(i)["text"])["ids"]) for i in range(CLIENTS)]
    ended = events(crowd(box, "all"), everybody)
    check(texts(ended) == want, "32 at once: each text is what it is alone", texts(ended))
    computed = sum(ended[i]["usage"]["computed_tokens"] for i in range(CLIENTS))
    check(computed < 2 * max(lengths) + 32 * 40, "the documents are computed once each", (computed, sum(lengths)))

    # Forks of a session, all at once.
    names = session(c)
    before = len(c.call("sessions.show", session="trunk", tokens=True)["tokens"])
    clients = []
    for i, name in enumerate(names):
        f = Client(box.socket)
        f.gone = False
        f.submit("generate", session=name, **branch(i))
        clients.append(f)
    ended = events(clients, lambda made, ended: len(ended) == FORKS)
    check([ended[i]["tokens"] for i in range(FORKS)] == want_forks, "8 forks at once: each goes on as it does alone")
    # but for 15 tokens at most, and the answer's last one, which need not have been computed
    check(all(ended[i]["usage"]["reused_tokens"] >= before - 1 - 15 for i in range(FORKS)), "with the KV of what they share",
          [ended[i]["usage"] for i in range(FORKS)])

    # Cancellations and disconnects do not affect other clients. A client that has disconnected retries and gets all of
    # it.
    clients = crowd(box, "some")
    cancelled, left = {3, 4, 9, 20, 31}, {5, 6, 17}

    def act(i, n):
        if i in cancelled and n >= 1 + i % 7:
            box_client.submit("cancel", request="some %d" % i)
        if i in left and n >= 2 and clients[i]:
            clients[i].close()
            clients[i] = None

    box_client = box.client()
    ended = events(clients, lambda made, ended: len(ended) == CLIENTS - len(left), act)
    bad = [i for i in ended if i not in cancelled and ended[i]["tokens"] != want[i]]
    check(not bad, "beside cancels and clients that go the others' texts are theirs", bad)
    bad = [i for i in cancelled if ended[i]["tokens"] != want[i][:len(ended[i]["tokens"])]]
    check(not bad, "what was cancelled is a beginning", bad)
    bad = [i for i in left if c.call("generate", request="some %d" % i, **request(i))["tokens"] != want[i]]
    check(not bad, "who asks again gets what he would have got", bad)

    # The engine is killed in the middle, twice.
    killed = []

    def kill_engine(i, n):
        if len(killed) < 2 and n >= 5 + 10 * len(killed):
            pid = box.client().call("status")["engine"]["pid"]
            if pid and pid not in killed:
                killed.append(pid)
                os.kill(pid, signal.SIGKILL)

    ended = events(crowd(box, "engine"), everybody, kill_engine)
    check(len(killed) == 2 and texts(ended) == want, "the engine is killed twice: each text is what it is alone",
          (killed, [i for i in range(CLIENTS) if texts(ended)[i] != want[i]]))

    # hearthd is killed in the middle; clients that retry get their texts.
    events(crowd(box, "daemon"), lambda made, ended: sum(made) > CLIENTS * TOKENS // 3)
    box.kill()
    box.start()
    ended = events(crowd(box, "daemon"), everybody)
    check(texts(ended) == want, "hearthd is killed: each text is what it is alone",
          [i for i in range(CLIENTS) if texts(ended)[i] != want[i]])

    # Nothing is left behind.
    c = box.client()
    e = c.call("status")["engine"]
    check(e["running"] == e["queued"] == 0 and all(m["sequences"] == 0 for m in e["models"]), "and nobody is left", e)
    box.stop()
finally:
    alone.remove()
    harness.end(box)
