/*
 * hparams-internal.h - the reader of hyperparameters, shared by hparams.c, hparams-layers.c, hparams-experts.c and
 * hparams-state.c. Architectures use the smaller interface in arch.h.
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

/* hparams-layers.c: the number of heads and d_ff of each layer, but not yet the size of a head. */
void hparams_read_shapes(struct hparams_reader *r, struct hparams *hp, const struct arch *row);
/* hparams-experts.c: the hyperparameters of mixtures of experts; nothing is set where the file has no expert_count. */
void hparams_read_experts(struct hparams_reader *r, struct hparams *hp, const struct arch *row);

/* hparams-state.c: which layers are recurrent, where the number of KV heads does not show it, and the sizes of their
 * states. */
void hparams_read_state(struct hparams_reader *r, struct hparams *hp, const struct arch *row);

#endif
