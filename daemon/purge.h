/* purge.h - removes what hearthd keeps in its state directory, for `hearth purge`. Called before the loop exists. */
#ifndef DAEMON_PURGE_H
#define DAEMON_PURGE_H

#include <stddef.h>
#include <stdint.h>

#include "libclient/err.h"

struct purged {
    size_t files; /* removed files */
    int64_t bytes;
    size_t left; /* entries that are not hearthd's, which stay together with their folder */
};

/*
 * Removes sessions, journals, KV files and logs of `dir`, and the directory itself if it is empty then. A symbolic link
 * is removed, never followed, and no other folders are entered. HEARTH_EIO names what could not be removed; it is also
 * returned, and nothing is removed, while a hearthd uses the directory. A directory that does not exist counts as
 * empty.
 */
int purge(const char *dir, struct purged *out, struct hearth_err *e);

#endif
