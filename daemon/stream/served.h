/*
 * served.h - what the streams that have ended came to since hearthd started: counters and histograms for `status`, of
 * all users together. Pure. The bounds of the histograms are vLLM's, so that its dashboards draw them.
 */
#ifndef DAEMON_STREAM_SERVED_H
#define DAEMON_STREAM_SERVED_H

#include "libclient/wire.h"

enum { SERVED_BOUNDS_MAX = 22 };

struct served_histogram {
    int64_t bucket[SERVED_BOUNDS_MAX + 1]; /* the last: beyond all bounds */
    int64_t count;
    double sum; /* seconds */
};

struct served {
    int64_t stop, length, context_full, cancelled, error;
    int64_t prompt_tokens, reused_tokens, restored_tokens, completion_tokens;
    struct served_histogram first_token, per_token, total, queue;
};

/* A stream has ended with that result. */
void served_add(struct served *s, const struct wire_engine_result *r);

/* As `status` tells it; the histograms point into *room, which wire_served borrows. */
struct served_room {
    struct wire_bucket bucket[4][SERVED_BOUNDS_MAX + 1];
};
void served_tell(const struct served *s, struct served_room *room, struct wire_served *out);

#endif
