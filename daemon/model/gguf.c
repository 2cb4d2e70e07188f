/*
 * gguf.c - the reader of gguf.h: one pass over keys and tensor records, every length checked before it is used.
 *
 *     header | keys and values | tensor records | padding to `alignment` | tensor data
 *
 * Counts are capped before anything is allocated for them, and each key, element or record takes at least one byte of
 * the file, so both time and memory are linear in the file's real size.
 */
#include "daemon/model/gguf-internal.h"

#include <stdlib.h>
#include <sys/random.h>
#include <xxhash.h>

#include "daemon/model/pace.h"

enum {
    KEYS_MAX = 1 << 16,
    TENSORS_MAX = 1 << 16,
    NAME_MAX_BYTES = 1024,  /* bytes of a key's or tensor's name */
    ELEMENTS_MAX = 1 << 24, /* elements of one array */
    STRING_MAX = 1 << 26,
    DIM_MAX = 1 << 30,
    ALIGN_MIN = 8, /* the format's own minimum, which also aligns a tensor's f32 */
    ALIGN_MAX = 1 << 16,
};

static const struct {
    const char *name;
    uint8_t size; /* 0: not a number */
} value_types[V_COUNT] = {
    [V_U8] = {"u8", 1},   [V_I8] = {"i8", 1},   [V_U16] = {"u16", 2},   [V_I16] = {"i16", 2},    [V_U32] = {"u32", 4},
    [V_I32] = {"i32", 4}, [V_F32] = {"f32", 4}, [V_BOOL] = {"bool", 1}, [V_STR] = {"string", 0}, [V_ARR] = {"array", 0},
    [V_U64] = {"u64", 8}, [V_I64] = {"i64", 8}, [V_F64] = {"f64", 8},
};

struct gguf_label gguf_label(struct gguf_str name)
{
    struct gguf_label out;
    size_t n = name.n < sizeof out.s - 1 ? name.n : sizeof out.s - 1;
    for (size_t i = 0; i < n; i++)
        out.s[i] = (unsigned char)name.s[i] < 0x20 || (unsigned char)name.s[i] > 0x7e ? '?' : name.s[i];
    out.s[n] = 0;
    return out;
}

/* --- reading ------------------------------------------------------------------------------------------- */

static int truncated(struct gguf_reader *r, const char *what, struct gguf_str in)
{
    return err_set(r->e, HEARTH_EBADMODEL, "the file ends within %s%s%s (at byte %zu)", what, in.n ? " of " : "",
                   gguf_label(in).s, (size_t)(r->p - r->base));
}

static int take(struct gguf_reader *r, void *out, size_t n, const char *what, struct gguf_str in)
{
    if ((size_t)(r->end - r->p) < n)
        return truncated(r, what, in);
    memcpy(out, r->p, n);
    r->p += n;
    return 0;
}

static int take_str(struct gguf_reader *r, struct gguf_str *out, uint64_t max, const char *what, struct gguf_str in)
{
    uint64_t n = 0;
    int ret = take(r, &n, 8, what, in);
    if (ret)
        return ret;
    if (n > max)
        return err_set(r->e, HEARTH_EBADMODEL, "%s%s%s is %llu bytes long; the limit is %llu", what, in.n ? " of " : "",
                       gguf_label(in).s, (unsigned long long)n, (unsigned long long)max);
    if ((uint64_t)(r->end - r->p) < n)
        return truncated(r, what, in);
    *out = (struct gguf_str){(const char *)r->p, (size_t)n};
    r->p += n;
    return 0;
}

static const struct gguf_str nowhere;

/* --- the index ----------------------------------------------------------------------------------------- */

static int index_init(struct gguf_index *ix, size_t n, struct hearth_err *e)
{
    size_t cap = 16;
    while (cap < 2 * n)
        cap *= 2;
    ix->slot = calloc(cap, sizeof *ix->slot);
    if (!ix->slot)
        return err_set(e, HEARTH_ENOMEM, "no memory for the index of %zu names", n);
    ix->mask = cap - 1;
    return 0;
}

