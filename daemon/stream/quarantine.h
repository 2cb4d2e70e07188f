/*
 * quarantine.h - a circuit breaker: models over which engine after engine has died, by uid. Pure but for the clock.
 *
 * A stream that killed the engine on every attempt has failed; the next one with that model would do the same, and each
 * attempt costs everybody else an engine. After the third such stream in a row, without a token between, that uid's
 * generations with that model are refused for a minute, with the reason. The entry is by uid, because a request can be
 * the culprit as well as a file, and one user's requests must not take a model from the others.
 */
#ifndef DAEMON_QUARANTINE_H
#define DAEMON_QUARANTINE_H

#include <sys/queue.h>
#include <sys/types.h>

#include "libclient/err.h"

struct quarantine;
struct quarantine_table {
    TAILQ_HEAD(, quarantine) entries;
    int n;
};

void quarantine_init(struct quarantine_table *t);
void quarantine_fini(struct quarantine_table *t);

/* A stream of that uid failed because no engine survived it; `why` is copied. */
void quarantine_add(struct quarantine_table *t, uid_t uid, const char *path, const char *why);

/* A stream made a token: the model works for that uid. */
void quarantine_clear(struct quarantine_table *t, uid_t uid, const char *path);

/* HEARTH_EENGINE with the reason, while the model is refused. */
int quarantine_check(const struct quarantine_table *t, uid_t uid, const char *path, struct hearth_err *e);

#endif
