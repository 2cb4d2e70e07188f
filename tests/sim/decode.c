/*
 * decode.c - turns a kernel's PTX into instructions: names into places, labels into targets, constants into registers
 * that do not change. Called functions are inlined. The rows of arithmetic opcodes are in alu.c; opcodes with modifiers
 * or memory operands are in opcodes.c.
 */
#include "tests/sim/decode.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void decode_fail(struct decoding *d, const char *format, ...)
{
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "simulated GPU: %s, line %u of the PTX: %s: \"%.*s\"\n", d->fn->name, d->line, text,
            (int)strcspn(d->statement, "\n"), d->statement);
    longjmp(d->failed, 1);
}
static void *more(void *p, uint32_t n, uint32_t *room, size_t size)
{
    if (n < *room)
        return p;
    *room = *room ? 2 * *room : 256;
    p = realloc(p, *room * size);
    if (!p)
        abort();
    return p;
}

/* --- places ----------------------------------------------------------------------------------------------------- */

operand decode_register(struct decoding *d, uint32_t width)
{
    uint32_t bytes = width == 1 ? 128 : width <= 32 ? 128 : width == 64 ? 256 : 512;
    operand o = (operand)d->regs_bytes;
    d->regs_bytes += bytes;
    return o;
}
/* A constant is a register of the function with the value in all lanes; `width` 1 is a predicate. */
operand decode_constant(struct decoding *d, uint64_t v, uint32_t width)
{
    if (width <= 32 && width > 1)
        v = (uint32_t)v, width = 32;
    for (uint32_t k = d->n_constants; k-- > 0 && d->n_constants - k < 4096;)
        if (d->known[k].v == v && d->known[k].width == width)
            return d->known[k].o;
    uint32_t bytes = width == 64 ? 256 : 128;
    d->consts = more(d->consts, d->consts_bytes + bytes, &d->consts_room, 1);
    uint8_t *p = d->consts + d->consts_bytes;
    if (width == 1) {
        uint32_t all = v ? ~0u : 0;
        memcpy(p, &all, 4);
    } else {
        for (int l = 0; l < LANES; l++)
            memcpy(p + (size_t)l * (width / 8), &v, width / 8);
    }
    operand o = (operand)d->consts_bytes | 1;
    d->consts_bytes += bytes;
    d->known = more(d->known, d->n_constants, &d->constants_room, sizeof *d->known);
    d->known[d->n_constants++] = (struct known){v, width, o};
    return o;
}
static struct name *add_name(struct decoding *d, struct text t)
{
    d->names = more(d->names, d->n_names, &d->names_room, sizeof *d->names);
    struct name *n = d->names + d->n_names++;
    *n = (struct name){.text = t, .counted = -1};
    return n;
}
static uint32_t width_of_type(struct text t)
{
    return text_is(t, "pred") ? 1 : 8 * text_type(t);
}
/* ".reg .b32 %r<7>;" or ".reg .pred p, q;" */
static void declare_registers(struct decoding *d, const char *p, const char *end)
{
    p = text_skip(p, end);
    struct text type = text_name(p + 1, end);
    uint32_t width = *p == '.' ? width_of_type(type) : 0;
    if (!width)
        decode_fail(d, "registers of no type that is known");
    for (p = text_skip(type.p + type.n, end); p < end; p = text_skip(p, end)) {
        struct name *n = add_name(d, text_name(p, end));
        n->width = width, n->is_register = true;
        p = text_skip(n->text.p + n->text.n, end);
        int count = 1;
        if (p < end && *p == '<') {
            char *after;
            n->counted = count = (int)strtol(p + 1, &after, 10);
            p = text_skip(after + 1, end);
        }
        n->o = decode_register(d, width);
        for (int k = 1; k < count; k++)
            decode_register(d, width);
        if (p < end && *p == ',')
            p++;
    }
}
static uint32_t up(uint32_t n, uint32_t to)
{
    return (n + to - 1) & ~(to - 1);
}
/* ".local .align 16 .b8 x[48];", or a parameter of a call, which is also memory of each thread. */
static void declare_local(struct decoding *d, const char *p, const char *end)
{
    struct text t;
    uint32_t bytes, align;
    if (!text_declaration(p, end, &t, &bytes, &align))
        decode_fail(d, "a declaration that is not known");
    struct name *n = add_name(d, t);
    d->local_bytes = up(d->local_bytes, align);
    n->space = SPACE_LOCAL, n->offset = d->local_bytes;
    d->local_bytes = up(d->local_bytes + bytes, 4);
}
/* Variables in shared memory get their places before the first instruction, because the launch's dynamic memory follows
 * them. */
