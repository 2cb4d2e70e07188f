/*
 * golden.c - logits and greedy ids of whole models against a reference in exact F32 arithmetic (in data/, and more
 * beside the source tree), using only the model and the default CPU backend.
 *
 *     tests/golden/golden [PATTERN [BUT]]   only cases whose names match, e.g. "test_hf_*", but not "test_hf_gguf*"
 *
 * Every logit must be within 0.001. A greedy id may differ only where the reference's own lead over its second best is
 * under 0.002; the run continues with the golden id. HEARTH_BACKEND=cuda runs the cases on a GPU, whose activations are
 * F16: there logits may be off by 0.015, and an id may differ under a lead of 0.06. A model that is further off must
 * lose no more than F16 itself costs: the CPU, rounding at the same places (rounded.h), is compared with the reference
 * as well, and the GPU's errors may be up to 1.5 times as large, in the mean and at worst. The experts of a mixture
 * must be those of the reference wherever the deciding difference is greater than the error of the router's logits.
 * From the first token on that goes to other experts, as determined by routes.h, the reference is the CPU, without
 * rounding, with the same experts.
 */
#include "tests/golden/rounded.h"
#include "tests/golden/run.h"

#include "daemon/model/file.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static double tolerance = 0.001, excuse = 0.002;

enum { ROWS = 64 };

/* Results of a model's cases. */
struct found {
    double worst;
    size_t excused;
    double squares; /* sum of the squared errors of the logits of prompts */
    size_t n;
    size_t differ, followed; /* choices of experts that differ from the reference's; tokens from the first of them on */
    double margin, off;      /* as in struct routes */
};

static void note(struct found *f, double off)
{
    f->worst = off > f->worst || off != off ? off : f->worst;
}

/* Runs tokens at positions pos.. of the only sequence, and returns the logits of all of them. */
static void step(struct run *r, const int32_t *token, uint32_t n, uint32_t pos, float *logits)
{
    run_step(r, &(struct piece){token, n, pos, n, r->pages}, 1, INVARIANT_DECODE, logits);
}

static int32_t best(const float *logits, uint32_t n)
{
    uint32_t b = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[b])
            b = i;
    return (int32_t)b;
}

static double check_top(const float *logits, const json_t *top, struct found *f)
{
    double worst = 0;
    for (size_t k = 0; k < json_array_size(top); k++) {
        const json_t *pair = json_array_get(top, k);
        double want = json_number_value(json_array_get(pair, 1));
        double off = fabs((double)logits[json_integer_value(json_array_get(pair, 0))] - want);
        worst = off > worst || off != off ? off : worst;
        f->squares += off * off, f->n++;
    }
    return worst;
}

static void ids_of(const json_t *tokens, uint32_t pos, uint32_t n, int32_t *id)
{
    for (uint32_t i = 0; i < n; i++)
        id[i] = (int32_t)json_integer_value(json_array_get(tokens, pos + i));
}

/* Runs a prompt on the CPU that rounds, and notes its errors. */
static void check_rounded(struct rounded *r, const json_t *c, float *logits, struct found *f)
{
    const json_t *tokens = json_object_get(c, "tokens"), *top = json_object_get(c, "top");
    uint32_t n = (uint32_t)json_array_size(tokens), chunk;
    for (uint32_t pos = 0; pos < n; pos += chunk) {
        int32_t id[ROWS];
        chunk = n - pos < ROWS ? n - pos : ROWS;
        ids_of(tokens, pos, chunk, id);
        rounded_step(r, id, chunk, pos, logits);
        for (uint32_t i = 0; i < chunk; i++)
            note(f, check_top(logits + (size_t)i * r->r.m->hp.n_vocab, json_array_get(top, pos + i), f));
    }
}

/* Reads the experts that a mixture's tokens go to on a GPU, also for the tokens of `greedy`; false if the model is not
 * a mixture, or not on a GPU. */
static bool ways(struct run *r, const json_t *c, struct routes *t)
{
    const json_t *tokens = json_object_get(c, "tokens"), *greedy = json_object_get(c, "greedy");
    uint32_t n = (uint32_t)json_array_size(tokens), m = (uint32_t)json_array_size(greedy);
    if (!run_on_gpu() || !r->m->hp.experts.n)
        return false;
    m = n + m < r->m->hp.n_ctx ? m : r->m->hp.n_ctx - n;
    int32_t *id = malloc((n + m) * sizeof *id);
    assert_non_null(id);
    ids_of(tokens, 0, n, id);
    ids_of(greedy, 0, m, id + n);
    routes_read(t, r, id, n + m);
    free(id);
    return true;
}

