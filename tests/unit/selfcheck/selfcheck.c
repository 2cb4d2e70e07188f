/*
 * selfcheck.c - the start-up self-check finds what is wrong and calls it by name, and nothing where all is well.
 *
 *     tests/unit/selfcheck/selfcheck [BACKEND [MODEL...]]      "cpu" and the models of the tree and beside it by
 * default
 *
 * A device is broken by a table around its own: it does the right thing and then spoils one row of what one op gave,
 * for one type of weights, or one page, or one token, or only what a whole step does (and not the same ops one by one).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/engine/selfcheck/selfcheck.h"
#include "tests/golden/run.h"

static const struct backend *real;
static const char *variant = "auto", *ref_variant = "reference";
static char **named; /* models of the command line */
static int n_named;

/* --- the broken table ------------------------------------------------------------------------------------ */

static struct {
    int op;           /* of enum op_kind, or one of the kinds below; -1: nothing is broken */
    int type;         /* of the first part of the weight that it uses; -1: any */
    uint32_t row;     /* of the step */
    bool whole_only;  /* only in steps that nobody looks into */
    bool looked_into; /* somebody read or wrote in the step under way */
    uint32_t n_row;
    struct kv_pool *kv;
    struct kv_desc desc;
    uint32_t page, slot, width[ACT_COUNT];
    bool pending; /* spoil the page when the step is over */
    uint32_t pending_layer;
} broken;
enum { KV_APPEND = 10, KV_STRAY, PAGE_COPY, PAGE_CLEAR, TOKEN };

static bool hits(int op, const struct weight *w)
{
    return broken.op == op && broken.row < broken.n_row &&
           (broken.type < 0 || !w || w->part[0].type == (enum dtype)broken.type) &&
           !(broken.whole_only && broken.looked_into);
}

static void spoil(struct device *d, enum act a, uint32_t width)
{
    float *v = malloc(width * sizeof *v);
    struct hearth_err e;
    assert_non_null(v);
    assert_int_equal(real->act_read(d, a, broken.row, 1, v, &e), 0);
    for (uint32_t i = 0; i < width; i++)
        v[i] = v[i] * 1.25f + 0.01f;
    assert_int_equal(real->act_write(d, a, broken.row, 1, v, &e), 0);
    free(v);
}

