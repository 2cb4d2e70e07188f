#!/usr/bin/python3
"""Writes a GGUF file with random weights, with the shapes and the mix of quantisations of a real model.

    synth_gguf.py SHAPE OUT.gguf [MIX [LAYERS]]

It replaces the real file where only speed matters, which does not depend on the values of weights; a router's weights
are random too, so that experts are used evenly. SHAPE is a key of SHAPES; MIX one of MIXES, q4km by default, and
gpt-oss is MXFP4 with Q8_0 as released, whatever MIX is; LAYERS is a smaller number of layers than the model has.
Tensors of more than 2^26 weights repeat a tile of that many. The seed is constant, so a file is the same on every
machine. Needs numpy.
"""
import struct, sys
import numpy as np

SHAPES = {  # layers, hidden, heads, kv_heads, head_dim, ffn, vocab, rope_base, ctx, arch, tied, more
    "llama3-8b":      (32, 4096, 32, 8, 128, 14336, 128256, 5e5, 131072, "llama", False),
    "llama3.2-1b":    (16, 2048, 32, 8, 64, 8192, 128256, 5e5, 131072, "llama", True),
    "tinyllama":      (22, 2048, 32, 4, 64, 5632, 32000, 1e4, 2048, "llama", False),
    "qwen2.5-1.5b":   (28, 1536, 12, 2, 128, 8960, 151936, 1e6, 32768, "qwen2", True),
    "qwen2.5-0.5b":   (24, 896, 14, 2, 64, 4864, 151936, 1e6, 32768, "qwen2", True),
    "micro":          (4, 256, 4, 2, 64, 768, 512, 1e4, 2048, "llama", False),
    "qwen3-8b":       (36, 4096, 32, 8, 128, 12288, 151936, 1e6, 40960, "qwen3", False),
    "qwen3-4b":       (36, 2560, 32, 8, 128, 9728, 151936, 1e6, 40960, "qwen3", True),
    "gemma3-12b":     (48, 3840, 16, 8, 256, 15360, 262208, 1e6, 131072, "gemma3", True, dict(window=1024)),
    "qwen3-30b-a3b":  (48, 2048, 32, 4, 128, 6144, 151936, 1e6, 40960, "qwen3moe", False, dict(experts=128, used=8, eff=768)),
    "gemma4-26b-a4b": (30, 2816, 16, 8, 256, 2112, 262144, 1e6, 262144, "gemma4", True, dict(experts=128, used=8, eff=704, window=1024, full_kv=2, full_hd=512)),
    "gpt-oss-20b":    (24, 2880, 64, 8, 64, 2880, 201088, 1.5e5, 131072, "gpt-oss", False, dict(experts=32, used=4, eff=2880, window=128)),
    "qwen3.6-35b-a3b": (40, 2048, 16, 2, 256, 0, 248320, 1e7, 262144, "qwen35moe", False, dict(experts=256, used=8, eff=512, shared=512, hv=32, hk=16)),
    "qwen3.6-27b":    (64, 5120, 24, 4, 256, 17408, 248320, 1e7, 262144, "qwen35", False, dict(hv=48, hk=16)),
}
F32, F16, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4 = 0, 1, 3, 6, 7, 8, 10, 11, 12, 13, 14, 20, 23, 39
BLOCK = {F32: (1, 4), F16: (1, 2), Q4_1: (32, 20), Q5_0: (32, 22), Q5_1: (32, 24), Q8_0: (32, 34), Q2_K: (256, 84), Q3_K: (256, 110),
    Q4_K: (256, 144), Q5_K: (256, 176), Q6_K: (256, 210), IQ4_NL: (32, 18), IQ4_XS: (256, 136), MXFP4: (32, 17)}
# The types of the body, of attn_v and ffn_down in layers that get more bits, and of the head: mixed as by
# llama-quantize, except that plain types apply to the whole body. Q3_K_M and IQ4_XS have further rules in main().
MIXES = {"q4km": (Q4_K, Q6_K, Q6_K), "q8": (Q8_0, Q8_0, Q8_0), "f16": (F16, F16, F16), "q3km": (Q3_K, Q4_K, Q6_K), "iq4xs": (IQ4_XS, Q5_K, Q6_K)}
MIXES.update({n: (t, t, Q6_K) for n, t in (("q4_1", Q4_1), ("q5_0", Q5_0), ("q5_1", Q5_1), ("q2_k", Q2_K), ("q3_k", Q3_K), ("iq4_nl", IQ4_NL),
    ("iq4_xs", IQ4_XS), ("mxfp4", MXFP4))})
