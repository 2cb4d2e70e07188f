/* cmd-backup.c - hearth backup: copies all sessions into a file while the daemon runs. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cmd.h"

/* Makes the path absolute, because the daemon writes the file and has another working directory. */
static char *absolute(const char *file)
{
    char *dir = NULL, *path = NULL;
    if (*file == '/')
        path = strdup(file);
    else if ((dir = getcwd(NULL, 0)) && asprintf(&path, "%s/%s", dir, file) < 0)
        path = NULL;
    free(dir);
    return path;
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    bool json = false, force = false;
    const struct opt own[] = {
        {"force", 0, OPT_FLAG, &force, 0, 0, NULL, "replace the file if it is there"},
        {"json", 0, OPT_FLAG, &json, 0, 0, NULL, "{\"file\":...,\"bytes\":...}"},
        OPT_END,
    };
    opts_parse(cmd, &argc, &argv, own, NULL);
    if (argc != 1)
        return usage(cmd, "name one file");
    char *path = absolute(argv[0]);
    if (!path) {
        perror("hearth: the working directory");
        return STATUS_ERROR;
    }
    struct hearth *h;
    int status = daemon_open(&h);
    if (status != STATUS_OK)
        return status;
    struct hearth_backup_result *r = NULL;
    struct hearth_err err;
    if (hearth_backup(h, path, force, &r, NULL, &err)) {
        bool there = err.code == HEARTH_EIO && !force && !access(path, F_OK);
        status = there ? fail_next(&err, "--force replaces it") : fail(&err);
    } else if (json) {
        status = print_json(json_pack("{s:o, s:I}", "file", json_str(path), "bytes", (json_int_t)r->bytes));
    } else {
        printf("%s: %s\n", path, human_bytes(r->bytes));
    }
    free(path);
    return verb_end(h, r, status);
}

const struct cmd cmd_backup = {"backup", "FILE [--force] [--json]", "copy all sessions, while the daemon works", run};
