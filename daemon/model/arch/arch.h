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
struct hparams_reader;
struct model;

/* A layer of attention and a feed-forward network. An architecture whose layers have more extends it: a struct of its
 * own that begins with this one, and its size in arch.layer_bytes. */
struct layer {
    uint32_t number;                           /* from 0 */
    uint32_t group, index;                     /* the layer group that its KV belongs to, and its place in it */
    bool shares_kv;                            /* it has no K and V of its own, but reads another layer's */
    uint32_t window;                           /* tokens visible, the own one included; 0: all */
    uint32_t n_head, n_kv, d_head, d_ff;       /* this layer's */
    bool gated;                                /* attention is: attn_q has each head's gate behind its query */
    const struct rope *rope;                   /* NULL: queries and keys do not turn */
    struct norm attn_norm, ffn_norm;           /* [d_model]; before; of kind NORM_NONE where there is none */
    struct norm attn_post_norm, ffn_post_norm; /* [d_model]; after; w is NULL where there is none */
    struct norm q_norm, k_norm, v_norm;        /* [d_head], or as whole_norms says; w is NULL where there is none */
    bool whole_norms;                          /* the former two are over all heads: [n_head d_head], [n_kv d_head] */
    struct weight qkv;                         /* [(n_head + 2 n_kv) d_head, d_model], or less: op_qkv.w */
    const float *qkv_bias;                     /* [(n_head + 2 n_kv) d_head] or NULL, as all biases */
    struct weight attn_out;                    /* [d_model, n_head d_head] */
    const float *attn_out_bias;                /* [d_model] */
    const float *sinks;                        /* [n_head] or NULL: op_attend.sinks */
    struct weight gate_up;                     /* [2 d_ff, d_model], or [d_ff, d_model] of an ungated FFN */
    const float *gate_up_bias;                 /* [2 d_ff] or [d_ff] */
    struct weight down;                        /* [d_model, d_ff] */
    const float *down_bias;                    /* [d_model] */
    /* Of a mixture of experts; gate_up and down are then those of the expert that all go to, if there is one. */
    struct weight router;                   /* [n_expert, d_model]; n_out is 0 where the layer is none */
    const float *router_bias, *select_bias; /* [n_expert] or NULL */
    struct weight experts_up, experts_down; /* as gate_up and down, n_expert times, d_expert wide */
    struct weight latent_down, latent_up;   /* [d_latent, d_model] and back; n_out is 0: there is no such space */
    const float *experts_up_bias, *experts_down_bias; /* [2, n_expert, d_expert], [n_expert, d_model] or NULL */
    const float *shared_gate;                         /* [d_model] or NULL */
};

/* A layer that may have a recurrent state in place of attention. What it projects from its state is layer.attn_out. */
struct recurrent_layer {
    struct layer layer;
    bool recurs;
    bool paired;             /* op_delta.paired */
    struct weight in, gates; /* op_project's, one after the other; the second may be empty */
    struct state_conv conv;
    const float *decay, *dt_bias, *skip; /* [n_head] or NULL */
    struct norm norm;
};

enum state_kind { STATE_NONE, STATE_CONV, STATE_DELTA, STATE_MAMBA2 };

struct binder; /* model-internal.h: the model being loaded, its file, the layer at hand */

