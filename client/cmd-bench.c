/*
 * cmd-bench.c - hearth bench: measures a model's speed, without a daemon or (--socket) as a client of the daemon sees
 * it.
 *
 * hearth-bench measures a model without a daemon. With --socket this file runs the same tests, with the same names and
 * the same JSON, through a daemon, by this process's own clock. The difference is the cost of the daemon, the engine
 * link and the socket. Loads of many clients are in bench-load.c.
 */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/bench.h"
#include "commit.h"

enum { RUNS = 5, TG_TOKENS = 32, TESTS_MAX = 16, THREADS_MAX = 256 };

struct bench {
    const char *prompt, *depth, *batch, *resume, *kv; /* as on the command line: lists, "none", or NULL */
    const char *backend, *variant, *threads, *name;   /* as on the command line, or NULL */
    const char *commit;
    bool json, csv, load, socket;
    const char *goodput;
    struct hearth_sampling arrivals; /* only the seed is used */
    struct load_params clients;
};

/* --- through a daemon ----------------------------------------------------------------------------------------- */

/* Returns a random token id, so that no two prompts start alike and share KV. */
static int32_t some_id(int64_t vocab)
{
    static uint64_t state;
    if (!state)
        state = bench_fresh();
    return (int32_t)(bench_random(&state) % (uint64_t)vocab);
}

/* When tokens arrived. Several may arrive together; the first one is always sent at once. */
struct arrivals {
    double first, last;
    size_t n_first, n;
};

static int on_event(void *arg, const struct hearth_event *ev)
{
    struct arrivals *a = arg;
    if (ev->type != HEARTH_EVENT_TOKENS || !ev->body.tokens->tokens.n)
        return 0;
    a->last = bench_now();
    a->n += ev->body.tokens->tokens.n;
    if (!a->n_first) {
        a->first = a->last;
        a->n_first = a->n;
    }
    return 0;
}

/*
 * Measures RUNS generations after n_prompt tokens and returns the median in milliseconds: of the time from the request
 * to the first token where n_new is 1, else of the time per token after the first. A timed prompt is new in every run.
 * The prompt before a timed decode is computed by the warm-up run and then cached, as hearth-bench does: a GPU that has
 * just computed a long prompt is at its power limit, and its clock is slower for some 50 ms.
 */
static int measure(struct hearth *h, const struct hearth_model *m, int32_t n_prompt, int32_t n_new, double *median,
                   struct hearth_err *err)
{
    double ms[RUNS];
    int rc = 0;
    int32_t *ids = malloc((size_t)n_prompt * sizeof *ids);
    if (!ids)
        abort();
    for (int i = -1; i < RUNS && !rc; i++) { /* the first run is the warm-up */
        for (int32_t t = 0; t < n_prompt && (i < 0 || n_new == 1); t++)
            ids[t] = some_id(m->vocab);
        struct hearth_generate g;
        struct hearth_generate_result *r;
        struct arrivals a = {0};
        hearth_generate_init(&g, sizeof g);
        g.model = m->path;
        g.tokens = (struct hearth_ids){ids, (size_t)n_prompt};
        g.max_tokens = n_new;
        g.sampling.temperature = 0;
        double begun = bench_now();
        if ((rc = hearth_run(h, &g, on_event, &a, NULL, &r, err)))
            break;
        /* An end token may come early. Only the time per token is measured, so a few tokens are enough. */
        if (n_new == 1 ? !a.n : a.n == a.n_first) {
            rc = err->code = HEARTH_EINTERNAL;
            snprintf(err->msg, sizeof err->msg, "%s ends its text at once: it cannot be measured", m->name);
        } else if (i >= 0) {
            ms[i] = n_new == 1 ? a.first - begun : (a.last - a.first) / (double)(a.n - a.n_first);
        }
        hearth_free(r);
    }
    free(ids);
    if (!rc)
        *median = bench_quantile(ms, RUNS, 0.5);
    return rc;
}

