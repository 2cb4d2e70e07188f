#!/usr/bin/python3
"""Writes a GGUF file of one architecture with few, random weights in F16 (4 to 14 MB), for comparing logits.

    tiny_arch.py ARCH OUT.gguf [SEED]

ARCH is one of llama, llama-rope3 (rope_freqs), mixtral, qwen2, qwen3, qwen3moe, gemma2, gemma3, phi3, starcoder2. SEED
is 1 by default: tests/golden/data/tiny-ARCH.json has the logits of that file, which has the same bytes wherever numpy
draws the same numbers. To add an architecture, add its keys to M and its tensors to the loop over layers.

Shapes are in GGUF's order, input features first. Needs numpy.
"""
import struct, sys
import numpy as np
name, out = sys.argv[1], sys.argv[2]; rng = np.random.default_rng(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
arch = {"llama-rope3": "llama", "mixtral": "llama"}.get(name, name)
H, NH, NKV, HD, FF, V, L, CTX = 256, 4, 2, 64, 512, 512, 4, 512
if name == "gemma3": L = 7
if name == "qwen3": HD = 96          # q_dim 384 is not the hidden size
def s(x): b = x.encode(); return struct.pack("<Q", len(b)) + b
def kv(k, v):
    if isinstance(v, bool): return s(k) + struct.pack("<IB", 7, v)
    if isinstance(v, int): return s(k) + struct.pack("<II", 4, v)
    if isinstance(v, float): return s(k) + struct.pack("<If", 6, v)
    if isinstance(v, str): return s(k) + struct.pack("<I", 8) + s(v)
    if isinstance(v[0], str): return s(k) + struct.pack("<IIQ", 9, 8, len(v)) + b"".join(map(s, v))
    a = np.asarray(v); t = 6 if a.dtype.kind == "f" else 5
    return s(k) + struct.pack("<IIQ", 9, t, len(v)) + a.astype(np.float32 if t == 6 else np.int32).tobytes()
A = arch + "."
M = [kv("general.architecture", arch), kv("general.name", "tiny random " + name.replace("phi3", "phi-three")), kv("general.file_type", 1), kv(A + "block_count", L), kv(A + "context_length", CTX),
     kv(A + "embedding_length", H), kv(A + "feed_forward_length", FF), kv(A + "attention.head_count", NH), kv(A + "attention.head_count_kv", NKV), kv(A + "vocab_size", V)]
if arch == "starcoder2": M.append(kv(A + "attention.layer_norm_epsilon", 1e-5))
else: M.append(kv(A + "attention.layer_norm_rms_epsilon", 1e-6))
M.append(kv(A + "rope.freq_base", {"gemma3": 1e6, "qwen2": 1e6, "qwen3": 1e6, "qwen3moe": 1e6}.get(name, 1e4)))
if arch in ("qwen3", "qwen3moe", "gemma2", "gemma3"): M += [kv(A + "attention.key_length", HD), kv(A + "attention.value_length", HD)]
if arch in ("llama", "phi3", "starcoder2", "qwen2"): M.append(kv(A + "rope.dimension_count", HD))
if arch == "gemma2": M += [kv(A + "attn_logit_softcapping", 50.0), kv(A + "final_logit_softcapping", 30.0), kv(A + "attention.sliding_window", 16)]
if arch == "gemma3": M += [kv(A + "attention.sliding_window", 16)]
if arch == "phi3": M += [kv(A + "rope.scaling.original_context_length", CTX)]
NE, NU, EF = 8, 2, FF if name == "mixtral" else 256
if name in ("mixtral", "qwen3moe"): M += [kv(A + "expert_count", NE), kv(A + "expert_used_count", NU), kv(A + "expert_feed_forward_length", EF)]
toks = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)]; toks += ["\u2581w%d" % i for i in range(V - len(toks))]
M += [kv("tokenizer.ggml.model", "llama"), kv("tokenizer.ggml.tokens", toks), kv("tokenizer.ggml.scores", [-float(i) for i in range(V)]),
      kv("tokenizer.ggml.token_type", [2, 3, 3] + [6] * 256 + [1] * (V - 259)), kv("tokenizer.ggml.bos_token_id", 1), kv("tokenizer.ggml.eos_token_id", 2)]
T = []
def w(n, *shape, std=None):  # shape in GGUF order: input features first
    a = rng.normal(0, std or 1.0 / np.sqrt(shape[0]), shape[::-1]); T.append((n, shape, a.astype(np.float16), 1))
def v1(n, k, mean=1.0): T.append((n, (k,), rng.normal(mean, .1, k).astype(np.float32), 0))
w("token_embd.weight", H, V, std=0.05 if arch.startswith("gemma") else 1.0)
for i in range(L):
    p = "blk.%d." % i; v1(p + "attn_norm.weight", H)
    if arch == "starcoder2": v1(p + "attn_norm.bias", H, 0)
    if arch == "phi3": w(p + "attn_qkv.weight", H, (NH + 2 * NKV) * HD)
    else:
        for t, n in (("q", NH), ("k", NKV), ("v", NKV)):
            w(p + "attn_%s.weight" % t, H, n * HD)
            if arch in ("qwen2", "starcoder2"): v1(p + "attn_%s.bias" % t, n * HD, 0)
    if arch in ("qwen3", "qwen3moe", "gemma3"): v1(p + "attn_q_norm.weight", HD); v1(p + "attn_k_norm.weight", HD)
    w(p + "attn_output.weight", NH * HD, H)
    if arch == "starcoder2": v1(p + "attn_output.bias", H, 0)
    if arch.startswith("gemma"): v1(p + "post_attention_norm.weight", H); v1(p + "post_ffw_norm.weight", H)
    v1(p + "ffn_norm.weight", H)
    if arch == "starcoder2":
        v1(p + "ffn_norm.bias", H, 0); w(p + "ffn_up.weight", H, FF); v1(p + "ffn_up.bias", FF, 0); w(p + "ffn_down.weight", FF, H); v1(p + "ffn_down.bias", H, 0)
    elif arch == "phi3": w(p + "ffn_up.weight", H, 2 * FF); w(p + "ffn_down.weight", FF, H)
    elif name in ("mixtral", "qwen3moe"):
        w(p + "ffn_gate_inp.weight", H, NE); w(p + "ffn_gate_exps.weight", H, EF, NE); w(p + "ffn_up_exps.weight", H, EF, NE); w(p + "ffn_down_exps.weight", EF, H, NE)
    else: w(p + "ffn_gate.weight", H, FF); w(p + "ffn_up.weight", H, FF); w(p + "ffn_down.weight", FF, H)
v1("output_norm.weight", H)
if arch == "starcoder2": v1("output_norm.bias", H, 0)
if not arch.startswith("gemma"): w("output.weight", H, V)
if name == "llama-rope3":
    f = np.where(np.arange(HD // 2) < 8, 1.0, np.where(np.arange(HD // 2) < 20, 1 + (np.arange(HD // 2) - 8) * .5, 8.0)); T.append(("rope_freqs.weight", (HD // 2,), f.astype(np.float32), 0))
head, off, body = b"", 0, []
for n, sh, a, t in T:
    head += s(n) + struct.pack("<I", len(sh)) + b"".join(struct.pack("<Q", x) for x in sh) + struct.pack("<IQ", t, off)
    d = a.tobytes(); d += b"\0" * (-len(d) % 32); off += len(d); body.append(d)
with open(out, "wb") as f:
    f.write(b"GGUF" + struct.pack("<IQQ", 3, len(T), len(M)) + b"".join(M) + head); f.write(b"\0" * (-f.tell() % 32)); [f.write(b) for b in body]
