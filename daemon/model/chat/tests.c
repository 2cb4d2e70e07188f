/* tests.c - the tests that can follow `is`. */
#include "daemon/model/chat/exec.h"

#define TEST(name) static struct val test_##name(struct run *r, struct val v, struct val *arg)

TEST(boolean)
{
    (void)r, (void)arg;
    return v_bool(v.tag == V_BOOL);
}
TEST(callable)
{
    (void)r, (void)arg;
    return v_bool(v.tag == V_UNDEF || (v.tag >= V_MACRO && v.tag <= V_LOOP) || v.tag == V_JOINER);
}
TEST(defined)
{
    (void)r, (void)arg;
    return v_bool(v.tag != V_UNDEF);
}
TEST(divisibleby)
{
    return v_bool(!val_truth(op_binary(r, T_MOD, v, arg[0])));
}
TEST(eq)
{
    return v_bool(val_equal(r, v, arg[0]));
}
TEST(ne)
{
    return v_bool(!val_equal(r, v, arg[0]));
}
TEST(escaped)
{
    (void)r, (void)arg;
    return v_bool(v.tag == V_STR && v.s->markup);
}
static bool rest_is(struct run *r, struct val v, int rest)
{
    return val_equal(r, op_binary(r, T_MOD, v, v_int(2)), v_int(rest));
}
TEST(even)
{
    (void)arg;
    return v_bool(rest_is(r, v, 0));
}
TEST(odd)
{
    (void)arg;
    return v_bool(rest_is(r, v, 1));
}
TEST(false)
{
    (void)r, (void)arg;
    return v_bool(v.tag == V_BOOL && !v.b);
}
TEST(true)
{
    (void)r, (void)arg;
    return v_bool(v.tag == V_BOOL && v.b);
}
static void need_hashable(struct run *r, struct val v)
{
    if (is_unhashable(v))
        type_error(r, "unhashable type: '%s'", val_type_name(v));
}
TEST(filter)
{
    (void)arg;
    need_hashable(r, v);
    return v_bool(v.tag == V_STR && filter_find(v.s));
}
TEST(test)
{
    (void)arg;
    need_hashable(r, v);
    return v_bool(v.tag == V_STR && test_find(v.s));
}
TEST(float)
{
    (void)r, (void)arg;
    return v_bool(v.tag == V_FLOAT);
}
static struct val ordered(struct run *r, struct val a, struct val b, const char *op)
{
    if (a.tag == V_UNDEF || b.tag == V_UNDEF)
        undefined_error(r, a.tag == V_UNDEF ? a : b);
    return v_bool(val_less(r, a, b, op));
}
TEST(ge)
{
    return ordered(r, v, arg[0], ">=");
}
TEST(gt)
{
    return ordered(r, v, arg[0], ">");
}
TEST(le)
{
    return ordered(r, v, arg[0], "<=");
}
TEST(lt)
{
    return ordered(r, v, arg[0], "<");
}
TEST(in)
{
    return v_bool(val_contains(r, arg[0], v));
}
TEST(integer)
{
    (void)r, (void)arg;
    return v_bool(v.tag == V_INT || v.tag == V_BIG);
}
TEST(iterable)
{
    (void)r, (void)arg;
    return v_bool(is_iterable(v));
}

/* str(v).islower() or .isupper(): there are cased characters, and all of them have that case. */
static bool all_cased(struct run *r, struct val v, bool (*is)(uint32_t c))
{
    const struct str *s = to_str(r, v);
    const char *p = s->p, *end = s->p + s->n;
    bool any = false;
    while (p < end) {
        uint32_t c = code_next(&p);
        if (code_is_cased(c) && !is(c))
            return false;
        any |= is(c);
    }
    return any;
}
TEST(lower)
{
    (void)arg;
    return v_bool(all_cased(r, v, code_is_lower));
}
TEST(upper)
{
    (void)arg;
    return v_bool(all_cased(r, v, code_is_upper));
}
TEST(mapping)
{
    (void)r, (void)arg;
    return v_bool(v.tag == V_DICT);
}
TEST(none)
{
    (void)r, (void)arg;
    return v_bool(v.tag == V_NONE);
}
TEST(number)
{
    (void)r, (void)arg;
    return v_bool(is_number(v));
}
TEST(sameas)
{
    if (v.tag == V_LIST || v.tag == V_TUPLE || v.tag == V_DICT)
        return v_bool(v.tag == arg[0].tag && v.d == arg[0].d);
    /* Each lookup of a missing name creates another Undefined. */
    return v_bool(v.tag == arg[0].tag && v.tag != V_UNDEF && val_equal(r, v, arg[0]));
}
TEST(sequence) /* it has a length and items by key */
{
    (void)r, (void)arg;
    return v_bool(v.tag == V_UNDEF || v.tag == V_STR || is_seq(v) || v.tag == V_DICT || v.tag == V_RANGE);
}
TEST(string)
{
    (void)r, (void)arg;
    return v_bool(v.tag == V_STR);
}
TEST(undefined)
{
    (void)r, (void)arg;
    return v_bool(v.tag == V_UNDEF);
}

static const struct builtin tests[] = {
    {"defined", test_defined, "", 0},
    {"undefined", test_undefined, "", 0},
    {"none", test_none, "", 0},
    {"string", test_string, "", 0},
    {"mapping", test_mapping, "", 0},
    {"iterable", test_iterable, "", 0},
    {"sequence", test_sequence, "", 0},
    {"boolean", test_boolean, "", 0},
    {"true", test_true, "", 0},
    {"false", test_false, "", 0},
    {"number", test_number, "", 0},
    {"integer", test_integer, "", 0},
    {"float", test_float, "", 0},
    {"equalto", test_eq, "/b", 1},
    {"eq", test_eq, "/b", 1},
    {"==", test_eq, "/b", 1},
    {"ne", test_ne, "/b", 1},
    {"!=", test_ne, "/b", 1},
    {"ge", test_ge, "/b", 1},
    {">=", test_ge, "/b", 1},
    {"gt", test_gt, "/b", 1},
    {">", test_gt, "/b", 1},
    {"greaterthan", test_gt, "/b", 1},
    {"le", test_le, "/b", 1},
    {"<=", test_le, "/b", 1},
    {"lt", test_lt, "/b", 1},
    {"<", test_lt, "/b", 1},
    {"lessthan", test_lt, "/b", 1},
    {"in", test_in, "seq", 1},
    {"even", test_even, "", 0},
    {"odd", test_odd, "", 0},
    {"divisibleby", test_divisibleby, "num", 1},
    {"lower", test_lower, "", 0},
    {"upper", test_upper, "", 0},
    {"callable", test_callable, "", 0},
    {"escaped", test_escaped, "", 0},
    {"filter", test_filter, "", 0},
    {"test", test_test, "", 0},
    {"sameas", test_sameas, "other", 1},
    {NULL},
};

const struct builtin *test_find(const struct str *name)
{
    return table_find(tests, name);
}
