/* cmd-stop.c - hearth stop: unloads a model, or shuts the daemon down. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "client/cmd.h"

static int stop_model(struct hearth *h, const char *name)
{
    char *model = model_resolve(name);
    struct hearth_err err;
    int rc = hearth_models_unload(h, model, NULL, &err);
    free(model);
    return rc ? fail(&err) : STATUS_OK;
}

/* The connection closes before the process exits, and by then its pid may belong to another process: so this waits on a
 * pidfd. */
int daemon_stop(struct hearth *h, bool now)
{
    struct hearth_status_result *r;
    struct hearth_err err;
    if (hearth_status(h, &r, NULL, &err))
        return fail(&err);
    struct pollfd ended = {.fd = pidfd_open((pid_t)r->pid, 0), .events = POLLIN};
    hearth_free(r);
    int status = hearth_shutdown(h, now, NULL, &err) ? fail(&err) : STATUS_OK;
    while (status == STATUS_OK && ended.fd >= 0 && poll(&ended, 1, -1) < 0 && errno == EINTR)
        continue;
    if (ended.fd >= 0)
        close(ended.fd);
    return status;
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    bool daemon = false, now = false, json = false;
    const struct opt own[] = {
        {"daemon", 0, OPT_FLAG, &daemon, 0, 0, NULL, "end the daemon, when what runs has finished"},
        {"now", 0, OPT_FLAG, &now, 0, 0, NULL, "with --daemon: cancel what runs"},
        {"json", 0, OPT_FLAG, &json, 0, 0, NULL, "{\"stopped\":...}: the model, or \"hearthd\""},
        OPT_END,
    };
    opts_parse(cmd, &argc, &argv, own, NULL);
    if (argc != (daemon ? 0 : 1) || (now && !daemon))
        return usage(cmd, "name one model, or say --daemon");

    struct hearth *h;
    int status = daemon_open_running(&h);
    if (status != STATUS_OK)
        return status;
    status = daemon ? daemon_stop(h, now) : stop_model(h, argv[0]);
    if (json && status == STATUS_OK)
        status = print_json(json_pack("{s:o}", "stopped", json_str(daemon ? "hearthd" : argv[0])));
    hearth_close(h);
    return status;
}

const struct cmd cmd_stop = {"stop", "MODEL | --daemon [--now] [--json]", "unload a model, or end the daemon", run};
