/*
 * hf.h - a Hugging Face folder (config.json, *.safetensors, tokenizer.json and their companions) as a model.
 *
 * It is told in GGUF's terms (gguf-make.h): keys of config.json become `ARCH.key`, tensors get GGUF's names and stay
 * where they are, mapped, in BF16, F16 or F32; only vectors that GGUF keeps in another form (a norm's weights plus one)
 * are copied. All that is read is hostile until checked: sizes are bounded before anything is parsed.
 */
#ifndef HEARTH_HF_H
#define HEARTH_HF_H

#include "daemon/model/gguf.h"

/* Opens a folder. HEARTH_ENOMODEL where it holds no config.json, HEARTH_EBADMODEL, HEARTH_EUNSUPPORTED naming what
 * hearth does not run, HEARTH_ENOMEM. */
int hf_open(struct gguf **out, const char *folder, struct hearth_err *e);

#endif
