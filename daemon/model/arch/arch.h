/*
 * arch.h - the definition of an architecture. To add one: x.c, which defines `const struct arch arch_x`, and its line
 * in local.mk.
 *
 * model.c reads the hyperparameters that all architectures have in common and binds the embedding, the final norm and
 * the head; the architecture adds what differs. Its bind function runs once per layer and pass, and names the tensors
 * with the shapes that they must have; all are checked before anything is copied to the device. The model owns what was
 * bound and frees it, wherever in the layer struct it is stored.
 */
#ifndef HEARTH_ARCH_H
#define HEARTH_ARCH_H

#include "kernels/backend.h"

struct hparams;
struct hparams_reader;
struct model;

/* A layer of attention and a feed-forward network. An architecture whose layers have more extends it by a struct of its
 * own that begins with this one, and puts that struct's size into arch.layer_bytes. */
struct layer {
    uint32_t number;                           /* from 0 */
    uint32_t group, index;                     /* the layer group that its KV belongs to, and its index in that group */
    bool shares_kv;                            /* it has no K and V of its own, but reads those of another layer */
    uint32_t window;                           /* tokens visible, including the token itself; 0: all */
    uint32_t n_head, n_kv, d_head, d_ff;       /* of this layer */
    bool gated;                                /* gated attention: attn_q has each head's gate behind its query */
    const struct rope *rope;                   /* NULL: no RoPE */
    struct norm attn_norm, ffn_norm;           /* [d_model]; before the block; of kind NORM_NONE where there is none */
    struct norm attn_post_norm, ffn_post_norm; /* [d_model]; after the block; w is NULL where there is none */
    struct norm q_norm, k_norm, v_norm;        /* [d_head], unless whole_norms is set; w is NULL where there is none */
    bool whole_norms;                          /* q_norm and k_norm cover all heads: [n_head d_head], [n_kv d_head] */
    struct weight qkv;                         /* [(n_head + 2 n_kv) d_head, d_model], or fewer rows: op_qkv.w */
    const float *qkv_bias;                     /* [(n_head + 2 n_kv) d_head] or NULL; all biases may be NULL */
    struct weight attn_out;                    /* [d_model, n_head d_head] */
    const float *attn_out_bias;                /* [d_model] */
    const float *sinks;                        /* [n_head] or NULL: op_attend.sinks */
    struct weight gate_up;                     /* [2 d_ff, d_model], or [d_ff, d_model] of an ungated FFN */
    const float *gate_up_bias;                 /* [2 d_ff] or [d_ff] */
    struct weight down;                        /* [d_model, d_ff] */
    const float *down_bias;                    /* [d_model] */
    /* Of a mixture of experts; gate_up and down are then those of the shared expert, if there is one. */
    struct weight router;                   /* [n_expert, d_model]; n_out is 0 where the layer is no mixture */
    const float *router_bias, *select_bias; /* [n_expert] or NULL */
    struct weight experts_up, experts_down; /* like gate_up and down, n_expert times, d_expert wide */
    struct weight latent_down, latent_up;   /* [d_latent, d_model] and back; n_out is 0: there is no latent space */
    const float *experts_up_bias, *experts_down_bias; /* [2, n_expert, d_expert], [n_expert, d_model] or NULL */
    const float *shared_gate;                         /* [d_model] or NULL */
};

/* A layer that may have a recurrent state instead of attention. layer.attn_out projects what comes from the state. */
struct recurrent_layer {
    struct layer layer;
    bool recurs;
    bool paired;             /* op_delta.paired */
    struct weight in, gates; /* the matrices of op_project, side by side in ACT_MIX; the second may be empty */
    struct state_conv conv;
    const float *decay, *dt_bias, *skip; /* [n_head] or NULL */
    struct norm norm;
};

enum state_kind { STATE_NONE, STATE_CONV, STATE_DELTA, STATE_MAMBA2 };

struct binder; /* model-internal.h: the model being loaded, its file, the current layer */

