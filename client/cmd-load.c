/* cmd-load.c - hearth load: bring a model into memory before somebody waits for it. */
#include <stdlib.h>

#include "client/cmd.h"

static int on_event(void *arg, const struct hearth_event *ev)
{
    (void)arg;
    if (ev->type == HEARTH_EVENT_PROGRESS)
        progress_show(ev->body.progress);
    return 0;
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    bool json = false;
    const struct opt own[] = {{"json", 0, OPT_FLAG, &json, 0, 0, NULL, "one JSON object"}, OPT_END};
    opts_parse(cmd, &argc, &argv, own, NULL);
    if (argc != 1)
        return usage(cmd, "name one model");

    struct hearth *h;
    int status = daemon_open(&h);
    if (status != STATUS_OK)
        return status;
    char *model = model_resolve(argv[0]);
    struct hearth_model_load_result *r;
    struct hearth_err err;
    if (hearth_models_load(h, model, on_event, NULL, NULL, &r, &err)) {
        status = fail(&err);
    } else {
        progress_clear();
        if (json)
            status = print_json(json_pack("{s:o, s:o, s:f, s:b}", "model", json_str(r->model), "path",
                                          json_str(r->path), "load_ms", r->load_ms, "was_loaded", r->was_loaded));
        else if (r->was_loaded)
            printf("%s is in memory already\n", r->model);
        else
            printf("%s loaded in %.0f ms\n", r->model, r->load_ms);
        hearth_free(r);
    }
    free(model);
    hearth_close(h);
    return status;
}

const struct cmd cmd_load = {"load", "MODEL [--json]", "bring a model into memory", run};
