/*
 * scopes.c - the names that a scope hides: those that it sets before reading them and that no enclosing scope knows.
 * Jinja compiles them to local variables (jinja2/idtracking.py), so everywhere inside such a scope they are undefined
 * until they are set, whatever the context contains. A name that is set within an `if` hides nothing.
 */
#include "daemon/model/chat/ast.h"

struct level {
    struct level *up;
    uint64_t *seen; /* a bit for each name that is read or set here */
    struct hidden *hidden;
};

struct walk {
    struct run *r;
    const struct jinja *t;
};

static bool is_seen(const struct level *l, uint32_t id)
{
    return l->seen[id / 64] >> (id % 64) & 1;
}

static void see(struct level *l, uint32_t id)
{
    l->seen[id / 64] |= (uint64_t)1 << (id % 64);
}

static void see_set(struct walk *w, struct level *l, uint32_t id, bool maybe)
{
    bool known = false;
    for (const struct level *at = l; at && !known; at = at->up) {
        known = is_seen(at, id);
        run_charge(w->r, 1);
    }
    if (!known && !maybe) {
        l->hidden->id = run_grow(w->r, l->hidden->id, l->hidden->n, &l->hidden->cap, sizeof *l->hidden->id);
        l->hidden->id[l->hidden->n++] = id;
    }
    see(l, id);
}

/* --- the names that a scope's own statements read and set ------------------------------------------------- */

static void read_expr(struct walk *w, struct level *l, const struct node *n);

static void read_all(struct walk *w, struct level *l, struct node *const *v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        read_expr(w, l, v[i]);
}

static void read_expr(struct walk *w, struct level *l, const struct node *n)
{
    if (!n)
        return;
    run_charge(w->r, 1);
    run_enter(w->r);
    if (n->kind == N_NAME || n->kind == N_NSREF)
        see(l, n->id);
    read_expr(w, l, n->a);
    read_expr(w, l, n->b);
    read_expr(w, l, n->c);
    read_all(w, l, n->kid, n->n_kid);
    if (n->args) {
        read_all(w, l, n->args->pos, n->args->n_pos);
        read_all(w, l, n->args->kw_value, n->args->n_kw);
        read_expr(w, l, n->args->star);
        read_expr(w, l, n->args->star_star);
    }
    run_leave(w->r);
}

static void set_target(struct walk *w, struct level *l, const struct node *n, bool maybe)
{
    if (n->kind == N_NAME)
        see_set(w, l, n->id, maybe);
    else if (n->kind == N_NSREF)
        see(l, n->id);
    for (uint32_t i = 0; i < n->n_kid; i++)
        set_target(w, l, n->kid[i], maybe);
}

static void own_statements(struct walk *w, struct level *l, struct node *const *body, uint32_t n, bool maybe);

static void own_statement(struct walk *w, struct level *l, const struct node *n, bool maybe)
{
    switch ((enum node_kind)n->kind) {
    case N_PRINT:
        read_all(w, l, n->kid, n->n_kid);
        break;
    case N_IF:
        read_expr(w, l, n->a);
        own_statements(w, l, n->kid, n->n_kid, true);
        own_statements(w, l, n->other, n->n_other, true);
        break;
    case N_SET:
        read_expr(w, l, n->b);
        set_target(w, l, n->a, maybe);
        break;
    case N_SETBLOCK:
        set_target(w, l, n->a, maybe);
        break;
    case N_MACRO:
        see_set(w, l, n->id, maybe);
        break;
    case N_CALLBLOCK:
        read_expr(w, l, n->a);
        break;
    case N_FOR:
    case N_FILTERBLOCK:
        read_expr(w, l, n->b);
        break;
    case N_WITH:
        for (uint32_t i = 1; i < n->n_other; i += 2)
            read_expr(w, l, n->other[i]);
        break;
    default:
        break;
    }
}

static void own_statements(struct walk *w, struct level *l, struct node *const *body, uint32_t n, bool maybe)
{
    run_enter(w->r);
    for (uint32_t i = 0; i < n; i++)
        own_statement(w, l, body[i], maybe);
    run_leave(w->r);
}

/* --- nested scopes ---------------------------------------------------------------------------------------- */

static struct level level_new(struct walk *w, struct level *up, struct hidden *hidden)
{
    return (struct level){up, run_alloc0(w->r, w->t->n_name / 64 + 1, sizeof(uint64_t)), hidden};
}

static void inner_scopes(struct walk *w, struct level *l, struct node *const *body, uint32_t n);

/* Walks the body of a scope whose parameters have been marked as seen. */
static void scope_body(struct walk *w, struct level *l, struct node *const *body, uint32_t n)
{
    own_statements(w, l, body, n, false);
    inner_scopes(w, l, body, n);
}

static void for_scopes(struct walk *w, struct level *l, struct node *n)
{
    struct level body = level_new(w, l, &n->hidden), other = level_new(w, l, &n->other_hidden);
    read_expr(w, &body, n->a); /* the targets are the scope's parameters */
    see(&body, NAME_LOOP);
    scope_body(w, &body, n->kid, n->n_kid);
    scope_body(w, &other, n->other, n->n_other);
}

static void function_scope(struct walk *w, struct level *l, struct node *n)
{
    struct level body = level_new(w, l, &n->hidden);
    for (int id = NAME_CALLER; id <= NAME_KWARGS; id++)
        see(&body, (uint32_t)id);
    read_all(w, &body, n->decl->param, n->decl->n);
    read_all(w, &body, n->decl->def, n->decl->n);
    scope_body(w, &body, n->kid, n->n_kid);
}

static void inner_scope(struct walk *w, struct level *l, struct node *n)
{
    struct level body;
    switch ((enum node_kind)n->kind) {
    case N_IF: /* has no scope */
        inner_scopes(w, l, n->kid, n->n_kid);
        inner_scopes(w, l, n->other, n->n_other);
        break;
    case N_FOR:
        for_scopes(w, l, n);
        break;
    case N_MACRO:
    case N_CALLBLOCK:
    case N_SCOPE:
        function_scope(w, l, n);
        break;
    case N_WITH:
        body = level_new(w, l, &n->hidden);
        for (uint32_t i = 0; i < n->n_other; i += 2)
            read_expr(w, &body, n->other[i]);
        scope_body(w, &body, n->kid, n->n_kid);
        break;
    case N_SETBLOCK:
    case N_FILTERBLOCK:
        body = level_new(w, l, &n->hidden);
        scope_body(w, &body, n->kid, n->n_kid);
        break;
    default:
        break;
    }
}

static void inner_scopes(struct walk *w, struct level *l, struct node *const *body, uint32_t n)
{
    run_enter(w->r);
    for (uint32_t i = 0; i < n; i++)
        inner_scope(w, l, body[i]);
    run_leave(w->r);
}

void find_hidden(struct run *r, struct jinja *t)
{
    struct walk w = {r, t};
    struct level top = level_new(&w, NULL, &t->hidden);
    scope_body(&w, &top, t->body, t->n_body);
}