static int b_kv_new(struct device *d, const struct kv_desc *desc, struct kv_pool **out, struct hearth_err *e)
{
    broken.desc = *desc;
    int rc = real->kv_new(d, desc, out, e);
    broken.kv = *out;
    return rc;
}
static void b_step_begin(struct device *d, const struct batch *b, uint64_t key)
{
    broken.n_row = b->n_row;
    broken.looked_into = broken.pending = false;
    for (uint32_t s = 0; s < b->n_seq; s++) {
        const struct batch_seq *q = &b->seq[s];
        uint32_t pos = q->pos0 + broken.row - q->row0;
        if (broken.row < q->row0 || broken.row >= q->row0 + q->n_row)
            continue;
        broken.page = q->pages[pos / KV_PAGE];
        broken.slot = pos % KV_PAGE;
    }
    real->step_begin(d, b, key);
}
static void b_embed(struct device *d, const struct op_embed *op)
{
    real->embed(d, op);
    if (hits(OP_EMBED, op->w))
        spoil(d, ACT_X, op->w->n_in);
}
static void b_qkv(struct device *d, const struct op_qkv *op)
{
    real->qkv(d, op);
    if (hits(OP_QKV, op->w))
        spoil(d, ACT_Q, op->n_head * op->d_head);
    if (hits(KV_APPEND, op->w) || hits(KV_STRAY, op->w)) {
        broken.pending = true;
        broken.pending_layer = op->layer;
    }
}
static void b_attend(struct device *d, const struct op_attend *op)
{
    real->attend(d, op);
    if (hits(OP_ATTEND, NULL))
        spoil(d, ACT_ATT, op->n_head * op->d_head);
}
static void b_proj_add(struct device *d, const struct op_proj *op)
{
    real->proj_add(d, op);
    if (hits(OP_PROJ, op->w))
        spoil(d, ACT_X, op->w->n_out);
}
static void b_ffn_up(struct device *d, const struct op_ffn_up *op)
{
    real->ffn_up(d, op);
    if (hits(OP_FFN_UP, op->w))
        spoil(d, ACT_FF, op->w->part[0].n_out);
}
static void b_head(struct device *d, const struct op_head *op)
{
    real->head(d, op);
    if (hits(OP_HEAD, op->w))
        spoil(d, ACT_LOGITS, op->w->n_out);
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
/* The V that was appended, of all heads; or a slot that no row has. */
static void change_kv(uint8_t *page)
{
    const struct kv_desc *k = &broken.desc;
    uint32_t slot = broken.op == KV_STRAY ? (broken.slot + 5) % KV_PAGE : broken.slot;
    for (uint32_t h = 0; h < k->n_kv; h++) {
        uint64_t at = ((((uint64_t)broken.pending_layer * 2 + 1) * k->n_kv + h) * KV_PAGE + slot) * k->d_head;
        for (uint32_t i = 0; i < k->d_head; i++)
            page[dtype_bytes((int)k->type, at + i + 1) - 1] ^= 0x04; /* the exponent */
    }
}
static uint64_t b_step_end(struct device *d)
{
    return real->step_end(d);
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
static int b_act_read(struct device *d, enum act a, uint32_t row0, uint32_t n_row, float *out, struct hearth_err *e)
{
    broken.looked_into = true;
    return real->act_read(d, a, row0, n_row, out, e);
}
static int b_act_write(struct device *d, enum act a, uint32_t row0, uint32_t n_row, const float *in,
                       struct hearth_err *e)
{
    broken.looked_into = true;
    return real->act_write(d, a, row0, n_row, in, e);
}

/* --- a model --------------------------------------------------------------------------------------------- */

struct bed {
    struct backend table;
    struct device *d;
    struct device_info info;
    struct gguf *g;
    struct model *m;
};

static void bed_open(struct bed *b, const char *path)
{
    struct workspace_dims dims = {.n_row = 64, .n_out = 64};
    b->table = *real;
    b->table.kv_new = b_kv_new, b->table.kv_copy = b_kv_copy, b->table.kv_clear = b_kv_clear;
    b->table.step_begin = b_step_begin, b->table.step_end = b_step_end, b->table.step_wait = b_step_wait;
    b->table.embed = b_embed, b->table.qkv = b_qkv, b->table.attend = b_attend, b->table.proj_add = b_proj_add;
    b->table.ffn_up = b_ffn_up, b->table.head = b_head;
    b->table.act_read = b_act_read, b->table.act_write = b_act_write;
    MUST(real->open(&b->d, &(struct device_params){.variant = variant, .threads = 2}, &e));
    real->info(b->d, &b->info);
    MUST(gguf_open(&b->g, path, &e));
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
    MUST(selfcheck_run(b->m, backend_find("cpu"), &(struct device_params){.variant = ref_variant, .threads = 2}, &s,
                       &e));
    return s;
}

static const char tale[] = "contrib/models/tale-q4_k_m.gguf";

static void sound(const char *path)
{
    struct bed b;
    bed_open(&b, path);
    for (int turn = 0; turn < 3; turn++) { /* the second time it finds code and memory warm */
        struct selfcheck s = check(&b);
        print_message("# %s on %s: %u ops in %.1f ms, the device %.1f\n", path, b.info.name, s.n_op, s.ms, s.device_ms);
        assert_string_equal(s.failed, "");
        assert_true(s.n_op >= 6);
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
                                         "models/tiny/llama-rope3.gguf"};
    char path[4096];
    for (int i = 0; i < n_named; i++)
        sound(named[i]);
    for (size_t i = 0; i < sizeof models / sizeof *models && !n_named; i++)
        if (run_path(path, models[i]))
            sound(path);
}

static void every_broken_op_is_named(void **state)
{
    (void)state;
    static const struct {
        int op;
        const char *name, *also;
    } kinds[] = {
        {OP_EMBED, "embed (", "row"},        {OP_QKV, "qkv (", "row"},       {OP_ATTEND, "attend (", "row"},
        {OP_PROJ, "proj_add (", "row"},      {OP_FFN_UP, "ffn_up (", "row"}, {OP_HEAD, "head (", "row"},
        {KV_APPEND, "qkv (", "in its page"}, {KV_STRAY, "qkv", "changed"},   {PAGE_COPY, "kv_copy", "page"},
        {PAGE_CLEAR, "kv_clear", "page"},    {TOKEN, "sample (", "token"},
    };
    char path[4096];
    struct bed b;
    assert_non_null(run_path(path, tale));
    bed_open(&b, path);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (uint32_t row = 0; row < (kinds[i].op < PAGE_COPY ? 5 : 3); row++) { /* from 3 on in prompts alone */
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

/* Only what multiplies by one type is wrong: it is named with that type. */
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
            struct op_list list;
            ops_collect(b.m, &list);
            for (uint32_t k = 0; k < list.n; k++)
                used |= list.op[k].kind == (enum op_kind)ops[i] &&
                        ops_weight(&list.op[k])->part[0].type == (enum dtype)type;
            broken.op = ops[i];
            broken.type = type;
            struct selfcheck s = check(&b);
            assert_int_equal(s.failed[0] != 0, used);
            assert_true(!used || strstr(s.failed, dtype_get(type)->name));
        }
    bed_close(&b);
}

/* What goes wrong only in a whole step, as a captured graph might. */
static void a_whole_step_is_compared(void **state)
{
    (void)state;
    struct bed b;
    char path[4096];
    assert_non_null(run_path(path, tale));
    bed_open(&b, path);
    for (int op = OP_QKV; op <= OP_HEAD; op++) { /* embed comes before anybody can look */
        broken.op = op;
        broken.whole_only = true;
        struct selfcheck s = check(&b);
        if (!strstr(s.failed, "a whole step"))
            fail_msg("op %d: \"%s\"", op, s.failed);
    }
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
        cmocka_unit_test(every_broken_op_is_named),
        cmocka_unit_test(a_type_is_named),
        cmocka_unit_test(a_whole_step_is_compared),
    };
    if (strcmp(backend, "cpu") || n_named)
        ref_variant = "auto"; /* as the engine has it */
    return n_named ? _cmocka_run_group_tests("sound", all, 1, NULL, NULL)
                   : _cmocka_run_group_tests("selfcheck", all, sizeof all / sizeof *all, NULL, NULL);
}