static int bench_tests(struct hearth *h, const struct hearth_model *m, const char *name, struct hearth_ids sizes,
                       json_t *results, struct hearth_err *err)
{
    bool tg = !strcmp(name, "tg@");
    for (size_t i = 0; i < sizes.n; i++) {
        /* A depth of 0 still needs a prompt of one token; TG_TOKENS intervals are one more token. */
        int32_t n_prompt = sizes.v[i] > 0 ? sizes.v[i] : 1, n_timed = tg ? 1 : n_prompt;
        double ms;
        int rc = measure(h, m, n_prompt, tg ? TG_TOKENS + 1 : 1, &ms, err);
        if (rc)
            return rc;
        char test[32];
        snprintf(test, sizeof test, "%s%d", name, (int)sizes.v[i]);
        json_array_append_new(results, json_pack("{s:s, s:f, s:f, s:i, s:i}", "test", test, "ms", ms, "tok_per_s",
                                                 n_timed * 1000 / ms, "tokens", (int)n_timed, "runs", RUNS));
    }
    return 0;
}

/* Prints a CSV field, quoted where a model's name requires it. */
static void print_field(const char *s)
{
    bool quoted = s[strcspn(s, ",\"\r\n")];
    if (quoted)
        putchar('"');
    for (; *s; s++)
        printf(*s == '"' ? "\"\"" : "%c", *s);
    if (quoted)
        putchar('"');
}

static int bench_socket(struct hearth *h, const struct hearth_model *m, const struct bench *b, struct hearth_ids prompt,
                        struct hearth_ids depth)
{
    struct hearth_err err;
    json_t *results = json_array();
    if (bench_tests(h, m, "pp", prompt, results, &err) || bench_tests(h, m, "tg@", depth, results, &err)) {
        json_decref(results);
        return fail(&err);
    }
    if (b->json)
        return print_json(json_pack("{s:o, s:o, s:o, s:o, s:o, s:s, s:o}", "commit", json_str(b->commit), "model",
                                    json_str(b->name ? b->name : m->name), "path", json_str(m->path), "arch",
                                    json_str(m->arch), "type", json_str(m->type), "device", "socket", "results",
                                    results));
    size_t i;
    json_t *r;
    if (b->csv) {
        puts("commit,device,model,test,ms,tok_per_s,ceiling_share,logits_hash");
        json_array_foreach(results, i, r)
        {
            print_field(b->commit);
            fputs(",socket,", stdout);
            print_field(b->name ? b->name : m->name);
            printf(",%s,%.4f,%.1f,,\n", json_string_value(json_object_get(r, "test")),
                   json_real_value(json_object_get(r, "ms")), json_real_value(json_object_get(r, "tok_per_s")));
        }
        json_decref(results);
        return STATUS_OK;
    }
    struct table t = {0};
    table_add(&t, 3, "TEST", "MS", "TOK/S");
    json_array_foreach(results, i, r)
    {
        char ms[32], rate[32];
        snprintf(ms, sizeof ms, "%.2f", json_real_value(json_object_get(r, "ms")));
        snprintf(rate, sizeof rate, "%.1f", json_real_value(json_object_get(r, "tok_per_s")));
        table_add(&t, 3, json_string_value(json_object_get(r, "test")), ms, rate);
    }
    table_print(&t);
    json_decref(results);
    return STATUS_OK;
}

/* --- without a daemon ----------------------------------------------------------------------------------------- */

