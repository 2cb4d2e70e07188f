#!/usr/bin/python3
"""KV survives its engine: turns are saved, and restored after every way of losing the device's pages.

It uses a private hearthd with the embedded model. Each session first has its two turns undisturbed; then the same turns
with a disturbance between them, and the texts must be equal. It waits for counters of `status` to advance. Prints TAP.
"""
import glob, os, resource, shutil, signal, sys, time

sys.dont_write_bytecode = True
sys.path.insert(0, os.environ["top_srcdir"] + "/tests/tools")
import harness, script_model
from harness import Box, Refused, check

PAGE = 16


class Client(harness.Client):
    def say(self, session, text, n=100, **more):
        return self.call("generate", model="tale", session=session, text=text, max_tokens=n,
                         sampling={"temperature": 0.8, "seed": 7}, **more)

    def kv(self):
        return self.call("status")["engine"]["kv"]

    def await_kv(self, what):
        """Waits until the counters satisfy the condition, for half a minute at most."""
        until = time.monotonic() + 30
        while True:
            k = self.kv()
            if what(k) or time.monotonic() > until:
                return k


box = Box("tiers")
box.engine("--restore", "always")  # on a loaded machine computing so few tokens may be judged quicker
folder = box.state + "/kv"
box.models()


def start(*lines):
    """Starts hearthd with these lines, or with the previous ones."""
    if lines:
        box.configure("model_dir = %s/models" % box.dir, "threads = 2", *lines)
    box.start()
    return Client(box.socket)


