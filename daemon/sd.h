/*
 * sd.h - systemd's three small protocols without libsystemd: receiving a listening socket (LISTEN_FDS), notifying the
 * supervisor of state (NOTIFY_SOCKET), and its watchdog. All three come in environment variables, which are read once
 * and then unset so that the engine does not inherit them.
 */
#ifndef DAEMON_SD_H
#define DAEMON_SD_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "libclient/err.h"

struct sd {
    int listen_fd;         /* a listening AF_UNIX stream socket, or -1 */
    uint64_t watchdog_us;  /* the watchdog's timeout; 0 = no watchdog */
    struct sockaddr_un to; /* the supervisor's socket */
    socklen_t to_len;      /* 0: there is no supervisor to notify */
};

/* Reads the variables. Fails if the passed descriptor is not a listening AF_UNIX stream socket, or a variable is
 * malformed. */
int sd_init(struct sd *sd, struct hearth_err *e);

/* Sends "READY=1", "STOPPING=1", "WATCHDOG=1" or "STATUS=..." to the supervisor, if there is one. Never blocks. */
void sd_notify(const struct sd *sd, const char *state);

#endif
