/*
 * plan.cu - lowering: a program's ops become launches, each on the path that suits its rows and types.
 *
 * Two tables decide, and nothing else: `paths` (rules.c) says how many rows a path takes, `lowerings` below which
 * launcher an op has on it. Whether the matrices' types and the chip allow a path is decided by the path's own file
 * (gemv_takes, wg_supports, prefill_available, wcache_has_all). This code runs at capture and in eager steps, not in
 * replayed graphs. Thread: the engine's device thread.
 */
#include "kernels/cuda/gemm/epilogue.cuh"
#include "kernels/cuda/local.cuh"
#include "kernels/cuda/plan.cuh"

#include <assert.h>

/* To add an op: a row, in the order of op.h's list. Without a launcher on a path the op takes the next best path. */
struct lowering {
    enum op_kind kind;
    op_run *only;           /* launcher of an op that has a single path, all rows at once; else NULL, and ... */
    op_run *on[PATH_COUNT]; /* ... the launchers by path */
    uint32_t takes;         /* activations that `only` or the wgmma launcher takes in pieces: it completes ACT_X, and
                               consumes the others; attend_run does either */
};
/* clang-format off */
static const struct lowering lowerings[] = {
    /*                     ref         wgmma      cublaslt        with copies     gemv         skinny        in pieces */
    {OP_EMBED,  embed_run},
    {OP_QKV,    NULL,     {ref_qkv,    wg_qkv,    prefill_qkv,    prefill_qkv,    gemm_qkv,    gemm_qkv},    ACT_BIT(ACT_X)},
    {OP_ATTEND, attend_run, {}, ACT_BIT(ACT_Q)},
    {OP_PROJ,   NULL,     {ref_proj,   wg_proj,   prefill_proj,   prefill_proj,   gemm_proj,   gemm_proj},   ACT_BIT(ACT_FF) | ACT_BIT(ACT_ATT)},
    {OP_FFN_UP, NULL,     {ref_ffn_up, wg_ffn_up, prefill_ffn_up, prefill_ffn_up, gemm_ffn_up, gemm_ffn_up}, ACT_BIT(ACT_X)},
    {OP_HEAD,   NULL,     {ref_head,   wg_head,   NULL,           NULL,           gemm_head,   gemm_head},   ACT_BIT(ACT_X)},
    {OP_ROUTE,  route_run},
    {OP_EXPERTS_UP,   experts_up_run},
    {OP_EXPERTS_DOWN, experts_down_run},
    {OP_PROJECT, NULL,    {ref_project, wg_project, prefill_project, prefill_project, gemm_project, gemm_project}, ACT_BIT(ACT_X)},
    {OP_SHORTCONV, shortconv_run},
    {OP_DELTA,  delta_run},
    {OP_MAMBA2, mamba2_run},
    {OP_INPUTS, NULL,     {inputs_run, NULL,      NULL,           NULL,           inputs_run,  inputs_run}},
    {OP_INPUT_GATE, NULL, {input_gate_run, NULL,  NULL,           NULL,           input_gate_run, input_gate_run}},
    {OP_LATENT,   NULL,   {latent_run, NULL,      NULL,           NULL,           latent_run,  latent_run}},
    {OP_LATENT_Q, NULL,   {latent_q_run, NULL,    NULL,           NULL,           latent_q_run, latent_q_run}},
    {OP_LATENT_OUT, latent_out_run},
};
/* clang-format on */

/* The op's launcher, if it has a single path for all rows at once; else NULL. */
static op_run *only_way(const struct lowering *l, const struct op *o)
{
    return o->kind == OP_PROJECT && wdev_of(o->project.w)->plain ? project_plain : l->only;
}

/* The op's row; NULL where CUDA has none. */
static const struct lowering *lowering_of(enum op_kind kind)
{
    const size_t n = sizeof(lowerings) / sizeof(lowerings[0]);
    return (size_t)kind < n && lowerings[kind].kind == kind ? &lowerings[kind] : NULL;
}

bool plan_is_dense(const struct program *p)
{
    const uint32_t ops =
        1u << OP_EMBED | 1u << OP_QKV | 1u << OP_ATTEND | 1u << OP_PROJ | 1u << OP_FFN_UP | 1u << OP_HEAD;
    bool dense = true;
    for (uint32_t i = 0; i < p->n_op; i++)
        dense = dense && ops >> p->op[i].kind & 1;
    return dense;
}

