/* parse.c - the statements of a template, modelled on jinja2/parser.py. */
#include "daemon/model/chat/ast.h"
#include "daemon/model/chat/builtin.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void syntax_error(struct parser *p, int line, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    p->r->line = line;
    run_fail(p->r, JINJA_SYNTAX, "%s", text);
}

struct node *node_new(struct parser *p, enum node_kind kind, int line)
{
    struct node *n = run_alloc0(p->r, 1, sizeof *n);
    n->kind = (uint8_t)kind;
    n->line = line;
    return n;
}

void nodes_add(struct parser *p, struct nodes *l, struct node *n)
{
    l->v = run_grow(p->r, l->v, l->n, &l->cap, sizeof *l->v);
    l->v[l->n++] = n;
}

static void own_kids(struct node *n, struct nodes l)
{
    n->kid = l.v;
    n->n_kid = l.n;
}

uint32_t name_id(struct parser *p, const struct str *name)
{
    struct jinja *t = p->t;
    for (uint32_t i = 0; i < t->n_name; i++)
        if (str_same(t->name[i], name))
            return i;
    run_charge(p->r, t->n_name / 8);
    t->name = run_grow(p->r, t->name, t->n_name, &t->cap_name, sizeof *t->name);
    t->name[t->n_name] = name;
    return t->n_name++;
}

bool parser_at_name(struct parser *p, const char *name)
{
    return p->at->type == T_NAME && str_is(p->at->v.s, name);
}

bool parser_skip_name(struct parser *p, const char *name)
{
    if (!parser_at_name(p, name))
        return false;
    p->at++;
    return true;
}

bool parser_skip(struct parser *p, enum token_type t)
{
    if (p->at->type != t)
        return false;
    p->at++;
    return true;
}

struct token *parser_expect(struct parser *p, enum token_type t)
{
    if (p->at->type != t)
        syntax_error(p, p->at->line, "expected token '%s', got '%s'", token_name(t), token_name(p->at->type));
    return p->at++;
}

void parser_nest(struct parser *p)
{
    if (++p->r->depth > JINJA_NEST_MAX * 4)
        run_fail(p->r, JINJA_LIMIT, "more than %d levels inside each other", JINJA_NEST_MAX);
}

void parser_unnest(struct parser *p)
{
    p->r->depth--;
}

/* --- bodies ----------------------------------------------------------------------------------------------- */

static struct node *parse_statement(struct parser *p);

static bool at_end(struct parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (parser_at_name(p, *ends))
            return true;
    return false;
}

static void check_unknown(struct parser *p)
{
    struct node *n = p->unknown;
    if (n)
        syntax_error(p, n->line, "No %s named '%.*s'.", n->kind == N_FILTER ? "filter" : "test",
                     n->v.s->n > 60 ? 60 : (int)n->v.s->n, n->v.s->p);
}

/* Parses texts, print statements and tags, up to a tag with one of these names, which is then the next token. */
static struct nodes parse_body(struct parser *p, const char *const *ends)
{
    struct nodes body = {0};
    for (;;) {
        struct token *t = p->at;
        struct node *n;
        check_unknown(p);
        switch (t->type) {
        case T_DATA:
            n = node_new(p, N_TEXT, t->line);
            n->v = t->v;
            p->at++;
            nodes_add(p, &body, n);
            break;
        case T_VAR_BEGIN:
            p->at++;
            n = node_new(p, N_PRINT, t->line);
            struct nodes one = {0};
            nodes_add(p, &one, parse_tuple(p, 0));
            own_kids(n, one);
            parser_expect(p, T_VAR_END);
            nodes_add(p, &body, n);
            break;
        case T_BLOCK_BEGIN:
            p->at++;
            if (at_end(p, ends))
                return body;
            nodes_add(p, &body, parse_statement(p));
            parser_expect(p, T_BLOCK_END);
            break;
        default:
            if (ends)
                syntax_error(p, t->line, "the template ends, and '%s' is missing", *ends);
            return body;
        }
    }
}

/* Parses the body of a tag up to the tag that ends it. The end tag's name is then the next token or, with `drop`,
 * consumed. */
static struct nodes parse_block(struct parser *p, const char *const *ends, bool drop)
{
    parser_skip(p, T_COLON);
    parser_expect(p, T_BLOCK_END);
    parser_nest(p);
    struct nodes body = parse_body(p, ends);
    parser_unnest(p);
    if (drop)
        p->at++;
    return body;
}

/* The same for a body with its own scope, in which unknown filters are errors immediately. */
static struct nodes parse_scope(struct parser *p, const char *const *ends, bool drop)
{
    bool soft = p->soft;
    p->soft = false;
    struct nodes body = parse_block(p, ends, drop);
    p->soft = soft;
    return body;
}

