/* cmd-stop.c - hearth stop: unload a model, or end the daemon. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "client/cmd.h"

static int stop_model(struct hearth *h, const char *name)
{
    char *model = model_resolve(name);
    struct hearth_err err;
    int rc = hearth_models_unload(h, model, NULL, &err);
    free(model);
    return rc ? fail(&err) : STATUS_OK;
}

/* A daemon is ended as any is, with SIGTERM: what runs may finish first. With --now, SIGQUIT: it may not. Its end is
 * seen on the connection, which closes last. */
static int stop_daemon(struct hearth *h, bool now)
{
    struct hearth_status_result *r;
    struct hearth_err err;
    if (hearth_status(h, &r, NULL, &err))
        return fail(&err);
    pid_t pid = (pid_t)r->pid;
    hearth_free(r);
    if (pid <= 1 || kill(pid, now ? SIGQUIT : SIGTERM)) {
        fprintf(stderr, "hearth: the daemon, process %d, cannot be ended: %s\n", (int)pid, strerror(errno));
        return STATUS_ERROR;
    }
    struct hearth_event ev;
    while (hearth_wait(h, -1, NULL, &err) >= 0)
        while (hearth_next(h, &ev, &err) > 0)
            continue;
    return STATUS_OK;
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    bool daemon = false, now = false;
    const struct opt own[] = {
        {"daemon", 0, OPT_FLAG, &daemon, 0, 0, NULL, "end the daemon, when what runs has finished"},
        {"now", 0, OPT_FLAG, &now, 0, 0, NULL, "with --daemon: cancel what runs"},
        OPT_END,
    };
    opts_parse(cmd, &argc, &argv, own, NULL);
    if (argc != (daemon ? 0 : 1) || (now && !daemon))
        return usage(cmd, "name one model, or say --daemon");

    struct hearth *h;
    int status = daemon_open_running(&h);
    if (status != STATUS_OK)
        return status;
    status = daemon ? stop_daemon(h, now) : stop_model(h, argv[0]);
    hearth_close(h);
    return status;
}

const struct cmd cmd_stop = {"stop", "MODEL | --daemon [--now]", "unload a model, or end the daemon", run};
