#!/usr/bin/python3
"""What models in Hugging Face folders compute, in float64: Model(FOLDER).logits(ids) is [len(ids), vocabulary].

    reference.py FOLDER...

prints how far it is off each golden.json below the folders, and exits with 1 if that is more than 0.0001. It was
written from transformers' definitions, and from none of hearth's sources, so that the two can be compared on any
configuration (variants.py). Angles of RoPE are rounded to F32, as in transformers. There is no cache, and speed does
not matter: every position is computed from the beginning. Needs numpy.
"""
import glob, json, math, os, struct, sys
import numpy as np


def bf16(raw):
    return (np.frombuffer(raw, '<u2').astype('<u4') << 16).view('<f4').astype(np.float64)


def load(d):
    w = {}
    for fn in sorted(os.listdir(d)):
        if not fn.endswith('.safetensors'):
            continue
        b = open(os.path.join(d, fn), 'rb').read()
        n = struct.unpack('<Q', b[:8])[0]
        h = json.loads(b[8 : 8 + n])
        for k, v in h.items():
            if k == '__metadata__':
                continue
            s, e = v['data_offsets']
            raw = b[8 + n + s : 8 + n + e]
            t = v['dtype']
            x = bf16(raw) if t == 'BF16' else np.frombuffer(raw, {'F32': '<f4', 'F16': '<f2', 'U8': 'u1'}[t])
            if t != 'U8':
                x = x.astype(np.float64)
            w[k] = x.reshape(v['shape'])
    return w


def sig(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sig(x)


def relu2(x):
    return np.maximum(x, 0) ** 2


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def softplus(x):
    return np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, 20))))


ACT = dict(silu=silu, relu2=relu2, gelu_pytorch_tanh=gelu_tanh)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rms(x, w, eps):
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    return x if w is None else x * w


def lnorm(x, w, b, eps):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w
    return x if b is None else x + b


def topk(s, k):
    """The ids of the k greatest, the lower id first among equals."""
    return np.argsort(-s, axis=-1, kind='stable')[..., :k]


# --- RoPE ------------------------------------------------------------------------------------------------
THETA = dict(
    ernie4_5=5e5,
    gemma3_text=1e6,
    gpt_oss=150000.0,
    lfm2=1e6,
    lfm2_moe=1e6,
    ministral3=1e6,
    mixtral=1e6,
    olmo3=5e5,
    qwen2_5_vl=1e6,
    qwen2_vl_text=1e6,
    qwen3_vl_text=5e6,
    qwen3_vl_moe_text=5e6,
    smollm3=2e6,
)  # elsewhere 10000


def rope_cfg(c, kind=None):
    theta = c.get('rope_theta', THETA.get(c['model_type'], 10000.0))
    r = c.get('rope_parameters')
    if r is None and kind == 'sliding_attention' and c['model_type'] == 'gemma3_text':
        return dict(rope_type='default', rope_theta=c.get('rope_local_base_freq', 10000.0))
    if r is None:
        r = dict(c.get('rope_scaling') or {})
        if 'type' in r and 'rope_type' not in r:
            r['rope_type'] = r['type']
        if 'partial_rotary_factor' in c:
            r['partial_rotary_factor'] = c['partial_rotary_factor']
    if kind and isinstance(r.get(kind), dict):
        r = r[kind]
    return dict(dict(rope_theta=theta), **r)


