/*
 * device.h - the device thread's state. From the ground up its files are events.c (what it says), lead.c (when it
 * plans), step.c (one step), load.c (models come and go), commands.c (what is asked of it), loop.c (its turns),
 * engine.c (the door to it).
 */
#ifndef HEARTH_ENGINE_DEVICE_H
#define HEARTH_ENGINE_DEVICE_H

#include <semaphore.h>

#include "daemon/engine/engine.h"
#include "daemon/engine/kvtier/tier.h"
#include "daemon/engine/sched/pressure.h"

enum {
    IN_FLIGHT_MAX = 8, /* steps in flight */
    ROWS_CPU = 256,    /* rows in a step: enough for a matrix to be read once for many */
    ROWS_GPU = BATCH_ROWS_MAX,
    ROWS_GPU_LEAST = PROMPT_ROWS, /* where the device has room for no more */
    OUT_MAX = BATCH_SEQS_MAX,
};

/* What the loop thread sends. */
enum command_kind {
    CMD_SUBMIT,
    CMD_CANCEL,
    CMD_CLASS,
    CMD_LOAD,
    CMD_UNLOAD,
    CMD_PIN,
    CMD_UNPIN,
    CMD_YIELD,
    CMD_KV_EVICTED,
    CMD_FINISH,
    CMD_WAKE
};
struct command {
    struct post_item item;
    enum command_kind kind;
    struct seq *seq;           /* SUBMIT; owned */
    uint64_t seq_id;           /* CANCEL, CLASS */
    enum seq_class class;      /* CLASS */
    struct model_entry *model; /* LOAD, UNLOAD, PIN, UNPIN */
    bool here;                 /* LOAD */
    void *owner;
    double seconds;         /* FINISH, YIELD */
    uint64_t bytes;         /* YIELD */
    bool all;               /* YIELD */
    char file[KVFILE_NAME]; /* KV_EVICTED */
    bool again;             /* KV_EVICTED */
};

/* A plan under way: a step of the device, or two where answers' rows go apart from prompts', in this order. */
struct in_flight {
    struct {
        uint64_t ticket;
        uint32_t n_sample;
    } part[2];
    uint32_t n_part;
    double begin, submitted; /* the submission began, and ended */
    struct plan plan;
};

struct engine {
    /* Constant after engine_open. */
    struct engine_params params;
    const struct backend *be;
    struct device_info info;
    uint32_t max_in_flight;
    pthread_t thread;

    /* Both threads. */
    struct post inbox, outbox;
    struct engine_counters counters;
    struct tier_counters tiers;
    pthread_mutex_t ledger_lock;
    struct ledger ledger; /* the device thread's; the lock is for its writes, and the loop thread's reads */
    _Atomic bool throttled, stop;
    _Atomic bool neighbours_changed;   /* other programs have more or less than before */
    _Atomic bool neighbours_pressed;   /* the same, until it is looked at for pressure */
    _Atomic double watchdog_deadline;  /* eng->dev hangs if it is not done by then; 0: nothing is waited for */
    _Atomic uint32_t watchdog_seconds; /* that it was given */
    sem_t opened;                      /* posted once by the device thread */
    struct hearth_err open_err;
    char no_gpu[HEARTH_ERR_MSG]; /* why another backend than the best one serves; "": the best one does. Constant */

    /* The loop thread's: events taken and not yet given out. */
    struct post_list taken;

    /* The device thread's. */
    struct device *dev;
    struct sched sched;
    struct tier *tier;
    double empty_since;     /* the last was unloaded then, or EV_IDLE was sent */
    double finish_by;       /* > 0: EV_FINISHED is sent when saves have ended, or then */
    bool waiting_for_pages; /* sequences wait for KV pages, not for a step to end */
    bool look_again;        /* since the tiers were polled a sequence has made way or come back: they have work now */
    struct in_flight in_flight[IN_FLIGHT_MAX]; /* ring */
    uint32_t first_in_flight, n_in_flight;
    uint32_t n_steps;      /* of the device, in all of them */
    bool parted;           /* a plan may be two: a model that has been loaded has invariant_prompts */
    struct post_list todo; /* commands taken and not yet run */
    struct post_list out;  /* events that are not sent yet */
    bool out_urgent;       /* one of them may not wait */
    double notified_at;    /* when the last were sent */
    struct workspace_dims dims;
    struct {
        const struct backend *be; /* NULL: not opened yet */
        struct device *dev;
        struct device_info info;
        struct workspace_dims dims;
    } cpu; /* runs the models that `dev` cannot: their self-check failed, or it has no kernel or room for them */
    bool memory_changed; /* by a step, a load or an unload since it was counted last */
    double memory_counted_at;
    struct device_info checked; /* rows by path and replays of self-checks, which are nobody's steps */
    struct {
        bool on, busy;               /* it holds; it is being given back */
        bool all;                    /* all that may be given back, or until */
        uint64_t bytes;              /* are free */
        uint64_t cap;                /* what hearth may hold meanwhile */
        uint64_t before;             /* what it held */
        double begun, until;         /* on the engine's clock */
        struct model_entry *parking; /* whose streams are being parked */
        void *owner;
        bool pressed; /* nobody has asked for it: other programs take memory */
    } yield;
    struct pressure pressure;
    double relieve_at;             /* a pool that was refused memory does not try again before */
    struct neighbours *neighbours; /* NULL: the device is not watched */
    struct model_entry *loading;
    uint64_t loading_for; /* the sequence that it is loaded for; 0: none */
    struct {
        bool known;
        double own, host; /* bytes per second that `dev` reads of its memory and of the host's; 0: not known */
    } rate;
    bool watchdog_load; /* a model is being loaded: the watchdog watches between steps, too */
    double last_progress;
    double load_until;                       /* a load has until then before the others take a step */
    void (*beside_load)(struct engine *eng); /* sees to commands that need not wait for its end */
    double next_deadline;                    /* of those that have no token yet; INFINITY: none */
    double step_done_at;                     /* when the last step was, at the latest */
    bool step_end_seen;                      /* it was waited for, so that this is when */
    double submission;                       /* seconds that a step with a prompt beside others takes the host */
    struct hearth_err fatal;                 /* code 0: the device is well */
    TAILQ_HEAD(, model_entry) loaded;        /* most recently used last */
    struct seq_list waiting_for_memory;      /* sequences that wait for memory for their model; in no other list */
    uint32_t n_waiting_for_memory;
    double load_again_at; /* the first of them tries again, where no model will be idle */
    float *logits;        /* [n_vocab of the largest model] a row for eval */
};

/* Has the device thread go round once. Any thread. */
void engine_wake(struct engine *eng);

/* The device that a loaded model is on. */
static inline const struct device_info *info_of(const struct engine *eng, const struct model_entry *m)
{
    return m->model->dev == eng->dev ? &eng->info : &eng->cpu.info;
}

#endif
