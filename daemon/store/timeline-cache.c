/*
 * timeline-cache.c - the timelines of recently used sessions, in memory. Loop thread.
 *
 * Each generation in a session begins by loading its timeline. Reading one means reading all rows of its turns and
 * comparing their checksums: 2 ms for 100,000 tokens in 500 turns, 20 ms for 20,000 turns. So what is written at the
 * end of a turn is cached for the beginning of the next. An id and a number of turns identify a timeline, as sessions
 * only grow; once another program has written to the database, the cache is cleared.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/store/store-internal.h"

static const size_t max_ids = 4 << 20; /* of all timelines together */

struct timeline_cache_entry {
    TAILQ_ENTRY(timeline_cache_entry) entry;
    char id[STORE_ID_LEN + 1];
    int64_t n_turns;
    size_t n;
    int32_t ids[];
};

static void evict(struct store *st, struct timeline_cache_entry *r)
{
    TAILQ_REMOVE(&st->timeline_cache, r, entry);
    st->timeline_cache_ids -= r->n;
    free(r);
}

static struct timeline_cache_entry *find(const struct store *st, const char *id)
{
    struct timeline_cache_entry *r;
    TAILQ_FOREACH (r, &st->timeline_cache, entry)
        if (strcmp(r->id, id) == 0)
            return r;
    return NULL;
}

void timeline_cache_forget(struct store *st, const char *id)
{
    struct timeline_cache_entry *r = find(st, id);
    if (r)
        evict(st, r);
}

void timeline_cache_clear(struct store *st)
{
    struct timeline_cache_entry *r;
    while ((r = TAILQ_FIRST(&st->timeline_cache)) != NULL)
        evict(st, r);
}

void timeline_cache_check(struct store *st)
{
    int64_t version;
    int rc = store_get_int(st, store_stmt(st, SQL_DATA_VERSION), "the session database", &version, NULL);
    if (!rc && version == st->data_version)
        return;
    timeline_cache_clear(st);
    st->data_version = rc == 0 ? version : 0;
}

bool timeline_cache_get(struct store *st, const struct store_session *s, int32_t **ids, size_t *n)
{
    timeline_cache_check(st);
    struct timeline_cache_entry *r = find(st, s->id);
    if (!r || r->n_turns != s->n_turns || (int64_t)r->n != s->n_tok)
        return false;
    int32_t *v = malloc(r->n * sizeof *v + 1);
    if (!v)
        return false;
    memcpy(v, r->ids, r->n * sizeof *v);
    TAILQ_REMOVE(&st->timeline_cache, r, entry);
    TAILQ_INSERT_TAIL(&st->timeline_cache, r, entry);
    *ids = v;
    *n = r->n;
    return true;
}

void timeline_cache_put(struct store *st, const char *id, int64_t n_turns, const struct store_ids *part, size_t n_part)
{
    size_t n = 0;
    timeline_cache_forget(st, id);
    for (size_t i = 0; i < n_part; i++)
        n += part[i].n;
    struct timeline_cache_entry *r = n <= max_ids ? malloc(sizeof *r + n * sizeof *r->ids) : NULL;
    if (!r)
        return; /* without memory, the timeline is read from the database next time */
    *r = (struct timeline_cache_entry){.n_turns = n_turns};
    memcpy(r->id, id, sizeof r->id);
    for (size_t i = 0; i < n_part; r->n += part[i++].n)
        if (part[i].n > 0)
            memcpy(r->ids + r->n, part[i].v, part[i].n * sizeof *r->ids);
    TAILQ_INSERT_TAIL(&st->timeline_cache, r, entry);
    st->timeline_cache_ids += n;
    while (st->timeline_cache_ids > max_ids)
        evict(st, TAILQ_FIRST(&st->timeline_cache));
}
