/* cmd-list.c - hearth list: the models that can be named. */
#include "client/cmd.h"

static json_t *json_models(const struct hearth_models_list_result *r)
{
    json_t *a = json_array();
    for (size_t i = 0; i < r->n_models; i++)
        json_array_append_new(a, json_model(&r->models[i], false));
    return json_pack("{s:o}", "models", a);
}

static void print_models(const struct hearth_models_list_result *r)
{
    struct table t = {.has_head = true};
    table_add(&t, 4, "NAME", "SIZE", "CHANGED", "PATH");
    for (size_t i = 0; i < r->n_models; i++) {
        const struct hearth_model *m = &r->models[i];
        table_add(&t, 4, m->name, human_bytes(m->bytes), human_ago(m->modified), m->path);
    }
    table_print(&t);
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    struct hearth *h;
    bool json;
    int status = verb_begin(cmd, &argc, &argv, NULL, &json, &h);
    if (status != STATUS_OK)
        return status;
    struct hearth_models_list_result *r;
    struct hearth_err err;
    if (hearth_models_list(h, &r, NULL, &err))
        return verb_end(h, NULL, fail(&err));
    if (json)
        status = print_json(json_models(r));
    else
        print_models(r);
    return verb_end(h, r, status);
}

const struct cmd cmd_list = {"list", "[--json]", "models that can be named", run};
