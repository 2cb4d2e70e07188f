/*
 * latent-experts.c - a folder whose experts work in a latent space, with a latent size in config.json that contradicts
 * the tensors or is impossible: each is refused with the name of the key, or of a tensor that does not fit it.
 */
#include "config.h"

#include "daemon/model/file.h"
#include "daemon/model/model.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "latent-experts-XXXXXX", from[4096];

/* Opens the folder with moe_latent_size set to the JSON `size`; NULL: without the key. */
static int outline(const char *size, struct hearth_err *e)
{
    char path[4200];
    struct gguf *g;
    struct model *m;
    snprintf(path, sizeof path, "%s/config.json", from);
    json_t *config = json_load_file(path, 0, NULL);
    assert_non_null(config);
    assert_int_equal(json_object_del(config, "moe_latent_size"), 0);
    if (size)
        assert_int_equal(json_object_set_new(config, "moe_latent_size", json_loads(size, JSON_DECODE_ANY, NULL)), 0);
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_int_equal(json_dump_file(config, path, 0), 0);
    json_decref(config);
    int rc = model_file_open(&g, dir, e);
    if (rc)
        return rc;
    if (!(rc = model_outline(&m, g, e)))
        model_free(m);
    gguf_close(g);
    return rc;
}

static void a_wrong_size_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *size, *says; /* says NULL: the folder loads */
    } rows[] = {{"32", NULL},
                {"24", "tensor blk.2.ffn_latent_down.weight is 64 x 32 x 1 x 1; 64 x 24 x 1 x 1"},
                {"64", "tensor blk.2.ffn_latent_down.weight is 64 x 32 x 1 x 1; 64 x 64 x 1 x 1"},
                {"65536", "tensor blk.2.ffn_latent_down.weight is"},
                {NULL, "tensor blk.2.ffn_up.0.weight is 32 x 32 x 1 x 1; 64 x 32 x 1 x 1"},
                {"null", "tensor blk.2.ffn_up.0.weight is 32 x 32 x 1 x 1; 64 x 32 x 1 x 1"},
                {"0", "key nemotron_h_moe.moe_latent_size is 0; 8 to 65536 is possible"},
                {"65537", "key nemotron_h_moe.moe_latent_size is 65537"},
                {"-32", "moe_latent_size is not a whole number"},
                {"4294967296", "moe_latent_size is not a whole number"},
                {"32.5", "moe_latent_size is not a whole number"},
                {"[32]", "moe_latent_size is not a whole number"},
                {"\"32\"", "moe_latent_size is not a whole number"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hearth_err e = {0};
        int rc = outline(rows[i].size, &e);
        if (rows[i].says ? rc != HEARTH_EBADMODEL || !strstr(e.msg, rows[i].says) : rc)
            fail_msg("moe_latent_size %s: %d, \"%s\"", rows[i].size ? rows[i].size : "absent", rc, e.msg);
    }
}

int main(void)
{
    static const char *const files[] = {"model.safetensors", "tokenizer.json", "tokenizer_config.json"};
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_wrong_size_is_named)};
    const char *top = getenv("top_srcdir");
    char at[4200], name[128];
    snprintf(from, sizeof from, "%s/tests/golden/data/hf/nemotron_h-latent", top ? top : "..");
    if (!mkdtemp(dir))
        return 1;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(at, sizeof at, "%s%s/%s", *from == '/' ? "" : "../", from, files[i]);
        snprintf(name, sizeof name, "%s/%s", dir, files[i]);
        if (symlink(at, name))
            return 1;
    }
    int ret = cmocka_run_group_tests_name("latent-experts", tests, NULL, NULL);
    snprintf(at, sizeof at, "rm -rf '%s'", dir);
    return system(at) ? 1 : ret;
}
