/* cmd-ps.c - hearth ps: the models in memory. */
#include "client/cmd.h"

static void print_rows(const struct hearth_engine_status *e)
{
    struct table t = {0};
    table_add(&t, 6, "NAME", "SIZE", "WHERE", "CONTEXT", "RUNNING", "KV");
    for (size_t i = 0; i < e->n_models; i++) {
        const struct hearth_loaded_model *m = &e->models[i];
        char context[48], running[24];
        snprintf(context, sizeof context, "%lld/%lld", (long long)m->context_used, (long long)m->context);
        snprintf(running, sizeof running, "%lld", (long long)m->sequences);
        table_add(&t, 6, m->name, human_bytes(m->bytes), m->vocab_only ? "vocabulary" : m->where, context, running,
                  human_bytes(m->pages_used * m->page_bytes));
    }
    table_print(&t);
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    bool json = false;
    const struct opt own[] = {{"json", 0, OPT_FLAG, &json, 0, 0, NULL, "{\"models\": [...]}"}, OPT_END};
    opts_parse(cmd, &argc, &argv, own, NULL);
    if (argc)
        return usage(cmd, "no argument is expected");

    struct hearth *h;
    int status = daemon_open(&h);
    if (status != STATUS_OK)
        return status;
    struct hearth_status_result *r;
    struct hearth_err err;
    if (hearth_status(h, &r, NULL, &err)) {
        hearth_close(h);
        return fail(&err);
    }
    if (json)
        status = print_json(json_pack("{s:o}", "models", json_loaded_models(&r->engine)));
    else
        print_rows(&r->engine);
    hearth_free(r);
    hearth_close(h);
    return status;
}

const struct cmd cmd_ps = {"ps", "[--json]", "models in memory", run};
