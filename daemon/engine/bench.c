/* bench.c - measures a model on a device; see bench.h. One thread. */
#include "config.h"

#include "daemon/engine/bench.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "daemon/engine/device.h"
#include "libclient/wire.h"

enum {
    RUNS = 5,
    TG_TOKENS = 32,
    TESTS_MAX = 16,
    CHECK_TOKENS = 37, /* over two pages, and no multiple of anything */
};

struct bench {
    const struct backend *be;
    struct device *dev;
    struct device_info info;
    struct gguf *gguf;
    struct hparams hp;
    struct model *model;
    struct kv_pool *pool;
    uint32_t *pages[2]; /* block tables of two sequences */
    uint32_t chunk;     /* prompt rows in a step, as the scheduler cuts them */
    uint32_t ahead;
    bool invariant; /* the same arithmetic for any batch: to check; not to time */
    int32_t *token; /* a prompt of any length: ids spread over the vocabulary */
    float *logits;
    struct hearth_err err;
};

struct part {
    uint32_t who, pos0, n_row; /* sequence and rows of it */
};

/* One step over parts of sequences; with logits of the last row of each of the first n_out parts. */
static uint64_t run_step(struct bench *b, const struct part *part, uint32_t n_part, uint32_t n_out,
                         const int32_t *token, bool sample, uint32_t index)
{
    struct batch_seq seq[2];
    uint32_t out_row[2], row = 0, slot = 0;
    for (uint32_t i = 0; i < n_part; i++) {
        seq[i] = (struct batch_seq){row, part[i].n_row, part[i].pos0, b->pages[part[i].who]};
        row += part[i].n_row;
        out_row[i] = row - 1;
    }
    struct batch batch = {
        .n_row = row, .n_seq = n_part, .n_out = n_out, .token = token, .seq = seq, .out_row = out_row, .kv = b->pool};
    uint64_t shape[] = {row, n_part, n_out, sample, b->invariant};
    b->be->step_begin(b->dev, &batch, XXH3_64bits(shape, sizeof shape));
    model_forward(b->model);
    if (sample)
        b->be->sample(b->dev, &(struct op_sample){.n = 1, .slot = &slot, .index = &index});
    return b->be->step_end(b->dev);
}

/* A prompt in chunks, up to the last token's logits. Steps go ahead as far as the device lets them. */
static int prefill(struct bench *b, uint32_t who, uint32_t n, uint32_t chunk)
{
    uint64_t ticket = 0, oldest = 1;
    uint32_t waiting = 0;
    int rc = 0;
    for (uint32_t pos = 0; pos < n && !rc; pos += chunk) {
        uint32_t rows = n - pos < chunk ? n - pos : chunk;
        struct part part = {who, pos, rows};
        if (waiting == b->ahead) {
            rc = b->be->step_wait(b->dev, oldest++, NULL, 0, &b->err);
            waiting--;
        }
        if (rc)
            break;
        ticket = run_step(b, &part, 1, pos + rows == n, b->token + pos, false, 0);
        if (waiting++ == 0)
            oldest = ticket;
    }
    for (; waiting && !rc; waiting--)
        rc = b->be->step_wait(b->dev, oldest++, NULL, 0, &b->err);
    return rc;
}

/* TG_TOKENS tokens from a context of `depth`, each fed to the next step on the device. */
static int decode(struct bench *b, uint32_t depth)
{
    struct sampled s;
    int32_t token = b->token[depth];
    uint64_t ticket[AHEAD_MAX];
    uint32_t waiting = 0, done = 0;
    int rc = 0;
    for (uint32_t i = 0; i < TG_TOKENS; i++) {
        struct part part = {0, depth + i, 1};
        if (waiting == b->ahead) {
            if ((rc = b->be->step_wait(b->dev, ticket[done++ % AHEAD_MAX], &s, 1, &b->err)))
                return rc;
            waiting--;
        }
        ticket[i % AHEAD_MAX] = run_step(b, &part, 1, 1, &token, true, i);
        waiting++;
        token = TOKEN_OF_SLOT(0);
    }
    for (; waiting && !rc; waiting--)
        rc = b->be->step_wait(b->dev, ticket[done++ % AHEAD_MAX], &s, 1, &b->err);
    return rc;
}

