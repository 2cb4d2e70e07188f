/* trace.c - the names of stages and of their numbers; see trace.h. Any thread. */
#include "daemon/trace.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

static const struct {
    const char *name, *word, *number[TRACE_NUMBERS];
} stages[TRACE_STAGES] = {
    [TRACE_REQUEST] = {"request", "method", {"uid", "pid", "id"}},
    [TRACE_REFUSED] = {"refused", "error", {"uid", "pid", "id"}},
    [TRACE_CREATED] = {"created", NULL, {"uid", "id"}},
    [TRACE_STATE] = {"state", "state", {NULL}},
    [TRACE_SUBMITTED] = {"submitted", NULL, {"history", "resumed"}},
    [TRACE_FIRST_TOKEN] = {"first-token", NULL, {NULL}},
    [TRACE_ENDED] = {"ended", "reason", {"prompt", "reused", "restored", "computed", "completion"}},
    [TRACE_COMMITTED] = {"committed", NULL, {"appended", "generated"}},
    [TRACE_RECEIVED] = {"received", NULL, {"prompt", "limit"}},
    [TRACE_ADMITTED] = {"admitted", NULL, {"reused", "restored", "computed"}},
    [TRACE_FIRST_STEP] = {"first-step", NULL, {"rows", "of"}},
    [TRACE_PREEMPTED] = {"preempted", NULL, {"tokens"}},
    [TRACE_SAVED] = {"saved", "tier", {"from", "tokens"}},
    [TRACE_FINISHED] = {"finished", "reason", {"reused", "restored", "computed", "tokens"}},
};

void trace_at(const struct trace_event *ev)
{
    char line[256], *at = line, *end = line + sizeof line;
    at += snprintf(at, (size_t)(end - at), "stage=%s", stages[ev->stage].name);
    if (ev->stream)
        at += snprintf(at, (size_t)(end - at), " stream=%" PRId64, ev->stream);
    if (ev->seq)
        at += snprintf(at, (size_t)(end - at), " seq=%" PRIu64, ev->seq);
    if (ev->word)
        at += snprintf(at, (size_t)(end - at), " %s=%.32s", stages[ev->stage].word, ev->word);
    for (size_t i = 0; i < TRACE_NUMBERS && stages[ev->stage].number[i]; i++)
        at += snprintf(at, (size_t)(end - at), " %s=%" PRId64, stages[ev->stage].number[i], ev->n[i]);
    log_debug("%s", line);
}
