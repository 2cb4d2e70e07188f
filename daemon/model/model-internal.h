/*
 * model-internal.h - a model that is being loaded, shared by model.c and the files that bind. Architectures have a
 * smaller door, arch.h.
 */
#ifndef HEARTH_MODEL_INTERNAL_H
#define HEARTH_MODEL_INTERNAL_H

#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

#include <stddef.h>

#define SCALE_MAX 1e30f /* of a matrix's own factor, so that no product of weights overflows by it alone */

/* What a model owns, until model_free(). */
struct loaded {
    struct loaded *next;
    struct weight *w;
};

struct vec {
    struct vec *next;
    float *v;     /* device memory */
    float host[]; /* the same numbers */
};

struct owned {
    struct owned *next;
    max_align_t bytes[];
};

struct binder {
    struct model *m;
    bool load;     /* second pass */
    int32_t layer; /* -1: tensors of no layer */
    bool *used;    /* [gguf_n_tensor] tensors that were bound */
    uint64_t done, total;
    const struct model_room *room; /* NULL: all matrices go to the device's own memory */
    struct place_item *item;       /* [n_item] the matrices, in the order of bind_load, where there is a room */
    size_t n_item, next;           /* next: in the second pass, the one that is loaded next */
    model_progress *cb;
    void *arg;
    struct hearth_err *e;
};

/* A tensor's full name: `name` within the layer at hand. */
void bind_name(const struct binder *b, const char *name, char out[160]);
/* Finds one tensor and checks it: its type is one the ops know, and it is [n_expert, n_out, n_in], or without the
 * dimensions that are 0. */
int bind_find(struct binder *b, const char *name, uint32_t n_in, uint32_t n_out, uint32_t n_expert,
              const struct gguf_tensor **out);
/* Loads the matrix onto the device, in the second pass; the model owns it. `bytes` is what it takes in the file. */
int bind_load(struct binder *b, struct weight *w, const struct weight *made, uint64_t bytes);
/* Memory that the model owns, 0 as it comes; NULL where there is none. */
void *bind_own(struct binder *b, size_t bytes);
/* Puts [n] numbers into device memory that the model owns; model_free() frees it. */
int bind_keep_vector(struct binder *b, const float *src, size_t n, const float **out);

/* bind-rope.c: makes m->rope, of the frequencies' tensors where there are some. Errors name the tensor. */
int bind_rope(struct binder *b);
/* By which of m->rope a layer turns, where it does. */
enum layer_rope bind_rope_which(const struct hparams *hp, uint32_t layer);

#endif
