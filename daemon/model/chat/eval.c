/* eval.c - evaluates expressions. */
#include "daemon/model/chat/exec.h"

#include <string.h>

static struct val lookup(struct run *r, const struct scope *s, const struct node *n)
{
    for (; s; s = s->up)
        for (uint32_t i = 0; i < s->n; i++)
            if (s->b[i].id == n->id)
                return is_missing(s->b[i].v) ? v_undef(n->v.s) : s->b[i].v;
    struct val v = r->context[n->id];
    return is_missing(v) ? v_undef(n->v.s) : v;
}

static struct val eval_list(struct run *r, struct scope *s, const struct node *n, enum tag tag)
{
    struct val out = list_new(r, tag, n->n_kid);
    for (uint32_t i = 0; i < n->n_kid; i++)
        list_add(r, out.l, eval_expr(r, s, n->kid[i]));
    return out;
}

static struct val eval_dict(struct run *r, struct scope *s, const struct node *n)
{
    struct val out = dict_new(r, V_DICT);
    for (uint32_t i = 0; i + 1 < n->n_kid; i += 2) {
        struct val key = eval_expr(r, s, n->kid[i]);
        dict_set(r, out.d, key, eval_expr(r, s, n->kid[i + 1]));
    }
    return out;
}

static struct val eval_concat(struct run *r, struct scope *s, const struct node *n)
{
    struct val v[2] = {eval_expr(r, s, n->kid[0])};
    for (uint32_t i = 1; i < n->n_kid; i++) {
        v[1] = eval_expr(r, s, n->kid[i]);
        for (int k = 0; k < 2; k++) /* without autoescape, Jinja's ~ is str.join(), which drops markup */
            v[k] = v_str(plain_str(r, v[k]));
        v[0] = op_binary(r, T_ADD, v[0], v[1]);
    }
    return v[0];
}

static bool compare(struct run *r, int op, struct val a, struct val b)
{
    switch (op) {
    case T_EQ:
        return val_equal(r, a, b);
    case T_NE:
        return !val_equal(r, a, b);
    case T_IN:
        return val_contains(r, b, a);
    case T_NOTIN:
        return !val_contains(r, b, a);
    default:
        if (a.tag == V_UNDEF || b.tag == V_UNDEF)
            undefined_error(r, a.tag == V_UNDEF ? a : b);
        return val_less(r, a, b, token_name((enum token_type)op));
    }
}

static struct val eval_compare(struct run *r, struct scope *s, const struct node *n)
{
    struct val a = eval_expr(r, s, n->a);
    for (uint32_t i = 0; i < n->n_kid; i++) {
        struct val b = eval_expr(r, s, n->kid[i]);
        r->line = n->line;
        if (!compare(r, n->ops[i], a, b))
            return v_bool(false);
        a = b;
    }
    return v_bool(true);
}

static struct val eval_sign(struct run *r, struct val v, bool negative)
{
    if (v.tag == V_UNDEF)
        undefined_error(r, v);
    if (!is_number(v))
        type_error(r, "bad operand type for unary %c: '%s'", negative ? '-' : '+', val_type_name(v));
    if (v.tag == V_FLOAT)
        return v_float(negative ? -v.f : v.f);
    return op_binary(r, negative ? T_SUB : T_ADD, v_int(0), v);
}

static struct val eval_slice(struct run *r, struct scope *s, const struct node *n)
{
    struct val of = eval_expr(r, s, n->a), part[3] = {{0}};
    for (int i = 0; i < 3; i++)
        if (n->kid[i])
            part[i] = eval_expr(r, s, n->kid[i]);
    r->line = n->line;
    return get_slice(r, of, part[0], part[1], part[2]);
}

/* --- calls ------------------------------------------------------------------------------------------------ */

static void spread_list(struct run *r, struct call *c, struct val v)
{
    struct val all = list_new(r, V_LIST, c->n_pos);
    for (uint32_t i = 0; i < c->n_pos; i++)
        list_add(r, all.l, c->pos[i]);
    struct iter *it = iter_new(r, v);
    struct val item;
    while (iter_next(r, it, &item))
        list_add(r, all.l, item);
    c->pos = all.l->v;
    c->n_pos = all.l->n;
}

