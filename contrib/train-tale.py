#!/usr/bin/env python3
"""Train `tale`, the small story model that hearth carries.

Input: a folder of Grimm tales (one text file a tale, named after it) and War and Peace, both in the public domain.
Output: tale-f16.gguf, and the same weights as safetensors in the Hugging Face layout.
Needs PyTorch, tokenizers, safetensors and a GPU; about six minutes on an H100.

Usage: train-tale.py TALES_DIR WAR_AND_PEACE.txt OUT_DIR [STEPS]
"""
import json
import math
import multiprocessing
import os
import random
import re
import struct
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

N_VOCAB, D_MODEL, N_LAYER, N_HEAD, N_KV, D_HEAD, D_FF, CONTEXT = 4096, 256, 8, 4, 2, 64, 768, 1024
ROPE_BASE, EPS = 10000.0, 1e-5
BATCH, WORKERS, MAX_SECONDS = 48, 10, 400
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
END, IM_START, IM_END, FIM_PREFIX, FIM_SUFFIX, FIM_MIDDLE = range(len(SPECIAL))
ASK = [
    "Tell me the tale of {}.",
    "Tell me a story about {}.",
    "Once more, please: {}.",
    "Do you know the story of {}?",
    "Write a fairy tale called {}.",
]
CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


# --- data ---------------------------------------------------------------------------------------------------


def read_tales(folder):
    tales = []
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".txt"):
            continue
        with open(os.path.join(folder, name), encoding="ascii", errors="ignore") as f:
            text = re.sub(r"[ \t]+", " ", f.read().strip())
        if len(text) > 400:
            tales.append((name[:-4].replace("_", " "), text))
    return tales


def read_book(path):
    with open(path) as f:
        book = re.sub(r"(?<!\n)\n(?!\n)", " ", f.read())
    return re.sub(r" +", " ", re.sub(r"\n{2,}", "\n\n", book))


def train_tokenizer(tales, book):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    texts = [text for _, text in tales] * 2 + [book] + ["Tell me the tale of " + name for name, _ in tales]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tok.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=N_VOCAB, special_tokens=SPECIAL, initial_alphabet=alphabet)
    )
    return tok


class Documents:
    """Draws training rows: book, whole tales, chats that ask for a tale, and fill-in-the-middle."""

    def __init__(self, tok, tales, book):
        self.encode = lambda s: tok.encode(s).ids
        self.book = np.array(self.encode(book), np.int32)
        self.tales = [(name, np.array(self.encode(text), np.int32)) for name, text in tales]
        self.user, self.assistant, self.newline = map(self.encode, ("user\n", "assistant\n", "\n"))

    def chat(self, name, ids):
        ask = self.encode(random.choice(ASK).format(name))
        user = [IM_START] + self.user + ask + [IM_END] + self.newline
        return user + [IM_START] + self.assistant + list(ids) + [IM_END] + self.newline + [END]

    @staticmethod
    def fim(ids):
        a, b = sorted(random.sample(range(1, len(ids)), 2))
        b = min(b, a + 96)
        return [FIM_PREFIX, *ids[:a], FIM_SUFFIX, *ids[b:], FIM_MIDDLE, *ids[a:b], END]

    def document(self):
        kind = random.random()
        if kind < 0.25:
            i = random.randrange(len(self.book) - 700)
            return list(self.book[i : i + 700])
        name, ids = random.choice(self.tales)
        if kind < 0.55:
            return list(ids) + [END]
        if kind < 0.85:
            return self.chat(name, ids[: random.choice([200, 400, 800])])
        i = random.randrange(max(1, len(ids) - 300))
        return self.fim(ids[i : i + 300])

    def batch(self):
        rows = []
        for _ in range(BATCH):
            row = [END] if random.random() < 0.5 else []
            while len(row) < CONTEXT + 1:
                row += self.document()
            start = random.randrange(len(row) - CONTEXT) if random.random() < 0.5 else 0
            rows.append(row[start : start + CONTEXT + 1])
        return np.array(rows, dtype=np.int16)


