/*
 * served.h - statistics of the streams that have ended since hearthd started: counters and histograms for `status`, of
 * all users together. Pure. The histograms have vLLM's bucket bounds, so that its dashboards can show them.
 */
#ifndef DAEMON_STREAM_SERVED_H
#define DAEMON_STREAM_SERVED_H

#include "libclient/wire.h"

enum { SERVED_BOUNDS_MAX = 22 };

struct served_histogram {
    int64_t bucket[SERVED_BOUNDS_MAX + 1]; /* the last one: above all bounds */
    int64_t count;
    double sum; /* in seconds */
};

struct served {
    int64_t stop, length, context_full, cancelled, error;
    int64_t prompt_tokens, reused_tokens, restored_tokens, completion_tokens;
    struct served_histogram first_token, per_token, total, queue;
};

/* Counts a stream that has ended with that result. */
void served_add(struct served *s, const struct wire_engine_result *r);

/* The statistics as `status` reports them; the histograms point into *room, which wire_served borrows. */
struct served_room {
    struct wire_bucket bucket[4][SERVED_BOUNDS_MAX + 1];
};
void served_tell(const struct served *s, struct served_room *room, struct wire_served *out);

#endif
