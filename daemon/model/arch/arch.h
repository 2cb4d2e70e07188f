/*
 * arch.h - what an architecture is made of. To add one: x.c, which defines `const struct arch arch_x`, and its line in
 * local.mk.
 *
 * model.c reads the hyperparameters that all have in common and binds the embedding, the final norm and the head; the
 * architecture says how the rest differs. A bind function runs once per layer and names the tensors; their shapes are
 * checked, before anything goes to the device, against what it says they are. The model keeps what was bound and frees
 * it, wherever in the layer it lies.
 */
#ifndef HEARTH_ARCH_H
#define HEARTH_ARCH_H

#include "kernels/backend.h"

struct hparams;
struct model;

/* A layer of attention and a feed-forward network. An architecture whose layers have more extends it: a struct of its
 * own that begins with this one, and its size in arch.layer_bytes. */
struct layer {
    uint32_t index;
    struct norm attn_norm, ffn_norm; /* [d_model] */
    struct norm q_norm, k_norm;      /* [d_head]; w is NULL where there is none */
    struct weight qkv;               /* [(n_head + 2 n_kv) d_head, d_model] */
    const float *qkv_bias;           /* [(n_head + 2 n_kv) d_head] or NULL, as all biases */
    struct weight attn_out;          /* [d_model, n_head d_head] */
    const float *attn_out_bias;      /* [d_model] */
    struct weight gate_up;           /* [2 d_ff, d_model] */
    const float *gate_up_bias;       /* [2 d_ff] */
    struct weight down;              /* [d_model, d_ff] */
    const float *down_bias;          /* [d_model] */
};

struct binder; /* model.c: the model being loaded, its file, the layer at hand */

struct arch {
    const char *name;    /* general.architecture */
    enum rope_kind rope; /* which dimensions of a head turn together, in GGUF files of the architecture */
    size_t layer_bytes;  /* of its layers; 0: they are struct layer */
    int (*bind_layer)(struct binder *b, struct layer *l);
    /* Adds the ops of the forward pass to the model's program, once, when all of the model is bound. The ops point into
     * the model, whose layers stay where they are. */
    void (*build)(const struct model *m, struct program *p);
};

/* The architecture of that name, or NULL. */
const struct arch *arch_find(const char *name, size_t n);

/* --- for bind functions: single tensors, model.c --------------------------------------------------------- */

/* `name` is the tensor's within the layer: "attn_q.weight" is "blk.3.attn_q.weight" in layer 3. */
bool bind_has(const struct binder *b, const char *name);
/* HEARTH_EBADMODEL, with its name, where it is missing. */
int bind_required(const struct binder *b, const char *name);
struct bind_part {
    const char *name;
    uint32_t n_out;
};
/* `parts` over one input become the parts of one matrix. */
int bind_matrix(struct binder *b, struct weight *w, enum weight_role role, uint32_t n_in, const struct bind_part *parts,
                uint32_t n_part);
/* One tensor whose rows are the parts, one after the other. */
int bind_fused(struct binder *b, struct weight *w, enum weight_role role, uint32_t n_in, const char *name,
               const uint32_t *n_out, uint32_t n_part);
/* `parts` one after the other. */
int bind_vector(struct binder *b, const float **out, const struct bind_part *parts, uint32_t n_part);
/* "attn_norm" is "attn_norm.weight". */
int bind_norm(struct binder *b, struct norm *norm, const char *name, uint32_t n);
const struct hparams *bind_hparams(const struct binder *b);
const struct layer *model_layer(const struct model *m, uint32_t i);

/* --- for bind functions: what most layers have, parts.c -------------------------------------------------- */

/* q, k, v as three tensors or as one, the attention's output, and the biases of either where they are there. */
int bind_attention(struct binder *b, struct layer *l);
/* The norms of each head's q and k. */
int bind_head_norms(struct binder *b, struct layer *l);
/* Gate and up as two tensors or as one, down, and their biases where they are there. */
int bind_ffn(struct binder *b, struct layer *l);

/* --- for build functions: what most models are made of, parts.c ------------------------------------------ */

void build_embed(const struct model *m, struct program *p);
void build_attention(const struct model *m, struct program *p, const struct layer *l);
void build_ffn(const struct model *m, struct program *p, const struct layer *l);
void build_head(const struct model *m, struct program *p);

/* llama.c: its relatives are built as it is. */
int llama_bind_layer(struct binder *b, struct layer *l);
void llama_build(const struct model *m, struct program *p);

#endif
