/* bench.c - runs the benchmark's checks and tests in order, and prints its report; see bench.h. Single-threaded. */
#include "config.h"

#include "daemon/bench/bench.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/wire.h"

enum { LIST_MAX = 16, TESTS_MAX = (4 + BENCH_KV_ROWS) * LIST_MAX + 2 };

struct list {
    uint32_t v[LIST_MAX];
    size_t n;
};

struct report {
    const struct bench_params *p;
    char name[96];
    struct bench_check check;
    struct bench_result test[TESTS_MAX];
    size_t n;
};

/* --- the report ------------------------------------------------------------------------------------------ */

static double tokens_per_s(const struct bench_result *r)
{
    return 1e3 * r->n_token / r->ms;
}

static double bytes_per_s(const struct bench_result *r)
{
    return 1e3 * r->bytes / r->ms;
}

static const char *hash_text(const struct bench_result *r, char buf[20])
{
    buf[0] = 0;
    if (r->hashed)
        snprintf(buf, 20, "%016llx", (unsigned long long)r->hash);
    return buf;
}

/* Prints the results of the checks in one line. */
static void print_check(const struct bench *b, const struct bench_check *c)
{
    printf("ceiling_gbps %.1f; ", 1e-9 * b->ceiling);
    if (c->failed[0])
        printf("CHECK FAILED: %s; ", c->failed);
    if (c->compared) {
        printf("logit_error_vs_cpu %.5f, %.5f as prompts are computed (%u tokens)", c->decode, c->prefill, c->n_token);
        if (c->differ)
            printf("; %zu choices of experts differ, by %.5f at most", c->differ, c->margin);
        putchar('\n');
    } else
        printf("logits not compared with the CPU's: %s\n", c->why_not);
}

static void print_table(const struct bench *b, const struct report *rep)
{
    printf("%s (%s, %s) on %s\n", rep->name, b->hp.arch, b->hp.type, b->info.name);
    print_check(b, &rep->check);
    printf("%-28s %10s %12s %8s %8s  %s\n", "test", "ms", "tok/s", "GB/s", "ceiling", "logits");
    for (size_t i = 0; i < rep->n; i++) {
        const struct bench_result *r = &rep->test[i];
        char rate[24] = "", gb[24] = "", share[24] = "", hash[20];
        if (r->n_token > 0)
            snprintf(rate, sizeof rate, "%.1f", tokens_per_s(r));
        if (r->bytes > 0) {
            snprintf(gb, sizeof gb, "%.1f", 1e-9 * bytes_per_s(r));
            snprintf(share, sizeof share, "%.1f%%", 100 * bytes_per_s(r) / b->ceiling);
        }
        printf("%-28s %10.3f %12s %8s %8s  %s\n", r->test, r->ms, rate, gb, share, hash_text(r, hash));
    }
}

static void print_quoted(const char *s)
{
    putchar('"');
    for (; *s; s++)
        printf(*s == '"' ? "\"\"" : "%c", *s);
    putchar('"');
}

/* Prints a CSV field, quoted where necessary: the name comes from a file or a device. */
static void print_field(const char *s)
{
    if (s[strcspn(s, ",\"\r\n")])
        print_quoted(s);
    else
        fputs(s, stdout);
}

static void print_csv(const struct bench *b, const struct report *rep)
{
    printf("# %s: ", rep->name);
    print_check(b, &rep->check);
    puts("commit,device,model,test,ms,tok_per_s,ceiling_share,logits_hash");
    for (size_t i = 0; i < rep->n; i++) {
        const struct bench_result *r = &rep->test[i];
        char rate[24] = "", share[24] = "", hash[20];
        if (r->n_token > 0)
            snprintf(rate, sizeof rate, "%.1f", tokens_per_s(r));
        if (r->bytes > 0)
            snprintf(share, sizeof share, "%.3f", bytes_per_s(r) / b->ceiling);
        print_field(rep->p->commit);
        putchar(',');
        print_quoted(b->info.name);
        putchar(',');
        print_field(rep->name);
        printf(",%s,%.4f,%s,%s,%s\n", r->test, r->ms, rate, share, hash_text(r, hash));
    }
}

/* File names may be any bytes, but JSON is UTF-8: in a name that is not UTF-8, bytes beyond ASCII become "?". */
static json_t *json_text(const char *s)
{
    json_t *text = json_string(s);
    char *plain = text ? NULL : strdup(s);
    for (char *at = plain; at && *at; at++)
        if (*at & 0x80)
            *at = '?';
    if (plain)
        text = json_string(plain);
    free(plain);
    return text;
}

