/*
 * keys.c - every key by which a model is read, with wrong values: of another type, zero, negative, huge, not a number,
 * an array of another length, or absent. Each model either loads and computes a token, or is refused by an error that
 * names the key.
 *
 * The models are those of folders.h. Besides its own keys each is given those that the sources of daemon/model read
 * anywhere; a key that its architecture does not read changes nothing.
 *
 * An array or a number that contradicts the tensors is refused with the tensor's name and shape, since it is not known
 * which of the two is wrong.
 */
#include "config.h"

#include "daemon/model/chat/templates.h"
#include "daemon/model/file.h"
#include "daemon/model/gguf-make.h"
#include "daemon/model/model.h"
#include "daemon/model/tok/tok.h"

#include <ctype.h>
#include <glob.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/model/folders.h"
#include "tests/unit/model/one-step.h"

enum { U32 = 4, I32, F32, BOOL, STR, ARR, KEYS_MAX = 400, SECONDS_MOST = 20 /* of one load */ };

static const struct backend *be;
static struct device *dev;
static size_t n_loaded, n_refused, n_unnamed;

/* --- wrong values: raw, as gguf_key_at() returns them --------------------------------------------------------- */

struct raw {
    unsigned char b[1 << 16];
    size_t n;
};

static void add(struct raw *r, const void *p, size_t n)
{
    assert_true(r->n + n <= sizeof r->b);
    memcpy(r->b + r->n, p, n);
    r->n += n;
}
static void add32(struct raw *r, uint32_t v)
{
    add(r, &v, 4);
}
static void add64(struct raw *r, uint64_t v)
{
    add(r, &v, 8);
}

static uint32_t bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

/* An array of n elements of four bytes: those of `was`, repeated as necessary, or v if `was` is NULL. */
static void numbers(struct raw *r, uint32_t elem, size_t n, const unsigned char *was, size_t n_was, uint32_t v)
{
    add32(r, ARR), add32(r, elem), add64(r, n);
    for (size_t i = 0; i < n; i++) {
        if (was && n_was)
            memcpy(&v, was + i % n_was * 4, 4);
        add32(r, v);
    }
}

enum wrong {
    GONE,
    TEXT, /* these four have types that no number or array of numbers has */
    TEXTS,
    NESTED,
    FLAG,
    ZERO,
    ONE,
    SOME,
    MINUS,
    HUGE_NUMBER,
    NOT_A_NUMBER,
    INFINITE,
    SHORTER,
    LONGER,
    EMPTY,
    ALL_ZERO,
    ALL_MINUS,
    ALL_HUGE,
    SCALAR,
    WRONGS
};
static const char *const names[WRONGS] = {"gone",
                                          "a text",
                                          "texts",
                                          "nested arrays",
                                          "a flag",
                                          "0",
                                          "1",
                                          "6",
                                          "-1",
                                          "2^32 - 1",
                                          "NaN",
                                          "infinity",
                                          "one shorter",
                                          "one longer",
                                          "an empty array",
                                          "all 0",
                                          "all -1",
                                          "all 2^31 - 1",
                                          "a number"};

