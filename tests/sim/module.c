/*
 * module.c - reads the outline of a PTX module: its kernels with their parameters, functions and variables. decode.c
 * decodes their bodies when a launch needs them.
 */
#include "tests/sim/module.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool text_is(struct text t, const char *s)
{
    return t.n == strlen(s) && !memcmp(t.p, s, t.n);
}
const char *text_skip(const char *p, const char *end)
{
    for (;;) {
        while (p < end && isspace((unsigned char)*p))
            p++;
        if (end - p >= 2 && p[0] == '/' && p[1] == '/') {
            while (p < end && *p != '\n')
                p++;
        } else if (end - p >= 2 && p[0] == '/' && p[1] == '*') {
            p += 2;
            while (end - p >= 2 && !(p[0] == '*' && p[1] == '/'))
                p++;
            p = end - p >= 2 ? p + 2 : end;
        } else {
            return p;
        }
    }
}
struct text text_name(const char *p, const char *end)
{
    struct text t = {p, 0};
    while (p < end && (isalnum((unsigned char)*p) || *p == '_' || *p == '$' || *p == '%' || (*p == '.' && *t.p == '%')))
        p++;
    t.n = (size_t)(p - t.p);
    return t;
}
const char *text_close(const char *p, const char *end)
{
    int depth = 0;
    for (; p < end; p++) {
        if (*p == '(' || *p == '{' || *p == '[')
            depth++;
        else if ((*p == ')' || *p == '}' || *p == ']') && !--depth)
            return p;
    }
    return end;
}
uint32_t text_type(struct text t)
{
    static const struct {
        const char *name;
        uint32_t bytes;
    } types[] = {{"b8", 1},  {"u8", 1},  {"s8", 1},  {"b16", 2}, {"u16", 2}, {"s16", 2}, {"f16", 2}, {"b32", 4},
                 {"u32", 4}, {"s32", 4}, {"f32", 4}, {"b64", 8}, {"u64", 8}, {"s64", 8}, {"f64", 8}, {"b128", 16}};
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        if (text_is(t, types[k].name))
            return types[k].bytes;
    return 0;
}
bool text_declaration(const char *p, const char *end, struct text *name, uint32_t *bytes, uint32_t *align)
{
    uint32_t size = 0;
    *align = 0;
    for (p = text_skip(p, end); p < end && *p == '.'; p = text_skip(p, end)) {
        struct text word = text_name(p + 1, end);
        p = word.p + word.n;
        if (text_is(word, "align")) {
            char *after;
            *align = (uint32_t)strtoul(p, &after, 10);
            p = after;
        } else if (text_is(word, "ptr") || text_is(word, "global")) { /* of a parameter: irrelevant to its size */
        } else if (!(size = text_type(word))) {
            return false;
        }
    }
    *name = text_name(p, end);
    p = text_skip(name->p + name->n, end);
    *bytes = size;
    if (p < end && *p == '[')
        *bytes = size * (uint32_t)strtoul(p + 1, NULL, 10);
    if (!*align)
        *align = size;
    return size && name->n;
}

