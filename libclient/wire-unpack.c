/*
 * wire-unpack.c - unpacks bodies into structs: one walk over the field tables.
 *
 * It reads value after value (packed.c) and copies the fields that the table names into one message. Values that no row
 * names are skipped and cost no memory. The copies are bounded, because every element of an array must have its bytes
 * before its struct is allocated, and the rows limit the number of elements.
 */
#include "libclient/nearest.h"
#include "libclient/packed.h"
#include "libclient/utf8.h"
#include "libclient/wire-json.h"
#include "libclient/wire-table.h"

#include <endian.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMBER(T, msg, off) ((T *)((char *)(msg) + (off)))

/* A message is a chain of blocks: the struct is at the front of the first one's data, followed by the memory that it
 * points to. */
struct block {
    struct block *next;
    size_t used, cap;
    max_align_t data[];
};

struct reader {
    struct block *first, *last;
    struct cursor in;
    struct hearth_err *e;
    bool strict;        /* the message type's `strict` */
    size_t values_left; /* in values of any structure */
};

/* The position of the walk, for error messages: "generate.messages[2].role". */
struct path {
    const struct path *up;
    const char *name; /* NULL: element `index` of `up` */
    size_t index;
};

static struct block *block_new(size_t cap)
{
    struct block *b = malloc(sizeof *b + cap);
    if (b)
        *b = (struct block){.cap = cap};
    return b;
}

/* Returns zeroed memory that lives as long as the message, or NULL. n == 0 returns a pointer too, because empty is not
 * absent. */
static void *take(struct reader *r, size_t n, size_t align)
{
    struct block *b = r->last;
    size_t at = (b->used + align - 1) / align * align;
    if (at > b->cap || n > b->cap - at) {
        b->next = block_new(n > 4096 ? n : 4096);
        if (!b->next) {
            err_set(r->e, HEARTH_ENOMEM, "no memory for a message");
            return NULL;
        }
        r->last = b = b->next;
        at = 0;
    }
    b->used = at + n;
    return memset((char *)b->data + at, 0, n);
}

void wire_free(void *msg)
{
    if (!msg)
        return;
    struct block *b = (struct block *)(void *)((char *)msg - offsetof(struct block, data));
    while (b) {
        struct block *next = b->next;
        free(b);
        b = next;
    }
}

static size_t path_write(const struct path *path, char *buf, size_t size)
{
    size_t n = path->up ? path_write(path->up, buf, size) : 0;
    if (n >= size)
        return n;
    int more = path->name ? snprintf(buf + n, size - n, "%s%s", path->up ? "." : "", path->name)
                          : snprintf(buf + n, size - n, "[%zu]", path->index);
    return n + (size_t)more;
}

__attribute__((format(printf, 4, 5))) static int refuse(struct reader *r, const struct path *path, int code,
                                                        const char *fmt, ...)
{
    char where[96], what[HEARTH_ERR_MSG];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    path_write(path, where, sizeof where);
    return err_set(r->e, code, "%s: %.100s", where, what);
}

static int malformed(struct reader *r)
{
    return err_set(r->e, HEARTH_EINVALID, "the message is not well-formed msgpack");
}

/* Reads the next value; HEARTH_EINVALID where there is none. */
static int next(struct reader *r, struct packed *v)
{
    return packed_next(&r->in, v) ? malformed(r) : 0;
}

static int skip(struct reader *r, const struct packed *v)
{
    return packed_skip(&r->in, v) ? malformed(r) : 0;
}

static int read_int(struct reader *r, const struct path *path, const struct packed *o, int64_t lo, int64_t hi,
                    int64_t *out)
{
    if (o->kind == SCAN_UINT) {
        if (hi < 0 || o->u > (uint64_t)hi)
            return refuse(r, path, HEARTH_EPARAMS, "%" PRIu64 " is over %" PRId64, o->u, hi);
        *out = (int64_t)o->u;
    } else if (o->kind == SCAN_INT) {
        *out = o->i;
    } else {
        return refuse(r, path, HEARTH_EPARAMS, "must be an integer");
    }
    if (*out < lo)
        return refuse(r, path, HEARTH_EPARAMS, "%" PRId64 " is under %" PRId64, *out, lo);
    return 0;
}

