/*
 * alu.h - how rows of arithmetic are written: a function computes a result from the operands of every lane, and
 * put32(), put64() or put_pred() stores it in the lanes that execute.
 */
#ifndef HEARTH_SIM_ALU_H
#define HEARTH_SIM_ALU_H

#include "tests/sim/machine.h"

#define EACH for (int l = 0; l < LANES; l++)

/* Results of up to 32 bits; of 64; predicates. A, B and C are the lane's operands with the types that the row gives. */
#define OP(PUT, BITS, NAME, TA, TB, TC, TD, EXPR)         \
    static void NAME(struct warp *w, const struct ins *i) \
    {                                                     \
        const TA *a = at(w, i->a);                        \
        const TB *b = at(w, i->b);                        \
        const TC *c = at(w, i->c);                        \
        TD t[LANES];                                      \
        EACH                                              \
        {                                                 \
            const TA A = a[l];                            \
            const TB B = b[l];                            \
            const TC C = c[l];                            \
            (void)A, (void)B, (void)C;                    \
            t[l] = EXPR;                                  \
        }                                                 \
        PUT(w, i->d, (const BITS *)t);                    \
    }
#define OP32(NAME, TA, TB, TC, TD, EXPR) OP(put32, uint32_t, NAME, TA, TB, TC, TD, EXPR)
#define OP64(NAME, TA, TB, TC, TD, EXPR) OP(put64, uint64_t, NAME, TA, TB, TC, TD, EXPR)
#define U                                uint32_t
#define S                                int32_t
#define L                                uint64_t
#define Q                                int64_t
#define F                                float
#define D                                double

/* Lists of rows, each ended by a row without a name. The widths are those of the result, then of the sources. 3: up to
 * 32 bits per lane; 6: 64 bits; p: a predicate. */
extern const struct alu_row sim_alu_whole[], sim_alu_float[], sim_alu_compare[];

#endif