# The offsets of a block's fp16 scales, and their values for weights of standard deviation 1.
SCALES = {Q4_1: ((0, 1 / 4.6), (2, -7.5 / 4.6)), Q5_0: ((0, 1 / 9.2),), Q5_1: ((0, 1 / 9.2), (2, -15.5 / 9.2)), Q8_0: ((0, 1 / 73),),
    Q2_K: ((80, 1 / 13.9), (82, 1.5 / 13.9)), Q3_K: ((108, 1 / 43),), Q4_K: ((0, 1 / (31 * 4.6)), (2, 7.5 / (31 * 4.6))),
    Q5_K: ((0, 1 / (31 * 9.2)), (2, 15.5 / (31 * 9.2))), Q6_K: ((208, 1 / (18.5 * 23)),), IQ4_NL: ((0, 1 / 67),), IQ4_XS: ((0, 1 / (67 * 18.5)),)}
rng = np.random.default_rng(7)

def blocks(t, n, std=0.02):
    bs, sz = BLOCK[t]
    nb = n // bs
    if t == F32: return rng.normal(1.0, 0.02, n).astype(np.float32).tobytes()
    if t == F16: return rng.normal(0, std, n).astype(np.float16).tobytes()
    raw = rng.integers(0, 256, (nb, sz), dtype=np.uint8)
    for col, val in SCALES.get(t, ()): raw[:, col:col + 2] = np.full(nb, val * std, np.float16).view(np.uint8).reshape(nb, 2)
    if t == Q6_K: raw[:, 192:208] = rng.integers(-40, 41, (nb, 16), dtype=np.int8).view(np.uint8)
    elif t == MXFP4: raw[:, 0] = 120
    return raw.tobytes()
