/* kind.c - the kind of a file, determined by its keys, and the error for a file that is not a language model. */
#include "config.h"

#include "daemon/model/kind.h"

#include "daemon/model/file.h"
#include "daemon/model/model.h"
#include "tests/unit/model/gguf-build.h"

struct row {
    const char *type, *arch;
    const char *number; /* a key whose value is 1 */
    uint64_t n_tensor;
    enum model_kind kind;
    const char *says; /* the error of model_hparams() */
};

static struct gguf *make(const struct row *r)
{
    struct build b = {0};
    struct gguf *g;
    struct hearth_err e;
    char path[64];
    put_header(&b, 3, r->n_tensor, (r->type != NULL) + (r->arch != NULL) + (r->number != NULL));
    if (r->type)
        key_str(&b, "general.type", r->type);
    if (r->arch)
        key_str(&b, "general.architecture", r->arch);
    if (r->number)
        key_u32(&b, r->number, 1);
    for (uint64_t i = 0; i < r->n_tensor; i++)
        put_tensor(&b, "t", 1, (uint64_t[]){8}, 0, 0);
    put_zeros(&b, (32 - b.n % 32) % 32 + 32);
    int fd = build_file(&b, path);
    if (model_file_open(&g, path, &e))
        fail_msg("%s", e.msg);
    close(fd);
    free(b.p);
    return g;
}

static void test_kinds(void **state)
{
    static const struct row rows[] = {
        {NULL, "llama", NULL, 1, KIND_LANGUAGE, "block_count is missing"},
        {"model", "llama", NULL, 1, KIND_LANGUAGE, "block_count is missing"},
        {NULL, "llama", NULL, 0, KIND_VOCABULARY, "block_count is missing"},
        {"adapter", "llama", NULL, 1, KIND_ADAPTER, "this is an adapter (LoRA) for a llama model"},
        {"mmproj", "clip", NULL, 1, KIND_PROJECTOR, "this is a projector (mmproj)"},
        {NULL, "clip", NULL, 1, KIND_PROJECTOR, "this is a projector (mmproj)"},
        {"imatrix", NULL, NULL, 1, KIND_OTHER, "general.type says, \"imatrix\""},
        {"imatrix", "llama", NULL, 1, KIND_OTHER, "general.type says, \"imatrix\""},
        {NULL, NULL, NULL, 1, KIND_LANGUAGE, "general.architecture is missing"},
        {NULL, "bert", NULL, 1, KIND_EMBEDDING, "this is an embedding model (bert)"},
        {NULL, "nomic-bert", NULL, 1, KIND_EMBEDDING, "this is an embedding model (nomic-bert)"},
        {NULL, "qwen3", "qwen3.pooling_type", 1, KIND_EMBEDDING, "block_count is missing"},
        {NULL, "nonesuch", NULL, 1, KIND_LANGUAGE, "architecture \"nonesuch\" is not one hearth runs"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct gguf *g = make(&rows[i]);
        struct hparams hp;
        struct hearth_err e = {0};
        assert_int_equal(model_kind(g), rows[i].kind);
        assert_true(model_hparams(&hp, g, &e) < 0);
        if (rows[i].says && !strstr(e.msg, rows[i].says))
            fail_msg("row %zu: %s", i, e.msg);
        gguf_close(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
