/*
 * op-table.h - the paths (kernel families) that the ops of a loaded model take on its device, and which ops miss the
 * fast ones.
 *
 * Made by the device thread when the model is loaded, and constant from then on: the loop thread reads it for
 * `engine.model` and `engine.status`.
 */
#ifndef HEARTH_ENGINE_OP_TABLE_H
#define HEARTH_ENGINE_OP_TABLE_H

#include "kernels/backend.h"

/* The kinds of steps for which the paths are listed. */
enum op_step { OP_STEP_ONE, OP_STEP_FEW, OP_STEP_MANY, OP_STEP_INVARIANT /* one row, invariant mode */, OP_STEPS };
enum { OP_FEW_ROWS = 16, OP_MANY_ROWS = 512 };

enum { OP_SLOW_MAX = 8, OP_SLOW_TEXT = 200 };

struct op_paths {
    /* Static strings from op_path(); NULL: the device cannot run the op. */
    const char *at[OP_STEPS];
};

struct op_table {
    struct op_table *next;                /* the table of an earlier load; the model's entry owns them all */
    const char *slow[OP_SLOW_MAX];        /* [n_slow]: "proj (F32; 64 to 64) x 8: 16 rows through skinny, not wgmma" */
    char text[OP_SLOW_MAX][OP_SLOW_TEXT]; /* what slow[] points to */
    size_t n_slow;
    uint32_t n;
    struct op_paths op[]; /* [n], of the program's ops */
};

/* invariant: the mode of rows that decode whose bits must not depend on others. Returns NULL without memory. Device
 * thread. */
struct op_table *op_table_new(const struct backend *be, struct device *dev, bool gpu, const struct program *p,
                              enum invariance invariant);

/* Returns in buf why an op with these paths is slower than a GPU's kernels could be; NULL: it is not. */
const char *op_slow(const struct op *o, const struct op_paths *paths, char buf[OP_SLOW_TEXT]);

/* Whether two tables list the same paths. */
bool op_table_same(const struct op_table *a, const struct op_table *b);

#endif