static void place_shared(struct decoding *d, struct text body)
{
    const char *p = body.p, *end = p + body.n;
    while ((p = memchr(p, '.', (size_t)(end - p)))) {
        struct text word = text_name(p + 1, end), t;
        uint32_t bytes, align;
        p++;
        if (!text_is(word, "shared") || p[word.n] == ':' || !isspace((unsigned char)p[word.n]))
            continue;
        if (!text_declaration(p + word.n, end, &t, &bytes, &align))
            continue;
        d->shared_bytes = up(d->shared_bytes, align);
        struct name *n = add_name(d, t);
        n->space = SPACE_SHARED, n->offset = d->shared_bytes;
        d->shared_bytes += bytes;
    }
}
static void place_all_shared(struct decoding *d)
{
    const struct sim_module *m = d->fn->module;
    uint32_t align = 16;
    for (size_t k = 0; k < m->n_variables; k++) {
        const struct variable *v = m->variables + k;
        if (v->space != SPACE_SHARED || v->is_extern)
            continue;
        d->shared_bytes = up(d->shared_bytes, v->align);
        struct name *n = add_name(d, v->name);
        n->space = SPACE_SHARED, n->offset = d->shared_bytes;
        d->shared_bytes += v->bytes;
    }
    place_shared(d, (struct text){d->fn->body, d->fn->body_n});
    for (size_t k = 0; k < m->n_functions; k++)
        place_shared(d, m->functions[k].body);
    for (size_t k = 0; k < m->n_variables; k++)
        if (m->variables[k].is_extern && m->variables[k].align > align)
            align = m->variables[k].align;
    for (size_t k = 0; k < m->n_variables; k++)
        if (m->variables[k].is_extern) {
            struct name *n = add_name(d, m->variables[k].name);
            n->space = SPACE_SHARED, n->offset = up(d->shared_bytes, align);
        }
    for (size_t k = 0; k < m->n_variables; k++)
        if (m->variables[k].place) {
            struct name *n = add_name(d, m->variables[k].name);
            n->space = SPACE_GLOBAL, n->place = m->variables[k].place;
        }
    d->fn->dynamic_align = align;
}
static void place_params(struct decoding *d)
{
    const char *p = d->fn->params, *end = p + d->fn->params_n;
    for (uint32_t k = 0; k < d->fn->info.n_params; k++) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        struct text t;
        uint32_t bytes, align;
        p = memchr(p, '.', (size_t)(end - p));
        if (!text_declaration(p + 6, comma ? comma : end, &t, &bytes, &align))
            decode_fail(d, "a parameter that is not known");
        struct name *n = add_name(d, t);
        n->space = SPACE_PARAM, n->offset = d->fn->info.param_offset[k];
        p = comma ? comma + 1 : end;
    }
}

