/* exec.c - executes statements. */
#include "daemon/model/chat/exec.h"

static struct scope *scope_new(struct run *r, struct scope *up)
{
    struct scope *s = run_alloc0(r, 1, sizeof *s);
    s->up = up;
    return s;
}

static void scope_capture(struct scope *s)
{
    for (; s && !s->captured; s = s->up)
        s->captured = true;
}

static void bind(struct run *r, struct scope *s, uint32_t id, struct val v)
{
    if (!s) {
        r->context[id] = v;
        return;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->b[i].id == id) {
            s->b[i].v = v;
            return;
        }
    }
    run_charge(r, s->n / 16);
    s->b = run_grow(r, s->b, s->n, &s->cap, sizeof *s->b);
    s->b[s->n++] = (struct binding){id, v};
}

static void hide(struct run *r, struct scope *s, const struct hidden *h)
{
    for (uint32_t i = 0; i < h->n; i++)
        bind(r, s, h->id[i], (struct val){0});
}

/* Unpacks as Python does: there must be exactly as many items as targets. */
static void unpack(struct run *r, struct scope *s, const struct node *target, struct val v)
{
    if (!is_iterable(v))
        type_error(r, "cannot unpack non-iterable %s object", val_type_name(v));
    struct iter *it = iter_new(r, v);
    struct val all = list_new(r, V_LIST, target->n_kid), item;
    while (all.l->n < target->n_kid && iter_next(r, it, &item))
        list_add(r, all.l, item);
    if (all.l->n < target->n_kid)
        type_error(r, "not enough values to unpack (expected %u, got %u)", target->n_kid, all.l->n);
    if (iter_next(r, it, &item))
        type_error(r, "too many values to unpack (expected %u)", target->n_kid);
    for (uint32_t i = 0; i < target->n_kid; i++)
        exec_assign(r, s, target->kid[i], all.l->v[i]);
}

static struct val find_namespace(struct run *r, struct scope *s, const struct node *target)
{
    struct node name = {.kind = N_NAME, .id = target->id, .v = v_str(r->tmpl->name[target->id])};
    struct val v = eval_expr(r, s, &name);
    if (v.tag != V_NAMESPACE)
        type_error(r, "cannot assign attribute on non-namespace object");
    return v;
}

void exec_assign(struct run *r, struct scope *s, const struct node *target, struct val v)
{
    if (target->kind == N_NAME) {
        bind(r, s, target->id, v);
    } else if (target->kind == N_NSREF) {
        dict_set(r, find_namespace(r, s, target).d, target->v, v);
    } else {
        run_enter(r);
        unpack(r, s, target, v);
        run_leave(r);
    }
}

/* --- for -------------------------------------------------------------------------------------------------- */

bool loop_next(struct run *r, struct loop *l, struct val *out)
{
    struct val v = l->after;
    if (is_missing(v) && !iter_next(r, l->it, &v))
        return false;
    l->after = (struct val){0};
    l->before = l->current;
    l->current = *out = v;
    l->index0++;
    return true;
}

static struct val loop_peek(struct run *r, struct loop *l)
{
    if (is_missing(l->after) && !iter_next(r, l->it, &l->after))
        l->after = (struct val){0};
    return l->after;
}

/* An iterator without a length is read to its end. */
int64_t loop_length(struct run *r, struct loop *l)
{
    if (l->length >= 0)
        return l->length;
    if (l->of.tag != V_ITER && l->of.tag != V_LOOP && !l->node->c) {
        l->length = val_length(r, l->of);
        return l->length;
    }
    struct val rest = list_new(r, V_LIST, 0), item;
    while (iter_next(r, l->it, &item))
        list_add(r, rest.l, item);
    l->it = iter_new(r, rest);
    l->length = rest.l->n + l->index0 + 1 + !is_missing(l->after);
    return l->length;
}

static const char *const loop_names[] = {"index",     "index0",   "first",    "last",  "length", "revindex",
                                         "revindex0", "previtem", "nextitem", "depth", "depth0"};