def feed(documents, queue, seed):
    """A worker process: batches without end."""
    random.seed(seed)
    while True:
        queue.put(documents.batch())


# --- model --------------------------------------------------------------------------------------------------


def rope_tables():
    inv_freq = ROPE_BASE ** (-torch.arange(0, D_HEAD, 2).float() / D_HEAD)
    angle = torch.outer(torch.arange(CONTEXT).float(), inv_freq)
    return angle.cos().cuda(), angle.sin().cuda()


def rope(x, cos, sin):
    """Turns interleaved pairs (2i, 2i+1): the layout that GGUF's llama architecture stores."""
    a, b = x[..., 0::2], x[..., 1::2]
    c, s = cos[: x.shape[-2]], sin[: x.shape[-2]]
    return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2).type_as(x)


def linear(n_in, n_out):
    return nn.Linear(n_in, n_out, bias=False)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(D_MODEL))

    def forward(self, x):
        return F.rms_norm(x.float(), (D_MODEL,), self.weight.float(), EPS).type_as(x)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn_norm, self.ffn_norm = Norm(), Norm()
        self.q, self.o = linear(D_MODEL, N_HEAD * D_HEAD), linear(N_HEAD * D_HEAD, D_MODEL)
        self.k, self.v = linear(D_MODEL, N_KV * D_HEAD), linear(D_MODEL, N_KV * D_HEAD)
        self.gate, self.up, self.down = linear(D_MODEL, D_FF), linear(D_MODEL, D_FF), linear(D_FF, D_MODEL)

    def forward(self, x, cos, sin):
        n_row, n_tok, _ = x.shape
        heads = lambda t, n: t.view(n_row, n_tok, n, D_HEAD).transpose(1, 2)
        h = self.attn_norm(x)
        q, k = rope(heads(self.q(h), N_HEAD), cos, sin), rope(heads(self.k(h), N_KV), cos, sin)
        y = F.scaled_dot_product_attention(q, k, heads(self.v(h), N_KV), is_causal=True, enable_gqa=True)
        x = x + F.dropout(self.o(y.transpose(1, 2).reshape(n_row, n_tok, -1)), 0.1, self.training)
        h = self.ffn_norm(x)
        return x + F.dropout(self.down(F.silu(self.gate(h)) * self.up(h)), 0.1, self.training)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(N_VOCAB, D_MODEL)
        self.blocks = nn.ModuleList(Block() for _ in range(N_LAYER))
        self.norm = Norm()
        self.cos, self.sin = rope_tables()
        for name, p in self.named_parameters():
            if p.dim() > 1:
                adds_to_residual = name.endswith(("o.weight", "down.weight"))
                nn.init.normal_(p, 0, 0.02 / math.sqrt(2 * N_LAYER) if adds_to_residual else 0.02)

    def forward(self, x):
        h = F.dropout(self.embed(x), 0.05, self.training)
        for block in self.blocks:
            h = block(h, self.cos, self.sin)
        return self.norm(h) @ self.embed.weight.t()


