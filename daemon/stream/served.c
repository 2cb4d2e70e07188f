/* served.c - see served.h. */
#include "daemon/stream/served.h"

#include <math.h>
#include <string.h>

struct bounds {
    size_t n;
    double le[SERVED_BOUNDS_MAX]; /* in seconds */
};

/* The buckets of vLLM's time_to_first_token_seconds, inter_token_latency_seconds and e2e_request_latency_seconds; the
 * last are used for the time in the queue as well. */
static const struct bounds first_token = {
    22, {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}};
static const struct bounds per_token = {
    19, {.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}};
static const struct bounds total = {
    21, {.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}};

static void observe(struct served_histogram *h, const struct bounds *b, double seconds)
{
    size_t i = 0;
    if (!isfinite(seconds) || seconds < 0)
        return;
    while (i < b->n && seconds > b->le[i])
        i++;
    h->bucket[i]++;
    h->count++;
    h->sum += seconds;
}

void served_add(struct served *s, const struct wire_engine_result *r)
{
    const struct wire_timings *t = &r->timings;
    const char *reason = r->finish_reason;
    int64_t n = r->usage.completion_tokens;
    int64_t *ended = !strcmp(reason, "stop")           ? &s->stop
                     : !strcmp(reason, "length")       ? &s->length
                     : !strcmp(reason, "context_full") ? &s->context_full
                     : !strcmp(reason, "cancelled")    ? &s->cancelled
                                                       : &s->error;
    ++*ended;
    s->prompt_tokens += r->usage.prompt_tokens;
    s->reused_tokens += r->usage.reused_tokens;
    s->restored_tokens += r->usage.restored_tokens;
    s->completion_tokens += n;
    observe(&s->queue, &total, t->queue_ms / 1e3);
    observe(&s->total, &total, t->total_ms / 1e3);
    if (n > 0 && t->prefill_ms > 0) /* else an earlier hearthd had the first token */
        observe(&s->first_token, &first_token, (t->queue_ms + t->load_ms + t->restore_ms + t->prefill_ms) / 1e3);
    if (n > 1)
        observe(&s->per_token, &per_token,
                t->tokens_per_second > 0 ? 1 / t->tokens_per_second : t->decode_ms / 1e3 / (double)(n - 1));
}

/* Makes the buckets cumulative, as Prometheus defines them: each counts the ones below it as well. */
static struct wire_histogram tell(const struct served_histogram *h, const struct bounds *b, struct wire_bucket *room)
{
    int64_t below = 0;
    for (size_t i = 0; i < b->n; i++)
        room[i] = (struct wire_bucket){.le = b->le[i], .count = below += h->bucket[i]};
    return (struct wire_histogram){.sum = h->sum, .count = h->count, .buckets = room, .n_buckets = b->n};
}

void served_tell(const struct served *s, struct served_room *room, struct wire_served *out)
{
    *out = (struct wire_served){
        .stop = s->stop,
        .length = s->length,
        .context_full = s->context_full,
        .cancelled = s->cancelled,
        .error = s->error,
        .prompt_tokens = s->prompt_tokens,
        .reused_tokens = s->reused_tokens,
        .restored_tokens = s->restored_tokens,
        .completion_tokens = s->completion_tokens,
        .first_token = tell(&s->first_token, &first_token, room->bucket[0]),
        .per_token = tell(&s->per_token, &per_token, room->bucket[1]),
        .total = tell(&s->total, &total, room->bucket[2]),
        .queue = tell(&s->queue, &total, room->bucket[3]),
    };
}