def inv_freq(c, hd, r, n, partial=True):
    """The frequencies of a head's pairs, for a length of n tokens, and the factor of cos and sin."""
    t = r.get('rope_type', r.get('type', 'default'))
    base = r['rope_theta']
    f = r.get('partial_rotary_factor', 1.0) if partial else 1.0
    if t == 'proportional':
        a = int(f * hd // 2)
        v = 1.0 / base ** (np.arange(0, 2 * a, 2) / hd)
        return np.concatenate([v, np.zeros(hd // 2 - a)]) / r.get('factor', 1.0), 1.0
    dim = int(hd * f)
    pos = base ** (np.arange(0, dim, 2) / dim)
    inv = 1 / pos
    maxp = c.get('max_position_embeddings')
    if t in ('default', 'mrope'):  # for text, positions of several kinds are the same
        return inv, 1.0
    if t == 'linear':
        return inv / r['factor'], 1.0
    if t == 'llama3':
        fac, lo, hi, old = (
            r['factor'],
            r['low_freq_factor'],
            r['high_freq_factor'],
            r['original_max_position_embeddings'],
        )
        wl = 2 * math.pi / inv
        out = np.where(wl > old / lo, inv / fac, inv)
        sm = (old / wl - lo) / (hi - lo)
        mid = (1 - sm) * out / fac + sm * out
        m = ~(wl < old / hi) & ~(wl > old / lo)
        return np.where(m, mid, out), 1.0
    if t == 'yarn':
        orig = r.get('original_max_position_embeddings') or c.get('original_max_position_embeddings') or maxp
        fac = r.get('factor')
        if fac is None:
            fac = maxp / orig
        af = r.get('attention_factor')
        ms, msa = r.get('mscale'), r.get('mscale_all_dim')
        g = lambda s, m=1: 1.0 if s <= 1 else 0.1 * m * math.log(s) + 1.0
        if af is None:
            af = g(fac, ms) / g(fac, msa) if ms and msa else g(fac)
        bf, bs = r.get('beta_fast') or 32, r.get('beta_slow') or 1
        cd = lambda nr: dim * math.log(orig / (nr * 2 * math.pi)) / (2 * math.log(base))
        lo, hi = cd(bf), cd(bs)
        if r.get('truncate', True):
            lo, hi = math.floor(lo), math.ceil(hi)
        lo, hi = max(lo, 0), min(hi, dim - 1)
        if lo == hi:
            hi += 0.001
        ramp = np.clip((np.arange(dim // 2) - lo) / (hi - lo), 0, 1)
        ef = 1 - ramp
        return inv / fac * (1 - ef) + inv * ef, af
    if t == 'longrope':
        orig = c.get('original_max_position_embeddings') or r.get('original_max_position_embeddings')
        fac = r.get('factor') or maxp / orig
        af = r.get('attention_factor')
        if af is None:
            af = 1.0 if fac <= 1 else math.sqrt(1 + math.log(fac) / math.log(orig))
        ext = np.array(r['long_factor'] if n > orig else r['short_factor'], float)
        return 1 / (ext * pos), af
    raise ValueError(t)


def rotate(x, pos, inv, af, pairs=False):
    """x is [tokens, heads, D], of which the first 2 len(inv) rotate: `pairs` adjacent, or half of them apart."""
    ang = (pos[:, None].astype(np.float32) * inv[None, :].astype(np.float32)).astype(np.float64)
    co, si = (np.cos(ang) * af)[:, None], (np.sin(ang) * af)[:, None]
    n = 2 * len(inv)
    y = x.copy()
    if pairs:
        a, b = x[..., 0:n:2], x[..., 1:n:2]
        y[..., 0:n:2], y[..., 1:n:2] = a * co - b * si, b * co + a * si
    else:
        a, b = x[..., : n // 2], x[..., n // 2 : n]
        y[..., : n // 2], y[..., n // 2 : n] = a * co - b * si, b * co + a * si
    return y


def attend(q, k, v, scale, window=None, cap=None, sinks=None):
    T, H, _ = q.shape
    rep = H // k.shape[1]
    k, v = np.repeat(k, rep, 1), np.repeat(v, rep, 1)
    s = np.einsum('thd,shd->hts', q, k) * scale
    if cap:
        s = cap * np.tanh(s / cap)
    i, j = np.arange(T)[:, None], np.arange(T)[None]
    m = j <= i
    if window:
        m &= i - j < window
    s = np.where(m, s, -np.inf)
    if sinks is not None:
        s = np.concatenate([s, np.broadcast_to(sinks[:, None, None], (H, T, 1))], -1)
    p = softmax(s)
    if sinks is not None:
        p = p[..., :-1]
    return np.einsum('hts,shd->thd', p, v).reshape(T, -1)


class Model:
    def __init__(self, d, cfg=None, w=None):
        self.c = cfg or json.load(open(d + '/config.json'))
        self.w = w if w is not None else load(d)
        self.mt = self.c['model_type']

    def g(self, *names, default=None):
        for n in names:
            if self.c.get(n) is not None:
                return self.c[n]
        return default

    def lin(self, x, name):
        y = x @ self.w[name + '.weight'].T
        b = self.w.get(name + '.bias')
        return y if b is None else y + b

    # --- attention -----------------------------------------------------------------------------------
    def hd(self):
        return self.g('head_dim', default=self.c['hidden_size'] // self.c['num_attention_heads'])

    def gqa(
        self,
        x,
        p,
        i,
        o='o_proj',
        norms=('q_norm', 'k_norm'),
        use_rope=True,
        pairs=False,
        window=None,
        scale=None,
        cap=None,
        kind=None,
        hd=None,
        plus1=False,
        partial=True,
        whole_norm=False,
        nkv=None,
    ):
        c, T = self.c, len(x)
        H, K = c['num_attention_heads'], nkv or self.g('num_key_value_heads', default=c['num_attention_heads'])
        hd = hd or self.hd()
        eps = self.g('rms_norm_eps', 'norm_eps', default=1e-6)
        q, k, v = (self.lin(x, f'{p}.{n}_proj') for n in 'qkv')
        if whole_norm:
            q, k = rms(q, self.w[p + '.q_norm.weight'], eps), rms(k, self.w[p + '.k_norm.weight'], eps)
        q, k, v = q.reshape(T, H, hd), k.reshape(T, K, hd), v.reshape(T, K, hd)
        if not whole_norm and f'{p}.{norms[0]}.weight' in self.w:
            q = rms(q, self.w[f'{p}.{norms[0]}.weight'] + plus1, eps)
            k = rms(k, self.w[f'{p}.{norms[1]}.weight'] + plus1, eps)
        if use_rope:
            r = rope_cfg(c, kind)
            inv, af = inv_freq(c, hd, r, T, partial)
            pos = np.arange(T)
            q, k = rotate(q, pos, inv, af, pairs), rotate(k, pos, inv, af, pairs)
            if self.mt == 'ministral3' and r.get('llama_4_scaling_beta') is not None:
                q = (
                    q
                    * (1 + r['llama_4_scaling_beta'] * np.log1p(np.floor(pos / r['original_max_position_embeddings'])))[
                        :, None, None
                    ]
                )
        y = attend(q, k, v, hd**-0.5 if scale is None else scale, window, cap, self.w.get(p + '.sinks'))
        return self.lin(y, f'{p}.{o}')

    # --- feed forward --------------------------------------------------------------------------------
    def glu(self, x, p, act=silu, names=('gate_proj', 'up_proj', 'down_proj')):
        return self.lin(act(self.lin(x, f'{p}.{names[0]}')) * self.lin(x, f'{p}.{names[1]}'), f'{p}.{names[2]}')

    def experts(self, x, idx, wt, f):
        y = np.zeros_like(x)
        for e in np.unique(idx):
            t, j = np.where(idx == e)
            y[t] += f(x[t], e) * wt[t, j][:, None]
        return y

    def route_soft(self, logits, k, norm):
        p = softmax(logits)
        idx = topk(p, k)
        wt = np.take_along_axis(p, idx, -1)
        if norm:
            wt = wt / wt.sum(-1, keepdims=True)
        return idx, wt

    def route_sigmoid(self, logits, bias, k, n_group, topk_group, norm, scale, fill=-np.inf, eps=1e-20):
        p = sig(logits)
        sel = p + bias
        if n_group > 1:
            T, E = sel.shape
            gs = np.sort(sel.reshape(T, n_group, -1), -1)[..., -2:].sum(-1)
            keep = np.zeros((T, n_group), bool)
            np.put_along_axis(keep, topk(gs, topk_group), True, -1)
            sel = np.where(np.repeat(keep, E // n_group, 1), sel, fill)
        idx = topk(sel, k)
        wt = np.take_along_axis(p, idx, -1)
        if norm:
            wt = wt / (wt.sum(-1, keepdims=True) + eps)
        return idx, wt * scale

    def expert_glu(self, p, act=silu, names=('gate_proj', 'up_proj', 'down_proj')):
        if f'{p}.gate_up_proj' in self.w:
            gu, dn = self.w[f'{p}.gate_up_proj'], self.w[f'{p}.down_proj']
            if self.mt == 'qwen3_vl_moe_text':  # published transposed; transformers goes by the shapes
                D, ff = self.c['hidden_size'], self.c['moe_intermediate_size']
                gu = gu if gu.shape[1:] == (2 * ff, D) else gu.swapaxes(1, 2)
                dn = dn if dn.shape[1:] == (D, ff) else dn.swapaxes(1, 2)

            def f(x, e):
                a, b = np.split(x @ gu[e].T, 2, -1)
                return (act(a) * b) @ dn[e].T

            return f
        return lambda x, e: self.glu(x, f'{p}.{e}', act, names)

    def deepseek_moe(self, x, p):
        c = self.c
        logits = x @ self.w[p + '.gate.weight'].T
        if self.mt == 'deepseek_v2':
            k, pr = c['num_experts_per_tok'], softmax(logits)
            sel = pr
            if self.g('topk_method', default='greedy') == 'group_limited_greedy':
                T, E = pr.shape
                n = c['n_group']
                gs = pr.reshape(T, n, -1).max(-1)
                keep = np.zeros((T, n), bool)
                np.put_along_axis(keep, topk(gs, c['topk_group']), True, -1)
                sel = np.where(np.repeat(keep, E // n, 1), pr, 0.0)
            idx = topk(sel, k)
            wt = np.take_along_axis(pr, idx, -1) * self.g('routed_scaling_factor', default=1.0)
        else:
            of_v3 = self.mt == 'deepseek_v3'
            idx, wt = self.route_sigmoid(
                logits,
                self.w[p + '.gate.e_score_correction_bias'],
                self.g('num_experts_per_tok', default=8),
                self.g('n_group', default=8 if of_v3 else 1),
                self.g('topk_group', default=4 if of_v3 else 1),
                self.g('norm_topk_prob', default=True),
                self.g('routed_scaling_factor', default=2.5 if of_v3 else 1.0),
            )
        y = self.experts(x, idx, wt, self.expert_glu(p + '.experts'))
        if p + '.shared_experts.down_proj.weight' in self.w:
            y = y + self.glu(x, p + '.shared_experts')
        return y

    def qwen_moe(self, x, p, norm):
        idx, wt = self.route_soft(x @ self.w[p + '.gate.weight'].T, self.g('num_experts_per_tok'), norm)
        y = self.experts(x, idx, wt, self.expert_glu(p + '.experts'))
        if p + '.shared_expert.down_proj.weight' in self.w:
            y = y + sig(x @ self.w[p + '.shared_expert_gate.weight'].T) * self.glu(x, p + '.shared_expert')
        return y

    def is_sparse(self, i):
        c = self.c
        return i not in (c.get('mlp_only_layers') or []) and (i + 1) % self.g('decoder_sparse_step', default=1) == 0

    # --- recurrent -----------------------------------------------------------------------------------
    def conv(self, x, w, b):
        """A causal convolution of each channel: x is [tokens, C], w [C, 1, taps]."""
        w = w[:, 0]
        K = w.shape[1]
        xp = np.concatenate([np.zeros((K - 1, x.shape[1])), x])
        y = sum(xp[j : j + len(x)] * w[:, j] for j in range(K))
        return y if b is None else y + b

    def delta(self, x, p):
        c, T = self.c, len(x)
        Hk, Hv, dk, dv = (
            c['linear_' + n] for n in ('num_key_heads', 'num_value_heads', 'key_head_dim', 'value_head_dim')
        )
        r = Hv // Hk
        if p + '.in_proj_qkvz.weight' in self.w:
            m = self.lin(x, p + '.in_proj_qkvz').reshape(T, Hk, 2 * dk + 2 * r * dv)
            ba = self.lin(x, p + '.in_proj_ba').reshape(T, Hk, 2 * r)
            q, k = m[..., :dk], m[..., dk : 2 * dk]
            v, z = m[..., 2 * dk : 2 * dk + r * dv], m[..., 2 * dk + r * dv :]
            b, a = ba[..., :r].reshape(T, Hv), ba[..., r:].reshape(T, Hv)
            qkv = np.concatenate([t.reshape(T, -1) for t in (q, k, v)], -1)
            z = z.reshape(T, Hv, dv)
        else:
            qkv, z = self.lin(x, p + '.in_proj_qkv'), self.lin(x, p + '.in_proj_z').reshape(T, Hv, dv)
            b, a = self.lin(x, p + '.in_proj_b'), self.lin(x, p + '.in_proj_a')
        qkv = silu(self.conv(qkv, self.w[p + '.conv1d.weight'], self.w.get(p + '.conv1d.bias')))
        q, k, v = np.split(qkv, [Hk * dk, 2 * Hk * dk], -1)
        q, k, v = q.reshape(T, Hk, dk), k.reshape(T, Hk, dk), v.reshape(T, Hv, dv)
        l2 = lambda t: t / np.sqrt((t * t).sum(-1, keepdims=True) + 1e-6)
        q, k = np.repeat(l2(q), r, 1) / math.sqrt(dk), np.repeat(l2(k), r, 1)
        beta, g = sig(b), -np.exp(self.w[p + '.A_log']) * softplus(a + self.w[p + '.dt_bias'])
        S, o = np.zeros((Hv, dk, dv)), np.zeros((T, Hv, dv))
        for t in range(T):
            S = S * np.exp(g[t])[:, None, None]
            d = beta[t][:, None] * (v[t] - np.einsum('hkv,hk->hv', S, k[t]))
            S = S + k[t][:, :, None] * d[:, None]
            o[t] = np.einsum('hkv,hk->hv', S, q[t])
        o = rms(o, self.w[p + '.norm.weight'], self.g('rms_norm_eps', default=1e-6)) * silu(z)
        return self.lin(o.reshape(T, -1), p + '.out_proj')

    def mamba(self, x, p, H, P, N, G, eps, norm_groups, lo=0.0, hi=math.inf):
        T, I = len(x), H * P
        z, xbc, dt = np.split(self.lin(x, p + '.in_proj'), [I, 2 * I + 2 * G * N], -1)
        xbc = silu(self.conv(xbc, self.w[p + '.conv1d.weight'], self.w.get(p + '.conv1d.bias')))
        u, B, C = np.split(xbc, [I, I + G * N], -1)
        u, B, C = u.reshape(T, H, P), np.repeat(B.reshape(T, G, N), H // G, 1), np.repeat(C.reshape(T, G, N), H // G, 1)
        dt = np.clip(softplus(dt + self.w[p + '.dt_bias']), lo, hi)
        A, D = -np.exp(self.w[p + '.A_log']), self.w[p + '.D']
        S, y = np.zeros((H, P, N)), np.zeros((T, H, P))
        for t in range(T):
            S = S * np.exp(dt[t] * A)[:, None, None] + (dt[t][:, None] * u[t])[:, :, None] * B[t][:, None]
            y[t] = np.einsum('hpn,hn->hp', S, C[t]) + D[:, None] * u[t]
        y = y.reshape(T, I) * silu(z)
        w = self.w[p + '.norm.weight']
        y = rms(y.reshape(T, norm_groups, -1), None, eps).reshape(T, I) * w
        return self.lin(y, p + '.out_proj')

    # --- models --------------------------------------------------------------------------------------
    def definition(self):
        """The function of this model type; None if there is none."""
        same = {
            'plain': 'llama mistral ministral3 smollm3 granite mixtral qwen2 qwen3 qwen2_moe qwen3_moe gpt_oss '
            'qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen3_vl_text seed_oss ernie4_5 granitemoe arcee '
            'qwen3_vl_moe_text',
            'gemma3': 'gemma3_text',
            'gemma4': 'gemma4_text',
            'qwen3_5': 'qwen3_5_text qwen3_5_moe_text qwen3_next',
            'deepseek_v3': 'deepseek_v2 glm4_moe_lite',
            'glm4_moe': 'dots1',
            'olmo2': 'olmo3',
            'lfm2': 'lfm2_moe',
        }
        name = next((k for k, v in same.items() if self.mt in v.split()), self.mt)
        return getattr(self, 'm_' + name, None)

    def logits(self, ids):
        return self.definition()(np.asarray(ids))

    def head(self, h, emb='model.embed_tokens'):
        w = self.w.get('lm_head.weight')
        if w is None:
            w = self.w[emb + '.weight']
        y = h @ w.T
        return y if self.w.get('lm_head.bias') is None else y + self.w['lm_head.bias']

    def window_of(self, i):
        """The window of layer i of Qwen, Mistral and their relatives."""
        c = self.c
        lt = c.get('layer_types')
        sw = c.get('sliding_window')
        if self.mt in ('mistral', 'mixtral', 'ministral3', 'phi3'):
            return sw
        if self.mt == 'qwen3_moe':
            return sw if c.get('use_sliding_window') else None
        if self.mt == 'gpt_oss':
            lt = self.types(2)
        if lt:
            return sw if lt[i] == 'sliding_attention' else None
        if self.mt == 'smollm3':
            return sw if c.get('use_sliding_window') and not self.turns(i) else None
        if self.mt == 'qwen2_moe' and c.get('use_sliding_window'):
            return sw if i < c.get('max_window_layers', 28) and i % 2 == 0 else None
        if c.get('use_sliding_window') and sw:
            return sw if i >= c.get('max_window_layers', 28) else None
        return None

    def types(self, period):
        """layer_types, or a period's where there are none."""
        n = self.g('sliding_window_pattern', '_sliding_window_pattern', default=period)
        return self.c.get('layer_types') or [
            'sliding_attention' if (i + 1) % n else 'full_attention' for i in range(self.c['num_hidden_layers'])
        ]

    def turns(self, i):
        """Whether layer i of a SmolLM 3 has RoPE."""
        every = self.c.get('no_rope_layer_interval', 4)
        return bool(self.c['no_rope_layers'][i]) if self.c.get('no_rope_layers') else (i + 1) % every != 0

    def m_plain(self, ids):
        """Llama, Mistral, Ministral 3, SmolLM 3, Granite, Mixtral, Qwen 2 and 3 with experts, with and without vision,
        gpt-oss, Seed-OSS, ERNIE 4.5, Arcee."""
        c, mt = self.c, self.mt
        granite = mt in ('granite', 'granitemoe')
        eps = self.g('rms_norm_eps', default=1e-6)
        x = self.w['model.embed_tokens.weight'][ids] * (
            self.g('embedding_multiplier', default=1.0) if granite else 1.0
        )
        res = self.g('residual_multiplier', default=1.0) if granite else 1.0
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            h = rms(x, self.w[p + '.input_layernorm.weight'], eps)
            kw = dict(pairs=mt == 'ernie4_5')
            if mt == 'smollm3':
                kw['use_rope'] = self.turns(i)
            if granite:
                kw['scale'] = self.g('attention_multiplier', default=1.0)
            x = x + res * self.gqa(h, p + '.self_attn', i, window=self.window_of(i), partial=False, **kw)
            h = rms(x, self.w[p + '.post_attention_layernorm.weight'], eps)
            if mt == 'mixtral':
                q = p + '.block_sparse_moe'
                idx, wt = self.route_soft(h @ self.w[q + '.gate.weight'].T, c['num_experts_per_tok'], True)
                f = self.experts(h, idx, wt, self.expert_glu(q + '.experts', names=('w1', 'w3', 'w2')))
            elif mt in ('qwen2_moe', 'qwen3_moe', 'qwen3_vl_moe_text') and self.is_sparse(i):
                f = self.qwen_moe(h, p + '.mlp', self.g('norm_topk_prob', default=mt == 'qwen3_vl_moe_text'))
            elif mt == 'gpt_oss':
                f = self.oss_moe(h, p + '.mlp')
            elif mt == 'granitemoe':
                f = self.granite_moe(h, p + '.block_sparse_moe')
            elif mt == 'arcee':
                f = self.lin(relu2(self.lin(h, p + '.mlp.up_proj')), p + '.mlp.down_proj')
            else:
                f = self.glu(h, p + '.mlp', ACT[self.g('hidden_act', default='silu')])
            x = x + res * f
        y = self.head(rms(x, self.w['model.norm.weight'], eps))
        return y / self.g('logits_scaling', default=1.0) if granite else y

    def granite_moe(self, x, p):
        logits = x @ self.w[p + '.router.layer.weight'].T
        idx = topk(logits, self.c['num_experts_per_tok'])
        wt = softmax(np.take_along_axis(logits, idx, -1))
        up, down = self.w[p + '.input_linear.weight'], self.w[p + '.output_linear.weight']

        def f(t, e):
            a, b = np.split(t @ up[e].T, 2, -1)
            return (silu(a) * b) @ down[e].T

        return self.experts(x, idx, wt, f)

    def m_gemma(self, ids):
        c = self.c
        N = lambda x, n: rms(x, self.w[n + '.weight'] + 1, c['rms_norm_eps'])
        x = self.w['model.embed_tokens.weight'][ids] * math.sqrt(c['hidden_size'])
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            x = x + self.gqa(N(x, p + '.input_layernorm'), p + '.self_attn', i, partial=False)
            x = x + self.glu(N(x, p + '.post_attention_layernorm'), p + '.mlp', gelu_tanh)
        return self.head(N(x, 'model.norm'))

    def m_exaone4(self, ids):
        c, eps = self.c, self.c['rms_norm_eps']
        x = self.w['model.embed_tokens.weight'][ids]
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            sw = c['sliding_window'] and self.types(4)[i] == 'sliding_attention'
            h = self.gqa(
                x,
                p + '.self_attn',
                i,
                use_rope=c['sliding_window'] is None or sw,
                window=c['sliding_window'] if sw else None,
                partial=False,
            )
            x = x + rms(h, self.w[p + '.post_attention_layernorm.weight'], eps)
            x = x + rms(self.glu(x, p + '.mlp'), self.w[p + '.post_feedforward_layernorm.weight'], eps)
        return self.head(rms(x, self.w['model.norm.weight'], eps))

    def m_olmoe(self, ids):
        c, eps = self.c, self.c['rms_norm_eps']
        x = self.w['model.embed_tokens.weight'][ids]
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            h = rms(x, self.w[p + '.input_layernorm.weight'], eps)
            x = x + self.gqa(h, p + '.self_attn', i, whole_norm=True, partial=False)
            h = rms(x, self.w[p + '.post_attention_layernorm.weight'], eps)
            x = x + self.qwen_moe(h, p + '.mlp', self.g('norm_topk_prob', default=False))
        return self.head(rms(x, self.w['model.norm.weight'], eps))

    def oss_moe(self, x, p):
        lo = self.lin(x, p + '.router')
        k = self.g('num_experts_per_tok', default=4)
        idx = topk(lo, k)
        wt = softmax(np.take_along_axis(lo, idx, -1))
        e_ = p + '.experts.'

        def f(t, e):
            gu = t @ self.w[e_ + 'gate_up_proj'][e] + self.w[e_ + 'gate_up_proj_bias'][e]
            g, u = np.minimum(gu[:, ::2], 7.0), np.clip(gu[:, 1::2], -7.0, 7.0)
            return ((u + 1) * g * sig(1.702 * g)) @ self.w[e_ + 'down_proj'][e] + self.w[e_ + 'down_proj_bias'][e]

        return self.experts(x, idx, wt, f)

    def m_phi3(self, ids):
        c, T = self.c, len(ids)
        eps, H, K, hd = c['rms_norm_eps'], c['num_attention_heads'], c['num_key_value_heads'], self.hd()
        x = self.w['model.embed_tokens.weight'][ids]
        r = rope_cfg(c)
        inv, af = inv_freq(c, hd, r, T)
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            qkv = self.lin(rms(x, self.w[p + '.input_layernorm.weight'], eps), p + '.self_attn.qkv_proj')
            q, k, v = np.split(qkv, [H * hd, (H + K) * hd], -1)
            q, k, v = q.reshape(T, H, hd), k.reshape(T, K, hd), v.reshape(T, K, hd)
            q, k = (rotate(t, np.arange(T), inv, af) for t in (q, k))
            x = x + self.lin(attend(q, k, v, hd**-0.5, c.get('sliding_window')), p + '.self_attn.o_proj')
            a, b = np.split(
                self.lin(rms(x, self.w[p + '.post_attention_layernorm.weight'], eps), p + '.mlp.gate_up_proj'), 2, -1
            )
            x = x + self.lin(silu(a) * b, p + '.mlp.down_proj')
        return self.head(rms(x, self.w['model.norm.weight'], eps))

    def m_glm4(self, ids):
        c = self.c
        eps = c['rms_norm_eps']
        x = self.w['model.embed_tokens.weight'][ids]
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            h = self.gqa(rms(x, self.w[p + '.input_layernorm.weight'], eps), p + '.self_attn', i, pairs=True)
            x = x + rms(h, self.w[p + '.post_self_attn_layernorm.weight'], eps)
            a, b = np.split(
                self.lin(rms(x, self.w[p + '.post_attention_layernorm.weight'], eps), p + '.mlp.gate_up_proj'), 2, -1
            )
            x = x + rms(self.lin(silu(a) * b, p + '.mlp.down_proj'), self.w[p + '.post_mlp_layernorm.weight'], eps)
        return self.head(rms(x, self.w['model.norm.weight'], eps))

    def m_glm4_moe(self, ids):
        c = self.c
        eps = self.g('rms_norm_eps', default=1e-5)
        x = self.w['model.embed_tokens.weight'][ids]
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            x = x + self.gqa(
                rms(x, self.w[p + '.input_layernorm.weight'], eps),
                p + '.self_attn',
                i,
                partial=self.mt == 'glm4_moe',
                window=self.window_of(i) if self.mt == 'dots1' else None,
            )
            h = rms(x, self.w[p + '.post_attention_layernorm.weight'], eps)
            x = x + (
                self.deepseek_moe(h, p + '.mlp')
                if i >= self.g('first_k_dense_replace', default=0)
                else self.glu(h, p + '.mlp')
            )
        return self.head(rms(x, self.w['model.norm.weight'], eps))

    def m_deepseek_v3(self, ids):
        c, T = self.c, len(ids)
        eps = self.g('rms_norm_eps', default=1e-6)
        H, L, nope, ro, vd = (
            c[k] for k in ('num_attention_heads', 'kv_lora_rank', 'qk_nope_head_dim', 'qk_rope_head_dim', 'v_head_dim')
        )
        x = self.w['model.embed_tokens.weight'][ids]
        r = rope_cfg(c)
        inv, af = inv_freq(c, ro, r, T)
        scale = (nope + ro) ** -0.5
        if r.get('rope_type', 'default') != 'default' and r.get('mscale_all_dim'):
            m = 0.1 * r['mscale_all_dim'] * math.log(r['factor']) + 1.0 if r['factor'] > 1 else 1.0
            scale *= m * m
        pairs = self.g('rope_interleave', default=True) or self.mt == 'deepseek_v2'
        pos = np.arange(T)
        mt = c.get('mlp_layer_types')
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            a = p + '.self_attn'
            h = rms(x, self.w[p + '.input_layernorm.weight'], eps)
            if a + '.q_proj.weight' in self.w:
                q = self.lin(h, a + '.q_proj')
            else:
                q = self.lin(
                    rms(self.lin(h, a + '.q_a_proj'), self.w[a + '.q_a_layernorm.weight'], 1e-6), a + '.q_b_proj'
                )
            q = q.reshape(T, H, nope + ro)
            ckv = self.lin(h, a + '.kv_a_proj_with_mqa')
            ckv, kr = ckv[:, :L], ckv[:, None, L:]
            kv = self.lin(rms(ckv, self.w[a + '.kv_a_layernorm.weight'], 1e-6), a + '.kv_b_proj').reshape(
                T, H, nope + vd
            )
            q = np.concatenate([q[..., :nope], rotate(q[..., nope:], pos, inv, af, pairs)], -1)
            k = np.concatenate([kv[..., :nope], np.repeat(rotate(kr, pos, inv, af, pairs), H, 1)], -1)
            x = x + self.lin(attend(q, k, kv[..., nope:], scale), a + '.o_proj')
            h = rms(x, self.w[p + '.post_attention_layernorm.weight'], eps)
            sparse = mt[i] == 'sparse' if mt else i >= self.g('first_k_dense_replace', default=0)
            x = x + (self.deepseek_moe(h, p + '.mlp') if sparse else self.glu(h, p + '.mlp'))
        return self.head(rms(x, self.w['model.norm.weight'], eps))

    def m_qwen3_5(self, ids):
        """Qwen 3-Next and 3.5."""
        c, T = self.c, len(ids)
        eps = self.g('rms_norm_eps', default=1e-6)
        H, K, hd = c['num_attention_heads'], c['num_key_value_heads'], self.g('head_dim', default=256)
        x = self.w['model.embed_tokens.weight'][ids]
        r = dict(rope_cfg(c))
        r.setdefault('partial_rotary_factor', c.get('partial_rotary_factor', 0.25))
        inv, af = inv_freq(c, hd, r, T)
        iv = c.get('full_attention_interval', 4)
        lt = c.get('layer_types') or [
            'full_attention' if (i + 1) % iv == 0 else 'linear_attention' for i in range(c['num_hidden_layers'])
        ]
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            h = rms(x, 1 + self.w[p + '.input_layernorm.weight'], eps)
            if lt[i] == 'linear_attention':
                x = x + self.delta(h, p + '.linear_attn')
            else:
                a = p + '.self_attn'
                qg = self.lin(h, a + '.q_proj').reshape(T, H, 2 * hd)
                q, gate = qg[..., :hd], qg[..., hd:].reshape(T, -1)
                k, v = self.lin(h, a + '.k_proj').reshape(T, K, hd), self.lin(h, a + '.v_proj').reshape(T, K, hd)
                q, k = rms(q, 1 + self.w[a + '.q_norm.weight'], eps), rms(k, 1 + self.w[a + '.k_norm.weight'], eps)
                q, k = (rotate(t, np.arange(T), inv, af) for t in (q, k))
                x = x + self.lin(attend(q, k, v, hd**-0.5) * sig(gate), a + '.o_proj')
            h = rms(x, 1 + self.w[p + '.post_attention_layernorm.weight'], eps)
            if self.mt == 'qwen3_5_moe_text':
                f = self.qwen_moe(h, p + '.mlp', True)
            elif self.mt == 'qwen3_next' and self.is_sparse(i):
                f = self.qwen_moe(h, p + '.mlp', self.g('norm_topk_prob', default=True))
            else:
                f = self.glu(h, p + '.mlp')
            x = x + f
        return self.head(rms(x, 1 + self.w['model.norm.weight'], eps))

    def m_gemma2(self, ids):
        c = self.c
        eps = c['rms_norm_eps']
        W = lambda n: 1 + self.w[n + '.weight']
        x = self.w['model.embed_tokens.weight'][ids] * math.sqrt(c['hidden_size'])
        lt = c.get('layer_types') or [
            'sliding_attention' if (i + 1) % 2 else 'full_attention' for i in range(c['num_hidden_layers'])
        ]
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            h = self.gqa(
                rms(x, W(p + '.input_layernorm'), eps),
                p + '.self_attn',
                i,
                window=c['sliding_window'] if lt[i] == 'sliding_attention' else None,
                scale=c['query_pre_attn_scalar'] ** -0.5,
                cap=c.get('attn_logit_softcapping'),
                partial=False,
            )
            x = x + rms(h, W(p + '.post_attention_layernorm'), eps)
            h = self.glu(rms(x, W(p + '.pre_feedforward_layernorm'), eps), p + '.mlp', gelu_tanh)
            x = x + rms(h, W(p + '.post_feedforward_layernorm'), eps)
        y = self.head(rms(x, W('model.norm'), eps))
        f = c.get('final_logit_softcapping')
        return f * np.tanh(y / f) if f else y

    def m_gemma3(self, ids):
        c = self.c
        eps = c['rms_norm_eps']
        W = lambda n: 1 + self.w[n + '.weight']
        x = self.w['model.embed_tokens.weight'][ids] * math.sqrt(c['hidden_size'])
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            kind = self.types(6)[i]
            sw = kind == 'sliding_attention'
            h = self.gqa(
                rms(x, W(p + '.input_layernorm'), eps),
                p + '.self_attn',
                i,
                window=c['sliding_window'] if sw else None,
                plus1=True,
                scale=c['query_pre_attn_scalar'] ** -0.5,
                cap=c.get('attn_logit_softcapping'),
                kind=kind,
                partial=False,
            )
            x = x + rms(h, W(p + '.post_attention_layernorm'), eps)
            h = self.glu(rms(x, W(p + '.pre_feedforward_layernorm'), eps), p + '.mlp', gelu_tanh)
            x = x + rms(h, W(p + '.post_feedforward_layernorm'), eps)
        y = self.head(rms(x, W('model.norm'), eps))
        f = c.get('final_logit_softcapping')
        return f * np.tanh(y / f) if f else y

    def m_gemma4(self, ids):
        c, T, D = self.c, len(ids), self.c['hidden_size']
        eps, H, L = self.g('rms_norm_eps', default=1e-6), c['num_attention_heads'], c['num_hidden_layers']
        W = lambda n: self.w[n + '.weight']
        lt = list(c.get('layer_types') or ['sliding_attention' if (i + 1) % 6 else 'full_attention' for i in range(L)])
        lt[-1] = 'full_attention'
        plc = {int(k): v for k, v in (c.get('per_layer_config') or {}).items()}
        x = W('model.embed_tokens')[ids] * math.sqrt(D)
        P = self.g('hidden_size_per_layer_input', default=0)
        if P:
            tok = W('model.embed_tokens_per_layer')[ids].reshape(T, L, P) * math.sqrt(P)
            prj = rms(
                (x @ W('model.per_layer_model_projection').T / math.sqrt(D)).reshape(T, L, P),
                W('model.per_layer_projection_norm'),
                eps,
            )
            pli = (tok + prj) / math.sqrt(2)
        first = L - self.g('num_kv_shared_layers', default=0)
        kept, pos = {}, np.arange(T)
        for i in range(L):
            p = f'model.layers.{i}'
            a = p + '.self_attn'
            full = lt[i] == 'full_attention'
            hd = plc.get(i, {}).get(
                'head_dim',
                c.get('global_head_dim') if full and c.get('global_head_dim') else self.g('head_dim', default=256),
            )
            K = plc.get(i, {}).get(
                'num_key_value_heads',
                (c.get('num_global_key_value_heads') if full and c.get('attention_k_eq_v') else None)
                or c['num_key_value_heads'],
            )
            h = rms(x, W(p + '.input_layernorm'), eps)
            inv, af = inv_freq(c, hd, rope_cfg(c, lt[i]), T)
            q = rotate(rms(self.lin(h, a + '.q_proj').reshape(T, H, hd), W(a + '.q_norm'), eps), pos, inv, af)
            if i >= first > 0:
                k, v = kept[lt[i]]
            else:
                kp = self.lin(h, a + '.k_proj').reshape(T, K, hd)
                vp = self.lin(h, a + '.v_proj').reshape(T, K, hd) if a + '.v_proj.weight' in self.w else kp
                k, v = rotate(rms(kp, W(a + '.k_norm'), eps), pos, inv, af), rms(vp, None, eps)
                kept[lt[i]] = k, v
            h = self.lin(attend(q, k, v, 1.0, None if full else c['sliding_window']), a + '.o_proj')
            x = x + rms(h, W(p + '.post_attention_layernorm'), eps)
            h = self.glu(rms(x, W(p + '.pre_feedforward_layernorm'), eps), p + '.mlp', gelu_tanh)
            if c.get('enable_moe_block'):
                h1 = rms(h, W(p + '.post_feedforward_layernorm_1'), eps)
                lo = (rms(x, None, eps) * self.w[p + '.router.scale'] / math.sqrt(D)) @ W(p + '.router.proj').T
                idx, wt = self.route_soft(lo, c['top_k_experts'], True)
                wt = wt * self.w[p + '.router.per_expert_scale'][idx]
                h2 = self.experts(
                    rms(x, W(p + '.pre_feedforward_layernorm_2'), eps),
                    idx,
                    wt,
                    self.expert_glu(p + '.experts', gelu_tanh),
                )
                h = h1 + rms(h2, W(p + '.post_feedforward_layernorm_2'), eps)
            x = x + rms(h, W(p + '.post_feedforward_layernorm'), eps)
            if P:
                h = gelu_tanh(self.lin(x, p + '.per_layer_input_gate')) * pli[:, i]
                x = x + rms(self.lin(h, p + '.per_layer_projection'), W(p + '.post_per_layer_input_norm'), eps)
            x = x * self.w[p + '.layer_scalar']
        y = self.head(rms(x, W('model.norm'), eps))
        f = c.get('final_logit_softcapping')
        return f * np.tanh(y / f) if f else y

    def m_starcoder2(self, ids):
        c = self.c
        eps = self.g('norm_epsilon', default=1e-5)
        N = lambda x, n: lnorm(x, self.w[n + '.weight'], self.w.get(n + '.bias'), eps)
        x = self.w['model.embed_tokens.weight'][ids]
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            x = x + self.gqa(
                N(x, p + '.input_layernorm'), p + '.self_attn', i, window=c.get('sliding_window'), partial=False
            )
            x = x + self.lin(
                gelu_tanh(self.lin(N(x, p + '.post_attention_layernorm'), p + '.mlp.c_fc')), p + '.mlp.c_proj'
            )
        return self.head(N(x, 'model.norm'))

    def m_nemotron(self, ids):
        c = self.c
        eps = self.g('norm_eps', default=1e-5)
        N = lambda x, n: lnorm(x, 1 + self.w[n + '.weight'], self.w.get(n + '.bias'), eps)
        x = self.w['model.embed_tokens.weight'][ids]
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            x = x + self.gqa(N(x, p + '.input_layernorm'), p + '.self_attn', i)
            x = x + self.lin(
                relu2(self.lin(N(x, p + '.post_attention_layernorm'), p + '.mlp.up_proj')), p + '.mlp.down_proj'
            )
        return self.head(N(x, 'model.norm'))

    def m_olmo2(self, ids):
        c = self.c
        eps = self.g('rms_norm_eps', default=1e-5)
        x = self.w['model.embed_tokens.weight'][ids]
        lt = c.get('layer_types') or [
            'full_attention' if self.mt == 'olmo2' or (i + 1) % 4 == 0 else 'sliding_attention'
            for i in range(c['num_hidden_layers'])
        ]
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            sw = lt[i] == 'sliding_attention'
            keep = self.c
            if sw and 'full_attention' not in (
                c.get('rope_parameters') or {}
            ):  # OLMo 3 scales RoPE in layers that do not slide
                self.c = dict(c, rope_parameters=dict(rope_type='default', rope_theta=rope_cfg(c)['rope_theta']))
            h = self.gqa(
                x,
                p + '.self_attn',
                i,
                whole_norm=True,
                window=c.get('sliding_window') if sw else None,
                partial=False,
                kind=lt[i],
            )
            self.c = keep
            x = x + rms(h, self.w[p + '.post_attention_layernorm.weight'], eps)
            x = x + rms(self.glu(x, p + '.mlp'), self.w[p + '.post_feedforward_layernorm.weight'], eps)
        return self.head(rms(x, self.w['model.norm.weight'], eps))

    def m_cohere2(self, ids):
        c = self.c
        eps = self.g('layer_norm_eps', default=1e-5)
        x = self.w['model.embed_tokens.weight'][ids]
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            sw = self.types(4)[i] == 'sliding_attention'
            h = lnorm(x, self.w[p + '.input_layernorm.weight'], None, eps)
            x = (
                x
                + self.gqa(
                    h,
                    p + '.self_attn',
                    i,
                    use_rope=sw,
                    pairs=True,
                    window=c['sliding_window'] if sw else None,
                    partial=False,
                )
                + self.glu(h, p + '.mlp')
            )
        return self.head(lnorm(x, self.w['model.norm.weight'], None, eps)) * self.g('logit_scale', default=0.0625)

    def m_lfm2(self, ids):
        c = self.c
        eps = self.g('norm_eps', default=1e-5)
        x = self.w['model.embed_tokens.weight'][ids]
        n_dense = self.g('num_dense_layers', default=2) if self.mt == 'lfm2_moe' else c['num_hidden_layers']
        attend = self.g('full_attn_idxs') or [i for i, t in enumerate(c['layer_types']) if t == 'full_attention']
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            h = rms(x, self.w[p + '.operator_norm.weight'], eps)
            if i in attend:
                h = self.gqa(h, p + '.self_attn', i, o='out_proj', norms=('q_layernorm', 'k_layernorm'), partial=False)
            else:
                b, cc, u = np.split(self.lin(h, p + '.conv.in_proj'), 3, -1)
                h = self.lin(
                    cc * self.conv(b * u, self.w[p + '.conv.conv.weight'], self.w.get(p + '.conv.conv.bias')),
                    p + '.conv.out_proj',
                )
            x = x + h
            h = rms(x, self.w[p + '.ffn_norm.weight'], eps)
            q = p + '.feed_forward'
            if i < n_dense:
                f = self.glu(h, q, silu, ('w1', 'w3', 'w2'))
            else:
                lo = h @ self.w[q + '.gate.weight'].T
                bias = self.w[q + '.expert_bias'] if c.get('use_expert_bias') else 0.0
                idx, wt = self.route_sigmoid(
                    lo,
                    bias,
                    c['num_experts_per_tok'],
                    1,
                    1,
                    self.g('norm_topk_prob', default=True),
                    self.g('routed_scaling_factor', default=1.0),
                    eps=1e-6,
                )
                f = self.experts(h, idx, wt, self.expert_glu(q + '.experts', names=('w1', 'w3', 'w2')))
            x = x + f
        return self.head(rms(x, self.w['model.embedding_norm.weight'], eps))

    def m_mamba2(self, ids):
        c = self.c
        eps = self.g('layer_norm_epsilon', default=1e-5)
        x = self.w['backbone.embeddings.weight'][ids]
        lo, hi = self.limit()
        for i in range(c['num_hidden_layers']):
            p = f'backbone.layers.{i}'
            x = x + self.mamba(
                rms(x, self.w[p + '.norm.weight'], eps),
                p + '.mixer',
                c['num_heads'],
                c['head_dim'],
                c['state_size'],
                c['n_groups'],
                eps,
                1,
                lo,
                hi,
            )
        return self.head(rms(x, self.w['backbone.norm_f.weight'], eps), 'backbone.embeddings')

    def limit(self):
        l = self.c.get('time_step_limit') or [0.0, math.inf]
        return [math.inf if isinstance(v, dict) else float(v) for v in l]

    def m_granitemoehybrid(self, ids):
        c = self.c
        eps = self.g('rms_norm_eps', default=1e-6)
        x = self.w['model.embed_tokens.weight'][ids] * c['embedding_multiplier']
        rope = c.get('position_embedding_type') == 'rope'
        lo, hi = self.limit()
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            h = rms(x, self.w[p + '.input_layernorm.weight'], eps)
            if c['layer_types'][i] in ('linear_attention', 'mamba'):
                h = self.mamba(
                    h,
                    p + '.mamba',
                    c['mamba_n_heads'],
                    c['mamba_d_head'],
                    c['mamba_d_state'],
                    c['mamba_n_groups'],
                    eps,
                    1,
                    lo,
                    hi,
                )
            else:
                h = self.gqa(h, p + '.self_attn', i, scale=c['attention_multiplier'], use_rope=rope, partial=False)
            x = x + c['residual_multiplier'] * h
            h = rms(x, self.w[p + '.post_attention_layernorm.weight'], eps)
            a, b = np.split(self.lin(h, p + '.shared_mlp.input_linear'), 2, -1)
            f = self.lin(silu(a) * b, p + '.shared_mlp.output_linear')
            if self.g('num_local_experts', default=0):
                q = p + '.block_sparse_moe'
                lo_ = h @ self.w[q + '.router.layer.weight'].T
                k = c['num_experts_per_tok']
                idx = topk(lo_, k)
                wt = softmax(np.take_along_axis(lo_, idx, -1))
                wi, wo = self.w[q + '.input_linear.weight'], self.w[q + '.output_linear.weight']

                def ex(t, e):
                    a, b = np.split(t @ wi[e].T, 2, -1)
                    return (silu(a) * b) @ wo[e].T

                f = f + self.experts(h, idx, wt, ex)
            x = x + c['residual_multiplier'] * f
        return self.head(rms(x, self.w['model.norm.weight'], eps)) / c['logits_scaling']

    def m_nemotron_h(self, ids):
        c = self.c
        eps = self.g('layer_norm_epsilon', default=1e-5)
        x = self.w['backbone.embeddings.weight'][ids]
        lt = c.get('layers_block_type') or [
            dict(zip('ME*-', ('linear_attention', 'moe', 'full_attention', 'mlp')))[ch]
            for ch in c['hybrid_override_pattern']
        ]
        lo, hi = self.limit()
        n_group = self.g('mamba_n_groups', 'n_groups')
        for i in range(len(lt)):
            p = f'backbone.layers.{i}'
            m = p + '.mixer'
            h = rms(x, self.w[p + '.norm.weight'], eps)
            if lt[i] in ('linear_attention', 'mamba'):
                h = self.mamba(
                    h,
                    m,
                    c['mamba_num_heads'],
                    c['mamba_head_dim'],
                    c['ssm_state_size'],
                    n_group,
                    eps,
                    n_group,
                    lo,
                    hi,
                )
            elif lt[i] in ('full_attention', 'attention'):
                h = self.gqa(h, m, i, use_rope=False)
            elif lt[i] == 'mlp':
                h = self.lin(relu2(self.lin(h, m + '.up_proj')), m + '.down_proj')
            else:
                idx, wt = self.route_sigmoid(
                    h @ self.w[m + '.gate.weight'].T,
                    self.w[m + '.gate.e_score_correction_bias'],
                    c['num_experts_per_tok'],
                    self.g('n_group', default=1),
                    self.g('topk_group', default=1),
                    self.g('norm_topk_prob', default=True),
                    self.g('routed_scaling_factor', default=1.0),
                )
                latent = c.get('moe_latent_size') is not None
                u = self.lin(h, m + '.fc1_latent_proj') if latent else h
                f = self.experts(
                    u,
                    idx,
                    wt,
                    lambda t, e: self.lin(relu2(self.lin(t, f'{m}.experts.{e}.up_proj')), f'{m}.experts.{e}.down_proj'),
                )
                if latent:
                    f = self.lin(f, m + '.fc2_latent_proj')
                h = f + self.lin(relu2(self.lin(h, m + '.shared_experts.up_proj')), m + '.shared_experts.down_proj')
            x = x + h
        return self.head(rms(x, self.w['backbone.norm_f.weight'], eps), 'backbone.embeddings')


def main(folders):
    worst = 0
    for golden in sorted(g for f in folders for g in glob.glob(f + '/**/golden.json', recursive=True)):
        model = Model(os.path.dirname(golden))
        if not model.definition():
            continue
        with open(golden) as f:
            cases = json.load(f)['cases']
        off = 0
        for case in cases:
            rows = model.logits(case['tokens'])
            off = max(off, *(abs(row[i] - want) for row, top in zip(rows, case['top']) for i, want in top))
        print(f'{golden}: {off:.1e}')
        worst = max(worst, off)
    return 0 if 0 < worst <= 1e-4 else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
