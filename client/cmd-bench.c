/* cmd-bench.c - hearth bench: how fast a model is, in the engine alone or (--socket) as a client sees it. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cmd.h"

enum { REPEATS = 5, DECODE_TOKENS = 32 };

/* An id per call: a small linear congruence, so that no prompt of a run shares a prefix with another one and finds
 * its KV. */
static int32_t some_id(uint32_t *state, int64_t vocab)
{
    *state = *state * 1664525u + 1013904223u;
    return (int32_t)((*state >> 8) % (uint32_t)vocab);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median rate of REPEATS generations that follow n_prompt fresh tokens: of the prompt where n_new is 1, else of
 * the new tokens. */
static int measure(struct hearth *h, const struct hearth_model *m, int64_t n_prompt, int64_t n_new, double *rate,
                   struct hearth_err *err)
{
    static uint32_t state = 1;
    double rates[REPEATS];
    int32_t *ids = malloc((size_t)n_prompt * sizeof *ids);
    if (!ids)
        abort();
    int rc = 0;
    for (int i = -1; i < REPEATS && !rc; i++) { /* the first warms up and does not count */
        for (int64_t t = 0; t < n_prompt; t++)
            ids[t] = some_id(&state, m->vocab);
        struct hearth_generate g;
        struct hearth_generate_result *r;
        hearth_generate_init(&g, sizeof g);
        g.model = m->path;
        g.tokens = (struct hearth_ids){ids, (size_t)n_prompt};
        g.max_tokens = n_new;
        g.sampling.temperature = 0;
        rc = hearth_run(h, &g, NULL, NULL, NULL, &r, err);
        if (rc)
            break;
        if (i >= 0)
            rates[i] = n_new > 1 ? r->timings.tokens_per_second
                                 : (double)r->usage.computed_tokens * 1000 / r->timings.prefill_ms;
        hearth_free(r);
    }
    free(ids);
    if (rc)
        return rc;
    qsort(rates, REPEATS, sizeof *rates, by_value);
    *rate = rates[REPEATS / 2];
    return 0;
}

static int bench_socket(struct hearth *h, const struct hearth_model *m, int64_t prompt, int64_t depth, bool json)
{
    struct hearth_err err;
    double pp = 0, tg = 0;
    int rc = measure(h, m, prompt, 1, &pp, &err);
    /* A depth of 0 still needs one token to go on from. */
    if (!rc)
        rc = measure(h, m, depth ? depth : 1, DECODE_TOKENS + 1, &tg, &err);
    if (rc)
        return fail(&err);
    char pp_name[32], tg_name[32];
    snprintf(pp_name, sizeof pp_name, "pp%lld", (long long)prompt);
    snprintf(tg_name, sizeof tg_name, "tg@%lld", (long long)depth);
    if (json)
        return print_json(json_pack("{s:o, s:f, s:f}", "model", json_str(m->name), pp_name, pp, tg_name, tg));
    printf("%-8s %10.1f tokens/s\n%-8s %10.1f tokens/s\n", pp_name, pp, tg_name, tg);
    return STATUS_OK;
}

/* In the engine alone: it becomes the engine, which measures and prints. */
static int bench_engine(const char *path, int64_t prompt, int64_t depth, bool json)
{
    char engine[PATH_MAX], n_prompt[24], n_depth[24];
    if (!program_find("hearth-engine", engine, sizeof engine)) {
        fputs("hearth: hearth-engine is not installed beside this program\n", stderr);
        return STATUS_ERROR;
    }
    snprintf(n_prompt, sizeof n_prompt, "%lld", (long long)prompt);
    snprintf(n_depth, sizeof n_depth, "%lld", (long long)depth);
    execl(engine, engine, "--bench", path, "--prompt", n_prompt, "--depth", n_depth, json ? "--json" : (char *)NULL,
          (char *)NULL);
    perror(engine);
    return STATUS_ERROR;
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    int64_t prompt = 128, depth = 0;
    bool json = false, through_socket = false;
    const struct opt own[] = {
        {"prompt", 0, OPT_INT, &prompt, 1, 1 << 20, "N", "tokens of the prompt in ppN (128)"},
        {"depth", 0, OPT_INT, &depth, 0, 1 << 20, "N", "tokens before the 32 of tg@N (0)"},
        {"socket", 0, OPT_FLAG, &through_socket, 0, 0, NULL, "as a client of the daemon sees it"},
        {"json", 0, OPT_FLAG, &json, 0, 0, NULL, "one JSON object"},
        OPT_END,
    };
    opts_parse(cmd, &argc, &argv, own, NULL);
    if (argc != 1)
        return usage(cmd, "name one model");

    char *model = model_resolve(argv[0]);
    if (*model == '/' && !through_socket)
        return bench_engine(model, prompt, depth, json);
    /* Where the model of a name lies is the daemon's knowledge. */
    struct hearth *h;
    int status = daemon_open(&h);
    if (status == STATUS_OK) {
        struct hearth_model *m;
        struct hearth_err err;
        if (hearth_models_show(h, model, &m, NULL, &err)) {
            status = fail(&err);
        } else {
            status =
                through_socket ? bench_socket(h, m, prompt, depth, json) : bench_engine(m->path, prompt, depth, json);
            hearth_free(m);
        }
        hearth_close(h);
    }
    free(model);
    return status;
}

const struct cmd cmd_bench = {"bench", "MODEL [--prompt N] [--depth N] [--socket] [--json]", "how fast a model is",
                              run};
