/* list.c - lists a user's streams. Loop thread. */
#include "config.h"

#include <stdlib.h>

#include "daemon/stream/stream-internal.h"

enum { ENDED_MAX = 256 }; /* ended streams that are listed; older ones are found by number or request id only */

/* The states that are shown to clients. */
static const char *public_state(const struct stream *st)
{
    switch (st->state) {
    case STREAM_QUEUED:
        return "queued";
    case STREAM_ORPHANED:
    case STREAM_PROBING:
        return "recovering";
    case STREAM_CANCELLING:
    case STREAM_CANCELLING_PROBE:
        return "cancelling";
    case STREAM_DRAINING:
        return "delivering";
    default:
        return "running";
    }
}

static struct wire_stream_info of_stream(const struct stream *st)
{
    const struct store_session *row = &st->session->row;
    const struct subscriber *sub;
    struct wire_stream_info w = {
        .stream = st->number,
        .state = public_state(st),
        .request = st->request->request,
        .session = row->name ? row->id : NULL,
        .name = row->name,
        .model = row->model,
        .choice = st->choice,
        .tokens = (int64_t)st->output.n_ids,
        .began = server_now() - (stream_now_ms() - st->started_ms) / 1e3,
    };
    TAILQ_FOREACH (sub, &st->subscribers, entry)
        w.attached++;
    return w;
}

static struct wire_stream_info of_journal(const struct journal_entry *je)
{
    return (struct wire_stream_info){
        .stream = je->number,
        .state = "ended",
        .request = je->request,
        .session = je->session[0] ? je->session : NULL,
        .name = je->name,
        .model = je->model,
        .choice = je->choice,
        .tokens = je->tokens,
        .ended = je->time,
    };
}

static bool is_open(const struct server *s, int64_t number)
{
    const struct stream *st;
    STREAMS_FOREACH (st, s->streams, STREAMS_OPEN)
        if (st->number == number)
            return true;
    return false;
}

static int newest_first(const void *a, const void *b)
{
    const struct wire_stream_info *x = a, *y = b;
    return (x->stream < y->stream) - (x->stream > y->stream);
}

int stream_list(struct server *s, uid_t uid, bool ended, struct wire_stream_info **out, size_t *n, struct hearth_err *e)
{
    const struct stream *st;
    struct wire_stream_info *v = calloc((size_t)s->streams->n_open + ENDED_MAX, sizeof *v);
    if (!v)
        return err_set(e, HEARTH_ENOMEM, "out of memory");
    *n = 0;
    STREAMS_FOREACH (st, s->streams, STREAMS_OPEN)
        if (st->account->uid == uid)
            v[(*n)++] = of_stream(st);
    size_t end = *n + ENDED_MAX;
    struct journal_entry *je = ended && s->journal ? journal_before(s->journal, uid, NULL) : NULL;
    for (; je && *n < end; je = journal_before(s->journal, uid, je))
        if (!is_open(s, je->number))
            v[(*n)++] = of_journal(je);
    qsort(v, *n, sizeof *v, newest_first);
    *out = v;
    return 0;
}
