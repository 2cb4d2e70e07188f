/*
 * golden.c - logits and greedy ids of whole models against a reference in exact F32 arithmetic (data/, and more beside
 * the checkout), through the model and the default CPU backend alone.
 *
 * Every logit must be within 0.001. A greedy id may differ only where the reference's own lead over its second best is
 * under 0.002; the run continues with the golden id. HEARTH_BACKEND=cuda runs them on a GPU, whose activations are F16:
 * there the tolerances are 0.03 and 0.06.
 */
#include "tests/golden/run.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static double tolerance = 0.001, excuse = 0.002;

enum { ROWS = 64 };

/* Tokens at positions pos.. of the one sequence; the logits of all of them. */
static void step(struct run *r, const int32_t *token, uint32_t n, uint32_t pos, float *logits)
{
    run_step(r, &(struct piece){token, n, pos, n, r->pages}, 1, true, logits);
}

static int32_t best(const float *logits, uint32_t n)
{
    uint32_t b = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[b])
            b = i;
    return (int32_t)b;
}

static double check_top(const float *logits, const json_t *top)
{
    double worst = 0;
    for (size_t k = 0; k < json_array_size(top); k++) {
        const json_t *pair = json_array_get(top, k);
        double want = json_number_value(json_array_get(pair, 1));
        double off = fabs((double)logits[json_integer_value(json_array_get(pair, 0))] - want);
        worst = off > worst ? off : worst;
    }
    return worst;
}

static void check_case(struct run *r, const json_t *c, float *logits, double *worst, size_t *excused)
{
    const json_t *tokens = json_object_get(c, "tokens"), *top = json_object_get(c, "top");
    const json_t *greedy = json_object_get(c, "greedy"), *gap = json_object_get(c, "greedy_gap");
    uint32_t n = (uint32_t)json_array_size(tokens), n_vocab = r->m->hp.n_vocab, chunk = 0;
    assert_true(n > 0 && json_array_size(top) == n);
    for (uint32_t pos = 0; pos < n; pos += chunk) {
        int32_t ids[ROWS];
        chunk = n - pos < ROWS ? n - pos : ROWS;
        for (uint32_t i = 0; i < chunk; i++)
            ids[i] = (int32_t)json_integer_value(json_array_get(tokens, pos + i));
        step(r, ids, chunk, pos, logits);
        for (uint32_t i = 0; i < chunk; i++) {
            double off = check_top(logits + (size_t)i * n_vocab, json_array_get(top, pos + i));
            *worst = off > *worst ? off : *worst;
        }
    }
    const float *last = logits + (size_t)(chunk - 1) * n_vocab;
    const json_t *all = json_object_get(c, "last_logits");
    for (size_t i = 0; i < json_array_size(all); i++) {
        double off = fabs((double)last[i] - json_number_value(json_array_get(all, i)));
        *worst = off > *worst ? off : *worst;
    }
    for (size_t i = 0; i < json_array_size(greedy); i++) {
        int32_t want = (int32_t)json_integer_value(json_array_get(greedy, i)), got = best(last, n_vocab);
        if (got != want) {
            double lead = json_number_value(json_array_get(gap, i));
            if (lead >= excuse)
                fail_msg("greedy id %zu is %d, not %d, where the reference leads by %g", i, got, want, lead);
            ++*excused;
        }
        step(r, &want, 1, n + (uint32_t)i, logits);
        last = logits;
    }
}

static void golden_paths(const char *gguf_path, const char *json_path)
{
    struct run r;
    run_open(&r, gguf_path, run_backend(), NULL, 0, 0, ROWS);
    float *logits = malloc((size_t)ROWS * r.m->hp.n_vocab * sizeof *logits);
    assert_non_null(logits);
    json_error_t je;
    json_t *root = json_load_file(json_path, 0, &je), *c;
    assert_non_null(root);
    double worst = 0;
    size_t i, excused = 0;
    json_array_foreach(json_object_get(root, "cases"), i, c) check_case(&r, c, logits, &worst, &excused);
    assert_true(i > 0);
    print_message("# %s: worst logit off by %.6f, %zu ids excused\n", r.m->hp.name, worst, excused);
    assert_true(worst <= tolerance); /* false for NaN too */
    json_decref(root);
    free(logits);
    run_close(&r);
}

static void golden(const char *gguf, const char *json)
{
    char gguf_path[4096], json_path[4096];
    if (!run_path(gguf_path, gguf) || !run_path(json_path, json))
        skip();
    golden_paths(gguf_path, json_path);
}

#define TEST(name, gguf, json)            \
    static void test_##name(void **state) \
    {                                     \
        (void)state;                      \
        golden(gguf, json);               \
    }
