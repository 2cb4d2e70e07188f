/*
 * selfcheck.c - the start-up self-check finds a fault and names it, and passes a sound device.
 *
 *     tests/unit/selfcheck/selfcheck [BACKEND [MODEL...]]      default: "cpu" and the models in and beside the tree
 *
 * A function table that wraps a device's own breaks the device: it computes the right result and then spoils one row of
 * one op's output, for one type of weights, or one page, or one token, or only whole steps (and not the same ops one by
 * one).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/engine/selfcheck/selfcheck.h"
#include "daemon/model/file.h"
#include "tests/golden/run.h"

static const struct backend *real;
static bool batches = true; /* steps of INVARIANT_BATCH are checked, too */
static const char *variant = "auto", *ref_variant = "reference";
static char **named; /* models of the command line */
static int n_named;

/* --- the broken function table --------------------------------------------------------------------------- */

static struct {
    int op;          /* of enum op_kind, or one of the kinds below; -1: nothing is broken */
    int type;        /* type of the first part of the op's weight; -1: any */
    uint32_t row;    /* the row of the step */
    bool whole_only; /* only in steps that are not run op by op */
    bool in_company; /* only in steps of several ops */
    bool in_batches; /* only in steps of INVARIANT_BATCH */
    bool batch;      /* the current step is one */
    bool one_by_one; /* ... is run op by op */
    bool single;     /* the current step has one op */
    uint32_t n_row;
    struct kv_pool *kv;
    struct kv_desc desc;
    uint32_t page, slot;
    bool pending; /* spoil the page after the step */
    uint32_t pending_layer;
} broken;
enum { KV_APPEND = OP_COUNT, KV_STRAY, PAGE_COPY, PAGE_CLEAR, TOKEN };

static bool hits(int op, const struct weight *w)
{
    return broken.op == op && broken.row < broken.n_row &&
           (broken.type < 0 || !w || w->part[0].type == (enum dtype)broken.type) &&
           !(broken.whole_only && broken.one_by_one) && !(broken.in_company && broken.single) &&
           !(broken.in_batches && !broken.batch);
}

static void spoil(struct device *d, enum act a, uint32_t width)
{
    float *v = malloc(width * sizeof *v);
    struct hearth_err e;
    assert_non_null(v);
    assert_int_equal(real->act_read(d, a, broken.row, 1, v, &e), 0);
    for (uint32_t i = 0; i < width; i++)
        v[i] = v[i] * 1.25f + 0.01f;
    assert_int_equal(real->act_write(d, a, broken.row, 1, width, v, &e), 0);
    free(v);
}

static int b_kv_new(struct device *d, const struct kv_desc *desc, struct kv_pool **out, struct hearth_err *e)
{
    broken.desc = *desc;
    int rc = real->kv_new(d, desc, out, e);
    broken.kv = *out;
    return rc;
}
static void locate(const struct batch *b)
{
    broken.n_row = b->n_row;
    broken.one_by_one = b->once;
    broken.batch = b->invariant == INVARIANT_BATCH;
    broken.pending = false;
    for (uint32_t s = 0; s < b->n_seq; s++) {
        const struct batch_seq *q = &b->seq[s];
        uint32_t pos = q->pos0 + broken.row - q->row0;
        if (broken.row < q->row0 || broken.row >= q->row0 + q->n_row)
            continue;
        broken.page = q->pages[0][pos / KV_PAGE];
        broken.slot = pos % KV_PAGE;
    }
}
/* The ops up to and including a broken one are run as a step, the output is spoilt, and the next step continues from
 * there. */