#define ENDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* --- statements ------------------------------------------------------------------------------------------- */

static struct node *parse_for(struct parser *p, int line)
{
    struct node *n = node_new(p, N_FOR, line);
    p->in_for++;
    n->a = parse_target(p, true, false);
    if (!parser_skip_name(p, "in"))
        syntax_error(p, line, "expected 'in' in a for statement");
    n->b = parse_tuple(p, TUPLE_NO_COND);
    bool soft = p->soft;
    p->soft = false;
    if (parser_skip_name(p, "if"))
        n->c = parse_expr(p, true);
    p->soft = soft;
    n->flag = parser_skip_name(p, "recursive");
    unsigned loops = p->loops;
    p->loops = n->flag ? 1 : loops + 1;
    own_kids(n, parse_scope(p, ENDS("endfor", "else"), false));
    p->loops = loops;
    if (parser_skip_name(p, "else")) {
        struct nodes other = parse_scope(p, ENDS("endfor"), false);
        n->other = other.v;
        n->n_other = other.n;
    }
    p->at++;
    p->in_for--;
    return n;
}

static struct node *parse_if(struct parser *p, int line)
{
    bool soft = p->soft;
    struct node *first = NULL, *last = NULL;
    p->soft = true;
    do {
        struct node *n = node_new(p, N_IF, line);
        n->a = parse_tuple(p, TUPLE_NO_COND);
        own_kids(n, parse_block(p, ENDS("elif", "else", "endif"), false));
        if (last) {
            struct nodes other = {0};
            nodes_add(p, &other, n);
            last->other = other.v;
            last->n_other = 1;
        } else {
            first = n;
        }
        last = n;
        line = p->at->line;
    } while (parser_skip_name(p, "elif"));
    if (parser_skip_name(p, "else")) {
        struct nodes other = parse_block(p, ENDS("endif"), false);
        last->other = other.v;
        last->n_other = other.n;
    }
    p->at++;
    p->soft = soft;
    return first;
}

static struct node *parse_set(struct parser *p, int line)
{
    struct node *target = parse_target(p, true, true), *n;
    if (parser_skip(p, T_ASSIGN)) {
        n = node_new(p, N_SET, line);
        n->a = target;
        n->b = parse_tuple(p, 0);
        return n;
    }
    n = node_new(p, N_SETBLOCK, line);
    n->a = target;
    bool soft = p->soft;
    p->soft = false;
    n->b = parse_filters(p, NULL, false);
    p->soft = soft;
    own_kids(n, parse_scope(p, ENDS("endset"), true));
    return n;
}

static struct decl *parse_signature(struct parser *p)
{
    struct decl *d = run_alloc0(p->r, 1, sizeof *d);
    struct nodes param = {0}, def = {0};
    parser_expect(p, T_LPAREN);
    while (p->at->type != T_RPAREN) {
        if (param.n)
            parser_expect(p, T_COMMA);
        struct node *name = parse_name_target(p);
        for (uint32_t i = 0; i < param.n; i++)
            if (param.v[i]->id == name->id)
                syntax_error(p, name->line, "two parameters of one name");
        nodes_add(p, &param, name);
        if (parser_skip(p, T_ASSIGN))
            nodes_add(p, &def, parse_expr(p, true));
        else if (def.n && def.v[def.n - 1])
            syntax_error(p, name->line, "non-default argument follows default argument");
        else
            nodes_add(p, &def, NULL);
    }
    parser_expect(p, T_RPAREN);
    d->param = param.v;
    d->def = def.v;
    d->n = param.n;
    return d;
}

/* Parses the parameters and body of a macro or call block. It is a function, so break cannot leave it. */
static void parse_function(struct parser *p, struct node *n, bool signature, const char *end)
{
    unsigned loops = p->loops;
    bool soft = p->soft;
    p->soft = false;
    p->loops = 0;
    n->decl = signature ? parse_signature(p) : run_alloc0(p->r, 1, sizeof *n->decl);
    p->soft = soft;
    if (n->kind == N_CALLBLOCK) {
        n->a = parse_expr(p, true);
        if (n->a->kind != N_CALL)
            syntax_error(p, n->line, "expected call");
    }
    n->decl->up = p->decl;
    p->decl = n->decl;
    own_kids(n, parse_scope(p, ENDS(end), true));
    p->decl = n->decl->up;
    p->loops = loops;
}

static struct node *parse_macro(struct parser *p, int line)
{
    struct node *n = node_new(p, N_MACRO, line), *name = parse_name_target(p);
    n->id = name->id;
    n->v = name->v;
    parse_function(p, n, true, "endmacro");
    return n;
}

static struct node *parse_call_block(struct parser *p, int line)
{
    struct node *n = node_new(p, N_CALLBLOCK, line);
    parse_function(p, n, p->at->type == T_LPAREN, "endcall");
    return n;
}