/* Adds a keyword argument. The arrays are copied, since another call may own them. */
static void add_keyword(struct run *r, struct call *c, const struct str *name, struct val v)
{
    for (uint32_t i = 0; i < c->n_kw; i++)
        if (str_same(c->kw_name[i], name))
            type_error(r, "got multiple values for keyword argument '%.*s'", name->n > 60 ? 60 : (int)name->n, name->p);
    run_charge(r, c->n_kw / 4);
    const struct str **names = run_alloc(r, c->n_kw + 1u, sizeof *names);
    struct val *values = run_alloc(r, c->n_kw + 1u, sizeof *values);
    if (c->n_kw) {
        memcpy(names, c->kw_name, c->n_kw * sizeof *names);
        memcpy(values, c->kw, c->n_kw * sizeof *values);
    }
    names[c->n_kw] = name;
    values[c->n_kw++] = v;
    c->kw_name = names;
    c->kw = values;
}

static void spread_dict(struct run *r, struct call *c, struct val v)
{
    if (v.tag != V_DICT)
        type_error(r, "argument after ** must be a mapping, not %s", val_type_name(v));
    for (uint32_t i = 0; i < v.d->n; i++)
        add_keyword(r, c, need_str(r, v.d->e[i].k, "a keyword"), v.d->e[i].v);
}

struct call eval_args(struct run *r, struct scope *s, const struct args *a)
{
    struct call c = {.n_pos = a->n_pos, .n_kw = a->n_kw, .kw_name = a->kw_name};
    if (a->n_pos)
        c.pos = run_alloc(r, a->n_pos, sizeof *c.pos);
    for (uint32_t i = 0; i < a->n_pos; i++)
        c.pos[i] = eval_expr(r, s, a->pos[i]);
    if (a->n_kw)
        c.kw = run_alloc(r, a->n_kw, sizeof *c.kw);
    for (uint32_t i = 0; i < a->n_kw; i++)
        c.kw[i] = eval_expr(r, s, a->kw_value[i]);
    if (a->star)
        spread_list(r, &c, eval_expr(r, s, a->star));
    if (a->star_star)
        spread_dict(r, &c, eval_expr(r, s, a->star_star));
    return c;
}

static struct val call_loop(struct run *r, struct loop *l, const struct call *c)
{
    if (!l->node->flag)
        type_error(r, "The loop must have the 'recursive' marker to be called recursively.");
    if (c->n_pos != 1 || c->n_kw)
        type_error(r, "loop() takes one argument");
    if (++r->calls > JINJA_CALLS_MAX)
        run_fail(r, JINJA_LIMIT, "more than %d calls inside each other", JINJA_CALLS_MAX);
    struct mark m = string_begin(r);
    loop_run(r, l->scope, l->node, c->pos[0], l->depth0 + 1);
    r->calls--;
    return v_str(string_end(r, m));
}

static struct val call_joiner(struct run *r, struct joiner *j)
{
    if (j->used)
        return j->sep;
    j->used = true;
    return v_text(r, "");
}

struct val call_value(struct run *r, struct val callee, const struct call *c)
{
    switch (callee.tag) {
    case V_FUNC:
        return builtin_call(r, callee.func, NONE, c);
    case V_METHOD:
        return builtin_call(r, callee.method->b, callee.method->self, c);
    case V_MACRO:
        return macro_call(r, callee.macro, c);
    case V_LOOP:
        return call_loop(r, callee.loop, c);
    case V_JOINER:
        return call_joiner(r, callee.joiner);
    case V_UNDEF:
        undefined_error(r, callee);
    default:
        type_error(r, "'%s' object is not callable", val_type_name(callee));
    }
}

static struct val eval_call(struct run *r, struct scope *s, const struct node *n)
{
    struct val callee = eval_expr(r, s, n->a);
    struct call c = eval_args(r, s, n->args);
    r->line = n->line;
    return call_value(r, callee, &c);
}

