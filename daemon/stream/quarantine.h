/*
 * quarantine.h - a circuit breaker: models that keep killing engines, by uid. Pure, except for the clock.
 *
 * A stream that killed its engine on every attempt has failed. The next one with that model would probably do the same,
 * and each attempt costs everybody else an engine. After the third such stream in a row, without a token in between,
 * that uid's generations with that model are refused for a minute, and the reason is reported. Entries are by uid
 * because the cause can be a request as well as a file, and one user's requests must not take a model away from the
 * others.
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

/* Records that a stream of that uid failed because no engine survived it; `why` is copied. */
void quarantine_add(struct quarantine_table *t, uid_t uid, const char *path, const char *why);

/* Records that a stream has produced a token, so the model works for that uid. */
void quarantine_clear(struct quarantine_table *t, uid_t uid, const char *path);

/* HEARTH_EENGINE with the reason while the model is refused, else 0. */
int quarantine_check(const struct quarantine_table *t, uid_t uid, const char *path, struct hearth_err *e);

#endif
