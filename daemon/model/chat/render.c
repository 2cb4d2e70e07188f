/* render.c - see jinja.h: compiling and rendering, and the setjmp() that errors return to. */
#include "config.h"

#include "daemon/model/chat/exec.h"
#include "libclient/utf8.h"

#include <stdlib.h>
#include <string.h>

void jinja_err_fini(struct jinja_err *e)
{
    free(e->message);
    *e = (struct jinja_err){0};
}

void jinja_text_fini(struct jinja_text *text)
{
    free(text->data);
    free(text->span);
    *text = (struct jinja_text){0};
}

static void run_free(struct run *r)
{
    run_arena_free(&r->cells);
    run_arena_free(&r->bytes);
    free(r->out);
    free(r->span);
}

/* --- compiling -------------------------------------------------------------------------------------------- */

/* Converts line ends to \n and drops one at the end of the source. */
static const char *read_source(struct run *r, const char *source, size_t *n)
{
    if (*n > JINJA_SOURCE_MAX)
        run_fail(r, JINJA_LIMIT, "a template of more than %zu KiB", JINJA_SOURCE_MAX >> 10);
    if (utf8_prefix(source, *n) != *n)
        run_fail(r, JINJA_SYNTAX, "the template is not UTF-8");
    char *text = run_alloc_bytes(r, *n + 1);
    size_t to = 0;
    for (size_t i = 0; i < *n; i++) {
        if (source[i] == '\r' && i + 1 < *n && source[i + 1] == '\n')
            continue;
        text[to++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (to && text[to - 1] == '\n')
        to--;
    *n = to;
    return text;
}

/* Not inlined: local variables that a function changes after its setjmp() are indeterminate after a longjmp(). */
__attribute__((noinline)) static void read_and_parse(struct run *r, struct jinja *t, const char *source, size_t n)
{
    const char *text = read_source(r, source, &n);
    template_parse(r, t, text, n);
    find_hidden(r, t);
}

static int compile(struct run *r, struct jinja *t, const char *source, size_t n)
{
    if (setjmp(r->escape))
        return -1;
    read_and_parse(r, t, source, n);
    return 0;
}

enum jinja_failure jinja_compile(struct jinja **out, const char *source, size_t n, struct jinja_err *e)
{
    struct jinja *t = calloc(1, sizeof *t);
    struct run r = {.err = e};
    *e = (struct jinja_err){0};
    if (!t) {
        e->failure = JINJA_NOMEM;
        return JINJA_NOMEM;
    }
    int rc = compile(&r, t, source, n);
    t->cells = r.cells;
    t->bytes = r.bytes;
    free(r.out);
    free(r.span);
    if (rc) {
        jinja_free(t);
        return e->failure;
    }
    *out = t;
    return JINJA_OK;
}

void jinja_free(struct jinja *t)
{
    if (!t)
        return;
    run_arena_free(&t->cells);
    run_arena_free(&t->bytes);
    free(t);
}

/* --- rendering -------------------------------------------------------------------------------------------- */

static void bind_context(struct run *r, struct val context)
{
    const struct jinja *t = r->tmpl;
    r->context = run_alloc0(r, t->n_name, sizeof *r->context);
    for (uint32_t i = 0; i < t->n_name; i++) {
        const struct builtin *b = global_find(t->name[i]);
        struct val v = dict_get_str(r, context.d, t->name[i]);
        if (!is_missing(v))
            r->context[i] = v;
        else if (b)
            r->context[i] = (struct val){.tag = V_FUNC, .func = b};
    }
    for (uint32_t i = 0; i < t->hidden.n; i++)
        r->context[t->hidden.id[i]] = (struct val){0};
}

/* Merges spans that touch, and refuses lone surrogates. */
static void finish(struct run *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n_span; i++) {
        if (n && r->span[n - 1].to == r->span[i].from)
            r->span[n - 1].to = r->span[i].to;
        else
            r->span[n++] = r->span[i];
    }
    r->n_span = n;
    r->line = 0;
    if (utf8_prefix(r->out, r->n_out) != r->n_out)
        type_error(r, "the text holds a lone surrogate, which UTF-8 cannot spell");
    put_char(r, 0);
}

/* The keys of a chat's object and their types; a token that is null is left undefined. */
static const struct part {
    const char *key;
    enum tag tag, or_tag;
    struct val absent;
} parts[] = {
    {"messages", V_LIST, V_LIST, {.tag = V_MISSING}}, {"tools", V_LIST, V_NONE, {.tag = V_NONE}},
    {"documents", V_LIST, V_NONE, {.tag = V_NONE}},   {"add_generation_prompt", V_BOOL, V_BOOL, {.tag = V_BOOL}},
    {"bos_token", V_STR, V_NONE, {.tag = V_MISSING}}, {"eos_token", V_STR, V_NONE, {.tag = V_MISSING}},
    {"kwargs", V_DICT, V_NONE, {.tag = V_MISSING}},
};
#define N_PARTS (sizeof parts / sizeof *parts)

static void check_keys(struct run *r, const struct dict *d)
{
    for (uint32_t i = 0; i < d->n; i++) {
        const struct str *key = d->e[i].k.s;
        size_t p = 0;
        while (p < N_PARTS && !str_is(key, parts[p].key))
            p++;
        if (p == N_PARTS)
            run_fail(r, JINJA_INPUT, "unknown key '%.*s': a template's variables go into kwargs",
                     key->n > 60 ? 60 : (int)key->n, key->p);
    }
}

/* Templates make markup of a role: '<|' + message['role'] + '|>' is one token. So a role that is a word, which nobody
 * can have smuggled into a message, counts as the template's own text. */
static void own_roles(struct run *r, const struct list *messages)
{
    struct val key = v_text(r, "role");
    for (uint32_t i = 0; i < messages->n; i++) {
        struct val message = messages->v[i];
        struct val role = message.tag == V_DICT ? dict_get(r, message.d, key) : (struct val){0};
        size_t n = 0;
        if (role.tag != V_STR)
            continue;
        while (n < role.s->n && (role.s->p[n] == '_' || ((unsigned char)role.s->p[n] | 0x20u) - 'a' < 26))
            n++;
        if (n == role.s->n)
            dict_set(r, message.d, key, v_str(str_new(r, role.s->p, n)));
    }
}

static struct val chat_context(struct run *r, struct val chat)
{
    struct val context = dict_new(r, V_DICT);
    check_keys(r, chat.d);
    for (size_t p = 0; p < N_PARTS; p++) {
        struct val key = v_text(r, parts[p].key), v = dict_get(r, chat.d, key);
        bool token = parts[p].tag == V_STR;
        if (is_missing(v))
            v = parts[p].absent;
        else if (v.tag != parts[p].tag && v.tag != parts[p].or_tag)
            run_fail(r, JINJA_INPUT, "'%s' cannot be of type '%s'", parts[p].key, val_type_name(v));
        if (parts[p].tag == V_DICT) {
            for (uint32_t i = 0; v.tag == V_DICT && i < v.d->n; i++)
                dict_set(r, context.d, v.d->e[i].k, v.d->e[i].v);
        } else if (!is_missing(v) && !(token && v.tag == V_NONE)) {
            dict_set(r, context.d, key, v);
        }
        if (!p && v.tag == V_LIST)
            own_roles(r, v.l);
    }
    return context;
}

struct input {
    const char *json;
    size_t n;
    const char *const *own;
    bool chat;
};

static int render(struct run *r, const struct input *in)
{
    if (setjmp(r->escape))
        return -1;
    if (in->n > JINJA_INPUT_MAX)
        run_fail(r, JINJA_LIMIT, "a context of more than %zu MiB", JINJA_INPUT_MAX >> 20);
    struct val v = json_read(r, in->json, in->n, in->own);
    bind_context(r, in->chat ? chat_context(r, v) : v);
    r->steps = 0;
    r->more_steps = in->n * JINJA_STEPS_BYTE;
    if (r->more_steps > JINJA_STEPS_ALL - JINJA_STEPS_MAX)
        r->more_steps = JINJA_STEPS_ALL - JINJA_STEPS_MAX;
    exec_body(r, NULL, r->tmpl->body, r->tmpl->n_body);
    finish(r);
    return 0;
}

static enum jinja_failure render_input(const struct jinja *t, const struct input *in, const struct tm *now,
                                       struct jinja_text *out, struct jinja_err *e)
{
    struct run r = {.err = e, .tmpl = t, .now = now};
    *e = (struct jinja_err){0};
    if (render(&r, in)) {
        run_free(&r);
        return e->failure;
    }
    *out = (struct jinja_text){.data = r.out, .n = r.n_out - 1, .span = r.span, .n_span = r.n_span};
    r.out = NULL;
    r.span = NULL;
    run_free(&r);
    return JINJA_OK;
}

enum jinja_failure jinja_render(const struct jinja *t, const char *context, size_t n, const char *const *own,
                                const struct tm *now, struct jinja_text *out, struct jinja_err *e)
{
    return render_input(t, &(struct input){context, n, own, false}, now, out, e);
}

enum jinja_failure jinja_render_chat(const struct jinja *t, const char *chat, size_t n, const struct tm *now,
                                     struct jinja_text *out, struct jinja_err *e)
{
    static const char *const tokens[] = {"bos_token", "eos_token", NULL};
    return render_input(t, &(struct input){chat, n, tokens, true}, now, out, e);
}
