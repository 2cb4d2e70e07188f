/*
 * safetensors.h - a bounded reader of .safetensors files (format: the safetensors README): an eight-byte length, a JSON
 * header of that length with the tensors' names, types, shapes and byte ranges, then their data.
 */
#ifndef HEARTH_SAFETENSORS_H
#define HEARTH_SAFETENSORS_H

#include "daemon/model/gguf.h"
#include "daemon/model/map.h"

enum { SAFETENSOR_U8 = 1 << 16 }; /* the type of raw bytes, which ggml does not have */

struct safetensor {
    const char *name;     /* NUL-terminated, valid during the call */
    struct gguf_tensor t; /* its name is empty; dim[0] varies fastest, as in GGUF; data points into the map */
};

/* Says by its name whether a tensor is to be read. Of others nothing is checked: they may have any type and shape. */
typedef bool safetensors_wanted(const char *name);
/* Called for each wanted tensor in the header's order; a value other than 0 ends the reading and is returned. */
typedef int safetensors_fn(void *arg, const struct safetensor *t, struct hearth_err *e);

/* Maps the file and calls fn for each wanted tensor. On success the caller owns the map (*map); otherwise it is closed.
 * A tensor outside of the file, or of another size than its shape, is HEARTH_EBADMODEL, one of an unsupported type
 * HEARTH_EUNSUPPORTED. */
int safetensors_open(struct map *map, const char *path, safetensors_wanted *wanted, safetensors_fn *fn, void *arg,
                     struct hearth_err *e);

#endif