static uint64_t b_step_run(struct device *d, const struct batch *b, const struct program *p)
{
    struct batch piece = *b;
    struct hearth_err e;
    uint32_t from = 0;
    locate(b);
    broken.single = p->n_op == 1;
    piece.once = true;
    piece.sample.n = 0;
    for (uint32_t i = 0; i < p->n_op; i++) {
        const struct op *o = &p->op[i];
        if (o->kind == OP_QKV && (hits(KV_APPEND, o->qkv.w) || hits(KV_STRAY, o->qkv.w))) {
            broken.pending = true;
            broken.pending_layer = o->qkv.layer;
        }
        if (!hits((int)o->kind, op_weight(o)))
            continue;
        struct program until = program_of(p->model, p->op + from, i + 1 - from);
        assert_int_equal(real->step_wait(d, real->step_run(d, &piece, &until), NULL, 0, &e), 0);
        spoil(d, op_writes(o), op_columns(o, op_writes(o)));
        from = i + 1;
    }
    if (!from)
        return real->step_run(d, b, p);
    struct program rest = program_of(p->model, p->op + from, p->n_op - from);
    piece.sample = b->sample;
    return real->step_run(d, &piece, &rest);
}
static void move(struct device *d, uint32_t page, void (*change)(uint8_t *))
{
    void *host;
    struct hearth_err e;
    assert_int_equal(real->host_alloc(d, kv_page_bytes(&broken.desc), &host, &e), 0);
    assert_int_equal(real->kv_transfer_wait(d, real->kv_save(d, broken.kv, &page, &host, 1), &e), 0);
    change(host);
    const void *from = host;
    assert_int_equal(real->kv_transfer_wait(d, real->kv_load(d, broken.kv, &page, &from, 1), &e), 0);
    real->host_free(d, host);
}
/* Changes the V of all heads that was appended, or, for KV_STRAY, a slot that no row has; the same steps run again do
 * not undo that. */
static void change_kv(uint8_t *page)
{
    const struct kv_desc *k = &broken.desc;
    uint32_t slot = broken.op == KV_STRAY ? (broken.slot + 5) % KV_PAGE : broken.slot;
    for (uint32_t h = 0; h < k->n_kv; h++) {
        uint8_t *at = page + kv_vector_at(k, broken.pending_layer, true, h, slot);
        for (uint32_t i = 0; i < k->d_v; i++) {
            uint8_t *last = &at[dtype_bytes((int)k->type, i + 1) - 1];
            *last = broken.op == KV_STRAY ? 0x15 : *last ^ 0x04; /* a bit of the exponent */
        }
    }
}
static int b_step_wait(struct device *d, uint64_t ticket, struct sampled *out, uint32_t n, struct hearth_err *e)
{
    int rc = real->step_wait(d, ticket, out, n, e);
    if (!rc && broken.pending)
        move(d, broken.page, change_kv);
    broken.pending = false;
    if (!rc && n && hits(TOKEN, NULL))
        out[broken.row].token ^= 1;
    return rc;
}
static void flip(uint8_t *page)
{
    page[kv_page_bytes(&broken.desc) - 1] ^= 1;
}
static void b_kv_copy(struct device *d, struct kv_pool *p, uint32_t dst, uint32_t src)
{
    real->kv_copy(d, p, dst, src);
    if (broken.op == PAGE_COPY)
        move(d, dst, flip);
}
static void b_kv_clear(struct device *d, struct kv_pool *p, uint32_t page)
{
    real->kv_clear(d, p, page);
    if (broken.op == PAGE_CLEAR)
        move(d, page, flip);
}

/* --- a model --------------------------------------------------------------------------------------------- */

struct bed {
    struct backend table;
    struct device *d;
    struct device_info info;
    struct gguf *g;
    struct model *m;
};

static enum dtype kv_type; /* the KV type with which devices are opened */

static void bed_open(struct bed *b, const char *path)
{
    struct workspace_dims dims = {.n_row = 64, .n_out = 64};
    b->table = *real;
    b->table.kv_new = b_kv_new, b->table.kv_copy = b_kv_copy, b->table.kv_clear = b_kv_clear;
    b->table.step_run = b_step_run, b->table.step_wait = b_step_wait;
    MUST(real->open(&b->d, &(struct device_params){.variant = variant, .threads = 2, .kv_type = kv_type}, &e));
    real->info(b->d, &b->info);
    MUST(model_file_open(&b->g, path, &e));
    MUST(model_load(&b->m, b->g, &b->table, b->d, NULL, NULL, &e));
    model_workspace(b->m, &dims);
    MUST(real->reserve(b->d, &dims, &e));
    memset(&broken, 0, sizeof broken);
    broken.op = broken.type = -1;
}

static void bed_close(struct bed *b)
{
    model_free(b->m);
    real->close(b->d);
    gguf_close(b->g);
}

static struct selfcheck check(struct bed *b)
{
    struct selfcheck s;
    MUST(selfcheck_run(b->m, backend_find("cpu"), &(struct device_params){.variant = ref_variant, .threads = 2},
                       batches, &s, &e));
    return s;
}