struct val filter_call(struct run *r, struct scope *s, const struct node *n, struct val v)
{
    if (n->a)
        v = filter_call(r, s, n->a, v);
    struct call c = eval_args(r, s, n->args);
    r->line = n->line;
    if (!n->builtin)
        type_error(r, "No filter named '%.*s'.", n->v.s->n > 60 ? 60 : (int)n->v.s->n, n->v.s->p);
    return builtin_call(r, n->builtin, v, &c);
}

static struct val eval_filter(struct run *r, struct scope *s, const struct node *n)
{
    struct val v = eval_expr(r, s, n->a);
    struct call c = eval_args(r, s, n->args);
    r->line = n->line;
    if (!n->builtin)
        type_error(r, "No filter named '%.*s'.", n->v.s->n > 60 ? 60 : (int)n->v.s->n, n->v.s->p);
    return builtin_call(r, n->builtin, v, &c);
}

static struct val eval_test(struct run *r, struct scope *s, const struct node *n)
{
    struct val v = eval_expr(r, s, n->a);
    struct call c = eval_args(r, s, n->args);
    r->line = n->line;
    if (!n->builtin)
        type_error(r, "No test named '%.*s'.", n->v.s->n > 60 ? 60 : (int)n->v.s->n, n->v.s->p);
    return v_bool(test_call(r, n->builtin, v, &c));
}

/* --- all expressions -------------------------------------------------------------------------------------- */

static struct val eval_binary(struct run *r, struct scope *s, const struct node *n)
{
    struct val a = eval_expr(r, s, n->a), b = eval_expr(r, s, n->b);
    r->line = n->line;
    return op_binary(r, n->op, a, b);
}

static struct val eval_item(struct run *r, struct scope *s, const struct node *n)
{
    struct val of = eval_expr(r, s, n->a);
    if (n->kind == N_GETATTR) {
        r->line = n->line;
        return get_attr(r, of, n->v.s);
    }
    struct val key = eval_expr(r, s, n->b);
    r->line = n->line;
    return get_item(r, of, key);
}

static struct val eval_cond(struct run *r, struct scope *s, const struct node *n)
{
    if (val_truth(eval_expr(r, s, n->b)))
        return eval_expr(r, s, n->a);
    return n->c ? eval_expr(r, s, n->c) : v_undef(NULL);
}

static struct val eval_logic(struct run *r, struct scope *s, const struct node *n)
{
    struct val v = eval_expr(r, s, n->a);
    if (n->kind == N_NOT)
        return v_bool(!val_truth(v));
    return val_truth(v) == (n->kind == N_OR) ? v : eval_expr(r, s, n->b);
}

static struct val eval_kind(struct run *r, struct scope *s, const struct node *n)
{
    switch ((enum node_kind)n->kind) {
    case N_LIST:
        return eval_list(r, s, n, V_LIST);
    case N_TUPLE:
        return eval_list(r, s, n, V_TUPLE);
    case N_DICT:
        return eval_dict(r, s, n);
    case N_COND:
        return eval_cond(r, s, n);
    case N_AND:
    case N_OR:
    case N_NOT:
        return eval_logic(r, s, n);
    case N_NEG:
    case N_POS:
        return eval_sign(r, eval_expr(r, s, n->a), n->kind == N_NEG);
    case N_BINARY:
        return eval_binary(r, s, n);
    case N_CONCAT:
        return eval_concat(r, s, n);
    case N_COMPARE:
        return eval_compare(r, s, n);
    case N_GETATTR:
    case N_GETITEM:
        return eval_item(r, s, n);
    case N_SLICE:
        return eval_slice(r, s, n);
    case N_CALL:
        return eval_call(r, s, n);
    case N_FILTER:
        return eval_filter(r, s, n);
    case N_TEST:
        return eval_test(r, s, n);
    default:
        type_error(r, "an expression of no kind");
    }
}

struct val eval_expr(struct run *r, struct scope *s, const struct node *n)
{
    if (n->kind == N_CONST)
        return n->v;
    if (n->kind == N_NAME)
        return lookup(r, s, n);
    run_charge(r, 1);
    run_enter(r);
    struct val v = eval_kind(r, s, n);
    run_leave(r);
    return v;
}