/* Replaces this process with hearth-bench, which parses the options, measures, and prints the results and errors. */
static int bench_alone(const char *model, const struct bench *b)
{
    char path[PATH_MAX];
    struct hearth_err err = {.code = HEARTH_EIO};
    if (!program_find("hearth-bench", path, sizeof path)) {
        snprintf(err.msg, sizeof err.msg, "hearth-bench is not installed beside this program");
        return fail(&err);
    }
    const char *const given[][2] = {{"--prompt", b->prompt},   {"--depth", b->depth},     {"--batch", b->batch},
                                    {"--resume", b->resume},   {"--kv", b->kv},           {"--backend", b->backend},
                                    {"--variant", b->variant}, {"--threads", b->threads}, {"--name", b->name},
                                    {"--commit", b->commit}};
    const char *argv[2 * sizeof given / sizeof *given + 7];
    size_t n = 0;
    argv[n++] = path;
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        if (!given[i][1])
            continue;
        argv[n++] = given[i][0];
        argv[n++] = given[i][1];
    }
    if (b->load)
        argv[n++] = "--load";
    if (b->json)
        argv[n++] = "--json";
    if (b->csv)
        argv[n++] = "--csv";
    argv[n++] = "--"; /* a file name may begin with a dash */
    argv[n++] = model;
    argv[n] = NULL;
    execv(path, (char *const *)argv);
    snprintf(err.msg, sizeof err.msg, "%.100s: %s", path, strerror(errno));
    return fail(&err);
}

/* Checks --threads, which only hearth-bench uses, before starting it: hearth-bench's usage text lists options that this
 * verb does not have. */
static void check_alone(const struct cmd *cmd, const struct bench *b)
{
    int64_t n;
    const struct opt threads = {"threads", 0, OPT_INT, &n, 0, THREADS_MAX, NULL, NULL};
    if (b->threads)
        opt_check(cmd, &threads, b->threads);
}

/* Parses "128,512" as hearth-bench does; "none" is the empty list. */
static bool sizes_parse(const char *text, long least, struct hearth_ids *out)
{
    if (!strcmp(text, "none"))
        return true;
    int32_t *v = malloc(TESTS_MAX * sizeof *v);
    if (!v)
        abort();
    out->v = v;
    for (;;) {
        char *end;
        long size = strtol(text, &end, 10);
        if (end == text || (*end && *end != ',') || size < least || size > INT32_MAX || out->n == TESTS_MAX)
            return false;
        v[out->n++] = (int32_t)size;
        if (!*end)
            return true;
        text = end + 1;
    }
}

/* --- many clients --------------------------------------------------------------------------------------------- */

/* Parses "ttft:200,tpot:20": limits in milliseconds, each at most once. */
static bool goodput_parse(const char *text, struct load_params *p)
{
    const struct {
        const char *name;
        double *to;
    } bounds[] = {{"ttft:", &p->ttft}, {"tpot:", &p->tpot}, {"e2el:", &p->e2el}};
    bool given[3] = {false};
    p->goodput = true;
    for (;;) {
        char *end;
        size_t i = 0;
        while (i < 3 && strncmp(text, bounds[i].name, 5) != 0)
            i++;
        if (i == 3 || given[i])
            return false;
        given[i] = true;
        *bounds[i].to = strtod(text + 5, &end);
        if (end == text + 5 || !(*bounds[i].to > 0) || (*end && *end != ','))
            return false;
        if (!*end)
            return true;
        text = end + 1;
    }
}

/* Checks and completes the options that go with --clients. Returns STATUS_OK, or the exit status after printing the
 * reason. */