/* Judges these choices, and replaces the case's reference logits for the tokens from the first differing one on. */
static void follow(const struct run *r, const char *path, json_t *c, struct routes *t, struct found *f)
{
    const json_t *tokens = json_object_get(c, "tokens"), *greedy = json_object_get(c, "greedy");
    uint32_t n = (uint32_t)json_array_size(tokens), n_vocab = r->m->hp.n_vocab, chunk;
    float *logits = malloc((size_t)ROWS * n_vocab * sizeof *logits);
    struct rounded exact;
    assert_non_null(logits);
    exact_open(&exact, path, r, ROWS);
    exact.r.freq_set = r->freq_set, exact.routes = t;
    for (uint32_t pos = 0; pos < t->n_token; pos += chunk) {
        int32_t id[ROWS];
        chunk = pos < n ? n - pos : t->n_token - pos;
        chunk = chunk < ROWS ? chunk : ROWS;
        ids_of(pos < n ? tokens : greedy, pos < n ? pos : pos - n, chunk, id);
        rounded_step(&exact, id, chunk, pos, logits);
        for (uint32_t i = 0; i < chunk && pos < n; i++) {
            json_t *top = json_array_get(json_object_get(c, "top"), pos + i), *pair;
            size_t k;
            if (pos + i < t->first)
                continue;
            f->followed++;
            json_array_foreach(top, k, pair)
            {
                size_t of = (size_t)json_integer_value(json_array_get(pair, 0));
                json_array_set_new(pair, 1, json_real((double)logits[(size_t)i * n_vocab + of]));
            }
        }
    }
    rounded_close(&exact);
    free(logits);
    f->differ += t->differ;
    f->margin = fmax(f->margin, t->margin), f->off = fmax(f->off, t->off);
}

/* Whether a GPU whose errors exceed the tolerance loses no more than F16 does at the same places. */
static bool as_rounded(struct run *r, const char *path, const json_t *root, float *logits, const struct found *f)
{
    struct rounded rounded;
    struct found lost = {0};
    size_t i;
    json_t *c;
    if (!r->info.gpu || f->worst != f->worst)
        return false;
    rounded_open(&rounded, path, r, ROWS);
    json_array_foreach(json_object_get(root, "cases"), i, c)
    {
        rounded.r.freq_set = r->m->hp.long_from && json_array_size(json_object_get(c, "tokens")) > r->m->hp.long_from;
        struct routes routes;
        rounded.routes = ways(r, c, &routes) ? &routes : NULL;
        check_rounded(&rounded, c, logits, &lost);
        if (rounded.routes)
            routes_free(&routes);
    }
    rounded_close(&rounded);
    double mean = sqrt(f->squares / (double)f->n), of_rounded = sqrt(lost.squares / (double)lost.n);
    print_message("# ... in the mean %.6f; F16 at the same places by %.6f, in the mean %.6f\n", mean, lost.worst,
                  of_rounded);
    return f->worst <= 1.5 * lost.worst && mean <= 1.5 * of_rounded;
}

