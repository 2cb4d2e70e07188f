/*
 * rules.h - the decisions of CUDA's lowering that need no GPU: which path takes how many rows, and which activations
 * are in pieces. plan.cu asks them; tests/unit/kernels/rules checks them on any machine.
 */
#ifndef HEARTH_CUDA_RULES_H
#define HEARTH_CUDA_RULES_H

#include "kernels/backend.h"

enum {
    GEMM_ROWS = 64,            /* rows that a launch of gemv, skinny or ref takes; more rows are several launches */
    GEMV_ROWS = 4,             /* beyond, the others are faster */
    WG_ROWS_MIN = 5,           /* rows of a step through wgmma */
    WG_ROWS = 128,             /* at once: prompts in the invariant mode come in blocks of so many */
    LT_ABOVE_ROWS = 64,        /* more rows than this go through cuBLASLt: measured, see README.md */
    LT_ABOVE_ROWS_CACHED = 32, /* the same where expanded copies of all matrices are there, for prompts */
};

/* --- paths of products --------------------------------------------------------------------------------- */

/* Best first. */
enum path { PATH_REF, PATH_WGMMA, PATH_CUBLASLT, PATH_CUBLASLT_CACHED, PATH_GEMV, PATH_SKINNY, PATH_COUNT };
#define PATH_NONE   PATH_COUNT
#define PATH_BIT(p) (1u << (p))
/* Paths that take all rows of a step in one call, and give the step's activations their form; the others take it in
 * chunks of GEMM_ROWS. */
#define PATHS_WHOLE (PATH_BIT(PATH_WGMMA) | PATH_BIT(PATH_CUBLASLT) | PATH_BIT(PATH_CUBLASLT_CACHED))

struct path_row {
    const char *name;
    struct {
        uint32_t min, max;
    } rows[INVARIANT_PROMPT + 1]; /* that a call takes, by what its bits may depend on; max 0: none */
};
extern const struct path_row paths[PATH_COUNT];

/* The paths whose range has n_row rows, as bits. What else a path asks (types, chip, libraries) its caller knows. */
uint32_t paths_for_rows(uint32_t n_row, enum invariance how);
/* The best path of a set; PATH_NONE of none. */
enum path path_best(uint32_t set);

/* --- activations in pieces ----------------------------------------------------------------------------- */

/*
 * An op of the wgmma path may leave its result in pieces (partial sums) for the op that reads it next and adds them up
 * on its way. Until then the workspace holds a stale value of the activation. This is the state that lowering keeps, so
 * that no op reads one: before an op it completes what the op would find stale, and refuses what cannot be completed.
 */
struct act_state {
    uint32_t pieces; /* in pieces; the workspace is stale */
    uint32_t lost;   /* taken by the op that it was made for, in that op's form: nobody else can read it any more */
};
/* What must be completed before an op that reads and writes these, of which it takes `takes` in pieces by itself.
 * `overwrites`: the op's own pieces will lie where others lie now, so that all must be gone. */
uint32_t acts_to_complete(const struct act_state *s, uint32_t reads, uint32_t writes, uint32_t takes, bool overwrites);
/* What the op would read stale, once that is done: nothing, or lowering has a bug. */
uint32_t acts_stale(const struct act_state *s, uint32_t reads, uint32_t takes);
/* The activations that the ops from i on read as they are before op i: what none of them has written anew by then. */
uint32_t acts_read_from(const struct program *p, uint32_t i);
/* The op before this call left the activation in pieces; completed it; took it for itself alone; or wrote it whole. */
void act_in_pieces(struct act_state *s, enum act a);
void act_completed(struct act_state *s, enum act a);
void act_taken(struct act_state *s, enum act a);
void act_written(struct act_state *s, enum act a);

#endif