struct val loop_attr(struct run *r, struct val loop, const struct str *name)
{
    struct loop *l = loop.loop;
    size_t i = 0;
    while (i < sizeof loop_names / sizeof *loop_names && !str_is(name, loop_names[i]))
        i++;
    struct val v;
    switch (i) {
    case 0:
        return v_int(l->index0 + 1);
    case 1:
        return v_int(l->index0);
    case 2:
        return v_bool(l->index0 == 0);
    case 3:
        return v_bool(is_missing(loop_peek(r, l)));
    case 4:
        return v_int(loop_length(r, l));
    case 5:
        return v_int(loop_length(r, l) - l->index0);
    case 6:
        return v_int(loop_length(r, l) - l->index0 - 1);
    case 7:
        return is_missing(l->before) ? v_undef(v_text(r, "there is no previous item").s) : l->before;
    case 8:
        v = loop_peek(r, l);
        return is_missing(v) ? v_undef(v_text(r, "there is no next item").s) : v;
    case 9:
        return v_int(l->depth0 + 1);
    case 10:
        return v_int(l->depth0);
    default:
        return (struct val){0};
    }
}

/* `for x in y if test`: yields the items that pass; each is tested only when it is needed. */
struct sieve {
    struct iter *of;
    const struct node *node;
    struct scope *scope;
};

static bool next_sieved(struct run *r, struct iter *it, struct val *out)
{
    struct sieve *f = it->state;
    while (iter_next(r, f->of, out)) {
        f->scope->n = 0;
        exec_assign(r, f->scope, f->node->a, *out);
        if (val_truth(eval_expr(r, f->scope, f->node->c)))
            return true;
    }
    return false;
}

static struct iter *loop_items(struct run *r, struct scope *s, const struct node *n, struct val of)
{
    struct iter *it = iter_new(r, of);
    if (!n->c)
        return it;
    struct sieve *f = run_alloc(r, 1, sizeof *f);
    *f = (struct sieve){it, n, scope_new(r, s)};
    return iter_of(r, next_sieved, f);
}

enum flow loop_run(struct run *r, struct scope *s, const struct node *n, struct val of, int depth0)
{
    struct loop *l = run_alloc0(r, 1, sizeof *l);
    struct scope *inner = scope_new(r, s);
    struct val v;
    enum flow flow = FLOW_ON;
    bool finished = false; /* some iteration ran to its end, which is Jinja's condition for skipping the else part */
    *l = (struct loop){.node = n, .scope = s, .of = of, .index0 = -1, .length = -1, .depth0 = depth0};
    r->line = n->line;
    l->it = loop_items(r, s, n, of);
    while (flow != FLOW_BREAK && loop_next(r, l, &v)) {
        if (inner->captured)
            inner = scope_new(r, s);
        inner->n = 0;
        bind(r, inner, NAME_LOOP, (struct val){.tag = V_LOOP, .loop = l});
        exec_assign(r, inner, n->a, v);
        hide(r, inner, &n->hidden);
        flow = exec_body(r, inner, n->kid, n->n_kid);
        finished |= flow == FLOW_ON;
    }
    if (finished || !n->n_other)
        return FLOW_ON;
    inner = scope_new(r, s);
    hide(r, inner, &n->other_hidden);
    return exec_body(r, inner, n->other, n->n_other);
}

/* --- macros and captured text ----------------------------------------------------------------------------- */

static struct val take_keyword(struct call *c, const struct str *name)
{
    for (uint32_t i = 0; i < c->n_kw; i++) {
        if (!str_same(c->kw_name[i], name))
            continue;
        struct val v = c->kw[i];
        for (uint32_t k = i + 1; k < c->n_kw; k++) {
            c->kw_name[k - 1] = c->kw_name[k];
            c->kw[k - 1] = c->kw[k];
        }
        c->n_kw--;
        return v;
    }
    return (struct val){0};
}

