#!/usr/bin/python3
"""Models with NaN or infinite weights, or whose files exclude every token: their generations fail with an error that
names the fault, and no other stream is affected.

Some floats in a copy of a model of the source tree are overwritten. On a GPU the self-check leaves such a model to the
CPU. Prints TAP.
"""
import json, os, re, struct, sys

sys.dont_write_bytecode = True
import harness
from harness import Box, Refused, check

GOOD = harness.SRC + "/tests/golden/data/tiny-llama-rope3.gguf"
NUMBERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd"))  # value types of GGUF
LONG = {"text": "one two three", "max_tokens": 400, "sampling": {"temperature": 0}}
SHORT = {"text": "one two three", "max_tokens": 6, "sampling": {"temperature": 0}}


def tensor_at(file, wanted):
    """The offset of a tensor's data, and its number of elements."""
    at = 8

    def take(form):
        nonlocal at
        v = struct.unpack_from("<" + form, file, at)
        at += struct.calcsize("<" + form)
        return v[0]

    def string():
        nonlocal at
        n = take("Q")
        at += n
        return file[at - n:at]

    def value(type):
        if type == 8:
            return string()
        if type == 9:
            type, n = take("I"), take("Q")
            for _ in range(n):
                value(type)
        else:
            take(NUMBERS[type])

    n_tensor, n_key = take("Q"), take("Q")
    for _ in range(n_key):
        string()
        value(take("I"))
    found = None
    for _ in range(n_tensor):
        name, n = string(), 1
        for _ in range(take("I")):
            n *= take("Q")
        take("I")
        offset = take("Q")
        if name == wanted:
            found = offset, n
    return (at + 31) // 32 * 32 + found[0], found[1]


def written(name, tensor, what):
    with open(GOOD, "rb") as f:
        model = bytearray(f.read())
    at, n = tensor_at(model, tensor)
    what = what(n)
    model[at:at + len(what)] = what
    path = "%s/%s.gguf" % (box.dir, name)
    with open(path, "wb") as f:
        f.write(model)
    return path


def refused(name, c, method, says, **params):
    try:
        got = c.call(method, **params)
        check(False, name, got)
    except Refused as e:
        check(e.args[0] == "MODEL_INVALID" and re.search(says, e.args[1]), name, e.args)


box = Box("weights")
try:
    box.configure("threads = 2")
    box.start()
    c, other = box.client(), box.client()
    undisturbed = other.call("generate", model=GOOD, **LONG)
    running = other.submit("generate", model=GOOD, **LONG)
    for name, number in ("nan", float("nan")), ("inf", float("inf")):
        path = written("norm-" + name, b"output_norm.weight", lambda n: struct.pack("<f", number) * n)
        refused("%s in a vector: the model" % name, c, "models.load", "tensor output_norm.weight: number 0 is " + name,
                model=path)
        path = written(name, b"output.weight", lambda n: struct.pack("<e", number) * n)
        refused("%s: eval" % name, c, "eval", "position 0: the logit of token 0 is", model=path, tokens=[1, 5, 6], top=4)
        refused("%s: eval's continuation" % name, c, "eval", "position 2: the logit of token", model=path,
                tokens=[1, 5, 6], greedy=2)
        says = re.compile(r"position \d+: the logit of token \d+ is")
        refused("%s: log-probabilities" % name, c, "generate", says, model=path, logprobs=2, **SHORT)
        refused("%s: greedy" % name, c, "generate", says, model=path, **SHORT)
        for more in {"temperature": 0.8}, {"temperature": 0.8, "top_k": 4, "repetition_penalty": 1.1}:
            refused("%s: %s" % (name, more), c, "generate", says, model=path, text="one two three", max_tokens=6,
                    sampling=more)
    one = written("one", b"output.weight", lambda n: struct.pack("<e", float("nan")) * 256)  # the first token's row
    got = c.call("eval", model=one, tokens=[1, 5, 6], top=8)
    best = c.call("eval", model=GOOD, tokens=[1, 5, 6], top=9)
    check(got["top"] == [[x for x in row if x[0] != 0][:8] for row in best["top"]], "one row: eval leaves it out", got)
    # Without token 0 the others are more likely, by its probability, which is small.
    of_best = c.call("generate", model=GOOD, logprobs=0, **SHORT)["logprobs"][0]
    got = c.call("generate", model=one, logprobs=0, **SHORT)
    more = got["logprobs"][0]["logprob"] - of_best["logprob"]
    check(got["logprobs"][0]["id"] == of_best["id"] and 0 < more < 0.1, "one row: no log-probability has it", more)
    check(0 not in got["tokens"] and len(got["tokens"]) == 6, "one row: it is not sampled", got)
    # A folder whose file for sampling excludes every token; the KV of its prompt is computed all the same.
    mute = os.path.join(box.dir, "mute")
    os.mkdir(mute)
    for file in "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json":
        os.symlink("%s/tests/golden/data/hf/olmoe/%s" % (harness.SRC, file), os.path.join(mute, file))
    def exclude(tokens):
        with open(os.path.join(mute, "generation_config.json"), "w") as f:
            json.dump({"suppress_tokens": list(tokens)}, f)

    exclude(range(260))
    for more in {"temperature": 0}, {"temperature": 0.8}, {"temperature": 0, "logit_bias": [[5, 100]]}:
        for logprobs in -1, 2:
            refused("every token excluded: %s, logprobs %d" % (more, logprobs), c, "generate", "no token is left",
                    model=mute, text="one two three", max_tokens=6, sampling=more, logprobs=logprobs)
    check(c.call("generate", model=mute, text="one", max_tokens=0)["tokens"] == [], "its prompts can be computed")
    exclude(range(259))
    got = c.call("generate", model=mute, **dict(SHORT, ignore_eos=True))
    check(got["tokens"] == [259] * 6, "every token but one excluded: that one is sampled", got)
    got = other.answer(running)
    check(got["tokens"] == undisturbed["tokens"], "another's stream has the text of an undisturbed run", got)
    check(c.call("status")["engine"]["restarts"] == 0, "no engine was lost")
finally:
    harness.end(box)
