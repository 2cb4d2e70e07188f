/* builtin.c - finds built-in functions and binds the arguments of their calls. */
#include "daemon/model/chat/builtin.h"

#include <string.h>

/* Finds the next name in a list of parameters; returns its length, 0 at the end. */
static size_t next_param(const char **at, const char **name)
{
    while (**at == ' ')
        ++*at;
    *name = *at;
    while (**at && **at != ' ')
        ++*at;
    return (size_t)(*at - *name);
}

static struct val keyword(const struct call *c, const char *name, size_t n, uint32_t *used)
{
    for (uint32_t i = 0; i < c->n_kw; i++) {
        if (c->kw_name[i]->n != n || memcmp(c->kw_name[i]->p, name, n) != 0)
            continue;
        ++*used;
        return c->kw[i];
    }
    return (struct val){0};
}

struct val builtin_call(struct run *r, const struct builtin *b, struct val self, const struct call *c)
{
    struct val arg[BUILTIN_ARGS] = {{0}};
    const char *at = b->params ? b->params : "", *name;
    uint32_t used = 0, i = 0;
    size_t n;
    run_charge(r, 1);
    if (b->raw)
        return b->raw(r, self, c);
    for (; (n = next_param(&at, &name)); i++) {
        arg[i] = keyword(c, name, n, &used); /* a positional-only name begins with '/', which no keyword does */
        if (i < c->n_pos && !is_missing(arg[i]))
            type_error(r, "%s() got multiple values for argument '%.*s'", b->name, (int)n, name);
        if (i < c->n_pos)
            arg[i] = c->pos[i];
        if (is_missing(arg[i]) && (int)i < b->required)
            type_error(r, "%s() is missing argument '%.*s'", b->name, (int)n - (*name == '/'), name + (*name == '/'));
    }
    if (c->n_pos > i)
        type_error(r, "%s() takes at most %u argument(s), and %u were given", b->name, i, c->n_pos);
    if (used < c->n_kw)
        type_error(r, "%s() got an unexpected keyword argument", b->name);
    return b->fn(r, self, arg);
}

const struct builtin *table_find(const struct builtin *table, const struct str *name)
{
    for (; table->name; table++)
        if (str_is(name, table->name))
            return table;
    return NULL;
}

const struct builtin *filter_find(const struct str *name)
{
    static const struct builtin *const tables[] = {value_filters, text_filters, list_filters, rare_filters};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        const struct builtin *b = table_find(tables[i], name);
        if (b)
            return b;
    }
    return NULL;
}

struct val filter_by_name(struct run *r, struct val name, struct val v, const struct call *c)
{
    const struct builtin *b = name.tag == V_STR ? filter_find(name.s) : NULL;
    if (!b)
        type_error(r, "No filter named %.*s.", (int)(to_str(r, name)->n > 60 ? 60 : to_str(r, name)->n),
                   to_str(r, name)->p);
    return builtin_call(r, b, v, c);
}

bool test_call(struct run *r, const struct builtin *b, struct val v, const struct call *c)
{
    return val_truth(builtin_call(r, b, v, c));
}

const struct str *plain_str(struct run *r, struct val v)
{
    const struct str *s = to_str(r, v);
    if (!s->markup)
        return s;
    struct str *plain = str_new(r, NULL, 0);
    *plain = *s;
    plain->markup = false;
    return plain;
}