static void check_case(struct run *r, const char *path, json_t *c, float *logits, struct found *f)
{
    const json_t *tokens = json_object_get(c, "tokens"), *top = json_object_get(c, "top");
    const json_t *greedy = json_object_get(c, "greedy"), *gap = json_object_get(c, "greedy_gap");
    uint32_t n = (uint32_t)json_array_size(tokens), n_vocab = r->m->hp.n_vocab, chunk = 0;
    assert_true(n > 0 && json_array_size(top) == n);
    assert_true(n <= r->m->hp.n_ctx);
    r->freq_set = r->m->hp.long_from && n > r->m->hp.long_from;
    struct routes routes = {.first = UINT32_MAX};
    const json_t *all = json_object_get(c, "last_logits"); /* more logits of the last token than its `top` */
    for (size_t i = 0; i < json_array_size(all); i++)
        json_array_append_new(json_array_get(top, n - 1), json_pack("[i, O]", (int)i, json_array_get(all, i)));
    if (ways(r, c, &routes))
        follow(r, path, c, &routes, f);
    for (uint32_t pos = 0; pos < n; pos += chunk) {
        int32_t ids[ROWS];
        chunk = n - pos < ROWS ? n - pos : ROWS;
        ids_of(tokens, pos, chunk, ids);
        step(r, ids, chunk, pos, logits);
        for (uint32_t i = 0; i < chunk; i++)
            note(f, check_top(logits + (size_t)i * n_vocab, json_array_get(top, pos + i), f));
    }
    const float *last = logits + (size_t)(chunk - 1) * n_vocab;
    for (size_t i = 0; i < json_array_size(greedy) && n + i < r->m->hp.n_ctx; i++) {
        int32_t want = (int32_t)json_integer_value(json_array_get(greedy, i)), got = best(last, n_vocab);
        if (got != want) {
            double lead = json_number_value(json_array_get(gap, i));
            if (lead >= excuse && routes.first >= n + i) /* otherwise it may have gone to other experts */
                fail_msg("greedy id %zu is %d, not %d, where the reference leads by %g", i, got, want, lead);
            f->excused++;
        }
        step(r, &want, 1, n + (uint32_t)i, logits);
        last = logits;
    }
    routes_free(&routes);
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
    struct found f = {0};
    size_t i;
    json_array_foreach(json_object_get(root, "cases"), i, c) check_case(&r, gguf_path, c, logits, &f);
    assert_true(i > 0);
    print_message("# %s: worst logit off by %.6f, %zu ids excused", r.m->hp.name, f.worst, f.excused);
    if (f.differ)
        print_message(
            "; %zu choices of experts differ where at most %.6f decided and logits were off by %.6f; %zu tokens "
            "are compared with the CPU that goes the same ways",
            f.differ, f.margin, f.off, f.followed);
    print_message("\n");
    assert_true(f.worst <= tolerance || as_rounded(&r, gguf_path, root, logits, &f)); /* false for NaN too */
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
TEST(q3_k_m, "models/tale/tale-q3_k_m.gguf", "golden/tale-q3_k_m.json")
TEST(iq2_m, "models/tale/tale-iq2_m.gguf", "golden/tale-iq2_m.json")
TEST(q4_k_m, "models/tale/tale-q4_k_m.gguf", "golden/tale-q4_k_m.json")
#define X(t, T, number) TEST(all_##t, "models/tale/tale-" #t ".gguf", "golden/tale-" #t ".json")
QUANTS(X) /* models of a single type, where one exists; K types occur in mixtures, above */
#undef X

/* Runs `script a b c` with the first Python that can; false if none can, for instance because numpy is missing. */
static bool python(const char *script, const char *a, const char *b, const char *c)
{
    static const char *const python[] = {"python3", "/usr/bin/python3"};
    for (size_t i = 0; i < sizeof python / sizeof *python; i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0) {
            int null = open("/dev/null", O_WRONLY);
            dup2(null, STDOUT_FILENO);
            dup2(null, STDERR_FILENO);
            execlp(python[i], python[i], script, a, b, c, (char *)NULL);
            _exit(127);
        }
        if (pid > 0 && waitpid(pid, &status, 0) == pid && status == 0)
            return true;
    }
    return false;
}

/* The path of a tiny model's file: beside the source tree, or written here once. */
static bool tiny_path(const char *name, char path[4096])
{
    char file[64], part[96], script[4096];
    snprintf(file, sizeof file, "models/tiny/%s.gguf", name);
    if (run_path(path, file))
        return true;
    snprintf(path, 4096, "tests/golden/tiny-%s.gguf", name);
    snprintf(part, sizeof part, "%.64s.%d", path, (int)getpid());
    if (!access(path, R_OK))
        return true;
    if (run_path(script, "tests/tools/tiny_arch.py") && python(script, name, part, "1") && !rename(part, path))
        return true;
    unlink(part);
    return false;
}

/* Whether the model's architecture is supported. One that is not must be refused with its name, so that its test can
 * exist before the commit that adds it. */
static bool runs(const char *path, const char *arch)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "architecture \"%s\"", arch);
    struct hparams hp;
    struct hearth_err why = {0};
    struct gguf *g;
    MUST(model_file_open(&g, path, &e));
    int rc = model_hparams(&hp, g, &why);
    if (rc) {
        assert_int_equal(rc, HEARTH_EUNSUPPORTED);
        if (!strstr(why.msg, quoted))
            fail_msg("%s: \"%s\"", path, why.msg);
        struct run r = {.be = run_backend()};
        MUST(r.be->open(&r.dev, &(struct device_params){.threads = 1}, &e));
        assert_int_equal(model_load(&r.m, g, r.be, r.dev, NULL, NULL, &why), HEARTH_EUNSUPPORTED);
        assert_non_null(strstr(why.msg, quoted));
        r.be->close(r.dev);
        print_message("# %s: %s\n", path, why.msg);
    }
    gguf_close(g);
    return rc == 0;
}

