#!/usr/bin/python3
"""Writes folders of tiny random models with a golden.json that tests/tools/reference.py computes in float64.

    hf_goldens.py OUT SEED

One for each of MODELS, in the form that tests/golden reads: OUT/NAME with config.json, model.safetensors in BF16, a
tokenizer.json of bytes, and golden.json, the logits and greedy ids. Heads have 32 dimensions, for which GPUs have
attention. Needs numpy.
"""
import json, sys
import numpy as np

sys.dont_write_bytecode = True
import reference, variants

BASE = dict(
    vocab_size=260,
    hidden_size=64,
    intermediate_size=64,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=32,
    max_position_embeddings=1024,
    tie_word_embeddings=False,
)
LLAMA3 = dict(
    rope_type='llama3',
    rope_theta=1e6,
    factor=16.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=64,
)
SLIDING = ['sliding_attention'] * 3 + ['full_attention']
MODELS = {
    'exaone4': dict(sliding_window=20, layer_types=SLIDING, rope_parameters=LLAMA3),
    'olmoe': dict(norm_topk_prob=False),
    'ernie4_5': dict(),
    'nemotron_h-latent': dict(),
}


class Fixed(variants.Variant):
    """A variant in which only the weights are random."""

    def pick(self, *a):
        return a[-1]

    def maybe(self, p=0.5):
        return False

    def randint(self, a, b):
        super().randint(a, b)
        return a + 1

    def n_experts(self):
        return 8, 2

    def groups(self, key):
        n, k = self.n_experts()
        self.c.update({key: n, 'num_experts_per_tok': k, 'moe_intermediate_size': 32})
        self.c.update(n_group=1, topk_group=1, routed_scaling_factor=2.5, norm_topk_prob=True)
        return n

    def base(self, mt, **k):
        super().base(mt, **k)
        self.c.update(BASE, num_hidden_layers=len(MODELS.get(mt, {}).get('layer_types', 'ab')))
        return self.c


def case(model, ids):
    logits = model.logits(ids)
    best = np.argsort(-logits, axis=-1, kind='stable')[:, :8]
    top = [[[int(i), round(float(row[i]), 6)] for i in ids] for row, ids in zip(logits, best)]
    text, greedy, gap = list(ids), [], []
    for _ in range(16):
        row = model.logits(text)[-1]
        first, second = (int(i) for i in np.argsort(-row, kind='stable')[:2])
        greedy.append(first)
        gap.append(round(float(row[first] - row[second]), 6))
        text.append(first)
    return dict(tokens=list(ids), top=top, greedy=greedy, greedy_gap=gap)


if __name__ == '__main__':
    out, seed = sys.argv[1], int(sys.argv[2])
    for name, more in MODELS.items():
        variant = Fixed([seed, *name.encode()])
        config, weights = variant.make(name.partition('-')[0])
        config.update(more)
        folder = f'{out}/{name}'
        variants.save(folder, config, weights, 'BF16')
        model = reference.Model(folder)
        cases = [case(model, [int(i) for i in variant.r.integers(3, 259, n)]) for n in (1, 7, 40, 150)]
        with open(folder + '/golden.json', 'w') as f:
            json.dump(dict(reference='tests/tools/reference.py', n_vocab=260, cases=cases), f, separators=(',', ':'))
        print(name, config)
