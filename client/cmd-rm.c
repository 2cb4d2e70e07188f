/* cmd-rm.c - hearth rm: remove sessions. */
#include "client/cmd.h"

static int run(const struct cmd *cmd, int argc, char **argv)
{
    bool json = false;
    const struct opt own[] = {{"json", 0, OPT_FLAG, &json, 0, 0, NULL, "{\"removed\": [...]}"}, OPT_END};
    opts_parse(cmd, &argc, &argv, own, NULL);
    if (!argc)
        return usage(cmd, "name the sessions to remove");

    struct hearth *h;
    int status = daemon_open(&h);
    if (status != STATUS_OK)
        return status;
    json_t *removed = json_array();
    for (int i = 0; i < argc; i++) { /* one that cannot be removed does not keep the others */
        struct hearth_err err;
        if (hearth_sessions_remove(h, argv[i], NULL, &err))
            status = fail(&err);
        else
            json_array_append_new(removed, json_str(argv[i]));
    }
    if (json && print_json(json_pack("{s:O}", "removed", removed)) != STATUS_OK)
        status = STATUS_ERROR;
    json_decref(removed);
    hearth_close(h);
    return status;
}

const struct cmd cmd_rm = {"rm", "SESSION... [--json]", "remove sessions", run};