const struct name *decode_name(struct decoding *d, struct text t)
{
    for (uint32_t k = d->n_names; k-- > 0;) {
        const struct name *n = d->names + k;
        if (n->counted < 0 && n->text.n == t.n && !memcmp(n->text.p, t.p, t.n))
            return n;
        if (n->counted >= 0 && t.n > n->text.n && !memcmp(n->text.p, t.p, n->text.n) &&
            isdigit((unsigned char)t.p[n->text.n]))
            return n;
    }
    return NULL;
}
static bool special(struct text t, operand *o)
{
    static const struct {
        const char *name;
        enum special s;
    } rows[] = {{"%tid.x", SPECIAL_TID_X},
                {"%tid.y", SPECIAL_TID_Y},
                {"%tid.z", SPECIAL_TID_Z},
                {"%laneid", SPECIAL_LANEID},
                {"%warpid", SPECIAL_WARPID},
                {"%ctaid.x", SPECIAL_CTAID_X},
                {"%ctaid.y", SPECIAL_CTAID_Y},
                {"%ctaid.z", SPECIAL_CTAID_Z},
                {"%ntid.x", SPECIAL_NTID_X},
                {"%ntid.y", SPECIAL_NTID_Y},
                {"%ntid.z", SPECIAL_NTID_Z},
                {"%nctaid.x", SPECIAL_NCTAID_X},
                {"%nctaid.y", SPECIAL_NCTAID_Y},
                {"%nctaid.z", SPECIAL_NCTAID_Z},
                {"%cluster_ctarank", SPECIAL_CLUSTER_CTARANK},
                {"%cluster_nctarank", SPECIAL_CLUSTER_NCTARANK}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        if (text_is(t, rows[k].name)) {
            *o = (operand)rows[k].s * 128;
            return true;
        }
    return false;
}
struct value decode_value(struct decoding *d, struct text t, uint32_t width)
{
    struct value v = {.width = width};
    if (!t.n)
        decode_fail(d, "an operand is missing");
    if (t.p[0] == '-' || isdigit((unsigned char)t.p[0])) {
        uint64_t bits;
        if (t.n > 2 && t.p[0] == '0' && (t.p[1] == 'f' || t.p[1] == 'd' || t.p[1] == 'F' || t.p[1] == 'D'))
            bits = strtoull(t.p + 2, NULL, 16);
        else
            bits = t.p[0] == '-' ? (uint64_t)strtoll(t.p, NULL, 0) : strtoull(t.p, NULL, 0);
        v.o = decode_constant(d, width == 16 ? bits & 0xffff : bits, width);
        return v;
    }
    if (text_is(t, "_")) {
        v.o = NONE;
        return v;
    }
    if (special(t, &v.o)) {
        v.width = 32;
        return v;
    }
    const struct name *n = decode_name(d, t);
    if (!n)
        decode_fail(d, "no idea what %.*s is", (int)t.n, t.p);
    if (!n->is_register) {
        v.o = decode_constant(d, n->place ? (uint64_t)n->place : n->offset, width);
        return v;
    }
    v.width = n->width, v.o = n->o;
    if (n->counted >= 0)
        v.o += atoi(t.p + n->text.n) * (n->width == 64 ? 256 : n->width == 128 ? 512 : 128);
    return v;
}
/* An operand of an instruction, of that many bits; predicates have 1. */
operand decode_operand(struct decoding *d, struct text t, uint32_t width)
{
    struct value v = decode_value(d, t, width);
    bool same = v.width == width || (v.width <= 32 && width <= 32 && v.width > 1 && width > 1);
    if (v.o != NONE && !same)
        decode_fail(d, "%.*s has %u bits where %u are wanted", (int)t.n, t.p, v.width, width);
    return v.o;
}

/* --- instructions ----------------------------------------------------------------------------------------------- */

struct ins *decode_emit(struct decoding *d, op_fn *fn)
{
    d->code = more(d->code, d->n_code, &d->code_room, sizeof *d->code);
    struct ins *i = d->code + d->n_code++;
    *i = (struct ins){.fn = fn,
                      .d = NONE,
                      .b = NONE,
                      .c = NONE,
                      .e = NONE,
                      .pred = d->pred,
                      .pred_not = d->pred_not,
                      .line = d->line};
    return i;
}
void decode_branch(struct decoding *d, struct text label)
{
    struct ins *i = decode_emit(d, NULL);
    i->flow = FLOW_BRANCH;
    d->jumps = more(d->jumps, d->n_jumps, &d->jumps_room, sizeof *d->jumps);
    d->jumps[d->n_jumps++] = (struct jump){label, d->n_code - 1};
}
static void add_label(struct decoding *d, struct text t)
{
    d->labels = more(d->labels, d->n_labels, &d->labels_room, sizeof *d->labels);
    d->labels[d->n_labels++] = (struct jump){t, d->n_code};
}
/* Closes a scope: its jumps to labels within it are resolved; the others are passed to the enclosing scope. */
static void close_scope(struct decoding *d, uint32_t names, uint32_t labels, uint32_t jumps)
{
    for (uint32_t k = jumps; k < d->n_jumps;) {
        bool found = false;
        for (uint32_t j = labels; j < d->n_labels && !found; j++)
            if (d->labels[j].label.n == d->jumps[k].label.n &&
                !memcmp(d->labels[j].label.p, d->jumps[k].label.p, d->labels[j].label.n)) {
                d->code[d->jumps[k].at].target = d->labels[j].at;
                found = true;
            }
        if (found)
            d->jumps[k] = d->jumps[--d->n_jumps];
        else
            k++;
    }
    d->n_names = names, d->n_labels = labels;
}
/* call.uni (result), function, (a, b): inlines the function's body, with its parameters as names of the caller's
 * operands. */
void decode_call(struct decoding *d, struct text *parts, uint32_t n)
{
    const struct sim_module *m = d->fn->module;
    const struct device_function *f = NULL;
    struct text results = {0}, name, params = {0};
    uint32_t k = 0;
    if (n && *parts[0].p == '(')
        results = (struct text){parts[0].p + 1, parts[0].n - 2}, k++;
    if (k >= n)
        decode_fail(d, "a call of nothing");
    name = parts[k++];
    if (k < n)
        params = (struct text){parts[k].p + 1, parts[k].n - 2};
    for (size_t j = 0; j < m->n_functions; j++)
        if (m->functions[j].name.n == name.n && !memcmp(m->functions[j].name.p, name.p, name.n) &&
            m->functions[j].body.n)
            f = m->functions + j;
    if (!f)
        decode_fail(d, "a call of what is not in the module");
    if (d->depth++ > 16)
        decode_fail(d, "calls without an end");
    uint32_t names = d->n_names, labels = d->n_labels, jumps = d->n_jumps;
    for (int part = 0; part < 2; part++) {
        struct text formal = part ? f->params : f->results, actual = part ? params : results;
        const char *p = formal.p, *end = p + formal.n, *q = actual.p, *q_end = q + actual.n;
        while (formal.n && (p = memchr(p, '.', (size_t)(end - p)))) {
            const char *comma = memchr(p, ',', (size_t)(end - p));
            struct text t, from;
            uint32_t bytes, align;
            if (!text_declaration(p + 6, comma ? comma : end, &t, &bytes, &align))
                decode_fail(d, "a parameter of the function is not known");
            q = text_skip(q, q_end);
            from = text_name(q, q_end);
            const struct name *given = decode_name(d, from);
            if (!given || given->is_register)
                decode_fail(d, "a parameter of the call is not known");
            struct name copy = *given;
            copy.text = t;
            *add_name(d, t) = copy;
            q = text_skip(from.p + from.n, q_end);
            q += q < q_end && *q == ',';
            if (!comma)
                break;
            p = comma;
        }
    }
    struct text leave = d->leave;
    d->leave = (struct text){"the function's end", 18};
    const char *statement = d->statement;
    uint32_t line = d->line;
    decode_body(d, f->body.p, f->body.p + f->body.n);
    d->statement = statement, d->line = line;
    add_label(d, d->leave);
    close_scope(d, names, labels, jumps);
    d->leave = leave;
    d->depth--;
}

/* --- statements ------------------------------------------------------------------------------------------------- */

/* Parses "[@p] opcode operands;" from p; operands are separated by commas, and by '|', outside of brackets. */
static void statement(struct decoding *d, const char *p, const char *end)
{
    struct text parts[16];
    uint32_t n = 0;
    d->pred = NONE, d->pred_not = false;
    if (*p == '@') {
        d->pred_not = *++p == '!';
        p += d->pred_not;
        struct text t = text_name(p, end);
        d->pred = decode_operand(d, t, 1);
        p = text_skip(t.p + t.n, end);
    }
    struct text opcode = {p, 0};
    while (p < end && !isspace((unsigned char)*p) && *p != '{' && *p != '[')
        p++;
    opcode.n = (size_t)(p - opcode.p);
    for (p = text_skip(p, end); p < end; p = text_skip(p, end)) {
        const char *from = p;
        while (p < end && *p != ',' && *p != '|')
            p = *p == '{' || *p == '[' || *p == '(' ? text_close(p, end) + 1 : p + 1;
        const char *to = p;
        while (to > from && isspace((unsigned char)to[-1]))
            to--;
        if (n == 16)
            decode_fail(d, "more operands than an instruction has");
        parts[n++] = (struct text){from, (size_t)(to - from)};
        p += p < end;
    }
    decode_instruction(d, opcode, parts, n);
}
/* Lines are counted as statements are met. */
static void at_statement(struct decoding *d, const char *p)
{
    if (p < d->counted_to)
        d->counted_to = d->fn->module->p, d->line = 1;
    for (; d->counted_to < p; d->counted_to++)
        d->line += *d->counted_to == '\n';
    d->statement = p;
}
void decode_body(struct decoding *d, const char *p, const char *end)
{
    uint32_t names = d->n_names, labels = d->n_labels, jumps = d->n_jumps;
    while ((p = text_skip(p, end)) < end) {
        at_statement(d, p);
        if (*p == ';') {
            p++;
            continue;
        }
        if (*p == '{') {
            const char *close = text_close(p, end);
            decode_body(d, p + 1, close);
            p = close + 1;
            continue;
        }
        struct text word = text_name(*p == '.' ? p + 1 : p, end);
        if (*p == '.' && (text_is(word, "loc") || text_is(word, "file"))) {
            while (p < end && *p != '\n')
                p++;
            continue;
        }
        const char *after = word.p + word.n;
        if (*p != '.' && *p != '@' && text_skip(after, end) < end && *text_skip(after, end) == ':' && after[1] != ':') {
            add_label(d, word);
            p = text_skip(after, end) + 1;
            continue;
        }
        const char *stop = p;
        while (stop < end && *stop != ';')
            stop++;
        if (*p != '.')
            statement(d, p, stop);
        else if (text_is(word, "reg"))
            declare_registers(d, after, stop);
        else if (text_is(word, "local") || text_is(word, "param"))
            declare_local(d, after, stop);
        else if (!text_is(word, "shared") && !text_is(word, "pragma"))
            decode_fail(d, "a directive that is not known");
        p = stop + 1;
    }
    close_scope(d, names, labels, jumps);
}

bool sim_decode(struct sim_fn *fn)
{
    struct decoding *d = calloc(1, sizeof *d);
    bool right = false;
    if (!d)
        return false;
    d->fn = fn, d->line = 1, d->counted_to = fn->module->p, d->statement = fn->body, d->regs_bytes = SPECIALS * 128;
    if (!setjmp(d->failed)) {
        place_all_shared(d);
        place_params(d);
        decode_body(d, fn->body, fn->body + fn->body_n);
        if (d->n_jumps)
            decode_fail(d, "no label %.*s", (int)d->jumps[0].label.n, d->jumps[0].label.p);
        d->pred = NONE;
        decode_emit(d, NULL)->flow = FLOW_EXIT;
        fn->code = d->code, fn->n_code = d->n_code, fn->regs_bytes = d->regs_bytes;
        /* Aligned for vector instructions. */
        fn->consts = aligned_alloc(128, d->consts_bytes + 128);
        memcpy(fn->consts, d->consts, d->consts_bytes);
        fn->info.static_shared = d->shared_bytes, fn->info.local_bytes = up(d->local_bytes, 16);
        fn->decoded = right = true;
    }
    free(d->consts), free(d->known), free(d->names), free(d->labels), free(d->jumps);
    if (!right)
        free(d->code);
    free(d);
    return right;
}