/* A tiny GGUF file of an architecture, against llama.cpp. */
static void tiny(const char *name, const char *arch)
{
    char ours[64], theirs[64], json[4096], path[4096];
    snprintf(ours, sizeof ours, "tests/golden/data/tiny-%s.json", name);
    snprintf(theirs, sizeof theirs, "golden/tiny-%s.json", name);
    if (!tiny_path(name, path) || (!run_path(json, ours) && !run_path(json, theirs)))
        skip();
    double was = tolerance;
    if (tolerance < 0.002 && (!strncmp(arch, "gemma", 5) || !strcmp(arch, "starcoder2")))
        tolerance = 0.002; /* llama.cpp takes GELU from a table in F16 */
    if (runs(path, arch))
        golden_paths(path, json);
    tolerance = was;
}

#define TINY(name, file, arch)            \
    static void test_##name(void **state) \
    {                                     \
        (void)state;                      \
        tiny(file, arch);                 \
    }
#define TINIES(X)                          \
    X(qwen2, "qwen2", "qwen2")             \
    X(llama_rope3, "llama-rope3", "llama") \
    X(gemma2, "gemma2", "gemma2")          \
    X(gemma3, "gemma3", "gemma3")          \
    X(phi3, "phi3", "phi3")                \
    X(qwen3, "qwen3", "qwen3")             \
    X(qwen3moe, "qwen3moe", "qwen3moe")    \
    X(starcoder2, "starcoder2", "starcoder2")
TINIES(TINY)

/* A folder in Hugging Face form, against transformers in float64. */
static void folder(const char *dir, const char *name, const char *arch)
{
    char at[128], path[4096], json[4096];
    snprintf(at, sizeof at, "%s/%s/golden.json", dir, name);
    if (!run_path(json, at))
        skip();
    snprintf(path, sizeof path, "%.*s", (int)(strlen(json) - strlen("/golden.json")), json);
    if (runs(path, arch))
        golden_paths(path, json);
}

/* The same folder as a GGUF file, if there is a converter and a Python that can run it. */
static void converted(const char *name, const char *arch)
{
    char at[128], path[4096], json[4096], script[4096], file[64];
    snprintf(at, sizeof at, "models/hf-tiny/%s/golden.json", name);
    if (!run_path(json, at) || !run_path(script, "tools/hf_to_gguf.py"))
        skip();
    snprintf(path, sizeof path, "%.*s", (int)(strlen(json) - strlen("/golden.json")), json);
    snprintf(file, sizeof file, "tests/golden/%.32s.%d.gguf", name, (int)getpid());
    bool made = python(script, path, file, "f32");
    if (made && runs(file, arch))
        golden_paths(file, json);
    unlink(file);
    if (!made)
        skip();
}

#define FOLDER(name, at, arch)               \
    static void test_hf_##name(void **state) \
    {                                        \
        (void)state;                         \
        folder("models/hf-tiny", at, arch);  \
    }
/* Folders written by tests/tools/hf_latent.py: their keys have size 40, for which no GPU has attention. */
#define OWN(name, at, arch)                       \
    static void test_own_##name(void **state)     \
    {                                             \
        (void)state;                              \
        if (run_on_gpu())                         \
            skip();                               \
        folder("tests/golden/data/hf", at, arch); \
    }
/* Folders written by tests/tools/hf_goldens.py. */
#define MORE(name, at, arch)                      \
    static void test_more_##name(void **state)    \
    {                                             \
        (void)state;                              \
        folder("tests/golden/data/hf", at, arch); \
    }
#define CONVERTED(name, at, arch)                 \
    static void test_hf_gguf_##name(void **state) \
    {                                             \
        (void)state;                              \
        converted(at, arch);                      \
    }
/* FILES: those that are also tested as a GGUF file. For llama-rope3 the converter writes other RoPE factors than
 * transformers', and for mistral it leaves out the window. */
