/*
 * model.h - a model: hyperparameters, weights on a device, and the forward pass of its architecture as a program.
 *
 * Immutable once loaded and shared by every sequence. It knows nothing of sequences, sampling or time. Thread: loading
 * and steps belong to the device thread; hparams may be read anywhere.
 */
#ifndef HEARTH_MODEL_H
#define HEARTH_MODEL_H

#include "daemon/model/gguf.h"
#include "daemon/model/place.h"
#include "daemon/model/rope.h"
#include "kernels/backend.h"

enum { LAYERS_MAX = 1024 };
enum layer_rope {
    ROPE_FULL,
    ROPE_SLIDING,
    ROPES
}; /* layers with a sliding window may have a RoPE other than that of the full-attention layers */

/* A layer group: the layers that share one pool of KV pages. */
struct kv_group {
    uint32_t n_layer, n_kv, d_k, d_v;
    uint32_t window;  /* tokens visible, including the token itself; 0: all */
    uint32_t d_state; /* floats in a layer's recurrent state, then n_kv, d_k, d_v and window are 0; 0: it has K and V */
};

enum layer_kind {
    LAYER_ATTENDS, /* it has attention, with keys and values */
    LAYER_RECURS,  /* it has a recurrent state */
    LAYER_NEITHER
};

/* The dimensions of layers with a recurrent state, as the ops of kernels/op.h use them. */
struct hparams_state {
    uint32_t n_tap;           /* taps of the convolution */
    uint32_t n_head, n_group; /* heads; and key heads of a delta net, or the groups of Mamba-2's B and C */
    uint32_t d_head, d_state; /* the state matrix S of a head is [d_state, d_head] */
    uint32_t n_channel;       /* channels of the convolution */
    uint32_t n;               /* floats in a layer's state, the convolution's past inputs included */
    bool tiled;               /* op_delta.tiled */
    bool norm_whole;          /* op_mamba2.norm_whole */
};

/* Dimensions that may differ from layer to layer. */
struct layer_shape {
    uint16_t n_head, n_kv, d_head;
    uint32_t d_ff;
};

/* The dimensions of mixtures of experts, as kernels/op.h uses them. */
struct hparams_experts {
    uint32_t n, n_used;          /* experts in a layer, and experts used per token; 0: the model has none */
    uint32_t d_expert, d_shared; /* width of an expert, and of the shared one (0: d_ff, or there is none) */
    uint32_t d_latent;           /* dimensions of the latent space that the experts work in; 0: they work in d_model */
    uint32_t n_dense;            /* leading layers that are dense, not mixtures */
    enum route_kind kind;
    uint32_t n_group, n_group_used, group_best;
    bool normalise;
    bool beside;  /* a mixture is added beside an ordinary feed-forward network instead of replacing it */
    bool ungated; /* the experts, the shared one included, have no gate */
    float scale;
};

/* Multi-head latent attention (DeepSeek's MLA): op_latent. */
struct hparams_latent {
    uint32_t d_c, d_q;    /* of the latent that keys and values are made from, 0: not MLA; of the queries', 0: none */
    uint32_t d_nope, d_v; /* dimensions of a head's query and key without the rotated part, and of its value */
};

struct hparams {
    char arch[32];
    char name[96];
    char type[16];    /* "Q4_K_M", "F16", from general.file_type */
    uint32_t n_nextn; /* trailing layers (nextn_predict_layers) that hearth leaves out */
    uint32_t n_layer, d_model, n_head, n_kv, d_head, d_ff, n_vocab, n_ctx; /* of heads and d_ff the maximum */
    struct layer_shape shape[LAYERS_MAX];                                  /* [n_layer] */
    uint32_t n_rot[ROPES];
    uint32_t long_from; /* longrope: timelines of more tokens than this use the factors for long contexts; 0: none do */
    float norm_eps;
    struct rope_params rope[ROPES];
    bool halves;     /* RoPE pairs the halves of what it rotates, whatever arch.rope is */
    uint32_t window; /* tokens that a layer of `slides` sees, including the token itself; 0: no layer has a window */
    uint8_t slides[LAYERS_MAX], turns[LAYERS_MAX]; /* [n_layer] sliding window; RoPE */
    uint8_t kind[LAYERS_MAX];                      /* [n_layer] enum layer_kind */
    struct hparams_state state;                    /* of the recurrent layers */
    struct kv_group kv[KV_GROUPS_MAX];             /* [n_group] without a window first, recurrent states last */
    uint32_t n_group;
    uint8_t group_of[LAYERS_MAX];                  /* [n_layer] the layer's group; 0 for LAYER_NEITHER */
    uint16_t index_of[LAYERS_MAX];                 /* [n_layer] the layer's index within its group */
    float embed_scale, attn_scale, residual_scale; /* of embeddings, of scores, of what layers add; the last 0: none */
    float attn_softcap;                            /* of attention scores; 0: none */
    float logit_scale, logit_softcap;              /* logit_softcap 0: none */
    uint32_t n_shared_kv;                          /* number of trailing layers that read the KV of earlier ones */
    uint32_t d_input;                              /* width of the per-layer inputs (op_inputs); 0: none */
    float temperature; /* beta of op_qkv.temperature, whose length is the original context of rope[0]; 0: none */
    struct hparams_experts experts;
    struct hparams_latent latent;
    uint64_t n_param;
    uint64_t weight_bytes;
};

