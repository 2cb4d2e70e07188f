/* safetensors.c - see safetensors.h. */
#include "daemon/model/hf/safetensors.h"

#include "daemon/model/hf/parse.h"
#include "daemon/model/pace.h"

#include <stdio.h>

enum {
    HEADER_MAX = 16 << 20, /* the format allows 100 MB; 65,536 tensors need about ten */
    TENSORS_MAX = 1 << 16,
};

static const struct {
    const char *name;
    uint32_t type, bytes;
} types[] = {{"BF16", DT_BF16, 2}, {"F16", DT_F16, 2}, {"F32", DT_F32, 4}, {"U8", SAFETENSOR_U8, 1}};

/* Reads a number of the header: not negative, and at most 63 bits. */
static bool number(const json_t *v, uint64_t *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static int bad(struct hearth_err *e, const char *name, const char *why)
{
    return err_set(e, HEARTH_EBADMODEL, "tensor %s: %s", gguf_label((struct gguf_str){name, strlen(name)}).s, why);
}

static int shape_of(struct gguf_tensor *t, const json_t *shape, const char *name, uint64_t *n, struct hearth_err *e)
{
    size_t n_dim = json_array_size(shape);
    if (!json_is_array(shape) || n_dim < 1 || n_dim > 4)
        return bad(e, name, "its shape is not one of 1 to 4 dimensions");
    *n = 1;
    t->n_dim = (uint32_t)n_dim;
    for (size_t i = 0; i < 4; i++) {
        t->dim[i] = 1;
        if (i < n_dim && !number(json_array_get(shape, n_dim - 1 - i), &t->dim[i]))
            return bad(e, name, "a dimension is not a number");
        if (!t->dim[i] || t->dim[i] > 1u << 30 || __builtin_mul_overflow(*n, t->dim[i], n))
            return bad(e, name, "a dimension is out of range");
    }
    return 0;
}

static int tensor_of(struct safetensor *s, const json_t *v, const unsigned char *data, uint64_t size,
                     struct hearth_err *e)
{
    const json_t *at = json_object_get(v, "data_offsets");
    const char *type = json_string_value(json_object_get(v, "dtype"));
    uint64_t n = 0, from, to, bytes;
    size_t k = 0;
    int ret = shape_of(&s->t, json_object_get(v, "shape"), s->name, &n, e);
    if (ret)
        return ret;
    while (type && k < sizeof types / sizeof *types && strcmp(types[k].name, type))
        k++;
    if (!type || k == sizeof types / sizeof *types)
        return err_set(e, HEARTH_EUNSUPPORTED, "tensor %s is of type %s; BF16, F16 and F32 are read",
                       gguf_label((struct gguf_str){s->name, strlen(s->name)}).s,
                       type ? gguf_label((struct gguf_str){type, strlen(type)}).s : "(none)");
    if (json_array_size(at) != 2 || !number(json_array_get(at, 0), &from) || !number(json_array_get(at, 1), &to) ||
        from > to || to > size)
        return bad(e, s->name, "its data_offsets lie outside of the file");
    if (__builtin_mul_overflow(n, types[k].bytes, &bytes) || bytes != to - from)
        return bad(e, s->name, "its data_offsets do not fit its shape");
    s->t.type = types[k].type;
    s->t.bytes = bytes;
    s->t.data = data + from;
    return 0;
}

static int read_header(const struct map *map, safetensors_wanted *wanted, safetensors_fn *fn, void *arg,
                       struct hearth_err *e)
{
    uint64_t n;
    if (map->size < 8)
        return err_set(e, HEARTH_EBADMODEL, "the file ends within its header");
    memcpy(&n, map->base, 8); /* little-endian */
    if (n > HEADER_MAX || n > map->size - 8)
        return err_set(e, HEARTH_EBADMODEL, "a header of %llu bytes in a file of %zu; the limit is %d",
                       (unsigned long long)n, map->size, HEADER_MAX);
    json_error_t why;
    bool no_memory;
    int ret = pace(n, e); /* the JSON parser cannot call it; a model may have 256 such headers */
    if (ret)
        return ret;
    json_t *root = hf_parse((const char *)map->base + 8, (size_t)n, JSON_REJECT_DUPLICATES, &why, &no_memory), *v;
    if (no_memory)
        return err_set(e, HEARTH_ENOMEM, "no memory for the header");
    if (!json_is_object(root)) {
        json_decref(root);
        return err_set(e, HEARTH_EBADMODEL, "the header is no JSON object: %s",
                       gguf_label((struct gguf_str){why.text, root ? 0 : strlen(why.text)}).s);
    }
    const char *name;
    if (json_object_size(root) > TENSORS_MAX)
        ret = err_set(e, HEARTH_EBADMODEL, "%zu tensors; the limit is %d", json_object_size(root), TENSORS_MAX);
    json_object_foreach(root, name, v)
    {
        struct safetensor s = {.name = name};
        if (ret || !strcmp(name, "__metadata__") || !wanted(name))
            continue;
        ret = tensor_of(&s, v, map->base + 8 + n, map->size - 8 - n, e);
        if (!ret)
            ret = fn(arg, &s, e);
    }
    json_decref(root);
    return ret;
}

int safetensors_open(struct map *map, const char *path, safetensors_wanted *wanted, safetensors_fn *fn, void *arg,
                     struct hearth_err *e)
{
    struct hearth_err why = {0};
    int ret = map_open(map, path, e);
    if (ret)
        return ret;
    ret = read_header(map, wanted, fn, arg, &why);
    if (ret) {
        const char *slash = strrchr(path, '/');
        map_close(map);
        return err_set(e, ret, "%.80s: %s", slash ? slash + 1 : path, why.msg);
    }
    return 0;
}