#define FILES(X)                                                  \
    X(llama, "llama", "llama")                                    \
    X(llama_tied, "llama-tied", "llama")                          \
    X(llama_linear, "llama-linear", "llama")                      \
    X(qwen2, "qwen2", "qwen2")                                    \
    X(qwen3, "qwen3", "qwen3")                                    \
    X(smollm3, "smollm3", "smollm3")                              \
    X(granite, "granite", "granite")                              \
    X(gemma2, "gemma2", "gemma2")                                 \
    X(gemma3, "gemma3_text", "gemma3")                            \
    X(phi3, "phi3", "phi3")                                       \
    X(glm4, "glm4", "glm4")                                       \
    X(starcoder2, "starcoder2", "starcoder2")                     \
    X(olmo2, "olmo2", "olmo2")                                    \
    X(olmo3, "olmo3", "olmo2")                                    \
    X(cohere2, "cohere2", "cohere2")                              \
    X(nemotron, "nemotron", "nemotron")                           \
    X(ministral3, "ministral3", "mistral3")                       \
    X(llama_yarn, "llama-yarn", "llama")                          \
    X(mixtral, "mixtral", "llama")                                \
    X(qwen2_moe, "qwen2_moe", "qwen2moe")                         \
    X(qwen3_moe, "qwen3_moe", "qwen3moe")                         \
    X(glm4_moe, "glm4_moe", "glm4moe")                            \
    X(dots1, "dots1", "dots1")                                    \
    X(gpt_oss, "gpt_oss", "gpt-oss")                              \
    X(lfm2, "lfm2", "lfm2")                                       \
    X(lfm2_moe, "lfm2_moe", "lfm2moe")                            \
    X(qwen3_next, "qwen3_next", "qwen3next")                      \
    X(qwen3_5, "qwen3_5_text", "qwen35")                          \
    X(qwen3_5_moe, "qwen3_5_moe_text", "qwen35moe")               \
    X(mamba2, "mamba2", "mamba2")                                 \
    X(granitehybrid, "granitemoehybrid", "granitehybrid")         \
    X(granitehybrid_moe, "granitemoehybrid-moe", "granitehybrid") \
    X(nemotron_h, "nemotron_h", "nemotron_h_moe")                 \
    X(deepseek_v3, "deepseek_v3", "deepseek2")                    \
    X(gemma4, "gemma4_text", "gemma4")                            \
    X(gemma4_moe, "gemma4-moe", "gemma4")                         \
    X(gemma4_e4b, "gemma4-e4b", "gemma4")                         \
    X(phi3_longrope, "phi3-longrope", "phi3")
#define FOLDERS(X)                         \
    X(llama_rope3, "llama-rope3", "llama") \
    X(mistral, "mistral", "llama")
#define OWNS(X)                                              \
    X(deepseek_v2_yarn, "deepseek_v2-yarn", "deepseek2")     \
    X(deepseek_v2_groups, "deepseek_v2-groups", "deepseek2") \
    X(deepseek_v3_yarn, "deepseek_v3-yarn", "deepseek2")     \
    X(glm4_moe_lite, "glm4_moe_lite", "deepseek2")
#define MORES(X)                        \
    X(exaone4, "exaone4", "exaone4")    \
    X(olmoe, "olmoe", "olmoe")          \
    X(ernie4_5, "ernie4_5", "ernie4_5") \
    X(nemotron_h_latent, "nemotron_h-latent", "nemotron_h_moe")
FILES(FOLDER)
OWNS(OWN)
MORES(MORE)
FILES(CONVERTED)
FOLDERS(FOLDER)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tale),
                                       cmocka_unit_test(test_rope3),
                                       cmocka_unit_test(test_q5_k_m),
                                       cmocka_unit_test(test_q4_k_m),
                                       cmocka_unit_test(test_q3_k_m),
                                       cmocka_unit_test(test_iq2_m),
#define X(t, T, number) cmocka_unit_test(test_all_##t),
                                       QUANTS(X)
#undef X
#define X(name, file, arch) cmocka_unit_test(test_##name),
                                           TINIES(X)
#undef X
#define X(name, at, arch) cmocka_unit_test(test_hf_##name),
                                               FILES(X) FOLDERS(X)
#undef X
#define X(name, at, arch) cmocka_unit_test(test_own_##name),
                                                   OWNS(X)
#undef X
#define X(name, at, arch) cmocka_unit_test(test_more_##name),
                                                       MORES(X)
#undef X
#define X(name, at, arch) cmocka_unit_test(test_hf_gguf_##name),
                                                           FILES(X)
#undef X
    };
    if (!run_possible())
        return 0;
    if (run_on_gpu())
        tolerance = 0.015, excuse = 0.06;
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    if (argc > 2)
        cmocka_set_skip_filter(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