/* Makes the wrong value. False if it would not be wrong for a value like `was`. An absent key has was.n 0. */
static bool make(struct raw *r, enum wrong w, struct gguf_str was)
{
    uint32_t type = ARR + 1, elem = 0;
    uint64_t n = 0;
    r->n = 0;
    if (was.n >= 4)
        memcpy(&type, was.s, 4);
    if (type == ARR)
        memcpy(&elem, was.s + 4, 4), memcpy(&n, was.s + 8, 8);
    const unsigned char *at = (const unsigned char *)was.s + 16;
    bool array = type == ARR, small = array && elem >= U32 && elem <= F32 && n < 4096, real = type == F32;
    switch (w) {
    case GONE:
        return was.n;
    case TEXT:
        add32(r, STR), add64(r, 8), add(r, "nonsense", 8);
        return type != STR;
    case TEXTS:
        add32(r, ARR), add32(r, STR), add64(r, 2), add64(r, 1), add(r, "a", 1), add64(r, 0);
        return !array || elem != STR;
    case NESTED:
        add32(r, ARR), add32(r, F32), add64(r, 1), add32(r, bits(0.5f));
        return !array || elem != F32;
    case FLAG:
        add32(r, BOOL), add(r, "\1", 1);
        return type != BOOL;
    case ZERO:
        add32(r, real ? F32 : U32), add32(r, 0);
        return !array && type != STR;
    case ONE:
    case SOME: /* a value that none of the models has, and that is not wrong by itself */
        add32(r, U32), add32(r, w == ONE ? 1 : 6);
        return !array && !real && type != STR;
    case MINUS:
        add32(r, real ? F32 : I32), add32(r, real ? bits(-1.0f) : (uint32_t)-1);
        return !array && type != STR;
    case HUGE_NUMBER:
        add32(r, real ? F32 : U32), add32(r, real ? bits(3e38f) : UINT32_MAX);
        return !array && type != STR;
    case NOT_A_NUMBER:
        add32(r, F32), add32(r, 0x7fc00000);
        return !array && type != STR;
    case INFINITE:
        add32(r, F32), add32(r, bits(INFINITY));
        return !array && type != STR;
    case SHORTER:
        numbers(r, elem, small && n ? n - 1 : 0, at, n, 0);
        return small && n > 1;
    case LONGER:
        numbers(r, elem, small ? n + 1 : 0, at, n, 0);
        return small;
    case EMPTY:
        numbers(r, array ? elem : U32, 0, NULL, 0, 0);
        return was.n && array;
    case ALL_ZERO:
    case ALL_MINUS:
    case ALL_HUGE:
        numbers(r, elem, small ? n : 0, NULL, 0,
                w == ALL_ZERO    ? 0
                : w == ALL_MINUS ? (elem == F32 ? bits(-1.0f) : (uint32_t)-1)
                                 : (elem == F32 ? bits(3e38f) : INT32_MAX));
        return small;
    case SCALAR:
        add32(r, U32), add32(r, 1);
        return array;
    case WRONGS:
        break;
    }
    return false;
}

/* --- a model with one key of its own ---------------------------------------------------------------------------- */

static struct gguf *with(const struct gguf *g, struct gguf_str name, const struct raw *value)
{
    struct gguf_make *m = gguf_make_new();
    struct gguf *out = NULL;
    struct hearth_err e;
    assert_non_null(m);
    for (size_t i = 0; i < gguf_n_key(g); i++) {
        struct gguf_str raw, key = gguf_key_at(g, i, &raw);
        if (key.n != name.n || memcmp(key.s, name.s, name.n))
            gguf_make_raw(m, key, raw);
    }
    if (value->n)
        gguf_make_raw(m, name, (struct gguf_str){(const char *)value->b, value->n});
    for (size_t i = 0; i < gguf_n_tensor(g); i++)
        gguf_make_tensor(m, gguf_tensor_at(g, i));
    if (gguf_make_done(m, &out, &e))
        fail_msg("%.*s: %s", (int)name.n, name.s, e.msg);
    gguf_make_free(m);
    return out;
}

/* Does with the model what any user of it does. */
static int use(struct gguf *g, struct hearth_err *e)
{
    struct vocab *v;
    struct templates *t;
    struct model *m;
    int rc = vocab_load(&v, g, e);
    if (rc)
        return rc;
    vocab_free(v);
    if ((rc = templates_load(&t, g, e)))
        return rc;
    templates_free(t);
    if ((rc = model_load(&m, g, be, dev, NULL, NULL, e)))
        return rc;
    rc = one_step(be, dev, m, 1, NULL, e);
    model_free(m);
    return rc;
}

struct keys {
    char *name[KEYS_MAX];
    size_t n;
};
static struct keys all;

/* Whether a message names the key, in full or without the prefix of the architecture. If the value has the right type,
 * the message may instead name the tensor that contradicts it; if the key is absent, or the message states the possible
 * values, it may name the tensor or another key that contradicts it. */
static bool named(const char *msg, const char *key, enum wrong w)
{
    const char *dot = strchr(key, '.');
    bool typed = w >= TEXT && w <= FLAG, other = w == GONE || w == ONE || w == SOME;
    for (size_t i = 0; i < all.n && other; i++)
        if (strstr(msg, all.name[i]))
            return true;
    return strstr(msg, key) || (dot && strstr(msg, dot + 1)) || (!typed && strstr(msg, "tensor ")) ||
           (other && strstr(msg, "key "));
}

