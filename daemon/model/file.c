/* file.c - see file.h. */
#include "daemon/model/file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/model/gguf-make.h"
#include "daemon/model/hf/hf.h"
#include "daemon/model/passed.h"

enum {
    PARTS_MAX = 128,
    TAIL = 20, /* "-00001-of-00003.gguf" */
};

/* Writes the path of part `no` (counted from 0), derived from the path of any part. */
static int part_path(char out[PATH_MAX], const char *path, uint32_t no, uint32_t n, struct hearth_err *e)
{
    size_t len = strlen(path);
    unsigned part, parts;
    int used = 0;
    if (len <= TAIL || len >= PATH_MAX || sscanf(path + len - TAIL, "-%5u-of-%5u.gguf%n", &part, &parts, &used) != 2 ||
        used != TAIL || parts != n)
        return err_set(e, HEARTH_EBADMODEL,
                       "the file is one of %u parts of a model; it must be called NAME-00001-of-%05u.gguf, as the "
                       "others are, for them to be found",
                       n, n);
    snprintf(out, PATH_MAX, "%.*s-%05u-of-%05u.gguf", (int)(len - TAIL), path, no + 1, n);
    return 0;
}

static int is_part(const struct gguf *g, uint32_t no, uint32_t n, const char *path, struct hearth_err *e)
{
    uint32_t have_no = UINT32_MAX, have_n = 0;
    int ret = gguf_u32(g, "split.no", &have_no, e);
    if (ret >= 0)
        ret = gguf_u32(g, "split.count", &have_n, e);
    if (ret < 0)
        return ret;
    if (have_no != no || have_n != n)
        return err_set(e, HEARTH_EBADMODEL, "%.80s says it is part %u of %u; part %u of %u belongs there", path,
                       have_no + 1, have_n, no + 1, n);
    return 0;
}

static int add_part(struct gguf_make *m, const char *path, uint32_t no, uint32_t n, struct hearth_err *e)
{
    struct gguf *g;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int ret = gguf_open(&g, path, e);
    if (ret == HEARTH_ENOMODEL)
        return err_set(e, HEARTH_EBADMODEL, "part %u of %u is missing: there is no %.80s beside the others", no + 1, n,
                       name);
    if (ret)
        return ret;
    ret = is_part(g, no, n, name, e);
    for (size_t i = 0; !ret && no == 0 && i < gguf_n_key(g); i++) {
        struct gguf_str raw, key = gguf_key_at(g, i, &raw);
        gguf_make_raw(m, key, raw);
    }
    for (size_t i = 0; !ret && i < gguf_n_tensor(g); i++)
        gguf_make_tensor(m, gguf_tensor_at(g, i));
    if (!ret)
        gguf_make_take(m, g);
    gguf_close(g);
    return ret;
}

static int open_split(struct gguf **out, const char *path, uint32_t n, struct hearth_err *e)
{
    char part[PATH_MAX];
    if (n > PARTS_MAX)
        return err_set(e, HEARTH_EBADMODEL, "split.count is %u; the limit is %d", n, PARTS_MAX);
    struct gguf_make *m = gguf_make_new();
    if (!m)
        return err_set(e, HEARTH_ENOMEM, "no memory to open %s", path);
    int ret = 0;
    for (uint32_t i = 0; i < n && !ret; i++)
        if (!(ret = part_path(part, path, i, n, e)))
            ret = add_part(m, part, i, n, e);
    struct gguf *g = NULL;
    if (!ret)
        ret = gguf_make_done(m, &g, e);
    uint32_t want = 0;
    if (!ret && (ret = gguf_u32(g, "split.tensors.count", &want, e)) > 0)
        ret = 0;
    else if (!ret && want != gguf_n_tensor(g))
        ret = err_set(e, HEARTH_EBADMODEL, "the %u parts have %zu tensors together; split.tensors.count is %u", n,
                      gguf_n_tensor(g), want);
    gguf_make_free(m);
    if (ret)
        gguf_close(g);
    else
        *out = g;
    return ret;
}

/* Whether the file is part of a Hugging Face folder; such a model is opened by its folder's path. */
static bool is_of_folder(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && (!strcmp(dot, ".safetensors") || !strcmp(dot, ".json"));
}

int model_file_open(struct gguf **out, const char *path, struct hearth_err *e)
{
    struct stat st;
    if (!passed_stat(path, &st) && S_ISDIR(st.st_mode))
        return hf_open(out, path, e);
    struct gguf *g;
    uint32_t n = 1;
    int ret = gguf_open(&g, path, e);
    if (ret == HEARTH_EBADMODEL && is_of_folder(path))
        return err_set(e, ret, "%.80s: not a GGUF file; a Hugging Face model is named by its folder",
                       strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
    if (ret)
        return ret;
    ret = gguf_u32(g, "split.count", &n, e);
    if (ret >= 0 && n > 1) {
        gguf_close(g);
        return open_split(out, path, n, e);
    }
    if (ret < 0)
        gguf_close(g);
    else
        *out = g;
    return ret < 0 ? ret : 0;
}

bool model_file_is_at_fault(int code)
{
    return code == HEARTH_EBADMODEL || code == HEARTH_EUNSUPPORTED;
}
