/* purge.h - removes what hearthd has kept in its state directory: for `hearth purge`, before any loop. */
#ifndef DAEMON_PURGE_H
#define DAEMON_PURGE_H

#include <stddef.h>
#include <stdint.h>

#include "libclient/err.h"

struct purged {
    size_t files; /* that were removed */
    int64_t bytes;
    size_t left; /* that are not hearthd's, and stay with their folder */
};

/*
 * Removes sessions, journals, KV files and logs of `dir`, and the directory itself where nothing else is in it. A
 * symbolic link is removed and not followed, into other folders nothing is looked. HEARTH_EIO names what could not be
 * removed; a hearthd that uses the directory is one, and then all stays. A directory that is not there has nothing.
 */
int purge(const char *dir, struct purged *out, struct hearth_err *e);

#endif
