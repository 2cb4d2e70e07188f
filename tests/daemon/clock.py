#!/usr/bin/python3
"""The clock was ahead, and was set right while hearthd was not running: sessions that are used from then on count as
the last used ones, in listings and when room is made. Prints TAP.
"""
import sys

sys.dont_write_bytecode = True
import harness
from harness import Box, check

AHEAD = 48 * 3600
TEXT = "Once upon a time there was a fox. " * 60  # some 4,500 bytes in a session, with its ids
box = Box("clock")
try:
    box.models()
    box.configure("model_dir = %s/models" % box.dir, "session_bytes_per_uid = 12000")
    box.start()

    def say(c, name, text=TEXT):
        c.call("generate", model="tale", session=name, text=text, max_tokens=3)
        return [s["name"] for s in c.call("sessions.list")["sessions"]]

    c = box.client()
    check(say(c, "first") == ["first"] and say(c, "second") == ["second", "first"], "two sessions")
    box.stop()
    box.sql("UPDATE sessions SET used = used + ?", AHEAD)
    box.sql("UPDATE clock SET wall = wall + ?", AHEAD)
    box.start()
    c = box.client()
    check(say(c, "third") == ["third", "second"], "the one that was used last stays, the first goes")
    check(say(c, "second", " And") == ["second", "third"], "and so it is in the next turn")
    check(say(c, "fourth") == ["fourth", "second"], "and when there is a fourth")
    box.stop()
    # A time that no clock of this hearthd can have shown is damage, and is ignored.
    box.sql("UPDATE sessions SET used = 1e11 WHERE name = 'second'")
    box.start()
    c = box.client()
    say(c, "fifth", "Hello")
    used = {s["name"]: s["used"] for s in c.call("sessions.list")["sessions"]}
    check(used["fifth"] < 1e10, "a damaged time is not followed", used)
finally:
    harness.end(box)
sys.exit(harness.failed > 0)