static struct gguf_str name_at(const struct gguf *g, const struct gguf_index *ix, uint32_t i)
{
    return ix == &g->key_index ? g->keys[i].name : g->tensors[i].name;
}

/* Returns the slot that holds `name`, or the free one where it belongs. */
static uint32_t *index_slot(const struct gguf *g, const struct gguf_index *ix, struct gguf_str name)
{
    for (size_t at = XXH3_64bits_withSeed(name.s, name.n, g->seed) & ix->mask;; at = (at + 1) & ix->mask) {
        uint32_t *slot = &ix->slot[at];
        if (!*slot)
            return slot;
        struct gguf_str have = name_at(g, ix, *slot - 1);
        if (have.n == name.n && !memcmp(have.s, name.s, name.n))
            return slot;
    }
}

static const struct gguf_key *key_find(const struct gguf *g, const char *name)
{
    uint32_t at = *index_slot(g, &g->key_index, (struct gguf_str){name, strlen(name)});
    return at ? &g->keys[at - 1] : NULL;
}

/* --- opening ------------------------------------------------------------------------------------------- */

static int skip_value(struct gguf_reader *r, struct gguf_key *k)
{
    uint32_t type = k->type;
    uint64_t n = 1;
    if (type == V_ARR) {
        int ret = take(r, &k->elem, 4, "the array", k->name);
        if (!ret)
            ret = take(r, &k->n, 8, "the array", k->name);
        if (ret)
            return ret;
        type = k->elem;
        n = k->n;
        if (type >= V_COUNT || type == V_ARR)
            return err_set(r->e, HEARTH_EBADMODEL, "key %s: an array of %s", gguf_label(k->name).s,
                           type == V_ARR ? "arrays, which is not read" : "an unknown type");
        if (n > ELEMENTS_MAX)
            return err_set(r->e, HEARTH_EBADMODEL, "key %s: %llu elements; the limit is %d", gguf_label(k->name).s,
                           (unsigned long long)n, ELEMENTS_MAX);
    }
    k->p = r->p;
    if (type == V_STR) {
        for (uint64_t i = 0; i < n; i++) {
            struct gguf_str s;
            int ret = take_str(r, &s, STRING_MAX, "a string", k->name);
            if (ret || (ret = pace(8 + s.n, r->e)))
                return ret;
        }
    } else {
        if ((uint64_t)(r->end - r->p) < n * value_types[type].size)
            return truncated(r, "the value", k->name);
        r->p += n * value_types[type].size;
    }
    k->end = r->p;
    return 0;
}

int gguf_read_keys(struct gguf *g, struct gguf_reader *r, size_t n)
{
    int ret = index_init(&g->key_index, n, r->e);
    if (ret)
        return ret;
    g->keys = calloc(n ? n : 1, sizeof *g->keys);
    if (!g->keys)
        return err_set(r->e, HEARTH_ENOMEM, "no memory for %zu keys", n);
    for (; g->n_key < n; g->n_key++) {
        struct gguf_key *k = &g->keys[g->n_key];
        ret = take_str(r, &k->name, NAME_MAX_BYTES, "the name of a key", nowhere);
        if (!ret)
            ret = take(r, &k->type, 4, "the type", k->name);
        if (ret)
            return ret;
        if (k->type >= V_COUNT)
            return err_set(r->e, HEARTH_EBADMODEL, "key %s has the unknown type %u", gguf_label(k->name).s, k->type);
        ret = skip_value(r, k);
        if (ret)
            return ret;
        uint32_t *slot = index_slot(g, &g->key_index, k->name);
        if (*slot)
            return err_set(r->e, HEARTH_EBADMODEL, "key %s is there twice", gguf_label(k->name).s);
        *slot = (uint32_t)g->n_key + 1;
    }
    return 0;
}

