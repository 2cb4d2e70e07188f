/* engine.c - the interface to the device thread; see engine.h. Thread: the loop thread's. */
#include "config.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/engine/core/loop.h"

static void send_command(struct engine *eng, struct command o)
{
    struct command *copy = post_alloc(sizeof *copy);
    struct post_list l;
    *copy = o;
    post_list_init(&l);
    post_list_push(&l, &copy->item);
    post_send(&eng->inbox, &l);
}

void engine_submit(struct engine *eng, struct seq *q)
{
    send_command(eng, (struct command){.kind = CMD_SUBMIT, .seq = q});
}

void engine_cancel(struct engine *eng, uint64_t seq_id)
{
    send_command(eng, (struct command){.kind = CMD_CANCEL, .seq_id = seq_id});
}

void engine_set_class(struct engine *eng, uint64_t seq_id, enum seq_class class)
{
    send_command(eng, (struct command){.kind = CMD_CLASS, .seq_id = seq_id, .class = class});
}

void engine_load(struct engine *eng, struct model_entry *m, void *owner)
{
    send_command(eng, (struct command){.kind = CMD_LOAD, .model = m, .owner = owner});
}

void engine_load_here(struct engine *eng, struct model_entry *m, void *owner)
{
    send_command(eng, (struct command){.kind = CMD_LOAD, .model = m, .owner = owner, .here = true});
}

void engine_unload(struct engine *eng, struct model_entry *m, void *owner)
{
    send_command(eng, (struct command){.kind = CMD_UNLOAD, .model = m, .owner = owner});
}

void engine_pin(struct engine *eng, struct model_entry *m, bool pinned, void *owner)
{
    send_command(eng, (struct command){.kind = pinned ? CMD_PIN : CMD_UNPIN, .model = m, .owner = owner});
}

void engine_yield(struct engine *eng, uint64_t bytes, bool all, double seconds, void *owner)
{
    send_command(eng,
                 (struct command){.kind = CMD_YIELD, .bytes = bytes, .all = all, .seconds = seconds, .owner = owner});
}

void engine_keep_yield(struct engine *eng, uint64_t most, double seconds, void *owner)
{
    send_command(eng,
                 (struct command){.kind = CMD_YIELD, .again = true, .bytes = most, .seconds = seconds, .owner = owner});
}

void engine_kv_dir(struct engine *eng, char *path)
{
    send_command(eng, (struct command){.kind = CMD_KV_DIR, .path = path});
}

void engine_kv_evicted(struct engine *eng, const char file[static KVFILE_NAME], bool again)
{
    struct command o = {.kind = CMD_KV_EVICTED, .again = again};
    memcpy(o.file, file, sizeof o.file);
    send_command(eng, o);
}

void engine_finish(struct engine *eng, double seconds)
{
    send_command(eng, (struct command){.kind = CMD_FINISH, .seconds = seconds});
}

void engine_throttle(struct engine *eng, bool throttled)
{
    atomic_store(&eng->throttled, throttled);
    if (!throttled)
        engine_wake(eng);
}

void engine_wake(struct engine *eng)
{
    send_command(eng, (struct command){.kind = CMD_WAKE});
}

int engine_fd(const struct engine *eng)
{
    return eng->outbox.fd;
}

void engine_take(struct engine *eng)
{
    post_take(&eng->outbox, &eng->taken);
}

struct engine_event *engine_next(struct engine *eng)
{
    return (struct engine_event *)post_list_pop(&eng->taken);
}

void engine_event_free(struct engine_event *ev)
{
    if (ev && ev->kind == EV_STEP) {
        struct event_step *st = (struct event_step *)ev;
        for (uint32_t i = 0; i < st->n; i++)
            free(st->token[i].detail);
    } else if (ev && ev->kind == EV_END) {
        eval_free(((struct event_end *)ev)->eval);
    }
    free(ev);
}

const char *engine_backend(const struct engine *eng)
{
    return eng->be->name;
}

