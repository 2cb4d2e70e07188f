/* parse-expr.c - the expressions of a template, modelled on jinja2/parser.py: each function is one level of
 * precedence. */
#include "daemon/model/chat/ast.h"
#include "daemon/model/chat/builtin.h"

static struct node *parse_or(struct parser *p);

static struct node *node_two(struct parser *p, enum node_kind kind, int line, struct node *a, struct node *b)
{
    struct node *n = node_new(p, kind, line);
    n->a = a;
    n->b = b;
    return n;
}

/* Any part of an inline if may contain unknown filters, since it is not known beforehand which part is evaluated. */
static struct node *parse_cond(struct parser *p)
{
    int line = p->at->line;
    struct node *unknown = p->unknown, *n = parse_or(p);
    bool is_cond = parser_at_name(p, "if");
    while (parser_skip_name(p, "if")) {
        struct node *cond = node_two(p, N_COND, line, n, parse_or(p));
        if (parser_skip_name(p, "else"))
            cond->c = parse_cond(p);
        n = cond;
        line = p->at->line;
    }
    if (is_cond)
        p->unknown = unknown;
    return n;
}

struct node *parse_expr(struct parser *p, bool with_cond)
{
    parser_nest(p);
    struct node *n = with_cond ? parse_cond(p) : parse_or(p);
    parser_unnest(p);
    return n;
}

static struct node *parse_math1(struct parser *p);

static struct node *parse_compare(struct parser *p)
{
    int line = p->at->line;
    struct node *first = parse_math1(p), *n = NULL;
    struct nodes right = {0};
    uint8_t *ops = NULL;
    uint32_t cap = 0;
    for (;;) {
        enum token_type op = p->at->type;
        if (op >= T_EQ && op <= T_GE) {
            p->at++;
        } else if (parser_skip_name(p, "in")) {
            op = T_IN;
        } else if (parser_at_name(p, "not") && p->at[1].type == T_NAME && str_is(p->at[1].v.s, "in")) {
            p->at += 2;
            op = T_NOTIN;
        } else {
            break;
        }
        ops = run_grow(p->r, ops, right.n, &cap, 1);
        ops[right.n] = (uint8_t)op;
        nodes_add(p, &right, parse_math1(p));
    }
    if (!right.n)
        return first;
    n = node_new(p, N_COMPARE, line);
    n->a = first;
    n->ops = ops;
    n->kid = right.v;
    n->n_kid = right.n;
    return n;
}

static struct node *parse_not(struct parser *p)
{
    int line = p->at->line;
    if (!parser_skip_name(p, "not"))
        return parse_compare(p);
    parser_nest(p);
    struct node *n = node_two(p, N_NOT, line, parse_not(p), NULL);
    parser_unnest(p);
    return n;
}

static struct node *parse_and(struct parser *p)
{
    int line = p->at->line;
    struct node *n = parse_not(p);
    while (parser_skip_name(p, "and")) {
        n = node_two(p, N_AND, line, n, parse_not(p));
        line = p->at->line;
    }
    return n;
}

static struct node *parse_or(struct parser *p)
{
    int line = p->at->line;
    struct node *n = parse_and(p);
    while (parser_skip_name(p, "or")) {
        n = node_two(p, N_OR, line, n, parse_and(p));
        line = p->at->line;
    }
    return n;
}

static struct node *binary_node(struct parser *p, struct token *op, struct node *a, struct node *b)
{
    struct node *n = node_two(p, N_BINARY, op->line, a, b);
    n->op = (uint8_t)op->type;
    return n;
}

static struct node *parse_pow(struct parser *p)
{
    struct node *n = parse_unary(p, true);
    while (p->at->type == T_POW) {
        struct token *op = p->at++;
        n = binary_node(p, op, n, parse_unary(p, true));
    }
    return n;
}