static int read_float(struct reader *r, const struct path *path, const struct packed *o, double lo, double hi,
                      double *out)
{
    double v;
    if (o->kind == SCAN_FLOAT)
        v = o->f;
    else if (o->kind == SCAN_UINT)
        v = (double)o->u;
    else if (o->kind == SCAN_INT)
        v = (double)o->i;
    else
        return refuse(r, path, HEARTH_EPARAMS, "must be a number");
    if (!isfinite(v))
        return refuse(r, path, HEARTH_EPARAMS, "is not a finite number");
    if (v < lo)
        return refuse(r, path, HEARTH_EPARAMS, "%.10g is under %g", v, lo);
    if (v > hi)
        return refuse(r, path, HEARTH_EPARAMS, "%.10g is over %g", v, hi);
    *out = v;
    return 0;
}

/* Copies n bytes and a NUL. */
static char *copy(struct reader *r, const char *s, size_t n)
{
    char *to = take(r, n + 1, 1);
    if (to && n)
        memcpy(to, s, n);
    return to;
}

static int read_str(struct reader *r, const struct path *path, const struct packed *o, int64_t lo, int64_t hi,
                    const char **out)
{
    if (o->kind != SCAN_STR)
        return refuse(r, path, HEARTH_EPARAMS, "must be a string");
    const char *s = o->data;
    size_t n = o->n;
    if (n < (size_t)lo)
        return refuse(r, path, HEARTH_EPARAMS, "is empty");
    if (n > (size_t)hi)
        return refuse(r, path, HEARTH_EPARAMS, "is longer than %" PRId64 " bytes", hi);
    if (memchr(s, 0, n))
        return refuse(r, path, HEARTH_EPARAMS, "has a NUL in it");
    if (utf8_prefix(s, n) != n)
        return refuse(r, path, HEARTH_EPARAMS, "is not valid UTF-8");
    char *to = copy(r, s, n);
    if (!to)
        return HEARTH_ENOMEM;
    *out = to;
    return 0;
}

static int read_bytes(struct reader *r, const struct path *path, const struct packed *o, struct wire_bytes *out)
{
    if (o->kind != SCAN_STR && o->kind != SCAN_BIN)
        return refuse(r, path, HEARTH_EPARAMS, "must be a string");
    char *to = copy(r, o->data, o->n);
    if (!to)
        return HEARTH_ENOMEM;
    *out = (struct wire_bytes){to, o->n};
    return 0;
}

/* Checks that o is an array within the row's counts and allocates its elements. */
static int read_array(struct reader *r, const struct path *path, const struct packed *o, const struct wire_field *f,
                      size_t size, size_t align, void **v, size_t *n)
{
    if (o->kind != SCAN_ARRAY)
        return refuse(r, path, HEARTH_EPARAMS, "must be an array");
    size_t count = o->n;
    if (count < (size_t)f->i.lo)
        return refuse(r, path, HEARTH_EPARAMS, "is empty");
    if (count > (size_t)f->i.hi)
        return refuse(r, path, HEARTH_EPARAMS, "has %zu elements, over %" PRId64, count, f->i.hi);
    if (!(*v = take(r, count * size, align)))
        return HEARTH_ENOMEM;
    *n = count;
    return 0;
}

