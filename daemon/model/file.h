/*
 * file.h - opens a model by its path, in any of three forms: one GGUF file, the first part of a split one, or a Hugging
 * Face folder.
 */
#ifndef HEARTH_MODEL_FILE_H
#define HEARTH_MODEL_FILE_H

#include <stdbool.h>

#include "daemon/model/gguf.h"

/* Opens a model as gguf_open() does. Of a split model (split.count above 1) `path` may name any part; all parts are in
 * the same folder, named like NAME-00001-of-00003.gguf, and a missing part is an error that names it. */
int model_file_open(struct gguf **out, const char *path, struct hearth_err *e);

/* Whether an error code from reading a model means that the file itself is bad, so that a retry fails until the file
 * changes. All other errors (no memory, no descriptor, no permission) may be transient. */
bool model_file_is_at_fault(int code);

#endif
