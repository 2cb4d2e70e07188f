/*
 * gguf-make.h - assembles a struct gguf that no single file holds: the parts of a split model, or a Hugging Face
 * folder.
 *
 * The rest of hearth reads models only by GGUF's keys and tensor names, so other forms are translated into these: keys
 * are written to memory in GGUF's encoding and read back with the same checks, and tensors point into the mapped files.
 *
 * Errors are kept until the end, so that a caller checks only gguf_make_done(); the possible ones are lack of memory
 * and a duplicate name. Thread: any, one at a time.
 */
#ifndef HEARTH_GGUF_MAKE_H
#define HEARTH_GGUF_MAKE_H

#include "daemon/model/gguf.h"

struct gguf_make;
struct map;

struct gguf_make *gguf_make_new(void); /* NULL where memory is out */
void gguf_make_free(struct gguf_make *m);

void gguf_make_u32(struct gguf_make *m, const char *key, uint32_t v);
void gguf_make_f32(struct gguf_make *m, const char *key, float v);
void gguf_make_bool(struct gguf_make *m, const char *key, bool v);
void gguf_make_str(struct gguf_make *m, const char *key, const char *s, size_t n);
void gguf_make_i32s(struct gguf_make *m, const char *key, const int32_t *v, size_t n);
void gguf_make_f64s(struct gguf_make *m, const char *key, const double *v, size_t n);
void gguf_make_bytes(struct gguf_make *m, const char *key, const void *v, size_t n); /* an array of u8 */
void gguf_make_strs(struct gguf_make *m, const char *key, const struct gguf_str *v, size_t n);
/* Adds a key of another file: name and raw value as gguf_key_at() returns them. */
void gguf_make_raw(struct gguf_make *m, struct gguf_str name, struct gguf_str raw);

/* Adds a tensor; its name and data are borrowed: the name from gguf_make_name() or a map, the data from a map or
 * gguf_make_alloc(). dim[0] varies fastest. */
void gguf_make_tensor(struct gguf_make *m, const struct gguf_tensor *t);
struct gguf_str gguf_make_name(struct gguf_make *m, const char *name); /* a copy that lives as long as the model */
void *gguf_make_alloc(struct gguf_make *m, size_t bytes); /* lives as long as the model; aligned; NULL where memory is
                                                             out */

/* Leaves the data of tensors, in memory of gguf_make_alloc(), to gguf_fill(), which calls fill(arg). `arg` is memory of
 * gguf_make_alloc() as well. `fill` calls pace(); a call that this ends is repeated from the start. */
void gguf_make_later(struct gguf_make *m, gguf_fill_fn *fill, const void *arg);

/* Transfers the map to the model, which closes it; without a resulting model, gguf_make_free() does. */
void gguf_make_map(struct gguf_make *m, const struct map *map);
/* Moves the maps and all owned memory out of g: pointers into g's file stay valid. After that g can only be closed.
 */
void gguf_make_take(struct gguf_make *m, struct gguf *g);

/* Returns the assembled model in *out; m is then empty, but the caller still frees it. HEARTH_ENOMEM,
 * HEARTH_EBADMODEL. */
int gguf_make_done(struct gguf_make *m, struct gguf **out, struct hearth_err *e);

#endif
