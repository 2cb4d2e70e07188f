#!/usr/bin/python3
"""A request can be followed through hearthd and its engine: its stages, in order and with its number, in a log at the
level debug, and by streams.trace without the log.

It uses a private hearthd with the real engine. The lines must agree with the answers. Prints TAP.
"""
import os, re, signal, sys, time

sys.dont_write_bytecode = True
import harness
from harness import Box, check

PROMPT = "Once upon a time there was a king who had three daughters, and the youngest of them"
LINE = re.compile(r"\S+ \S+ (hearthd|hearth-engine)\[\d+\] debug: stage=(\S+)((?: [a-z]+=[A-Za-z0-9_.-]+)*)$")
box = Box("stages")


def start(*lines):
    box.configure("threads = 2", *lines)
    box.start()
    return harness.Client(box.socket)


def events():
    """(program, stage, {key: value}) of every line with a stage."""
    found = []
    for line in box.log().splitlines():
        if "stage=" in line:
            m = LINE.match(line)
            check(m, "the line is made of stage and key=value", line) if not m else None
            found.append((m[1], m[2], dict(p.split("=") for p in m[3].split())))
    return found


def of_stream(number):
    return [e for e in events() if e[2].get("stream") == str(number)]


def order(number, program, skip=("state", "saved")):
    return [e[1] for e in of_stream(number) if e[0] == program and e[1] not in skip]


def numbers(number, stage):
    return [e[2] for e in of_stream(number) if e[1] == stage]


def say(c, text, n=20, **more):
    return c.call("generate", model="tale", text=text, max_tokens=n, sampling={"temperature": 0}, **more)


def await_event(c, name):
    """Reads up to an event of that name; when it was read, and its body."""
    while True:
        m = c.read()
        if m[:2] == [2, name]:
            return time.monotonic(), m[2][0]