static struct node *parse_math2(struct parser *p)
{
    struct node *n = parse_pow(p);
    while (p->at->type == T_MUL || p->at->type == T_DIV || p->at->type == T_FLOORDIV || p->at->type == T_MOD) {
        struct token *op = p->at++;
        n = binary_node(p, op, n, parse_pow(p));
    }
    return n;
}

static struct node *parse_concat(struct parser *p)
{
    int line = p->at->line;
    struct node *first = parse_math2(p), *n;
    if (p->at->type != T_TILDE)
        return first;
    struct nodes part = {0};
    nodes_add(p, &part, first);
    while (parser_skip(p, T_TILDE))
        nodes_add(p, &part, parse_math2(p));
    n = node_new(p, N_CONCAT, line);
    n->kid = part.v;
    n->n_kid = part.n;
    return n;
}

static struct node *parse_math1(struct parser *p)
{
    struct node *n = parse_concat(p);
    while (p->at->type == T_ADD || p->at->type == T_SUB) {
        struct token *op = p->at++;
        n = binary_node(p, op, n, parse_concat(p));
    }
    return n;
}

/* --- primaries -------------------------------------------------------------------------------------------- */

static struct node *parse_name(struct parser *p, struct token *t)
{
    static const struct {
        const char *name;
        struct val v;
    } constant[] = {
        {"true", {.tag = V_BOOL, .b = true}}, {"false", {.tag = V_BOOL}}, {"True", {.tag = V_BOOL, .b = true}},
        {"False", {.tag = V_BOOL}},           {"none", {.tag = V_NONE}},  {"None", {.tag = V_NONE}},
    };
    struct node *n = node_new(p, N_NAME, t->line);
    n->v = t->v;
    for (size_t i = 0; i < sizeof constant / sizeof *constant; i++) {
        if (!str_is(t->v.s, constant[i].name))
            continue;
        n->kind = N_CONST;
        n->v = constant[i].v;
        return n;
    }
    n->id = name_id(p, t->v.s);
    for (struct decl *d = p->decl; d; d = d->up) {
        d->uses_caller |= n->id == NAME_CALLER;
        d->uses_varargs |= n->id == NAME_VARARGS;
        d->uses_kwargs |= n->id == NAME_KWARGS;
    }
    return n;
}

static struct node *parse_string(struct parser *p)
{
    struct token *t = p->at++;
    struct node *n = node_new(p, N_CONST, t->line);
    n->v = t->v;
    if (p->at->type != T_STRING)
        return n;
    struct mark m = string_begin(p->r);
    put_str(p->r, t->v.s);
    for (; p->at->type == T_STRING; p->at++)
        put_str(p->r, p->at->v.s);
    n->v = v_str(string_end(p->r, m));
    return n;
}

static struct node *parse_list(struct parser *p, int line)
{
    struct node *n = node_new(p, N_LIST, line);
    struct nodes item = {0};
    while (p->at->type != T_RBRACKET) {
        if (item.n)
            parser_expect(p, T_COMMA);
        if (p->at->type == T_RBRACKET)
            break;
        nodes_add(p, &item, parse_expr(p, true));
    }
    parser_expect(p, T_RBRACKET);
    n->kid = item.v;
    n->n_kid = item.n;
    return n;
}

static struct node *parse_dict(struct parser *p, int line)
{
    struct node *n = node_new(p, N_DICT, line);
    struct nodes item = {0};
    while (p->at->type != T_RBRACE) {
        if (item.n)
            parser_expect(p, T_COMMA);
        if (p->at->type == T_RBRACE)
            break;
        nodes_add(p, &item, parse_expr(p, true));
        parser_expect(p, T_COLON);
        nodes_add(p, &item, parse_expr(p, true));
    }
    parser_expect(p, T_RBRACE);
    n->kid = item.v;
    n->n_kid = item.n;
    return n;
}