TEST(tale, "contrib/models/tale-q4_k_m.gguf", "tests/golden/data/tale-q4_k_m.json")
TEST(rope3, "tests/golden/data/tiny-llama-rope3.gguf", "tests/golden/data/tiny-llama-rope3.json")
TEST(q5_k_m, "models/tale/tale-q5_k_m.gguf", "golden/tale-q5_k_m.json")
TEST(q4_k_m, "models/tale/tale-q4_k_m.gguf", "golden/tale-q4_k_m.json")
#define X(t, T, number) TEST(all_##t, "models/tale/tale-" #t ".gguf", "golden/tale-" #t ".json")
QUANTS(X) /* models all of one type, where there is one; of the K types there are mixtures, above */
#undef X

/* Runs tests/tools/tiny_arch.py; false where that is not possible, for want of numpy for example. */
static bool write_tiny(const char *name, const char *path)
{
    char script[4096];
    int status;
    if (!run_path(script, "tests/tools/tiny_arch.py"))
        return false;
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDERR_FILENO);
        execl(script, script, name, path, "1", (char *)NULL);
        _exit(127);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* The file of a tiny model: beside the checkout, or written here once. */
static bool tiny_path(const char *name, char path[4096])
{
    char file[64], part[96];
    snprintf(file, sizeof file, "models/tiny/%s.gguf", name);
    if (run_path(path, file))
        return true;
    snprintf(path, 4096, "tests/golden/tiny-%s.gguf", name);
    snprintf(part, sizeof part, "%.64s.%d", path, (int)getpid());
    if (!access(path, R_OK))
        return true;
    if (write_tiny(name, part) && !rename(part, path))
        return true;
    unlink(part);
    return false;
}

/* A tiny model of each architecture: it gives its golden logits, or it is refused by the architecture's name. */
static void tiny(const char *name, const char *arch)
{
    char ours[64], theirs[64], json[4096], path[4096], quoted[64];
    snprintf(ours, sizeof ours, "tests/golden/data/tiny-%s.json", name);
    snprintf(theirs, sizeof theirs, "golden/tiny-%s.json", name);
    snprintf(quoted, sizeof quoted, "architecture \"%s\"", arch);
    struct hparams hp;
    struct hearth_err why = {0};
    struct gguf *g;
    if (!tiny_path(name, path))
        skip();
    MUST(gguf_open(&g, path, &e));
    int rc = model_hparams(&hp, g, &why);
    if (rc) {
        assert_int_equal(rc, HEARTH_EUNSUPPORTED);
        if (!strstr(why.msg, quoted))
            fail_msg("%s: \"%s\"", name, why.msg);
        struct run r = {.be = run_backend()};
        MUST(r.be->open(&r.dev, &(struct device_params){.threads = 1}, &e));
        assert_int_equal(model_load(&r.m, g, r.be, r.dev, NULL, NULL, &why), HEARTH_EUNSUPPORTED);
        assert_non_null(strstr(why.msg, quoted));
        r.be->close(r.dev);
    }
    gguf_close(g);
    if (rc)
        print_message("# %s: %s\n", name, why.msg);
    else if (run_path(json, ours) || run_path(json, theirs))
        golden_paths(path, json);
    else
        skip();
}

#define TINY(name, file, arch)            \
    static void test_##name(void **state) \
    {                                     \
        (void)state;                      \
        tiny(file, arch);                 \
    }
TINY(qwen2, "qwen2", "qwen2")
TINY(llama_rope3, "llama-rope3", "llama")
TINY(gemma2, "gemma2", "gemma2")
TINY(gemma3, "gemma3", "gemma3")
TINY(phi3, "phi3", "phi3")
TINY(qwen3, "qwen3", "qwen3")
TINY(qwen3moe, "qwen3moe", "qwen3moe")
TINY(starcoder2, "starcoder2", "starcoder2")

/* Folders in Hugging Face form, against transformers in float64. */
#define FOLDER(name, folder) TEST(hf_##name, "models/hf-tiny/" folder, "models/hf-tiny/" folder "/golden.json")
#define FOLDERS(X)                  \
    X(llama, "llama")               \
    X(llama_tied, "llama-tied")     \
    X(llama_linear, "llama-linear") \
    X(llama_rope3, "llama-rope3")   \
    X(qwen2, "qwen2")
FOLDERS(FOLDER)

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tale),
                                       cmocka_unit_test(test_rope3),
                                       cmocka_unit_test(test_q5_k_m),
                                       cmocka_unit_test(test_q4_k_m),
                                       cmocka_unit_test(test_qwen2),
                                       cmocka_unit_test(test_gemma2),
                                       cmocka_unit_test(test_gemma3),
                                       cmocka_unit_test(test_phi3),
                                       cmocka_unit_test(test_qwen3),
                                       cmocka_unit_test(test_qwen3moe),
                                       cmocka_unit_test(test_starcoder2),
                                       cmocka_unit_test(test_llama_rope3),
#define X(t, T, number) cmocka_unit_test(test_all_##t),
                                       QUANTS(X)
#undef X
#define X(name, folder) cmocka_unit_test(test_hf_##name),
                                           FOLDERS(X)
#undef X
    };
    if (!run_possible())
        return 77;
    if (run_on_gpu())
        tolerance = 0.03, excuse = 0.06;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
