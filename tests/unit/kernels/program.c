/*
 * program.c - what the list of ops reports for each op, and programs: their ids, their widths, and the ownership of
 * their ops.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/backend.h"

enum { D = 64, FF = 96, VOCAB = 50, HEADS = 4, KV = 2, D_HEAD = 8 };

static const struct weight
    embed = {.role = WEIGHT_EMBED, .n_in = D, .n_out = VOCAB, .n_part = 1, .part = {{DT_Q6_K, VOCAB, NULL}}},
    qkv = {.role = WEIGHT_QKV,
           .n_in = D,
           .n_out = (HEADS + 2 * KV) * D_HEAD,
           .n_part = 3,
           .part = {{DT_Q4_K, HEADS *D_HEAD, NULL}, {DT_Q4_K, KV *D_HEAD, NULL}, {DT_Q6_K, KV *D_HEAD, NULL}}},
    o = {.role = WEIGHT_PROJ, .n_in = HEADS * D_HEAD, .n_out = D, .n_part = 1, .part = {{DT_F16, D, NULL}}},
    gate_up = {.role = WEIGHT_GATE_UP,
               .n_in = D,
               .n_out = 2 * FF,
               .n_part = 2,
               .part = {{DT_Q4_0, FF, NULL}, {DT_Q4_0, FF, NULL}}},
    down = {.role = WEIGHT_PROJ, .n_in = FF, .n_out = D, .n_part = 1, .part = {{DT_Q8_0, D, NULL}}};

static void a_row_says_what_its_op_does(void **state)
{
    (void)state;
    const struct {
        struct op op;
        const struct weight *w;
        uint32_t reads;
        enum act writes;
        uint32_t in, out; /* columns of its input, or of the last of several; and of its output */
        const char *text;
    } rows[] = {
        {{.kind = OP_EMBED, .embed = {&embed, 1}}, &embed, 0, ACT_X, 0, D, "embed (Q6_K; 64 to 50)"},
        {{.kind = OP_QKV, .qkv = {.n_head = HEADS, .n_kv = KV, .d_head = D_HEAD, .w = &qkv}},
         &qkv,
         ACT_BIT(ACT_X),
         ACT_Q,
         D,
         HEADS * D_HEAD,
         "qkv (Q4_K, Q4_K, Q6_K; 64 to 64)"},
        {{.kind = OP_ATTEND, .attend = {.n_head = HEADS, .n_kv = KV, .d_head = D_HEAD}},
         NULL,
         ACT_BIT(ACT_Q),
         ACT_ATT,
         HEADS * D_HEAD,
         HEADS * D_HEAD,
         "attend (4 heads on 2 KV heads of 8)"},
        {{.kind = OP_ATTEND, .attend = {.n_head = HEADS, .n_kv = KV, .d_head = D_HEAD, .window = 512}},
         NULL,
         ACT_BIT(ACT_Q),
         ACT_ATT,
         HEADS * D_HEAD,
         HEADS * D_HEAD,
         "attend (4 heads on 2 KV heads of 8, window 512)"},
        {{.kind = OP_PROJ, .proj = {.in = ACT_ATT, .w = &o}},
         &o,
         ACT_BIT(ACT_X) | ACT_BIT(ACT_ATT),
         ACT_X,
         HEADS * D_HEAD,
         D,
         "proj (F16; 32 to 64)"},
        {{.kind = OP_FFN_UP, .ffn_up = {.w = &gate_up}},
         &gate_up,
         ACT_BIT(ACT_X),
         ACT_FF,
         D,
         FF,
         "ffn_up (Q4_0, Q4_0; 64 to 192)"},
        {{.kind = OP_PROJ, .proj = {.in = ACT_FF, .w = &down}},
         &down,
         ACT_BIT(ACT_X) | ACT_BIT(ACT_FF),
         ACT_X,
         FF,
         D,
         "proj (Q8_0; 96 to 64)"},
        {{.kind = OP_HEAD, .head = {.w = &embed}},
         &embed,
         ACT_BIT(ACT_X),
         ACT_LOGITS,
         D,
         VOCAB,
         "head (Q6_K; 64 to 50)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct op *op = &rows[i].op;
        char text[96];
        assert_ptr_equal(op_weight(op), rows[i].w);
        assert_int_equal(op_reads(op), rows[i].reads);
        assert_int_equal(op_writes(op), rows[i].writes);
        assert_int_equal(op_columns(op, rows[i].writes), rows[i].out);
        for (int a = 0; a < ACT_COUNT; a++)
            if (a != (int)rows[i].writes && rows[i].reads & ACT_BIT(a))
                assert_int_equal(op_columns(op, (enum act)a), rows[i].in);
        assert_string_equal(op_describe(op, text), rows[i].text);
    }
}

static void a_program_is_a_copy_with_an_id(void **state)
{
    (void)state;
    struct program p = {.model = &embed};
    program_embed(&p, (struct op_embed){.w = &embed, .scale = 3});
    uint64_t one = p.id;
    assert_int_equal(p.width[ACT_X], D);
    assert_int_equal(p.width[ACT_FF], 0);
    for (int i = 0; i < 1000; i++) { /* the array grows and keeps its ops */
        program_ffn_up(&p, (struct op_ffn_up){.w = &gate_up});
        program_proj(&p, (struct op_proj){.in = ACT_FF, .w = &down});
    }
    assert_false(p.failed);
    assert_int_equal(p.n_op, 2001);
    assert_true(p.op[0].kind == OP_EMBED && p.op[0].embed.w == &embed && p.op[0].embed.scale == 3.0f);
    assert_true(p.op[2000].kind == OP_PROJ && p.op[2000].proj.w == &down);
    assert_int_equal(p.width[ACT_FF], FF);
    assert_int_not_equal(p.id, one); /* other ops: no graph of the first program is found for them */
    struct program part = program_of(p.model, p.op + 1, 2), again = program_of(p.model, p.op + 1, 2);
    assert_ptr_equal(part.op, p.op + 1);
    assert_int_equal(part.width[ACT_FF], FF);
    assert_int_equal(part.width[ACT_LOGITS], 0);
    assert_int_not_equal(part.id, again.id);
    assert_int_not_equal(part.id, p.id);
    program_free(&part); /* part does not own the ops */
    assert_true(p.op[1].kind == OP_FFN_UP && part.n_op == 0);
    program_free(&p);
}

static void kinds_have_names(void **state)
{
    (void)state;
    for (int a = 0; a < OP_COUNT; a++)
        for (int b = 0; b < a; b++)
            assert_string_not_equal(op_name((enum op_kind)a), op_name((enum op_kind)b));
    assert_string_equal(op_name(OP_EMBED), "embed");
    assert_string_equal(op_name(OP_HEAD), "head");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_says_what_its_op_does),
        cmocka_unit_test(a_program_is_a_copy_with_an_id),
        cmocka_unit_test(kinds_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
