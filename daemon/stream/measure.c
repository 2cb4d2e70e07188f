/* measure.c - what a request would cost, without running it. Loop thread. */
#include "config.h"

#include "daemon/stream/past.h"
#include "daemon/stream/stream-internal.h"
#include "daemon/supervisor/engines.h"

int stream_measure(struct server *s, const struct stream_spec *spec,
                   void (*complete)(void *arg, const void *result, const struct hearth_err *err), void *arg,
                   struct hearth_err *e)
{
    const struct store_session *row = &spec->session->row;
    struct past past = {0};
    struct wire_engine_generate g = {
        .uid = spec->uid,
        .path = row->path,
        .history = {.v = spec->session->ids, .n = spec->session->n_ids},
        .turn_open = row->turn_open,
        .client = spec->client,
        .hash = spec->session->means.hash[0] ? spec->session->means.hash : NULL,
        .hashed = spec->session->means.n,
        .req = *spec->request,
    };
    g.req.session = g.req.request = NULL;
    if (g.req.n_messages && row->name && !spec->session->is_new) {
        int rc = past_read(s, row, &past, e);
        if (rc)
            return rc;
        g.past = past.v;
        g.n_past = past.n;
        g.past_at = past.at;
    }
    int rc = engine_call(engines_near(s->engines, row->path), &wire_methods[WIRE_ENGINE_MEASURE], &g, complete, arg, e);
    past_fini(&past);
    return rc;
}
