/* quarantine.c - see quarantine.h. Loop thread. */
#include "config.h"

#include "daemon/stream/quarantine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/log.h"

enum {
    FAILURES_MAX = 3, /* that failed in a row */
    QUARANTINE_S = 60,
    ENTRIES_MAX = 64, /* entries; the oldest goes */
};

struct quarantine {
    uid_t uid;
    char *path;
    int failures;
    time_t until; /* monotonic; once it has passed, one more failure refuses again */
    char why[120];
    TAILQ_ENTRY(quarantine) entry;
};

static time_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

static struct quarantine *find(const struct server *s, uid_t uid, const char *path)
{
    struct quarantine *b;
    TAILQ_FOREACH (b, &s->quarantined, entry)
        if (b->uid == uid && strcmp(b->path, path) == 0)
            return b;
    return NULL;
}

static void forget(struct server *s, struct quarantine *b)
{
    TAILQ_REMOVE(&s->quarantined, b, entry);
    s->n_quarantined--;
    free(b->path);
    free(b);
}

void quarantine_add(struct server *s, uid_t uid, const char *path, const char *why)
{
    struct quarantine *b = find(s, uid, path);
    if (!b) {
        b = calloc(1, sizeof *b);
        if (!b || (b->path = strdup(path)) == NULL) {
            free(b);
            return; /* one attempt more is no harm */
        }
        b->uid = uid;
        TAILQ_INSERT_TAIL(&s->quarantined, b, entry);
        if (++s->n_quarantined > ENTRIES_MAX)
            forget(s, TAILQ_FIRST(&s->quarantined));
    }
    snprintf(b->why, sizeof b->why, "%s", why);
    if (++b->failures < FAILURES_MAX)
        return;
    b->until = now() + QUARANTINE_S;
    log_error("model %s is refused to uid %u for %d s: no engine survives it: %s", path, (unsigned)uid, QUARANTINE_S,
              why);
}

void quarantine_clear(struct server *s, uid_t uid, const char *path)
{
    struct quarantine *b = TAILQ_EMPTY(&s->quarantined) ? NULL : find(s, uid, path);
    if (b)
        forget(s, b);
}

int quarantine_check(const struct server *s, uid_t uid, const char *path, struct hearth_err *e)
{
    const struct quarantine *b = find(s, uid, path);
    time_t left = b != NULL ? b->until - now() : 0;
    if (left <= 0)
        return 0;
    return err_set(e, HEARTH_EENGINE,
                   "no engine survived the last %d generations with this model (%.100s): refused for %ld s",
                   b->failures, b->why, (long)left);
}

void quarantine_fini(struct server *s)
{
    struct quarantine *b;
    while ((b = TAILQ_FIRST(&s->quarantined)) != NULL)
        forget(s, b);
}
