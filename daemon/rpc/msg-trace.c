/* msg-trace.c - streams.trace: the stages of a stream, running or ended, in hearthd and its engines. Loop thread. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/rpc/dispatch.h"
#include "daemon/stream/stream.h"
#include "daemon/stream/trace-log.h"
#include "daemon/supervisor/engines.h"

enum { FIELDS = 2 + TRACE_NUMBERS }; /* the sequence's number, the word, the numbers */

/* An answer under construction, with the texts of its numbers. */
struct answer {
    struct traced_event event[TRACED_EVENTS];
    struct wire_trace_event row[TRACED_EVENTS];
    struct wire_trace_field field[TRACED_EVENTS][FIELDS];
    char text[TRACED_EVENTS][FIELDS][24];
};

static void set_fields(struct answer *a, size_t i)
{
    const struct trace_kept *k = &a->event[i].kept;
    struct wire_trace_field *f = a->row[i].fields = a->field[i];
    size_t n = 0;
    if (k->ev.seq) {
        snprintf(a->text[i][n], sizeof a->text[i][n], "%" PRIu64, k->ev.seq);
        f[n] = (struct wire_trace_field){"seq", a->text[i][n]};
        n++;
    }
    if (k->word[0] && trace_word_name(k->ev.stage))
        f[n++] = (struct wire_trace_field){trace_word_name(k->ev.stage), k->word};
    for (size_t j = 0; trace_number_name(k->ev.stage, j); j++, n++) {
        snprintf(a->text[i][n], sizeof a->text[i][n], "%" PRId64, k->ev.n[j]);
        f[n] = (struct wire_trace_field){trace_number_name(k->ev.stage, j), a->text[i][n]};
    }
    a->row[i].n_fields = n;
}

static int reply(struct call *call, struct answer *a, struct hearth_err *e)
{
    const struct wire_streams_trace *p = call->params;
    const struct traced_stream *t;
    int rc = stream_traced(call->server, call->account->uid, p->stream, &t, e);
    if (rc)
        return rc;
    double epoch = server_now() - server_boot();
    size_t n_lost, n = traced_events(t, a->event, &n_lost);
    struct wire_trace_result r = {.stream = p->stream, .events = a->row, .n_events = n, .lost = (int64_t)n_lost};
    for (size_t i = 0; i < n; i++) {
        const struct traced_event *ev = &a->event[i];
        a->row[i] = (struct wire_trace_event){.at = epoch + ev->kept.at,
                                              .where = ev->engine ? "engine" : "hearthd",
                                              .engine = ev->engine,
                                              .stage = trace_stage_name(ev->kept.ev.stage)};
        set_fields(a, i);
    }
    call_reply(call, &r);
    return 0;
}

/* Called after the engines have answered: events that they sent before their answer are in the log by now. */
static void answer(void *arg, const struct engines_status *all)
{
    struct call *call = arg;
    struct hearth_err e;
    (void)all;
    struct answer *a = calloc(1, sizeof *a);
    if (!a)
        err_set(&e, HEARTH_ENOMEM, "out of memory");
    if (!a || reply(call, a, &e) != 0)
        call_fail(call, &e);
    free(a);
}

void msg_streams_trace(struct call *call)
{
    if (engines_ask_status(call->server->engines, answer, call) != 0)
        answer(call, NULL);
}
