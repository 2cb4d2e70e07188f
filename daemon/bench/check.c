/* check.c - what must be correct before the benchmark measures anything; see bench.h. Single-threaded. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/bench/bench.h"
#include "daemon/engine/selfcheck/selfcheck.h"

/* Bytes of weights up to which logits are compared with the CPU's, so that this takes only seconds; and up to which a
 * prompt of BENCH_COMPARE_TOKENS is used for it. */
static const uint64_t compare_bytes_max = UINT64_C(8) << 30;
static const uint64_t compare_bytes_long = UINT64_C(2) << 30;

static const int differs = HEARTH_EINTERNAL; /* the code of a wrong result, as opposed to a failed device */

/* --- batch invariance: a row's bits do not depend on the other rows ------------------------------------------ */

static int same_bits(struct bench *b, const float *want, const float *got, const char *how)
{
    size_t bytes = b->hp.n_vocab * sizeof *want;
    if (!memcmp(want, got, bytes))
        return 0;
    uint32_t i = 0;
    while (!memcmp(&want[i], &got[i], sizeof *want))
        i++;
    return err_set(&b->err, differs, "%s: logit %u is %.9g, not %.9g: results depend on the batch", how, i,
                   (double)got[i], (double)want[i]);
}

/* Checks batch invariance in one mode. For INVARIANT_PROMPT the prompt is longer and its chunks larger, because a GPU
 * has separate kernels for many rows. */
static int check_invariant(struct bench *b, enum invariance how)
{
    bool prompt = how == INVARIANT_PROMPT;
    uint32_t most = prompt ? BENCH_COMPARE_TOKENS : BENCH_CHECK_TOKENS, n = most < b->hp.n_ctx ? most : b->hp.n_ctx,
             chunks[] = {prompt ? 130 : 1, 7, n > 1 ? n - 1 : 1};
    char what[64];
    int rc;
    float *want = malloc(b->hp.n_vocab * sizeof *want);
    if (!want)
        return err_set(&b->err, HEARTH_ENOMEM, "no memory for %u logits", b->hp.n_vocab);
    b->prompts = b->decodes = how;
    if ((rc = bench_prefill(b, 0, n, n)) || (rc = bench_read_logits(b, 0, want)))
        goto out;
    for (uint32_t i = 0; i < b->hp.n_vocab; i++)
        if (want[i] != want[i]) {
            rc = err_set(&b->err, differs, "logit %u is not a number", i);
            goto out;
        }
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        snprintf(what, sizeof what, "a prompt in pieces of %u", chunks[i]);
        if ((rc = bench_prefill(b, 0, n, chunks[i])) || (rc = bench_read_logits(b, 0, b->logits)) ||
            (rc = same_bits(b, want, b->logits, what)))
            goto out;
    }
    /* The last row is computed again, batched with the whole prompt of another sequence. */
    struct bench_part both[] = {{0, n - 1, 1}, {1, 0, n}};
    int32_t token[1 + BENCH_COMPARE_TOKENS];
    if (n > 1 && (rc = bench_prefill(b, 0, n - 1, n - 1)))
        goto out;
    token[0] = b->token[n - 1];
    for (uint32_t i = 0; i < n; i++)
        token[1 + i] = b->token[2 * i + 1];
    bench_step(b, both, 2, 2, token, false, 0);
    if (!(rc = bench_wait(b, 0, 0)) && !(rc = bench_read_logits(b, 0, b->logits)))
        rc = same_bits(b, want, b->logits, "beside another sequence");
out:
    b->prompts = b->decodes = INVARIANT_OFF;
    free(want);
    return rc;
}

/* --- a GPU's logits are near the CPU's ------------------------------------------------------------------------ */

/* Records the first wrong result and lets the other checks run (returns 0); any other error is returned and ends them.
 */
static int note(const struct bench *b, struct bench_check *out, int rc)
{
    if (rc == differs && !out->failed[0])
        snprintf(out->failed, sizeof out->failed, "%s", b->err.msg);
    return rc == differs ? 0 : rc;
}

/*
 * How far a GPU's logits may be from the CPU's: the root mean square of the differences, relative to that of the
 * logits. Random weights at real shapes amplify rounding: keys and values in fp16 alone cause 2.4 % in the 8B shape,
 * 0.4 % in the 1B shape and 0.03 % in tale. A wrong kernel causes 100 %.
 */
static const double off_most = 0.2;

/* Sets *worst to the largest difference; returns an error where the logits are too far apart, or are NaN. */
static int distance(struct bench *b, const float *want, const float *got, size_t n, const char *how, double *worst)
{
    double off2 = 0, size2 = 0;
    *worst = 0;
    for (size_t i = 0; i < n; i++) {
        double off = fabs((double)want[i] - (double)got[i]);
        if (!(off <= *worst) && *worst == *worst) /* a NaN is recorded, and stays */
            *worst = off;
        off2 += off * off;
        size2 += (double)want[i] * (double)want[i];
    }
    if (off2 <= off_most * off_most * size2) /* false for NaN */
        return 0;
    return err_set(&b->err, differs, "%s, logits lie %.3g %% off the CPU's: %.0f %% is the most", how,
                   100 * sqrt(off2 / size2), 100 * off_most);
}

