/*
 * file.h - opens a model by its path, in any of three forms: one GGUF file, the first part of a split one, or a Hugging
 * Face folder.
 */
#ifndef HEARTH_MODEL_FILE_H
#define HEARTH_MODEL_FILE_H

#include <stdbool.h>

#include "daemon/model/gguf.h"

/* Opens a model as gguf_open() does. Of a split model (split.count above 1) `path` names any part; all parts are in the
 * same folder, called NAME-00001-of-00003.gguf, and a missing one is an error that names it. */
int model_file_open(struct gguf **out, const char *path, struct hearth_err *e);

/* Whether what has failed in reading a model is the file's own fault, so that it fails again as long as the file is the
 * same. All else may pass: there was no memory, no descriptor, no right to read it. */
bool model_file_is_at_fault(int code);

#endif