static int read_bin_ids(struct reader *r, const struct path *path, const struct packed *o, const struct wire_field *f,
                        struct wire_ids *out)
{
    if (o->kind != SCAN_BIN || o->n % 4)
        return refuse(r, path, HEARTH_EPARAMS, "must be bytes, 4 for each id");
    size_t n = o->n / 4;
    if (n > (size_t)f->i.hi)
        return refuse(r, path, HEARTH_EPARAMS, "has %zu elements, over %" PRId64, n, f->i.hi);
    int32_t *v = take(r, n * sizeof *v, _Alignof(int32_t));
    if (!v)
        return HEARTH_ENOMEM;
    if (n)
        memcpy(v, o->data, n * sizeof *v);
    for (size_t i = 0; i < n; i++) {
        v[i] = (int32_t)le32toh((uint32_t)v[i]);
        if (v[i] < 0)
            return refuse(r, &(struct path){path, NULL, i}, HEARTH_EPARAMS, "%" PRId32 " is under 0", v[i]);
    }
    *out = (struct wire_ids){v, n};
    return 0;
}

/* Converts a value of any structure, which starts at `at` and has been read to its end, to JSON text. */
static int read_json(struct reader *r, const struct path *path, const uint8_t *at, enum wire_json_root root,
                     const char **out)
{
    const char *why;
    size_t len = (size_t)(r->in.p - at), n = wire_json_measure(at, len, root, &r->values_left, &why);
    if (n == SIZE_MAX)
        return refuse(r, path, HEARTH_EPARAMS, "%s", why);
    char *text = take(r, n + 1, 1);
    if (!text)
        return HEARTH_ENOMEM;
    text[wire_json_write(at, len, root, text)] = '\0';
    *out = text;
    return 0;
}

/* The same for a whole map whose keys are the client's: names the key whose value has no JSON. */
static int read_whole(struct reader *r, const struct path *path, const uint8_t *at, const char **out)
{
    struct cursor in = {at, r->in.p};
    struct packed map, key, value;
    int rc = read_json(r, path, at, WIRE_JSON_MAP, out);
    if (rc != HEARTH_EPARAMS || packed_next(&in, &map) || map.kind != SCAN_MAP)
        return rc;
    for (size_t k = 0; k < map.n && !packed_next(&in, &key) && key.kind == SCAN_STR; k++) {
        char name[40];
        const uint8_t *from = in.p;
        if (packed_next(&in, &value) || packed_skip(&in, &value))
            break;
        const char *why = wire_json_fault(from, (size_t)(in.p - from));
        if (!why)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)utf8_prefix(key.data, key.n < sizeof name ? key.n : sizeof name - 1),
                 key.data);
        return refuse(r, &(struct path){path, name, 0}, rc, "%s", why);
    }
    return rc;
}

static int read_pairs(struct reader *r, const struct path *path, const struct packed *o, const struct wire_field *f,
                      double limit, struct wire_bias **out, size_t *n)
{
    void *v;
    int rc = read_array(r, path, o, f, sizeof **out, _Alignof(struct wire_bias), &v, n);
    struct wire_bias *pair = v;
    for (size_t i = 0; !rc && i < *n; i++) {
        struct path at = {path, NULL, i};
        struct packed p, id, number;
        if ((rc = next(r, &p)))
            return rc;
        if (p.kind != SCAN_ARRAY || p.n != 2)
            return refuse(r, &at, HEARTH_EPARAMS, "must be [id, number]");
        if (!(rc = next(r, &id)) && !(rc = read_int(r, &at, &id, 0, INT32_MAX, &pair[i].id)) &&
            !(rc = next(r, &number)))
            rc = read_float(r, &at, &number, -limit, limit, &pair[i].bias);
    }
    if (!rc)
        *out = pair;
    return rc;
}

static int read_struct(struct reader *r, const struct path *path, const struct wire_type *t, const struct packed *o,
                       void *out);

static int read_structs(struct reader *r, const struct path *path, const struct packed *o, const struct wire_field *f,
                        void **out, size_t *n)
{
    int rc = read_array(r, path, o, f, f->sub->size, _Alignof(max_align_t), out, n);
    for (size_t i = 0; !rc && i < *n; i++) {
        struct path at = {path, NULL, i};
        struct packed v;
        if (!(rc = next(r, &v)))
            rc = read_struct(r, &at, f->sub, &v, (char *)*out + i * f->sub->size);
    }
    return rc;
}

