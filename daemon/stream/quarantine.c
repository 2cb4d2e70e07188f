/* quarantine.c - the circuit breaker's table; see quarantine.h. Loop thread. */
#include "config.h"

#include "daemon/stream/quarantine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/log.h"

enum {
    FAILURES_MAX = 3, /* streams in a row that fail before the model is refused */
    QUARANTINE_S = 60,
    ENTRIES_MAX = 64, /* beyond that the oldest entry is dropped */
};

struct quarantine {
    uid_t uid;
    char *path;
    int failures;
    time_t until; /* monotonic; after it, one more failure refuses the model again */
    char why[120];
    TAILQ_ENTRY(quarantine) entry;
};

static time_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

void quarantine_init(struct quarantine_table *t)
{
    *t = (struct quarantine_table){0};
    TAILQ_INIT(&t->entries);
}

static struct quarantine *find(const struct quarantine_table *t, uid_t uid, const char *path)
{
    struct quarantine *q;
    TAILQ_FOREACH (q, &t->entries, entry)
        if (q->uid == uid && strcmp(q->path, path) == 0)
            return q;
    return NULL;
}

static void forget(struct quarantine_table *t, struct quarantine *q)
{
    TAILQ_REMOVE(&t->entries, q, entry);
    t->n--;
    free(q->path);
    free(q);
}

void quarantine_add(struct quarantine_table *t, uid_t uid, const char *path, const char *why)
{
    struct quarantine *q = find(t, uid, path);
    if (!q) {
        q = calloc(1, sizeof *q);
        if (!q || (q->path = strdup(path)) == NULL) {
            free(q);
            return; /* without memory for the entry, one more attempt is allowed */
        }
        q->uid = uid;
        TAILQ_INSERT_TAIL(&t->entries, q, entry);
        if (++t->n > ENTRIES_MAX)
            forget(t, TAILQ_FIRST(&t->entries));
    }
    snprintf(q->why, sizeof q->why, "%s", why);
    if (++q->failures < FAILURES_MAX)
        return;
    q->until = now() + QUARANTINE_S;
    log_error("model %s is refused to uid %u for %d s: no engine survives it: %s", path, (unsigned)uid, QUARANTINE_S,
              why);
}

void quarantine_clear(struct quarantine_table *t, uid_t uid, const char *path)
{
    struct quarantine *q = TAILQ_EMPTY(&t->entries) ? NULL : find(t, uid, path);
    if (q)
        forget(t, q);
}

int quarantine_check(const struct quarantine_table *t, uid_t uid, const char *path, struct hearth_err *e)
{
    const struct quarantine *q = find(t, uid, path);
    time_t left = q != NULL ? q->until - now() : 0;
    if (left <= 0)
        return 0;
    return err_set(e, HEARTH_EENGINE,
                   "no engine survived the last %d generations with this model (%.100s): refused for %ld s",
                   q->failures, q->why, (long)left);
}

void quarantine_fini(struct quarantine_table *t)
{
    struct quarantine *q;
    while ((q = TAILQ_FIRST(&t->entries)) != NULL)
        forget(t, q);
}