/* Reads the shape and computes the size; the offset is checked once the start of the data is known. */
static int read_tensor(struct gguf_reader *r, struct gguf_tensor *t, uint64_t *offset)
{
    int ret = take_str(r, &t->name, NAME_MAX_BYTES, "the name of a tensor", nowhere);
    if (!ret)
        ret = take(r, &t->n_dim, 4, "the shape", t->name);
    if (ret)
        return ret;
    if (t->n_dim < 1 || t->n_dim > 4)
        return err_set(r->e, HEARTH_EBADMODEL, "tensor %s has %u dimensions; 1 to 4 are possible",
                       gguf_label(t->name).s, t->n_dim);
    uint64_t n = 1;
    for (uint32_t i = 0; i < 4; i++) {
        t->dim[i] = 1;
        if (i < t->n_dim && (ret = take(r, &t->dim[i], 8, "the shape", t->name)))
            return ret;
        if (t->dim[i] < 1 || t->dim[i] > DIM_MAX || __builtin_mul_overflow(n, t->dim[i], &n))
            return err_set(r->e, HEARTH_EBADMODEL, "tensor %s: dimension %u of %llu is out of range",
                           gguf_label(t->name).s, i, (unsigned long long)t->dim[i]);
    }
    ret = take(r, &t->type, 4, "the type", t->name);
    if (!ret)
        ret = take(r, offset, 8, "the offset", t->name);
    if (ret)
        return ret;
    const struct dtype_info *type = t->type < DT_COUNT ? dtype_get((int)t->type) : NULL;
    if (!type)
        return 0; /* a model that needs this tensor refuses its type; other models may ignore the tensor */
    if (t->dim[0] % type->block_len)
        return err_set(r->e, HEARTH_EBADMODEL, "tensor %s: rows of %llu are no multiple of %s's block of %u",
                       gguf_label(t->name).s, (unsigned long long)t->dim[0], type->name, type->block_len);
    t->bytes = dtype_bytes((int)t->type, n);
    if (!t->bytes)
        return err_set(r->e, HEARTH_EBADMODEL, "tensor %s is too large", gguf_label(t->name).s);
    return 0;
}

int gguf_index_tensors(struct gguf *g, struct hearth_err *e)
{
    int ret = index_init(&g->tensor_index, g->n_tensor, e);
    for (size_t i = 0; i < g->n_tensor && !ret; i++) {
        uint32_t *slot = index_slot(g, &g->tensor_index, g->tensors[i].name);
        if (*slot)
            ret = err_set(e, HEARTH_EBADMODEL, "tensor %s is there twice", gguf_label(g->tensors[i].name).s);
        *slot = (uint32_t)i + 1;
    }
    return ret;
}

static int read_tensors(struct gguf *g, struct gguf_reader *r, size_t n, uint32_t align)
{
    int ret = 0;
    g->tensors = calloc(n ? n : 1, sizeof *g->tensors);
    uint64_t *offset = calloc(n ? n : 1, sizeof *offset);
    if (!g->tensors || !offset) {
        ret = err_set(r->e, HEARTH_ENOMEM, "no memory for %zu tensors", n);
        goto out;
    }
    for (; g->n_tensor < n; g->n_tensor++) {
        struct gguf_tensor *t = &g->tensors[g->n_tensor];
        ret = read_tensor(r, t, &offset[g->n_tensor]);
        if (ret)
            goto out;
    }
    ret = gguf_index_tensors(g, r->e);
    if (ret)
        goto out;

    uint64_t size = (uint64_t)(r->end - r->base), start = (uint64_t)(r->p - r->base);
    start += (align - start % align) % align;
    for (size_t i = 0; i < n; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        if (offset[i] % align) {
            ret = err_set(r->e, HEARTH_EBADMODEL, "tensor %s: offset %llu is not aligned to %u", gguf_label(t->name).s,
                          (unsigned long long)offset[i], align);
            goto out;
        }
        if (start > size || offset[i] > size - start || t->bytes > size - start - offset[i]) {
            ret = err_set(r->e, HEARTH_EBADMODEL,
                          "the file ends within the data of tensor %s (%llu bytes at offset %llu; the file has %llu)",
                          gguf_label(t->name).s, (unsigned long long)t->bytes, (unsigned long long)offset[i],
                          (unsigned long long)size);
            goto out;
        }
        if (t->bytes)
            t->data = r->base + start + offset[i];
    }
out:
    free(offset);
    return ret;
}

