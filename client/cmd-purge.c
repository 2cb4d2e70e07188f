/* cmd-purge.c - hearth purge: removes everything that hearth has stored. hearthd itself removes what is its own
 * (daemon/purge.c), because it knows where the files are. */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cmd.h"
#include "client/lines.h"

/* Returns whether the daemon runs as this user; the machine-wide daemon runs as another user and stores that user's
 * files. */
static bool is_own(struct hearth *h)
{
    struct hearth_status_result *r;
    char proc[32];
    struct stat sb;
    if (hearth_status(h, &r, NULL, NULL))
        return false;
    snprintf(proc, sizeof proc, "/proc/%lld", (long long)r->pid);
    hearth_free(r);
    return !stat(proc, &sb) && sb.st_uid == geteuid();
}

/* Shuts down the user's daemon, if one runs, and waits until it has exited. */
static int end_daemon(void)
{
    struct hearth *h;
    if (hearth_open(&h, NULL, NULL))
        return STATUS_OK;
    int status = is_own(h) ? daemon_stop(h, false) : STATUS_OK;
    hearth_close(h);
    return status;
}

/* Removes the history of the chat prompt, which has what was said in the sessions. It lies in hearthd's folder, unless
 * that is configured to be another. */
static int remove_history(void)
{
    char path[PATH_MAX];
    lines_history_file(path, sizeof path);
    if (!*path || !unlink(path) || errno == ENOENT || errno == ENOTDIR)
        return STATUS_OK;
    say("hearth: %s: %s\n", path, strerror(errno));
    return STATUS_ERROR;
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    bool yes = false;
    const struct opt own[] = {
        {"yes", 'y', OPT_FLAG, &yes, 0, 0, NULL, "without a question"},
        OPT_END,
    };
    opts_parse(cmd, &argc, &argv, own, NULL);
    if (argc)
        return usage(cmd, "no argument is expected, not '%s'", argv[0]);
    char path[PATH_MAX], answer[8] = "";
    if (!program_find("hearthd", path, sizeof path)) {
        fputs("hearth: hearthd is not installed beside this program\n", stderr);
        return STATUS_ERROR;
    }
    if (!yes && !isatty(STDIN_FILENO))
        return usage(cmd, "without a terminal to ask at, say --yes");
    if (!yes) {
        fputs("All sessions of this hearthd, their KV, its log and the history of the chat prompt are removed, for\n"
              "good; models stay.\n"
              "`hearth backup FILE` keeps the sessions. Remove all that? [y/N] ",
              stderr);
        if (!fgets(answer, sizeof answer, stdin) || (*answer != 'y' && *answer != 'Y')) {
            fputs("Nothing was removed.\n", stderr);
            return STATUS_ERROR;
        }
    }
    int status = end_daemon();
    if (status == STATUS_OK)
        status = remove_history();
    if (status != STATUS_OK)
        return status;
    execl(path, path, "--purge", (char *)NULL);
    perror(path);
    return STATUS_ERROR;
}

const struct cmd cmd_purge = {"purge", "[--yes]", "remove all sessions, KV files, logs and the chat history", run};