static const char tale[] = "contrib/models/tale-q4_k_m.gguf";

static void sound(const char *path)
{
    struct bed b;
    bed_open(&b, path);
    for (int turn = 0; turn < 3; turn++) { /* from the second time on, code and memory are warm */
        struct selfcheck s = check(&b);
        print_message("# %s on %s: %u ops in %.1f ms, the device %.1f\n", path, b.info.name, s.n_op, s.ms, s.device_ms);
        assert_string_equal(s.failed, "");
        assert_true(s.n_op >= (b.m->hp.kv[0].d_state ? 5 : 6));
    }
    bed_close(&b);
}

static void a_sound_device_passes(void **state)
{
    (void)state;
    static const char *const models[] = {tale,
                                         "models/tale/tale-f16.gguf",
                                         "models/tale/tale-q8_0.gguf",
                                         "models/tale/tale-q6_k.gguf",
                                         "models/tale/tale-q5_k_m.gguf",
                                         "models/tale/tale-q4_0.gguf",
                                         "models/tiny/qwen2.gguf",
                                         "models/tiny/llama-rope3.gguf",
                                         "models/hf-tiny/qwen2_moe",
                                         "models/hf-tiny/qwen3_moe",
                                         "models/hf-tiny/glm4_moe",
                                         "models/hf-tiny/dots1",
                                         "models/hf-tiny/gpt_oss",
                                         "models/hf-tiny/gemma4_text",
                                         "models/hf-tiny/gemma4-moe",
                                         "models/hf-tiny/gemma4-e4b",
                                         "models/hf-tiny/deepseek_v3",
                                         "models/hf-tiny/lfm2_moe",
                                         "models/hf-tiny/qwen3_next",
                                         "models/hf-tiny/qwen3_5_text",
                                         "models/hf-tiny/mamba2",
                                         "models/hf-tiny/nemotron_h",
                                         "models/hf-tiny/olmo2",
                                         "models/hf-tiny/olmo3",
                                         "tests/golden/data/hf/olmoe",
                                         "tests/golden/data/hf/nemotron_h-latent"};
    char path[4096];
    for (int i = 0; i < n_named; i++)
        sound(named[i]);
    for (size_t i = 0; i < sizeof models / sizeof *models && !n_named; i++)
        if (run_path(path, models[i]))
            sound(path);
}

static void a_sound_device_passes_with_q8_0(void **state)
{
    (void)state;
    static const char *const models[] = {tale, "models/tiny/llama-rope3.gguf", "models/hf-tiny/cohere2"};
    char path[4096];
    kv_type = DT_Q8_0;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (run_path(path, models[i]))
            sound(path);
    kv_type = DT_F32;
}

static void every_broken_op_is_named(void **state)
{
    (void)state;
    static const struct {
        int op;
        const char *name, *also;
    } kinds[] = {
        {OP_EMBED, "embed (", "row"},        {OP_QKV, "qkv (", "row"},       {OP_ATTEND, "attend (", "row"},
        {OP_PROJ, "proj (", "row"},          {OP_FFN_UP, "ffn_up (", "row"}, {OP_HEAD, "head (", "row"},
        {KV_APPEND, "qkv (", "in its page"}, {KV_STRAY, "qkv", "changed"},   {PAGE_COPY, "kv_copy", "page"},
        {PAGE_CLEAR, "kv_clear", "page"},    {TOKEN, "sample (", "token"},
    };
    char path[4096];
    struct bed b;
    assert_non_null(run_path(path, tale));
    bed_open(&b, path);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (uint32_t row = 0; row < (kinds[i].op < PAGE_COPY ? 5 : 3);
             row++) { /* rows from 3 on exist only in prompts */
            broken.op = kinds[i].op;
            broken.row = row;
            struct selfcheck s = check(&b);
            if (row == 0)
                print_message("# %s\n", s.failed);
            if (strncmp(s.failed, kinds[i].name, strlen(kinds[i].name)) || !strstr(s.failed, kinds[i].also))
                fail_msg("a broken %s, row %u: \"%s\"", kinds[i].name, row, s.failed);
        }
    bed_close(&b);
}

struct kind {
    int op;
    const char *name;
};

