/* program.h - a model's program as rows of the wire: the answer of `engine.model` if ops are requested. Thread: the
 * loop's. */
#ifndef HEARTH_ENGINE_PROGRAM_H
#define HEARTH_ENGINE_PROGRAM_H

#include "daemon/engine/sched/models.h"
#include "libclient/wire.h"

struct program_rows {
    struct wire_op *row; /* [n] */
    size_t n;
    char (*text)[96]; /* [n], pointed to by row[].text */
};

/* The model need not be loaded: its tensors are looked up in the file, and none is read. If the model cannot run, the
 * error is the one that loading it would give. The paths are included only for a loaded model. */
int program_rows(struct program_rows *out, const struct model_entry *m, struct hearth_err *e);
void program_rows_free(struct program_rows *r);

#endif