static int read_header(struct gguf_reader *r, uint64_t *n_tensor, uint64_t *n_key)
{
    char magic[4];
    uint32_t version = 0; /* initialised only for gcc, which does not see that a failed read returns */
    int ret = take(r, magic, 4, "the header", nowhere);
    if (ret)
        return ret;
    if (memcmp(magic, "GGUF", 4))
        return err_set(r->e, HEARTH_EBADMODEL, "not a GGUF file");
    ret = take(r, &version, 4, "the header", nowhere);
    if (ret)
        return ret;
    if (version && !(version & 0xffff))
        return err_set(r->e, HEARTH_EUNSUPPORTED, "a big-endian GGUF file; only little-endian ones are read");
    if (version != 2 && version != 3)
        return err_set(r->e, HEARTH_EUNSUPPORTED, "GGUF version %u; versions 2 and 3 are read", version);
    ret = take(r, n_tensor, 8, "the header", nowhere);
    if (!ret)
        ret = take(r, n_key, 8, "the header", nowhere);
    if (ret)
        return ret;
    if (*n_tensor > TENSORS_MAX)
        return err_set(r->e, HEARTH_EBADMODEL, "%llu tensors; the limit is %d", (unsigned long long)*n_tensor,
                       TENSORS_MAX);
    if (*n_key > KEYS_MAX)
        return err_set(r->e, HEARTH_EBADMODEL, "%llu keys; the limit is %d", (unsigned long long)*n_key, KEYS_MAX);
    return 0;
}

struct gguf *gguf_new(void)
{
    struct gguf *g = calloc(1, sizeof *g);
    if (g && getrandom(&g->seed, sizeof g->seed, GRND_NONBLOCK) < 0)
        g->seed = (uintptr_t)g; /* the kernel's random pool is not ready, early in boot */
    return g;
}

int gguf_open(struct gguf **out, const char *path, struct hearth_err *e)
{
    struct gguf *g = gguf_new();
    if (!g || !(g->maps = calloc(1, sizeof *g->maps))) {
        gguf_close(g);
        return err_set(e, HEARTH_ENOMEM, "no memory to open %s", path);
    }
    int ret = map_open(&g->maps[0], path, e);
    if (ret) {
        gguf_close(g);
        return ret;
    }
    g->n_map = 1;

    struct hearth_err why = {0};
    const unsigned char *base = g->maps[0].base;
    struct gguf_reader r = {base, base, base + g->maps[0].size, &why};
    uint64_t n_tensor = 0, n_key = 0;
    uint32_t align = 32;
    ret = read_header(&r, &n_tensor, &n_key);
    if (!ret)
        ret = gguf_read_keys(g, &r, n_key);
    if (!ret && (ret = gguf_u32(g, "general.alignment", &align, &why)) > 0)
        ret = 0;
    if (!ret && (align < ALIGN_MIN || align > ALIGN_MAX || (align & (align - 1))))
        ret = err_set(&why, HEARTH_EBADMODEL, "general.alignment is %u; a power of two from %d to %d is possible",
                      align, ALIGN_MIN, ALIGN_MAX);
    if (!ret)
        ret = read_tensors(g, &r, n_tensor, align);
    if (!ret)
        ret = gguf_check(g, &why);
    if (ret) {
        const char *slash = strrchr(path, '/');
        gguf_close(g);
        return err_set(e, ret, "%.80s: %s", slash ? slash + 1 : path, why.msg);
    }
    *out = g;
    return 0;
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->n_map; i++)
        map_close(&g->maps[i]);
    for (struct gguf_owned *o; (o = g->owned);) {
        g->owned = o->next;
        free(o);
    }
    free(g->maps);
    free(g->header);
    free(g->keys);
    free(g->tensors);
    free(g->key_index.slot);
    free(g->tensor_index.slot);
    free(g);
}

