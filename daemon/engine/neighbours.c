/* neighbours.c - see neighbours.h. */
#include "config.h"

#include "daemon/engine/neighbours.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/engine/clock.h"

struct neighbours {
    char *library, uuid[33];
    double seconds;
    void (*changed)(void *arg);
    void *arg;
    pthread_t thread;
    pthread_mutex_t lock; /* protects the following members */
    pthread_cond_t wake;
    bool stop;
    struct neighbours_seen seen;
};

static void name_of(int64_t pid, char name[static 16])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/comm", (long long)pid);
    FILE *f = fopen(path, "re");
    if (!f || !fgets(name, 16, f))
        name[0] = '\0';
    name[strcspn(name, "\n")] = '\0';
    if (f)
        fclose(f);
}

static void look(const struct nvml *lib, struct neighbours_seen *out)
{
    struct nvml_memory m;
    struct hearth_err err;
    *out = (struct neighbours_seen){.at = engine_now()};
    if (nvml_read(lib, &m, &err)) {
        snprintf(out->why, sizeof out->why, "%s", err.msg);
        return;
    }
    out->known = true;
    out->used = m.used;
    out->display = m.display;
    for (uint32_t i = 0; i < m.n; i++) {
        if (m.process[i].pid == getpid()) {
            out->own = m.process[i].bytes;
        } else if (out->n < NEIGHBOURS_MAX) {
            struct neighbour *v = &out->v[out->n++];
            *v = (struct neighbour){.pid = m.process[i].pid, .bytes = m.process[i].bytes};
            name_of(v->pid, v->name);
        }
    }
}

/* Waits for `seconds` before the next reading; false if the thread is to stop. */
static bool rest(struct neighbours *n, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)(1e9 * (seconds - (double)(time_t)seconds));
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (!n->stop && !pthread_cond_timedwait(&n->wake, &n->lock, &until))
        continue;
    return !n->stop;
}

static void *watch(void *arg)
{
    struct neighbours *n = arg;
    struct neighbours_seen now = {0};
    struct hearth_err err;
    struct nvml *lib = NULL;
    bool first = true;
    double changed_at = -INFINITY;
    if (nvml_open(&lib, n->library, n->uuid, &err))
        snprintf(now.why, sizeof now.why, "%s", err.msg);
    pthread_mutex_lock(&n->lock);
    do {
        pthread_mutex_unlock(&n->lock);
        if (lib)
            look(lib, &now);
        pthread_mutex_lock(&n->lock);
        uint64_t has = now.used - now.own, had = n->seen.used - n->seen.own;
        bool differs = now.known && has != had;
        if (differs && !first && (has > had ? has - had : had - has) >= NEIGHBOURS_MUCH)
            changed_at = engine_now();
        n->seen = now;
        if (first || differs) {
            pthread_mutex_unlock(&n->lock);
            n->changed(n->arg);
            pthread_mutex_lock(&n->lock);
        }
        first = false;
    } while (lib && rest(n, neighbours_pause(n->seconds, engine_now() - changed_at)));
    pthread_mutex_unlock(&n->lock);
    nvml_close(lib);
    return NULL;
}

int neighbours_open(struct neighbours **out, const char *library, const char *uuid, double seconds,
                    void (*changed)(void *arg), void *arg, struct hearth_err *e)
{
    pthread_condattr_t monotonic;
    struct neighbours *n = calloc(1, sizeof *n);
    if (!n || !(n->library = strdup(library))) {
        free(n);
        return err_set(e, HEARTH_ENOMEM, "no memory for what other programs have");
    }
    snprintf(n->uuid, sizeof n->uuid, "%s", uuid);
    n->seconds = seconds;
    n->changed = changed;
    n->arg = arg;
    snprintf(n->seen.why, sizeof n->seen.why, "it was not looked at yet");
    pthread_mutex_init(&n->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&n->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&n->thread, NULL, watch, n)) {
        pthread_cond_destroy(&n->wake);
        pthread_mutex_destroy(&n->lock);
        free(n->library);
        free(n);
        return err_set(e, HEARTH_ENOMEM, "no thread can be started to watch the device");
    }
    *out = n;
    return 0;
}

void neighbours_close(struct neighbours *n)
{
    if (!n)
        return;
    pthread_mutex_lock(&n->lock);
    n->stop = true;
    pthread_cond_signal(&n->wake);
    pthread_mutex_unlock(&n->lock);
    pthread_join(n->thread, NULL);
    pthread_cond_destroy(&n->wake);
    pthread_mutex_destroy(&n->lock);
    free(n->library);
    free(n);
}

void neighbours_get(struct neighbours *n, struct neighbours_seen *out)
{
    pthread_mutex_lock(&n->lock);
    *out = n->seen;
    pthread_mutex_unlock(&n->lock);
}
