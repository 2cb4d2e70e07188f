/*
 * quarantine.h - models over which engine after engine has died, by uid. Loop thread.
 *
 * A stream that killed the engine on every attempt has failed; the next one with that model would do the same, and each
 * attempt costs everybody else an engine. After the third such stream in a row, without a token between, that uid's
 * generations with that model are refused for a minute with the reason. By uid, because a request can be the culprit as
 * well as a file, and one user's requests must not take a model from the others.
 */
#ifndef DAEMON_BLAME_H
#define DAEMON_BLAME_H

#include "daemon/context.h"

/* A stream failed because no engine survived it; and one made a token. */
void quarantine_add(struct server *s, uid_t uid, const char *path, const char *why);
void quarantine_clear(struct server *s, uid_t uid, const char *path);

/* HEARTH_EENGINE with the reason, while the model is refused. */
int quarantine_check(const struct server *s, uid_t uid, const char *path, struct hearth_err *e);

void quarantine_fini(struct server *s);

#endif
