#!/usr/bin/python3
"""Layers with a sliding window keep only the window's KV, on the device and in the tiers below, and texts are the same.

It uses a private hearthd; the embedded model with windows written into its file (other weights would do as well), and
tiny models beside the source tree, if they exist. A long first turn and a second one: in a batch of its own, batched
with others, after the device's pages were lost, after a restart. Prints TAP.
"""
import os, shutil, struct, sys, time

sys.dont_write_bytecode = True
import harness
from harness import Box, Refused, check

PAGE = 16


def windowed(source, to, window, period):
    """Copies a GGUF file of a llama so that its layers slide, except for every `period`th (0: all slide)."""
    b = open(source, "rb").read()
    n_tensor, n_key = struct.unpack_from("<QQ", b, 8)
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def text(at):
        return at + 8 + struct.unpack_from("<Q", b, at)[0]

    def value(at, kind):
        if kind == 8:
            return text(at)
        if kind != 9:
            return at + sizes[kind]
        kind, n = struct.unpack_from("<IQ", b, at)
        at += 12
        if kind != 8:
            return at + n * sizes[kind]
        for _ in range(n):
            at = text(at)
        return at

    at = keys = 24
    for _ in range(n_key):
        at = text(at)
        at = value(at + 4, struct.unpack_from("<I", b, at)[0])
    infos = at
    for _ in range(n_tensor):
        at = text(at)
        at += 4 + 8 * struct.unpack_from("<I", b, at)[0] + 12
    data = (at + 31) // 32 * 32

    def key(name, n):
        return struct.pack("<Q", len(name)) + name + struct.pack("<II", 4, n)

    head = struct.pack("<4sIQQ", b"GGUF", 3, n_tensor, n_key + 2) + b[keys:infos]
    head += key(b"llama.attention.sliding_window", window) + key(b"llama.attention.sliding_window_pattern", period)
    head += b[infos:at]
    with open(to, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + b[data:])


