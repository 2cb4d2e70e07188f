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
    struct sockaddr_un to; /* the supervisor's socket */
    socklen_t to_len;      /* 0: no supervisor listens */
};

/* Reads the variables. Fails where a descriptor was handed over that is no listening AF_UNIX stream socket. */
int sd_init(struct sd *sd, struct hearth_err *e);

/* Sends "READY=1", "STOPPING=1", "WATCHDOG=1" or "STATUS=..." to the supervisor, if there is one. Never blocks. */
void sd_notify(const struct sd *sd, const char *state);

#endif