def train(documents, steps):
    model = Model().cuda()
    print("parameters", sum(p.numel() for p in model.parameters()))
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=2e-3, betas=(0.9, 0.95), fused=True)
    fork = multiprocessing.get_context("fork")
    queue = fork.Queue(64)
    workers = [fork.Process(target=feed, args=(documents, queue, 100 + i), daemon=True) for i in range(WORKERS)]
    for w in workers:
        w.start()
    compiled, started = torch.compile(model), time.time()
    for step in range(steps):
        cosine = 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps))
        for g in optimizer.param_groups:
            g["lr"] = 2e-3 * min(1, (step + 1) / 200) * cosine
        x = torch.from_numpy(queue.get().astype(np.int64)).cuda(non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16):
            logits = compiled(x[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), x[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 250 == 0 or step == steps - 1:
            print(step, "loss %.3f" % loss.item(), "%.0f s" % (time.time() - started), flush=True)
        if time.time() - started > MAX_SECONDS:
            break
    for w in workers:
        w.terminate()
    return model.eval()


# --- GGUF ---------------------------------------------------------------------------------------------------

U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5
TENSOR_F32, TENSOR_F16 = 0, 1


def gguf_string(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def gguf_key(key, kind, value):
    head = gguf_string(key) + struct.pack("<I", kind)
    if kind == STRING:
        return head + gguf_string(value)
    if kind == ARRAY:
        element, items = value
        head += struct.pack("<IQ", element, len(items))
        if element == STRING:
            return head + b"".join(map(gguf_string, items))
        return head + np.asarray(items, np.int32).tobytes()
    return head + struct.pack({U32: "<I", F32: "<f", BOOL: "<B"}[kind], value)


def gguf_metadata(tok):
    by_id = {i: t for t, i in tok.get_vocab().items()}
    merges = json.loads(tok.to_str())["model"]["merges"]
    return [
        gguf_key("general.architecture", STRING, "llama"),
        gguf_key("general.name", STRING, "tale"),
        gguf_key("general.license", STRING, "CC0-1.0"),
        gguf_key("general.file_type", U32, 1),
        gguf_key(
            "general.description",
            STRING,
            "7M-parameter story model trained on Grimm's tales and War and Peace (public domain)",
        ),
        gguf_key("llama.block_count", U32, N_LAYER),
        gguf_key("llama.context_length", U32, CONTEXT),
        gguf_key("llama.embedding_length", U32, D_MODEL),
        gguf_key("llama.feed_forward_length", U32, D_FF),
        gguf_key("llama.attention.head_count", U32, N_HEAD),
        gguf_key("llama.attention.head_count_kv", U32, N_KV),
        gguf_key("llama.attention.layer_norm_rms_epsilon", F32, EPS),
        gguf_key("llama.rope.dimension_count", U32, D_HEAD),
        gguf_key("llama.rope.freq_base", F32, ROPE_BASE),
        gguf_key("llama.vocab_size", U32, N_VOCAB),
        gguf_key("tokenizer.ggml.model", STRING, "gpt2"),
        gguf_key("tokenizer.ggml.pre", STRING, "gpt-2"),
        gguf_key("tokenizer.ggml.tokens", ARRAY, (STRING, [by_id[i] for i in range(N_VOCAB)])),
        gguf_key("tokenizer.ggml.token_type", ARRAY, (I32, [3 if i < len(SPECIAL) else 1 for i in range(N_VOCAB)])),
        gguf_key("tokenizer.ggml.merges", ARRAY, (STRING, [m if isinstance(m, str) else " ".join(m) for m in merges])),
        gguf_key("tokenizer.ggml.bos_token_id", U32, END),
        gguf_key("tokenizer.ggml.eos_token_id", U32, END),
        gguf_key("tokenizer.ggml.eot_token_id", U32, IM_END),
        gguf_key("tokenizer.ggml.add_bos_token", BOOL, 0),
        gguf_key("tokenizer.ggml.fim_pre_token_id", U32, FIM_PREFIX),
        gguf_key("tokenizer.ggml.fim_suf_token_id", U32, FIM_SUFFIX),
        gguf_key("tokenizer.ggml.fim_mid_token_id", U32, FIM_MIDDLE),
        gguf_key("tokenizer.chat_template", STRING, CHATML),
    ]


def gguf_tensors(sd):
    names = {
        "attn_norm": "attn_norm", "attn_q": "q", "attn_k": "k", "attn_v": "v", "attn_output": "o",
        "ffn_norm": "ffn_norm", "ffn_gate": "gate", "ffn_up": "up", "ffn_down": "down",
    }  # fmt: skip
    yield "token_embd.weight", sd["embed.weight"]
    for i in range(N_LAYER):
        for theirs, ours in names.items():
            yield f"blk.{i}.{theirs}.weight", sd[f"blocks.{i}.{ours}.weight"]
    yield "output_norm.weight", sd["norm.weight"]


def write_gguf(path, tok, sd):
    metadata, directory, data, offset = gguf_metadata(tok), [], [], 0
    for name, w in gguf_tensors(sd):
        kind = TENSOR_F16 if w.dim() > 1 else TENSOR_F32
        raw = w.numpy().astype(np.float16 if kind == TENSOR_F16 else np.float32).tobytes()
        shape = list(w.shape)[::-1]
        directory.append(
            gguf_string(name)
            + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
        )
        raw += b"\0" * (-len(raw) % 32)
        offset += len(raw)
        data.append(raw)
    with open(path, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, len(directory), len(metadata)) + b"".join(metadata + directory))
        f.write(b"\0" * (-f.tell() % 32) + b"".join(data))


# --- safetensors --------------------------------------------------------------------------------------------


def halves(w, n_head):
    """Interleaved pairs to the rotate-half order of Hugging Face."""
    return w.view(n_head, D_HEAD // 2, 2, D_MODEL).transpose(1, 2).reshape(n_head * D_HEAD, D_MODEL).contiguous()


def write_safetensors(folder, tok, sd):
    hf = {"model.embed_tokens.weight": sd["embed.weight"], "model.norm.weight": sd["norm.weight"]}
    for i in range(N_LAYER):
        to, at = f"model.layers.{i}.", f"blocks.{i}."
        hf[to + "input_layernorm.weight"] = sd[at + "attn_norm.weight"]
        hf[to + "post_attention_layernorm.weight"] = sd[at + "ffn_norm.weight"]
        hf[to + "self_attn.q_proj.weight"] = halves(sd[at + "q.weight"], N_HEAD)
        hf[to + "self_attn.k_proj.weight"] = halves(sd[at + "k.weight"], N_KV)
        hf[to + "self_attn.v_proj.weight"] = sd[at + "v.weight"]
        hf[to + "self_attn.o_proj.weight"] = sd[at + "o.weight"]
        for name in ("gate", "up", "down"):
            hf[to + f"mlp.{name}_proj.weight"] = sd[at + f"{name}.weight"]
    half = {name: w.to(torch.bfloat16).contiguous() for name, w in hf.items()}
    save_file(half, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": D_MODEL,
        "intermediate_size": D_FF,
        "num_hidden_layers": N_LAYER,
        "num_attention_heads": N_HEAD,
        "num_key_value_heads": N_KV,
        "head_dim": D_HEAD,
        "vocab_size": N_VOCAB,
        "max_position_embeddings": CONTEXT,
        "rope_theta": ROPE_BASE,
        "rms_norm_eps": EPS,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
        "bos_token_id": END,
        "eos_token_id": [END, IM_END],
    }
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": CHATML,
        "eos_token": "<|im_end|>",
        "bos_token": "<|endoftext|>",
        "model_max_length": CONTEXT,
        "add_bos_token": False,
    }
    for name, value in (("config", config), ("tokenizer_config", tokenizer_config)):
        with open(os.path.join(folder, name + ".json"), "w") as f:
            json.dump(value, f, indent=1)
    tok.save(os.path.join(folder, "tokenizer.json"))


def main():
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    tales_dir, book_path, out = sys.argv[1:4]
    steps = int(sys.argv[4]) if len(sys.argv) == 5 else 6000
    random.seed(1)
    torch.manual_seed(1)
    np.random.seed(1)
    os.makedirs(out, exist_ok=True)
    tales, book = read_tales(tales_dir), read_book(book_path)
    tok = train_tokenizer(tales, book)
    model = train(Documents(tok, tales, book), steps)
    sd = {name: w.detach().float().cpu() for name, w in model.state_dict().items()}
    write_gguf(os.path.join(out, "tale-f16.gguf"), tok, sd)
    write_safetensors(out, tok, sd)


if __name__ == "__main__":
    main()