static struct call own_keywords(struct run *r, const struct call *c)
{
    struct call own = *c;
    own.kw_name = run_alloc(r, c->n_kw + 1u, sizeof *own.kw_name);
    own.kw = run_alloc(r, c->n_kw + 1u, sizeof *own.kw);
    for (uint32_t i = 0; i < c->n_kw; i++) {
        own.kw_name[i] = c->kw_name[i];
        own.kw[i] = c->kw[i];
    }
    return own;
}

/* Binds the macro's parameters in their order, then the special names that it uses: caller, kwargs, varargs. */
static void bind_args(struct run *r, const struct macro *m, struct scope *s, struct call *c)
{
    const struct decl *d = m->node->decl;
    bool has_caller = false;
    for (uint32_t i = 0; i < d->n; i++) {
        has_caller |= d->param[i]->id == NAME_CALLER;
        bind(r, s, d->param[i]->id, i < c->n_pos ? c->pos[i] : take_keyword(c, d->param[i]->v.s));
    }
    for (uint32_t i = 0; i < d->n; i++) {
        if (!is_missing(s->b[i].v))
            continue;
        s->b[i].v = v_undef(d->param[i]->v.s);
        if (d->def[i])
            s->b[i].v = eval_expr(r, s, d->def[i]);
    }
    if (d->uses_caller && !has_caller) {
        const struct str *name = r->tmpl->name[NAME_CALLER];
        struct val caller = take_keyword(c, name);
        bind(r, s, NAME_CALLER, is_missing(caller) ? v_undef(name) : caller);
    }
    if (c->n_kw && !d->uses_kwargs)
        type_error(r, "a macro takes no keyword argument '%.*s'", c->kw_name[0]->n > 60 ? 60 : (int)c->kw_name[0]->n,
                   c->kw_name[0]->p);
    if (c->n_pos > d->n && !d->uses_varargs)
        type_error(r, "a macro takes not more than %u argument(s)", d->n);
    if (d->uses_kwargs) {
        struct val kwargs = dict_new(r, V_DICT);
        for (uint32_t i = 0; i < c->n_kw; i++)
            dict_set(r, kwargs.d, v_str(c->kw_name[i]), c->kw[i]);
        bind(r, s, NAME_KWARGS, kwargs);
    }
    if (d->uses_varargs) {
        struct val more = list_new(r, V_TUPLE, 0);
        for (uint32_t i = d->n; i < c->n_pos; i++)
            list_add(r, more.l, c->pos[i]);
        bind(r, s, NAME_VARARGS, more);
    }
    hide(r, s, &m->node->hidden);
}

struct val macro_call(struct run *r, const struct macro *m, const struct call *c)
{
    struct scope *s = scope_new(r, m->scope);
    struct call own = own_keywords(r, c);
    if (++r->calls > JINJA_CALLS_MAX)
        run_fail(r, JINJA_LIMIT, "more than %d macros inside each other", JINJA_CALLS_MAX);
    bind_args(r, m, s, &own);
    struct mark at = string_begin(r);
    exec_body(r, s, m->node->kid, m->node->n_kid);
    r->calls--;
    return v_str(string_end(r, at));
}

static struct val macro_value(struct run *r, struct scope *s, const struct node *n)
{
    struct macro *m = run_alloc(r, 1, sizeof *m);
    *m = (struct macro){n, s, n->kind == N_MACRO ? n->v : NONE};
    scope_capture(s);
    return (struct val){.tag = V_MACRO, .macro = m};
}

static void exec_call_block(struct run *r, struct scope *s, const struct node *n)
{
    const struct node *call = n->a;
    struct val caller = macro_value(r, s, n), callee = eval_expr(r, s, call->a);
    struct call c = eval_args(r, s, call->args), own = own_keywords(r, &c);
    own.kw_name[own.n_kw] = r->tmpl->name[NAME_CALLER];
    own.kw[own.n_kw++] = caller;
    r->line = n->line;
    put_str(r, need_str(r, call_value(r, callee, &own), "the text of a call block"));
}