class Client(harness.Client):
    def say(self, model, session, text, n, **more):
        return self.answer(self.ask(model, session, text, n, **more))

    def ask(self, model, session, text, n, **more):
        return self.submit("generate", model=model, session=session, text=text, max_tokens=n,
                           sampling={"temperature": 0.7, "seed": 11}, **more)

    def engine(self):
        return self.call("status")["engine"]

    files = 0

    def quiet(self, new=True):
        """Waits until a turn's new files are written and nothing is being moved any more, for half a minute at most."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            k = self.engine()["kv"]
            if not k["moving"] and (k["files_written"] > self.files or not new):
                break
            time.sleep(0.01)
        self.files = k["files_written"]

    def pages(self, model):
        return next(m for m in self.engine()["models"] if m["name"] == model)


box = Box("windows")
box.engine("--restore", "always")  # on a loaded machine computing so few tokens may be judged quicker
box.models()
top = os.environ.get("top_srcdir", ".")
tale = os.path.join(top, "contrib/models/tale-q4_k_m.gguf")
models = ["mixed", "sliding"]
windowed(tale, box.dir + "/models/mixed.gguf", 48, 4)
windowed(tale, box.dir + "/models/sliding.gguf", 40, 0)
shared = os.environ.get("HEARTH_SHARED", top + "/../shared") + "/models/hf-tiny"
for name in ("gemma2", "gemma3_text", "olmo3", "cohere2", "mistral"):
    if os.path.isdir(os.path.join(shared, name)):
        shutil.copytree(os.path.join(shared, name), os.path.join(box.dir, "models", name))
        models.append(name)

STORY = 3 * "".join("The %s of the %s went to the %s and said that the %s was no longer to be found there. " % w for w in zip(
    ("king", "daughter", "miller", "fox", "soldier", "queen", "servant", "tailor"),
    ("mountain", "sea", "mill", "wood", "town", "castle", "house", "inn"),
    ("door", "well", "gate", "tower", "bridge", "garden", "field", "road"),
    ("ring", "bread", "horse", "crown", "key", "sword", "cloak", "bird")))


def start(*lines):
    if lines:
        box.configure("model_dir = %s/models" % box.dir, "threads = 2", *lines)
    box.start()
    return Client(box.socket)


def turns(c, model, session, story, between=lambda: None, beside=0):
    """Two turns, with others beside the first one."""
    answers = []
    session = model + " " + session
    for turn, text in enumerate((story, " But one day" + story[:100])):
        others = [c.ask(model, "%s beside %d" % (session, i), ("%d: " % i + story)[:150 + 90 * i], 40)
                  for i in range(beside if turn == 0 else 0)]
        answers.append(c.say(model, session, text, 90))
        for id in others:
            c.answer(id)
        between()
    return answers


try:
    for model in models:
        story = STORY if model in ("mixed", "sliding") else STORY[:900]  # their tokens are hardly longer than bytes
        c = start("kv_disk = 0", "kv_ram = 0")
        r = c.say(model, model + " prompt", story, 1)
        used, full = c.pages(model)["pages_used"], (r["usage"]["prompt_tokens"] + 1) / PAGE
        check(used < 0.6 * full, "%s: once the prompt is read, it has %d pages of %d" % (model, used, full))
        full_bytes = c.pages(model)["page_bytes"]
        c.call("models.unload", model=model)
        want = turns(c, model, "peace", story)
        n = want[1]["usage"]
        whole = want[0]["usage"]["prompt_tokens"] + len(want[0]["tokens"])
        check(whole > 250, "%s: the prompt is far longer than the window" % model, whole)
        check(n["reused_tokens"] in (whole - 1, whole) and n["reused_tokens"] + n["computed_tokens"] == n["prompt_tokens"],
              "%s: the second turn computes its own tokens alone" % model, (n, whole))

        def same(got, how):
            check([a["tokens"] for a in got] == [a["tokens"] for a in want], "%s: %s, the same tokens" % (model, how),
                  [a["text"] for a in got])
        same(turns(c, model, "again", story), "with what was kept")
        same(turns(c, model, "company", story, beside=6), "in company")
        box.stop()

        c = start("kv_disk = 1G", "kv_ram = 0")
        def gone():
            c.quiet()
            c.call("models.unload", model=model)
        got = turns(c, model, "unloaded", story, gone)
        same(got, "unloaded between the turns")
        u = got[1]["usage"]
        least = n["reused_tokens"] // PAGE * PAGE
        check(u["restored_tokens"] == u["reused_tokens"] >= least, "%s: all full pages came back" % model, (u, least))
        e = c.engine()["kv"]
        check(0 < e["pages_restored"], "%s: pages were restored" % model, e)
        c.say(model, model + " restarted", story, 90)
        c.quiet(new=False)  # all of it is in files
        box.stop()
        c = start()
        r = c.say(model, model + " restarted", " But one day" + story[:100], 90)
        check(r["tokens"] == want[1]["tokens"], "%s: hearthd restarted, the same tokens" % model, r["text"])
        check(r["usage"]["restored_tokens"] >= least, "%s: and all full pages are back" % model, r["usage"])
        # another session continues from the end of the prompt
        c.quiet(new=False)
        c.call("models.unload", model=model)
        r = c.say(model, model + " from the prompt", story, 90)
        check(r["tokens"] == want[0]["tokens"], "%s: from the prompt's end, the same tokens" % model, r["text"])
        p = r["usage"]["prompt_tokens"]
        check(r["usage"]["restored_tokens"] >= (p - 1) // PAGE * PAGE, "%s: of which all full pages are back" % model,
              r["usage"])
        box.stop()

        # 8-bit KV: another type and other files, with the same rules
        if model in ("mixed", "sliding"):
            c = start("kv_disk = 1G", "kv_ram = 0", "kv_type = q8_0")
            quiet = turns(c, model, "q8_0", story)
            size = c.pages(model)["page_bytes"]
            number = 4 if harness.BACKEND == "cpu" else 2  # bytes that KV otherwise has for one
            check(size * 32 == full_bytes * 34 // number, "%s: KV of 8 bits takes 34 bytes for 32 numbers" % model,
                  (size, full_bytes))
            u = c.say(model, model + " restarted", " so", 5)["usage"]
            check(u["restored_tokens"] == 0, "%s: and finds no KV of another type" % model, u)
            c.quiet(new=False)
            c.call("models.unload", model=model)
            again = turns(c, model, "q8_0 again", story, beside=4)
            check([a["tokens"] for a in again] == [a["tokens"] for a in quiet],
                  "%s: in 8 bits, restored and in company, the same tokens" % model)
            box.stop()

        elif model == "gemma2":
            c = start("kv_disk = 0", "kv_ram = 0", "kv_type = q8_0")
            try:
                why = c.say(model, "refused", story, 1)
            except Refused as e:
                why = e.args
            check(why[0] == "UNSUPPORTED" and "heads of 48" in why[1] and "kv_type" in why[1],
                  "heads that are no whole blocks are refused, and it is said what asks for them", why)
            box.stop()

        # host memory
        c = start("kv_disk = 0", "kv_ram = 256M")
        same(turns(c, model, "host", story, lambda: (c.quiet(new=False), c.call("models.unload", model=model))), "from host memory")
        box.stop()
finally:
    harness.end(box)
sys.exit(harness.failed > 0)