static void try(const struct gguf *g, const char *file, const char *key, struct gguf_str was, enum wrong w)
{
    static struct raw value;
    struct hearth_err e = {0};
    if (!make(&value, w, was))
        return;
    struct gguf *wrong = with(g, (struct gguf_str){key, strlen(key)}, &value);
    alarm(SECONDS_MOST);
    int rc = use(wrong, &e);
    alarm(0);
    n_refused += rc != 0;
    n_loaded += rc == 0;
    gguf_close(wrong);
    if (rc && !named(e.msg, key, w)) {
        print_message("# %s, %s %s: \"%s\"\n", file, key, names[w], e.msg);
        n_unnamed++;
    }
}

/* --- which keys ------------------------------------------------------------------------------------------------- */

static void keys_add(struct keys *k, const char *s, size_t n)
{
    for (size_t i = 0; i < k->n; i++)
        if (strlen(k->name[i]) == n && !memcmp(k->name[i], s, n))
            return;
    assert_true(k->n < KEYS_MAX);
    k->name[k->n++] = strndup(s, n);
}

/* Adds the literals of a source file that look like the name of a key. */
static void keys_of_source(struct keys *k, const char *path)
{
    static char text[1 << 20];
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    for (char *at = text; (at = strchr(at, '"')); at++) {
        char *end = ++at;
        while (islower((unsigned char)*end) || isdigit((unsigned char)*end) || *end == '_' || *end == '.')
            end++;
        if (*end == '"' && end - at > 5 && (memchr(at, '_', (size_t)(end - at)) || memchr(at, '.', (size_t)(end - at))))
            keys_add(k, at, (size_t)(end - at));
        for (at = end; *at && *at != '"'; at++)
            at += *at == '\\' && at[1];
        if (!*at)
            break;
    }
}

static void collect(struct keys *k)
{
    static const char *const sources[] = {"daemon/model/hparams*.c", "daemon/model/arch/*.c", "daemon/model/rope.c"};
    for (size_t s = 0; s < sizeof sources / sizeof *sources; s++) {
        char pattern[4096];
        glob_t found;
        snprintf(pattern, sizeof pattern, "%s/%s", getenv("top_srcdir") ? getenv("top_srcdir") : "..", sources[s]);
        assert_int_equal(glob(pattern, 0, NULL, &found), 0);
        for (size_t i = 0; i < found.gl_pathc; i++)
            keys_of_source(k, found.gl_pathv[i]);
        globfree(&found);
    }
}

/* --- the models ------------------------------------------------------------------------------------------------- */

static void model(const char *path)
{
    const char *file = strrchr(path, '/') + 1;
    struct gguf *g;
    struct hearth_err e = {0};
    struct gguf_str arch, raw;
    int rc = model_file_open(&g, path, &e);
    if (rc == HEARTH_EUNSUPPORTED)
        return;
    if (rc)
        fail_msg("%s: %s", path, e.msg);
    rc = use(g, &e);
    if (rc == HEARTH_EUNSUPPORTED) { /* an architecture that is not supported yet */
        gguf_close(g);
        return;
    }
    if (rc)
        fail_msg("%s as it is: %s", path, e.msg);
    assert_int_equal(gguf_str(g, "general.architecture", &arch, &e), 0);
    for (size_t i = 0; i < gguf_n_key(g); i++) {
        char key[256];
        struct gguf_str name = gguf_key_at(g, i, &raw);
        snprintf(key, sizeof key, "%.*s", (int)name.n, name.s);
        for (int w = 0; w < WRONGS; w++)
            try(g, file, key, raw, (enum wrong)w);
    }
    static const enum wrong of_absent[] = {TEXT, TEXTS, NESTED, ONE, SOME, MINUS, HUGE_NUMBER, NOT_A_NUMBER};
    for (size_t i = 0; i < all.n; i++) {
        char key[256];
        if (!strncmp(all.name[i], "hearth.", 7))
            snprintf(key, sizeof key, "%s", all.name[i]);
        else
            snprintf(key, sizeof key, "%.*s.%s", (int)arch.n, arch.s, all.name[i]);
        for (size_t w = 0; w < sizeof of_absent / sizeof *of_absent && !gguf_has(g, key); w++)
            try(g, file, key, (struct gguf_str){NULL, 0}, of_absent[w]);
    }
    gguf_close(g);
}

static void test_models(void **state)
{
    (void)state;
    collect(&all);
    print_message("# %zu names of keys\n", all.n);
    folders_each(model);
    print_message("# %zu loaded, %zu refused\n", n_loaded, n_refused);
    assert_true(n_refused > 0);
    assert_int_equal(n_unnamed, 0);
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