static int read_logits(struct bench *b, uint32_t out, float *to)
{
    return b->be->act_read(b->dev, ACT_LOGITS, out, 1, to, &b->err);
}

static int set_slot(struct bench *b, uint32_t depth)
{
    struct sample_params greedy = {.top_p = 1, .rep_penalty = 1};
    return b->be->slot_set(b->dev, 0, &greedy, b->token, depth + 1, b->hp.n_vocab, &b->err);
}

/* --- correctness ----------------------------------------------------------------------------------------- */

static int compare(struct bench *b, const float *want, const float *got, const char *how)
{
    size_t bytes = b->hp.n_vocab * sizeof *want;
    if (!memcmp(want, got, bytes))
        return 0;
    uint32_t i = 0;
    while (!memcmp(&want[i], &got[i], sizeof *want))
        i++;
    return err_set(&b->err, HEARTH_EDEVICE, "%s: logit %u is %.9g, not %.9g: results depend on the batch", how, i,
                   (double)got[i], (double)want[i]);
}

static int check(struct bench *b)
{
    uint32_t n = CHECK_TOKENS < b->hp.n_ctx ? CHECK_TOKENS : b->hp.n_ctx, chunks[] = {1, 7, n - 1};
    char how[64];
    int rc;
    float *want = malloc(b->hp.n_vocab * sizeof *want);
    if (!want)
        return err_set(&b->err, HEARTH_ENOMEM, "no memory for %u logits", b->hp.n_vocab);
    if ((rc = prefill(b, 0, n, n)) || (rc = read_logits(b, 0, want)))
        goto out;
    for (uint32_t i = 0; i < b->hp.n_vocab; i++)
        if (want[i] != want[i]) {
            rc = err_set(&b->err, HEARTH_EDEVICE, "logit %u is not a number", i);
            goto out;
        }
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        snprintf(how, sizeof how, "a prompt in pieces of %u", chunks[i]);
        if ((rc = prefill(b, 0, n, chunks[i])) || (rc = read_logits(b, 0, b->logits)) ||
            (rc = compare(b, want, b->logits, how)))
            goto out;
    }
    /* The last row once more, after a stranger's whole prompt in the same step. */
    struct part both[] = {{0, n - 1, 1}, {1, 0, n}};
    int32_t token[1 + CHECK_TOKENS];
    token[0] = b->token[n - 1];
    for (uint32_t i = 0; i < n; i++)
        token[1 + i] = b->token[2 * i + 1];
    uint64_t ticket = run_step(b, both, 2, 2, token, false, 0);
    if (!(rc = b->be->step_wait(b->dev, ticket, NULL, 0, &b->err)) && !(rc = read_logits(b, 0, b->logits)))
        rc = compare(b, want, b->logits, "beside another sequence");
out:
    free(want);
    return rc;
}

/* --- timing ---------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct result {
    char test[24];
    uint32_t n_token;
    double ms;
    uint64_t hash; /* of the last logits */
};

static int measure(struct bench *b, bool tg, uint32_t n, struct result *out)
{
    double ms[RUNS];
    int rc;
    snprintf(out->test, sizeof out->test, tg ? "tg@%u" : "pp%u", n);
    out->n_token = tg ? TG_TOKENS : n;
    if (tg && n && (rc = prefill(b, 0, n, b->chunk)))
        return rc;
    for (int i = -1; i < RUNS; i++) { /* the first is for warming up */
        if (tg && (rc = set_slot(b, n)))
            return rc;
        double begin = engine_now();
        if ((rc = tg ? decode(b, n) : prefill(b, 0, n, b->chunk)))
            return rc;
        if (i >= 0)
            ms[i] = 1e3 * (engine_now() - begin);
    }
    qsort(ms, RUNS, sizeof *ms, by_value);
    out->ms = ms[RUNS / 2];
    if ((rc = read_logits(b, 0, b->logits)))
        return rc;
    out->hash = XXH3_64bits(b->logits, b->hp.n_vocab * sizeof *b->logits);
    return 0;
}

