/* daemon.c - finds hearthd and hearth's other programs, and connects; the library starts hearthd where none answers. */
#include "config.h"

#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/cmd.h"

bool no_start;

bool program_find(const char *name, char *path, size_t size)
{
    /* %1$s is this program's directory, %2$s the other program's name: first the build directory, then an installed
     * tree that may have been moved as a whole, then the directories that configure set. */
    static const char *const places[] = {
        "%1$s/%2$s", "%1$s/../sbin/%2$s", "%1$s/../libexec/%2$s", SBINDIR "/%2$s", LIBEXECDIR "/%2$s",
    };
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    if (len < 0)
        return false;
    self[len] = '\0';
    const char *dir = dirname(self);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        int n = snprintf(path, size, places[i], dir, name);
#pragma GCC diagnostic pop
        if (n > 0 && (size_t)n < size && !access(path, X_OK))
            return true;
    }
    return false;
}

static int open_named(struct hearth **out, struct hearth_err *err)
{
    int rc = hearth_open(out, NULL, err);
    if (!rc)
        hearth_set_client(*out, "hearth");
    return rc;
}

int daemon_open_running(struct hearth **out)
{
    struct hearth_err err;
    int rc = open_named(out, &err);
    if (rc == HEARTH_ECONNECT)
        return fail_next(&err, "`hearth status` starts a daemon, without --no-start and HEARTH_NO_START");
    return rc ? fail(&err) : STATUS_OK;
}

int daemon_open(struct hearth **out)
{
    char path[PATH_MAX];
    struct hearth_err err;
    if (no_start || getenv("HEARTH_NO_START"))
        return daemon_open_running(out);
    int rc = hearth_open_or_start(out, program_find("hearthd", path, sizeof path) ? path : NULL, &err);
    if (rc)
        return fail(&err);
    hearth_set_client(*out, "hearth");
    return STATUS_OK;
}
