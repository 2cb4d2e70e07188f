/* odd-model.h - a tiny synthetic model, with anything about it changed. */
#ifndef HEARTH_TESTS_ODD_MODEL_H
#define HEARTH_TESTS_ODD_MODEL_H

#include "daemon/model/model.h"
#include "tests/unit/model/gguf-build.h"

enum { D = 32, HEADS = 4, KV = 2, HEAD = 8, FF = 64, VOCAB = 16, LAYERS = 2 };

/* What a test changes. Strings are keys or tensors to leave out, or to give another value. */
struct odd {
    const char *arch, *no_key, *no_tensor;
    const char *set_key;
    uint32_t set_u32;
    const char *list_key; /* has an entry a layer */
    int32_t list[4];
    uint32_t n_list;
    uint32_t layers;     /* 0: LAYERS */
    const char *reshape; /* this tensor gets one row more */
    const char *retype;  /* this tensor gets ggml type `type` */
    uint32_t type;
    const char *scaling; /* llama.rope.scaling.type */
    float eps;
    bool biases, experts, vocab_short, not_causal;
    uint32_t mixture;      /* experts in place of the FFN, a tensor each; 0: none */
    const char *nan;       /* this tensor's last number is none */
    const char *more;      /* a vector of 8 that no model has */
    const char *twice;     /* this tensor's data are the first tensor's */
    const char *float_key; /* whose value attn_factor is; NULL: rope.scaling.attn_factor */
    float attn_factor;
    float freq;         /* rope_freqs.weight, all entries; 0: none */
    const char *scaled; /* a tensor of one number, or one for each expert of the mixture: `scale` */
    float scale;
};

struct loaded {
    struct gguf *g;
    struct device *dev;
    const struct backend *be;
    struct model *m;
};

/* The file; b.p is the caller's to free. */
struct build model_file(const struct odd *odd);

/* Opens it on a CPU of one thread and loads it: model_load()'s result. unload() in any case. */
int load(struct loaded *l, const struct odd *odd, model_progress *cb, void *arg, struct hearth_err *e);
void unload(struct loaded *l);

/* The logits after three tokens. */
void logits_of(struct loaded *l, float out[VOCAB]);

#endif