static struct text between(const char *open, const char *close)
{
    return (struct text){open + 1, (size_t)(close - open - 1)};
}
static void *grown(void *p, size_t n, size_t size)
{
    if (n & (n - 1))
        return p;
    p = realloc(p, (n ? 2 * n : 1) * size);
    if (!p)
        abort();
    return p;
}
static void read_params(struct sim_fn *f, struct text t)
{
    uint32_t *offsets = NULL, *sizes = NULL, n = 0, at = 0;
    const char *p = t.p, *end = t.p + t.n;
    for (; (p = memchr(p, '.', (size_t)(end - p))); p++) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        struct text name;
        uint32_t bytes, align;
        if (!comma)
            comma = end;
        /* after ".param" */
        if (!text_declaration(p + 6, comma, &name, &bytes, &align))
            break;
        offsets = grown(offsets, n, sizeof *offsets), sizes = grown(sizes, n, sizeof *sizes);
        at = (at + align - 1) & ~(align - 1);
        offsets[n] = at, sizes[n++] = bytes;
        at += bytes;
        p = comma < end ? comma : end - 1;
    }
    f->info.n_params = n, f->info.param_offset = offsets, f->info.param_bytes = sizes, f->info.params_bytes = at;
}
/* "256, 1, 1"; missing numbers are 1. */
static const char *read_dims(const char *p, const char *end, struct sim_dims *d)
{
    uint32_t v[3] = {1, 1, 1};
    for (int k = 0; k < 3; k++) {
        char *after;
        v[k] = (uint32_t)strtoul(p, &after, 10);
        p = text_skip(after, end);
        if (p == end || *p != ',')
            break;
        p++;
    }
    *d = (struct sim_dims){v[0], v[1], v[2]};
    return p;
}
/* Reads a kernel or function at p, after ".entry" or ".func", and returns its end. */
static const char *read_function(struct sim_module *m, const char *p, const char *end, bool entry)
{
    struct device_function f = {0};
    p = text_skip(p, end);
    if (*p == '(') {
        const char *close = text_close(p, end);
        f.results = between(p, close);
        p = text_skip(close + 1, end);
    }
    f.name = text_name(p, end);
    p = text_skip(f.name.p + f.name.n, end);
    if (p < end && *p == '(') {
        const char *close = text_close(p, end);
        f.params = between(p, close);
        p = close + 1;
    }
    /* What precedes the body is for the compiler of machine code, except the limits that a launch must respect. */
    struct sim_fn_info info = {.max_threads = 1024};
    while ((p = text_skip(p, end)) < end && *p != '{' && *p != ';') {
        if (*p == '.') {
            struct text word = text_name(p + 1, end);
            p = word.p + word.n;
            if (text_is(word, "maxntid")) {
                struct sim_dims d;
                p = read_dims(p, end, &d);
                info.max_threads = d.x * d.y * d.z;
            } else if (text_is(word, "reqnctapercluster")) {
                p = read_dims(p, end, &info.cluster);
            }
        } else {
            p++;
        }
    }
    if (p == end || *p == ';')
        return p;
    const char *close = text_close(p, end);
    f.body = between(p, close);
    if (entry) {
        m->fns = grown(m->fns, m->n_fns, sizeof *m->fns);
        struct sim_fn *fn = m->fns + m->n_fns++;
        *fn = (struct sim_fn){.name = strndup(f.name.p, f.name.n),
                              .params = f.params.p,
                              .params_n = f.params.n,
                              .body = f.body.p,
                              .body_n = f.body.n};
        fn->info = info;
        read_params(fn, f.params);
    } else {
        m->functions = grown(m->functions, m->n_functions, sizeof *m->functions);
        m->functions[m->n_functions++] = f;
    }
    return close + 1;
}
/* Reads numbers in braces, of the declared type; missing ones are 0. */
static void read_values(uint8_t *to, uint32_t bytes, uint32_t size, const char *p, const char *end)
{
    for (uint32_t at = 0; p < end && at + size <= bytes; at += size) {
        p = text_skip(p, end);
        uint64_t v;
        char *after;
        if (end - p > 2 && p[0] == '0' && (p[1] == 'f' || p[1] == 'd'))
            v = strtoull(p + 2, &after, 16);
        else
            v = *p == '-' ? (uint64_t)strtoll(p, &after, 0) : strtoull(p, &after, 0);
        memcpy(to + at, &v, size);
        p = text_skip(after, end);
        if (p == end || *p != ',')
            return;
        p++;
    }
}
static const char *read_variable(struct sim_module *m, const char *p, const char *end, enum space space, bool is_extern)
{
    const char *stop = p;
    while (stop < end && *stop != ';')
        stop++;
    struct variable v = {.space = space, .is_extern = is_extern};
    if (!text_declaration(p, stop, &v.name, &v.bytes, &v.align))
        return NULL;
    if (space == SPACE_GLOBAL) {
        v.place = aligned_alloc(256, (v.bytes + 511) & ~255u);
        memset(v.place, 0, v.bytes);
        const char *values = memchr(p, '=', (size_t)(stop - p));
        if (values) {
            const char *dot = p;
            uint32_t size = 0;
            for (; dot < values && !size; dot++)
                if (*dot == '.')
                    size = text_type(text_name(dot + 1, stop));
            values = text_skip(values + 1, stop);
            read_values(v.place, v.bytes, size, *values == '{' ? values + 1 : values, stop);
        }
        sim_memory_add(v.place, v.bytes);
    }
    m->variables = grown(m->variables, m->n_variables, sizeof *m->variables);
    m->variables[m->n_variables++] = v;
    return stop + 1;
}