enum path plan_step_path(const struct device *d, const void *model, uint32_t n_row, bool decode, enum invariance how)
{
    uint32_t can = d->reference ? 0 : paths_for_rows(n_row, how) & PATHS_WHOLE;
    if (can & PATH_BIT(PATH_WGMMA) && wg_supports(d, model))
        return PATH_WGMMA;
    can &= ~PATH_BIT(PATH_WGMMA);
    if (can && !prefill_available(d))
        return PATH_NONE;
    /* With expanded copies cuBLASLt is worth while for fewer rows; but a decode step's bits must not depend on whether
     * there are copies. */
    if (can == PATH_BIT(PATH_CUBLASLT_CACHED) && (decode || !wcache_has_all(d, model)))
        return PATH_NONE;
    return path_best(can);
}

/* The path of a call of n_row rows of the op, in a step whose path is `step`; PATH_NONE: there is none. */
static enum path call_path(const struct device *d, const struct lowering *l, const struct op *o, enum path step,
                           uint32_t n_row, enum invariance how)
{
    uint32_t can = paths_for_rows(n_row, how) & (step == PATH_NONE ? ~PATHS_WHOLE : ~PATHS_WHOLE | PATH_BIT(step));
    if (how == INVARIANT_PROMPT && o->kind == OP_HEAD)
        can &= ~PATHS_WHOLE; /* the head's rows are few, and their bits must not depend on how many there are */
    can &= d->reference ? PATH_BIT(PATH_REF) : ~PATH_BIT(PATH_REF);
    for (int p = 0; p < PATH_COUNT; p++)
        if (!l->on[p])
            can &= ~PATH_BIT(p);
    if (can & PATH_BIT(PATH_WGMMA) && !wg_can_run(o))
        can &= ~PATH_BIT(PATH_WGMMA);
    if (can & PATH_BIT(PATH_GEMV) && (!op_weight(o) || !gemv_takes(d, o)))
        can &= ~PATH_BIT(PATH_GEMV);
    return path_best(can);
}

static const char *path_name(const struct device *d, const struct op *o, enum path path, uint32_t rows)
{
    if (path == PATH_GEMV && !gemm_ends_here(d, o, path, rows))
        return "gemv+epilogue";
    if (path == PATH_SKINNY && !gemm_ends_here(d, o, path, rows))
        return "skinny+epilogue";
    return path == PATH_NONE ? NULL : paths[path].name;
}

const char *op_path(struct device *d, const struct program *p, uint32_t i, uint32_t n_row, enum invariance how)
{
    const struct op *o = &p->op[i];
    const struct lowering *l = lowering_of(o->kind);
    if (cuda_lacks(o))
        return NULL;
    if (o->kind == OP_ATTEND && n_row == 1 && !attend_one(&o->attend))
        return "one+plan";
    if (o->kind == OP_EXPERTS_UP || o->kind == OP_EXPERTS_DOWN)
        return experts_path(d, o, n_row, how != INVARIANT_OFF);
    if (!l || only_way(l, o))
        return l ? "one" : NULL;
    if (how == INVARIANT_BATCH && !plan_is_dense(p))
        how = INVARIANT_DECODE;
    enum path step = plan_step_path(d, p->model, n_row, true, how), path;
    if (how == INVARIANT_BATCH && step == PATH_NONE)
        how = INVARIANT_DECODE;
    path = call_path(d, l, o, step, n_row, how);
    if (path == PATH_NONE) /* the op goes in chunks; the first is the longest */
        path = call_path(d, l, o, step, n_row < GEMM_ROWS ? n_row : GEMM_ROWS, how);
    return path_name(d, o, path, n_row < GEMM_ROWS ? n_row : GEMM_ROWS);
}

bool prompt_is_quick(struct device *d, const void *model, const struct kv_desc *kv, uint32_t n_group)
{
    bool all = plan_step_path(d, model, 1, false, INVARIANT_PROMPT) != PATH_NONE;
    for (uint32_t g = 0; g < n_group; g++)
        all = all && attend_has_prompts(&kv[g]);
    return all;
}

void plan_complete(struct device *d, struct op_call *p, uint32_t acts)
{
    acts &= p->acts.pieces;
    if (acts & ACT_BIT(ACT_X)) {
        if (p->x_experts.y)
            expert_sums_run(d, &p->x_experts);
        if (p->x.p)
            reduce_to_x(d, &p->x, p->x_bias, p->x_n, d->bucket);
        x_completed(p);
    }
    if (acts & ACT_BIT(ACT_Q)) {
        qkv_reduce_run(d, p->q_op, &p->q, d->bucket);
        act_completed(&p->acts, ACT_Q);
    }
    if (acts & ACT_BIT(ACT_ATT))
        act_taken(&p->acts, ACT_ATT); /* made for a product that did not follow; no other op can read its form */
    if (acts & ACT_BIT(ACT_FF) && p->ff_made)
        act_taken(&p->acts, ACT_FF); /* likewise */
    else if (acts & ACT_BIT(ACT_FF)) {
        glu_reduce_run(d, &p->ff_op, &p->ff, d_ff_of(&p->ff_op), &d->ws.ff, d->bucket);
        act_completed(&p->acts, ACT_FF);
    }
}

