/* cmd-serve.c - hearth serve: becomes the daemon, in the foreground. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cmd.h"

/* Reports a daemon that answers already: a second hearthd would exit successfully without a message. */
static bool is_served(void)
{
    struct hearth *h;
    struct hearth_status_result *r;
    if (hearth_open(&h, NULL, NULL))
        return false;
    bool yes = !hearth_status(h, &r, NULL, NULL);
    if (yes) {
        say("hearth: a daemon is running already, pid %lld, at %s\n", (long long)r->pid, r->socket);
        hearth_free(r);
    }
    hearth_close(h);
    return yes;
}

/* All arguments after the verb are passed to hearthd, which parses them; hearthd(8) documents them. */
static int run(const struct cmd *cmd, int argc, char **argv)
{
    (void)cmd;
    if (argc == 1 && is_served())
        return STATUS_OK;
    char path[PATH_MAX];
    if (!program_find("hearthd", path, sizeof path)) {
        fputs("hearth: hearthd is not installed beside this program\n", stderr);
        return STATUS_ERROR;
    }
    char **args = calloc((size_t)argc + 2, sizeof *args);
    if (!args)
        abort();
    args[0] = path;
    args[1] = (char *)"--foreground";
    memcpy(args + 2, argv + 1, (size_t)(argc - 1) * sizeof *args);
    execv(path, args);
    perror(path);
    free(args);
    return STATUS_ERROR;
}

const struct cmd cmd_serve = {"serve", "[HEARTHD-OPTION...]", "run the daemon in the foreground", run};