static int read_one_of(struct reader *r, const struct path *path, const struct wire_field *f, const char *s)
{
    char known[64] = "";
    for (const char *const *k = f->one_of; *k; k++) {
        if (!strcmp(*k, s))
            return 0;
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", *k);
    }
    return refuse(r, path, HEARTH_EUNSUPPORTED, "\"%.30s\" is not supported, only %s", s, known);
}

static int read_fault(struct reader *r, const struct path *path, const struct packed *o, const struct wire_field *f,
                      struct wire_fault *out)
{
    int64_t kind = 0;
    if (o->kind != SCAN_ARRAY || o->n != 2)
        return refuse(r, path, HEARTH_EPARAMS, "must be [kind, text]");
    struct path first = {path, NULL, 0}, second = {path, NULL, 1};
    struct packed v;
    int rc = next(r, &v);
    if (rc || (rc = read_int(r, &first, &v, 0, 1, &kind)) || (rc = next(r, &v)))
        return rc;
    out->is_request = kind;
    return read_str(r, &second, &v, f->i.lo, f->i.hi, &out->line);
}

static int read_field(struct reader *r, const struct path *path, const struct wire_field *f, const struct packed *o,
                      void *msg)
{
    int rc = 0;
    void *v = NULL;
    switch ((enum wire_field_type)f->type) {
    case WIRE_BOOL:
        if (o->kind != SCAN_BOOL)
            return refuse(r, path, HEARTH_EPARAMS, "must be true or false");
        *MEMBER(bool, msg, f->offset) = o->b;
        return 0;
    case WIRE_INT:
        return read_int(r, path, o, f->i.lo, f->i.hi, MEMBER(int64_t, msg, f->offset));
    case WIRE_UINT:
        if (o->kind == SCAN_INT)
            return refuse(r, path, HEARTH_EPARAMS, "%" PRId64 " is under 0", o->i);
        if (o->kind != SCAN_UINT)
            return refuse(r, path, HEARTH_EPARAMS, "must be an integer");
        *MEMBER(uint64_t, msg, f->offset) = o->u;
        if (f->flags & FIELD_HAS)
            *MEMBER(bool, msg, f->beside) = true;
        return 0;
    case WIRE_FLOAT:
        return read_float(r, path, o, f->f.lo, f->f.hi, MEMBER(double, msg, f->offset));
    case WIRE_STR: {
        const char **s = MEMBER(const char *, msg, f->offset);
        rc = read_str(r, path, o, f->i.lo, f->i.hi, s);
        return rc || !f->one_of ? rc : read_one_of(r, path, f, *s);
    }
    case WIRE_BYTES:
        return read_bytes(r, path, o, MEMBER(struct wire_bytes, msg, f->offset));
    case WIRE_IDS: {
        struct wire_ids *ids = MEMBER(struct wire_ids, msg, f->offset);
        if (f->flags & FIELD_BIN)
            return read_bin_ids(r, path, o, f, ids);
        rc = read_array(r, path, o, f, sizeof *ids->v, _Alignof(int32_t), &v, &ids->n);
        for (size_t i = 0; !rc && i < ids->n; i++) {
            int64_t id = 0;
            struct path at = {path, NULL, i};
            struct packed value;
            if (!(rc = next(r, &value)))
                rc = read_int(r, &at, &value, 0, INT32_MAX, &id);
            ((int32_t *)v)[i] = (int32_t)id;
        }
        ids->v = v;
        return rc;
    }
    case WIRE_STRS: {
        struct wire_strs *strs = MEMBER(struct wire_strs, msg, f->offset);
        rc = read_array(r, path, o, f, sizeof *strs->v, _Alignof(char *), &v, &strs->n);
        strs->v = v;
        for (size_t i = 0; !rc && i < strs->n; i++) {
            struct path at = {path, NULL, i};
            struct packed value;
            if (!(rc = next(r, &value)))
                rc = read_str(r, &at, &value, 1, WIRE_PATH_MAX, &strs->v[i]);
        }
        return rc;
    }
    case WIRE_STRUCT:
        if (f->flags & FIELD_HAS)
            *MEMBER(bool, msg, f->beside) = true;
        return read_struct(r, path, f->sub, o, MEMBER(void, msg, f->offset));
    case WIRE_ARRAY:
        rc = read_structs(r, path, o, f, &v, MEMBER(size_t, msg, f->beside));
        *MEMBER(void *, msg, f->offset) = v;
        return rc;
    case WIRE_PAIRS:
        return read_pairs(r, path, o, f, WIRE_BIAS_LIMIT, MEMBER(struct wire_bias *, msg, f->offset),
                          MEMBER(size_t, msg, f->beside));
    case WIRE_TOPS: {
        size_t *n = MEMBER(size_t, msg, f->beside);
        rc = read_array(r, path, o, f, sizeof(struct wire_top), _Alignof(struct wire_top), &v, n);
        struct wire_top *top = v;
        for (size_t i = 0; !rc && i < *n; i++) {
            struct path at = {path, NULL, i};
            struct wire_bias *pairs = NULL;
            struct packed value;
            if (!(rc = next(r, &value)))
                rc = read_pairs(r, &at, &value, f, HUGE_VAL, &pairs, &top[i].n);
            top[i].v = (struct wire_logit *)(void *)pairs;
        }
        *MEMBER(struct wire_top *, msg, f->offset) = top;
        return rc;
    }
    case WIRE_FAULT:
        return read_fault(r, path, o, f, MEMBER(struct wire_fault, msg, f->offset));
    case WIRE_JSON:
        rc = skip(r, o);
        return rc ? rc : read_json(r, path, o->at, (enum wire_json_root)f->i.lo, MEMBER(const char *, msg, f->offset));
    case WIRE_CONTENT: {
        struct wire_message *m = msg;
        if (o->kind != SCAN_ARRAY)
            return read_bytes(r, path, o, &m->content);
        rc = read_structs(r, path, o, f, &v, &m->n_parts);
        m->parts = v;
        return rc;
    }
    }
    return rc;
}

