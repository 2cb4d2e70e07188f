/* cmd-eval.c - hearth eval: prints a model's logits, for tests and for studying models. */
#include <stdlib.h>

#include "client/cmd.h"

static json_t *json_top(const struct hearth_top *t)
{
    json_t *row = json_array();
    for (size_t i = 0; i < t->n; i++)
        json_array_append_new(row, json_pack("[I, f]", (json_int_t)t->v[i].id, t->v[i].logit));
    return row;
}

static int print_result(const struct hearth_eval_result *r, bool json)
{
    if (json) {
        json_t *top = json_array();
        for (size_t i = 0; i < r->n_top; i++)
            json_array_append_new(top, json_top(&r->top[i]));
        return print_json(json_pack("{s:o, s:o}", "top", top, "greedy", json_ids(r->greedy)));
    }
    for (size_t i = 0; i < r->n_top; i++) {
        printf("%zu:", i);
        for (size_t j = 0; j < r->top[i].n; j++)
            printf(" %lld=%.4f", (long long)r->top[i].v[j].id, r->top[i].v[j].logit);
        putchar('\n');
    }
    if (r->greedy.n)
        fputs("greedy:", stdout);
    for (size_t i = 0; i < r->greedy.n; i++)
        printf(" %d%s", (int)r->greedy.v[i], i + 1 < r->greedy.n ? "" : "\n");
    return STATUS_OK;
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    const char *name = NULL, *tokens = NULL;
    int64_t top = 8, greedy = 0;
    bool json = false;
    const struct opt own[] = {
        {"model", 'm', OPT_TEXT, &name, 0, 0, "MODEL", "a name or a path (tale)"},
        {"tokens", 't', OPT_TEXT, &tokens, 0, 0, "IDS", "token ids, as in \"1 2 3\"; without it, from stdin"},
        {"top", 0, OPT_INT, &top, 0, 1000, "N", "best logits of each position (8)"},
        {"greedy", 0, OPT_INT, &greedy, 0, 1 << 20, "N", "go on from the last position with the best tokens (0)"},
        {"json", 0, OPT_FLAG, &json, 0, 0, NULL, "{\"top\":[[[id,logit],...],...],\"greedy\":[...]}"},
        OPT_END,
    };
    opts_parse(cmd, &argc, &argv, own, NULL);
    if (argc)
        return usage(cmd, "token ids go into --tokens");

    struct hearth_err err;
    struct hearth_bytes in = {0};
    struct hearth_ids ids = {0};
    if (!tokens) {
        if (!read_stdin(&in, &err))
            return fail(&err);
        tokens = in.data;
    }
    bool parsed = ids_parse(tokens, in.data ? in.len : strlen(tokens), &ids);
    free((void *)in.data);
    if (!parsed || !ids.n) {
        free((void *)ids.v);
        return usage(cmd, "--tokens wants token ids, as in \"1 2 3\"");
    }
    struct hearth *h;
    int status = daemon_open(&h);
    if (status == STATUS_OK) {
        char *model = model_or_default(h, name);
        struct hearth_eval_result *r;
        if (hearth_eval(h, model, ids, top, greedy, &r, NULL, &err)) {
            status = fail(&err);
        } else {
            status = print_result(r, json);
            hearth_free(r);
        }
        free(model);
        hearth_close(h);
    }
    free((void *)ids.v);
    return status;
}

const struct cmd cmd_eval = {"eval", "[-m MODEL] [--tokens IDS] [--top N] [--greedy N] [--json]",
                             "logits of a model, position by position", run};
