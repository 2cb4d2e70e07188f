/*
 * wire-pack.c - structs to frames: one walk over the field tables, written through msgpack-c's packer.
 */
#include "libclient/utf8.h"
#include "libclient/wire-json.h"
#include "libclient/wire-table.h"

#include <assert.h>
#include <endian.h>
#include <math.h>
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMBER(T, msg, off) ((const T *)((const char *)(msg) + (off)))

void wire_buf_fini(struct wire_buf *b)
{
    free(b->data);
    *b = (struct wire_buf){0};
}

/* One frame that is being packed into b. The first error is kept in `code`, so that the walk needs no error handling.
 */
struct packer {
    msgpack_packer pk;
    struct wire_buf *b;
    size_t start; /* of the frame, in b */
    struct hearth_err *e;
    int code;
    const struct wire_method *request; /* the request whose params are packed; or NULL */
    size_t element;                    /* of the array that is packed: the index of a message in an error */
};

/* The name of a message type in an error: several methods may share a params type, so it is the method's name there. */
static const char *name_of(const struct packer *p, const struct wire_type *t)
{
    return p->request && t == p->request->params ? p->request->name : t->name;
}

static void pack_failed(struct packer *p, int code)
{
    if (code == HEARTH_ETOOBIG)
        p->code = err_set(p->e, code, "the message is over %d bytes", WIRE_LINK_FRAME_MAX);
    else if (code)
        p->code = err_set(p->e, code, "no memory for a message of %zu bytes", p->b->len - p->start);
}

static int pack_sink(void *arg, const char *data, size_t n)
{
    struct packer *p = arg;
    if (!p->code)
        pack_failed(p, wire_buf_add(p->b, data, n, p->start + WIRE_LINK_FRAME_MAX));
    return p->code ? -1 : 0;
}

static void pack_begin(struct packer *p, struct wire_buf *b, struct hearth_err *e)
{
    *p = (struct packer){.b = b, .start = b->len, .e = e};
    msgpack_packer_init(&p->pk, p, pack_sink);
}

static int pack_end(struct packer *p)
{
    if (p->code)
        p->b->len = p->start;
    return p->code;
}

static void pack_str(struct packer *p, const char *s, size_t n)
{
    msgpack_pack_str(&p->pk, n);
    msgpack_pack_str_body(&p->pk, s, n);
}

static void pack_bytes(struct packer *p, const struct wire_bytes *s, bool bin)
{
    if (!bin && utf8_prefix(s->data, s->len) == s->len) {
        pack_str(p, s->data, s->len);
    } else {
        msgpack_pack_bin(&p->pk, s->len);
        msgpack_pack_bin_body(&p->pk, s->data, s->len);
    }
}

static void pack_ids(struct packer *p, const struct wire_ids *ids)
{
    msgpack_pack_array(&p->pk, ids->n);
    for (size_t i = 0; i < ids->n; i++)
        msgpack_pack_int32(&p->pk, ids->v[i]);
}

/* Packs ids as bytes, 4 KiB at a time: one msgpack call per id would dominate the time for a long timeline. */
static void pack_ids_bin(struct packer *p, const struct wire_ids *ids)
{
    uint32_t le[1024];
    msgpack_pack_bin(&p->pk, ids->n * 4);
    for (size_t i = 0, n; i < ids->n; i += n) {
        for (n = 0; n < sizeof le / sizeof *le && i + n < ids->n; n++)
            le[n] = htole32((uint32_t)ids->v[i + n]);
        msgpack_pack_bin_body(&p->pk, le, n * 4);
    }
}

static void pack_number(struct packer *p, const char *where, const char *name, double v)
{
    if (!isfinite(v) && !p->code)
        p->code = err_set(p->e, HEARTH_EPARAMS, "%s.%s: is not a finite number", where, name);
    msgpack_pack_double(&p->pk, v);
}

static void pack_pairs(struct packer *p, const char *where, const char *name, const struct wire_bias *v, size_t n)
{
    msgpack_pack_array(&p->pk, n);
    for (size_t i = 0; i < n; i++) {
        msgpack_pack_array(&p->pk, 2);
        msgpack_pack_int64(&p->pk, v[i].id);
        pack_number(p, where, name, v[i].bias);
    }
}

/* wire_logit is packed, and unpacked, as wire_bias, which has the same two members. */
static_assert(sizeof(struct wire_logit) == sizeof(struct wire_bias) &&
                  offsetof(struct wire_logit, logit) == offsetof(struct wire_bias, bias),
              "pairs have one shape");