/* The CPU's side of a comparison: logits of the last n_out rows of a prompt of n tokens. */
struct compared {
    struct bench cpu;
    uint32_t n, n_out;
    float *want, *got; /* [n_out * n_vocab] */
    bool computed;     /* `want` has been computed; for a mixture it holds for one mode only, because the CPU follows
                          the device's choices */
};

/* Compares the device's logits in one mode; the CPU routes its rows to the experts that the device chose. */
static int compare(struct bench *b, struct compared *c, enum invariance mode, const char *how, struct bench_check *out,
                   double *worst)
{
    struct bench_routes routes = {0};
    b->prompts = mode;
    int rc = bench_last_rows(b, c->n, c->n_out, c->got);
    if (!rc)
        rc = bench_routes_read(&routes, b, c->n);
    b->prompts = INVARIANT_OFF;
    if (!rc && !(c->computed && !routes.n_router) && bench_follow(&routes, &c->cpu, c->n_out, c->want))
        rc = err_set(&b->err, c->cpu.err.code, "on the CPU: %.200s", c->cpu.err.msg);
    c->computed = true;
    if (!rc && routes.wrong.code)
        rc = note(b, out, err_set(&b->err, differs, "%s, %s", how, routes.wrong.msg));
    if (!rc)
        rc = note(b, out, distance(b, c->want, c->got, (size_t)c->n_out * b->hp.n_vocab, how, worst));
    out->differ += routes.differ;
    out->margin = fmax(out->margin, routes.margin);
    bench_routes_free(&routes);
    return rc;
}

int bench_compare(struct bench *b, const char *path, struct bench_check *out)
{
    enum { OUT = 32 };
    bool q8_0 = b->info.kv_type == DT_Q8_0; /* its own error would hide others, so the CPU uses it too */
    const struct bench_params params = {.backend = "cpu", .variant = "auto", .kv_type = q8_0 ? "q8_0" : "auto"};
    struct compared c = {.n = b->hp.weight_bytes > compare_bytes_long ? BENCH_CHECK_TOKENS : BENCH_COMPARE_TOKENS};
    c.n = c.n < b->hp.n_ctx ? c.n : b->hp.n_ctx;
    c.n_out = c.n < OUT ? c.n : OUT;
    struct bench_room room = {.n_first = c.n, .n_seqs = 1};
    size_t bytes = (size_t)c.n_out * b->hp.n_vocab * sizeof(float);
    c.want = malloc(bytes), c.got = malloc(bytes);
    int rc = 0;
    if (!c.want || !c.got)
        rc = err_set(&b->err, HEARTH_ENOMEM, "no memory for logits of %zu bytes", bytes);
    else if (bench_open_device(&c.cpu, &params) || bench_open_model(&c.cpu, path, &room))
        rc = err_set(&b->err, c.cpu.err.code, "on the CPU: %.200s", c.cpu.err.msg);
    if (!rc)
        rc = compare(b, &c, INVARIANT_DECODE, "as a token is decoded", out, &out->decode);
    if (!rc)
        rc = compare(b, &c, INVARIANT_OFF, "as prompts are computed", out, &out->prefill);
    out->n_token = c.n;
    out->compared = !rc;
    bench_close(&c.cpu);
    free(c.want);
    free(c.got);
    return rc;
}

/* Runs the self-check: every op on samples of the model's tensors, as the engine requires of a GPU before it serves a
 * model. */
static int check_ops(struct bench *b)
{
    struct device_params params = {.variant = "auto"};
    struct selfcheck s;
    int rc = selfcheck_run(b->model, backend_find("cpu"), &params, true, &s, &b->err);
    return rc || !s.failed[0] ? rc : err_set(&b->err, differs, "%s", s.failed);
}

int bench_check(struct bench *b, const char *path, struct bench_check *out)
{
    *out = (struct bench_check){0};
    int rc = b->info.gpu ? note(b, out, check_ops(b)) : 0;
    if (!rc)
        rc = note(b, out, check_invariant(b, INVARIANT_DECODE));
    if (!rc && b->info.gpu)
        rc = note(b, out, check_invariant(b, INVARIANT_PROMPT));
    if (!rc && b->info.gpu)
        rc = note(b, out, check_invariant(b, INVARIANT_BATCH));
    if (!b->info.gpu)
        out->why_not = "this is the CPU";
    else if (b->hp.weight_bytes > compare_bytes_max)
        out->why_not = "the model is too large for the CPU";
    else if (!rc)
        rc = bench_compare(b, path, out);
    return rc || !out->failed[0] ? rc : err_set(&b->err, differs, "%s", out->failed);
}