struct arch {
    const char *name;    /* general.architecture */
    enum rope_kind rope; /* how the dimensions of a head are paired, in GGUF files of the architecture */
    enum norm_kind norm; /* of d_model; it decides which of the two epsilon keys a file must have */
    uint32_t period;     /* where the file has a window and does not list the sliding layers: the last of every `period`
                            layers has full attention, the others have the window; 0: all have the window */
    uint32_t window;     /* of the sliding layers, where the file has no such key; 0: then no layer has a window */
    uint32_t still;      /* the last of every `still` layers has no RoPE; 0: all have it. A folder may list them. */
    bool exact_yarn;     /* default for files without the key: YaRN's ramp ends are not rounded to whole dimensions */
    bool tenth_mscale;   /* files store a tenth of YaRN's mscale_all_dim, and no mscale, which is equal to it */
    size_t layer_bytes;  /* size of its layer struct; 0: struct layer */
    size_t own_bytes;    /* size of its data outside the layers, model.own; 0: none */
    const char *const *reads; /* keys that its hparams() reads and that are refused elsewhere, up to a NULL; or NULL */
    const char *out_norm;     /* the name of the final norm; NULL: "output_norm" */
    enum state_kind state;    /* the kind of recurrent state that layers may have */
    bool tiled;               /* default for the order of a delta net's value heads: op_delta.tiled */
    bool single;              /* a layer is one of three: attention, a recurrent state, a feed-forward network */
    uint32_t interval; /* where the file does not list the recurrent layers: the last of every `interval` layers has
                          attention; 0: the number of KV heads shows it, which is 0 for recurrent layers */
    bool skips_ahead;  /* the last nextn_predict_layers layers of its files predict further ahead; they are left out */
    struct {
        bool may;             /* layers may be mixtures of experts. The defaults, for files without the keys: */
        enum route_kind kind; /* how the router's logits become scores */
        bool normalise;       /* whether the weights of the chosen experts are scaled to add up to 1 */
        bool ungated;         /* experts have no gate; GLU_RELU2 needs none */
        bool share_ff;        /* width of an expert: feed_forward_length / experts per token */
        bool scaled_weights;  /* ffn_down_exps.scale multiplies the router's weights; the architecture binds it */
    } experts;
    /* Adjusts the hyperparameters that were read from the common keys, by the architecture's own keys and by what it
     * computes differently. May be NULL. */
    void (*hparams)(struct hparams *hp, struct hparams_reader *r);
    int (*bind_layer)(struct binder *b, struct layer *l);
    /* Binds tensors outside the layers, beyond those that all architectures have. May be NULL. */
    int (*bind_own)(struct binder *b, void *own);
    /* Appends the ops of the forward pass to the model's program; called once, when all of the model is bound. The ops
     * point into the model, whose layers do not move. */
    void (*build)(const struct model *m, struct program *p);
};

/* Returns the architecture of that name, or NULL. */
const struct arch *arch_find(const char *name, size_t n);

/* --- for hparams functions: keys of the file, hparams.c -------------------------------------------------- */

