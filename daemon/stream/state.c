/* state.c - the table of legal transitions and the lists; see state.h. Loop thread. */
#include "daemon/stream/state.h"

#include <assert.h>

#define BIT(state) (1u << STREAM_##state)

/* In every live state the engine may die (ORPHANED), the request may fail before it has generated anything (GONE), and
 * the stream may end (DRAINING). A stream that is being cancelled can only end: its client waits for a result, which
 * must not be replaced by an error. */
static const struct {
    const char *name;
    unsigned next;
} table[STREAM_STATES] = {
    [STREAM_NEW] = {"new", BIT(QUEUED) | BIT(RUNNING) | BIT(DRAINING) | BIT(UNCOMMITTED) | BIT(GONE)},
    [STREAM_QUEUED] = {"queued", BIT(RUNNING) | BIT(ORPHANED) | BIT(CANCELLING) | BIT(DRAINING) | BIT(GONE)},
    [STREAM_RUNNING] = {"running", BIT(ORPHANED) | BIT(CANCELLING) | BIT(DRAINING) | BIT(GONE)},
    [STREAM_ORPHANED] = {"orphaned", BIT(PROBING) | BIT(DRAINING) | BIT(GONE)},
    [STREAM_PROBING] = {"probing", BIT(RUNNING) | BIT(ORPHANED) | BIT(CANCELLING_PROBE) | BIT(DRAINING) | BIT(GONE)},
    [STREAM_CANCELLING] = {"cancelling", BIT(DRAINING)},
    [STREAM_CANCELLING_PROBE] = {"cancelling-probe", BIT(CANCELLING) | BIT(DRAINING)},
    [STREAM_DRAINING] = {"draining", BIT(UNCOMMITTED) | BIT(RETAINED) | BIT(GONE)},
    [STREAM_UNCOMMITTED] = {"uncommitted", BIT(DRAINING) | BIT(RETAINED) | BIT(GONE)},
    [STREAM_RETAINED] = {"retained", BIT(DRAINING) | BIT(GONE)},
    [STREAM_GONE] = {"gone", 0},
};

void streams_init(struct streams *v)
{
    *v = (struct streams){0};
    for (int i = 0; i < STREAM_STATES; i++)
        TAILQ_INIT(&v->list[i]);
    quarantine_init(&v->quarantined);
    trace_log_init(&v->traces);
}

bool stream_may_go(enum stream_state from, enum stream_state to)
{
    return (table[from].next >> to & 1) != 0;
}

const char *stream_state_name(enum stream_state state)
{
    return table[state].name;
}

/* Most streams are newer than those in the list, so the search begins at the end. */
static void insert(struct stream_list *list, struct stream *st)
{
    struct stream *before = TAILQ_LAST(list, stream_list);
    while (before && before->number > st->number)
        before = TAILQ_PREV(before, stream_list, link);
    if (before)
        TAILQ_INSERT_AFTER(list, before, st, link);
    else
        TAILQ_INSERT_HEAD(list, st, link);
}

static void count(struct streams *v, struct stream *st, int by)
{
    if (stream_in(st, STREAMS_LIVE))
        v->n_live += by;
    if (!stream_in(st, STREAMS_OPEN))
        return;
    v->n_open += by;
    st->account->streams += by;
}

void stream_set_state(struct streams *v, struct stream *st, enum stream_state state)
{
    assert(stream_may_go(st->state, state));
    if (st->state != STREAM_NEW)
        TAILQ_REMOVE(&v->list[st->state], st, link);
    count(v, st, -1);
    st->state = state;
    count(v, st, +1);
    if (state != STREAM_GONE)
        insert(&v->list[state], st);
}

/* The first stream in the lists of `states` from `state` on; NULL. */
static struct stream *first_from(const struct streams *v, unsigned state, unsigned states)
{
    for (; state < STREAM_STATES; state++)
        if ((states >> state & 1) != 0 && !TAILQ_EMPTY(&v->list[state]))
            return TAILQ_FIRST(&v->list[state]);
    return NULL;
}

struct stream *stream_first(const struct streams *v, unsigned states)
{
    return first_from(v, 0, states);
}

struct stream *stream_next(const struct streams *v, const struct stream *st, unsigned states)
{
    struct stream *next = TAILQ_NEXT(st, link);
    return next ? next : first_from(v, st->state + 1u, states);
}
