/*
 * config-keys.c - every key of a Hugging Face folder's JSON files with wrong values: absent, of another type, zero,
 * negative, huge, a fraction, an array of another length or with other elements. Each folder either loads, or is
 * refused by an error that names the key, or for a tokenizer the file. In addition, a header without padding, after
 * which the data are unaligned, loads.
 *
 * The folders are those of folders.h.
 */
#include "config.h"

#include "daemon/model/chat/templates.h"
#include "daemon/model/file.h"
#include "daemon/model/model.h"
#include "daemon/model/tok/tok.h"

#include <ctype.h>
#include <glob.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/model/folders.h"

enum { SECONDS_MOST = 20 /* of one load */, ELEMENTS_MOST = 64 /* elements of an array that are changed */ };

static const char *const files[] = {"config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"};

static const struct backend *be;
static struct device *dev;
static size_t n_loaded, n_refused, n_unnamed;
static char dir[] = "config-keys-XXXXXX";

static int use(const char *path, struct hearth_err *e)
{
    struct gguf *g;
    struct vocab *v = NULL;
    struct templates *t = NULL;
    struct model *m = NULL;
    int rc = model_file_open(&g, path, e);
    if (rc)
        return rc;
    if (!(rc = vocab_load(&v, g, e)) && !(rc = templates_load(&t, g, e)))
        rc = model_load(&m, g, be, dev, NULL, NULL, e);
    if (m)
        model_free(m);
    if (t)
        templates_free(t);
    if (v)
        vocab_free(v);
    gguf_close(g);
    return rc;
}

/* Wrong values; none is both of the value's own type and valid. NULL past the last one. */
static json_t *wrong_value(size_t i, const json_t *was)
{
    switch (i) {
    case 0:
        return json_is_string(was) ? json_string("nonsense \x1b[31m") : json_string("nonsense");
    case 1:
        return json_array();
    case 2:
        return json_object();
    case 3:
        return json_pack("[{s:i}, [i], s]", "a", 1, 2, "b");
    case 4:
        return json_true();
    case 5:
        return json_integer(0);
    case 6:
        return json_integer(-1);
    case 7:
        return json_integer(4294967297);
    case 8:
        return json_real(1e300);
    case 9:
        return json_real(0.5);
    case 10:
        return json_null();
    default:
        return NULL;
    }
}
enum { WRONG_VALUES = 11 };

/* Writes `root` as the folder's `file`, and checks what becomes of the folder. */
static void try(json_t *root, const char *file, const char *model, const char *key, const char *what)
{
    char path[256];
    struct hearth_err e = {0};
    snprintf(path, sizeof path, "%s/%s", dir, file);
    unlink(path); /* it may be a link to the original */
    assert_int_equal(json_dump_file(root, path, 0), 0);
    alarm(SECONDS_MOST);
    int rc = use(dir, &e);
    alarm(0);
    n_loaded += rc == 0;
    n_refused += rc != 0;
    bool tokenizer = !strncmp(file, "tokenizer", 9);
    if (rc && !strstr(e.msg, key) && !strstr(e.msg, "tensor ") && !strstr(e.msg, "key ") &&
        !(tokenizer && strstr(e.msg, "tokenizer")) &&
        !(isdigit((unsigned char)*key) && strstr(e.msg, "per_layer_config"))) {
        print_message("# %s, %s: %s %s: \"%s\"\n", model, file, key, what, e.msg);
        n_unnamed++;
    }
}

static void each(json_t *root, json_t *at, const char *file, const char *model);

static void arrays(json_t *root, json_t *a, const char *file, const char *model, const char *key)
{
    json_t *last = json_incref(json_array_get(a, json_array_size(a) - 1));
    json_array_append(a, last);
    try(root, file, model, key, "one longer");
    json_array_remove(a, json_array_size(a) - 1);
    json_array_remove(a, json_array_size(a) - 1);
    try(root, file, model, key, "one shorter");
    for (size_t i = 0; i < WRONG_VALUES; i++) {
        json_array_append_new(a, wrong_value(i, last));
        try(root, file, model, key, "with a wrong last element");
        json_array_remove(a, json_array_size(a) - 1);
    }
    json_array_append_new(a, last);
    if (json_array_size(a) <= ELEMENTS_MOST)
        for (size_t i = 0; i < json_array_size(a); i++)
            each(root, json_array_get(a, i), file, model);
}