/* `name` is the key without the architecture's prefix: "logit_scale". After the first error, all reads return 0. */
bool hparams_has(const struct hparams_reader *r, const char *name);
enum { REQUIRED = -1 };
/* An integer within [min, max]; `absent` is the result where the key is absent, or REQUIRED. */
uint32_t hparams_number(struct hparams_reader *r, const char *name, uint32_t min, uint32_t max, int64_t absent);
/* Sets the error, unless there is one already. */
void hparams_refuse(struct hparams_reader *r, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* A float from `min` to `max`; `absent` is the result where the key is absent. */
float hparams_real(struct hparams_reader *r, const char *name, float min, float max, float absent);
bool hparams_flag(struct hparams_reader *r, const char *name, bool absent);

/* --- for bind functions: single tensors, bind.c ---------------------------------------------------------- */

/* `name` is the tensor's name within the layer: "attn_q.weight" is "blk.3.attn_q.weight" in layer 3. */
bool bind_has(const struct binder *b, const char *name);
/* HEARTH_EBADMODEL, with the tensor's name, where it is missing. */
int bind_required(const struct binder *b, const char *name);
struct bind_part {
    const char *name;
    uint32_t n_out;
};
/* Binds tensors with a common input as the parts of one matrix. */
int bind_matrix(struct binder *b, struct weight *w, enum weight_role role, uint32_t n_in, const struct bind_part *parts,
                uint32_t n_part);
/* Binds one tensor whose rows are the rows of the parts, one part after the other. */
int bind_fused(struct binder *b, struct weight *w, enum weight_role role, uint32_t n_in, const char *name,
               const uint32_t *n_out, uint32_t n_part);
/* Binds one tensor whose rows are n_group groups of n_slice slices each. The rows are reordered so that each slice of
 * all groups is contiguous; the last slice becomes a part of its own. */
int bind_regrouped(struct binder *b, struct weight *w, enum weight_role role, uint32_t n_in, const char *name,
                   uint32_t n_group, const uint32_t *slice, uint32_t n_slice);
/* Concatenates the vectors `parts`. */
int bind_vector(struct binder *b, const float **out, const struct bind_part *parts, uint32_t n_part);
/* Binds a vector, multiplied by `factor`. */
int bind_vector_times(struct binder *b, const float **out, const char *name, uint32_t n, float factor);
/* Reads a tensor of a single number, which must not be 0. */
int bind_number(struct binder *b, const char *name, float *out);
/* Marks a tensor, if it exists, as known although nothing is computed with it. */
void bind_ignore(struct binder *b, const char *name);
/* Like bind_vector, for tensors of n_row rows: each part is [n_row, n_out]. */
int bind_rows(struct binder *b, const float **out, const struct bind_part *parts, uint32_t n_part, uint32_t n_row);
/* bind-experts.c: a matrix for each of n_expert experts. Names are stems: "ffn_gate" is "ffn_gate_exps.weight", or
 * "ffn_gate.0.weight" and so on. bind_experts_fused binds one tensor that has, expert by expert, two parts of n_out
 * rows. "ffn_gate_exps.scale", where it exists, has a factor for each expert. */
int bind_experts(struct binder *b, struct weight *w, enum weight_role role, uint32_t n_in, uint32_t n_expert,
                 const struct bind_part *parts, uint32_t n_part);
int bind_experts_fused(struct binder *b, struct weight *w, enum weight_role role, uint32_t n_in, uint32_t n_expert,
                       const char *stem, uint32_t n_out);
/* A matrix for each head, bound like the experts of one tensor. */
int bind_per_head(struct binder *b, struct weight *w, const char *name, uint32_t n_in, uint32_t n_out, uint32_t n_head);
/* The layer's router, and the biases of its logits and of the selection where they exist. All must be finite. */
int bind_router(struct binder *b, struct weight *w, const float **bias, const float **select_bias);
/* `name` "attn_norm" is "attn_norm.weight", and "attn_norm.bias" where that exists and the norm is a LayerNorm.
 * bind_norm binds a norm of the architecture's kind. */
int bind_norm(struct binder *b, struct norm *norm, const char *name, uint32_t n);
int bind_rms_norm(struct binder *b, struct norm *norm, const char *name, uint32_t n);
/* A norm without weights in the file: they are 1. */
int bind_plain_norm(struct binder *b, struct norm *norm, uint32_t n);
const struct hparams *bind_hparams(const struct binder *b);
const struct layer *model_layer(const struct model *m, uint32_t i);

/* --- for bind functions: what most layers have, parts.c -------------------------------------------------- */

/* q, k and v as three tensors or as one, the attention's output, and the biases of either where they exist. */
int bind_attention(struct binder *b, struct layer *l);
/* The norms of each head's q and k. */
int bind_head_norms(struct binder *b, struct layer *l);
/* bind_ffn binds gate, up and down, and their biases where they exist, or a mixture of experts where the layer has one.
 * bind_ffn_dense never binds a mixture, bind_ffn_fused expects the rows of gate and up in one tensor, ffn_up, and
 * bind_ffn_ungated expects no gate. */
int bind_ffn(struct binder *b, struct layer *l);
int bind_ffn_dense(struct binder *b, struct layer *l);
int bind_ffn_fused(struct binder *b, struct layer *l);
int bind_ffn_ungated(struct binder *b, struct layer *l);
/* The norms after attention and after the FFN. */
int bind_post_norms(struct binder *b, struct layer *l);

/* --- for build functions: what most models are made of, parts.c ------------------------------------------ */

void build_embed(const struct model *m, struct program *p);
/* build_attend: projections and attention. build_attention_out: the output projection, which is added to the residual
 * stream. */
void build_attend(const struct model *m, struct program *p, const struct layer *l);
void build_attention_out(const struct model *m, struct program *p, const struct layer *l);
void build_ffn_up(const struct model *m, struct program *p, const struct layer *l, enum glu_kind glu);
void build_ffn_down(const struct model *m, struct program *p, const struct layer *l);
void build_head(const struct model *m, struct program *p);
/* The feed-forward network or, if the layer has one, the mixture of experts. */
void build_ffn(const struct model *m, struct program *p, const struct layer *l, enum glu_kind glu);
/* The whole program of a model whose layers are attention, then an FFN, each added to the residual stream. */
void build_layers(const struct model *m, struct program *p, enum glu_kind glu);

/* experts.c: for parts.c. */
bool bind_is_mixture(const struct binder *b, const struct layer *l);
/* Binds the router, the experts, and the shared expert where there is one. */
int bind_mixture(struct binder *b, struct layer *l);
void build_mixture(const struct model *m, struct program *p, const struct layer *l, enum glu_kind glu);

/* recurrent.c. bind_conv: a convolution, whose tensor `name`.weight has n_channel rows, and its bias where that exists.
 * bind_state_out: the output projection. build_project: the ops that put the projections side by side into ACT_MIX. */
int bind_conv(struct binder *b, struct state_conv *conv, const char *name, uint32_t n_channel);
int bind_state_out(struct binder *b, struct layer *l, const char *name, uint32_t n_in);
void build_project(struct program *p, const struct recurrent_layer *l);

/* llama.c: related architectures bind and build in the same way. */
int llama_bind_layer(struct binder *b, struct layer *l);
void llama_build(const struct model *m, struct program *p);
/* gemma2.c, starcoder2.c, qwen2.c, qwen3.c: likewise. */
int qwen2_bind_layer(struct binder *b, struct layer *l);
int qwen3_bind_layer(struct binder *b, struct layer *l);
int gemma2_bind_layer(struct binder *b, struct layer *l);
void gemma2_build(const struct model *m, struct program *p);
int starcoder2_bind_layer(struct binder *b, struct layer *l);
extern const char *const mrope_reads[]; /* qwen35.c: the keys of M-RoPE */
/* Architectures with recurrent layers: lfm2.c, qwen35.c, mamba2.c, nemotron_h.c; and the scales of granite.c. */
int lfm2_bind_layer(struct binder *b, struct layer *l);
void lfm2_build(const struct model *m, struct program *p);
int qwen35_bind_layer(struct binder *b, struct layer *l);
void qwen35_build(const struct model *m, struct program *p);
int mamba2_bind(struct binder *b, struct recurrent_layer *r);
void mamba2_build_mixer(const struct model *m, struct program *p, const struct recurrent_layer *r);
int nemotron_h_bind_layer(struct binder *b, struct layer *l);
void nemotron_h_build(const struct model *m, struct program *p);
void nemotron_h_hparams(struct hparams *hp, struct hparams_reader *r);
void granite_hparams(struct hparams *hp, struct hparams_reader *r);

#endif
