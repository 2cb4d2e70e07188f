#!/usr/bin/python3
"""Writes folders in Hugging Face form with random legal configurations and random weights, for comparing logits.

    variants.py OUT SEED COUNT [MODEL_TYPE...]

COUNT of each model type that hearth runs, as OUT/MODEL_TYPE-SEED and so on: config.json (as transformers 5 writes it,
or 4), model.safetensors of BF16, F16 or F32, a tokenizer.json of bytes, `tokens`, and `logits`, which reference.py
computes, as F32 of [tokens, vocabulary]. The names go to standard output. Numbers of heads, sizes, layers of all kinds
in any order, windows, RoPE, experts and how they are chosen are random; sizes are multiples of small numbers. A model
type is a function f_...: it draws a configuration and names its tensors. Needs numpy.
"""
import json, math, os, shutil, struct, sys
import numpy as np

sys.dont_write_bytecode = True
import reference


def to_bf16(x):
    u = np.ascontiguousarray(x, '<f4').view('<u4').astype(np.uint64)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype('<u2')


def tokenizer():
    """Bytes, in GPT-2's notation, after three special tokens."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [b for b in range(256) if b not in plain]
    letters = [chr(b) for b in plain] + [chr(256 + i) for i in range(len(other))]
    special = ['<pad>', '<s>', '</s>']
    return {
        'version': '1.0',
        'added_tokens': [{'id': i, 'content': t, 'special': True} for i, t in enumerate(special)],
        'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': False, 'use_regex': True},
        'decoder': {'type': 'ByteLevel'},
        'model': {'type': 'BPE', 'vocab': {t: i for i, t in enumerate(special + letters)}, 'merges': []},
    }


def save(d, config, weights, dtype):
    shutil.rmtree(d, ignore_errors=True)
    os.makedirs(d)
    for name, what in (('config', config), ('tokenizer', tokenizer()), ('tokenizer_config', {'eos_token': '</s>'})):
        with open(f'{d}/{name}.json', 'w') as f:
            json.dump(what, f)
    header, at, blobs = {}, 0, []
    for k, v in weights.items():
        b = to_bf16(v).tobytes() if dtype == 'BF16' else np.asarray(v, '<f2' if dtype == 'F16' else '<f4').tobytes()
        header[k] = dict(dtype=dtype, shape=list(v.shape), data_offsets=[at, at + len(b)])
        at += len(b)
        blobs.append(b)
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    with open(d + '/model.safetensors', 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text)
        f.writelines(blobs)


class Variant:
    def __init__(self, seed):
        self.r = np.random.default_rng(seed)
        self.w, self.c = {}, {}

    def pick(self, *a):
        return a[self.r.integers(len(a))]

    def maybe(self, p=0.5):
        return bool(self.r.random() < p)

    def randint(self, a, b):
        return int(self.r.integers(a, b + 1))

    # --- tensors ---------------------------------------------------------------------------------------------
    def mat(self, n, *shape, scale=None):
        self.w[n] = self.r.standard_normal(shape) * (scale or 1 / math.sqrt(shape[-1]))

    def vec(self, n, k, mean=0.0, dev=0.1):
        self.w[n] = mean + self.r.standard_normal(k) * dev

    def lin(self, n, o, i, bias=False):
        self.mat(n + '.weight', o, i)
        if bias:
            self.vec(n + '.bias', o)

    def norm(self, n, k, plus=False, bias=False):
        self.vec(n + '.weight', k, 0.0 if plus else 1.0)
        if bias:
            self.vec(n + '.bias', k)

    def base(self, mt, **k):
        H = self.pick(64, 66, 72, 90, 96, 104, 128, 136, 160)
        nh = self.pick(1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14, 16)
        nkv = self.pick(*[d for d in range(1, nh + 1) if nh % d == 0])
        self.c = dict(
            model_type=mt,
            vocab_size=self.pick(259, 260, 261, 288, 301),
            hidden_size=H,
            intermediate_size=self.pick(33, 50, 64, 104, 160, 200, 256),
            num_hidden_layers=self.randint(2, 5),
            num_attention_heads=nh,
            num_key_value_heads=nkv,
            head_dim=self.pick(8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 112, 128, 192, 256),
            max_position_embeddings=1024,
            rms_norm_eps=self.pick(1e-5, 1e-6, 1e-4, 1e-8),
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
            tie_word_embeddings=self.maybe(0.3),
            hidden_act='silu',
        )
        self.c['rope_parameters'] = dict(rope_type='default', rope_theta=self.pick(1e4, 5e5, 1e6, 1.5e5, 1e7, 1e9))
        self.c.update(k)
        return self.c

    def rope_scaling(self):
        """Returns some kind of scaling."""
        t = self.pick('default', 'linear', 'yarn', 'yarn', 'llama3')
        r = self.c['rope_parameters']
        if t == 'linear':
            r.update(rope_type=t, factor=self.pick(2.0, 4.0, 3.5))
        if t == 'yarn':
            r.update(
                rope_type=t,
                factor=self.pick(2.0, 4.0, 32.0, 8.5),
                original_max_position_embeddings=self.pick(32, 64, 256),
            )
            if self.maybe(0.3):
                r['attention_factor'] = 1.2
            if self.maybe(0.3):
                r.update(beta_fast=16, beta_slow=2)
            if self.maybe(0.2):
                r['truncate'] = False
            if self.maybe(0.2):
                r.update(mscale=1.0, mscale_all_dim=self.pick(0.5, 1.0))
        if t == 'llama3':
            r.update(
                rope_type=t,
                factor=self.pick(8.0, 32.0),
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=self.pick(32, 64, 128),
            )

    def kinds(self, pattern=None):
        """Draws which layers slide; some configurations leave it to a period, and `pattern` is the key for one."""
        c = self.c
        if self.maybe(0.7):
            c['layer_types'] = [
                self.pick('full_attention', 'sliding_attention') for _ in range(c['num_hidden_layers'])
            ]
        elif pattern and self.maybe():
            c[pattern] = self.randint(2, 5)

    def old_style(self):
        """Turns rope_parameters into the keys that transformers 4 wrote."""
        c = self.c
        r = c.pop('rope_parameters')
        if 'full_attention' in r:  # Gemma 3
            full, sliding = r['full_attention'], r['sliding_attention']
            c.update(rope_theta=full.pop('rope_theta'), rope_local_base_freq=sliding['rope_theta'])
            c['rope_scaling'] = None if full['rope_type'] == 'default' else full
            return
        theta = r.pop('rope_theta')
        if self.maybe(0.9):
            c['rope_theta'] = theta
        if 'partial_rotary_factor' in r:
            c['partial_rotary_factor'] = r.pop('partial_rotary_factor')
        c['rope_scaling'] = None if r['rope_type'] == 'default' else r

    def embed(self, p='model.embed_tokens', head=True):
        c = self.c
        self.mat(p + '.weight', c['vocab_size'], c['hidden_size'], scale=0.05 if c['tie_word_embeddings'] else 1.0)
        if head and (not c['tie_word_embeddings'] or self.maybe(0.3)):  # one that differs is used all the same
            self.lin('lm_head', c['vocab_size'], c['hidden_size'])

    def attn(
        self,
        p,
        qk=None,
        bias=(0, 0, 0, 0),
        o='o_proj',
        hd=None,
        nkv=None,
        plus=False,
        gate=False,
        whole=False,
        names=('q_norm', 'k_norm'),
        v=True,
        kv=True,
    ):
        c = self.c
        D, H, K, hd = (
            c['hidden_size'],
            c['num_attention_heads'],
            nkv or c['num_key_value_heads'],
            hd or c.get('head_dim') or c['hidden_size'] // c['num_attention_heads'],
        )
        self.lin(p + '.q_proj', H * hd * (2 if gate else 1), D, bias[0])
        if kv:
            self.lin(p + '.k_proj', K * hd, D, bias[1])
            if v:
                self.lin(p + '.v_proj', K * hd, D, bias[2])
        self.lin(p + '.' + o, D, H * hd, bias[3])
        if qk:
            self.norm(p + '.' + names[0], H * hd if whole else hd, plus)
            if kv:
                self.norm(p + '.' + names[1], K * hd if whole else hd, plus)

    def glu(self, p, ff, names=('gate_proj', 'up_proj', 'down_proj'), bias=False):
        D = self.c['hidden_size']
        self.lin(f'{p}.{names[0]}', ff, D, bias)
        self.lin(f'{p}.{names[1]}', ff, D, bias)
        self.lin(f'{p}.{names[2]}', D, ff, bias)

    def experts(self, p, n, ff, names=('gate_proj', 'up_proj', 'down_proj'), fused=False):
        D = self.c['hidden_size']
        if fused:
            self.mat(p + '.gate_up_proj', n, 2 * ff, D)
            self.mat(p + '.down_proj', n, D, ff)
            return
        for e in range(n):
            self.glu(f'{p}.{e}', ff, names)

    def n_experts(self):
        n = self.randint(3, 40)
        return n, min(n, self.randint(1, 8))

    def shared_moe(self, i, p, fused=False, shared=True):
        c = self.c
        self.lin(p + '.gate', c['num_experts'], c['hidden_size'])
        self.experts(p + '.experts', c['num_experts'], c['moe_intermediate_size'], fused=fused)
        if shared:
            self.glu(p + '.shared_expert', c['shared_expert_intermediate_size'])
            self.lin(p + '.shared_expert_gate', 1, c['hidden_size'])

    def sparse(self, i):
        return i not in self.c['mlp_only_layers'] and (i + 1) % self.c['decoder_sparse_step'] == 0

    # --- model types -----------------------------------------------------------------------------------------
    def f_llama(self, mt='llama'):
        c = self.base(mt)
        if self.maybe():
            self.rope_scaling()
        ab, mb = (self.maybe(0.3), self.maybe(0.3)) if mt in ('llama', 'granite', 'smollm3') else (False, False)
        if mt != 'mistral':
            c.update(attention_bias=ab, mlp_bias=mb)
        if mt == 'granite':
            c.update(
                embedding_multiplier=self.pick(6.0, 12.0),
                residual_multiplier=self.pick(0.4, 0.22),
                attention_multiplier=self.pick(0.05, 0.1),
                logits_scaling=self.pick(4.0, 8.0),
            )
        if mt == 'granite' and self.maybe(0.2):
            for key in self.pick(('attention_multiplier',), ('embedding_multiplier', 'logits_scaling')):
                del c[key]  # 1
            c['head_dim'] = min(c['head_dim'], 24)  # scores that are not scaled are large, and so are rounding errors
        if mt == 'smollm3':
            if self.maybe(0.7):
                c['no_rope_layers'] = [self.randint(0, 1) for i in range(c['num_hidden_layers'])]
            elif self.maybe():
                c['no_rope_layer_interval'] = self.randint(2, 3)
            c.update(use_sliding_window=self.maybe(), sliding_window=self.pick(None, 8, 33))
            if c['use_sliding_window'] and c['sliding_window']:
                self.kinds()
        if mt in ('mistral', 'ministral3'):
            c['sliding_window'] = self.pick(None, None, 5, 16, 40)
        if mt == 'ministral3':
            c['rope_parameters'].update(
                rope_type='yarn',
                factor=16.0,
                original_max_position_embeddings=self.pick(16, 64),
                beta_fast=32.0,
                beta_slow=1.0,
                mscale=1.0,
                mscale_all_dim=1.0,
                llama_4_scaling_beta=0.1,
            )
        self.embed()
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            self.norm(p + '.input_layernorm', c['hidden_size'])
            self.norm(p + '.post_attention_layernorm', c['hidden_size'])
            self.attn(p + '.self_attn', bias=(ab,) * 4)
            self.glu(p + '.mlp', c['intermediate_size'], bias=mb)
        self.norm('model.norm', c['hidden_size'])

    def f_mistral(self):
        self.f_llama('mistral')

    def f_ministral3(self):
        self.f_llama('ministral3')

    def f_granite(self):
        self.f_llama('granite')

    def f_smollm3(self):
        self.f_llama('smollm3')

    def f_mixtral(self):
        c = self.base('mixtral', sliding_window=self.pick(None, None, 16))
        c['num_local_experts'], c['num_experts_per_tok'] = self.n_experts()
        if self.maybe(0.3):
            self.rope_scaling()
        self.embed()
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            self.norm(p + '.input_layernorm', c['hidden_size'])
            self.norm(p + '.post_attention_layernorm', c['hidden_size'])
            self.attn(p + '.self_attn')
            self.lin(p + '.block_sparse_moe.gate', c['num_local_experts'], c['hidden_size'])
            self.experts(
                p + '.block_sparse_moe.experts', c['num_local_experts'], c['intermediate_size'], ('w1', 'w3', 'w2')
            )
        self.norm('model.norm', c['hidden_size'])

    def f_qwen2(self, mt='qwen2'):
        c = self.base(mt)
        three = mt.startswith('qwen3')
        if not three:
            hd = self.pick(8, 16, 32)
            c['hidden_size'] = hd * c['num_attention_heads']
            del c['head_dim']
        if self.maybe(0.4):
            self.rope_scaling()
        L = c['num_hidden_layers']
        if self.maybe(0.4):
            c.update(use_sliding_window=True, sliding_window=self.pick(7, 20), max_window_layers=self.randint(0, L))
        ab = three and self.maybe(0.3)
        if three:
            c['attention_bias'] = ab
        self.embed()
        for i in range(L):
            p = f'model.layers.{i}'
            self.norm(p + '.input_layernorm', c['hidden_size'])
            self.norm(p + '.post_attention_layernorm', c['hidden_size'])
            self.attn(p + '.self_attn', qk=three, bias=(ab,) * 4 if three else (1, 1, 1, 0))
            self.glu(p + '.mlp', c['intermediate_size'])
        self.norm('model.norm', c['hidden_size'])

    def f_qwen3(self):
        self.f_qwen2('qwen3')

    def f_qwen2_vl_text(self):
        self.f_qwen2('qwen2_vl_text')

    def f_qwen2_5_vl(self):
        self.f_qwen2('qwen2_5_vl')
        c = self.c
        if c['rope_parameters']['rope_type'] == 'default':
            n = (c['hidden_size'] // c['num_attention_heads']) // 2
            c['rope_parameters'].update(rope_type='mrope', mrope_section=[n - 2 * (n // 3), n // 3, n // 3])

    def f_qwen3_vl_text(self):
        self.f_qwen2('qwen3_vl_text')

    def f_seed_oss(self):
        c = self.base('seed_oss')
        if self.maybe(0.4):
            self.rope_scaling()
        ab, ob, mb = self.maybe(0.8), self.maybe(0.3), self.maybe(0.3)
        c.update(attention_bias=ab, attention_out_bias=ob, mlp_bias=mb)
        self.plain_layers((ab, ab, ab, ob), mb)

    def f_ernie4_5(self):
        c = self.base('ernie4_5')
        if self.maybe(0.3):
            self.rope_scaling()
        b = c['use_bias'] = self.maybe(0.3)
        self.plain_layers((b,) * 4, b)

    def plain_layers(self, ab, mb, plus=False):
        c = self.c
        self.embed()
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            self.norm(p + '.input_layernorm', c['hidden_size'], plus)
            self.norm(p + '.post_attention_layernorm', c['hidden_size'], plus)
            self.attn(p + '.self_attn', bias=ab)
            self.glu(p + '.mlp', c['intermediate_size'], bias=mb)
        self.norm('model.norm', c['hidden_size'], plus)

    def f_gemma(self):
        c = self.base('gemma', hidden_act='gelu', tie_word_embeddings=True)
        if self.maybe():
            c['hidden_activation'] = self.pick(None, 'gelu_pytorch_tanh')
        ab = c['attention_bias'] = self.maybe(0.2)
        self.plain_layers((ab,) * 4, False, True)

    def f_arcee(self):
        c = self.base('arcee', hidden_act='relu2')
        if self.maybe():
            self.rope_scaling()
        ab, mb = self.maybe(0.3), self.maybe(0.3)
        c.update(attention_bias=ab, mlp_bias=mb)
        self.plain_layers((ab,) * 4, mb)
        for n in [n for n in self.w if '.gate_proj.' in n]:
            del self.w[n]

    def f_exaone4(self):
        c = self.base('exaone4')
        if self.maybe():
            self.rope_scaling()
        L, D = c['num_hidden_layers'], c['hidden_size']
        c['sliding_window'] = self.pick(None, 8, 20)
        c['layer_types'] = ['full_attention'] * L
        if c['sliding_window']:
            del c['layer_types']
            self.kinds('sliding_window_pattern')
        if 'layer_types' in c:
            c['sliding_window_pattern'] = 'LLLG'
        self.embed()
        for i in range(L):
            p = f'model.layers.{i}'
            self.norm(p + '.post_attention_layernorm', D)
            self.norm(p + '.post_feedforward_layernorm', D)
            self.attn(p + '.self_attn', qk=True)
            self.glu(p + '.mlp', c['intermediate_size'])
        self.norm('model.norm', D)

    def f_granitemoe(self):
        c = self.base(
            'granitemoe',
            embedding_multiplier=self.pick(6.0, 12.0),
            residual_multiplier=self.pick(0.4, 0.22),
            attention_multiplier=self.pick(0.05, 0.1),
            logits_scaling=self.pick(4.0, 8.0),
        )
        c['num_local_experts'], c['num_experts_per_tok'] = self.n_experts()
        ab = c['attention_bias'] = self.maybe(0.2)
        n, ff, D = c['num_local_experts'], c['intermediate_size'], c['hidden_size']
        self.embed()
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            self.norm(p + '.input_layernorm', D)
            self.norm(p + '.post_attention_layernorm', D)
            self.attn(p + '.self_attn', bias=(ab,) * 4)
            self.lin(p + '.block_sparse_moe.router.layer', n, D)
            self.mat(p + '.block_sparse_moe.input_linear.weight', n, 2 * ff, D)
            self.mat(p + '.block_sparse_moe.output_linear.weight', n, D, ff)
        self.norm('model.norm', D)

    def f_olmoe(self):
        c = self.base('olmoe', clip_qkv=None)
        del c['head_dim']
        D = c['hidden_size'] = self.pick(8, 16, 32) * c['num_attention_heads']
        c['num_experts'], c['num_experts_per_tok'] = self.n_experts()
        ab = c['attention_bias'] = self.maybe(0.2)
        if self.maybe(0.7):
            c['norm_topk_prob'] = self.maybe()
        fused = self.maybe(0.3)
        self.embed()
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            self.norm(p + '.input_layernorm', D)
            self.norm(p + '.post_attention_layernorm', D)
            self.attn(p + '.self_attn', qk=True, whole=True, bias=(ab,) * 4)
            self.lin(p + '.mlp.gate', c['num_experts'], D)
            self.experts(p + '.mlp.experts', c['num_experts'], c['intermediate_size'], fused=fused)
        self.norm('model.norm', D)

    def moe_keys(self, L):
        c = self.c
        n, k = self.n_experts()
        c.update(
            num_experts=n,
            num_experts_per_tok=k,
            moe_intermediate_size=self.pick(24, 40, 64, 72),
            norm_topk_prob=self.maybe(),
            decoder_sparse_step=self.pick(1, 1, 1, 2),
            mlp_only_layers=[i for i in range(L) if self.maybe(0.2)],
        )

    def f_qwen2_moe(self):
        c = self.base('qwen2_moe')
        del c['head_dim']
        c['hidden_size'] = self.pick(8, 16, 32) * c['num_attention_heads']
        L = c['num_hidden_layers']
        self.moe_keys(L)
        c.update(shared_expert_intermediate_size=self.pick(40, 96, 104), qkv_bias=True)
        if self.maybe(0.3):
            c.update(use_sliding_window=True, sliding_window=self.pick(7, 20))
            self.kinds('max_window_layers')
        self.embed()
        for i in range(L):
            p = f'model.layers.{i}'
            self.norm(p + '.input_layernorm', c['hidden_size'])
            self.norm(p + '.post_attention_layernorm', c['hidden_size'])
            self.attn(p + '.self_attn', bias=(c['qkv_bias'],) * 3 + (0,))
            if self.sparse(i):
                self.shared_moe(i, p + '.mlp')
            else:
                self.glu(p + '.mlp', c['intermediate_size'])
        self.norm('model.norm', c['hidden_size'])

    def f_qwen3_moe(self, mt='qwen3_moe'):
        c = self.base(mt)
        L = c['num_hidden_layers']
        self.moe_keys(L)
        ab = self.maybe(0.3)
        c['attention_bias'] = ab
        if self.maybe(0.3):
            c.update(use_sliding_window=True, sliding_window=self.pick(7, 20), max_window_layers=self.randint(0, L))
        if self.maybe(0.3):
            self.rope_scaling()
        fused = self.maybe(0.2) or mt != 'qwen3_moe'
        self.embed()
        for i in range(L):
            p = f'model.layers.{i}'
            self.norm(p + '.input_layernorm', c['hidden_size'])
            self.norm(p + '.post_attention_layernorm', c['hidden_size'])
            self.attn(p + '.self_attn', qk=True, bias=(ab,) * 4)
            if self.sparse(i):
                self.shared_moe(i, p + '.mlp', shared=False, fused=fused)
            else:
                self.glu(p + '.mlp', c['intermediate_size'])
        self.norm('model.norm', c['hidden_size'])

    def f_qwen3_vl_moe_text(self):
        self.f_qwen3_moe('qwen3_vl_moe_text')
        c = self.c
        for key in ('use_sliding_window', 'sliding_window', 'max_window_layers'):
            c.pop(key, None)
        c['norm_topk_prob'] = True
        if self.maybe(0.3):
            del c['norm_topk_prob']
        if self.maybe(0.7):  # as published
            for k in [k for k in self.w if 'mlp.experts.' in k]:
                self.w[k] = np.ascontiguousarray(self.w[k].swapaxes(1, 2))

    def f_gpt_oss(self):
        c = self.base('gpt_oss', attention_bias=True, sliding_window=self.pick(5, 16, 33))
        L = c['num_hidden_layers']
        c['num_local_experts'], c['num_experts_per_tok'] = self.n_experts()
        c['rope_parameters'] = dict(
            rope_type='yarn',
            rope_theta=150000.0,
            factor=self.pick(4.0, 32.0),
            original_max_position_embeddings=self.pick(64, 4096),
            beta_fast=32.0,
            beta_slow=1.0,
            truncate=self.maybe(0.3),
        )
        self.kinds()
        n, ff, D = c['num_local_experts'], c['intermediate_size'], c['hidden_size']
        self.embed()
        for i in range(L):
            p = f'model.layers.{i}'
            self.norm(p + '.input_layernorm', D)
            self.norm(p + '.post_attention_layernorm', D)
            self.attn(p + '.self_attn', bias=(1, 1, 1, 1))
            self.vec(p + '.self_attn.sinks', c['num_attention_heads'], dev=1.0)
            self.lin(p + '.mlp.router', n, D, True)
            self.mat(p + '.mlp.experts.gate_up_proj', n, D, 2 * ff, scale=2 / math.sqrt(D))
            self.mat(p + '.mlp.experts.gate_up_proj_bias', n, 2 * ff, scale=self.pick(0.1, 1.0))
            self.mat(p + '.mlp.experts.down_proj', n, ff, D, scale=1 / math.sqrt(ff))
            self.mat(p + '.mlp.experts.down_proj_bias', n, D, scale=0.1)
        self.norm('model.norm', D)

    def delta(self, p, split):
        c = self.c
        Hk, Hv, dk, dv, K, D = (
            c['linear_num_key_heads'],
            c['linear_num_value_heads'],
            c['linear_key_head_dim'],
            c['linear_value_head_dim'],
            c['linear_conv_kernel_dim'],
            c['hidden_size'],
        )
        if split:
            self.lin(p + '.in_proj_qkv', 2 * Hk * dk + Hv * dv, D)
            self.lin(p + '.in_proj_z', Hv * dv, D)
            self.lin(p + '.in_proj_b', Hv, D)
            self.lin(p + '.in_proj_a', Hv, D)
        else:
            self.lin(p + '.in_proj_qkvz', 2 * Hk * dk + 2 * Hv * dv, D)
            self.lin(p + '.in_proj_ba', 2 * Hv, D)
        self.w[p + '.A_log'] = np.log(self.r.uniform(0.05, 16, Hv))
        self.vec(p + '.dt_bias', Hv, self.pick(-3.0, 0.0, 1.0), 0.5)
        self.w[p + '.conv1d.weight'] = self.r.uniform(-1, 1, (2 * Hk * dk + Hv * dv, 1, K)) / math.sqrt(K)
        self.norm(p + '.norm', dv)
        self.lin(p + '.out_proj', D, Hv * dv)

    def f_qwen3_next(self, mt='qwen3_next'):
        c = self.base(mt)
        L = c['num_hidden_layers'] = self.randint(2, 6)
        Hk = self.pick(1, 2, 3, 4)
        c.update(
            linear_num_key_heads=Hk,
            linear_num_value_heads=Hk * self.pick(1, 2, 3, 4),
            linear_conv_kernel_dim=self.pick(2, 3, 4),
        )
        d = self.pick(16, 24, 32, 64)
        c.update(linear_key_head_dim=d, linear_value_head_dim=d if self.maybe(0.7) else self.pick(16, 32, 48))
        c['layer_types'] = [self.pick('linear_attention', 'full_attention') for _ in range(L)]
        if 'linear_attention' not in c['layer_types']:
            c['layer_types'][0] = 'linear_attention'
        if 'full_attention' not in c['layer_types']:
            c['layer_types'][-1] = 'full_attention'
        interval = self.pick(2, 3, 4) if self.maybe(0.3) else 0
        if interval:
            L = c['num_hidden_layers'] = max(L, interval)
            c['layer_types'] = ['linear_attention' if (i + 1) % interval else 'full_attention' for i in range(L)]
            if interval != 4 or self.maybe():
                c['full_attention_interval'] = interval
        f = self.pick(0.25, 0.5, 1.0)
        hd = c['head_dim'] = self.pick(16, 32, 48, 64)
        c['partial_rotary_factor'] = f
        c['rope_parameters']['partial_rotary_factor'] = f
        self.moe_keys(L)
        c['shared_expert_intermediate_size'] = self.pick(40, 64)
        moe = mt != 'qwen3_5_text'
        if mt != 'qwen3_next':
            c.pop('mlp_only_layers'), c.pop('decoder_sparse_step'), c.pop('norm_topk_prob')
        if not moe:
            [
                c.pop(k)
                for k in (
                    'num_experts',
                    'num_experts_per_tok',
                    'moe_intermediate_size',
                    'shared_expert_intermediate_size',
                )
            ]
        fused = self.maybe() and mt == 'qwen3_5_moe_text'
        D = c['hidden_size']
        self.embed()
        for i in range(L):
            p = f'model.layers.{i}'
            self.norm(p + '.input_layernorm', D, True)
            self.norm(p + '.post_attention_layernorm', D, True)
            if c['layer_types'][i] == 'linear_attention':
                self.delta(p + '.linear_attn', mt != 'qwen3_next')
            else:
                self.attn(p + '.self_attn', qk=True, gate=True, plus=True)
            if moe and (mt != 'qwen3_next' or self.sparse(i)):
                self.shared_moe(i, p + '.mlp', fused)
            else:
                self.glu(p + '.mlp', c['intermediate_size'])
        self.norm('model.norm', D, True)
        if interval:
            del c['layer_types']

    def f_qwen3_5_text(self):
        self.f_qwen3_next('qwen3_5_text')

    def f_qwen3_5_moe_text(self):
        self.f_qwen3_next('qwen3_5_moe_text')

    def groups(self, key):
        c = self.c
        g = self.pick(1, 1, 2, 4)
        n = g * self.randint(2, 9) if g > 1 else self.randint(3, 40)
        tg = self.randint(1, g)
        c.update(
            **{key: n},
            num_experts_per_tok=min(self.randint(1, 8), n // g * tg),
            n_group=g,
            topk_group=tg,
            routed_scaling_factor=self.pick(1.0, 1.5, 2.5),
            norm_topk_prob=self.maybe(0.7),
            moe_intermediate_size=self.pick(24, 40, 64),
        )
        return n

    def ds_moe(self, p, n, ns, bias=True):
        c = self.c
        self.lin(p + '.gate', n, c['hidden_size'])
        if bias:
            self.w[p + '.gate.e_score_correction_bias'] = self.r.standard_normal(n) * self.pick(0.05, 0.2)
        self.experts(p + '.experts', n, c['moe_intermediate_size'])
        if ns:
            self.glu(p + '.shared_experts', ns * c['moe_intermediate_size'])

    def f_glm4_moe(self, mt='glm4_moe'):
        c = self.base(mt)
        L = c['num_hidden_layers']
        n = self.groups('n_routed_experts')
        ab = self.maybe()
        c.update(n_shared_experts=self.pick(1, 2), first_k_dense_replace=self.randint(0, L - 1), attention_bias=ab)
        if mt == 'glm4_moe':
            c['head_dim'] = self.pick(16, 32, 48)
            f = self.pick(0.5, 0.25, 1.0)
            c.update(use_qk_norm=self.maybe(), partial_rotary_factor=f)
            c['rope_parameters']['partial_rotary_factor'] = f
        else:
            c.update(sliding_window=None, layer_types=['full_attention'] * L, max_window_layers=L)
            if self.maybe():
                c.update(
                    sliding_window=self.pick(9, 30),
                    layer_types=[self.pick('full_attention', 'sliding_attention') for _ in range(L)],
                )
        self.embed()
        for i in range(L):
            p = f'model.layers.{i}'
            self.norm(p + '.input_layernorm', c['hidden_size'])
            self.norm(p + '.post_attention_layernorm', c['hidden_size'])
            self.attn(p + '.self_attn', qk=c.get('use_qk_norm', True), bias=(ab, ab, ab, ab if mt == 'dots1' else 0))
            if i >= c['first_k_dense_replace']:
                self.ds_moe(p + '.mlp', n, c['n_shared_experts'])
            else:
                self.glu(p + '.mlp', c['intermediate_size'])
        self.norm('model.norm', c['hidden_size'])

    def f_dots1(self):
        self.f_glm4_moe('dots1')

    def f_deepseek_v3(self, mt='deepseek_v3'):
        c = self.base(mt)
        c['num_key_value_heads'] = c['num_attention_heads']
        del c['head_dim']
        L = c['num_hidden_layers']
        n = self.groups('n_routed_experts')
        ab = False
        c.update(
            n_shared_experts=self.pick(1, 2),
            first_k_dense_replace=self.randint(0, L - 1),
            q_lora_rank=self.pick(None, 24, 40, 48),
            kv_lora_rank=self.pick(32, 40, 64),
            qk_nope_head_dim=self.pick(8, 16, 24, 32),
            qk_rope_head_dim=self.pick(8, 16),
            v_head_dim=self.pick(8, 16, 32, 40),
            attention_bias=ab,
        )
        c['qk_head_dim'] = c['qk_nope_head_dim'] + c['qk_rope_head_dim']
        c['head_dim'] = c['qk_rope_head_dim']
        if mt == 'deepseek_v3' and self.maybe(0.3):
            c['rope_interleave'] = False
        if mt == 'deepseek_v2':
            c.update(topk_method=self.pick('greedy', 'group_limited_greedy'), norm_topk_prob=False)
            if c['topk_method'] == 'greedy' and self.maybe():
                del c['topk_method']
        if mt == 'deepseek_v3' and self.maybe(0.2):  # what follows from missing keys
            n = c['n_routed_experts'] = 8 * self.randint(2, 4)
            for key in ('n_group', 'topk_group', 'routed_scaling_factor', 'num_experts_per_tok', 'norm_topk_prob'):
                del c[key]
        if mt == 'glm4_moe_lite':
            del c['first_k_dense_replace']
            c['mlp_layer_types'] = [self.pick('dense', 'sparse') for _ in range(L)]
            c['q_lora_rank'] = c['q_lora_rank'] or 24
        if self.maybe():
            c['rope_parameters'].update(
                rope_type='yarn',
                factor=self.pick(4.0, 40.0),
                original_max_position_embeddings=self.pick(32, 64),
                beta_fast=32,
                beta_slow=1,
            )
            mscale, of_all = self.pick((1.0, 1.0), (0.707, 0.707), (1.0, 0.5), (0, 1.0), (0, 0))
            if mscale:
                c['rope_parameters']['mscale'] = mscale
            if of_all:
                c['rope_parameters']['mscale_all_dim'] = of_all
        D, H = c['hidden_size'], c['num_attention_heads']
        self.embed()
        for i in range(L):
            p = f'model.layers.{i}'
            a = p + '.self_attn'
            self.norm(p + '.input_layernorm', D)
            self.norm(p + '.post_attention_layernorm', D)
            if c['q_lora_rank']:
                self.lin(a + '.q_a_proj', c['q_lora_rank'], D, ab)
                self.norm(a + '.q_a_layernorm', c['q_lora_rank'])
                self.lin(a + '.q_b_proj', H * c['qk_head_dim'], c['q_lora_rank'])
            else:
                self.lin(a + '.q_proj', H * c['qk_head_dim'], D)
            self.lin(a + '.kv_a_proj_with_mqa', c['kv_lora_rank'] + c['qk_rope_head_dim'], D, ab)
            self.norm(a + '.kv_a_layernorm', c['kv_lora_rank'])
            self.lin(a + '.kv_b_proj', H * (c['qk_nope_head_dim'] + c['v_head_dim']), c['kv_lora_rank'])
            self.lin(a + '.o_proj', D, H * c['v_head_dim'], ab)
            sp = c['mlp_layer_types'][i] == 'sparse' if 'mlp_layer_types' in c else i >= c['first_k_dense_replace']
            if sp:
                self.ds_moe(p + '.mlp', n, c['n_shared_experts'], mt != 'deepseek_v2')
            else:
                self.glu(p + '.mlp', c['intermediate_size'])
        self.norm('model.norm', D)

    def f_deepseek_v2(self):
        self.f_deepseek_v3('deepseek_v2')

    def f_glm4_moe_lite(self):
        self.f_deepseek_v3('glm4_moe_lite')

    def mamba(self, p, H, P, N, G, K, bias, conv_bias):
        D, I = self.c['hidden_size'], H * P
        self.lin(p + '.in_proj', 2 * I + 2 * G * N + H, D, bias)
        self.lin(p + '.out_proj', D, I, bias)
        self.w[p + '.conv1d.weight'] = self.r.uniform(-1, 1, (I + 2 * G * N, 1, K)) / math.sqrt(K)
        if conv_bias:
            self.vec(p + '.conv1d.bias', I + 2 * G * N)
        self.w[p + '.A_log'] = np.log(self.r.uniform(0.5, 16, H))
        self.vec(p + '.D', H, 1.0, 0.5)
        self.vec(p + '.dt_bias', H, self.pick(-4.0, -2.0, 0.5), 1.0)
        self.norm(p + '.norm', I)

    def f_mamba2(self):
        c = self.base('mamba2')
        for k in (
            'num_attention_heads',
            'num_key_value_heads',
            'intermediate_size',
            'head_dim',
            'rope_parameters',
            'rms_norm_eps',
        ):
            c.pop(k)
        P = self.pick(16, 32, 64)
        H = self.pick(4, 6, 8, 12)
        G = self.pick(1, 1, 1, 2)
        e = self.pick(1, 2)
        c['hidden_size'] = H * P // e
        c.update(
            num_heads=H,
            head_dim=P,
            state_size=self.pick(8, 16, 24, 32, 64),
            n_groups=G,
            expand=e,
            conv_kernel=self.pick(2, 3, 4),
            chunk_size=16,
            layer_norm_epsilon=self.pick(1e-5, 1e-6),
            use_bias=False,
            use_conv_bias=self.maybe(0.8),
            time_step_limit=[0.0, {'__float__': 'Infinity'}],
        )
        self.embed('backbone.embeddings')
        for i in range(c['num_hidden_layers']):
            self.norm(f'backbone.layers.{i}.norm', c['hidden_size'])
            self.mamba(
                f'backbone.layers.{i}.mixer',
                H,
                P,
                c['state_size'],
                G,
                c['conv_kernel'],
                c['use_bias'],
                c['use_conv_bias'],
            )
        self.norm('backbone.norm_f', c['hidden_size'])

    def f_granitemoehybrid(self, moe=None):
        c = self.base('granitemoehybrid')
        del c['head_dim']
        moe = self.maybe() if moe is None else moe
        L = c['num_hidden_layers'] = self.randint(2, 6)
        P = self.pick(16, 32)
        H = self.pick(4, 8, 16)
        G = self.pick(1, 1, 1, 2)
        nh = c['num_attention_heads']
        D = c['hidden_size'] = self.pick(64, 96, 128)
        while D % nh or D // nh % 2:
            nh = nh // 2 or 1
        c['num_attention_heads'] = nh
        c['num_key_value_heads'] = self.pick(*[d for d in (1, 2, 4) if nh % d == 0])
        P = D * 2 // H
        n, k = self.n_experts()
        c.update(
            mamba_n_heads=H,
            mamba_d_head=P,
            mamba_d_state=self.pick(8, 16, 32),
            mamba_n_groups=G,
            mamba_d_conv=self.pick(2, 4),
            mamba_expand=2,
            mamba_conv_bias=self.maybe(0.8),
            mamba_proj_bias=False,
            mamba_chunk_size=256,
            position_embedding_type=self.pick('nope', 'rope'),
            embedding_multiplier=6.0,
            residual_multiplier=0.4,
            attention_multiplier=self.pick(0.05, 0.2),
            logits_scaling=4.0,
            attention_bias=self.maybe(0.2),
            num_local_experts=n if moe else 0,
            num_experts_per_tok=k if moe else 0,
            shared_intermediate_size=self.pick(64, 96, 104),
            intermediate_size=self.pick(32, 40, 64),
            layer_types=[self.pick('linear_attention', 'linear_attention', 'full_attention') for _ in range(L)],
            time_step_limit=[0.0, {'__float__': 'Infinity'}],
        )
        if 'linear_attention' not in c['layer_types']:
            c['layer_types'][0] = 'linear_attention'
        self.embed()
        for i in range(L):
            p = f'model.layers.{i}'
            self.norm(p + '.input_layernorm', D)
            self.norm(p + '.post_attention_layernorm', D)
            if c['layer_types'][i] == 'linear_attention':
                self.mamba(
                    p + '.mamba',
                    H,
                    P,
                    c['mamba_d_state'],
                    G,
                    c['mamba_d_conv'],
                    c['mamba_proj_bias'],
                    c['mamba_conv_bias'],
                )
            else:
                self.attn(p + '.self_attn', bias=(c['attention_bias'],) * 4)
            self.lin(p + '.shared_mlp.input_linear', 2 * c['shared_intermediate_size'], D)
            self.lin(p + '.shared_mlp.output_linear', D, c['shared_intermediate_size'])
            if moe:
                ff = c['intermediate_size']
                self.mat(p + '.block_sparse_moe.input_linear.weight', n, 2 * ff, D)
                self.mat(p + '.block_sparse_moe.output_linear.weight', n, D, ff)
                self.lin(p + '.block_sparse_moe.router.layer', n, D)
        self.norm('model.norm', D)
        if self.maybe(0.3):  # as transformers 4 wrote them
            old = dict(linear_attention='mamba', full_attention='attention')
            c['layer_types'] = [old[k] for k in c['layer_types']]

    def f_nemotron_h(self):
        c = self.base('nemotron_h')
        for k in ('rope_parameters', 'rms_norm_eps', 'num_hidden_layers', 'hidden_act'):
            c.pop(k)
        L = self.randint(3, 8)
        n = self.groups('n_routed_experts')
        c['layers_block_type'] = [self.pick('linear_attention', 'full_attention', 'mlp', 'moe') for _ in range(L)]
        for j, k in enumerate(('linear_attention', 'full_attention')):
            if k not in c['layers_block_type']:
                c['layers_block_type'][j] = k
        G = self.pick(1, 2, 4)
        H = G * self.pick(1, 2, 3)
        P = self.pick(16, 32)
        c.update(
            ssm_state_size=self.pick(8, 16, 32),
            mamba_num_heads=H,
            mamba_head_dim=P,
            n_groups=G,
            conv_kernel=self.pick(2, 4),
            chunk_size=16,
            moe_shared_expert_intermediate_size=self.pick(40, 96),
            n_shared_experts=1,
            layer_norm_epsilon=1e-5,
            mlp_hidden_act='relu2',
            use_conv_bias=self.maybe(0.8),
            use_bias=False,
            mlp_bias=False,
            attention_bias=self.maybe(0.2),
            moe_latent_size=self.pick(None, 20, 40, 136, 32),
            time_step_limit=[0.0, {'__float__': 'Infinity'}],
        )
        D = c['hidden_size']
        latent = c['moe_latent_size']
        self.embed('backbone.embeddings')
        for i, k in enumerate(c['layers_block_type']):
            p = f'backbone.layers.{i}'
            m = p + '.mixer'
            self.norm(p + '.norm', D)
            if k == 'linear_attention':
                self.mamba(m, H, P, c['ssm_state_size'], G, c['conv_kernel'], c['use_bias'], c['use_conv_bias'])
            elif k == 'full_attention':
                self.attn(m, bias=(c['attention_bias'],) * 4)
            elif k == 'mlp':
                self.lin(m + '.up_proj', c['intermediate_size'], D, c['mlp_bias'])
                self.lin(m + '.down_proj', D, c['intermediate_size'], c['mlp_bias'])
            else:
                self.lin(m + '.gate', n, D)
                self.w[m + '.gate.e_score_correction_bias'] = self.r.standard_normal(n) * 0.2
                if latent:
                    self.lin(m + '.fc1_latent_proj', latent, D, c['mlp_bias'])
                    self.lin(m + '.fc2_latent_proj', D, latent, c['mlp_bias'])
                for e in range(n):
                    self.lin(f'{m}.experts.{e}.up_proj', c['moe_intermediate_size'], latent or D)
                    self.lin(f'{m}.experts.{e}.down_proj', latent or D, c['moe_intermediate_size'])
                ff = c['moe_shared_expert_intermediate_size']
                self.lin(m + '.shared_experts.up_proj', ff, D, c['mlp_bias'])
                self.lin(m + '.shared_experts.down_proj', D, ff, c['mlp_bias'])
        self.norm('backbone.norm_f', D)
        if self.maybe(0.2):  # as in the first folders
            letter = dict(linear_attention='M', full_attention='*', mlp='-', moe='E')
            c['hybrid_override_pattern'] = ''.join(letter[k] for k in c.pop('layers_block_type'))
            c.update(num_hidden_layers=L, mamba_n_groups=c.pop('n_groups'), mamba_d_conv=c.pop('conv_kernel'))

    def f_lfm2(self, mt='lfm2'):
        c = self.base(mt, conv_L_cache=self.pick(2, 3, 4), conv_bias=False, norm_eps=self.pick(1e-5, 1e-6))
        del c['head_dim'], c['rms_norm_eps'], c['hidden_act']
        nh = c['num_attention_heads']
        D = c['hidden_size'] = nh * self.pick(16, 24, 32)
        L = c['num_hidden_layers'] = self.randint(2, 6)
        c['layer_types'] = [self.pick('conv', 'conv', 'full_attention') for _ in range(L)]
        if 'conv' not in c['layer_types']:
            c['layer_types'][0] = 'conv'
        if 'full_attention' not in c['layer_types']:
            c['layer_types'][-1] = 'full_attention'
        ff = c['intermediate_size']
        nd = L
        if mt == 'lfm2':
            c.update(
                block_auto_adjust_ff_dim=self.maybe(),
                block_ffn_dim_multiplier=self.pick(1.0, 1.3, None),
                block_multiple_of=self.pick(8, 32, 256),
            )
            if c['block_auto_adjust_ff_dim']:
                ff = int(2 * ff / 3)
                if c['block_ffn_dim_multiplier'] is not None:
                    ff = int(c['block_ffn_dim_multiplier'] * ff)
                    ff = c['block_multiple_of'] * ((ff + c['block_multiple_of'] - 1) // c['block_multiple_of'])
        else:
            n, k = self.n_experts()
            nd = self.randint(0, L - 1)
            c.update(
                num_dense_layers=nd,
                num_experts=n,
                num_experts_per_tok=k,
                moe_intermediate_size=self.pick(24, 40, 64),
                use_expert_bias=self.maybe(0.7),
                norm_topk_prob=self.maybe(0.7),
                routed_scaling_factor=self.pick(1.0, 1.7),
            )
        W = ('w1', 'w3', 'w2')
        self.embed()
        for i in range(L):
            p = f'model.layers.{i}'
            self.norm(p + '.operator_norm', D)
            self.norm(p + '.ffn_norm', D)
            if c['layer_types'][i] == 'conv':
                b = c['conv_bias']
                K = c['conv_L_cache']
                self.lin(p + '.conv.in_proj', 3 * D, D, b)
                self.lin(p + '.conv.out_proj', D, D, b)
                self.w[p + '.conv.conv.weight'] = self.r.uniform(-1, 1, (D, 1, K)) / math.sqrt(K)
                if b:
                    self.vec(p + '.conv.conv.bias', D)
            else:
                self.attn(p + '.self_attn', qk=True, o='out_proj', names=('q_layernorm', 'k_layernorm'))
            if i < nd:
                self.glu(p + '.feed_forward', ff, W)
            else:
                self.lin(p + '.feed_forward.gate', n, D)
                self.experts(p + '.feed_forward.experts', n, c['moe_intermediate_size'], W)
                if c['use_expert_bias']:
                    self.w[p + '.feed_forward.expert_bias'] = self.r.standard_normal(n) * 0.2
        self.norm('model.embedding_norm', D)
        if self.maybe(0.2):
            c['full_attn_idxs'] = [i for i, t in enumerate(c.pop('layer_types')) if t == 'full_attention']

    def f_lfm2_moe(self):
        self.f_lfm2('lfm2_moe')

    def f_gemma2(self):
        c = self.base(
            'gemma2',
            sliding_window=self.pick(5, 16, 40),
            attn_logit_softcapping=self.pick(50.0, 20.0, None),
            final_logit_softcapping=self.pick(30.0, None),
            tie_word_embeddings=True,
            hidden_activation='gelu_pytorch_tanh',
        )
        del c['hidden_act']
        c['query_pre_attn_scalar'] = self.pick(c['head_dim'], 50, 144)
        self.gemma_layers()

    def gemma_layers(self, qk=False):
        c = self.c
        D = c['hidden_size']
        self.embed()
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            for n in (
                'input_layernorm',
                'post_attention_layernorm',
                'pre_feedforward_layernorm',
                'post_feedforward_layernorm',
            ):
                self.norm(f'{p}.{n}', D, True)
            self.attn(p + '.self_attn', qk=qk, plus=True)
            self.glu(p + '.mlp', c['intermediate_size'])
        self.norm('model.norm', D, True)

    def f_gemma3_text(self):
        c = self.base(
            'gemma3_text',
            sliding_window=self.pick(5, 16, 40),
            attn_logit_softcapping=None,
            final_logit_softcapping=self.pick(30.0, None),
            tie_word_embeddings=True,
            hidden_activation='gelu_pytorch_tanh',
        )
        del c['hidden_act']
        c['query_pre_attn_scalar'] = self.pick(c['head_dim'], 50, 144)
        self.kinds('sliding_window_pattern')
        full = (
            dict(rope_type='default', rope_theta=1e6)
            if self.maybe()
            else dict(rope_type='linear', factor=8.0, rope_theta=1e6)
        )
        c['rope_parameters'] = dict(full_attention=full, sliding_attention=dict(rope_type='default', rope_theta=1e4))
        self.gemma_layers(True)

    def f_gemma4_text(self):
        c = self.base(
            'gemma4_text',
            sliding_window=self.pick(5, 16, 40),
            final_logit_softcapping=self.pick(30.0, None),
            tie_word_embeddings=True,
            hidden_activation='gelu_pytorch_tanh',
            rms_norm_eps=1e-6,
        )
        del c['hidden_act']
        L = c['num_hidden_layers'] = self.randint(2, 9)
        # scores are not divided by the head size, so that with large heads F32 rounding errors are large, too
        hd = c['head_dim'] = self.pick(8, 16, 24, 32)
        gd = self.pick(16, 32, 48)
        keqv, moe = self.maybe(), self.maybe()
        lt = c['layer_types'] = [
            self.pick('sliding_attention', 'sliding_attention', 'full_attention') for _ in range(L)
        ]
        lt[-1] = 'full_attention'
        shared = self.pick(0, 0, self.randint(0, L - 1))
        if shared and not set(lt[L - shared :]) <= set(lt[: L - shared]):
            shared = 0
        gk = self.pick(None, 1, 2) if c['num_attention_heads'] % 2 == 0 else None
        c.update(
            attention_k_eq_v=keqv,
            num_kv_shared_layers=shared,
            enable_moe_block=moe,
            hidden_size_per_layer_input=self.pick(0, 0, 16, 32, 24),
            vocab_size_per_layer_input=c['vocab_size'],
            use_double_wide_mlp=bool(shared) and self.maybe(),
        )
        c['rope_parameters'] = dict(
            full_attention=dict(
                partial_rotary_factor=self.pick(0.25, 0.5, 1.0), rope_theta=1e6, rope_type='proportional'
            ),
            sliding_attention=dict(rope_theta=1e4, rope_type='default'),
        )
        n = k = None
        if moe:
            n, k = self.n_experts()
            c.update(num_experts=n, top_k_experts=k, moe_intermediate_size=self.pick(24, 40, 64))
        if self.maybe():
            c.update(global_head_dim=gd, num_global_key_value_heads=gk)
        else:
            o = dict(head_dim=gd)
            if keqv and gk:
                o['num_key_value_heads'] = gk
            c['per_layer_config'] = {str(i): o for i in range(L) if lt[i] == 'full_attention'}
        D, P, V = c['hidden_size'], c['hidden_size_per_layer_input'], c['vocab_size']
        self.embed()
        if P:
            self.mat('model.embed_tokens_per_layer.weight', V, L * P, scale=0.2)
            self.lin('model.per_layer_model_projection', L * P, D)
            self.norm('model.per_layer_projection_norm', P)
        for i in range(L):
            p = f'model.layers.{i}'
            full, own = lt[i] == 'full_attention', i < L - shared
            for m in (
                'input_layernorm',
                'post_attention_layernorm',
                'pre_feedforward_layernorm',
                'post_feedforward_layernorm',
            ):
                self.norm(f'{p}.{m}', D)
            self.attn(
                p + '.self_attn',
                qk=True,
                hd=gd if full else hd,
                nkv=(gk if full and keqv and gk else None),
                v=not (full and keqv),
                kv=own,
            )
            self.glu(p + '.mlp', c['intermediate_size'] * (2 if c['use_double_wide_mlp'] and not own else 1))
            self.vec(p + '.layer_scalar', 1, 1.0, 0.2)
            if P:
                self.lin(p + '.per_layer_input_gate', P, D)
                self.lin(p + '.per_layer_projection', D, P)
                self.norm(p + '.post_per_layer_input_norm', D)
            if moe:
                for m in (
                    'post_feedforward_layernorm_1',
                    'post_feedforward_layernorm_2',
                    'pre_feedforward_layernorm_2',
                ):
                    self.norm(f'{p}.{m}', D)
                self.vec(p + '.router.scale', D, 1.0, 0.1)
                self.vec(p + '.router.per_expert_scale', n, 1.0, 0.1)
                self.w[p + '.router.proj.weight'] = self.r.standard_normal((n, D)) * self.pick(1.0, 0.3)
                self.experts(p + '.experts', n, c['moe_intermediate_size'], fused=True)
        self.norm('model.norm', D)

    def f_phi3(self):
        c = self.base('phi3', sliding_window=self.pick(None, None, 16))
        hd = self.pick(16, 32, 24)
        c['hidden_size'] = hd * c['num_attention_heads']
        del c['head_dim']
        f = self.pick(1.0, 0.75, 0.5)
        n = int(hd * f) // 2
        c['partial_rotary_factor'] = f
        c['rope_parameters']['partial_rotary_factor'] = f
        c['original_max_position_embeddings'] = self.pick(64, 256, 1024)
        if self.maybe():
            c['rope_parameters'].update(
                rope_type='longrope',
                short_factor=[1 + 0.05 * i for i in range(n)],
                long_factor=[1 + 0.5 * i for i in range(n)],
                original_max_position_embeddings=c['original_max_position_embeddings'],
            )
            if self.maybe(0.3):
                c['rope_parameters']['factor'] = self.pick(2.0, 32.0)  # it precedes the ratio of the two lengths
        D, H, K = c['hidden_size'], c['num_attention_heads'], c['num_key_value_heads']
        self.embed()
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            self.norm(p + '.input_layernorm', D)
            self.norm(p + '.post_attention_layernorm', D)
            self.lin(p + '.self_attn.qkv_proj', (H + 2 * K) * hd, D)
            self.lin(p + '.self_attn.o_proj', D, H * hd)
            self.lin(p + '.mlp.gate_up_proj', 2 * c['intermediate_size'], D)
            self.lin(p + '.mlp.down_proj', D, c['intermediate_size'])
        self.norm('model.norm', D)

    def f_glm4(self):
        c = self.base('glm4')
        f = self.pick(0.5, 0.25, 1.0)
        c['head_dim'] = self.pick(16, 32, 48)
        c['partial_rotary_factor'] = f
        c['rope_parameters']['partial_rotary_factor'] = f
        D = c['hidden_size']
        ab = c['attention_bias'] = self.maybe()
        self.embed()
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            for n in ('input_layernorm', 'post_self_attn_layernorm', 'post_attention_layernorm', 'post_mlp_layernorm'):
                self.norm(f'{p}.{n}', D)
            self.attn(p + '.self_attn', bias=(ab, ab, ab, 0))
            self.lin(p + '.mlp.gate_up_proj', 2 * c['intermediate_size'], D)
            self.lin(p + '.mlp.down_proj', D, c['intermediate_size'])
        self.norm('model.norm', D)

    def f_starcoder2(self):
        c = self.base(
            'starcoder2', hidden_act='gelu_pytorch_tanh', norm_epsilon=1e-5, sliding_window=self.pick(None, 16)
        )
        hd = self.pick(16, 32)
        del c['head_dim'], c['rms_norm_eps']
        D = c['hidden_size'] = hd * c['num_attention_heads']
        b = c['use_bias'] = self.maybe(0.7)
        self.embed()
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            self.norm(p + '.input_layernorm', D, bias=True)
            self.norm(p + '.post_attention_layernorm', D, bias=True)
            self.attn(p + '.self_attn', bias=(b,) * 4)
            self.lin(p + '.mlp.c_fc', c['intermediate_size'], D, b)
            self.lin(p + '.mlp.c_proj', D, c['intermediate_size'], b)
        self.norm('model.norm', D, bias=True)

    def f_nemotron(self):
        c = self.base('nemotron', hidden_act='relu2', norm_eps=1e-5)
        del c['rms_norm_eps']
        f = self.pick(0.5, 1.0)
        c['head_dim'] = self.pick(16, 32, 48)
        c['partial_rotary_factor'] = f
        c['rope_parameters']['partial_rotary_factor'] = f
        D = c['hidden_size']
        ab, mb = self.maybe(0.3), self.maybe(0.3)
        c.update(attention_bias=ab, mlp_bias=mb)
        self.embed()
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            self.norm(p + '.input_layernorm', D, True, True)
            self.norm(p + '.post_attention_layernorm', D, True, True)
            self.attn(p + '.self_attn', bias=(ab,) * 4)
            self.lin(p + '.mlp.up_proj', c['intermediate_size'], D, mb)
            self.lin(p + '.mlp.down_proj', D, c['intermediate_size'], mb)
        self.norm('model.norm', D, True, True)

    def f_olmo2(self, mt='olmo2'):
        c = self.base(mt)
        del c['head_dim']
        hd = self.pick(16, 32)
        D = c['hidden_size'] = hd * c['num_attention_heads']
        L = c['num_hidden_layers']
        if mt == 'olmo3':
            c['sliding_window'] = self.pick(8, 16)
            self.kinds()
            if self.maybe():
                c['rope_parameters'].update(
                    rope_type='yarn',
                    factor=8.0,
                    original_max_position_embeddings=64,
                    attention_factor=1.2,
                    beta_fast=32.0,
                    beta_slow=1.0,
                )
        ab = c['attention_bias'] = self.maybe(0.2)
        self.embed()
        for i in range(L):
            p = f'model.layers.{i}'
            self.norm(p + '.post_attention_layernorm', D)
            self.norm(p + '.post_feedforward_layernorm', D)
            self.attn(p + '.self_attn', qk=True, whole=True, bias=(ab,) * 4)
            self.glu(p + '.mlp', c['intermediate_size'])
        self.norm('model.norm', D)

    def f_olmo3(self):
        self.f_olmo2('olmo3')

    def f_cohere2(self):
        c = self.base(
            'cohere2',
            sliding_window=self.pick(8, 16),
            layer_norm_eps=1e-5,
            logit_scale=self.pick(0.25, 0.0625),
            tie_word_embeddings=True,
        )
        del c['rms_norm_eps']
        D = c['hidden_size']
        self.kinds('sliding_window_pattern')
        ab = c['attention_bias'] = self.maybe(0.2)
        self.embed()
        for i in range(c['num_hidden_layers']):
            p = f'model.layers.{i}'
            self.norm(p + '.input_layernorm', D)
            self.attn(p + '.self_attn', bias=(ab,) * 4)
            self.glu(p + '.mlp', c['intermediate_size'])
        self.norm('model.norm', D)

    def make(self, fam):
        getattr(self, 'f_' + fam)()
        r = self.c.get('rope_parameters')
        if r and r.get('rope_type') == 'default' and fam != 'phi3' and self.maybe(0.3):
            self.rope_scaling()
        if r and fam == 'gemma3_text' and self.maybe(0.4):
            self.old_style()
        elif r and 'rope_theta' in r and fam not in ('gpt_oss', 'deepseek_v3', 'ministral3') and self.maybe(0.4):
            self.old_style()
        if r and 'rope_theta' in r and self.maybe(0.1):  # what follows from a missing key
            del r['rope_theta']
        return self.c, self.w


if __name__ == '__main__':
    out, first, count, types = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    for name in types or [n[2:] for n in dir(Variant) if n.startswith('f_')]:
        for seed in range(first, first + count):
            variant = Variant([seed, *name.encode()])
            config, weights = variant.make(name)
            folder = f'{out}/{name}-{seed}'
            save(folder, config, weights, variant.pick('BF16', 'F16', 'F32'))
            ids = variant.r.integers(3, 259, variant.pick(60, 110))
            with open(folder + '/tokens', 'w') as f:
                print(*ids, file=f)
            reference.Model(folder).logits(ids).astype('<f4').tofile(folder + '/logits')
            print(f'{name}-{seed}', flush=True)
