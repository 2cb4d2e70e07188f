/* cmd-list.c - hearth list: the models that can be named. */
#include "client/cmd.h"

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
    struct hearth_models_list_result *r;
    struct hearth_err err;
    if (hearth_models_list(h, &r, NULL, &err)) {
        hearth_close(h);
        return fail(&err);
    }
    if (json) {
        json_t *a = json_array();
        for (size_t i = 0; i < r->n_models; i++)
            json_array_append_new(a, json_model(&r->models[i], false));
        status = print_json(json_pack("{s:o}", "models", a));
    } else {
        struct table t = {0};
        table_add(&t, 4, "NAME", "SIZE", "CHANGED", "PATH");
        for (size_t i = 0; i < r->n_models; i++) {
            const struct hearth_model *m = &r->models[i];
            table_add(&t, 4, m->name, human_bytes(m->bytes), human_ago(m->modified), m->path);
        }
        table_print(&t);
    }
    hearth_free(r);
    hearth_close(h);
    return status;
}

const struct cmd cmd_list = {"list", "[--json]", "models that can be named", run};
