/*
 * tuned.h - the tuned kernels, written once over sixteen lanes; avx2.c, avxvnni.c and avx512.c each include it after
 * defining the lanes. They are bit-identical to reference.c: cpu.h defines the dot product's order of operations.
 *
 * One row (decode): blocks are expanded in registers and multiplied right away, four weight rows side by side so that
 * the chains of additions overlap. More rows (prefill, batches): MATMUL_ROWS weight rows by KB columns are expanded
 * once into a panel in L1, and a tile of 4 weight rows x 3 tokens runs over it with its sums in registers, one
 * register's lanes after the other. Both paths do the same additions, in the same order, in each lane of a sum.
 *
 * Types of QUANTS_INT are multiplied in integers instead: tuned-int.h, tuned-tile.h.
 *
 * Thread: the pool's, each its own items.
 */

#include "kernels/cpu/tuned-dot.h"
#include "kernels/cpu/tuned-vec.h"

#define TUNED_TABLE(variant)                                                                                       \
    {                                                                                                              \
        .name = variant, .usable = TUNED(usable), .matmul = TUNED(matmul), .kblock = TUNED(kblock),                \
        .norm = TUNED(norm), .glu = TUNED(glu), .attend = TUNED(attend), .softcap = TUNED(softcap),                \
        .rope = TUNED(rope), .exp = TUNED(exp), .f16 = TUNED(f16), .delta = TUNED(delta), .mamba2 = TUNED(mamba2), \
    }
