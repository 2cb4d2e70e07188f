/*
 * file.h - a model by its path, in whatever form it lies there: one GGUF file, the first part of a split one, or a
 * Hugging Face folder.
 */
#ifndef HEARTH_MODEL_FILE_H
#define HEARTH_MODEL_FILE_H

#include "daemon/model/gguf.h"

/* As gguf_open(). Of a split model (split.count above 1) `path` names any part; all of them lie beside it, called
 * NAME-00001-of-00003.gguf, and a missing one is an error that names it. */
int model_file_open(struct gguf **out, const char *path, struct hearth_err *e);

#endif