tiles = {}
def write_blocks(f, t, n):
    """Large tensors repeat a tile of 2^26 random weights, so that twenty gigabytes take seconds."""
    tile = 1 << 26
    if n <= tile or t == F32: f.write(blocks(t, n)); return
    if t not in tiles: tiles[t] = blocks(t, tile)
    while n > 0: k = min(n, tile); f.write(memoryview(tiles[t])[:k // BLOCK[t][0] * BLOCK[t][1]]); n -= k

def s(x):
    b = x.encode() if isinstance(x, str) else x
    return struct.pack("<Q", len(b)) + b
U32, I32, FLT, STR, ARR = 4, 5, 6, 8, 9
def kv(k, t, v):
    if t == U32: return s(k) + struct.pack("<II", t, v)
    if t == FLT: return s(k) + struct.pack("<If", t, v)
    if t == STR: return s(k) + struct.pack("<I", t) + s(v)
    et, items = v
    body = b"".join(s(i) for i in items) if et == STR else np.asarray(items, np.float32 if et == FLT else np.int32).tobytes()
    return s(k) + struct.pack("<IIQ", ARR, et, len(items)) + body

def main(shape, out, wtype="q4km", layers=0):
    L, H, NH, NKV, HD, FF, V, base, ctx, a, tied = SHAPES[shape][:11]; X = SHAPES[shape][11] if len(SHAPES[shape]) > 11 else {}
    L = int(layers) or L; E = X.get("experts", 0); hybrid = "hv" in X; gemma4 = a == "gemma4"
    full = lambda i: gemma4 and i % 6 == 5   # full attention, another head size, values from keys
    metas = [kv("general.architecture", STR, a), kv("general.name", STR, "synthetic " + shape),
        kv("general.file_type", U32, 15), kv(a + ".block_count", U32, L), kv(a + ".context_length", U32, ctx),
        kv(a + ".embedding_length", U32, H),
        kv(a + ".attention.head_count", U32, NH), kv(a + ".attention.head_count_kv", ARR, (I32, [X["full_kv"] if full(i) else NKV for i in range(L)])) if gemma4 else kv(a + ".attention.head_count_kv", U32, NKV),
        kv(a + ".attention.layer_norm_rms_epsilon", FLT, 1e-5), kv(a + ".rope.dimension_count", U32, 64 if hybrid else X["full_hd"] if gemma4 else HD),
        kv(a + ".rope.freq_base", FLT, base), kv(a + ".vocab_size", U32, V)]
    if FF: metas.append(kv(a + ".feed_forward_length", U32, FF))
    if gemma4: metas += [kv(a + ".attention.%s_length%s" % k, U32, n) for k, n in ((("key", ""), X["full_hd"]), (("value", ""), X["full_hd"]), (("key", "_swa"), HD), (("value", "_swa"), HD))] + [kv(a + ".attention.sliding_window_pattern", U32, 6), kv(a + ".rope.dimension_count_swa", U32, HD), kv(a + ".final_logit_softcapping", FLT, 30.0)]
    elif a not in ("llama", "qwen2"): metas += [kv(a + ".attention.key_length", U32, HD), kv(a + ".attention.value_length", U32, HD)]
    if E: metas += [kv(a + ".expert_count", U32, E), kv(a + ".expert_used_count", U32, X["used"]), kv(a + ".expert_feed_forward_length", U32, X["eff"])]
    if "shared" in X: metas.append(kv(a + ".expert_shared_feed_forward_length", U32, X["shared"]))
    if "window" in X: metas.append(kv(a + ".attention.sliding_window", U32, X["window"]))
    if a == "gemma3": metas += [kv(a + ".rope.scaling.type", STR, "linear"), kv(a + ".rope.scaling.factor", FLT, 8.0)]
    if a == "gpt-oss": metas += [kv(a + ".rope.scaling.type", STR, "yarn"), kv(a + ".rope.scaling.factor", FLT, 32.0), kv(a + ".rope.scaling.original_context_length", U32, 4096)]
    if hybrid: metas += [kv(a + ".rope.dimension_sections", ARR, (I32, [11, 11, 10, 0])), kv(a + ".full_attention_interval", U32, 4), kv(a + ".ssm.conv_kernel", U32, 4), kv(a + ".ssm.state_size", U32, 128),
        kv(a + ".ssm.group_count", U32, X["hk"]), kv(a + ".ssm.time_step_rank", U32, X["hv"]), kv(a + ".ssm.inner_size", U32, X["hv"] * 128)]
    toks = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)]
    toks += ["\u2581w%d" % i for i in range(V - len(toks))]
    metas += [kv("tokenizer.ggml.model", STR, "llama"), kv("tokenizer.ggml.tokens", ARR, (STR, toks)),
        kv("tokenizer.ggml.scores", ARR, (FLT, [-float(i) for i in range(V)])),
        kv("tokenizer.ggml.token_type", ARR, (I32, [2, 3, 3] + [6] * 256 + [1] * (V - 259))),
        kv("tokenizer.ggml.bos_token_id", U32, 1), kv("tokenizer.ggml.eos_token_id", U32, 2)]
    more = lambda i: i < L // 8 or i >= 7 * L // 8 or (i - L // 8) % 3 == 2
    if a == "gpt-oss": wtype = "q8"
    q4, qv, q6 = MIXES[wtype]; qe = MXFP4 if a == "gpt-oss" else q4
    fit = lambda t, k: t if k % BLOCK[t][0] == 0 else Q8_0   # as llama.cpp, if a row is no multiple of 256
    T = [("token_embd.weight", (H, V), q6 if tied else q4)]
    for i in range(L):
        p = "blk.%d." % i; w = lambda n, d, t: T.append((p + n, d, t)); v6 = qv if more(i) else q4; down = v6
        if wtype == "q3km": v6 = Q5_K if i < 2 else Q4_K; down = Q5_K if i < L // 16 else Q4_K
        if wtype == "iq4xs": v6 = Q5_K; down = Q5_K if i < L // 8 else q4
        w("attn_norm.weight", (H,), F32)
        if hybrid and (i + 1) % 4:
            K, VD = X["hk"] * 128, X["hv"] * 128
            w("attn_qkv.weight", (H, 2 * K + VD), v6); w("attn_gate.weight", (H, VD), q4); w("ssm_conv1d.weight", (4, 2 * K + VD), F32); w("ssm_dt.bias", (X["hv"],), F32); w("ssm_a", (X["hv"],), F32)
            w("ssm_beta.weight", (H, X["hv"]), F32); w("ssm_alpha.weight", (H, X["hv"]), F32); w("ssm_norm.weight", (128,), F32); w("ssm_out.weight", (VD, H), q4)
        else:
            hd, nkv = (X["full_hd"], X["full_kv"]) if full(i) else (HD, NKV)
            w("attn_q.weight", (H, NH * hd * (2 if hybrid else 1)), q4); w("attn_k.weight", (H, nkv * hd), q4)
            if not full(i): w("attn_v.weight", (H, nkv * hd), v6)
            w("attn_output.weight", (NH * hd, H), Q4_K if wtype == "q3km" else q4)
            if a in ("qwen2", "gpt-oss"): w("attn_q.bias", (NH * HD,), F32); w("attn_k.bias", (NKV * HD,), F32); w("attn_v.bias", (NKV * HD,), F32)
            if a == "gpt-oss": w("attn_output.bias", (H,), F32); w("attn_sinks.weight", (NH,), F32)
            if a in ("qwen3", "qwen3moe", "gemma3", "gemma4") or hybrid: w("attn_q_norm.weight", (hd,), F32); w("attn_k_norm.weight", (hd,), F32)
        if a in ("gemma3", "gemma4"): w("post_attention_norm.weight", (H,), F32); w("post_ffw_norm.weight", (H,), F32)
        w("post_attention_norm.weight" if hybrid or a == "gpt-oss" else "ffn_norm.weight", (H,), F32)
        if E:
            F = X["eff"]; w("ffn_gate_inp.weight", (H, E), F32); w("ffn_gate_exps.weight", (H, F, E), qe); w("ffn_up_exps.weight", (H, F, E), qe); w("ffn_down_exps.weight", (F, H, E), MXFP4 if qe == MXFP4 else v6)
            if a == "gpt-oss":
                for n, d in (("gate_inp", (E,)), ("gate_exps", (F, E)), ("up_exps", (F, E)), ("down_exps", (H, E))): w("ffn_%s.bias" % n, d, F32)
            if "shared" in X: S = X["shared"]; w("ffn_gate_inp_shexp.weight", (H,), F32); w("ffn_gate_shexp.weight", (H, S), q4); w("ffn_up_shexp.weight", (H, S), q4); w("ffn_down_shexp.weight", (S, H), v6)
        if gemma4:
            w("ffn_gate_inp.scale", (H,), F32); w("ffn_down_exps.scale", (E,), F32); w("layer_output_scale.weight", (1,), F32)
            for n in ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"): w(n + ".weight", (H,), F32)
        if not E or gemma4: w("ffn_gate.weight", (H, FF), q4); w("ffn_up.weight", (H, FF), q4); w("ffn_down.weight", (FF, H), down)
    T.append(("output_norm.weight", (H,), F32))
    if not tied: T.append(("output.weight", (H, V), q6))
    T = [(n, d, fit(t, d[0]) if len(d) >= 2 else t) for n, d, t in T]
    head, off, sizes = [], 0, []
    for n, d, t in T:
        ne = int(np.prod(d)); nb = ne // BLOCK[t][0] * BLOCK[t][1]
        head.append(s(n) + struct.pack("<I", len(d)) + b"".join(struct.pack("<Q", x) for x in d) + struct.pack("<IQ", t, off))
        sizes.append((n, t, ne, nb)); off += (nb + 31) // 32 * 32
    with open(out, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, len(T), len(metas)) + b"".join(metas) + b"".join(head))
        f.write(b"\0" * (-f.tell() % 32))
        for n, t, ne, nb in sizes:
            if n.endswith("ssm_a"): f.write((-np.abs(rng.normal(1, .3, ne))).astype(np.float32).tobytes())
            elif t == F32 and (".bias" in n or "gate_inp" in n and not n.endswith(".scale") or "ssm_" in n and "norm" not in n): f.write(rng.normal(0, .02, ne).astype(np.float32).tobytes())
            else: write_blocks(f, t, ne)
            f.write(b"\0" * (-nb % 32))
    print(out, "%.3f GB" % (off / 1e9), len(T), "tensors")

main(*sys.argv[1:])
