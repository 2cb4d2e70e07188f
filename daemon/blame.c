/* blame.c - see blame.h. Loop thread. */
#include "config.h"

#include "daemon/blame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/log.h"

enum {
    STREAMS = 3, /* that failed in a row */
    REFUSED_S = 60,
    MOST = 64, /* entries; the oldest goes */
};

struct blame {
    uid_t uid;
    char *path;
    int streams;
    time_t until; /* monotonic; once it has passed, one more failure refuses again */
    char why[120];
    TAILQ_ENTRY(blame) entry;
};

static time_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

static struct blame *find(const struct server *s, uid_t uid, const char *path)
{
    struct blame *b;
    TAILQ_FOREACH (b, &s->blames, entry)
        if (b->uid == uid && strcmp(b->path, path) == 0)
            return b;
    return NULL;
}

static void forget(struct server *s, struct blame *b)
{
    TAILQ_REMOVE(&s->blames, b, entry);
    s->n_blames--;
    free(b->path);
    free(b);
}

void blame_add(struct server *s, uid_t uid, const char *path, const char *why)
{
    struct blame *b = find(s, uid, path);
    if (b == NULL) {
        b = calloc(1, sizeof(*b));
        if (b == NULL || (b->path = strdup(path)) == NULL) {
            free(b);
            return; /* one attempt more is no harm */
        }
        b->uid = uid;
        TAILQ_INSERT_TAIL(&s->blames, b, entry);
        if (++s->n_blames > MOST)
            forget(s, TAILQ_FIRST(&s->blames));
    }
    snprintf(b->why, sizeof(b->why), "%s", why);
    if (++b->streams < STREAMS)
        return;
    b->until = now() + REFUSED_S;
    log_error("model %s is refused to uid %u for %d s: no engine survives it: %s", path, (unsigned)uid, REFUSED_S, why);
}

void blame_clear(struct server *s, uid_t uid, const char *path)
{
    struct blame *b = TAILQ_EMPTY(&s->blames) ? NULL : find(s, uid, path);
    if (b != NULL)
        forget(s, b);
}

int blame_check(const struct server *s, uid_t uid, const char *path, struct hearth_err *e)
{
    const struct blame *b = find(s, uid, path);
    time_t left = b != NULL ? b->until - now() : 0;
    if (left <= 0)
        return 0;
    return err_set(e, HEARTH_EENGINE,
                   "no engine survived the last %d generations with this model (%.100s): refused for %ld s", b->streams,
                   b->why, (long)left);
}

void blame_fini(struct server *s)
{
    struct blame *b;
    while ((b = TAILQ_FIRST(&s->blames)) != NULL)
        forget(s, b);
}