/* Breaks each of the n kinds of op of a model that has them. */
static void named_in(const char *model, const struct kind *kinds, size_t n)
{
    char path[4096];
    struct bed b;
    if (!run_path(path, model))
        skip();
    bed_open(&b, path);
    for (size_t i = 0; i < n; i++)
        for (uint32_t row = 0; row < 5; row++) {
            broken.op = kinds[i].op;
            broken.row = row;
            struct selfcheck s = check(&b);
            if (strncmp(s.failed, kinds[i].name, strlen(kinds[i].name)) || !strstr(s.failed, "row"))
                fail_msg("a broken %s, row %u: \"%s\"", kinds[i].name, row, s.failed);
        }
    bed_close(&b);
}

static void a_broken_mixture_is_named(void **state)
{
    (void)state;
    static const struct kind kinds[] = {
        {OP_ROUTE, "route ("}, {OP_EXPERTS_UP, "experts_up ("}, {OP_EXPERTS_DOWN, "experts_down ("}};
    named_in("models/hf-tiny/gpt_oss", kinds, 3);
}

static void a_broken_layer_is_named(void **state)
{
    (void)state;
    static const struct kind mixture[] = {{OP_ROUTE, "route ("},
                                          {OP_PROJ, "proj ("},
                                          {OP_EXPERTS_DOWN, "experts_down ("}},
                             inputs[] = {{OP_INPUTS, "inputs ("}, {OP_INPUT_GATE, "input_gate ("}, {OP_QKV, "qkv ("}},
                             latent[] = {{OP_LATENT, "latent ("},
                                         {OP_LATENT_Q, "latent_q ("},
                                         {OP_ATTEND, "attend"},
                                         {OP_LATENT_OUT, "latent_out ("}},
                             experts[] = {{OP_PROJECT, "project ("},
                                          {OP_EXPERTS_UP, "experts_up ("},
                                          {OP_EXPERTS_DOWN, "experts_down ("}},
                             norms[] = {{OP_QKV, "qkv ("}, {OP_ATTEND, "attend"}, {OP_PROJ, "proj ("}};
    named_in("models/hf-tiny/gemma4-moe", mixture, 3);
    named_in("models/hf-tiny/gemma4-e4b", inputs, 3);
    named_in("models/hf-tiny/deepseek_v3", latent, 4);
    named_in("tests/golden/data/hf/nemotron_h-latent", experts, 3);
    named_in("models/hf-tiny/olmo2", norms, 3);
}

static void a_broken_state_is_named(void **state)
{
    (void)state;
    static const struct kind shortconv[] = {{OP_PROJECT, "project ("}, {OP_SHORTCONV, "shortconv"}},
                             delta[] = {{OP_DELTA, "delta"}, {OP_QKV, "qkv ("}, {OP_ATTEND, "attend"}},
                             mamba2[] = {{OP_MAMBA2, "mamba2"}};
    named_in("models/hf-tiny/lfm2", shortconv, 2);
    named_in("models/hf-tiny/qwen3_next", delta, 3);
    named_in("models/hf-tiny/mamba2", mamba2, 1);
}

/* A fault in products with one weight type is reported with that type. */
static void a_type_is_named(void **state)
{
    (void)state;
    static const int ops[] = {OP_QKV, OP_PROJ};
    struct bed b;
    char path[4096];
    assert_non_null(run_path(path, tale));
    bed_open(&b, path);
    for (size_t i = 0; i < 2; i++)
        for (int type = 0; type < DT_COUNT; type++) {
            bool used = false;
            struct op_list list, step;
            struct hearth_err e;
            assert_int_equal(ops_collect(&b.m->program, &list, &step, &e), 0);
            for (uint32_t k = 0; k < list.n; k++)
                used |=
                    list.op[k].kind == (enum op_kind)ops[i] && op_weight(&list.op[k])->part[0].type == (enum dtype)type;
            broken.op = ops[i];
            broken.type = type;
            struct selfcheck s = check(&b);
            assert_int_equal(s.failed[0] != 0, used);
            assert_true(!used || strstr(s.failed, dtype_get(type)->name));
            op_list_free(&list);
            op_list_free(&step);
        }
    bed_close(&b);
}

/* Breaks each op of tale in turn, in row `row`, and calls f. */
static void each_op_broken(uint32_t row, void (*f)(struct bed *b, int op))
{
    struct bed b;
    char path[4096];
    assert_non_null(run_path(path, tale));
    bed_open(&b, path);
    for (int op = OP_EMBED; op <= OP_HEAD; op++) {
        broken.op = op, broken.row = row;
        f(&b, op);
    }
    bed_close(&b);
}

