/*
 * hparams-internal.h - the reader of hyperparameters, shared by hparams.c, hparams-layers.c and hparams-experts.c.
 * Architectures have a smaller door, arch.h.
 */
#ifndef HEARTH_HPARAMS_INTERNAL_H
#define HEARTH_HPARAMS_INTERNAL_H

#include "daemon/model/arch/arch.h"
#include "daemon/model/model.h"

struct hparams_reader {
    const struct gguf *g;
    const char *arch;
    struct hearth_err *e;
    int ret; /* the first error; later calls do nothing */
};

/* hparams-layers.c: heads and d_ff of each layer; not yet the size of heads. */
void hparams_read_shapes(struct hparams_reader *r, struct hparams *hp, const struct arch *row);
/* hparams-experts.c: what the file says of mixtures of experts; none where it has no expert_count. */
void hparams_read_experts(struct hparams_reader *r, struct hparams *hp, const struct arch *row);

/* hparams-state.c: which layers recur, where heads do not tell, and what their states are. */
void hparams_read_state(struct hparams_reader *r, struct hparams *hp, const struct arch *row);

#endif
