/* templates.c - see templates.h. */
#include "daemon/model/chat/templates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMED_MAX = 16, NAME_MAX_BYTES = 64 };
#define KEY "tokenizer.chat_template"

struct named {
    char name[NAME_MAX_BYTES];
    struct gguf_str source; /* in the mapped file */
    struct jinja *jinja;    /* NULL: not compiled yet, or failed with `err` */
    struct hearth_err err;
};

struct templates {
    struct named v[NAMED_MAX + 1];
    size_t n;
    char names[(NAMED_MAX + 1) * NAME_MAX_BYTES];
};

static int add(struct templates *t, const struct gguf *g, const char *name, const char *key, struct hearth_err *e)
{
    struct named *v = &t->v[t->n];
    int rc = gguf_str(g, key, &v->source, e);
    if (rc)
        return rc < 0 ? rc : 0;
    snprintf(v->name, sizeof v->name, "%s", name);
    size_t at = strlen(t->names);
    snprintf(t->names + at, sizeof t->names - at, "%s%s", at ? " " : "", name);
    t->n++;
    return 0;
}

/* Names are shown to people and sent as text, so other names are skipped. */
static bool is_name(struct gguf_str s)
{
    if (!s.n || s.n >= NAME_MAX_BYTES)
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (s.s[i] <= ' ' || s.s[i] > '~')
            return false;
    return true;
}

int templates_load(struct templates **out, const struct gguf *g, struct hearth_err *e)
{
    struct templates *t = calloc(1, sizeof *t);
    struct gguf_strs names = {0};
    struct gguf_str s;
    if (!t)
        return err_set(e, HEARTH_ENOMEM, "no memory for chat templates");
    int rc = add(t, g, "default", KEY, e);
    if (!rc)
        rc = gguf_strs(g, KEY "s", &names, e);
    while (rc >= 0 && t->n < NAMED_MAX && gguf_strs_next(&names, &s)) {
        char name[NAME_MAX_BYTES], key[sizeof KEY + NAME_MAX_BYTES];
        if (!is_name(s))
            continue;
        memcpy(name, s.s, s.n);
        name[s.n] = 0;
        snprintf(key, sizeof key, KEY ".%s", name);
        rc = add(t, g, name, key, e);
    }
    if (rc < 0) {
        templates_free(t);
        return rc;
    }
    *out = t;
    return 0;
}

void templates_free(struct templates *t)
{
    for (size_t i = 0; t && i < t->n; i++)
        jinja_free(t->v[i].jinja);
    free(t);
}

const char *templates_names(const struct templates *t)
{
    return t->n ? t->names : NULL;
}

int template_failed(struct jinja_err *why, struct hearth_err *e)
{
    const char *said = why->message ? why->message : "no memory";
    int code = why->failure == JINJA_NOMEM   ? HEARTH_ENOMEM
               : why->failure == JINJA_INPUT ? HEARTH_EPARAMS
                                             : HEARTH_ETEMPLATE;
    if (why->failure == JINJA_RAISED || !why->line)
        err_set(e, code, "%s", said);
    else
        err_set(e, code, "the chat template, line %d: %s", why->line, said);
    jinja_err_fini(why);
    return code;
}

static struct named *find(struct templates *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++)
        if (!strcmp(t->v[i].name, name))
            return &t->v[i];
    return NULL;
}

static int choose(struct templates *t, const char *name, bool tools, struct named **out, struct hearth_err *e)
{
    struct named *v = name ? find(t, name) : tools ? find(t, "tool_use") : NULL;
    if (!v && !name)
        v = find(t, "default");
    if (!v && !t->n)
        return err_set(e, HEARTH_ENOTEMPLATE, "the model's file has no chat template");
    if (!v && !name)
        return err_set(e, HEARTH_ENOTEMPLATE, "the model has no default chat template; name one of %s", t->names);
    if (!v)
        return err_set(e, HEARTH_ENOTEMPLATE, "the model has no chat template \"%.60s\"; there are %s", name, t->names);
    *out = v;
    return 0;
}

int templates_source(struct templates *t, const char *name, bool tools, const char **source, size_t *n,
                     struct hearth_err *e)
{
    struct named *v;
    int rc = choose(t, name, tools, &v, e);
    if (rc)
        return rc;
    *source = v->source.s;
    *n = v->source.n;
    return 0;
}

int templates_get(struct templates *t, const char *name, bool tools, const struct jinja **out, struct hearth_err *e)
{
    struct named *v;
    int rc = choose(t, name, tools, &v, e);
    if (rc)
        return rc;
    if (!v->jinja && !v->err.code) {
        struct jinja_err why;
        if (jinja_compile(&v->jinja, v->source.s, v->source.n, &why))
            template_failed(&why, &v->err);
    }
    if (v->err.code) {
        *e = v->err;
        return e->code;
    }
    *out = v->jinja;
    return 0;
}