/* Bytes of weights that a decoded token reads: all but an embedding table that is not the head as well. */
static double bytes_per_token(const struct bench *b)
{
    const struct weight_part *embd = &b->model->tok_embd.part[0], *head = &b->model->out.part[0];
    double all = (double)b->hp.weight_bytes;
    if (embd->data != head->data)
        all -= (double)dtype_bytes((int)embd->type, (uint64_t)b->hp.n_vocab * b->hp.d_model);
    return all;
}

static void print_table(const struct bench *b, const char *name, const struct result *r, size_t n)
{
    printf("%s (%s, %s) on %s\n", name, b->hp.arch, b->hp.type, b->info.name);
    printf("%-10s %10s %12s %8s  %s\n", "test", "ms", "tok/s", "GB/s", "logits");
    for (size_t i = 0; i < n; i++) {
        double rate = 1e3 * r[i].n_token / r[i].ms;
        char gb[16] = "";
        if (r[i].test[0] == 't')
            snprintf(gb, sizeof gb, "%.1f", 1e-9 * rate * bytes_per_token(b));
        printf("%-10s %10.2f %12.1f %8s  %016llx\n", r[i].test, r[i].ms, rate, gb, (unsigned long long)r[i].hash);
    }
}

static int print_json(const struct bench *b, const char *path, const char *name, const struct result *r, size_t n)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < n; i++) {
        char hash[20];
        double rate = 1e3 * r[i].n_token / r[i].ms;
        snprintf(hash, sizeof hash, "%016llx", (unsigned long long)r[i].hash);
        json_t *row = json_pack("{s:s, s:f, s:f, s:i, s:i, s:s}", "test", r[i].test, "ms", r[i].ms, "tok_per_s", rate,
                                "tokens", (int)r[i].n_token, "runs", RUNS, "logits_hash", hash);
        if (r[i].test[0] == 't')
            json_object_set_new(row, "gb_per_s", json_real(1e-9 * rate * bytes_per_token(b)));
        json_array_append_new(rows, row);
    }
    json_t *all = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:o}", "model", name, "path", path, "arch", b->hp.arch,
                            "type", b->hp.type, "backend", b->be->name, "device", b->info.name, "results", rows);
    int rc = all ? json_dumpf(all, stdout, JSON_INDENT(1)) : -1;
    putchar('\n');
    json_decref(all);
    return rc;
}

/* --- set-up ---------------------------------------------------------------------------------------------- */

/* "128,512" to numbers; "" and "none" to none. */
static int parse_list(const char *what, const char *s, uint32_t min, uint32_t *out, size_t *n, struct hearth_err *e)
{
    *n = 0;
    if (!*s || !strcmp(s, "none"))
        return 0;
    for (;;) {
        char *end;
        unsigned long v = strtoul(s, &end, 10);
        if (end == s || *s == '-' || (*end && *end != ',') || v < min || v > WIRE_TOKENS_MAX)
            return err_set(e, HEARTH_EPARAMS, "--%s: \"%s\" is not a list of numbers within %u..%d", what, s, min,
                           WIRE_TOKENS_MAX);
        if (*n == TESTS_MAX)
            return err_set(e, HEARTH_EPARAMS, "--%s: more than %d", what, TESTS_MAX);
        out[(*n)++] = (uint32_t)v;
        if (!*end)
            return 0;
        s = end + 1;
    }
}

static int open_backend(struct bench *b, const struct engine_params *p)
{
    struct device_params dp = {.threads = p->threads, .variant = p->variant};
    int rc = err_set(&b->err, HEARTH_EDEVICE, "this build has no backend \"%.40s\"", p->backend);
    for (int i = 0; backends[i] && !b->be; i++)
        if ((!strcmp(p->backend, "auto") || !strcmp(p->backend, backends[i]->name)) &&
            !(rc = backends[i]->open(&b->dev, &dp, &b->err)))
            b->be = backends[i];
    if (rc)
        return rc;
    b->be->info(b->dev, &b->info);
    b->chunk = b->info.gpu ? ROWS_GPU : ROWS_CPU;
    b->ahead = b->info.ahead < 1 ? 1 : b->info.ahead > AHEAD_MAX ? AHEAD_MAX : b->info.ahead;
    return 0;
}

