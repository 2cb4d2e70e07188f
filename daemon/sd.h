/*
 * sd.h - systemd's three small protocols without libsystemd: a listening socket handed over (LISTEN_FDS), state told
 * to the supervisor (NOTIFY_SOCKET), and its watchdog. All three are environment variables; they are read once and
 * taken out of the environment, so that the engine does not inherit them.
 */
#ifndef DAEMON_SD_H
#define DAEMON_SD_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "libclient/err.h"

struct sd {
    int listen_fd;         /* a listening AF_UNIX stream socket, or -1 */
    uint64_t watchdog_us;  /* the supervisor's deadline; 0 = none */
    struct sockaddr_un to; /* where state is told */
    socklen_t to_len;      /* 0 = nowhere */
};

/* Fails where something was handed over that is not one listening AF_UNIX stream socket. */
int sd_init(struct sd *sd, struct hearth_err *e);

/* "READY=1", "STOPPING=1", "WATCHDOG=1", "STATUS=..."; where no supervisor listens, nothing. Never blocks. */
void sd_notify(const struct sd *sd, const char *state);

#endif