static struct node *parse_primary(struct parser *p, bool with_namespace)
{
    struct token *t = p->at;
    struct node *n;
    switch (t->type) {
    case T_NAME:
        p->at++;
        n = parse_name(p, t);
        if (with_namespace && n->kind == N_NAME && parser_skip(p, T_DOT)) {
            n->kind = N_NSREF;
            n->v = parser_expect(p, T_NAME)->v;
        }
        return n;
    case T_STRING:
        return parse_string(p);
    case T_INTEGER:
    case T_FLOAT:
        p->at++;
        n = node_new(p, N_CONST, t->line);
        n->v = t->v;
        return n;
    case T_LPAREN:
        p->at++;
        n = parse_tuple(p, TUPLE_PARENS);
        parser_expect(p, T_RPAREN);
        return n;
    case T_LBRACKET:
        p->at++;
        return parse_list(p, t->line);
    case T_LBRACE:
        p->at++;
        return parse_dict(p, t->line);
    default:
        syntax_error(p, t->line, "unexpected '%s'", token_name(t->type));
    }
}

static bool tuple_ends(struct parser *p)
{
    enum token_type t = p->at->type;
    return t == T_VAR_END || t == T_BLOCK_END || t == T_RPAREN;
}

struct node *parse_tuple(struct parser *p, int flags)
{
    int line = p->at->line;
    struct nodes item = {0};
    bool tuple = false;
    parser_nest(p);
    for (;;) {
        if (item.n)
            parser_expect(p, T_COMMA);
        if (tuple_ends(p))
            break;
        nodes_add(p, &item,
                  flags & TUPLE_SIMPLE ? parse_primary(p, flags & TUPLE_NAMESPACE)
                                       : parse_expr(p, !(flags & TUPLE_NO_COND)));
        if (p->at->type != T_COMMA)
            break;
        tuple = true;
    }
    parser_unnest(p);
    if (!tuple && item.n)
        return item.v[0];
    if (!tuple && !(flags & TUPLE_PARENS))
        syntax_error(p, p->at->line, "Expected an expression, got '%s'", token_name(p->at->type));
    struct node *n = node_new(p, N_TUPLE, line);
    n->kid = item.v;
    n->n_kid = item.n;
    return n;
}

static void check_target(struct parser *p, struct node *n)
{
    switch (n->kind) {
    case N_NAME:
    case N_NSREF:
        if (n->kind == N_NAME && n->id == NAME_LOOP && p->in_for)
            syntax_error(p, n->line, "Can't assign to special loop variable in for-loop target");
        return;
    case N_TUPLE:
    case N_LIST:
        for (uint32_t i = 0; i < n->n_kid; i++)
            check_target(p, n->kid[i]);
        return;
    default:
        syntax_error(p, n->line, "can't assign to this expression");
    }
}

struct node *parse_target(struct parser *p, bool tuple, bool with_namespace)
{
    struct node *n = tuple ? parse_tuple(p, TUPLE_SIMPLE | (with_namespace ? TUPLE_NAMESPACE : 0))
                           : parse_primary(p, with_namespace);
    check_target(p, n);
    return n;
}

struct node *parse_name_target(struct parser *p)
{
    struct token *t = parser_expect(p, T_NAME);
    struct node *n = parse_name(p, t);
    if (n->kind != N_NAME)
        syntax_error(p, t->line, "can't assign to a constant");
    return n;
}

/* --- postfix operators ------------------------------------------------------------------------------------ */

static void parse_arg(struct parser *p, struct args *a, struct nodes *pos, struct nodes *kw, uint32_t *cap)
{
    int line = p->at->line;
    if (parser_skip(p, T_MUL)) {
        if (a->star || a->star_star)
            syntax_error(p, line, "invalid syntax for function call expression");
        a->star = parse_expr(p, true);
    } else if (parser_skip(p, T_POW)) {
        if (a->star_star)
            syntax_error(p, line, "invalid syntax for function call expression");
        a->star_star = parse_expr(p, true);
    } else if (p->at->type == T_NAME && p->at[1].type == T_ASSIGN) {
        if (a->star_star)
            syntax_error(p, line, "invalid syntax for function call expression");
        for (uint32_t i = 0; i < kw->n; i++)
            if (str_same(a->kw_name[i], p->at->v.s))
                syntax_error(p, line, "a keyword argument is repeated");
        run_charge(p->r, kw->n / 8);
        a->kw_name = run_grow(p->r, a->kw_name, kw->n, cap, sizeof *a->kw_name);
        a->kw_name[kw->n] = p->at->v.s;
        p->at += 2;
        nodes_add(p, kw, parse_expr(p, true));
    } else {
        if (a->star || a->star_star || kw->n)
            syntax_error(p, line, "invalid syntax for function call expression");
        nodes_add(p, pos, parse_expr(p, true));
    }
}