static void print_json(const struct bench *b, const struct report *rep)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < rep->n; i++) {
        const struct bench_result *r = &rep->test[i];
        char hash[20];
        json_t *row = json_pack("{s:s, s:f, s:i}", "test", r->test, "ms", r->ms, "runs", BENCH_RUNS);
        if (r->n_token > 0) {
            json_object_set_new(row, "tok_per_s", json_real(tokens_per_s(r)));
            json_object_set_new(row, "tokens", json_integer((json_int_t)r->n_token));
        }
        if (r->bytes > 0) {
            json_object_set_new(row, "gb_per_s", json_real(1e-9 * bytes_per_s(r)));
            json_object_set_new(row, "ceiling_share", json_real(bytes_per_s(r) / b->ceiling));
        }
        if (r->hashed)
            json_object_set_new(row, "logits_hash", json_string(hash_text(r, hash)));
        json_array_append_new(rows, row);
    }
    json_t *all = json_pack("{s:o, s:o, s:o, s:s, s:s, s:s, s:o, s:f, s:o}", "commit", json_text(rep->p->commit),
                            "model", json_text(rep->name), "path", json_text(rep->p->model), "arch", b->hp.arch, "type",
                            b->hp.type, "backend", b->be->name, "device", json_text(b->info.name), "ceiling_gbps",
                            1e-9 * b->ceiling, "results", rows);
    if (rep->check.failed[0])
        json_object_set_new(all, "check_failed", json_text(rep->check.failed));
    if (rep->check.compared) {
        json_object_set_new(all, "logit_error_vs_cpu", json_real(rep->check.decode));
        json_object_set_new(all, "logit_error_prefill_vs_cpu", json_real(rep->check.prefill));
        if (rep->check.differ)
            json_object_set_new(all, "choices_that_differ", json_integer((json_int_t)rep->check.differ));
    }
    json_dumpf(all, stdout, JSON_COMPACT); /* bench_main() detects a write error when it flushes */
    putchar('\n');
    json_decref(all);
}