/* Calls a launcher, and makes sure that it reads no activation that is not whole. */
static void call(struct device *d, struct op_call *p, const struct op *o, op_run *run, uint32_t takes)
{
    uint32_t reads = op_reads(o), writes = ACT_BIT(op_writes(o));
    takes &= reads & ~(p->read_again & ~ACT_BIT(ACT_X));
    plan_complete(d, p, acts_to_complete(&p->acts, reads, writes, takes, p->path == PATH_WGMMA));
    assert(!(p->acts.pieces & reads & ~takes));
    uint32_t stale = acts_stale(&p->acts, reads, takes);
    if (stale) {
        cuda_refuse(d, HEARTH_EINTERNAL, "%s would read activations that are not whole: set %#x", op_name(o->kind),
                    stale);
        return;
    }
    if (!(reads & writes))
        act_written(&p->acts, op_writes(o)); /* unless the launcher records otherwise */
    run(d, p, o);
}

static void lower(struct device *d, struct op_call *p, const struct op *o)
{
    const struct lowering *l = lowering_of(o->kind);
    const char *lacks = cuda_lacks(o);
    uint32_t rows = op_writes(o) == ACT_LOGITS ? d->out_bucket : d->bucket;
    if (o == p->shared[0] || o == p->shared[1])
        return;
    p->path = PATH_NONE, p->row0 = 0, p->bucket = rows;
    if (!l) {
        cuda_refuse(d, HEARTH_EUNSUPPORTED, "the GPU has no launcher for the op %s", op_name(o->kind));
        return;
    }
    if (lacks) {
        cuda_refuse(d, HEARTH_EUNSUPPORTED, "%s: the GPU has no kernel for %s", op_name(o->kind), lacks);
        return;
    }
    if (only_way(l, o)) {
        uint32_t takes = only_way(l, o) == l->only ? l->takes : 0;
        if (o->kind == OP_ROUTE && route_takes_pieces(d, p, o))
            takes |= ACT_BIT(ACT_X);
        call(d, p, o, only_way(l, o), takes);
        return;
    }
    p->path = call_path(d, l, o, d->path, rows, d->invariant);
    if (p->path != PATH_NONE && PATHS_WHOLE & PATH_BIT(p->path)) {
        uint32_t takes = p->path == PATH_WGMMA ? l->takes : 0;
        if (takes && o->kind == OP_PROJ && !proj_apart(&o->proj) && only_experts_left(p))
            takes |= ACT_BIT(ACT_X); /* the proj of a shared expert */
        step_count(d, path_name(d, o, p->path, rows), rows);
        call(d, p, o, l->on[p->path], takes);
        return;
    }
    for (; p->row0 < rows && !d->err.code; p->row0 += GEMM_ROWS) {
        p->bucket = rows - p->row0 < GEMM_ROWS ? rows - p->row0 : GEMM_ROWS;
        p->path = call_path(d, l, o, PATH_NONE, p->bucket, d->invariant);
        if (p->path == PATH_NONE)
            cuda_refuse(d, HEARTH_EUNSUPPORTED, "no path for %u rows of the op %s", p->bucket, op_name(o->kind));
        else {
            step_count(d, path_name(d, o, p->path, p->bucket), p->bucket);
            call(d, p, o, l->on[p->path], 0);
        }
    }
}

/* Refuses matrices of other models: the step's path was chosen for those of the program's model. */
static bool same_model(struct device *d, const struct program *p)
{
    for (uint32_t i = 0; i < p->n_op; i++) {
        const struct weight *w = op_weight(&p->op[i]);
        if (p->op[i].kind != OP_EMBED && w && w->model != p->model) {
            cuda_refuse(d, HEARTH_EPARAMS, "an op multiplies by a matrix of another model than the step's");
            return false;
        }
    }
    return true;
}

void plan_run(struct device *d, const struct program *program)
{
    struct op_call p = {};
    if (!same_model(d, program))
        return;
    spill_begin(d, program);
    p.end = program->op + program->n_op;
    for (uint32_t i = 0; i < program->n_op && !d->err.code; i++) {
        const struct op *o = &program->op[i];
        bool alone = i + 1 < program->n_op && !(acts_read_from(program, i + 2) & ACT_BIT(op_writes(o)));
        p.reader = alone ? o + 1 : NULL;
        p.read_again = acts_read_from(program, i + 1);
        p.next = i + 1 < program->n_op ? o + 1 : NULL;
        spill_op(d, o);
        lower(d, &p, o);
        spill_op_end(d);
    }
    plan_complete(d, &p, ~0u);
}
