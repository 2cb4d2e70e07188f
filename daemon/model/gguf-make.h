/*
 * gguf-make.h - assembles a struct gguf that no single file holds: the parts of a split model, or a Hugging Face
 * folder.
 *
 * The rest of hearth reads models by GGUF's keys and tensor names alone. So other forms are translated into these: keys
 * are written to memory as GGUF writes them and read back by the same checks, and tensors point into the mapped files.
 *
 * The first failure sticks (only memory can run out, and a name that comes twice), so that a caller checks for errors
 * once, at the end. Thread: any, one at a time.
 */
#ifndef HEARTH_GGUF_MAKE_H
#define HEARTH_GGUF_MAKE_H

#include "daemon/model/gguf.h"

struct gguf_make;
struct map;

struct gguf_make *gguf_make_new(void); /* NULL without memory */
void gguf_make_free(struct gguf_make *m);

void gguf_make_u32(struct gguf_make *m, const char *key, uint32_t v);
void gguf_make_f32(struct gguf_make *m, const char *key, float v);
void gguf_make_bool(struct gguf_make *m, const char *key, bool v);
void gguf_make_str(struct gguf_make *m, const char *key, const char *s, size_t n);
void gguf_make_i32s(struct gguf_make *m, const char *key, const int32_t *v, size_t n);
void gguf_make_f64s(struct gguf_make *m, const char *key, const double *v, size_t n);
void gguf_make_bytes(struct gguf_make *m, const char *key, const void *v, size_t n); /* an array of u8 */
void gguf_make_strs(struct gguf_make *m, const char *key, const struct gguf_str *v, size_t n);
/* Adds a key of another file: name and raw value as gguf_key_at() gives them. */
void gguf_make_raw(struct gguf_make *m, struct gguf_str name, struct gguf_str raw);

/* Adds a tensor; its name and data are borrowed: the name from gguf_make_name() or a map, the data from a map or
 * gguf_make_alloc(). dim[0] varies fastest. */
void gguf_make_tensor(struct gguf_make *m, const struct gguf_tensor *t);
struct gguf_str gguf_make_name(struct gguf_make *m, const char *name); /* a copy that lives as long as the model */
void *gguf_make_alloc(struct gguf_make *m, size_t bytes); /* lives as long; aligned; NULL where memory is out */

/* Passes the map to the model; it is closed with it, or with m where no model results. */
void gguf_make_map(struct gguf_make *m, const struct map *map);
/* Moves the maps and all owned memory out of g: pointers into g's file stay valid. After that g can only be closed.
 */
void gguf_make_take(struct gguf_make *m, struct gguf *g);

/* Returns the assembled model in *out; m is empty then and is still to be freed. HEARTH_ENOMEM, HEARTH_EBADMODEL. */
int gguf_make_done(struct gguf_make *m, struct gguf **out, struct hearth_err *e);

#endif
