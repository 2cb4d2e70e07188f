/*
 * numbers.c - every tensor of every tiny model, filled with NaN: the model is refused with the tensor's name, or its
 * logits are NaN, or, if the tensor is an expert that no row was routed to, the logits are unchanged. Finite logits
 * that differ would be silent nonsense.
 */
#include "config.h"

#include "daemon/model/file.h"
#include "daemon/model/gguf-make.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/model/folders.h"
#include "tests/unit/model/one-step.h"

enum { N = 4 };

static const struct backend *be;
static struct device *dev;
static size_t n_refused, n_seen, n_unread, n_bad;

/* A copy of the model whose tensor `at` has `data`. */
static struct gguf *with(const struct gguf *g, size_t at, const void *data)
{
    struct gguf_make *make = gguf_make_new();
    struct gguf *out = NULL;
    struct hearth_err e;
    assert_non_null(make);
    for (size_t i = 0; i < gguf_n_key(g); i++) {
        struct gguf_str raw, key = gguf_key_at(g, i, &raw);
        gguf_make_raw(make, key, raw);
    }
    for (size_t i = 0; i < gguf_n_tensor(g); i++) {
        struct gguf_tensor t = *gguf_tensor_at(g, i);
        if (i == at)
            t.data = data;
        gguf_make_tensor(make, &t);
    }
    if (gguf_make_done(make, &out, &e))
        fail_msg("%s", e.msg);
    gguf_make_free(make);
    return out;
}

/* Writes NaN for a float type; false for others. Blocks may have a scale that is NaN, which is tested with the ops. */
static bool all_nan(const struct gguf_tensor *t, unsigned char *to)
{
    static const unsigned char nan32[] = {0, 0, 0xc0, 0x7f}, nan16[] = {0x00, 0x7e}, nanb16[] = {0xc0, 0x7f};
    const unsigned char *one = t->type == DT_F32 ? nan32 : t->type == DT_F16 ? nan16 : nanb16;
    size_t size = t->type == DT_F32 ? 4 : 2;
    if (t->type != DT_F32 && t->type != DT_F16 && t->type != DT_BF16)
        return false;
    for (uint64_t i = 0; i < t->bytes; i += size)
        memcpy(to + i, one, size);
    return true;
}

/* Returns the logits [N][*n_vocab], which the caller frees, or NULL with an error. */
static float *run(struct gguf *g, size_t *n_vocab, struct hearth_err *e)
{
    struct model *m;
    if (model_load(&m, g, be, dev, NULL, NULL, e))
        return NULL;
    *n_vocab = m->hp.n_vocab;
    float *logits = calloc(N * *n_vocab, sizeof *logits);
    assert_non_null(logits);
    if (one_step(be, dev, m, N, logits, e)) {
        free(logits);
        logits = NULL;
    }
    model_free(m);
    return logits;
}

static bool all_finite(const float *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(v[i]))
            return false;
    return true;
}

static void try(const struct gguf *g, const char *file, size_t at, const float *was, size_t n_vocab)
{
    const struct gguf_tensor *t = gguf_tensor_at(g, at);
    char name[160];
    struct hearth_err e = {0};
    unsigned char *nan = malloc(t->bytes);
    assert_non_null(nan);
    snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.s);
    if (all_nan(t, nan)) {
        struct gguf *wrong = with(g, at, nan);
        float *now = run(wrong, &n_vocab, &e);
        if (!now && strstr(e.msg, name))
            n_refused++;
        else if (now && !all_finite(now, N * n_vocab))
            n_seen++;
        else if (now && !memcmp(was, now, N * n_vocab * sizeof *now))
            n_unread++;
        else {
            print_message("# %s, %s: %s\n", file, name, now ? "its logits are numbers" : e.msg);
            n_bad++;
        }
        free(now);
        gguf_close(wrong);
    }
    free(nan);
}

static void model(const char *path)
{
    struct gguf *g;
    struct hearth_err e = {0};
    size_t n_vocab;
    if (model_file_open(&g, path, &e))
        return; /* keys.c tests what may be refused */
    float *was = run(g, &n_vocab, &e);
    if (was) {
        assert_true(all_finite(was, N * n_vocab));
        for (size_t i = 0; i < gguf_n_tensor(g); i++)
            try(g, strrchr(path, '/') + 1, i, was, n_vocab);
    }
    free(was);
    gguf_close(g);
}

static void test_models(void **state)
{
    (void)state;
    folders_each(model);
    print_message("# %zu refused by name, %zu seen in the logits, %zu of experts that nobody went to\n", n_refused,
                  n_seen, n_unread);
    assert_true(n_refused > 0 && n_seen > n_unread);
    assert_int_equal(n_bad, 0);
}

int main(void)
{
    struct hearth_err e;
    be = backend_find("cpu");
    if (be->open(&dev, &(struct device_params){.threads = 1}, &e))
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
