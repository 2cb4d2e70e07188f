/* cmd-pin.c - hearth pin: keeps a model in memory. */
#include <stdlib.h>

#include "client/cmd.h"

static int run(const struct cmd *cmd, int argc, char **argv)
{
    struct hearth *h;
    bool json, off = false;
    const struct opt own[] = {
        {"off", 0, OPT_FLAG, &off, 0, 0, NULL, "the opposite"},
        OPT_END,
    };
    int status = verb_begin_with(cmd, &argc, &argv, own, "model", &json, &h);
    if (status != STATUS_OK)
        return status;
    char *model = model_resolve(argv[0]);
    struct hearth_model_load_result *r;
    struct hearth_err err;
    int rc = hearth_models_pin(h, model, !off, progress_event, NULL, NULL, &r, &err);
    free(model);
    progress_clear();
    if (rc)
        return verb_end(h, NULL, fail(&err));
    if (json)
        status = print_json(
            json_pack("{s:o, s:o, s:b}", "model", json_str(r->model), "path", json_str(r->path), "pinned", !off));
    return verb_end(h, r, status);
}

const struct cmd cmd_pin = {"pin", "MODEL [--off] [--json]", "a model that stays in memory", run};