int gguf_check(const struct gguf *g, struct hearth_err *e)
{
    for (size_t i = 0; i < g->n_map; i++) {
        const struct map *m = &g->maps[i];
        if (map_damaged(m))
            return err_set(e, HEARTH_EBADMODEL, "the file shrank while it was in use (it had %zu bytes)", m->size);
        if (map_changed(m))
            return err_set(e, HEARTH_EBADMODEL, "the file was written to while it was in use");
    }
    return 0;
}

uint64_t gguf_file_bytes(const struct gguf *g)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < g->n_map; i++)
        bytes += g->maps[i].size;
    return bytes;
}

size_t gguf_n_tensor(const struct gguf *g)
{
    return g->n_tensor;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    return &g->tensors[i];
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name)
{
    uint32_t at = *index_slot(g, &g->tensor_index, (struct gguf_str){name, strlen(name)});
    return at ? &g->tensors[at - 1] : NULL;
}

size_t gguf_n_key(const struct gguf *g)
{
    return g->n_key;
}

struct gguf_str gguf_key_at(const struct gguf *g, size_t i, struct gguf_str *raw)
{
    const struct gguf_key *k = &g->keys[i];
    const char *after = k->name.s + k->name.n;
    *raw = (struct gguf_str){after, (size_t)((const char *)k->end - after)};
    return k->name;
}

/* --- values -------------------------------------------------------------------------------------------- */

static int wrong_type(const struct gguf_key *k, const char *want, struct hearth_err *e)
{
    return err_set(e, HEARTH_EBADMODEL, "key %s is %s%s where %s is expected", gguf_label(k->name).s,
                   k->type == V_ARR ? "an array of " : "of type ",
                   value_types[k->type == V_ARR ? k->elem : k->type].name, want);
}

int gguf_i64(const struct gguf *g, const char *key, int64_t *out, struct hearth_err *e)
{
    const struct gguf_key *k = key_find(g, key);
    if (!k)
        return 1;
    uint64_t v = 0;
    bool is_signed = k->type == V_I8 || k->type == V_I16 || k->type == V_I32 || k->type == V_I64;
    if (!is_signed && k->type != V_U8 && k->type != V_U16 && k->type != V_U32 && k->type != V_U64)
        return wrong_type(k, "an integer", e);
    size_t size = value_types[k->type].size;
    memcpy(&v, k->p, size); /* little-endian, as every machine that hearth runs on */
    int unused = is_signed ? 64 - 8 * (int)size : 0;
    *out = !is_signed && v > INT64_MAX ? INT64_MAX : (int64_t)(v << unused) >> unused;
    return 0;
}

int gguf_u32(const struct gguf *g, const char *key, uint32_t *out, struct hearth_err *e)
{
    int64_t v;
    int ret = gguf_i64(g, key, &v, e);
    if (ret)
        return ret;
    if (v < 0 || v > UINT32_MAX)
        return err_set(e, HEARTH_EBADMODEL, "key %s is out of range: 0 to %u is possible", key, UINT32_MAX);
    *out = (uint32_t)v;
    return 0;
}

int gguf_f32(const struct gguf *g, const char *key, float *out, struct hearth_err *e)
{
    const struct gguf_key *k = key_find(g, key);
    if (!k)
        return 1;
    float v;
    if (k->type == V_F64) {
        double d;
        memcpy(&d, k->p, 8);
        v = (float)d;
    } else if (k->type == V_F32) {
        memcpy(&v, k->p, 4);
    } else {
        return wrong_type(k, "a float", e);
    }
    if (!__builtin_isfinite(v))
        return err_set(e, HEARTH_EBADMODEL, "key %s is not a finite number", key);
    *out = v;
    return 0;
}

int gguf_bool(const struct gguf *g, const char *key, bool *out, struct hearth_err *e)
{
    const struct gguf_key *k = key_find(g, key);
    if (!k)
        return 1;
    if (k->type != V_BOOL)
        return wrong_type(k, "a bool", e);
    if (*k->p > 1)
        return err_set(e, HEARTH_EBADMODEL, "key %s is %u, which is no bool", key, *k->p);
    *out = *k->p;
    return 0;
}