try:
    # a turn, and the next one of its session, which reuses the first one's KV
    c = start("log_level = debug", "kv_disk = 1G", "kv_ram = 16M")
    first = say(c, PROMPT, session="one")
    second = say(c, " And then", session="one")
    told = [c.call("streams.trace", stream=number)["events"] for number in (1, 2)]
    box.stop()
    check(order(1, "hearthd") == ["created", "submitted", "first-token", "ended", "committed"],
          "hearthd's stages, in their order", of_stream(1))
    check(order(1, "hearth-engine") == ["received", "admitted", "first-step", "finished"],
          "the engine's stages, in their order", of_stream(1))
    states = [e["state"] for e in numbers(1, "state")]
    check(states[:3] == ["queued", "running", "draining"] and states[-1] == "gone", "the stream's states", states)
    requests = [e[2] for e in events() if e[1] == "request" and e[2]["method"] == "generate"]
    check([r["id"] for r in requests] == [numbers(i, "created")[0]["id"] for i in (1, 2)],
          "the request that made the stream can be found", requests)
    for number, r in (1, first), (2, second):
        usage, want = r["usage"], {k: r["usage"][k + "_tokens"] for k in ("reused", "restored", "computed")}
        ended, finished, admitted = (numbers(number, s)[0] for s in ("ended", "finished", "admitted"))
        check(all(int(ended[k]) == int(finished[k]) == int(admitted[k]) == want[k] for k in want),
              "stream %d: what was reused, restored and computed is what the answer says" % number,
              (ended, finished, admitted, usage))
        check(int(ended["completion"]) == len(r["tokens"]) and ended["reason"] == finished["reason"] == r["finish_reason"],
              "stream %d: so are its tokens and the reason of its end" % number, ended)
        check(finished["seq"] == admitted["seq"] == numbers(number, "received")[0]["seq"],
              "stream %d: one sequence computed it" % number)
    check(second["usage"]["reused_tokens"] > 0, "the second turn reused KV", second["usage"])
    for number, life in (1, told[0]), (2, told[1]):
        check([e["at"] for e in life] == sorted(e["at"] for e in life) and life[-1]["at"] - life[0]["at"] < 60,
              "streams.trace %d is in the order of time" % number, life)
        lines = [(e[0].replace("hearth-", ""), e[1]) for e in of_stream(number)]
        said = [(e["where"], e["stage"]) for e in life]
        check(sorted(s for s in said if s[1] != "saved") == sorted(s for s in lines if s[1] != "saved"),
              "it has the stages that the log has", (said, lines))
        check(all({f["name"]: f["value"] for f in e["fields"]} ==
                  {k: v for k, v in numbers(number, e["stage"])[0].items() if k != "stream"}
                  for e in life if e["stage"] in ("received", "admitted", "finished", "ended", "committed")),
              "with the same numbers", life)
    tiers = {e["tier"] for e in numbers(1, "saved")}
    check(tiers == {"host", "file"}, "KV was saved to both tiers", numbers(1, "saved"))
    committed = numbers(1, "committed")[0]
    check(int(committed["generated"]) == len(first["tokens"]), "the turn was committed", committed)

    # two streams in a pool that holds hardly more than one: the younger one is preempted, and admitted once more
    seen = len(events())
    c = start("log_level = debug", "kv_disk = 0", "kv_ram = 0", "kv_bytes = 6M")
    ids = [c.submit("generate", model="tale", text=PROMPT + " " + word, max_tokens=400, sampling={"temperature": 0})
           for word in ("alone", "again")]
    for i in ids:
        c.answer(i)
    box.stop()
    preempted = {e[2]["stream"] for e in events()[seen:] if e[1] == "preempted"}
    check(preempted, "a sequence was preempted", events()[seen:])
    for number in preempted:
        stages = [s for s in order(number, "hearth-engine") if s in ("admitted", "preempted")]
        check(stages == ["admitted"] + ["preempted", "admitted"] * (len(stages) // 2),
              "it is admitted once more after each time", stages)

    # a cancelled stream, and a request that is refused; no line contains text of the client
    seen = len(events())
    c = start("log_level = debug", "kv_disk = 0", "kv_ram = 0")
    i = c.submit("generate", model="tale", text=PROMPT, max_tokens=900, sampling={"temperature": 0}, request="stage=x\n")
    c.call("cancel", request="stage=x\n")
    check(c.answer(i)["finish_reason"] == "cancelled", "the stream is cancelled")
    try:
        say(c, PROMPT, session="stage=forged\nstage=forged")
        check(False, "a session's name with a line's end is refused")
    except harness.Refused:
        pass
    box.stop()
    new = events()[seen:]
    check([e[2]["reason"] for e in new if e[1] == "finished"] == ["cancelled"]
          and "cancelling" in [e[2]["state"] for e in new if e[1] == "state"], "its stages say so", new)
    check([e[2]["error"] for e in new if e[1] == "refused"] == ["INVALID_PARAMS"], "so do the refused request's", new)
    check("forged" not in box.log(), "a client's words are in no line")

    # the engine dies: its earlier reports are kept, and the next one's stages follow; without any line in the log
    c = start("log_level = info", "kv_disk = 0", "kv_ram = 0")
    lines = len(events())
    say(c, "Once", 1)  # the engine is ready
    i = c.submit("generate", model="tale", text=PROMPT, max_tokens=900, sampling={"temperature": 0, "seed": 1})
    dead = c.call("status")["engine"]["pid"]
    os.kill(dead, signal.SIGKILL)
    number = c.answer(i)["stream"]
    life = c.call("streams.trace", stream=number)["events"]
    box.stop()
    stages = [e["stage"] for e in life]
    check(stages.count("engine-died") == 1 and stages.count("submitted") == 2, "the death of the engine is seen", life)
    after = [e for e in life[stages.index("engine-died"):] if e["where"] == "engine"]
    check([e["stage"] for e in after] == ["received", "admitted", "first-step", "finished"]
          and all(e["engine"] != dead for e in after), "and what the next one does", life)
    check(len(events()) == lines, "for which no line is written")

    # the answer's timings have what no engine, or not the last one, has seen
    c = start("log_level = info", "kv_disk = 0", "kv_ram = 0", "streams = 1")
    say(c, "Once", 1)
    long = c.submit("generate", model="tale", text=PROMPT, max_tokens=900, ignore_eos=True, sampling={"temperature": 0})
    first, _ = await_event(c, "stream.tokens")
    d = harness.Client(box.socket)
    i = d.submit("generate", model="tale", text="Once", max_tokens=2, ignore_eos=True)
    queued, _ = await_event(d, "stream.queued")
    c.answer(long)
    waited = 1e3 * (time.monotonic() - queued)
    t = d.answer(i)["timings"]
    check(t["queue_ms"] > waited / 2 and t["total_ms"] >= t["queue_ms"], "the wait for room is part of queue_ms", (waited, t))
    before = c.call("status")["served"]
    begun = time.monotonic()
    i = c.submit("generate", model="tale", text=PROMPT, max_tokens=900, ignore_eos=True, sampling={"temperature": 0})
    first, got = await_event(c, "stream.tokens")
    while got["index"] < 600:
        now, got = await_event(c, "stream.tokens")
    os.kill(d.call("status")["engine"]["pid"], signal.SIGKILL)
    t = c.answer(i)["timings"]
    check(t["queue_ms"] + t["prefill_ms"] <= 1e3 * (first - begun) and t["decode_ms"] > 1e3 * (now - first) / 2 and
          t["total_ms"] >= t["prefill_ms"] + t["decode_ms"], "of two engines, they are those of the whole stream",
          (first - begun, now - first, t))
    after = c.call("status")["served"]
    sums = {k: after[k]["sum"] - before[k]["sum"] for k in ("first_token", "per_token", "total")}
    check(abs(sums["first_token"] - (t["queue_ms"] + t["prefill_ms"]) / 1e3) < 1e-6 and
          abs(sums["per_token"] - t["decode_ms"] / 1e3 / 899) < 1e-6 and abs(sums["total"] - t["total_ms"] / 1e3) < 1e-6,
          "and the totals have the same", (sums, t))
    say(c, PROMPT, session="counted")
    before = c.call("status")["served"]
    harness.refused(c, "CONTEXT_FULL", "the prompt has", "generate", session="counted", text="x " * 2000)
    after = c.call("status")["served"]
    check(after["error"] == before["error"] + 1 and after["prompt_tokens"] == before["prompt_tokens"],
          "a request that is refused has no prompt tokens in the totals, not its session's either", (before, after))
    box.stop()

    # nothing in the log if the level is off
    seen = len(events())
    c = start("log_level = info")
    say(c, PROMPT)
    box.stop()
    check(len(events()) == seen, "nothing is traced at log_level = info")
finally:
    harness.end(box)
sys.exit(harness.failed > 0)
