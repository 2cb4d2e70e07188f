/*
 * hf.h - opens a Hugging Face folder (config.json, *.safetensors, tokenizer.json and their companions) as a model.
 *
 * The folder is translated into GGUF's terms (gguf-make.h): keys of config.json become `ARCH.key`, and tensors get
 * GGUF's names and stay in the mapped files, in BF16, F16 or F32. Only tensors that GGUF stores in another form (such
 * as norm weights that a folder stores minus one) are copied. No file is trusted before it is checked: sizes are
 * bounded before anything is parsed.
 */
#ifndef HEARTH_HF_H
#define HEARTH_HF_H

#include "daemon/model/gguf.h"

/* Opens a folder. HEARTH_ENOMODEL where it contains no config.json, HEARTH_EBADMODEL, HEARTH_EUNSUPPORTED with a
 * message that names what hearth does not implement, HEARTH_ENOMEM. */
int hf_open(struct gguf **out, const char *folder, struct hearth_err *e);

#endif
