#!/usr/bin/python3
"""The codec against another implementation of MessagePack: hearth unpacks what python3-msgpack packs to the same
values, and python3-msgpack does so with what hearth packs. Run by wire-msgpack.sh; prints TAP."""
import os
import subprocess
import sys

import msgpack

ECHO = os.path.join(os.environ["top_builddir"], "tests/unit/libclient/wire-echo")
count = 0
bad = 0


def echo(method, *frames):
    data = b"".join(msgpack.packb(f, use_bin_type=True) for f in frames)
    done = subprocess.run([ECHO, method], input=data, stdout=subprocess.PIPE, check=True)
    unpacker = msgpack.Unpacker(raw=False)
    unpacker.feed(done.stdout)
    return list(unpacker)


def check(name, got, want):
    global count, bad
    count += 1
    ok = got == want
    bad += not ok
    print("%sok %d - %s" % ("" if ok else "not ", count, name))
    if not ok:
        print("# got    %r\n# wanted %r" % (got, want))


SAMPLING = {"presence_penalty": 0.0, "frequency_penalty": 0.0}
DEFAULTS = {"max_tokens": -1, "sampling": SAMPLING, "stream": True, "special": True}

full = {
    "model": "/models/t\u00e4le.gguf", "session": "story", "request": "r-1", "max_tokens": 5, "stop": ["\n\n", "\U0001f525"],
    "messages": [{"role": "system", "content": "be brief"},
                 {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": ""}]}],
    "sampling": {"temperature": 0.0, "top_k": 1000000, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.1,
                 "presence_penalty": -2.0, "frequency_penalty": 2.0, "penalty_last": 0, "seed": 2**64 - 1,
                 "logit_bias": [[0, -100.0], [2**31 - 1, 0.5]]},
    "logprobs": 20, "stream": False, "special": False,
}
check("a generate with every field", echo("", [0, 1, "generate", [full]]), [[0, 1, "generate", [full]]])
check("defaults are filled in", echo("", [0, 2**32 - 1, "generate", [{"model": "m", "text": "t"}]]),
      [[0, 2**32 - 1, "generate", [dict(DEFAULTS, model="m", text="t")]]])
check("ids of every width", echo("", [0, 1, "detokenize", [{"model": "m", "tokens": [0, 127, 128, 255, 256, 65535, 65536, 2**31 - 1]}]]),
      [[0, 1, "detokenize", [{"model": "m", "tokens": [0, 127, 128, 255, 256, 65535, 65536, 2**31 - 1]}]]])
check("bytes that are no text stay bytes", echo("", [0, 1, "tokenize", [{"model": "m", "text": b"\xff\x00", "special": True, "bos": 1}]]),
      [[0, 1, "tokenize", [{"model": "m", "text": b"\xff\x00", "special": True, "bos": 1}]]])
check("bytes that are text become text", echo("", [0, 1, "tokenize", [{"model": "m", "text": "\u00e4\0".encode()}]]),
      [[0, 1, "tokenize", [{"model": "m", "text": "\u00e4\0", "special": False, "bos": -1}]]])
event = [2, "stream.tokens", [{"stream": 3, "index": 10, "count": 1, "text": "x", "tokens": [5], "logprobs": [
    {"id": 5, "logprob": -0.25, "top": [{"id": 5, "logprob": -0.25, "text": "x"}, {"id": 6, "logprob": -2.5, "text": b"\xe2"}]}]}]]
check("an event with logprobs", echo("", event), [event])
result = {"top": [[[1, 2.5], [7, -1.0]], []], "greedy": [3, 2]}
check("an eval result", echo("eval", [1, 9, None, result]), [[1, 9, None, result]])
check("two frames in one piece", echo("", [0, 1, "status", []], [2, "notice", [{"name": "N", "message": "m"}]]),
      [[0, 1, "status", [{}]], [2, "notice", [{"name": "N", "message": "m"}]]])
check("a refusal", echo("", [0, 4, "generate", [{"model": "m", "text": "t", "sampling": {"top_k": 5000000}}]]),
      [[1, 4, [1, "INVALID_PARAMS: generate.sampling.top_k: 5000000 is over 1000000"], None]])
check("a method of tomorrow", echo("", [0, 4, "embed", [{}]]),
      [[1, 4, [1, "UNSUPPORTED: method embed is reserved and not supported by this version"], None]])
big = "w" * 70000
check("a string of 32 bits of length", echo("", [0, 1, "tokenize", [{"model": "m", "text": big, "special": False, "bos": 0}]]),
      [[0, 1, "tokenize", [{"model": "m", "text": big, "special": False, "bos": 0}]]])
print("1..%d" % count)
sys.exit(bad != 0)