/* Prints an error in the form of `hearth --json`, because this program is one of its verbs. */
static void print_json_error(const struct hearth_err *e)
{
    json_t *all = json_pack("{s:{s:s, s:o}}", "error", "symbol", err_name(e->code), "message", json_text(e->msg));
    json_dumpf(all, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(all);
}

/* --- the work -------------------------------------------------------------------------------------------- */

/* Parses "128,512"; "none" is the empty list. */
static int parse_list(const char *what, const char *s, uint32_t min, uint32_t max, struct list *out,
                      struct hearth_err *e)
{
    const char *whole = s;
    out->n = 0;
    if (!strcmp(s, "none"))
        return 0;
    for (;;) {
        char *end;
        unsigned long v = strtoul(s, &end, 10);
        if (end == s || *s == '-' || (*end && *end != ',') || v < min || v > max)
            return err_set(e, HEARTH_EPARAMS, "--%s: \"%s\" is not a list of numbers within %u..%u", what, whole, min,
                           max);
        if (out->n == LIST_MAX)
            return err_set(e, HEARTH_EPARAMS, "--%s: more than %d", what, LIST_MAX);
        out->v[out->n++] = (uint32_t)v;
        if (!*end)
            return 0;
        s = end + 1;
    }
}

static uint32_t most_of(const struct list *l, uint32_t more, uint32_t least)
{
    for (size_t i = 0; i < l->n; i++)
        least = l->v[i] + more > least ? l->v[i] + more : least;
    return least;
}

/* Prints how much of the weights is not in the device's memory, and at what rate the device reads that. */
static int tell_place(struct bench *b)
{
    const struct model_place *p = &b->model->place;
    double link = 0;
    if (!p->host)
        return 0;
    int rc = b->be->read_rate(b->dev, true, 0, &link, &b->err);
    if (!rc)
        fprintf(
            stderr,
            "hearth-bench: %.2f of %.2f GB of weights are in the host's memory, which the device reads at %.1f GB/s: "
            "at most %.1f tokens/s\n",
            1e-9 * (double)p->host, 1e-9 * (double)(p->host + p->own), 1e-9 * link, place_speed(p, b->ceiling, link));
    return rc;
}

/* The tests that the options select. */
struct tests {
    struct list prompt, depth, batch, resume, kv;
};

/* Checks that an option's value is one of the words "a, b, c". */
static int check_word(const char *what, const char *word, const char *words, struct hearth_err *e)
{
    size_t n = strlen(word);
    for (const char *w = words; *w; w += strcspn(w, ", "), w += strspn(w, ", "))
        if (n && n == strcspn(w, ", ") && !strncmp(w, word, n))
            return 0;
    return err_set(e, HEARTH_EPARAMS, "--%s: \"%.40s\" is not one of %s", what, word, words);
}

/* Checks the command line before anything is opened. */
static int parse_params(const struct bench_params *p, struct tests *t, struct hearth_err *e)
{
    int rc;
    if ((rc = check_word("backend", p->backend, "auto, cpu, cuda", e)) ||
        (rc = check_word("invariant", p->invariant, "nothing, prompts, all", e)) ||
        (rc = check_word("kv-type", p->kv_type, "auto, f16, q8_0", e)) ||
        (rc = parse_list("prompt", p->prompt, 1, WIRE_TOKENS_MAX, &t->prompt, e)) ||
        (rc = parse_list("depth", p->depth, 0, WIRE_TOKENS_MAX, &t->depth, e)) ||
        (rc = parse_list("batch", p->batch, 2, BATCH_SEQS_MAX, &t->batch, e)) ||
        (rc = parse_list("resume", p->resume, 1, WIRE_TOKENS_MAX, &t->resume, e)))
        return rc;
    return parse_list("kv", p->kv, BENCH_KV_MIN, WIRE_TOKENS_MAX, &t->kv, e);
}

static struct bench_room room_for(const struct tests *t)
{
    struct bench_room room = {.n_first = most_of(&t->prompt, 0, 1),
                              .n_seqs = most_of(&t->batch, 0, 2),
                              .n_other = t->batch.n ? BENCH_BATCH_DEPTH + BENCH_TG_TOKENS + 1 : 0};
    room.n_first = most_of(&t->depth, BENCH_TG_TOKENS + 1, room.n_first);
    room.n_first = most_of(&t->resume, BENCH_RESUME_TOKENS, room.n_first);
    room.n_first = most_of(&t->kv, 1, room.n_first);
    room.n_first = room.n_first > room.n_other ? room.n_first : room.n_other;
    return room;
}

/* Loads, checks and measures on the open device; `begin` is when the program started. */
static int run(struct bench *b, const struct tests *t, double begin, struct report *rep)
{
    const struct bench_params *p = rep->p;
    struct bench_room room = room_for(t);
    int rc;
    b->prompt_rows = strcmp(p->invariant, "nothing") ? b->chunk : 0;
    if ((rc = bench_load(b, p->model, &room)))
        return rc;
    double cold = 1e3 * (engine_now() - begin);
    if ((rc = bench_check(b, p->model, &rep->check))) {
        if (!p->force || !rep->check.failed[0])
            return rc;
        fprintf(stderr, "hearth-bench: %s; measured anyway\n", rep->check.failed);
    }
    if ((rc = b->be->read_rate(b->dev, false, 0, &b->ceiling, &b->err)) || (rc = tell_place(b)))
        return rc;
    if (strcmp(p->invariant, "nothing"))
        b->prompts = INVARIANT_PROMPT;
    if (!strcmp(p->invariant, "all"))
        b->decodes = INVARIANT_BATCH;
    for (size_t i = 0; i < t->prompt.n && !rc; i++)
        rc = bench_time_prompt(b, t->prompt.v[i], &rep->test[rep->n++]);
    for (size_t i = 0; i < t->depth.n && !rc; i++)
        rc = bench_time_decode(b, 1, t->depth.v[i], &rep->test[rep->n++]);
    for (size_t i = 0; i < t->batch.n && !rc; i++)
        rc = bench_time_decode(b, t->batch.v[i], BENCH_BATCH_DEPTH, &rep->test[rep->n++]);
    for (size_t i = 0; i < t->resume.n && !rc; i++)
        rc = bench_time_resume(b, t->resume.v[i], &rep->test[rep->n++]);
    for (size_t i = 0; i < t->kv.n && !rc; i++)
        if (!(rc = bench_time_kv(b, t->kv.v[i], rep->test, &rep->n)) && p->kv_dir)
            rc = bench_time_disk(b, p->kv_dir, t->kv.v[i], rep->test, &rep->n);
    if (rc || !p->load)
        return rc;
    rep->test[rep->n + 1] = (struct bench_result){.test = "load_cold_process", .ms = cold};
    rc = bench_time_load(b, p->model, &room, &rep->test[rep->n]);
    rep->n += 2;
    return rc;
}

int bench_main(const struct bench_params *p)
{
    struct bench b = {0};
    struct report rep = {.p = p};
    struct tests tests;
    double begin = engine_now();
    int status = EXIT_FAILURE, rc = parse_params(p, &tests, &b.err);
    if (!rc)
        rc = bench_open_device(&b, p);
    if (rc == HEARTH_EPARAMS)
        status = BENCH_USAGE;
    if (!rc)
        rc = run(&b, &tests, begin, &rep);
    if (rc) {
        if (p->format == BENCH_JSON)
            print_json_error(&b.err);
        goto out;
    }
    const char *slash = strrchr(p->model, '/');
    snprintf(rep.name, sizeof rep.name, "%s", p->name ? p->name : slash ? slash + 1 : p->model);
    char *dot = strrchr(rep.name, '.');
    if (!p->name && dot && !strcmp(dot, ".gguf"))
        *dot = 0;
    if (p->format == BENCH_JSON)
        print_json(&b, &rep);
    else if (p->format == BENCH_CSV)
        print_csv(&b, &rep);
    else
        print_table(&b, &rep);
    if (fflush(stdout) || ferror(stdout)) /* a write error on stdout, such as a full disk, must not look like success */
        rc = err_set(&b.err, HEARTH_EIO, "the output could not be written");
out:
    bench_close(&b);
    if (rc)
        fprintf(stderr, "hearth-bench: %s: %s\n", err_name(rc), b.err.msg);
    return rc || rep.check.failed[0] ? status : EXIT_SUCCESS;
}
