#!/usr/bin/python3
"""Writes a GGUF file of a llama with one layer, random weights and a long context, whose vocabulary is the 256 bytes
and the tokens for filling in the middle of StarCoder2 and Qwen2.5-Coder: every byte of a text is a token.

    fim_model.py OUT.gguf [CONTEXT]

The file is the same on every machine; needs only Python.
"""
import random, struct, sys

HIDDEN, HEADS, KV_HEADS, FFN = 32, 2, 1, 32
CONTROL, NORMAL = 3, 1
MARKUP = ["<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"]
PRE, MID, SUF, PAD, REP, SEP = range(1, 7)


def byte_letters():
    """GPT-2's alphabet of 256 printable characters, in the order of the bytes."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in own]
    letter = {b: chr(b) for b in own}
    letter.update({b: chr(256 + i) for i, b in enumerate(rest)})
    return [letter[b] for b in range(256)]


def string(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def key(name, v):
    if isinstance(v, int):
        return string(name) + struct.pack("<II", 4, v)
    if isinstance(v, float):
        return string(name) + struct.pack("<If", 6, v)
    if isinstance(v, str):
        return string(name) + struct.pack("<I", 8) + string(v)
    if isinstance(v[0], str):
        return string(name) + struct.pack("<IIQ", 9, 8, len(v)) + b"".join(map(string, v))
    return string(name) + struct.pack("<IIQ", 9, 5, len(v)) + struct.pack("<%di" % len(v), *v)


def write(path, context=32768):
    draw = random.Random(1)
    vocab = MARKUP + byte_letters()
    width = HIDDEN // HEADS
    keys = [
        key("general.architecture", "llama"), key("general.name", "fill in the middle"), key("general.file_type", 0),
        key("llama.block_count", 1), key("llama.context_length", context), key("llama.embedding_length", HIDDEN),
        key("llama.feed_forward_length", FFN), key("llama.attention.head_count", HEADS),
        key("llama.attention.head_count_kv", KV_HEADS), key("llama.attention.layer_norm_rms_epsilon", 1e-6),
        key("llama.rope.freq_base", 1e6), key("llama.rope.dimension_count", width), key("llama.vocab_size", len(vocab)),
        key("tokenizer.ggml.model", "gpt2"), key("tokenizer.ggml.pre", "qwen2"), key("tokenizer.ggml.tokens", vocab),
        key("tokenizer.ggml.token_type", [CONTROL] * len(MARKUP) + [NORMAL] * 256),
        key("tokenizer.ggml.merges", ["a b"]), key("tokenizer.ggml.eos_token_id", 0),
    ]
    shapes = [("token_embd", HIDDEN, len(vocab)), ("blk.0.attn_norm", HIDDEN), ("blk.0.attn_q", HIDDEN, HIDDEN),
              ("blk.0.attn_k", HIDDEN, KV_HEADS * width), ("blk.0.attn_v", HIDDEN, KV_HEADS * width),
              ("blk.0.attn_output", HIDDEN, HIDDEN), ("blk.0.ffn_norm", HIDDEN), ("blk.0.ffn_gate", HIDDEN, FFN),
              ("blk.0.ffn_up", HIDDEN, FFN), ("blk.0.ffn_down", FFN, HIDDEN), ("output_norm", HIDDEN),
              ("output", HIDDEN, len(vocab))]
    head, body = b"", b""
    for name, *shape in shapes:
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        head += (string(name + ".weight") + struct.pack("<I", len(shape)) +
                 b"".join(struct.pack("<Q", d) for d in shape) + struct.pack("<IQ", 0, len(body)))
        body += struct.pack("<%df" % n, *(draw.gauss(1 if len(shape) == 1 else 0, .2) for _ in range(n)))
        body += b"\0" * (-len(body) % 32)
    with open(path, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(keys)) + b"".join(keys) + head)
        f.write(b"\0" * (-f.tell() % 32) + body)


if __name__ == "__main__":
    write(sys.argv[1], *map(int, sys.argv[2:]))