static bool present(const struct wire_field *f, const void *msg)
{
    if (f->flags & FIELD_REQUIRED)
        return true;
    switch (f->type) {
    case WIRE_BOOL:
        return !(f->flags & FIELD_SPARSE) || *MEMBER(bool, msg, f->offset) != (bool)f->i.def;
    case WIRE_INT:
        return !(f->flags & FIELD_SPARSE) || *MEMBER(int64_t, msg, f->offset) != f->i.def;
    case WIRE_FLOAT: /* a NaN differs from the default, too, and is then refused */
        return !(f->flags & FIELD_SPARSE) || !(*MEMBER(double, msg, f->offset) == f->f.def);
    case WIRE_UINT:
    case WIRE_STRUCT:
        return !(f->flags & FIELD_HAS) || *MEMBER(bool, msg, f->beside);
    case WIRE_STR:
    case WIRE_JSON:
    case WIRE_BYTES: /* these begin with their pointer */
    case WIRE_IDS:
    case WIRE_STRS:
    case WIRE_ARRAY:
    case WIRE_PAIRS:
    case WIRE_TOPS:
        return *MEMBER(void *, msg, f->offset) != NULL;
    default:
        return true;
    }
}

static void pack_json(struct packer *p, const char *where, const char *name, const char *json, int64_t root)
{
    const char *why = NULL;
    if (p->code)
        return;
    int rc = wire_json_pack(p->b, p->start + WIRE_LINK_FRAME_MAX, json, (enum wire_json_root)root, &why);
    if (rc == HEARTH_EPARAMS)
        p->code = err_set(p->e, rc, "%s%s%s: %s", where, name ? "." : "", name ? name : "", why);
    else
        pack_failed(p, rc);
}

static void pack_struct(struct packer *p, const struct wire_type *t, const void *msg);

static void pack_array(struct packer *p, const struct wire_type *t, const char *v, size_t n)
{
    msgpack_pack_array(&p->pk, n);
    for (size_t i = 0; i < n; i++) {
        p->element = i;
        pack_struct(p, t, v + i * t->size);
    }
}

static void pack_fault(struct packer *p, bool is_request, const char *line, size_t len)
{
    msgpack_pack_array(&p->pk, 2);
    msgpack_pack_int(&p->pk, is_request);
    pack_str(p, line, len);
}

static void pack_field(struct packer *p, const struct wire_type *t, const struct wire_field *f, const void *msg)
{
    switch ((enum wire_field_type)f->type) {
    case WIRE_BOOL:
        (*MEMBER(bool, msg, f->offset) ? msgpack_pack_true : msgpack_pack_false)(&p->pk);
        break;
    case WIRE_INT:
        msgpack_pack_int64(&p->pk, *MEMBER(int64_t, msg, f->offset));
        break;
    case WIRE_UINT:
        msgpack_pack_uint64(&p->pk, *MEMBER(uint64_t, msg, f->offset));
        break;
    case WIRE_FLOAT:
        pack_number(p, t->name, f->name, *MEMBER(double, msg, f->offset));
        break;
    case WIRE_STR: {
        const char *s = *MEMBER(char *, msg, f->offset);
        if (!s && !p->code)
            p->code = err_set(p->e, HEARTH_EPARAMS, "%s.%s: is missing", name_of(p, t), f->name);
        if (s && utf8_prefix(s, strlen(s)) != strlen(s) && !p->code)
            p->code = err_set(p->e, HEARTH_EPARAMS, "%s.%s: is not valid UTF-8", name_of(p, t), f->name);
        if (s)
            pack_str(p, s, strlen(s));
        break;
    }
    case WIRE_BYTES:
        pack_bytes(p, MEMBER(struct wire_bytes, msg, f->offset), f->flags & FIELD_BIN);
        break;
    case WIRE_IDS: {
        const struct wire_ids *ids = MEMBER(struct wire_ids, msg, f->offset);
        if (ids->n && !ids->v)
            p->code = err_set(p->e, HEARTH_EPARAMS, "%s.%s: is missing", name_of(p, t), f->name);
        else
            (f->flags & FIELD_BIN ? pack_ids_bin : pack_ids)(p, ids);
        break;
    }
    case WIRE_STRS: {
        const struct wire_strs *strs = MEMBER(struct wire_strs, msg, f->offset);
        msgpack_pack_array(&p->pk, strs->n);
        for (size_t i = 0; i < strs->n && !p->code; i++) {
            const char *s = strs->v[i];
            if (s)
                pack_str(p, s, strlen(s));
            else
                p->code = err_set(p->e, HEARTH_EPARAMS, "%s.%s[%zu]: is missing", name_of(p, t), f->name, i);
        }
        break;
    }
    case WIRE_STRUCT:
        pack_struct(p, f->sub, MEMBER(void, msg, f->offset));
        break;
    case WIRE_ARRAY:
        pack_array(p, f->sub, *MEMBER(char *, msg, f->offset), *MEMBER(size_t, msg, f->beside));
        break;
    case WIRE_PAIRS:
        pack_pairs(p, t->name, f->name, *MEMBER(struct wire_bias *, msg, f->offset), *MEMBER(size_t, msg, f->beside));
        break;
    case WIRE_TOPS: {
        const struct wire_top *top = *MEMBER(struct wire_top *, msg, f->offset);
        size_t n = *MEMBER(size_t, msg, f->beside);
        msgpack_pack_array(&p->pk, n);
        for (size_t i = 0; i < n; i++)
            pack_pairs(p, t->name, f->name, (const struct wire_bias *)(const void *)top[i].v, top[i].n);
        break;
    }
    case WIRE_FAULT: {
        const struct wire_fault *fault = MEMBER(struct wire_fault, msg, f->offset);
        pack_fault(p, fault->is_request, fault->line, strlen(fault->line));
        break;
    }
    case WIRE_JSON:
        pack_json(p, t->name, f->name, *MEMBER(char *, msg, f->offset), f->i.lo);
        break;
    case WIRE_CONTENT: {
        const struct wire_message *m = msg;
        if (m->parts && m->content.data && !p->code)
            p->code = err_set(p->e, HEARTH_EPARAMS, "%s[%zu].content: has both a text and parts", t->name, p->element);
        else if (m->parts)
            pack_array(p, f->sub, (const char *)m->parts, m->n_parts);
        else
            pack_bytes(p, &m->content, false);
        break;
    }
    }
}