const char *engine_device(const struct engine *eng)
{
    return eng->info.name;
}

uint32_t engine_devices(const struct engine *eng)
{
    return eng->info.devices;
}

const char *engine_no_gpu(const struct engine *eng)
{
    return eng->no_gpu[0] ? eng->no_gpu : NULL;
}

int engine_stuck(const struct engine *eng, struct hearth_err *e)
{
    double end = atomic_load(&eng->watchdog_deadline);
    if (end <= 0 || engine_now() < end)
        return 0;
    return err_set(e, HEARTH_EDEVICE, "%.100s has not ended a step, a copy or a piece of a load in %u s",
                   eng->info.name, (unsigned)atomic_load(&eng->watchdog_seconds));
}

const struct engine_counters *engine_counters(const struct engine *eng)
{
    return &eng->counters;
}

void engine_ledger(struct engine *eng, struct ledger *out)
{
    pthread_mutex_lock(&eng->ledger_lock);
    *out = eng->ledger;
    pthread_mutex_unlock(&eng->ledger_lock);
}

void engine_neighbours(struct engine *eng, struct neighbours_seen *out)
{
    *out = (struct neighbours_seen){.why = "the CPU's memory is everybody's"};
    if (eng->neighbours)
        neighbours_get(eng->neighbours, out);
    else if (eng->info.gpu)
        snprintf(out->why, sizeof out->why, "the device is not watched");
}

const struct tier_counters *engine_tiers(const struct engine *eng)
{
    return &eng->tiers;
}

int engine_open(struct engine **out, const struct engine_params *p, struct hearth_err *e)
{
    struct engine *eng = calloc(1, sizeof *eng);
    if (!eng)
        return err_set(e, HEARTH_ENOMEM, "no memory for the engine");
    eng->params = *p;
    post_list_init(&eng->taken);
    post_list_init(&eng->todo);
    post_list_init(&eng->out);
    TAILQ_INIT(&eng->loaded);
    TAILQ_INIT(&eng->waiting_for_memory);
    sem_init(&eng->opened, 0, 0);
    pthread_mutex_init(&eng->ledger_lock, NULL);
    int rc = post_init(&eng->inbox, e);
    if (rc)
        goto fail_sem;
    if ((rc = post_init(&eng->outbox, e)))
        goto fail_inbox;
    if (pthread_create(&eng->thread, NULL, loop_main, eng)) {
        rc = err_set(e, HEARTH_ENOMEM, "cannot start the device thread");
        goto fail_outbox;
    }
    while (sem_wait(&eng->opened) < 0) {
    }
    if (eng->open_err.code) {
        *e = eng->open_err;
        rc = e->code;
        goto fail_thread;
    }
    *out = eng;
    return 0;

fail_thread:
    pthread_join(eng->thread, NULL);
fail_outbox:
    post_fini(&eng->outbox);
fail_inbox:
    post_fini(&eng->inbox);
fail_sem:
    pthread_mutex_destroy(&eng->ledger_lock);
    sem_destroy(&eng->opened);
    free(eng);
    return rc;
}

bool engine_close(struct engine *eng, double seconds)
{
    struct command *o;
    struct engine_event *ev;
    struct timespec until;
    atomic_store(&eng->stop, true);
    engine_wake(eng);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(1e9 * (seconds - (time_t)seconds));
    until.tv_sec += (time_t)seconds + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_timedjoin_np(eng->thread, NULL, &until))
        return false;
    post_take(&eng->inbox, &eng->todo); /* commands that arrived too late */
    while ((o = (struct command *)post_list_pop(&eng->todo))) {
        seq_free(o->seq);
        free(o->path);
        free(o);
    }
    engine_take(eng);
    while ((ev = engine_next(eng)))
        engine_event_free(ev);
    post_fini(&eng->outbox);
    post_fini(&eng->inbox);
    sem_destroy(&eng->opened);
    pthread_mutex_destroy(&eng->ledger_lock);
    free(eng);
    return true;
}