static void each(json_t *root, json_t *at, const char *file, const char *model)
{
    if (!json_is_object(at) || json_object_size(at) > 200) /* a vocabulary */
        return;
    size_t n = 0;
    char *keys[200];
    const char *key;
    json_t *value;
    json_object_foreach(at, key, value) keys[n++] = strdup(key);
    for (size_t k = 0; k < n; k++) {
        json_t *was = json_incref(json_object_get(at, keys[k]));
        json_object_del(at, keys[k]);
        try(root, file, model, keys[k], "gone");
        for (size_t i = 0; i < WRONG_VALUES; i++) {
            char what[32];
            snprintf(what, sizeof what, "wrong value %zu", i);
            json_object_set_new(at, keys[k], wrong_value(i, was));
            try(root, file, model, keys[k], what);
        }
        json_object_set_new(at, keys[k], was);
        if (json_is_array(was) && json_array_size(was))
            arrays(root, was, file, model, keys[k]);
        each(root, was, file, model);
        free(keys[k]);
    }
}

static void link_all(const char *path)
{
    glob_t found;
    char pattern[4096], to[4096];
    snprintf(pattern, sizeof pattern, "%s/*", path);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char *real = realpath(found.gl_pathv[i], NULL);
        snprintf(to, sizeof to, "%s%s", dir, strrchr(found.gl_pathv[i], '/'));
        unlink(to);
        assert_int_equal(symlink(real, to), 0);
        free(real);
    }
    globfree(&found);
}

/* Replaces the link by a copy of the file with a longer header, so that all of its data are at odd addresses. */
static void write_unaligned(const char *path)
{
    char from[4096], to[256];
    uint64_t n;
    snprintf(from, sizeof from, "%s/model.safetensors", path);
    snprintf(to, sizeof to, "%s/model.safetensors", dir);
    FILE *f = fopen(from, "re");
    assert_non_null(f);
    assert_int_equal(fread(&n, sizeof n, 1, f), 1);
    unlink(to);
    FILE *out = fopen(to, "we");
    assert_non_null(out);
    uint64_t more = 1 + (8 - n % 8) % 8, longer = n + more;
    fwrite(&longer, sizeof longer, 1, out);
    for (int c, at = 0; (c = getc(f)) != EOF; at++) {
        for (uint64_t i = 0; at == (int)n && i < more; i++)
            putc(' ', out);
        putc(c, out);
    }
    fclose(f);
    assert_int_equal(fclose(out), 0);
}

static void check_unaligned(const char *path)
{
    struct gguf *g;
    struct hearth_err e;
    write_unaligned(path);
    if (model_file_open(&g, dir, &e))
        fail_msg("%s: %s", path, e.msg);
    for (size_t i = 0; i < gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        uint64_t number = t->type == DT_F32 ? 4 : t->type == DT_F16 || t->type == DT_BF16 ? 2 : 1;
        if ((uintptr_t)t->data % number)
            fail_msg("%s: tensor %.*s is not aligned", path, (int)t->name.n, t->name.s);
    }
    gguf_close(g);
}

static void model(const char *path)
{
    const char *name = strrchr(path, '/') + 1;
    struct hearth_err e = {0};
    link_all(path);
    int rc = use(dir, &e);
    if (rc == HEARTH_EUNSUPPORTED) /* an architecture that is not supported yet */
        return;
    if (rc)
        fail_msg("%s as it is: %s", path, e.msg);
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        char from[4096], to[256];
        json_error_t je;
        snprintf(from, sizeof from, "%s/%s", path, files[f]);
        snprintf(to, sizeof to, "%s/%s", dir, files[f]);
        json_t *root = json_load_file(from, 0, &je);
        if (!root || (strncmp(files[f], "config", 6) && strcmp(name, "llama"))) {
            json_decref(root);
            continue; /* except for the config, all folders are alike */
        }
        each(root, root, files[f], name);
        json_decref(root);
        unlink(to);
        char *real = realpath(from, NULL);
        assert_int_equal(symlink(real, to), 0);
        free(real);
    }
    check_unaligned(path);
}

static void test_folders(void **state)
{
    (void)state;
    glob_t found;
    assert_non_null(mkdtemp(dir));
    folders_each(model);
    char all[64];
    snprintf(all, sizeof all, "%s/*", dir);
    if (!glob(all, 0, NULL, &found))
        for (size_t i = 0; i < found.gl_pathc; i++)
            unlink(found.gl_pathv[i]);
    globfree(&found);
    rmdir(dir);
    print_message("# %zu loaded, %zu refused\n", n_loaded, n_refused);
    assert_true(n_refused > 0);
    assert_int_equal(n_unnamed, 0);
}

int main(void)
{
    struct hearth_err e;
    be = backend_find("cpu");
    if (be->open(&dev, &(struct device_params){.threads = 1, .variant = "reference"}, &e))
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_folders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
