/* cmd-load.c - hearth load: loads a model into memory ahead of its first request. */
#include <stdlib.h>

#include "client/cmd.h"

static int run(const struct cmd *cmd, int argc, char **argv)
{
    struct hearth *h;
    bool json;
    int status = verb_begin(cmd, &argc, &argv, "model", &json, &h);
    if (status != STATUS_OK)
        return status;
    char *model = model_resolve(argv[0]);
    struct hearth_model_load_result *r;
    struct hearth_err err;
    int rc = hearth_models_load(h, model, progress_event, NULL, NULL, &r, &err);
    free(model);
    progress_clear();
    if (rc)
        return verb_end(h, NULL, fail(&err));
    if (json)
        status =
            print_json(json_pack("{s:o, s:o, s:f, s:b, s:o, s:o, s:o, s:I, s:I, s:f}", "model", json_str(r->model),
                                 "path", json_str(r->path), "load_ms", r->load_ms, "was_loaded", r->was_loaded, "where",
                                 json_str(r->where), "no_gpu", json_str(r->no_gpu), "slow", json_strs(r->slow), "bytes",
                                 (json_int_t)r->bytes, "host_bytes", (json_int_t)r->host_bytes, "speed", r->speed));
    else if (r->was_loaded)
        printf_text("%s is in memory already\n", r->model);
    else
        printf_text("%s loaded in %.0f ms\n", r->model, r->load_ms);
    if (!json && r->no_gpu)
        printf_text("  WARNING  %s runs on the CPU: %s\n", r->model, r->no_gpu);
    for (size_t i = 0; !json && i < r->slow.n; i++)
        printf_text("  slower   %s\n", r->slow.v[i]);
    return verb_end(h, r, status);
}

const struct cmd cmd_load = {"load", "MODEL [--json]", "bring a model into memory", run};
