#!/usr/bin/python3
"""Fill in the middle through a private hearthd, as an editor uses it: 16,000 tokens of other files, a keystroke for
which only the end is computed, and what is refused. Prints TAP.
"""
import os, sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.environ["top_srcdir"] + "/tests/tools")
import fim_model, harness
from harness import Box, Refused, check

box = Box("fim")
os.mkdir(box.dir + "/models")
fim_model.write(box.dir + "/models/coder.gguf")
box.configure("model_dir = %s/models" % box.dir, "threads = 2")

EXTRA = [{"name": "f%d.c" % i, "text": "static int f%d(int a) { return a + %d; } /* %s */\n" % (i, i, "." * 750)}
         for i in range(20)]
PREFIX = "".join("int before%d;\n" % i for i in range(20)) + "int main(void)\n{\n    retu"
SUFFIX = "\n}\n\nint after;\n"


def refused(c, symbol, says, **params):
    try:
        c.call("generate", model="coder", **params)
        check(False, "refused: " + says)
    except Refused as e:
        check(e.args[0] == symbol and says in e.args[1], "refused: " + says, e)


try:
    box.start()
    c = harness.Client(box.socket)

    def fill(prefix, suffix=SUFFIX, **more):
        return c.call("generate", model="coder", prefix=prefix, suffix=suffix, extra=EXTRA, max_tokens=4,
                      sampling={"temperature": 0}, **more)

    def size(prefix, suffix):
        """The number of tokens that the format needs: markup, names with a newline, and a token for each byte."""
        files = sum(1 + len(f["name"]) + 1 + len(f["text"]) for f in EXTRA)
        return 1 + len("project\n") + files + 1 + len("untitled\n") + 1 + len(prefix) + 1 + len(suffix) + 1

    r = fill(PREFIX)
    u = r["usage"]
    check(u["prompt_tokens"] == size(PREFIX, SUFFIX) > 16000 and u["reused_tokens"] == 0,
          "the prompt is the files, the prefix and the suffix with their markup", u)
    for typed in "r", "rn", "rn ", "rn 0":
        r = fill(PREFIX + typed)
        u = r["usage"]
        check(u["prompt_tokens"] == size(PREFIX + typed, SUFFIX) and
              u["computed_tokens"] <= 1 + 1 + len(SUFFIX) + 1 + 1,
              "a keystroke computes what was typed, the suffix and its markup", u)
    cold = c.call("generate", model="coder", tokens=c.call("tokenize", model="coder", special=True, bos=0, text=(
        "<|repo_name|>project\n" + "".join("<|file_sep|>%(name)s\n%(text)s" % f for f in EXTRA) +
        "<|file_sep|>untitled\n<|fim_prefix|>" + PREFIX + "rn 0<|fim_suffix|>" + SUFFIX + "<|fim_middle|>"))["ids"],
        max_tokens=4, sampling={"temperature": 0})
    check(cold["tokens"] == r["tokens"] and cold["usage"]["reused_tokens"] == cold["usage"]["prompt_tokens"] - 1,
          "the tokens are those of the written-out document", (cold, r))
    r = c.call("generate", model="coder", prefix="int a", max_tokens=1)
    check(r["usage"]["prompt_tokens"] == 3 + 5, "a prefix alone has an empty suffix", r)
    r = c.call("generate", model="coder", suffix="int a", max_tokens=1)
    check(r["usage"]["prompt_tokens"] == 3 + 5, "and a suffix an empty prefix", r)
    r = fill("x", file="x.c", repo="hearth")
    check(r["usage"]["prompt_tokens"] == size("x", SUFFIX) + len("hearth") - len("project") + len("x.c") - len("untitled"),
          "file and repo are named", r)
    r = c.call("generate", model="tale", prefix="Once upon a", suffix=" there was a king.", max_tokens=4)
    check(r["usage"]["completion_tokens"] <= 4 and r["finish_reason"] in ("length", "stop"), "tale fills in, too", r)

    refused(c, "INVALID_PARAMS", "only one of messages, text, tokens, prefix", prefix="a", text="b")
    refused(c, "INVALID_PARAMS", "generate.session: what fills in the middle", prefix="a", session="s")
    refused(c, "INVALID_PARAMS", "generate.extra: is for prefix and suffix alone", text="a", extra=EXTRA)
    refused(c, "INVALID_PARAMS", "generate.file: is for prefix and suffix alone", text="a", file="f")
    refused(c, "INVALID_PARAMS", "generate.extra[0].text: is missing", prefix="a", extra=[{"name": "x"}])
    refused(c, "INVALID_PARAMS", 'generate.extra[0]: "txt" is not known; is text meant?', prefix="a",
            extra=[{"name": "x", "txt": "y"}])
    refused(c, "CONTEXT_FULL", "the context of the model is 32768", prefix="a" * 40000)
    refused(c, "CONTEXT_FULL", "the context of the model is 32768", prefix="a",
            extra=[{"name": "x", "text": "b" * (1 << 20)}] * 4)
    box.stop()
finally:
    harness.end(box)
