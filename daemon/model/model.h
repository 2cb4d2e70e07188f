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
}; /* layers with a sliding window may turn otherwise than the others */

/* A layer group: the layers that share a pool of KV. */
struct kv_group {
    uint32_t n_layer, n_kv, d_k, d_v;
    uint32_t window;  /* tokens visible, the own one included; 0: all */
    uint32_t d_state; /* numbers of a layer's state; 0: it has K and V. Then all but the first are 0 */
};

enum layer_kind {
    LAYER_ATTENDS, /* it has keys and values */
    LAYER_RECURS,  /* it has a recurrent state */
    LAYER_NEITHER
};

/* What layers with a recurrent state are, as the ops of kernels/op.h have them. */
struct hparams_state {
    uint32_t n_tap;           /* of the convolution */
    uint32_t n_head, n_group; /* heads; and those of keys of a delta net, or groups of Mamba-2's B and C */
    uint32_t d_head, d_state; /* S of a head is [d_state, d_head] */
    uint32_t n_channel;       /* of the convolution */
    uint32_t n;               /* numbers of a layer's state */
    bool tiled;               /* op_delta.tiled */
    bool norm_whole;          /* op_mamba2.norm_whole */
};

/* What layers may have each of their own. */
struct layer_shape {
    uint16_t n_head, n_kv, d_head;
    uint32_t d_ff;
};

/* Mixtures of experts, as kernels/op.h has them. */
struct hparams_experts {
    uint32_t n, n_used;          /* of a layer, and of a token in it; 0: the model has none */
    uint32_t d_expert, d_shared; /* hidden dimensions of an expert, and of the one that all go to, 0: as d_ff or none */
    uint32_t d_latent;           /* dimensions of the latent space that experts work in; 0: they have d_model */
    uint32_t n_dense;            /* layers at the beginning that are no mixtures */
    enum route_kind kind;
    uint32_t n_group, n_group_used, group_best;
    bool normalise;
    bool beside;  /* a mixture is beside an ordinary network, not in its place */
    bool ungated; /* experts, and the one that all go to, have no gate */
    float scale;
};

/* Latent attention: op_latent. */
struct hparams_latent {
    uint32_t d_c, d_q;    /* dimensions of what keys and values are made of, and queries; 0: none, not */
    uint32_t d_nope, d_v; /* of a head's query and key without the part that turns, and of its value */
};

struct hparams {
    char arch[32];
    char name[96];
    char type[16];    /* "Q4_K_M", "F16", from general.file_type */
    uint32_t n_nextn; /* layers after the others that hearth leaves out */
    uint32_t n_layer, d_model, n_head, n_kv, d_head, d_ff, n_vocab, n_ctx; /* of heads and d_ff the greatest */
    struct layer_shape shape[LAYERS_MAX];                                  /* [n_layer] */
    uint32_t n_rot[ROPES];
    uint32_t long_from; /* longrope: timelines of more tokens turn by its factors for long contexts; 0: none do */
    float norm_eps;
    struct rope_params rope[ROPES];
    uint32_t window; /* tokens that a layer of `slides` sees, the own one included; 0: no layer slides */
    uint8_t slides[LAYERS_MAX], turns[LAYERS_MAX]; /* [n_layer] sliding window; RoPE */
    uint8_t kind[LAYERS_MAX];                      /* [n_layer] enum layer_kind */
    struct hparams_state state;                    /* of those that recur */
    struct kv_group kv[KV_GROUPS_MAX];             /* [n_group] those without a window first, those of states last */
    uint32_t n_group;
    uint8_t group_of[LAYERS_MAX];                  /* [n_layer] the layer's group, of one that is LAYER_NEITHER 0 ... */
    uint16_t index_of[LAYERS_MAX];                 /* ... and its index within it */
    float embed_scale, attn_scale, residual_scale; /* of embeddings, scores, and what layers add; the last 0: none */
    float attn_softcap;                            /* of scores; 0: none */
    float logit_scale, logit_softcap;              /* the latter 0: none */
    uint32_t n_shared_kv;                          /* the last layers, which read the KV of earlier ones */
    uint32_t d_input;                              /* of what each layer adds to a token: op_inputs; 0: nothing */
    float temperature; /* beta of op_qkv.temperature; its length is the original context of rope[0]; 0: none */
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
    struct model_place place;    /* where the matrices lie, of a model that was loaded within a room; else 0 */
    struct norm out_norm;
    struct rope rope[ROPES];
    void *own;             /* what the architecture keeps beside its layers: arch.own_bytes */
    void *layers;          /* [n_layer] of arch.h's struct layer, or what the architecture has for it: model_layer() */
    struct loaded *loaded; /* every matrix on the device, to free */
    struct vec *vecs;      /* every vector, likewise */
    struct owned *owned;   /* other memory that goes with the model */
    /* All layers and the head: what `step_run` runs, and leaves the logits of a batch's out rows in ACT_LOGITS. */
    struct program program;
};

/* Reads and checks the hyperparameters only; touches no tensor data. HEARTH_EUNSUPPORTED names an architecture or
 * tensor type that hearth does not run, HEARTH_EBADMODEL a missing or inconsistent key. */
int model_hparams(struct hparams *out, const struct gguf *g, struct hearth_err *e);

/* The name of the file's mix of types, "Q4_K_M", as general.file_type has it; "": none. */
const char *model_type(const struct gguf *g);

/* Called with bytes loaded and bytes in total while weights go to the device; returning false stops with
 * HEARTH_ECANCELLED. */
typedef bool model_progress(void *arg, uint64_t done, uint64_t total);

/* Binds every tensor, checks shapes, loads weights onto the device. `g` must outlive the model. */
int model_load(struct model **out, struct gguf *g, const struct backend *be, struct device *dev, model_progress *cb,
               void *arg, struct hearth_err *e);
/* The same within a room: what does not fit into the device's own memory stays in the host's (place.h). HEARTH_ENOMEM
 * where both have no room. Of a device that reads the mapped file, model_load. */
int model_load_within(struct model **out, struct gguf *g, const struct backend *be, struct device *dev,
                      const struct model_room *room, model_progress *cb, void *arg, struct hearth_err *e);
/* Where model_load_within would put what; loads nothing. */
int model_find_places(struct gguf *g, const struct backend *be, struct device *dev, const struct model_room *room,
                      struct model_place *out, struct hearth_err *e);
/* The same without a device: the checks and the program, whose ops name types and shapes, and no numbers. It cannot be
 * run. Any thread. */
int model_outline(struct model **out, struct gguf *g, struct hearth_err *e);
void model_free(struct model *m);

/* Returns the host copy of a vector that the model loaded onto its device (a norm's weights, a bias); NULL for any
 * other pointer. */
const float *model_vector(const struct model *m, const float *v);

/* Describes the pools of this model's KV by group, except for n_page, and returns their number. */
uint32_t model_kv_descs(const struct model *m, enum dtype type, struct kv_desc out[KV_GROUPS_MAX]);
/* Raises *dims to the dimensions that this model's steps need. n_row and n_out are the caller's. */
void model_workspace(const struct model *m, struct workspace_dims *dims);

#endif