static void says(struct bed *b, int op, const char *what)
{
    struct selfcheck s = check(b);
    if (!strstr(s.failed, what))
        fail_msg("op %d: \"%s\"", op, s.failed);
}

/* Faults that appear only in a whole step, as with a captured graph. */
static void in_a_whole_step(struct bed *b, int op)
{
    broken.whole_only = true;
    says(b, op, "a whole step");
}

static void a_whole_step_is_compared(void **state)
{
    (void)state;
    each_op_broken(0, in_a_whole_step);
}

static void in_a_batch(struct bed *b, int op)
{
    broken.in_batches = true;
    says(b, op, "row 4 of 5 of a batch");
    batches = false;
    struct selfcheck s = check(b);
    batches = true;
    assert_string_equal(s.failed, "");
}

static void batches_are_checked_where_they_are_wanted(void **state)
{
    (void)state;
    each_op_broken(4, in_a_batch);
}

/* A row differs from the same row in a step of its own, although each op is right: the op after which the difference
 * begins is reported. */
static void a_row_apart_is_named(void **state)
{
    (void)state;
    static const struct kind kinds[] = {{OP_ATTEND, "first apart after attend"},
                                        {OP_FFN_UP, "first apart after ffn_up"}};
    struct bed b;
    char path[4096];
    assert_non_null(run_path(path, tale));
    bed_open(&b, path);
    for (size_t i = 0; i < 2; i++) {
        broken.op = kinds[i].op;
        broken.row = 1;
        broken.in_company = true;
        struct selfcheck s = check(&b);
        if (!strstr(s.failed, "a whole step") || !strstr(s.failed, kinds[i].name))
            fail_msg("%s: \"%s\"", kinds[i].name, s.failed);
    }
    bed_close(&b);
}

/* The op that wrote the activation `a` that op i reads, or NULL. */
static const struct op *written_by(const struct op *op, uint32_t i, int a)
{
    while (i && op_writes(&op[i - 1]) != (enum act)a)
        i--;
    return i ? &op[i - 1] : NULL;
}

/* Whether the program has an op of the kind and weight of `then` that reads, as activation `a`, the output of one of
 * the kind and weight of `first`. */
static bool follows(const struct program *p, const struct op *first, const struct op *then, int a)
{
    for (uint32_t i = 0; i < p->n_op; i++) {
        const struct op *by = written_by(p->op, i, a);
        if (p->op[i].kind == then->kind && op_weight(&p->op[i]) == op_weight(then) && by && by->kind == first->kind &&
            op_weight(by) == op_weight(first))
            return true;
    }
    return false;
}

/* A mixture-of-experts model with shared experts, whose last `down` has another type than the others: in the
 * self-check's step, too, it reads what the `up` of its own layer wrote. */
static void a_step_reads_what_it_wrote(void **state)
{
    (void)state;
    struct bed b;
    struct hearth_err e;
    struct op_list list, step;
    char path[4096];
    if (!run_path(path, "models/hf-tiny/qwen3_5_moe_text"))
        skip();
    bed_open(&b, path);
    struct program p = b.m->program;
    struct op *op = malloc(p.n_op * sizeof *op), *down = NULL;
    assert_non_null(op);
    memcpy(op, p.op, p.n_op * sizeof *op);
    p.op = op;
    for (uint32_t i = 0; i < p.n_op; i++)
        if (op[i].kind == OP_PROJ && op[i].proj.in == ACT_FF)
            down = &op[i];
    assert_non_null(down);
    struct weight other = *down->proj.w;
    other.part[0].type = other.part[0].type == DT_F16 ? DT_BF16 : DT_F16;
    down->proj.w = &other;
    assert_int_equal(ops_collect(&p, &list, &step, &e), 0);
    bool found = false;
    for (uint32_t i = 0; i < step.n; i++)
        for (int a = ACT_X + 1; a < ACT_COUNT; a++)
            if (op_reads(&step.op[i]) & ACT_BIT(a)) {
                const struct op *by = written_by(step.op, i, a);
                assert_non_null(by);
                assert_true(follows(&p, by, &step.op[i], a));
                found |= op_weight(&step.op[i]) == &other;
            }
    assert_true(found);
    op_list_free(&list);
    op_list_free(&step);
    free(op);
    bed_close(&b);
}

