/* hf-internal.h - the inside of hf_open(), which the files of this folder share. */
#ifndef HEARTH_HF_INTERNAL_H
#define HEARTH_HF_INTERNAL_H

#include <jansson.h>

#include "daemon/model/gguf-make.h"
#include "daemon/model/hf/hf.h"

/* One model_type of config.json. */
struct hf_arch {
    const char *model_type;
    const char *gguf;  /* general.architecture */
    const char *act;   /* hidden_act that the architecture has */
    unsigned rules;    /* HF_* below */
    float partial_rot; /* the share of a head that RoPE rotates, where config.json has no key for it */
};
enum {
    HF_PAIRS = 1,         /* GGUF has q and k re-ordered for interleaved RoPE; here pairs are half a head apart */
    HF_PLUS_ONE = 2,      /* norm weights are stored minus one */
    HF_SANDWICH = 4,      /* post_attention_layernorm follows attention; the FFN has a norm before and one behind */
    HF_GLM = 8,           /* HF_SANDWICH with GLM's tensor names */
    HF_LAYER_NORM = 16,   /* norm_eps is a LayerNorm's */
    HF_POST = 32,         /* post_attention_layernorm keeps that name, though it is the FFN's */
    HF_TRANSPOSED = 64,   /* all experts are in one tensor, transposed, gate's and up's columns in turn */
    HF_KV_BY_LAYER = 128, /* layers with a recurrent state have no KV heads in GGUF: recurrent.c */
    HF_DELTA = 256,       /* gated delta nets, GGUF has a list of them */
    HF_MAMBA = 512,       /* Mamba-2 */
    HF_SINGLE = 1024,     /* a layer is one of Mamba-2, attention and a feed-forward network */
    HF_LATENT = 2048,     /* latent attention: latent.c */
    HF_SIGMOID = 4096 /* experts' scores are sigmoids, the weights of the chosen add up to 1, where nothing is said */
};

struct hf {
    struct gguf_make *m;
    const char *folder;
    json_t *config; /* of the text model */
    const struct hf_arch *arch;
    uint32_t n_layer;
    uint32_t n_nextn;                 /* layers after these that predict further ahead, at most 64: they are left out */
    uint64_t nextn_seen, nextn_joins; /* which of them were seen, and have what makes one: a bit each */
    uint32_t n_rot;                   /* dimensions of a head that RoPE turns */
    bool tied, untied;                /* config.json says so; neither where it says nothing */
    bool has_head;                    /* there was an lm_head that is not tied */
    uint32_t type;                    /* type of the last matrix seen */
    struct hf_mxfp4 *mxfp4;           /* mxfp4.c: the matrices of experts seen so far */
    struct hearth_err *e;
};

enum { HF_PATTERNS_MAX = 8 };
struct hf_words { /* the normalizer's and the pre-tokenizer's settings: how text is split before merging */
    struct gguf_str v[HF_PATTERNS_MAX];
    size_t n;
    bool byte_level;
    const char *prefix; /* when a space is prepended: hearth.tokenizer.prefix */
    uint32_t spaces;    /* rules for spaces: hearth.tokenizer.spaces */
    bool form;          /* a Unicode form, a table or BERT's normaliser was there */
    bool low;           /* a space becomes U+2581 */
    bool bert;          /* BERT's normaliser was there */
};

/* Parses FOLDER/NAME of at most `max` bytes. 1 where there is no such file. *out is a JSON object. */
int hf_json(const struct hf *h, const char *name, size_t max, json_t **out);
/* Reads FOLDER/NAME as text, malloc'd and NUL-terminated. 1 where there is no such file. */
int hf_text(const struct hf *h, const char *name, size_t max, char **out, size_t *n);

/* config.c: finds h->arch and writes the architecture's keys. */
int hf_config(struct hf *h);
uint32_t hf_head_dim(const struct hf *h);

/* config-types.c: refuses what is there, not null, and of another type than it is read by. */
int hf_types(const struct hf *h);

/* config-rope.c: returns the part of config.json that describes RoPE for layers of full attention; NULL where there is
 * none. And writes what it says; of one number, where it is there. */