static bool key_is(const struct packed *key, const char *name)
{
    return key->n == strlen(name) && !memcmp(key->data, name, key->n);
}

void wire_defaults(const struct wire_type *t, void *msg)
{
    memset(msg, 0, t->size);
    for (const struct wire_field *f = t->fields; f->name; f++) {
        if (f->type == WIRE_BOOL)
            *MEMBER(bool, msg, f->offset) = f->i.def;
        else if (f->type == WIRE_INT)
            *MEMBER(int64_t, msg, f->offset) = f->i.def;
        else if (f->type == WIRE_FLOAT)
            *MEMBER(double, msg, f->offset) = f->f.def;
        else if (f->type == WIRE_STRUCT)
            wire_defaults(f->sub, MEMBER(void, msg, f->offset));
    }
}

/* Handles a key that no row has: it is reserved, refused in a strict message, or ignored. */
static int read_unknown(struct reader *r, const struct path *path, const struct wire_type *t, const struct packed *key)
{
    char near[64];
    for (const char *const *name = t->reserved; name && *name; name++)
        if (key_is(key, *name))
            return refuse(r, path, HEARTH_EUNSUPPORTED, "%s is reserved and not supported by this version", *name);
    if (!r->strict || t->whole)
        return 0;
    const char *s = key->data;
    size_t n = key->n, shown = utf8_prefix(s, n < 40 ? n : 40);
    nearest_key(t, s, n, near, sizeof near);
    return refuse(r, path, HEARTH_EPARAMS, "\"%.*s\" is not known%s%s%s", (int)shown, s, near[0] ? "; is " : "", near,
                  near[0] ? " meant?" : "");
}

