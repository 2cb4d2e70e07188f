/*
 * staged.h - rows of activations that a test has written for the next step: the list that both backends' act_write
 * appends to.
 *
 * An activation's layout in the workspace (panels, fp16 fragments) depends on the batch, so the numbers stay on the
 * host until step_run knows it. Thread: the device's.
 */
#ifndef HEARTH_STAGED_H
#define HEARTH_STAGED_H

#include "kernels/backend.h"

struct staged {
    struct staged *next; /* the write that came after this one */
    enum act act;
    uint32_t row0, n_row, n_col;
    float *v; /* [n_row, n_col], in the same block of memory */
};

/* Copies the numbers to the end of the list. HEARTH_EPARAMS: no such activation, or no numbers. */
int staged_add(struct staged **list, enum act a, uint32_t row0, uint32_t n_row, uint32_t n_col, const float *in,
               struct hearth_err *e);
void staged_free(struct staged **list);

#endif
