/*
 * jinja-vectors.c - chat templates: the vectors beside the source tree, which are Jinja2's own results, on the makers'
 * templates and on single cases of the language.
 */
#include "config.h"

#include <dirent.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/model/jinja-run.h"

/* --- the vectors ---------------------------------------------------------------------------------------------------
 */

static const char *shared(const char *rest)
{
    static char path[4096];
    const char *dir = getenv("HEARTH_SHARED");
    snprintf(path, sizeof path, "%s/templates/%s", dir ? dir : "../shared", rest);
    return path;
}

static char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *data = malloc(1 << 20);
    assert_non_null(f);
    assert_non_null(data);
    *n = fread(data, 1, 1 << 20, f);
    fclose(f);
    return data;
}

static int n_bad, n_run;

static void check(const char *name, const char *source, size_t n, json_t *context, const json_t *want)
{
    char *dump = json_dumps(context, JSON_COMPACT | JSON_REAL_PRECISION(17));
    const json_t *text = json_object_get(want, "text"), *error = json_object_get(want, "error");
    struct jinja_text out;
    struct jinja_err e;
    assert_non_null(dump);
    enum jinja_failure failure = render(source, n, dump, NULL, &out, &e);
    bool beyond = json_is_true(json_object_get(want, "beyond")), ok;
    if (!failure)
        ok = text && out.n == json_string_length(text) && !memcmp(out.data, json_string_value(text), out.n);
    else if (json_is_string(error))
        ok = failure == JINJA_RAISED && !strcmp(e.message, json_string_value(error));
    else
        ok = error || beyond;
    if (!ok && n_bad++ < 10)
        print_error("%s: %s\n", name, failure ? e.message : out.data);
    n_run++;
    if (failure)
        jinja_err_fini(&e);
    else
        jinja_text_fini(&out);
    free(dump);
}

/* As in transformers, tools and documents are always defined, as none if absent, and so are those tokens that exist. */
static json_t *context_of(const json_t *file, const json_t *row)
{
    static const char *const keys[] = {"messages", "tools", "documents", "add_generation_prompt"};
    json_t *c = json_object(), *v;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        v = json_object_get(row, keys[i]);
        json_object_set_new(c, keys[i], v ? json_incref(v) : json_null());
    }
    static const char *const tokens[] = {"bos_token", "eos_token"};
    for (size_t i = 0; i < 2; i++)
        if (json_is_string(v = json_object_get(file, tokens[i])))
            json_object_set(c, tokens[i], v);
    if ((v = json_object_get(row, "kwargs")))
        json_object_update(c, v);
    return c;
}

static json_t *load(const char *path)
{
    json_error_t why;
    json_t *file = json_load_file(path, JSON_ALLOW_NUL, &why);
    if (!file)
        fail_msg("%s: %s", path, why.text);
    return file;
}

static void check_template(const char *name)
{
    char path[512];
    size_t n, i;
    snprintf(path, sizeof path, "%.*s.json", (int)(strlen(name) - 6), name);
    json_t *file = load(shared(path)), *row;
    char *source = read_file(shared(name), &n);
    json_array_foreach(json_object_get(file, "cases"), i, row)
    {
        json_t *context = context_of(file, row);
        snprintf(path, sizeof path, "%s, %s", name, json_string_value(json_object_get(row, "name")));
        check(path, source, n, context, row);
        json_decref(context);
    }
    free(source);
    json_decref(file);
}

static void test_templates(void **state)
{
    DIR *dir = opendir(shared(""));
    struct dirent *entry;
    (void)state;
    if (!dir)
        skip();
    n_bad = n_run = 0;
    while ((entry = readdir(dir))) {
        size_t n = strlen(entry->d_name);
        if (n > 6 && !strcmp(entry->d_name + n - 6, ".jinja"))
            check_template(entry->d_name);
    }
    closedir(dir);
    print_message("# %d renderings\n", n_run);
    assert_int_equal(n_bad, 0);
}

static void test_engine_cases(void **state)
{
    size_t i;
    (void)state;
    if (access(shared("engine.json"), R_OK))
        skip();
    json_t *file = load(shared("engine.json")), *row;
    n_bad = n_run = 0;
    json_array_foreach(file, i, row)
    {
        json_t *source = json_object_get(row, "template"), *none = json_object();
        json_t *context = json_object_get(row, "context");
        check(json_string_value(source), json_string_value(source), json_string_length(source),
              context ? context : none, row);
        json_decref(none);
    }
    json_decref(file);
    print_message("# %d cases\n", n_run);
    assert_int_equal(n_bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_templates),
        cmocka_unit_test(test_engine_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