struct arch {
    const char *name;    /* general.architecture */
    enum rope_kind rope; /* which dimensions of a head turn together, in GGUF files of the architecture */
    enum norm_kind norm; /* of d_model; which of the two epsilons a file must have */
    uint32_t period;     /* of every so many layers the last has full attention, the others a sliding window, where the
                            file has a window and does not say which layers slide; 0: all of them */
    uint32_t window;     /* of the layers that slide, where the file does not say; 0: then none does */
    uint32_t still;      /* of every so many layers the last does not turn; 0: all do. A folder may list others. */
    bool exact_yarn;     /* YaRN's ramp ends between dimensions, where the file does not say */
    bool tenth_mscale;   /* files have a tenth of YaRN's mscale_all_dim, and leave out mscale, which is the same */
    size_t layer_bytes;  /* of its layers; 0: they are struct layer */
    size_t own_bytes;    /* of what it keeps beside them: model.own; 0: nothing */
    const char *const *reads; /* keys that others are refused for, up to a NULL, which its hparams() reads; or NULL */
    const char *out_norm;     /* the name of the last norm; NULL: "output_norm" */
    enum state_kind state;    /* layers may have a recurrent state, of this kind */
    bool tiled;               /* value heads of a delta net lie round their key heads: op_delta.tiled */
    bool single;              /* a layer is one of three: attention, a recurrent state, a feed-forward network */
    uint32_t interval; /* ... and of every so many layers the last one attends, where the file does not say; 0: it
                          says so by the number of KV heads, 0 of those that recur */
    bool skips_ahead;  /* the last layers of its files, nextn_predict_layers, predict further ahead: left out */
    struct {
        bool may;             /* layers may be mixtures of experts; and where the file does not say so itself: */
        enum route_kind kind; /* what scores are, */
        bool normalise;       /* whether the weights of the chosen add up to 1 */
        bool ungated;         /* experts have no gate, as GLU_RELU2 has none */
        bool share_ff;        /* how wide an expert is: those of a token have feed_forward_length together */
        bool scaled_weights;  /* ffn_down_exps.scale multiplies the router's weights: the architecture binds it */
    } experts;
    /* Changes what the keys that all have in common came to, by keys of its own and what it computes otherwise. May be
     * NULL. */
    void (*hparams)(struct hparams *hp, struct hparams_reader *r);
    int (*bind_layer)(struct binder *b, struct layer *l);
    /* Binds tensors of no layer beyond those that all have. May be NULL. */
    int (*bind_own)(struct binder *b, void *own);
    /* Adds the ops of the forward pass to the model's program, once, when all of the model is bound. The ops point into
     * the model, whose layers stay where they are. */
    void (*build)(const struct model *m, struct program *p);
};

/* The architecture of that name, or NULL. */
const struct arch *arch_find(const char *name, size_t n);

/* --- for hparams functions: keys of the file, hparams.c -------------------------------------------------- */