struct sim_module *sim_load(const char *ptx, size_t n)
{
    struct sim_module *m = calloc(1, sizeof *m);
    const char *p = ptx, *end = ptx + strnlen(ptx, n);
    bool is_extern = false;
    if (!m)
        return NULL;
    m->p = ptx, m->n = (size_t)(end - ptx);
    while ((p = text_skip(p, end)) < end && *p) {
        struct text word = *p == '.' ? text_name(p + 1, end) : (struct text){p, 0};
        const char *after = word.p + word.n;
        if (text_is(word, "version") || text_is(word, "target") || text_is(word, "address_size") ||
            text_is(word, "file") || text_is(word, "loc")) {
            while (p < end && *p != '\n')
                p++;
        } else if (text_is(word, "section")) {
            while (after < end && *after != '{')
                after++;
            p = text_close(after, end) + 1;
        } else if (text_is(word, "visible") || text_is(word, "weak") || text_is(word, "common")) {
            p = after;
        } else if (text_is(word, "extern")) {
            is_extern = true;
            p = after;
            continue;
        } else if (text_is(word, "entry") || text_is(word, "func")) {
            p = read_function(m, after, end, text_is(word, "entry"));
            if (p < end && *p == ';')
                p++;
        } else if (text_is(word, "shared") || text_is(word, "global") || text_is(word, "const")) {
            p = read_variable(m, after, end, text_is(word, "shared") ? SPACE_SHARED : SPACE_GLOBAL, is_extern);
        } else if (*p == ';') {
            p++;
        } else {
            p = NULL;
        }
        if (!p) {
            fprintf(stderr, "simulated GPU: no idea what \"%.*s\" is\n", (int)strcspn(after, "\n"), word.p);
            free(m);
            return NULL;
        }
        is_extern = false;
    }
    for (size_t k = 0; k < m->n_fns; k++)
        m->fns[k].module = m;
    return m;
}
struct sim_fn *sim_function(struct sim_module *m, const char *name)
{
    for (size_t k = 0; k < m->n_fns; k++)
        if (!strcmp(m->fns[k].name, name))
            return m->fns + k;
    return NULL;
}
void *sim_variable(struct sim_module *m, const char *name, size_t *bytes)
{
    for (size_t k = 0; k < m->n_variables; k++)
        if (m->variables[k].place && text_is(m->variables[k].name, name)) {
            *bytes = m->variables[k].bytes;
            return m->variables[k].place;
        }
    return NULL;
}
const struct sim_fn_info *sim_info(struct sim_fn *f)
{
    /* What a function declares within its body is known once the body is decoded. */
    return f->decoded || sim_decode(f) ? &f->info : NULL;
}
void sim_source(const struct sim_fn *f, const struct ins *i, char *text, size_t n)
{
    /* The last ".loc" before the line gives the source's line, with the number of its ".file" directive; those are at
     * the module's end. */
    const char *p = f->module->p, *end = p + f->module->n, *loc = NULL, *line = p;
    for (uint32_t k = 1; k < i->line && p; k++) {
        line = p = memchr(p, '\n', (size_t)(end - p));
        if (!p)
            break;
        line = ++p;
        const char *word = text_skip(p, end);
        if (end - word > 5 && !strncmp(word, ".loc\t", 5) && word < f->body + f->body_n)
            loc = word;
    }
    int at = snprintf(text, n, "PTX line %u \"%.*s\"", i->line, line ? (int)strcspn(line, "\n") : 0, line ? line : "");
    if (!loc || loc < f->body || at < 0 || (size_t)at >= n)
        return;
    unsigned file = 0, row = 0;
    sscanf(loc + 5, "%u %u", &file, &row);
    char key[32];
    int key_n = snprintf(key, sizeof key, ".file\t%u \"", file);
    for (p = f->module->p; (p = memchr(p, '.', (size_t)(end - p))); p++)
        if (end - p > key_n && !memcmp(p, key, (size_t)key_n)) {
            snprintf(text, n, "%.*s:%u (PTX line %u)", (int)strcspn(p + key_n, "\""), p + key_n, row, i->line);
            return;
        }
}