static struct args *parse_args(struct parser *p)
{
    struct args *a = run_alloc0(p->r, 1, sizeof *a);
    struct nodes pos = {0}, kw = {0};
    uint32_t cap = 0;
    parser_expect(p, T_LPAREN);
    for (bool first = true; p->at->type != T_RPAREN; first = false) {
        if (!first) {
            parser_expect(p, T_COMMA);
            if (p->at->type == T_RPAREN)
                break;
        }
        parse_arg(p, a, &pos, &kw, &cap);
    }
    parser_expect(p, T_RPAREN);
    a->pos = pos.v;
    a->n_pos = pos.n;
    a->kw_value = kw.v;
    a->n_kw = kw.n;
    return a;
}

static struct node *parse_dot(struct parser *p, struct node *of)
{
    struct token *t = p->at++;
    struct node *n = node_two(p, N_GETATTR, t->line, of, NULL);
    if (t->type == T_NAME) {
        n->v = t->v;
        return n;
    }
    if (t->type != T_INTEGER)
        syntax_error(p, t->line, "expected name or number");
    n->kind = N_GETITEM;
    n->b = node_new(p, N_CONST, t->line);
    n->b->v = t->v;
    return n;
}

static struct node *parse_slice(struct parser *p, int line, struct node *start)
{
    struct node *n = node_new(p, N_SLICE, line);
    struct nodes part = {0};
    nodes_add(p, &part, start);
    nodes_add(p, &part, NULL);
    nodes_add(p, &part, NULL);
    for (int i = 1; i < 3; i++) {
        if (i == 2 && !parser_skip(p, T_COLON))
            break;
        enum token_type t = p->at->type;
        if (t != T_COLON && t != T_RBRACKET && t != T_COMMA)
            part.v[i] = parse_expr(p, true);
    }
    n->kid = part.v;
    n->n_kid = part.n;
    return n;
}

static struct node *parse_subscribed(struct parser *p)
{
    int line = p->at->line;
    if (parser_skip(p, T_COLON))
        return parse_slice(p, line, NULL);
    struct node *n = parse_expr(p, true);
    return parser_skip(p, T_COLON) ? parse_slice(p, line, n) : n;
}

static struct node *parse_bracket(struct parser *p, struct node *of)
{
    int line = p->at->line;
    struct nodes part = {0};
    parser_expect(p, T_LBRACKET);
    while (p->at->type != T_RBRACKET) {
        if (part.n)
            parser_expect(p, T_COMMA);
        nodes_add(p, &part, parse_subscribed(p));
        if (part.v[part.n - 1]->kind == N_SLICE && (part.n > 1 || p->at->type == T_COMMA))
            syntax_error(p, line, "a slice among several subscripts");
    }
    parser_expect(p, T_RBRACKET);
    if (part.n == 1 && part.v[0]->kind == N_SLICE) {
        part.v[0]->a = of;
        return part.v[0];
    }
    struct node *n = node_two(p, N_GETITEM, line, of, part.n == 1 ? part.v[0] : NULL);
    if (part.n != 1) {
        n->b = node_new(p, N_TUPLE, line);
        n->b->kid = part.v;
        n->b->n_kid = part.n;
    }
    return n;
}

