/*
 * arch.h - what an architecture is made of. To add one: arch-x.c with its two functions, and a row in arch.c.
 *
 * model.c reads the hyperparameters that all have in common and binds the embedding, the final norm and the head; the
 * row says how the rest differs. A bind function runs once per layer and names the tensors; their shapes are checked,
 * before anything goes to the device, against what it says they are.
 */
#ifndef HEARTH_ARCH_H
#define HEARTH_ARCH_H

#include "kernels/backend.h"

struct hparams;
struct model;

struct layer {
    struct norm attn_norm, ffn_norm; /* [d_model] */
    struct weight qkv;               /* [(n_head + 2 n_kv) d_head, d_model] */
    const float *qkv_bias;           /* [(n_head + 2 n_kv) d_head] or NULL */
    struct weight attn_out;          /* [d_model, n_head d_head] */
    struct weight gate_up;           /* [2 d_ff, d_model] */
    struct weight down;              /* [d_model, d_ff] */
};

struct binder; /* model.c: the model being loaded, its file, the layer at hand */

struct arch {
    const char *name; /* general.architecture */
    enum rope_kind rope;
    int (*bind_layer)(struct binder *b, struct layer *l);
    /* Adds the ops of the forward pass to the model's program, once, when all of the model is bound. The ops point into
     * the model, whose layers stay where they are. */
    void (*build)(const struct model *m, struct program *p);
};

/* The row of that name, or NULL. */
const struct arch *arch_find(const char *name, size_t n);

/* For bind functions. `name` is the tensor's within the layer: "attn_q.weight" is "blk.3.attn_q.weight" in layer 3. */
bool bind_has(const struct binder *b, const char *name);
struct bind_part {
    const char *name;
    uint32_t n_out;
};
int bind_matrix(struct binder *b, struct weight *w, enum weight_role role, uint32_t n_in, const struct bind_part *parts,
                uint32_t n_part);
int bind_vector(struct binder *b, const float **out, const struct bind_part *parts, uint32_t n_part);
int bind_rms_norm(struct binder *b, struct norm *norm, const char *name, uint32_t n);
const struct hparams *bind_hparams(const struct binder *b);

/* llama.c; its relatives use them too. Biases of q, k and v are bound where the first is there. */
int llama_bind_layer(struct binder *b, struct layer *l);
int llama_bind_biases(struct binder *b, struct layer *l);
void llama_build(const struct model *m, struct program *p);
/* qwen2.c */
int qwen2_bind_layer(struct binder *b, struct layer *l);

#endif