static int load_parse(const struct cmd *cmd, struct bench *b)
{
    struct load_params *p = &b->clients;
    if (b->depth || b->batch || b->resume || b->kv || b->load || b->socket || b->csv || b->backend || b->variant ||
        b->threads || b->name || b->commit)
        return usage(cmd, "--clients goes with --prompt, --output, --requests, --rate, --seed, --shared, --late, "
                          "--arrivals, --goodput and --json");
    const struct opt prompt = {"prompt", 0, OPT_INT, &p->prompt, 1, 1 << 20, NULL, NULL};
    if (b->prompt)
        opt_check(cmd, &prompt, b->prompt);
    if (b->goodput && !goodput_parse(b->goodput, p))
        return usage(cmd, "--goodput wants milliseconds, each once, as in ttft:200,tpot:20,e2el:5000, not '%s'",
                     b->goodput);
    if (p->shared > p->prompt)
        return usage(cmd, "--shared: a prompt of %lld ids has no %lld to share", (long long)p->prompt,
                     (long long)p->shared);
    if (p->late && p->rate > 0)
        return usage(cmd, "--late waits for the moment in which all clients decode, which --rate does not make");
    if (b->arrivals.has_seed && !p->late && !(p->rate > 0))
        return usage(cmd, "--seed goes with --rate or --late");
    p->output = p->output ? p->output : 128;
    if (!p->requests)
        p->requests = p->clients;
    if (p->requests < p->clients)
        return usage(cmd, "%lld clients have %lld requests in all", (long long)p->clients, (long long)p->requests);
    if (p->requests > LOAD_IDS_MAX / (p->prompt + p->output))
        return usage(cmd, "%lld requests of %lld ids and %lld tokens: %lld in all are the most", (long long)p->requests,
                     (long long)p->prompt, (long long)p->output, (long long)LOAD_IDS_MAX);
    if (p->arrivals && !p->late)
        return usage(cmd, "--arrivals goes with --late");
    p->arrivals = p->arrivals ? p->arrivals : 1;
    p->seed = b->arrivals.seed;
    p->json = b->json;
    return STATUS_OK;
}

