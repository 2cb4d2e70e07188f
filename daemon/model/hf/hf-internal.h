/* hf-internal.h - the internals of hf_open(), shared by the files of this directory. */
#ifndef HEARTH_HF_INTERNAL_H
#define HEARTH_HF_INTERNAL_H

#include <jansson.h>

#include "daemon/model/gguf-make.h"
#include "daemon/model/hf/hf.h"

/* One supported model_type of config.json. */
struct hf_arch {
    const char *model_type;
    const char *gguf;  /* general.architecture */
    const char *act;   /* the only hidden_act that the architecture implements */
    unsigned rules;    /* HF_* below */
    float partial_rot; /* the share of a head that RoPE rotates, where config.json has no key for it */
};
enum {
    HF_PAIRS = 1,        /* q and k pair halves of a head; GGUF has them reordered for interleaved RoPE */
    HF_PLUS_ONE = 2,     /* norm weights are stored minus one */
    HF_SANDWICH = 4,     /* post_attention_layernorm follows attention; the FFN has a norm before and one after */
    HF_GLM = 8,          /* HF_SANDWICH with GLM's tensor names */
    HF_POST = 16,        /* post_attention_layernorm keeps that name in GGUF, although it is the FFN's norm */
    HF_TRANSPOSED = 32,  /* one tensor has all experts, transposed, with the columns of gate and up interleaved */
    HF_KV_BY_LAYER = 64, /* head_count_kv is an array in GGUF, 0 for recurrent layers: recurrent.c */
    HF_DELTA = 128,      /* gated delta nets, which GGUF lists */
    HF_MAMBA = 256,      /* Mamba-2 */
    HF_SINGLE = 512,     /* a layer is only one of Mamba-2, attention and a feed-forward network */
    HF_LATENT = 1024,    /* latent attention: latent.c */
    HF_SIGMOID = 2048,   /* by default, experts' scores are sigmoids and the weights of the chosen add up to 1 */
    HF_EITHER_WAY = 4096 /* one tensor has all experts, transposed in the published folders, but not in all others */
};

struct hf {
    struct gguf_make *m;
    const char *folder;
    json_t *config; /* the part for the text model */
    const struct hf_arch *arch;
    uint32_t n_layer;
    uint32_t n_nextn;                 /* trailing layers that predict further ahead, at most 64: they are left out */
    uint64_t nextn_seen, nextn_joins; /* bit masks of these: seen; seen with eh_proj */
    uint32_t n_rot;                   /* dimensions of a head that RoPE rotates */
    bool untied;                      /* config.json says that the output has a matrix of its own */
    bool has_head;                    /* an lm_head was found */
    uint32_t type;                    /* type of the last matrix seen */
    struct hf_mxfp4 *mxfp4;           /* mxfp4.c: the matrices of experts seen so far */
    struct hearth_err *e;
};

enum { HF_PATTERNS_MAX = 8 };
struct hf_words { /* the normaliser's and the pre-tokenizer's settings: how text is split before merging */
    struct gguf_str v[HF_PATTERNS_MAX];
    int32_t behavior[HF_PATTERNS_MAX]; /* hearth.tokenizer.behaviors */
    size_t n;
    bool byte_level;
    const char *prefix; /* when a space is prepended: hearth.tokenizer.prefix */
    uint32_t spaces;    /* bits of the rules for spaces: hearth.tokenizer.spaces */
    bool low_runs;      /* a run of spaces becomes U+2581, which no later rule takes for a space */
    bool form;          /* there was a Unicode form, a replacement table or BERT's normaliser */
    bool low;           /* spaces become U+2581 */
    bool normal_low;    /* ... by the normaliser: hearth.tokenizer.normal_spaces */
    bool bert;          /* there was BERT's normaliser */
};

/* Parses FOLDER/NAME of at most `max` bytes. Returns 1 where there is no such file. *out is a JSON object. */
int hf_json(const struct hf *h, const char *name, size_t max, json_t **out);
/* Reads FOLDER/NAME as text, malloc'd and NUL-terminated. Returns 1 where there is no such file. */
int hf_text(const struct hf *h, const char *name, size_t max, char **out, size_t *n);

/* config.c: finds h->arch and writes the architecture's keys. */
int hf_config(struct hf *h);
uint32_t hf_head_dim(const struct hf *h);

/* config-defaults.c: adds the values of the keys that config.json leaves out. */
int hf_add_defaults(struct hf *h);

/* config-types.c: refuses values, other than null, whose type differs from the one that they are read as. */
int hf_types(const struct hf *h);

/* config-rope.c. hf_rope returns the part of config.json that describes RoPE for full-attention layers; NULL where
 * there is none. hf_put_rope writes the keys for it, hf_put_rope_number one number of it, if it is there. */