static struct node *parse_call(struct parser *p, struct node *of)
{
    struct node *n = node_two(p, N_CALL, p->at->line, of, NULL);
    n->args = parse_args(p);
    return n;
}

static struct node *parse_postfix(struct parser *p, struct node *n)
{
    for (;;) {
        if (parser_skip(p, T_DOT))
            n = parse_dot(p, n);
        else if (p->at->type == T_LBRACKET)
            n = parse_bracket(p, n);
        else if (p->at->type == T_LPAREN)
            n = parse_call(p, n);
        else
            return n;
    }
}

/* The name of a filter or test, which may contain dots. */
static struct val parse_dotted(struct parser *p)
{
    struct token *t = parser_expect(p, T_NAME);
    if (p->at->type != T_DOT)
        return t->v;
    struct mark m = string_begin(p->r);
    put_str(p->r, t->v.s);
    while (parser_skip(p, T_DOT)) {
        put_char(p->r, '.');
        put_str(p->r, parser_expect(p, T_NAME)->v.s);
    }
    return v_str(string_end(p->r, m));
}

static void check_known(struct parser *p, struct node *n)
{
    if (!n->builtin && !p->soft && !p->unknown)
        p->unknown = n;
}

struct node *parse_filters(struct parser *p, struct node *on, bool inline_first)
{
    for (; p->at->type == T_PIPE || inline_first; inline_first = false) {
        if (!inline_first)
            p->at++;
        struct node *n = node_two(p, N_FILTER, p->at->line, on, NULL);
        n->v = parse_dotted(p);
        n->args = p->at->type == T_LPAREN ? parse_args(p) : run_alloc0(p->r, 1, sizeof *n->args);
        n->builtin = filter_find(n->v.s);
        check_known(p, n);
        on = n;
    }
    return on;
}

static struct args *parse_test_args(struct parser *p)
{
    enum token_type t = p->at->type;
    if (t == T_LPAREN)
        return parse_args(p);
    struct args *a = run_alloc0(p->r, 1, sizeof *a);
    bool starts = t == T_NAME || t == T_STRING || t == T_INTEGER || t == T_FLOAT || t == T_LBRACKET || t == T_LBRACE;
    if (!starts || parser_at_name(p, "else") || parser_at_name(p, "or") || parser_at_name(p, "and"))
        return a;
    if (parser_at_name(p, "is"))
        syntax_error(p, p->at->line, "You cannot chain multiple tests with is");
    struct nodes pos = {0};
    nodes_add(p, &pos, parse_postfix(p, parse_primary(p, false)));
    a->pos = pos.v;
    a->n_pos = 1;
    return a;
}

static struct node *parse_test(struct parser *p, struct node *on)
{
    int line = p->at++->line;
    bool negated = parser_skip_name(p, "not");
    struct node *n = node_two(p, N_TEST, line, on, NULL);
    n->v = parse_dotted(p);
    n->args = parse_test_args(p);
    n->builtin = test_find(n->v.s);
    check_known(p, n);
    return negated ? node_two(p, N_NOT, line, n, NULL) : n;
}

static struct node *parse_filter_expr(struct parser *p, struct node *n)
{
    for (;;) {
        if (p->at->type == T_PIPE)
            n = parse_filters(p, n, false);
        else if (parser_at_name(p, "is"))
            n = parse_test(p, n);
        else if (p->at->type == T_LPAREN)
            n = parse_call(p, n);
        else
            return n;
    }
}

struct node *parse_unary(struct parser *p, bool with_filter)
{
    struct token *t = p->at;
    struct node *n;
    parser_nest(p);
    if (parser_skip(p, T_SUB))
        n = node_two(p, N_NEG, t->line, parse_unary(p, false), NULL);
    else if (parser_skip(p, T_ADD))
        n = node_two(p, N_POS, t->line, parse_unary(p, false), NULL);
    else
        n = parse_primary(p, false);
    n = parse_postfix(p, n);
    if (with_filter)
        n = parse_filter_expr(p, n);
    parser_unnest(p);
    return n;
}
