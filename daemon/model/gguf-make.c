/* gguf-make.c - see gguf-make.h. */
#include "daemon/model/gguf-make.h"

#include <stdlib.h>

#include "daemon/model/gguf-internal.h"

struct gguf_make {
    struct gguf *g;
    unsigned char *buf; /* keys in GGUF's encoding */
    size_t len, cap;
    size_t n_key, cap_tensor, cap_map;
    bool failed; /* memory ran out */
};

struct gguf_make *gguf_make_new(void)
{
    struct gguf_make *m = calloc(1, sizeof *m);
    if (m && !(m->g = gguf_new())) {
        free(m);
        return NULL;
    }
    return m;
}

void gguf_make_free(struct gguf_make *m)
{
    if (!m)
        return;
    gguf_close(m->g);
    free(m->buf);
    free(m);
}

/* Grows an array by one element of `size` bytes. Returns false where memory is out; m->failed then stays set. */
static bool grow(struct gguf_make *m, void *array, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return true;
    size_t more = *cap ? *cap * 2 : 16;
    void *v = m->failed ? NULL : reallocarray(*(void **)array, more, size);
    if (!v) {
        m->failed = true;
        return false;
    }
    *(void **)array = v;
    *cap = more;
    return true;
}

/* --- keys ---------------------------------------------------------------------------------------------- */

static void put(struct gguf_make *m, const void *p, size_t n)
{
    while (!m->failed && m->cap - m->len < n) {
        size_t cap = m->cap ? m->cap * 2 : 4096;
        unsigned char *v = realloc(m->buf, cap);
        if (!v) {
            m->failed = true;
            return;
        }
        m->buf = v;
        m->cap = cap;
    }
    if (m->failed)
        return;
    memcpy(m->buf + m->len, p, n);
    m->len += n;
}

static void put_str(struct gguf_make *m, const char *s, size_t n)
{
    uint64_t len = n;
    put(m, &len, sizeof len);
    put(m, s, n);
}

static void put_head(struct gguf_make *m, const char *key, uint32_t type)
{
    put_str(m, key, strlen(key));
    put(m, &type, sizeof type);
    m->n_key++;
}

static void put_array(struct gguf_make *m, const char *key, uint32_t elem, size_t n)
{
    uint64_t count = n;
    put_head(m, key, V_ARR);
    put(m, &elem, sizeof elem);
    put(m, &count, sizeof count);
}

void gguf_make_u32(struct gguf_make *m, const char *key, uint32_t v)
{
    put_head(m, key, V_U32);
    put(m, &v, sizeof v);
}

void gguf_make_f32(struct gguf_make *m, const char *key, float v)
{
    put_head(m, key, V_F32);
    put(m, &v, sizeof v);
}

void gguf_make_bool(struct gguf_make *m, const char *key, bool v)
{
    put_head(m, key, V_BOOL);
    put(m, &(uint8_t){v}, 1);
}

void gguf_make_str(struct gguf_make *m, const char *key, const char *s, size_t n)
{
    put_head(m, key, V_STR);
    put_str(m, s, n);
}

void gguf_make_i32s(struct gguf_make *m, const char *key, const int32_t *v, size_t n)
{
    put_array(m, key, V_I32, n);
    put(m, v, n * sizeof *v);
}

void gguf_make_f64s(struct gguf_make *m, const char *key, const double *v, size_t n)
{
    put_array(m, key, V_F64, n);
    put(m, v, n * sizeof *v);
}

void gguf_make_bytes(struct gguf_make *m, const char *key, const void *v, size_t n)
{
    put_array(m, key, V_U8, n);
    put(m, v, n);
}

void gguf_make_strs(struct gguf_make *m, const char *key, const struct gguf_str *v, size_t n)
{
    put_array(m, key, V_STR, n);
    for (size_t i = 0; i < n; i++)
        put_str(m, v[i].s, v[i].n);
}

void gguf_make_raw(struct gguf_make *m, struct gguf_str name, struct gguf_str raw)
{
    put_str(m, name.s, name.n);
    put(m, raw.s, raw.n);
    m->n_key++;
}

/* --- tensors and their memory -------------------------------------------------------------------------- */

void gguf_make_tensor(struct gguf_make *m, const struct gguf_tensor *t)
{
    if (grow(m, &m->g->tensors, m->g->n_tensor, &m->cap_tensor, sizeof *t))
        m->g->tensors[m->g->n_tensor++] = *t;
}

void *gguf_make_alloc(struct gguf_make *m, size_t bytes)
{
    struct gguf_owned *o = m->failed || bytes > SIZE_MAX / 2 ? NULL : malloc(sizeof *o + bytes);
    if (!o) {
        m->failed = true;
        return NULL;
    }
    o->next = m->g->owned;
    m->g->owned = o;
    return o->bytes;
}

void gguf_make_later(struct gguf_make *m, gguf_fill_fn *fill, const void *arg)
{
    struct gguf_later *l = gguf_make_alloc(m, sizeof *l);
    if (!l)
        return;
    *l = (struct gguf_later){m->g->later, fill, arg};
    m->g->later = l;
}

int gguf_fill(struct gguf *g, struct hearth_err *e)
{
    for (; g->later; g->later = g->later->next) {
        int ret = g->later->fill(g->later->arg, e);
        if (ret)
            return ret;
    }
    return 0;
}

bool gguf_is_filled(const struct gguf *g)
{
    return !g->later;
}

struct gguf_str gguf_make_name(struct gguf_make *m, const char *name)
{
    size_t n = strlen(name);
    char *copy = gguf_make_alloc(m, n + 1);
    return copy ? (struct gguf_str){memcpy(copy, name, n + 1), n} : (struct gguf_str){"", 0};
}

void gguf_make_map(struct gguf_make *m, const struct map *map)
{
    if (grow(m, &m->g->maps, m->g->n_map, &m->cap_map, sizeof *map))
        m->g->maps[m->g->n_map++] = *map;
    else
        map_close(&(struct map){map->base, map->size, map->fd, map->slot});
}

void gguf_make_take(struct gguf_make *m, struct gguf *g)
{
    for (size_t i = 0; i < g->n_map; i++)
        gguf_make_map(m, &g->maps[i]);
    g->n_map = 0;
    while (g->owned) {
        struct gguf_owned *o = g->owned;
        g->owned = o->next;
        o->next = m->g->owned;
        m->g->owned = o;
    }
}

int gguf_make_done(struct gguf_make *m, struct gguf **out, struct hearth_err *e)
{
    struct gguf *g = m->g;
    if (m->failed)
        return err_set(e, HEARTH_ENOMEM, "no memory for the model's metadata");
    g->header = m->buf;
    m->buf = NULL;
    struct gguf_reader r = {g->header, g->header, g->header + m->len, e};
    int ret = gguf_read_keys(g, &r, m->n_key);
    if (!ret)
        ret = gguf_index_tensors(g, e);
    if (!ret)
        ret = gguf_check(g, e);
    if (ret)
        return ret;
    *out = g;
    m->g = NULL;
    return 0;
}
