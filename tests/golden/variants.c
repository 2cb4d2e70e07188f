/*
 * variants.c - models of random configurations against an independent reference: tests/tools/variants.py draws what can
 * vary within each model type (heads, sizes, windows, RoPE, experts, kinds of layers in any order) and writes folders
 * with the logits that numpy computes in float64. Every logit must be within 0.001, however the tokens are split, which
 * implies that a greedy id differs only under a lead of 0.002.
 *
 *     variants [SEED [COUNT [MODEL_TYPE]]]    COUNT models of each type, from SEED on; default: 1, 2 and all types
 *
 * It skips if no Python has numpy. Only the CPU is tested: the errors that a GPU may have are known for the goldens.
 */
#include "tests/golden/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 64, TOKENS_MAX = 512 };
static const double tolerance = 0.001;

static const char *first = "1", *count = "2", *only = "";

/* The tokens of a folder, and the reference's logits for them. */
struct variant {
    char path[4096];
    int32_t id[TOKENS_MAX];
    uint32_t n;
    float *want;
};

static FILE *open_in(const char *folder, const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    return f;
}

static void read_variant(struct variant *v, uint32_t n_vocab)
{
    FILE *f = open_in(v->path, "tokens");
    for (v->n = 0; v->n < TOKENS_MAX && fscanf(f, "%d", &v->id[v->n]) == 1;)
        v->n++;
    fclose(f);
    size_t size = (size_t)v->n * n_vocab;
    v->want = malloc(size * sizeof *v->want);
    assert_true(v->n > 0 && v->want);
    f = open_in(v->path, "logits");
    assert_int_equal(fread(v->want, sizeof *v->want, size, f), size);
    assert_int_equal(fgetc(f), EOF);
    fclose(f);
}

/* The greatest error of the logits of n rows from `pos` on. */
static double off(const struct variant *v, const float *got, uint32_t pos, uint32_t n, uint32_t n_vocab)
{
    const float *want = v->want + (size_t)pos * n_vocab;
    double worst = 0;
    for (size_t i = 0; i < (size_t)n * n_vocab; i++) {
        double by = fabs((double)got[i] - (double)want[i]);
        worst = by > worst || by != by ? by : worst;
    }
    return worst;
}

/* Runs the tokens in chunks of 64, in chunks of 7, and one half at once and the other half one by one. */
static double measure(struct variant *v)
{
    struct run r;
    double worst = 0;
    run_open(&r, v->path, run_backend(), NULL, 0, 0, ROWS);
    uint32_t n_vocab = r.m->hp.n_vocab;
    read_variant(v, n_vocab);
    r.freq_set = r.m->hp.long_from && v->n > r.m->hp.long_from;
    float *logits = malloc((size_t)ROWS * n_vocab * sizeof *logits);
    assert_non_null(logits);
    for (int way = 0; way < 3; way++)
        for (uint32_t pos = 0, n; pos < v->n; pos += n) {
            n = way == 0 ? ROWS : way == 1 ? 7 : pos < v->n / 2 ? v->n / 2 : 1;
            n = n < ROWS ? n : ROWS;
            n = n < v->n - pos ? n : v->n - pos;
            run_step(&r, &(struct piece){v->id + pos, n, pos, n, r.pages}, 1, INVARIANT_DECODE, logits);
            double by = off(v, logits, pos, n, n_vocab);
            worst = by > worst || by != by ? by : worst;
        }
    free(logits);
    free(v->want);
    run_close(&r);
    return worst;
}

static void remove_all(const char *dir)
{
    char command[4200];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

#define PYTHON   "for p in python3 /usr/bin/python3; do $p -c 'import numpy' 2>/dev/null && exec $p "
#define NO_NUMPY "; done; exit 77"

/* Compares the reference with transformers' own results, where there are any. */
static void reference_is_right(void **state)
{
    char script[4096], ours[4096], theirs[4096], command[16384];
    (void)state;
    if (run_on_gpu() || !run_path(script, "tests/tools/reference.py") || !run_path(ours, "tests/golden/data/hf"))
        skip();
    bool has = run_path(theirs, "models/hf-tiny") != NULL;
    snprintf(command, sizeof command, PYTHON "'%s' '%s' '%s' >/dev/null" NO_NUMPY, script, ours, has ? theirs : ours);
    int status = system(command);
    if (status == 77 << 8)
        skip();
    assert_int_equal(status, 0);
}

static void variants_are_right(void **state)
{
    static const char run[] = PYTHON "'%s' '%s' %s %s %s" NO_NUMPY;
    const char *tmp = getenv("TMPDIR");
    char dir[1024], script[4096], command[8192];
    struct variant v;
    unsigned n = 0, wrong = 0;
    (void)state;
    if (run_on_gpu() || !run_path(script, "tests/tools/variants.py"))
        skip();
    snprintf(dir, sizeof dir, "%s/variants-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(dir));
    snprintf(command, sizeof command, run, script, dir, first, count, only);
    FILE *names = popen(command, "r");
    assert_non_null(names);
    for (char name[128]; fscanf(names, "%127s", name) == 1; n++) {
        snprintf(v.path, sizeof v.path, "%s/%s", dir, name);
        double by = measure(&v);
        if (!(by <= tolerance)) {
            print_error("# %s: off by %g\n", name, by);
            wrong++;
        }
        remove_all(v.path);
    }
    int status = pclose(names);
    remove_all(dir);
    if (!n && status == 77 << 8)
        skip();
    print_message("# %u configurations\n", n);
    assert_true(n > 0 && status == 0);
    assert_int_equal(wrong, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reference_is_right), cmocka_unit_test(variants_are_right)};
    first = argc > 1 ? argv[1] : first;
    count = argc > 2 ? argv[2] : count;
    only = argc > 3 ? argv[3] : only;
    return run_possible() ? cmocka_run_group_tests_name("variants", tests, NULL, NULL) : 0;
}