/* Executes the body and stores its text in *out, after the filters, if any. Where a break or continue leaves the body,
 * the text is not filtered and must be discarded. */
static enum flow capture(struct run *r, struct scope *s, const struct node *n, struct val *out)
{
    struct scope *inner = scope_new(r, s);
    struct mark m = string_begin(r);
    hide(r, inner, &n->hidden);
    enum flow flow = exec_body(r, inner, n->kid, n->n_kid);
    *out = v_str(string_end(r, m));
    if (flow == FLOW_ON && n->b)
        *out = filter_call(r, inner, n->b, *out);
    return flow;
}

static enum flow exec_set_block(struct run *r, struct scope *s, const struct node *n)
{
    struct val v;
    enum flow flow = capture(r, s, n, &v);
    if (flow == FLOW_ON)
        exec_assign(r, s, n->a, v);
    return flow;
}

static enum flow exec_filter_block(struct run *r, struct scope *s, const struct node *n)
{
    struct val v;
    enum flow flow = capture(r, s, n, &v);
    if (flow == FLOW_ON)
        put_str(r, need_str(r, v, "the text of a filter block"));
    return flow;
}

static enum flow exec_with(struct run *r, struct scope *s, const struct node *n)
{
    struct scope *inner = scope_new(r, s);
    for (uint32_t i = 0; i + 1 < n->n_other; i += 2)
        exec_assign(r, inner, n->other[i], eval_expr(r, s, n->other[i + 1]));
    hide(r, inner, &n->hidden);
    return exec_body(r, inner, n->kid, n->n_kid);
}

static enum flow exec_scope(struct run *r, struct scope *s, const struct node *n)
{
    struct macro m = {.node = n};
    struct scope *inner = scope_new(r, s);
    bind_args(r, &m, inner, &(struct call){0});
    return exec_body(r, inner, n->kid, n->n_kid);
}

/* --- all statements --------------------------------------------------------------------------------------- */

static enum flow exec_one(struct run *r, struct scope *s, const struct node *n)
{
    switch ((enum node_kind)n->kind) {
    case N_TEXT:
        put_bytes(r, n->v.s->p, n->v.s->n);
        return FLOW_ON;
    case N_PRINT:
        for (uint32_t i = 0; i < n->n_kid; i++)
            put_val(r, eval_expr(r, s, n->kid[i]));
        return FLOW_ON;
    case N_FOR:
        return loop_run(r, s, n, eval_expr(r, s, n->b), 0);
    case N_IF:
        if (val_truth(eval_expr(r, s, n->a)))
            return exec_body(r, s, n->kid, n->n_kid);
        return exec_body(r, s, n->other, n->n_other);
    case N_SET:
        exec_assign(r, s, n->a, eval_expr(r, s, n->b));
        return FLOW_ON;
    case N_SETBLOCK:
        return exec_set_block(r, s, n);
    case N_MACRO:
        bind(r, s, n->id, macro_value(r, s, n));
        return FLOW_ON;
    case N_CALLBLOCK:
        exec_call_block(r, s, n);
        return FLOW_ON;
    case N_FILTERBLOCK:
        return exec_filter_block(r, s, n);
    case N_WITH:
        return exec_with(r, s, n);
    case N_SCOPE:
        return exec_scope(r, s, n);
    case N_BREAK:
        return FLOW_BREAK;
    case N_CONTINUE:
        return FLOW_CONTINUE;
    default:
        type_error(r, "%.*s", (int)n->v.s->n, n->v.s->p);
    }
}

enum flow exec_body(struct run *r, struct scope *s, struct node *const *body, uint32_t n)
{
    enum flow flow = FLOW_ON;
    run_enter(r);
    for (uint32_t i = 0; i < n && flow == FLOW_ON; i++) {
        r->line = body[i]->line;
        run_charge(r, 1);
        flow = exec_one(r, s, body[i]);
    }
    run_leave(r);
    return flow;
}