int gguf_str(const struct gguf *g, const char *key, struct gguf_str *out, struct hearth_err *e)
{
    const struct gguf_key *k = key_find(g, key);
    if (!k)
        return 1;
    if (k->type != V_STR)
        return wrong_type(k, "a string", e);
    *out = (struct gguf_str){(const char *)k->p + 8, (size_t)(k->end - k->p) - 8};
    return 0;
}

static int nums(const struct gguf *g, const char *key, bool floats, struct gguf_nums *out, struct hearth_err *e)
{
    const struct gguf_key *k = key_find(g, key);
    if (!k)
        return 1;
    if (k->type != V_ARR || (floats ? k->elem != V_F32 : k->elem != V_I32 && k->elem != V_U32))
        return wrong_type(k, floats ? "an array of f32" : "an array of i32", e);
    *out = (struct gguf_nums){k->p, (size_t)k->n};
    return 0;
}

int gguf_f32s(const struct gguf *g, const char *key, struct gguf_nums *out, struct hearth_err *e)
{
    return nums(g, key, true, out, e);
}

int gguf_i32s(const struct gguf *g, const char *key, struct gguf_nums *out, struct hearth_err *e)
{
    return nums(g, key, false, out, e);
}

int gguf_f64s(const struct gguf *g, const char *key, struct gguf_nums *out, struct hearth_err *e)
{
    const struct gguf_key *k = key_find(g, key);
    if (!k)
        return 1;
    if (k->type != V_ARR || k->elem != V_F64)
        return wrong_type(k, "an array of f64", e);
    *out = (struct gguf_nums){k->p, (size_t)k->n};
    return 0;
}

int gguf_bytes(const struct gguf *g, const char *key, struct gguf_str *out, struct hearth_err *e)
{
    const struct gguf_key *k = key_find(g, key);
    if (!k)
        return 1;
    if (k->type != V_ARR || (k->elem != V_U8 && k->elem != V_I8))
        return wrong_type(k, "an array of u8", e);
    *out = (struct gguf_str){(const char *)k->p, (size_t)k->n};
    return 0;
}

bool gguf_has(const struct gguf *g, const char *key)
{
    return key_find(g, key) != NULL;
}

bool gguf_is_array(const struct gguf *g, const char *key)
{
    const struct gguf_key *k = key_find(g, key);
    return k && k->type == V_ARR;
}

int gguf_flags(const struct gguf *g, const char *key, uint8_t *out, size_t n, struct hearth_err *e)
{
    const struct gguf_key *k = key_find(g, key);
    if (!k)
        return 1;
    if (k->type != V_ARR || (k->elem != V_BOOL && k->elem != V_I32 && k->elem != V_U32))
        return wrong_type(k, "an array of bool or i32", e);
    if (k->n != n)
        return err_set(e, HEARTH_EBADMODEL, "key %s has %llu entries; %zu are expected", gguf_label(k->name).s,
                       (unsigned long long)k->n, n);
    struct gguf_nums nums = {k->p, n};
    for (size_t i = 0; i < n; i++)
        out[i] = k->elem == V_BOOL ? k->p[i] != 0 : gguf_i32_at(&nums, i) != 0;
    return 0;
}

int gguf_strs(const struct gguf *g, const char *key, struct gguf_strs *out, struct hearth_err *e)
{
    const struct gguf_key *k = key_find(g, key);
    if (!k)
        return 1;
    if (k->type != V_ARR || k->elem != V_STR)
        return wrong_type(k, "an array of strings", e);
    *out = (struct gguf_strs){k->p, k->end, (size_t)k->n};
    return 0;
}

/* Lengths are checked again, because the file may have been overwritten since it was opened. */
bool gguf_strs_next(struct gguf_strs *w, struct gguf_str *out)
{
    uint64_t n;
    if (!w->n || w->end - w->p < 8)
        return false;
    memcpy(&n, w->p, 8);
    if (n > (uint64_t)(w->end - w->p) - 8)
        return false;
    *out = (struct gguf_str){(const char *)w->p + 8, (size_t)n};
    w->p += 8 + n;
    w->n--;
    return true;
}
