/* odd-model.h - a tiny synthetic model of which a test can change anything. */
#ifndef HEARTH_TESTS_ODD_MODEL_H
#define HEARTH_TESTS_ODD_MODEL_H

#include "daemon/model/model.h"
#include "tests/unit/model/gguf-build.h"

enum { D = 32, HEADS = 4, KV = 2, HEAD = 8, FF = 64, VOCAB = 16, LAYERS = 2 };

/* What a test changes. Strings name keys or tensors that are left out or get another value. */
struct odd {
    const char *arch, *no_key, *no_tensor;
    const char *set_key;
    uint32_t set_u32;
    const char *list_key; /* its array has an entry for each layer */
    int32_t list[4];
    uint32_t n_list;
    uint32_t layers;     /* 0: LAYERS */
    const char *reshape; /* this tensor gets an additional row */
    const char *deep;    /* this tensor, or with "" each, gets the third dimension `third`, and a fourth of 1 */
    uint32_t third;
    const char *retype; /* this tensor gets ggml type `type` */
    uint32_t type;
    const char *scaling; /* llama.rope.scaling.type */
    float eps;
    bool biases, experts, vocab_short, not_causal;
    uint32_t mixture;      /* experts that replace the FFN, each with tensors of its own; 0: none */
    const char *nan;       /* the last number of this tensor is NaN */
    const char *more;      /* an additional vector of 8 elements that no model has */
    const char *twice;     /* this tensor has the data of the first tensor */
    const char *float_key; /* the key whose value is attn_factor; NULL: rope.scaling.attn_factor */
    float attn_factor;
    float freq;         /* the value of all entries of rope_freqs.weight; 0: no such tensor */
    const char *scaled; /* a tensor of one number, or of one for each expert, with the value `scale` */
    float scale;
};

struct loaded {
    struct gguf *g;
    struct device *dev;
    const struct backend *be;
    struct model *m;
};

/* Returns the file; the caller frees b.p. */
struct build model_file(const struct odd *odd);

/* Opens and loads the file on a CPU device with one thread, and returns model_load()'s result. Call unload() in any
 * case. */
int load(struct loaded *l, const struct odd *odd, model_progress *cb, void *arg, struct hearth_err *e);
void unload(struct loaded *l);

/* Computes the logits after three tokens. */
void logits_of(struct loaded *l, float out[VOCAB]);

#endif