/* `name` is the key's after the architecture's: "logit_scale". The first error sticks; what is read then is 0. */
bool hparams_has(const struct hparams_reader *r, const char *name);
enum { REQUIRED = -1 };
/* An integer within [min, max]; `absent` is its value where the key is absent, or REQUIRED. */
uint32_t hparams_number(struct hparams_reader *r, const char *name, uint32_t min, uint32_t max, int64_t absent);
/* The first error. */
void hparams_refuse(struct hparams_reader *r, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* From `min` to `max`; `absent` where the key is not there. */
float hparams_real(struct hparams_reader *r, const char *name, float min, float max, float absent);
bool hparams_flag(struct hparams_reader *r, const char *name, bool absent);

/* --- for bind functions: single tensors, bind.c ---------------------------------------------------------- */

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
/* One tensor whose rows are those of n_group groups, one after the other, of slices each. Of all groups the rows of a
 * slice become neighbours; the last slice is a part of its own. */
int bind_regrouped(struct binder *b, struct weight *w, enum weight_role role, uint32_t n_in, const char *name,
                   uint32_t n_group, const uint32_t *slice, uint32_t n_slice);
/* `parts` one after the other. */
int bind_vector(struct binder *b, const float **out, const struct bind_part *parts, uint32_t n_part);
/* A vector, each of whose numbers is multiplied by `factor`. */
int bind_vector_times(struct binder *b, const float **out, const char *name, uint32_t n, float factor);
/* A tensor of one number, which is not 0. */
int bind_number(struct binder *b, const char *name, float *out);
/* A tensor, where it is there, that nothing is computed with. */
void bind_ignore(struct binder *b, const char *name);
/* The same of tensors of n_row rows: each part is [n_row, n_out]. */
int bind_rows(struct binder *b, const float **out, const struct bind_part *parts, uint32_t n_part, uint32_t n_row);
/* bind-experts.c: a matrix for each of n_expert experts. Names are without what tells that: "ffn_gate" is
 * "ffn_gate_exps.weight", or "ffn_gate.0.weight" and so on; the same with two parts of n_out rows in one tensor, one
 * after the other for each expert. "ffn_gate_exps.scale", where it is there, has a factor for each expert. */
int bind_experts(struct binder *b, struct weight *w, enum weight_role role, uint32_t n_in, uint32_t n_expert,
                 const struct bind_part *parts, uint32_t n_part);
int bind_experts_fused(struct binder *b, struct weight *w, enum weight_role role, uint32_t n_in, uint32_t n_expert,
                       const char *stem, uint32_t n_out);
/* A matrix for each head, as the experts of one tensor. */
int bind_per_head(struct binder *b, struct weight *w, const char *name, uint32_t n_in, uint32_t n_out, uint32_t n_head);
/* The layer's router, and the biases of its logits and of the choice where they are there. All must be finite. */
int bind_router(struct binder *b, struct weight *w, const float **bias, const float **select_bias);
/* "attn_norm" is "attn_norm.weight", and "attn_norm.bias" where it is there and the norm is a LayerNorm. The first is
 * of the architecture's kind. */
int bind_norm(struct binder *b, struct norm *norm, const char *name, uint32_t n);
int bind_rms_norm(struct binder *b, struct norm *norm, const char *name, uint32_t n);
/* Without weights of its own: these are 1. */
int bind_plain_norm(struct binder *b, struct norm *norm, uint32_t n);
const struct hparams *bind_hparams(const struct binder *b);
const struct layer *model_layer(const struct model *m, uint32_t i);

/* --- for bind functions: what most layers have, parts.c -------------------------------------------------- */

/* q, k, v as three tensors or as one, the attention's output, and the biases of either where they are there. */
int bind_attention(struct binder *b, struct layer *l);
/* The norms of each head's q and k. */
int bind_head_norms(struct binder *b, struct layer *l);
/* Gate, up and down, and their biases where they are there, or a mixture of experts where the layer has one; without
 * experts the same, whatever else the layer has; with gate's and up's rows in one tensor, ffn_up;
 * the same without a gate. */
int bind_ffn(struct binder *b, struct layer *l);
int bind_ffn_dense(struct binder *b, struct layer *l);
int bind_ffn_fused(struct binder *b, struct layer *l);
int bind_ffn_ungated(struct binder *b, struct layer *l);
/* The norms after attention and after the FFN. */
int bind_post_norms(struct binder *b, struct layer *l);

/* --- for build functions: what most models are made of, parts.c ------------------------------------------ */

void build_embed(const struct model *m, struct program *p);
/* Projections and attention; what adds the result to the residual stream. */
void build_attend(const struct model *m, struct program *p, const struct layer *l);
void build_attention_out(const struct model *m, struct program *p, const struct layer *l);
void build_ffn_up(const struct model *m, struct program *p, const struct layer *l, enum glu_kind glu);
void build_ffn_down(const struct model *m, struct program *p, const struct layer *l);
void build_head(const struct model *m, struct program *p);
/* The feed-forward network, or the mixture of experts that the layer has. */
void build_ffn(const struct model *m, struct program *p, const struct layer *l, enum glu_kind glu);
/* All of a model whose layers are attention, then an FFN, each added to the residual stream. */
void build_layers(const struct model *m, struct program *p, enum glu_kind glu);

/* experts.c: for parts.c. */
bool bind_is_mixture(const struct binder *b, const struct layer *l);
/* Its router, its experts, and the one that all go to where there is one. */
int bind_mixture(struct binder *b, struct layer *l);
void build_mixture(const struct model *m, struct program *p, const struct layer *l, enum glu_kind glu);

/* recurrent.c: a convolution, whose tensor is `name`.weight of n_channel rows, and its bias where that is there; what
 * comes of the state; the op that adds the matrices' products up in ACT_MIX. */
int bind_conv(struct binder *b, struct state_conv *conv, const char *name, uint32_t n_channel);
int bind_state_out(struct binder *b, struct layer *l, const char *name, uint32_t n_in);
void build_project(struct program *p, const struct recurrent_layer *l);

/* llama.c: its relatives are bound and built as it is. */
int llama_bind_layer(struct binder *b, struct layer *l);
void llama_build(const struct model *m, struct program *p);
/* gemma2.c, starcoder2.c, qwen2.c, qwen3.c: likewise. */
int qwen2_bind_layer(struct binder *b, struct layer *l);
int qwen3_bind_layer(struct binder *b, struct layer *l);
int gemma2_bind_layer(struct binder *b, struct layer *l);
void gemma2_build(const struct model *m, struct program *p);
int starcoder2_bind_layer(struct binder *b, struct layer *l);
/* Of layers with a recurrent state: lfm2.c, qwen35.c, mamba2.c, nemotron_h.c; and granite.c's scales. */
int lfm2_bind_layer(struct binder *b, struct layer *l);
void lfm2_build(const struct model *m, struct program *p);
extern const char *const qwen35_reads[];
int qwen35_bind_layer(struct binder *b, struct layer *l);
void qwen35_build(const struct model *m, struct program *p);
int mamba2_bind(struct binder *b, struct recurrent_layer *r);
void mamba2_build_mixer(const struct model *m, struct program *p, const struct recurrent_layer *r);
int nemotron_h_bind_layer(struct binder *b, struct layer *l);
void nemotron_h_build(const struct model *m, struct program *p);
void nemotron_h_hparams(struct hparams *hp, struct hparams_reader *r);
void granite_hparams(struct hparams *hp, struct hparams_reader *r);

#endif
