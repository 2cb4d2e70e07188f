#!/usr/bin/python3
"""Writes a GGUF file of a llama in which each next token is a function of the last one: at temperature 0 it generates a
script. Its vocabulary is the 256 bytes, the tokens of the scripts and an end token.

    script_model.write(PATH, {ENTRY: [TOKEN...]}, control=[...], user=[...], context=4096)

After the token ENTRY, with which a prompt ends, come the tokens of its script, then the end. No token is in two
scripts, or twice in one. `control` and `user` name those that are special tokens; an ENTRY that is not special is made
user-defined, or a byte; the others are text, in which "\\udce2" is the byte 0xE2. The weights: one-hot rows for
embeddings, and attention and FFN that add nothing. Needs only Python.
"""
import struct

from fim_model import CONTROL, NORMAL, byte_letters, key, string

USER = 4
END = "<|script_end|>"


def write(path, scripts, control=(), user=(), context=4096):
    letters = byte_letters()
    raw = lambda s: s.encode(errors="surrogateescape")
    spell = lambda s: "".join(letters[b] for b in raw(s))
    user = list(user) + [e for e in scripts if e not in control and e not in user and len(raw(e)) > 1]
    special = list(control) + user
    words = [t for script in scripts.values() for t in script if t not in special]
    assert len(set(words)) == len(words), "a token is in the scripts twice"
    vocab = [END] + special + letters + [spell(w) for w in words if len(raw(w)) > 1]
    assert len(set(vocab)) == len(vocab), "a token is there twice"
    types = [CONTROL] * (1 + len(control)) + [USER] * len(user) + [NORMAL] * (len(vocab) - 1 - len(special))
    at = {t: i for i, t in enumerate(vocab)}
    id_of = lambda t: at[t if t in special else spell(t)]
    follows = [0] * len(vocab)
    for entry, script in scripts.items():
        chain = [id_of(entry)] + [id_of(t) for t in script]
        assert len(set(chain)) == len(chain), "a token is in a script twice"
        for a, b in zip(chain, chain[1:] + [0]):
            assert not follows[a], "a token is in two scripts"
            follows[a] = b
    n = -(-len(vocab) // 32) * 32  # the width: a dimension for each token
    keys = [
        key("general.architecture", "llama"), key("general.name", "script"), key("general.file_type", 0),
        key("llama.block_count", 1), key("llama.context_length", context), key("llama.embedding_length", n),
        key("llama.feed_forward_length", 32), key("llama.attention.head_count", n // 32),
        key("llama.attention.head_count_kv", 1), key("llama.attention.layer_norm_rms_epsilon", 1e-6),
        key("llama.rope.freq_base", 1e4), key("llama.rope.dimension_count", 32), key("llama.vocab_size", len(vocab)),
        key("tokenizer.ggml.model", "gpt2"), key("tokenizer.ggml.pre", "qwen2"), key("tokenizer.ggml.tokens", vocab),
        key("tokenizer.ggml.token_type", types), key("tokenizer.ggml.merges", ["a b"]), key("tokenizer.ggml.eos_token_id", 0),
    ]
    hot = lambda where: struct.pack("<%df" % n, *(float(i == where) for i in range(n)))
    zeros = lambda count: bytes(4 * count)
    before = {}  # the tokens after which each one comes
    for a, b in enumerate(follows):
        before.setdefault(b, []).append(a)
    out = b"".join(struct.pack("<%df" % n, *(float(i in before.get(j, ())) for i in range(n))) for j in range(len(vocab)))
    tensors = [
        ("token_embd", b"".join(hot(i) for i in range(len(vocab))), n, len(vocab)),
        ("blk.0.attn_norm", struct.pack("<%df" % n, *[1.0] * n), n), ("blk.0.attn_q", zeros(n * n), n, n),
        ("blk.0.attn_k", zeros(n * 32), n, 32), ("blk.0.attn_v", zeros(n * 32), n, 32),
        ("blk.0.attn_output", zeros(n * n), n, n), ("blk.0.ffn_norm", struct.pack("<%df" % n, *[1.0] * n), n),
        ("blk.0.ffn_gate", zeros(n * 32), n, 32), ("blk.0.ffn_up", zeros(n * 32), n, 32),
        ("blk.0.ffn_down", zeros(32 * n), 32, n), ("output_norm", struct.pack("<%df" % n, *[1.0] * n), n),
        ("output", out, n, len(vocab)),
    ]
    head, body = b"", b""
    for name, data, *shape in tensors:
        head += (string(name + ".weight") + struct.pack("<I", len(shape)) +
                 b"".join(struct.pack("<Q", d) for d in shape) + struct.pack("<IQ", 0, len(body)))
        body += data + b"\0" * (-len(data) % 32)
    with open(path, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + head)
        f.write(b"\0" * (-f.tell() % 32) + body)