static void pack_struct(struct packer *p, const struct wire_type *t, const void *msg)
{
    size_t n = 0;
    const char *whole = t->whole ? *MEMBER(char *, msg, t->whole) : NULL;
    if (whole) {
        char where[64];
        snprintf(where, sizeof where, "%s[%zu]", t->name, p->element);
        pack_json(p, where, NULL, whole, WIRE_JSON_MAP);
        return;
    }
    for (const struct wire_field *f = t->fields; f->name; f++)
        n += present(f, msg);
    msgpack_pack_map(&p->pk, n);
    for (const struct wire_field *f = t->fields; f->name && !p->code; f++)
        if (present(f, msg)) {
            pack_str(p, f->name, strlen(f->name));
            pack_field(p, t, f, msg);
        }
}

int wire_pack_request(struct wire_buf *b, uint32_t id, const struct wire_method *m, const void *params,
                      struct hearth_err *e)
{
    struct packer p;
    pack_begin(&p, b, e);
    msgpack_pack_array(&p.pk, 4);
    msgpack_pack_int(&p.pk, WIRE_FRAME_REQUEST);
    msgpack_pack_uint32(&p.pk, id);
    pack_str(&p, m->name, strlen(m->name));
    msgpack_pack_array(&p.pk, 1);
    p.request = m;
    pack_struct(&p, m->params, params);
    return pack_end(&p);
}

static void pack_result_head(struct packer *p, uint32_t id)
{
    msgpack_pack_array(&p->pk, 4);
    msgpack_pack_int(&p->pk, WIRE_FRAME_RESPONSE);
    msgpack_pack_uint32(&p->pk, id);
    msgpack_pack_nil(&p->pk);
}

int wire_pack_result(struct wire_buf *b, uint32_t id, const struct wire_method *m, const void *result,
                     struct hearth_err *e)
{
    struct packer p;
    pack_begin(&p, b, e);
    pack_result_head(&p, id);
    pack_struct(&p, m->result, result);
    return pack_end(&p);
}

int wire_pack_result_packed(struct wire_buf *b, uint32_t id, const struct wire_bytes *result, struct hearth_err *e)
{
    struct packer p;
    pack_begin(&p, b, e);
    pack_result_head(&p, id);
    pack_sink(&p, result->data, result->len);
    return pack_end(&p);
}

size_t wire_error_line(char line[static WIRE_LINE_MAX], int code, const char *msg)
{
    /* A message may quote a peer's bytes, or have been truncated inside a character. */
    int n = snprintf(line, WIRE_LINE_MAX, "%s: %s", err_name(code), msg);
    size_t len = (size_t)n < WIRE_LINE_MAX ? (size_t)n : WIRE_LINE_MAX - 1;
    for (size_t ok; (ok = utf8_prefix(line, len)) < len;)
        line[ok] = '?';
    return len;
}

int wire_pack_error(struct wire_buf *b, uint32_t id, int code, const char *msg, struct hearth_err *e)
{
    char line[WIRE_LINE_MAX];
    size_t len = wire_error_line(line, code, msg);
    struct packer p;
    pack_begin(&p, b, e);
    msgpack_pack_array(&p.pk, 4);
    msgpack_pack_int(&p.pk, WIRE_FRAME_RESPONSE);
    msgpack_pack_uint32(&p.pk, id);
    pack_fault(&p, err_is_request(code), line, len);
    msgpack_pack_nil(&p.pk);
    return pack_end(&p);
}

int wire_pack_event(struct wire_buf *b, const struct wire_method *m, const void *body, const char *as_method,
                    const char *as_code, struct hearth_err *e)
{
    struct packer p;
    pack_begin(&p, b, e);
    msgpack_pack_array(&p.pk, 3);
    msgpack_pack_int(&p.pk, WIRE_FRAME_EVENT);
    if (as_method) {
        pack_str(&p, as_method, strlen(as_method));
        msgpack_pack_array(&p.pk, 2);
        pack_str(&p, as_code, strlen(as_code));
        msgpack_pack_array(&p.pk, 2);
        pack_str(&p, m->name, strlen(m->name));
    } else {
        pack_str(&p, m->name, strlen(m->name));
        msgpack_pack_array(&p.pk, 1);
    }
    pack_struct(&p, m->params, body);
    return pack_end(&p);
}