struct arch;   /* arch.h: name, bind, build */
struct loaded; /* model-internal.h */
struct vec;    /* model-internal.h */
struct owned;  /* model-internal.h */

struct model {
    struct hparams hp;
    const struct arch *arch;
    const struct backend *be;
    struct device *dev;
    struct gguf *gguf;           /* borrowed */
    struct weight tok_embd, out; /* [n_vocab, d_model] each */
    const float *out_bias;       /* [n_vocab] or NULL */
    bool tied;                   /* `out` is a copy of tok_embd */
    struct model_place place;    /* where the matrices are, if loaded within a room; otherwise all 0 */
    struct norm out_norm;
    struct rope rope[ROPES];
    void *own;             /* the architecture's data outside its layers: arch.own_bytes */
    void *layers;          /* [n_layer] struct layer, or the architecture's own layer struct: model_layer() */
    struct loaded *loaded; /* every matrix on the device, to free */
    struct vec *vecs;      /* every vector, likewise */
    struct owned *owned;   /* other memory that is freed with the model */
    /* All layers and the head. `step_run` executes it and leaves the logits of the batch's output rows in
     * ACT_LOGITS. */
    struct program program;
};

/* Reads and checks only the hyperparameters; touches no tensor data. HEARTH_EUNSUPPORTED names an architecture or
 * feature that hearth does not run, HEARTH_EBADMODEL a missing or inconsistent key. */
int model_hparams(struct hparams *out, const struct gguf *g, struct hearth_err *e);

/* Whether the output is the embedding: the file has no other matrix for it, or has the same one again, as the folder of
 * Qwen 3 0.6B, of which only one copy is loaded. The other is then taken off hp->weight_bytes. Reads up to 256 KiB of
 * each. */
bool model_find_tied(struct hparams *hp, const struct gguf *g);

/* The name of the file's mix of weight types, such as "Q4_K_M", by general.file_type; "" where it has none. */
const char *model_type(const struct gguf *g);

/* Called with the bytes loaded and the bytes in total while weights are copied to the device; returning false stops the
 * load with HEARTH_ECANCELLED. */
typedef bool model_progress(void *arg, uint64_t done, uint64_t total);

/* Binds every tensor, checks shapes, calls gguf_fill() and loads weights onto the device. `g` must outlive the model.
 */
int model_load(struct model **out, struct gguf *g, const struct backend *be, struct device *dev, model_progress *cb,
               void *arg, struct hearth_err *e);
/* Like model_load(), but within a memory budget: matrices that do not fit into the device's own memory stay in the
 * host's (place.h). HEARTH_ENOMEM where they do not fit into both. The same as model_load() on a device that reads the
 * mapped file directly. */
int model_load_within(struct model **out, struct gguf *g, const struct backend *be, struct device *dev,
                      const struct model_room *room, model_progress *cb, void *arg, struct hearth_err *e);
/* Computes where model_load_within() would place the matrices; loads nothing. */
int model_find_places(struct gguf *g, const struct backend *be, struct device *dev, const struct model_room *room,
                      struct model_place *out, struct hearth_err *e);
/* Like model_load(), but without a device: it makes all checks and builds the program, whose ops have types and shapes
 * but no data. The model cannot be run. Any thread. */
int model_outline(struct model **out, struct gguf *g, struct hearth_err *e);
void model_free(struct model *m);

/* Returns the host copy of a vector that the model loaded onto its device (a norm's weights, a bias); NULL for any
 * other pointer. */
const float *model_vector(const struct model *m, const float *v);

/* Describes the pools of this model's KV by group, except for n_page, and returns the number of groups. */
uint32_t model_kv_descs(const struct model *m, enum dtype type, struct kv_desc out[KV_GROUPS_MAX]);
/* Raises *dims to the dimensions that this model's steps need. The caller sets n_row and n_out. */
void model_workspace(const struct model *m, struct workspace_dims *dims);

#endif