/* Layers that differ only in a factor of their results are not different ops. There may be any number of different
 * ops. */
static void a_model_may_have_many_layers(void **state)
{
    (void)state;
    enum { COPIES = 40 };
    struct bed b;
    struct hearth_err e;
    struct op_list list, step;
    char path[4096];
    if (!run_path(path, "models/hf-tiny/gemma4-moe"))
        skip();
    bed_open(&b, path);
    struct program p = b.m->program;
    uint32_t n = p.n_op;
    struct op *op = malloc((size_t)COPIES * n * sizeof *op);
    assert_non_null(op);
    assert_int_equal(ops_collect(&p, &list, &step, &e), 0);
    uint32_t n_list = list.n, n_step = step.n, scaled = 0;
    op_list_free(&list);
    op_list_free(&step);
    for (uint32_t i = 0; i < COPIES * n; i++) {
        op[i] = p.op[i % n];
        float *scale = op[i].kind == OP_EXPERTS_DOWN ? &op[i].experts_down.x_scale : &op[i].proj.x_scale;
        if ((op[i].kind == OP_EXPERTS_DOWN || op[i].kind == OP_PROJ) && *scale) {
            *scale = 0.5f + (float)i / 1000;
            scaled++;
        }
    }
    assert_true(scaled >= COPIES);
    p.op = op, p.n_op = COPIES * n;
    assert_int_equal(ops_collect(&p, &list, &step, &e), 0);
    assert_int_equal(list.n, n_list);
    assert_int_equal(step.n, n_step);
    op_list_free(&list);
    op_list_free(&step);
    for (uint32_t i = 0; i < COPIES * n; i++)
        if (op[i].kind == OP_PROJ)
            op[i].proj.residual_scale = 0.5f + (float)i / 1000; /* so many different ops */
    assert_int_equal(ops_collect(&p, &list, &step, &e), 0);
    assert_true(list.n > 100 && step.n > list.n);
    op_list_free(&list);
    op_list_free(&step);
    free(op);
    bed_close(&b);
}

/* The reference may be refused its memory, or the type of KV for the model's heads: that is an error of the load. */
static void a_reference_that_does_not_open_is_an_error(void **state)
{
    (void)state;
    struct device_params params = {.variant = "no such variant", .threads = 2};
    struct hearth_err e = {0};
    struct selfcheck s;
    struct bed b;
    char path[4096];
    assert_non_null(run_path(path, tale));
    bed_open(&b, path);
    assert_int_not_equal(selfcheck_run(b.m, backend_find("cpu"), &params, batches, &s, &e), 0);
    assert_non_null(strstr(e.msg, params.variant));
    bed_close(&b);
}

int main(int argc, char **argv)
{
    const char *backend = argc > 1 ? argv[1] : "cpu";
    real = backend_find(backend);
    struct device *d;
    struct hearth_err e;
    if (!real || real->open(&d, &(struct device_params){.variant = variant, .threads = 1}, &e)) {
        printf("1..0 # SKIP no %s here\n", backend);
        return 77;
    }
    real->close(d);
    named = argv + 2;
    n_named = argc > 2 ? argc - 2 : 0;
    const struct CMUnitTest all[] = {
        cmocka_unit_test(a_sound_device_passes),
        cmocka_unit_test(a_sound_device_passes_with_q8_0),
        cmocka_unit_test(every_broken_op_is_named),
        cmocka_unit_test(a_broken_mixture_is_named),
        cmocka_unit_test(a_broken_layer_is_named),
        cmocka_unit_test(a_broken_state_is_named),
        cmocka_unit_test(a_type_is_named),
        cmocka_unit_test(a_whole_step_is_compared),
        cmocka_unit_test(batches_are_checked_where_they_are_wanted),
        cmocka_unit_test(a_row_apart_is_named),
        cmocka_unit_test(a_step_reads_what_it_wrote),
        cmocka_unit_test(a_model_may_have_many_layers),
        cmocka_unit_test(a_reference_that_does_not_open_is_an_error),
    };
    if (strcmp(backend, "cpu") || n_named)
        ref_variant = "auto"; /* as in the engine */
    return n_named ? _cmocka_run_group_tests("sound", all, 1, NULL, NULL)
                   : _cmocka_run_group_tests("selfcheck", all, sizeof all / sizeof *all, NULL, NULL);
}