static int read_struct(struct reader *r, const struct path *path, const struct wire_type *t, const struct packed *o,
                       void *out)
{
    /* Lua cannot tell an empty map from an empty array, and Neovim sends the latter. */
    bool empty_array = o->kind == SCAN_ARRAY && o->n == 0;
    if (o->kind != SCAN_MAP && !empty_array)
        return refuse(r, path, HEARTH_EPARAMS, "must be a map");

    bool more = false;              /* it has unknown keys or nil values, which its rows cannot hold */
    bool calls = false;             /* it has tool_calls, so a message needs no content */
    uint64_t given = 0;             /* rows whose key was present */
    uint64_t absent = ~(uint64_t)0; /* rows without a value; nil counts as absent */
    wire_defaults(t, out);
    for (size_t k = 0; !empty_array && k < o->n; k++) {
        struct packed key, value;
        int rc = next(r, &key);
        if (rc)
            return rc;
        if (key.kind != SCAN_STR)
            return refuse(r, path, HEARTH_EPARAMS, "has a key that is not a string");
        if ((rc = next(r, &value)))
            return rc;
        calls = calls || key_is(&key, "tool_calls");
        const struct wire_field *f = t->fields;
        while (f->name && !key_is(&key, f->name))
            f++;
        if (!f->name) {
            if (value.kind != SCAN_NIL && (rc = read_unknown(r, path, t, &key)))
                return rc;
            if ((rc = skip(r, &value)))
                return rc;
            more = true;
            continue;
        }
        uint64_t bit = (uint64_t)1 << (f - t->fields);
        struct path at = {path, f->name, 0};
        if (given & bit)
            return refuse(r, &at, HEARTH_EPARAMS, "is given twice");
        given |= bit;
        if (value.kind == SCAN_NIL) {
            more = true;
            continue;
        }
        absent &= ~bit;
        rc = read_field(r, &at, f, &value, out);
        if (rc)
            return rc;
    }
    for (const struct wire_field *f = t->fields; f->name; f++) {
        struct path at = {path, f->name, 0};
        bool excused = f->type == WIRE_CONTENT && (given >> (f - t->fields) & 1 || calls);
        if (f->flags & FIELD_REQUIRED && absent >> (f - t->fields) & 1 && !excused)
            return refuse(r, &at, HEARTH_EPARAMS, "is missing");
    }
    if (t->whole && more) {
        int rc = read_whole(r, path, o->at, MEMBER(const char *, out, t->whole));
        if (rc)
            return rc;
    }
    return t->check ? t->check(out, r->e) : 0;
}

static int unpack(const struct wire_type *t, const char *name, size_t values, const uint8_t *body, size_t len,
                  void **out, struct hearth_err *e)
{
    struct reader r = {.e = e, .strict = t->strict, .values_left = values, .in = {body, body + len}};
    /* Most messages fit into the first block, which has room for the struct and for twice the bytes that were received
     * (up to 4 KiB of them). */
    r.first = r.last = block_new(t->size + 2 * (len < 4096 ? len : 4096));
    if (!r.first)
        return err_set(e, HEARTH_ENOMEM, "no memory for a message");
    void *msg = take(&r, t->size, _Alignof(max_align_t));
    struct path top = {NULL, name, 0};
    struct packed v;
    int rc = next(&r, &v);
    if (!rc)
        rc = read_struct(&r, &top, t, &v, msg);
    if (!rc && r.in.p != r.in.end)
        rc = malformed(&r);
    if (rc)
        wire_free(msg);
    else
        *out = msg;
    return rc;
}

int wire_unpack(const struct wire_type *t, const uint8_t *body, size_t len, void **out, struct hearth_err *e)
{
    return unpack(t, t->name, SIZE_MAX, body, len, out, e);
}

int wire_unpack_params(const struct wire_method *m, const uint8_t *body, size_t len, void **out, struct hearth_err *e)
{
    return unpack(m->params, m->name, WIRE_JSON_VALUES, body, len, out, e);
}