json_t *hf_rope(const struct hf *h);
int hf_put_rope(struct hf *h);
int hf_put_rope_number(struct hf *h, const json_t *r, const char *hf, const char *gguf);

/* config-layers.c: writes which layers have a sliding window, and which no RoPE. */
int hf_put_window(struct hf *h);
int hf_put_no_rope(struct hf *h);

/* gemma4.c: writes what it says by layer, and takes that out of the config. */
int hf_gemma4(struct hf *h);
/* latent.c: the same of latent attention; and its keys' and values' matrix, which becomes one of each. 1 where `s` is
 * not that. */
int hf_latent(struct hf *h);
int hf_latent_tensor(const struct hf *h, unsigned layer, const char *s, const struct gguf_tensor *t);
/* The factors by which frequencies are divided, where only the first `share` of them turn; they belong to h->m. */
int hf_rope_proportional(struct hf *h, double share, float **out, size_t *n);

/* tensors.c: maps the safetensors and writes the tensors. */
int hf_tensors(struct hf *h);

/* normalizer.c: reads one normaliser of a tokenizer.json. */
int hf_normalizer(struct hf *h, const json_t *p, struct hf_words *w);
/* pre-tokenizer.c: the same of a pre-tokenizer. */
int hf_pre_tokenizer(const struct hf *h, struct hf_words *w, const json_t *p);
/* For the readers of a tokenizer.json: errors that name the part, the text of a key, whether it is `value`. */
int hf_refuse(const struct hf *h, const char *part, const char *type);
int hf_damaged(const struct hf *h, const char *what);
const char *hf_text_of(const json_t *o, const char *key);
bool hf_is(const json_t *o, const char *key, const char *value);

/* experts.c: the GGUF name, within the layer, of an expert's tensor `s` of a layer; false where it is none. */
bool hf_expert_name(const char *s, char *out, size_t size);
/* Adds a copy of a tensor's numbers in another form: for each of n_expert n_out rows of n_in, whose element (o, k) is
 * number first + o * by_out + k * by_in of the `size` that each has; or, of vectors, one row each. */
struct hf_form {
    uint64_t n_expert, size, n_in, n_out, first, by_out, by_in;
};
int hf_add_copy(const struct hf *h, const struct gguf_tensor *from, const struct hf_form *f, const char *name,
                bool vectors);
/* Adds the tensors that a tensor of all experts becomes. 1 where it is none. */
int hf_fused_experts(const struct hf *h, unsigned layer, const char *s, const struct gguf_tensor *t);

/* recurrent.c: the keys of models with recurrent states; and the tensors of their layers that GGUF has in another form.
 * 1 where it is none. */
int hf_recurrent_keys(struct hf *h);
int hf_recurrent_tensor(const struct hf *h, unsigned layer, const char *s, const struct gguf_tensor *t);

/* config.c */
const json_t *hf_get(const struct hf *h, const char *key); /* NULL where it is null, too */
uint32_t hf_whole(const struct hf *h, const char *key);    /* 0: it is no number from 1 to 2^24 */
int hf_wrong(const struct hf *h, const char *key, const char *what);
const char *hf_key(const struct hf *h, const char *name, char out[128]); /* with the architecture's name */
/* Write the value v of the key `hf` under the architecture's key `gguf`. */
int hf_put_u32(struct hf *h, const char *hf, const char *gguf, const json_t *v);
int hf_put_f32(struct hf *h, const char *hf, const char *gguf, const json_t *v);

/* mxfp4.c: takes a tensor of blocks or of scales; 1 where it is none. The end checks that both were there, where
 * nothing failed before (ret), and frees what was kept meanwhile. */
int hf_mxfp4_tensor(struct hf *h, unsigned layer, const char *s, const struct gguf_tensor *t);
int hf_mxfp4_end(struct hf *h, int ret);

/* templates.c: the chat templates; cfg is tokenizer_config.json, or NULL. */
int hf_templates(struct hf *h, const json_t *cfg);

/* tokenizer.c: tokenizer.json, tokenizer_config.json, generation_config.json, and what follows of them. */
int hf_tokenizer(struct hf *h);

#endif
