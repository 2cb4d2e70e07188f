/*
 * model-internal.h - a model that is being loaded, shared by model.c and the bind*.c files. Architectures use the
 * smaller interface in arch.h.
 */
#ifndef HEARTH_MODEL_INTERNAL_H
#define HEARTH_MODEL_INTERNAL_H

#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

#include <stddef.h>

#define SCALE_MAX 1e30f /* bound of a matrix's own factor, which alone must not make a product of weights overflow */

/* Resources that a model owns until model_free(). */
struct loaded {
    struct loaded *next;
    struct weight *w;
};

struct vec {
    struct vec *next;
    float *v;     /* device memory */
    float host[]; /* host copy of the same numbers */
};

struct owned {
    struct owned *next;
    max_align_t bytes[];
};

struct binder {
    struct model *m;
    bool load;     /* second pass */
    int32_t layer; /* -1 while binding tensors outside the layers */
    bool *used;    /* [gguf_n_tensor] which tensors were bound */
    uint64_t done, total;
    const struct model_room *room; /* NULL: all matrices go to the device's own memory, without a limit */
    struct place_item *item;       /* [n_item] the matrices in the order of bind_load's calls; NULL without a room */
    size_t n_item, next;           /* next: the item that the second pass loads next */
    model_progress *cb;
    void *arg;
    struct hearth_err *e;
};

/* hparams.c: whether a tensor belongs to one of the trailing layers that are left out. */
bool hparams_is_ahead(const struct hparams *hp, struct gguf_str name);

/* Finds one tensor and checks it: its type must be one that the ops support, and its shape [n_expert, n_out, n_in],
 * where a dimension given as 0 is left out. */
int bind_find(struct binder *b, const char *name, uint32_t n_in, uint32_t n_out, uint32_t n_expert,
              const struct gguf_tensor **out);
/* Loads the matrix onto the device, in the second pass; the model owns it. `bytes` is its size in the file. */
int bind_load(struct binder *b, struct weight *w, const struct weight *made, uint64_t bytes);
/* Returns zeroed memory that the model owns; NULL where memory is out. */
void *bind_own(struct binder *b, size_t bytes);
/* Copies n numbers into device memory, which the model owns and model_free() frees. */
int bind_keep_vector(struct binder *b, const float *src, size_t n, const float **out);

/* bind-rope.c: fills m->rope, with the frequency factors of a tensor where the file has one. Errors name the tensor. */
int bind_rope(struct binder *b);
/* Which entry of m->rope applies to a layer that has RoPE. */
enum layer_rope bind_rope_which(const struct hparams *hp, uint32_t layer);

#endif