static int run_clients(const struct cmd *cmd, struct bench *b, const char *operand)
{
    struct hearth *h;
    struct hearth_model *m;
    struct hearth_err err;
    int status = load_parse(cmd, b);
    if (status != STATUS_OK || (status = daemon_open(&h)) != STATUS_OK)
        return status;
    char *model = model_resolve(operand);
    if (hearth_models_show(h, model, &m, NULL, &err)) {
        status = fail(&err);
    } else {
        status = bench_load(h, m, &b->clients);
        hearth_free(m);
    }
    hearth_close(h);
    free(model);
    return status;
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    struct bench b = {.clients = {.prompt = 512}};
    const struct opt own[] = {
        {"prompt", 0, OPT_TEXT, &b.prompt, 0, 0, "N,...",
         "tokens of the prompt in ppN (128; of --clients 512), or none"},
        {"depth", 0, OPT_TEXT, &b.depth, 0, 0, "N,...", "tokens before the 32 of tg@N (0), or none"},
        {"batch", 0, OPT_TEXT, &b.batch, 0, 0, "N,...",
         "not with --socket: sequences that decode together, batchN@512"},
        {"resume", 0, OPT_TEXT, &b.resume, 0, 0, "N,...", "not with --socket: tokens resident before resume@N"},
        {"kv", 0, OPT_TEXT, &b.kv, 0, 0, "N,...",
         "not with --socket: tokens whose KV goes to the host and back, kv_save@N"},
        {"load", 0, OPT_FLAG, &b.load, 0, 0, NULL, "not with --socket: from the file to the first token"},
        {"socket", 0, OPT_FLAG, &b.socket, 0, 0, NULL, "as a client of the daemon sees it"},
        {"backend", 0, OPT_TEXT, &b.backend, 0, 0, "NAME", "not with --socket: cpu, cuda or auto"},
        {"variant", 0, OPT_TEXT, &b.variant, 0, 0, "NAME", "not with --socket: of the backend, e.g. reference"},
        {"threads", 0, OPT_TEXT, &b.threads, 0, 0, "N", "not with --socket: of the CPU"},
        {"clients", 0, OPT_INT, &b.clients.clients, 1, 4096, "N",
         "so many at once, through the daemon, as vLLM's benchmark"},
        {"output", 0, OPT_INT, &b.clients.output, 1, 1 << 20, "N", "with --clients: tokens of an answer (128)"},
        {"requests", 0, OPT_INT, &b.clients.requests, 1, 1 << 20, "N", "... of all clients together (one each)"},
        {"rate", 0, OPT_REAL, &b.clients.rate, 1e-3, 1e6, "R",
         "... that arrive in a second, at random; else one after another"},
        {"seed", 0, OPT_SEED, &b.arrivals, 0, 0, "S", "... of these arrivals (0)"},
        {"shared", 0, OPT_INT, &b.clients.shared, 0, 1 << 20, "N", "... tokens that all prompts begin with (0)"},
        {"late", 0, OPT_INT, &b.clients.late, 1, 1 << 20, "N", "... tokens of a prompt that comes while all decode"},
        {"arrivals", 0, OPT_INT, &b.clients.arrivals, 1, 1000, "N", "... of so many such prompts the medians (1)"},
        {"goodput", 0, OPT_TEXT, &b.goodput, 0, 0, "ttft:MS,...", "... what a request must keep: ttft, tpot, e2el"},
        {"json", 0, OPT_FLAG, &b.json, 0, 0, NULL, "one JSON object"},
        {"csv", 0, OPT_FLAG, &b.csv, 0, 0, NULL, "a line of CSV per test"},
        {"name", 0, OPT_TEXT, &b.name, 0, 0, "NAME", "the model's, for --csv and --json"},
        {"commit", 0, OPT_TEXT, &b.commit, 0, 0, "ID", "of the build (as built), for --csv and --json"},
        OPT_END,
    };
    opts_parse(cmd, &argc, &argv, own, NULL);
    if (argc != 1)
        return usage(cmd, "name one model");
    if (b.json && b.csv)
        return usage(cmd, "--json or --csv, not both");
    if (b.clients.clients)
        return run_clients(cmd, &b, argv[0]);
    if (b.clients.output || b.clients.requests || b.clients.rate > 0 || b.clients.shared || b.clients.late ||
        b.clients.arrivals || b.goodput || b.arrivals.has_seed)
        return usage(cmd, "--output, --requests, --rate, --seed, --shared, --late, --arrivals and --goodput go with "
                          "--clients");
    b.prompt = b.prompt ? b.prompt : "128";
    b.depth = b.depth ? b.depth : "0";
    b.commit = b.commit ? b.commit : HEARTH_COMMIT;
    if (b.socket && (b.backend || b.variant || b.threads))
        return usage(cmd, "--socket measures the daemon's engine as it is");
    if (b.socket && (b.batch || b.resume || b.kv || b.load))
        return usage(cmd, "--batch, --resume, --kv and --load are not measured through --socket");

    check_alone(cmd, &b);
    struct hearth_ids prompt = {0}, depth = {0};
    char *model = model_resolve(argv[0]);
    struct hearth *h;
    int status;
    if (!sizes_parse(b.prompt, 1, &prompt)) {
        status = usage(cmd, "--prompt wants up to %d numbers from 1 on, as in \"128,512\", or none, not '%s'",
                       TESTS_MAX, b.prompt);
    } else if (!sizes_parse(b.depth, 0, &depth)) {
        status = usage(cmd, "--depth wants up to %d numbers from 0 on, as in \"128,512\", or none, not '%s'", TESTS_MAX,
                       b.depth);
    } else if (*model == '/' && !b.socket) {
        status = bench_alone(model, &b);
    } else if (!(status = daemon_open(&h))) { /* only the daemon knows the path of a named model */
        struct hearth_model *m;
        struct hearth_err err;
        if (hearth_models_show(h, model, &m, NULL, &err)) {
            status = fail(&err);
        } else {
            status = b.socket ? bench_socket(h, m, &b, prompt, depth) : bench_alone(m->path, &b);
            hearth_free(m);
        }
        hearth_close(h);
    }
    free((void *)prompt.v);
    free((void *)depth.v);
    free(model);
    return status;
}

const struct cmd cmd_bench = {"bench", "MODEL [--prompt N,...] [--depth N,...] [--socket | --clients N] [--json]",
                              "how fast a model is", run};
