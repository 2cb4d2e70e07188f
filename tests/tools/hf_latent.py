#!/usr/bin/env python3
"""hf_latent.py OUT SEED: tiny random models with latent attention as folders (config.json, model.safetensors in BF16, a
byte-level tokenizer.json), each with golden.json: logits and greedy ids that transformers computes from exactly these
weights in float64 with eager attention. Needs torch, transformers, tokenizers. golden.json has the form that
tests/golden reads."""
import json, math, os, sys
import torch, transformers
from tokenizers import Tokenizer, models, pre_tokenizers, decoders
from transformers import AutoConfig, AutoModelForCausalLM

out, seed = sys.argv[1], int(sys.argv[2])
V = 260
BASE = dict(vocab_size=V, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=4, max_position_embeddings=1024, bos_token_id=1, eos_token_id=2, pad_token_id=0,
            tie_word_embeddings=False, n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=32,
            kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16)
MODELS = {
    "deepseek_v2": dict(first_k_dense_replace=1, n_shared_experts=2, q_lora_rank=None, topk_method="greedy",
                        routed_scaling_factor=1.0, norm_topk_prob=False),
    "deepseek_v2-groups": dict(model_type="deepseek_v2", first_k_dense_replace=0, n_shared_experts=1, q_lora_rank=24,
                               topk_method="group_limited_greedy", n_group=4, topk_group=2, routed_scaling_factor=4.0,
                               norm_topk_prob=False),
    "deepseek_v2-yarn": dict(model_type="deepseek_v2", first_k_dense_replace=1, n_shared_experts=2, q_lora_rank=None,
                             topk_method="greedy", rope_scaling=dict(
                                 rope_type="yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=32,
                                 beta_slow=1, mscale=0.707, mscale_all_dim=0.707)),
    "deepseek_v3-yarn": dict(model_type="deepseek_v3", first_k_dense_replace=1, n_shared_experts=1, q_lora_rank=24,
                             n_group=2, topk_group=1, routed_scaling_factor=2.5, rope_scaling=dict(
                                 rope_type="yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=32,
                                 beta_slow=1, mscale=1.0, mscale_all_dim=1.0)),
    "glm4_moe_lite": dict(n_shared_experts=1, q_lora_rank=24, n_group=1, topk_group=1, routed_scaling_factor=1.8,
                          mlp_layer_types=["dense", "sparse", "sparse"]),
}


def fill(m):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for n, p in sorted(m.named_parameters()):
            e = torch.randn(p.shape, generator=g, dtype=torch.float32)
            if "embed" in n:
                x = e
            elif "norm" in n:
                x = 1 + e * 0.1
            elif p.ndim >= 2:
                x = e / math.sqrt(p.shape[-1])
            else:
                x = e * 0.1
            p.copy_(x.to(torch.bfloat16))
        for n, b in m.named_buffers():
            if "e_score_correction_bias" in n:
                b.copy_((torch.randn(b.shape, generator=g) * 0.2).to(torch.bfloat16))


def tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {t: i for i, t in enumerate(["<pad>", "<s>", "</s>"] + alphabet)}
    t = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.add_special_tokens(["<pad>", "<s>", "</s>"])
    return t


for name, extra in MODELS.items():
    try:
        a = dict(BASE)
        a.update(extra)
        a.setdefault("model_type", name)
        kw = dict(attn_implementation="eager", experts_implementation="eager")
        torch.manual_seed(seed)
        m = AutoModelForCausalLM.from_config(AutoConfig.for_model(**a), **kw).eval()
        fill(m)
        d = os.path.join(out, name)
        os.makedirs(d, exist_ok=True)
        m.to(torch.bfloat16).save_pretrained(d, safe_serialization=True)
        m = AutoModelForCausalLM.from_pretrained(d, dtype=torch.float64, **kw).double().eval()
        r = torch.Generator().manual_seed(seed + 1)
        cases = []
        for n in (1, 7, 40, 150):
            ids = torch.randint(3, V - 1, (n,), generator=r).tolist()
            with torch.no_grad():
                lo = m(input_ids=torch.tensor([ids]), use_cache=False).logits[0].double()
                top = [[[int(i), round(float(x), 6)] for x, i in zip(*torch.topk(row, 8))] for row in lo]
                cur, greedy, gap = list(ids), [], []
                for _ in range(16):
                    x, i = torch.topk(m(input_ids=torch.tensor([cur]), use_cache=False).logits[0, -1].double(), 2)
                    greedy.append(int(i[0]))
                    gap.append(round(float(x[0] - x[1]), 6))
                    cur.append(int(i[0]))
            cases.append(dict(tokens=ids, top=top, greedy=greedy, greedy_gap=gap))
        tokenizer().save(os.path.join(d, "tokenizer.json"))
        with open(os.path.join(d, "tokenizer_config.json"), "w") as f:
            json.dump(dict(tokenizer_class="PreTrainedTokenizerFast", bos_token="<s>", eos_token="</s>"), f)
        with open(os.path.join(d, "golden.json"), "w") as f:
            json.dump(dict(reference="transformers %s, float64, eager" % transformers.__version__, n_vocab=V,
                           cases=cases), f, separators=(",", ":"))
        att = m.model.layers[0].self_attn
        print("ok", name, sum(p.numel() for p in m.parameters()), "scaling", att.scaling, (16 + 8) ** -0.5, flush=True)
    except Exception as e:
        print("LEFT OUT", name, type(e).__name__, str(e)[:300].replace("\n", " "), flush=True)