static struct node *parse_filter_block(struct parser *p, int line)
{
    struct node *n = node_new(p, N_FILTERBLOCK, line);
    bool soft = p->soft;
    p->soft = false;
    n->b = parse_filters(p, NULL, true);
    p->soft = soft;
    own_kids(n, parse_scope(p, ENDS("endfilter"), true));
    return n;
}

static struct node *parse_with(struct parser *p, int line)
{
    struct node *n = node_new(p, N_WITH, line);
    struct nodes pair = {0};
    while (p->at->type != T_BLOCK_END) {
        if (pair.n)
            parser_expect(p, T_COMMA);
        nodes_add(p, &pair, parse_target(p, true, false));
        parser_expect(p, T_ASSIGN);
        nodes_add(p, &pair, parse_expr(p, true));
    }
    n->other = pair.v;
    n->n_other = pair.n;
    own_kids(n, parse_scope(p, ENDS("endwith"), true));
    return n;
}

/* transformers' own tag, there a call block whose function calls its caller without arguments. */
static struct node *parse_generation(struct parser *p, int line)
{
    struct node *n = node_new(p, N_SCOPE, line);
    parse_function(p, n, false, "endgeneration");
    return n;
}

static struct node *parse_print(struct parser *p, int line)
{
    struct node *n = node_new(p, N_PRINT, line);
    struct nodes kid = {0};
    while (p->at->type != T_BLOCK_END) {
        if (kid.n)
            parser_expect(p, T_COMMA);
        nodes_add(p, &kid, parse_expr(p, true));
    }
    own_kids(n, kid);
    return n;
}

static struct node *parse_jump(struct parser *p, int line, enum node_kind kind)
{
    if (!p->loops)
        syntax_error(p, line, "break or continue outside of a loop");
    return node_new(p, kind, line);
}

/* Tags that need a template loader are an error where they are executed, as in Jinja. */
static struct node *parse_loader(struct parser *p, int line, const char *what)
{
    struct node *n = node_new(p, N_FAIL, line);
    struct mark m = string_begin(p->r);
    put_text(p->r, what);
    put_text(p->r, ": a chat template has no other templates");
    n->v = v_str(string_end(p->r, m));
    parse_expr(p, true);
    while (p->at->type != T_BLOCK_END && p->at->type != T_EOF)
        p->at++;
    return n;
}

static struct node *parse_tag(struct parser *p, const struct token *t)
{
    const struct str *name = t->v.s;
    static const char *const loaders[] = {"include", "import", "from", "extends"};
    if (str_is(name, "for"))
        return parse_for(p, t->line);
    if (str_is(name, "if"))
        return parse_if(p, t->line);
    if (str_is(name, "set"))
        return parse_set(p, t->line);
    if (str_is(name, "macro"))
        return parse_macro(p, t->line);
    if (str_is(name, "call"))
        return parse_call_block(p, t->line);
    if (str_is(name, "filter"))
        return parse_filter_block(p, t->line);
    if (str_is(name, "with"))
        return parse_with(p, t->line);
    if (str_is(name, "generation"))
        return parse_generation(p, t->line);
    if (str_is(name, "print"))
        return parse_print(p, t->line);
    if (str_is(name, "break"))
        return parse_jump(p, t->line, N_BREAK);
    if (str_is(name, "continue"))
        return parse_jump(p, t->line, N_CONTINUE);
    for (size_t i = 0; i < sizeof loaders / sizeof *loaders; i++)
        if (str_is(name, loaders[i]))
            return parse_loader(p, t->line, loaders[i]);
    syntax_error(p, t->line, "unknown tag '%.*s'", name->n > 60 ? 60 : (int)name->n, name->p);
}

static struct node *parse_statement(struct parser *p)
{
    struct token *t = p->at;
    if (t->type != T_NAME)
        syntax_error(p, t->line, "tag name expected");
    p->at++;
    parser_nest(p);
    struct node *n = parse_tag(p, t);
    parser_unnest(p);
    return n;
}

void template_parse(struct run *r, struct jinja *t, const char *src, size_t n)
{
    static const char *const fixed[N_FIXED_NAMES] = {"loop", "caller", "varargs", "kwargs"};
    uint32_t n_token;
    struct parser p = {.r = r, .t = t};
    p.at = template_lex(r, src, n, &n_token);
    for (int i = 0; i < N_FIXED_NAMES; i++)
        name_id(&p, v_text(r, fixed[i]).s);
    struct nodes body = parse_body(&p, NULL);
    if (p.at->type != T_EOF)
        syntax_error(&p, p.at->line, "unexpected '%s'", token_name(p.at->type));
    t->body = body.v;
    t->n_body = body.n;
}
