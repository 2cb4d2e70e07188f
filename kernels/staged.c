/* staged.c - see staged.h. */
#include "kernels/staged.h"

#include <stdlib.h>
#include <string.h>

int staged_add(struct staged **list, enum act a, uint32_t row0, uint32_t n_row, uint32_t n_col, const float *in,
               struct hearth_err *e)
{
    size_t n = (size_t)n_row * n_col;
    if ((unsigned)a >= ACT_COUNT || !n)
        return err_set(e, HEARTH_EPARAMS, "%u rows of %u columns of activation %d", (unsigned)n_row, (unsigned)n_col,
                       (int)a);
    struct staged *s = malloc(sizeof *s + n * sizeof *s->v);
    if (!s)
        return err_set(e, HEARTH_ENOMEM, "no memory for %zu numbers of an activation", n);
    *s = (struct staged){NULL, a, row0, n_row, n_col, (float *)(s + 1)};
    memcpy(s->v, in, n * sizeof *s->v);
    while (*list)
        list = &(*list)->next;
    *list = s;
    return 0;
}

void staged_free(struct staged **list)
{
    for (struct staged *s; (s = *list);) {
        *list = s->next;
        free(s);
    }
}
