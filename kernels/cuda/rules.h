/*
 * rules.h - the decisions of CUDA's lowering that need no GPU: which path takes how many rows, and which activations
 * are in pieces (partial sums that are not added up yet). plan.cu uses them; tests/unit/kernels/rules checks them on
 * any machine.
 */
#ifndef HEARTH_CUDA_RULES_H
#define HEARTH_CUDA_RULES_H

#include "kernels/backend.h"

enum {
    GEMM_ROWS = 64,            /* rows that a launch of gemv, skinny or ref takes; more rows are several launches */
    GEMV_ROWS = 4,             /* with more rows, the other paths are faster */
    WG_ROWS_MIN = 5,           /* fewest rows in a step that takes wgmma */
    WG_ROWS = 128,             /* most rows; INVARIANT_PROMPT and _BATCH process more in blocks of so many */
    LT_ABOVE_ROWS = 64,        /* more rows than this go through cuBLASLt: measured, see tests/bench/lab/NOTES.md */
    LT_ABOVE_ROWS_CACHED = 32, /* the same, for prompts, while there are expanded copies of all matrices */
};

/* --- paths of products --------------------------------------------------------------------------------- */

/* Best first. */
enum path { PATH_REF, PATH_WGMMA, PATH_CUBLASLT, PATH_CUBLASLT_CACHED, PATH_GEMV, PATH_SKINNY, PATH_COUNT };
#define PATH_NONE   PATH_COUNT
#define PATH_BIT(p) (1u << (p))
/* Paths that take all rows of a step in one call, and decide the layout of the step's activations; the others take the
 * rows in chunks of GEMM_ROWS. */
#define PATHS_WHOLE (PATH_BIT(PATH_WGMMA) | PATH_BIT(PATH_CUBLASLT) | PATH_BIT(PATH_CUBLASLT_CACHED))

struct path_row {
    const char *name;
    struct {
        uint32_t min, max;
    } rows[INVARIANCES]; /* numbers of rows that a call takes, by enum invariance; max 0: none */
};
extern const struct path_row paths[PATH_COUNT];

/* The set of paths whose range includes n_row rows. A path's other conditions (types, chip, libraries) are up to the
 * caller. */
uint32_t paths_for_rows(uint32_t n_row, enum invariance how);
/* The best path of a set; PATH_NONE for the empty set. */
enum path path_best(uint32_t set);

/* --- activations in pieces ----------------------------------------------------------------------------- */

/*
 * An op of the wgmma path may leave its result in pieces (partial sums) for the next op that reads it, which adds them
 * up as it reads. Until then the workspace holds a stale value of the activation. Lowering keeps this state so that no
 * op reads a stale value: before an op it completes what the op would find stale, and refuses what cannot be completed.
 * All fields and arguments are sets of activations.
 */
struct act_state {
    uint32_t pieces; /* in pieces; the workspace is stale */
    uint32_t lost;   /* consumed by the op that it was made for, in that op's own form: no other op can read it */
};
/* What must be completed before an op that reads and writes these, of which it takes `takes` in pieces by itself.
 * `overwrites`: the op's own partial sums will overwrite the present ones, so that all must be completed. */
uint32_t acts_to_complete(const struct act_state *s, uint32_t reads, uint32_t writes, uint32_t takes, bool overwrites);
/* What the op would then still read stale: the empty set, or lowering has a bug. */
uint32_t acts_stale(const struct act_state *s, uint32_t reads, uint32_t takes);
/* The activations whose value before op i is read by op i or a later one, i.e. read before they are written anew. */
uint32_t acts_read_from(const struct program *p, uint32_t i);
/* Record that an op left the activation in pieces; completed it; consumed it; or wrote it whole. */
void act_in_pieces(struct act_state *s, enum act a);
void act_completed(struct act_state *s, enum act a);
void act_taken(struct act_state *s, enum act a);
void act_written(struct act_state *s, enum act a);

#endif
