/* cmd-rm.c - hearth rm: remove sessions. */
#include "client/cmd.h"

static int run(const struct cmd *cmd, int argc, char **argv)
{
    const struct opt own[] = {OPT_END};
    opts_parse(cmd, &argc, &argv, own, NULL);
    if (!argc)
        return usage(cmd, "name the sessions to remove");

    struct hearth *h;
    int status = daemon_open(&h);
    if (status != STATUS_OK)
        return status;
    for (int i = 0; i < argc; i++) { /* one that cannot be removed does not keep the others */
        struct hearth_err err;
        if (hearth_sessions_remove(h, argv[i], NULL, &err))
            status = fail(&err);
    }
    hearth_close(h);
    return status;
}

const struct cmd cmd_rm = {"rm", "SESSION...", "remove sessions", run};