FIRST = "Once upon a time there was a king who had three daughters, and the youngest"
SECOND = " But the old woman in the forest said:"
try:
    # undisturbed
    c = start("kv_disk = 0", "kv_ram = 0")
    a1 = c.say("peace", FIRST)
    a2 = c.say("peace", SECOND)
    k = c.kv()
    check(k["pages_saved"] == 0 and k["files_written"] == 0 and a2["usage"]["restored_tokens"] == 0,
          "without tiers nothing is kept", k)
    box.stop()

    def is_second(r, why, restored=True):
        u = r["usage"]
        check(r["text"] == a2["text"] and r["tokens"] == a2["tokens"], "%s: the same text as in peace" % why,
              (r["text"], a2["text"]))
        check(u["prompt_tokens"] == u["reused_tokens"] + u["computed_tokens"] == a2["usage"]["prompt_tokens"] and
              0 <= u["restored_tokens"] <= u["reused_tokens"], "%s: the usage adds up" % why, u)
        # all tokens of the first turn but the last one were computed; full pages of them are restored
        whole = (a1["usage"]["prompt_tokens"] + len(a1["tokens"]) - 1) // PAGE * PAGE
        if restored:
            check(u["restored_tokens"] == whole and u["reused_tokens"] >= whole, "%s: all full pages came back" % why,
                  (u, whole))
            check(r["timings"]["restore_ms"] > 0, "%s: and it is said how long that took" % why, r["timings"])

    # files
    c = start("kv_disk = 1G", "kv_ram = 0")
    r = c.say("restart", FIRST)
    k = c.await_kv(lambda k: k["files_written"] and not k["moving"])
    check(r["text"] == a1["text"], "saving changes no text")
    check(k["files_written"] == 1, "a turn is in a file when it has ended", k)
    check(k["host_bytes"] == 0, "no host memory is kept where none is allowed", k)
    check(k["pages_dropped"] == 0, "what is in the file is not dropped", k)
    box.stop()
    c = start()
    r = c.say("restart", SECOND)
    is_second(r, "hearthd restarted")
    e = c.call("status")["engine"]
    check(e["tokens_computed"] == r["usage"]["computed_tokens"] < 2 * PAGE + 10, "tokens_computed rises by the rest alone",
          e)
    check(e["kv"]["pages_restored"] * PAGE == r["usage"]["restored_tokens"] and e["kv"]["bytes_read"] > 0,
          "status counts what came back", e["kv"])

    # an engine that dies
    c.say("killed", FIRST)
    c.await_kv(lambda k: not k["moving"])
    os.kill(c.call("status")["engine"]["pid"], signal.SIGKILL)
    while True:  # hearthd notices its exit, and starts another one for the next request
        try:
            r = c.say("killed", SECOND)
            break
        except Refused:
            pass
    is_second(r, "the engine was killed")

    # unloading, with files only
    c.say("unload", FIRST)
    c.call("models.unload", model="tale")
    is_second(c.say("unload", SECOND), "the model was unloaded")

    # two sessions with a common beginning, used at once
    c.say("alike 1", FIRST)
    c.say("alike 2", FIRST)
    c.await_kv(lambda k: not k["moving"])
    c.call("models.unload", model="tale")
    ids = [c.submit("generate", model="tale", session=s, text=SECOND, max_tokens=100,
                      sampling={"temperature": 0.8, "seed": 7}) for s in ("alike 1", "alike 2")]
    for id in ids:
        r = c.answer(id)
        check(r["text"] == a2["text"] and r["usage"]["reused_tokens"] >= 6 * PAGE, "sessions that begin alike: the text",
              r["usage"])

    # a removed session's files are removed, although another session uses them: their pages are written again
    c.say("giver", "Far away. " + FIRST)
    c.say("taker", "Far away. " + FIRST)
    c.await_kv(lambda k: not k["moving"])
    c.call("sessions.remove", session="giver")
    k = c.kv()
    c.say("taker", " And", 1)
    k2 = c.await_kv(lambda k2: k2["files_written"] > k["files_written"])
    check(k2["files_written"] > k["files_written"], "what was in a removed session's file is written again", (k, k2))
    box.stop()
    c = start()
    u = c.say("taker", " so", 1)["usage"]
    check(u["restored_tokens"] >= (u["prompt_tokens"] - 4) // PAGE * PAGE, "and all of it comes back", u)
    box.stop()

    # a damaged file
    names = glob.glob(folder + "/*.kv")
    check(names and all(os.stat(n).st_mode & 0o777 == 0o600 for n in names), "files are their owner's alone", names)
    for n in names:
        with open(n, "r+b") as f:
            f.seek(-100, 2)
            byte = f.read(1)
            f.seek(-100, 2)
            f.write(bytes([byte[0] ^ 1]))
    c = start()
    c.say("damaged", FIRST)
    c.call("models.unload", model="tale")
    r = c.say("damaged", SECOND)
    is_second(r, "damaged files", restored=False)
    check(0 < r["usage"]["restored_tokens"] < (a1["usage"]["prompt_tokens"] + len(a1["tokens"]) - 1) // PAGE * PAGE,
          "what lies before the damage counts, and nothing after it", r["usage"])
    k = c.kv()
    bad = glob.glob(folder + "/*.bad")
    log = box.log()
    check(k["files_bad"] == len(bad) >= 1 and all(os.path.basename(b)[:-4] in log for b in bad),
          "a damaged file is set aside and named in the log", (k, bad, log[-1500:]))
    is_second(c.say("damaged again", FIRST) and c.say("damaged again", SECOND), "after damage", restored=False)
    box.stop()

    # a full disk
    shutil.rmtree(folder)
    c = start()
    c.say("first", "Hello there", 2)
    engine = c.call("status")["engine"]["pid"]
    # room for the engine's lines at the log's end, and not for a page
    room = os.stat(box.dir + "/log").st_size + 4096
    check(room < c.call("status")["engine"]["models"][0]["page_bytes"], "the log is shorter than a page of KV", room)
    resource.prlimit(engine, resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    c.say("unwritten", FIRST)
    r = c.say("unwritten", SECOND)
    is_second(r, "a full disk", restored=False)
    k = c.await_kv(lambda k: not k["moving"])
    check(k["files_written"] == 0 and k["host_bytes"] == 0 and os.listdir(folder) == [],
          "a full disk: no file, no rest of one, no host memory lost", (k, os.listdir(folder)))
    check(box.log().count("KV is not saved") == 1, "a full disk: it is logged, once")
    box.stop()

    # hearthd ends while a slow disk is still writing a file
    box.start(sync_ms=3000)
    c = Client(box.socket)
    r = c.say("slow", "Slowly. " + FIRST)
    whole = (r["usage"]["prompt_tokens"] + len(r["tokens"]) - 1) // PAGE * PAGE
    box.stop()
    c = start()
    u = c.say("slow", SECOND)["usage"]
    check(u["restored_tokens"] == whole, "a slow disk has its file before hearthd ends", (u, whole))
    box.stop()

    # host memory only
    c = start("kv_disk = 0", "kv_ram = 64M")
    c.say("ram", FIRST)
    c.call("models.unload", model="tale")
    c.call("generate", model="other", text=FIRST, max_tokens=30)
    c.call("models.unload", model="other")
    k = c.kv()
    check(k["host_pages"] > 0 and k["files_written"] == 0, "host memory alone keeps pages", k)
    is_second(c.say("ram", SECOND), "another model had the device")
    box.stop()

    # little host memory: the least recently used pages are dropped, and the limit is kept
    c = start("kv_disk = 0", "kv_ram = 200K")
    for i in range(8):
        c.say("many %d" % i, "%d. %s" % (i, FIRST))
    k = c.await_kv(lambda k: not k["moving"])
    check(k["pages_dropped"] > 0 and k["host_bytes"] <= 200 << 10, "what is dropped makes room", k)
    is_second(c.say("little", FIRST) and c.say("little", SECOND), "little host memory", restored=False)
    box.stop()

    # saves that are in progress at the end are completed
    shutil.rmtree(folder, ignore_errors=True)
    c = start("kv_disk = 1G", "kv_ram = 0")
    c.say("end", FIRST)
    box.stop()
    c = start()
    is_second(c.say("end", SECOND), "stopped right after a turn")
    box.stop()

    # a long prompt is saved as soon as it is computed, so that it is not lost if the engine dies during the answer
    script_model.write(box.dir + "/models/script.gguf", {"@": [" one", " two"]}, context=4096)
    c = start("kv_disk = 1G", "kv_ram = 0")
    asked = dict(model="script", tokens=[5 + i % 250 for i in range(3000)], max_tokens=1000, ignore_eos=True)
    id, seen = c.submit("generate", **asked), []

    def until(what):
        while True:
            m = c.read()
            if m[0] == 1:
                c.answers[m[1]] = m[2:]
                return
            if m[0] == 2:
                seen.append(m[2][0]["name"] if m[1] == "notice" else m[1])
                if what in seen:
                    return

    until("stream.tokens")
    other = Client(box.socket)
    k = other.await_kv(lambda k: k["files_written"] > 0)
    os.kill(other.call("status")["engine"]["pid"], signal.SIGKILL)
    until("RECOVERING")
    check(k["files_written"] == 1 and "RECOVERING" in seen, "a long prompt is in a file while its answer is being made", (k, seen))
    r, e = c.answer(id), c.call("status")["engine"]
    check(r["usage"]["completion_tokens"] == 1000 and e["kv"]["pages_restored"] == 3000 // PAGE and
          e["tokens_computed"] < 1000 + PAGE, "what the next engine has not to compute again", (r["usage"], e))
    box.stop()
finally:
    harness.end(box)
sys.exit(harness.failed > 0)