/* Model, workspace, a pool for two sequences of n_token. */
static int open_model(struct bench *b, const char *path, uint32_t n_token)
{
    struct workspace_dims dims = {.n_row = b->chunk, .n_out = OUT_MAX};
    struct kv_desc desc;
    uint32_t n_page = n_token / KV_PAGE + 1;
    int rc;
    if ((rc = gguf_open(&b->gguf, path, &b->err)) || (rc = model_hparams(&b->hp, b->gguf, &b->err)))
        return rc;
    if (n_token > b->hp.n_ctx)
        return err_set(&b->err, HEARTH_ECONTEXT, "%u tokens are asked for; the context of the model is %u", n_token,
                       b->hp.n_ctx);
    if ((rc = model_load(&b->model, b->gguf, b->be, b->dev, NULL, NULL, &b->err)))
        return rc;
    model_workspace(b->model, &dims);
    model_kv_desc(b->model, b->info.kv_type, &desc);
    desc.n_page = 2 * n_page;
    if ((rc = b->be->reserve(b->dev, &dims, &b->err)) || (rc = b->be->kv_new(b->dev, &desc, &b->pool, &b->err)))
        return rc;
    uint32_t n_id = n_token > 2 * CHECK_TOKENS ? n_token : 2 * CHECK_TOKENS;
    b->token = malloc(n_id * sizeof *b->token);
    b->logits = malloc(b->hp.n_vocab * sizeof *b->logits);
    b->pages[0] = malloc(n_page * sizeof **b->pages);
    b->pages[1] = malloc(n_page * sizeof **b->pages);
    if (!b->token || !b->logits || !b->pages[0] || !b->pages[1])
        return err_set(&b->err, HEARTH_ENOMEM, "no memory for %u tokens", n_token);
    for (uint32_t i = 0; i < n_id; i++)
        b->token[i] = (int32_t)((i * 7919u + 13) % b->hp.n_vocab);
    for (uint32_t i = 0; i < n_page; i++) { /* interleaved: pages of a sequence do not lie side by side */
        b->pages[0][i] = 2 * i;
        b->pages[1][i] = 2 * i + 1;
    }
    return 0;
}

static void close_all(struct bench *b)
{
    free(b->token);
    free(b->logits);
    free(b->pages[0]);
    free(b->pages[1]);
    if (b->pool)
        b->be->kv_free(b->dev, b->pool);
    if (b->model)
        model_free(b->model);
    if (b->gguf)
        gguf_close(b->gguf);
    if (b->be)
        b->be->close(b->dev);
}

int bench_main(const struct bench_params *p)
{
    struct bench b = {0};
    uint32_t prompt[TESTS_MAX], depth[TESTS_MAX], most = CHECK_TOKENS;
    size_t n_prompt, n_depth, n = 0;
    struct result r[2 * TESTS_MAX];
    int rc;
    if ((rc = parse_list("prompt", p->prompt, 1, prompt, &n_prompt, &b.err)) ||
        (rc = parse_list("depth", p->depth, 0, depth, &n_depth, &b.err)))
        goto out;
    for (size_t i = 0; i < n_prompt; i++)
        most = prompt[i] > most ? prompt[i] : most;
    for (size_t i = 0; i < n_depth; i++)
        most = depth[i] + TG_TOKENS > most ? depth[i] + TG_TOKENS : most;
    if ((rc = open_backend(&b, p->engine)) || (rc = open_model(&b, p->model, most)))
        goto out;
    b.invariant = true;
    if ((rc = check(&b)))
        goto out;
    b.invariant = false;
    for (size_t i = 0; i < n_prompt && !rc; i++)
        rc = measure(&b, false, prompt[i], &r[n++]);
    for (size_t i = 0; i < n_depth && !rc; i++)
        rc = measure(&b, true, depth[i], &r[n++]);
    if (rc)
        goto out;
    const char *slash = strrchr(p->model, '/');
    char name[96];
    snprintf(name, sizeof name, "%s", slash ? slash + 1 : p->model);
    char *dot = strrchr(name, '.');
    if (dot && !strcmp(dot, ".gguf"))
        *dot = 0;
    if (p->json)
        print_json(&b, p->model, name, r, n);
    else
        print_table(&b, name, r, n);
out:
    close_all(&b);
    if (rc)
        fprintf(stderr, "hearth-engine: %s: %s\n", err_name(rc), b.err.msg);
    return rc ? 1 : 0;
}
