/* trace.c - the names of stages and of their numbers, and the ring of recent events; see trace.h. Any thread. */
#include "daemon/trace.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

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
    [TRACE_ENGINE_DIED] = {"engine-died", NULL, {"deaths", "completion"}},
    [TRACE_COMMITTED] = {"committed", NULL, {"appended", "generated"}},
    [TRACE_RECEIVED] = {"received", NULL, {"prompt", "limit"}},
    [TRACE_ADMITTED] = {"admitted", NULL, {"reused", "restored", "computed"}},
    [TRACE_FIRST_STEP] = {"first-step", NULL, {"rows", "of"}},
    [TRACE_PREEMPTED] = {"preempted", NULL, {"tokens"}},
    [TRACE_OUTGREW] = {"outgrew", NULL, {"tokens"}},
    [TRACE_CLASS] = {"class", "class", {NULL}},
    [TRACE_SAVED] = {"saved", "tier", {"from", "tokens"}},
    [TRACE_FINISHED] = {"finished", "reason", {"reused", "restored", "computed", "tokens", "steps"}},
};

/* The recent events, oldest first. An event that the loop thread has not sent before the ring is full is
 * overwritten. */
enum { RING = 1024 };
static struct {
    pthread_mutex_t lock;
    struct trace_kept v[RING];
    size_t first, n;
} ring = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Atomic bool keeping;
static _Atomic size_t waiting; /* a copy of ring.n, so that an empty ring is seen without the lock */

const char *trace_stage_name(enum trace_stage stage)
{
    return stages[stage].name;
}

const char *trace_word_name(enum trace_stage stage)
{
    return stages[stage].word;
}

const char *trace_number_name(enum trace_stage stage, size_t i)
{
    return i < TRACE_NUMBERS ? stages[stage].number[i] : NULL;
}

enum trace_stage trace_stage_find(const char *name)
{
    int i = 0;
    while (i < TRACE_STAGES && strcmp(stages[i].name, name) != 0)
        i++;
    return (enum trace_stage)i;
}

double trace_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

bool trace_is_on(void)
{
    return log_is_on(LOG_LEVEL_DEBUG) || atomic_load_explicit(&keeping, memory_order_relaxed);
}

void trace_copy_word(char out[24], const char *word)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    size_t n = word ? strspn(word, good) : 0;
    n = n < 23 ? n : 23;
    if (n)
        memcpy(out, word, n);
    out[n] = 0;
}

static void write_line(const struct trace_event *ev)
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

void trace_line(const struct trace_event *ev, struct trace_kept *out)
{
    if (log_is_on(LOG_LEVEL_DEBUG))
        write_line(ev);
    *out = (struct trace_kept){.ev = *ev, .at = trace_now()};
    trace_copy_word(out->word, ev->word);
    out->ev.word = NULL;
}

static void keep(const struct trace_kept *k)
{
    pthread_mutex_lock(&ring.lock);
    ring.v[(ring.first + ring.n) % RING] = *k;
    if (ring.n < RING)
        ring.n++;
    else
        ring.first = (ring.first + 1) % RING;
    atomic_store(&waiting, ring.n);
    pthread_mutex_unlock(&ring.lock);
}

void trace_at(const struct trace_event *ev)
{
    struct trace_kept k;
    trace_line(ev, &k);
    if (ev->stream && atomic_load_explicit(&keeping, memory_order_relaxed))
        keep(&k);
}

void trace_keep(void)
{
    atomic_store(&keeping, true);
}

bool trace_take(struct trace_kept *out)
{
    if (!atomic_load(&waiting))
        return false;
    pthread_mutex_lock(&ring.lock);
    bool any = ring.n > 0;
    if (any) {
        *out = ring.v[ring.first];
        ring.first = (ring.first + 1) % RING;
        atomic_store(&waiting, --ring.n);
    }
    pthread_mutex_unlock(&ring.lock);
    return any;
}