json_t *hf_rope(const struct hf *h);
int hf_put_rope(struct hf *h);
int hf_put_rope_number(struct hf *h, const json_t *r, const char *hf, const char *gguf);
/* The context length before it was extended by a scaling of RoPE; NULL where config.json has no context length. */
const json_t *hf_rope_original(const struct hf *h);

/* config-layers.c: write which layers have a sliding window, and which have no RoPE. */
int hf_put_window(struct hf *h);
int hf_put_no_rope(struct hf *h);

/* gemma4.c: writes the per-layer settings and removes them from the config. */
int hf_gemma4(struct hf *h);
/* Computes the divisors of the frequencies for RoPE that rotates only the first `share` of them, and these slower by
 * `factor`; h->m owns the array. */
int hf_rope_proportional(struct hf *h, double share, double factor, float **out, size_t *n);
/* latent.c. hf_latent does for latent attention what hf_gemma4 does for Gemma 4. hf_latent_tensor splits the common
 * matrix of keys and values into one for each; it returns 1 where `s` is another tensor. */
int hf_latent(struct hf *h);
int hf_latent_tensor(const struct hf *h, unsigned layer, const char *s, const struct gguf_tensor *t);

/* tensors.c: maps the safetensors and writes the tensors. */
int hf_tensors(struct hf *h);

/* normalizer.c: translates one normaliser of a tokenizer.json. */
int hf_normalizer(struct hf *h, const json_t *p, struct hf_words *w);
/* pre-tokenizer.c: translates a pre-tokenizer. */
int hf_pre_tokenizer(const struct hf *h, struct hf_words *w, const json_t *p);
/* Helpers for the readers of a tokenizer.json: errors that name the part, the text of a key, whether it equals
 * `value`. */
int hf_refuse(const struct hf *h, const char *part, const char *type);
int hf_damaged(const struct hf *h, const char *what);
const char *hf_text_of(const json_t *o, const char *key);
bool hf_is(const json_t *o, const char *key, const char *value);

/* experts.c: translates an expert's tensor name `s`, which is relative to the layer, to GGUF's; false where `s` is no
 * expert's tensor. */
bool hf_expert_name(const char *s, char *out, size_t size);
/* Adds a copy of a tensor in another form: for each of n_expert, n_out rows of n_in elements. Element (o, k) is element
 * first + o * by_out + k * by_in of the `size` elements that each expert has. With `vectors`, each expert has one row,
 * which is copied at once; other data is written by gguf_fill(). */
struct hf_form {
    uint64_t n_expert, size, n_in, n_out, first, by_out, by_in;
};
int hf_add_copy(const struct hf *h, const struct gguf_tensor *from, const struct hf_form *f, const char *name,
                bool vectors);
/* Adds the tensors into which a tensor of all experts is split. Returns 1 where `s` is no such tensor. */
int hf_fused_experts(const struct hf *h, unsigned layer, const char *s, const struct gguf_tensor *t);

/* recurrent.c: the keys of models with recurrent states, and the tensors of their layers that GGUF stores in another
 * form. hf_recurrent_tensor returns 1 where `s` is no such tensor. */
int hf_recurrent_keys(struct hf *h);
int hf_recurrent_tensor(const struct hf *h, unsigned layer, const char *s, const struct gguf_tensor *t);

/* config.c */
const json_t *hf_get(const struct hf *h, const char *key); /* NULL where the value is null, too */
uint32_t hf_whole(const struct hf *h, const char *key);    /* 0 where it is no integer from 1 to 2^24 - 1 */
int hf_wrong(const struct hf *h, const char *key, const char *what);
const char *hf_key(const struct hf *h, const char *name, char out[128]); /* prefixed with the architecture's name */
/* Write the value v of the config.json key `hf` under the architecture's key `gguf`. */
int hf_put_u32(struct hf *h, const char *hf, const char *gguf, const json_t *v);
int hf_put_f32(struct hf *h, const char *hf, const char *gguf, const json_t *v);

/* mxfp4.c: takes a tensor of blocks or of scales; returns 1 where `s` is neither. hf_mxfp4_end checks, unless `ret` is
 * an earlier error, that all blocks have their scales. */
int hf_mxfp4_tensor(struct hf *h, unsigned layer, const char *s, const struct gguf_tensor *t);
int hf_mxfp4_end(const struct hf *h, int ret);

/* templates.c: the chat templates; cfg is tokenizer_config.json, or NULL. */
int hf_templates(struct hf *h, const json_t *cfg);

/* tokenizer.c: tokenizer.json, tokenizer_config.json, generation_config.json, and the keys that follow from them. */
int hf_tokenizer(struct hf *h);

#endif
