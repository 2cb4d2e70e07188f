/* rules.c - see rules.h. Pure. */
#include "kernels/cuda/rules.h"

const struct path_row paths[PATH_COUNT] = {
    /* name        off: rows                              decode     prompt               batch */
    {"ref", {{1, GEMM_ROWS}, {1, GEMM_ROWS}, {1, GEMM_ROWS}, {1, GEMM_ROWS}}},
    {"wgmma", {{WG_ROWS_MIN, WG_ROWS}, {0, 0}, {1, BATCH_ROWS_MAX}, {1, BATCH_ROWS_MAX}}},
    {"cublaslt", {{LT_ABOVE_ROWS + 1, BATCH_ROWS_MAX}, {0, 0}, {0, 0}, {0, 0}}},
    {"cublaslt", {{LT_ABOVE_ROWS_CACHED + 1, BATCH_ROWS_MAX}, {0, 0}, {0, 0}, {0, 0}}},
    {"gemv", {{1, GEMV_ROWS}, {1, GEMM_ROWS}, {1, GEMM_ROWS}, {1, GEMM_ROWS}}},
    {"skinny", {{1, GEMM_ROWS}, {1, GEMM_ROWS}, {1, GEMM_ROWS}, {1, GEMM_ROWS}}},
};

uint32_t paths_for_rows(uint32_t n_row, enum invariance how)
{
    uint32_t set = 0;
    for (int p = 0; p < PATH_COUNT; p++)
        if (n_row && n_row >= paths[p].rows[how].min && n_row <= paths[p].rows[how].max)
            set |= PATH_BIT(p);
    return set;
}

enum path path_best(uint32_t set)
{
    int p = 0;
    while (p < PATH_COUNT && !(set & PATH_BIT(p)))
        p++;
    return (enum path)p;
}

uint32_t acts_to_complete(const struct act_state *s, uint32_t reads, uint32_t writes, uint32_t takes, bool overwrites)
{
    return s->pieces & ~(takes & reads) & (overwrites ? ~0u : reads | writes);
}

uint32_t acts_stale(const struct act_state *s, uint32_t reads, uint32_t takes)
{
    return ((s->pieces & ~takes) | s->lost) & reads;
}

uint32_t acts_read_from(const struct program *p, uint32_t i)
{
    const uint32_t all = ACT_BIT(ACT_COUNT) - 1;
    uint32_t read = 0, anew = 0;
    for (; i < p->n_op && (read | anew) != all; i++) {
        read |= op_reads(&p->op[i]) & ~anew;
        anew |= ACT_BIT(op_writes(&p->op[i]));
    }
    return read;
}

void act_in_pieces(struct act_state *s, enum act a)
{
    s->pieces |= ACT_BIT(a);
    s->lost &= ~ACT_BIT(a);
}

void act_completed(struct act_state *s, enum act a)
{
    s->pieces &= ~ACT_BIT(a);
}

void act_taken(struct act_state *s, enum act a)
{
    s->pieces &= ~ACT_BIT(a);
    s->lost |= ACT_BIT(a);
}

void act_written(struct act_state *s, enum act a)
{
    s->pieces &= ~ACT_BIT(a);
    s->lost &= ~ACT_BIT(a);
}
