/* device.h - the device thread's state. README.md says what each of the thread's files does. */
#ifndef HEARTH_ENGINE_DEVICE_H
#define HEARTH_ENGINE_DEVICE_H

#include <semaphore.h>

#include "daemon/engine/engine.h"
#include "daemon/engine/kvtier/tier.h"
#include "daemon/engine/sched/pressure.h"

enum {
    IN_FLIGHT_MAX = 8, /* steps in flight */
    ROWS_CPU = 256,    /* rows in a step: enough that one read of a matrix serves many */
    ROWS_GPU = BATCH_ROWS_MAX,
    ROWS_GPU_LEAST = PROMPT_ROWS, /* if the device has no room for more */
    OUT_MAX = BATCH_SEQS_MAX,
};

/* Commands from the loop thread; engine.h's functions say what each does. */
enum command_kind {
    CMD_SUBMIT,
    CMD_CANCEL,
    CMD_CLASS,
    CMD_LOAD,
    CMD_UNLOAD,
    CMD_PIN,
    CMD_UNPIN,
    CMD_YIELD,
    CMD_KV_DIR,
    CMD_KV_EVICTED,
    CMD_FINISH,
    CMD_WAKE, /* nothing but another iteration of the loop */
};
struct command {
    struct post_item item;
    enum command_kind kind;
    struct seq *seq;           /* SUBMIT; owned */
    uint64_t seq_id;           /* CANCEL, CLASS */
    enum seq_class class;      /* CLASS */
    struct model_entry *model; /* LOAD, UNLOAD, PIN, UNPIN */
    bool here;                 /* LOAD: engine_load_here() */
    void *owner;               /* LOAD, UNLOAD, PIN, UNPIN, YIELD: of the event that answers it */
    double seconds;            /* FINISH, YIELD */
    uint64_t bytes;            /* YIELD: to be freed, or with `again` to be held at most */
    bool all;                  /* YIELD */
    char *path;                /* KV_DIR; owned */
    char file[KVFILE_NAME];    /* KV_EVICTED */
    bool again;                /* KV_EVICTED: its pages may be written again; YIELD: engine_keep_yield() */
};

/* A submitted plan: one step of the device, or two, if answers' rows run separately from prompts' rows; then in this
 * order. */
struct in_flight {
    struct {
        uint64_t ticket;
        uint32_t n_sample;
    } part[2];
    uint32_t n_part;
    double begin, submitted; /* times at which the submission began and ended */
    struct plan plan;
};

struct engine {
    /* Constant after engine_open. */
    struct engine_params params;
    const struct backend *be;
    struct device_info info;
    uint32_t max_in_flight;
    pthread_t thread;

    /* Shared by both threads. */
    struct post inbox, outbox;
    struct engine_counters counters;
    struct tier_counters tiers;
    pthread_mutex_t ledger_lock;
    struct ledger ledger; /* the device thread's; the lock protects its writes and the loop thread's reads */
    _Atomic bool throttled, stop;
    _Atomic bool neighbours_changed;   /* other programs use more or less of the device than before */
    _Atomic bool neighbours_pressed;   /* the same, until pressure is evaluated */
    _Atomic double watchdog_deadline;  /* if eng->dev is not done by then, it hangs; 0: nothing is waited for */
    _Atomic uint32_t watchdog_seconds; /* the time that the device was given */
    sem_t opened;                      /* posted once by the device thread */
    struct hearth_err open_err;
    char no_gpu[HEARTH_ERR_MSG]; /* why the best backend is not the one in use; "" if it is. Constant */

    /* The loop thread's: events taken and not yet returned. */
    struct post_list taken;

    /* The device thread's. */
    struct device *dev;
    struct sched sched;
    struct tier *tier;
    double empty_since;     /* when the last model was unloaded, or EV_IDLE was sent */
    double finish_by;       /* > 0: EV_FINISHED is sent when saves have ended, at this time at the latest */
    bool waiting_for_pages; /* sequences wait for KV pages, not for a step to end */
    bool look_again;        /* a sequence was parked or resumed since the tiers were last polled, so they have work */
    struct in_flight in_flight[IN_FLIGHT_MAX]; /* ring */
    uint32_t first_in_flight, n_in_flight;
    uint32_t n_steps;      /* device steps in all plans in flight */
    bool parted;           /* a plan may be two steps: a model with invariant_prompts has been loaded */
    struct post_list todo; /* commands taken and not yet run */
    struct post_list out;  /* events that have not been sent yet */
    bool out_urgent;       /* one of them must be sent at once */
    double notified_at;    /* when events were last sent */
    struct workspace_dims dims;
    struct {
        const struct backend *be; /* NULL: not opened yet */
        struct device *dev;
        struct device_info info;
        struct workspace_dims dims;
    } cpu; /* runs the models that `dev` cannot: their self-check failed, or it has no kernel or no room for them */
    bool memory_changed; /* by a step, a load or an unload since the last count */
    double memory_counted_at;
    struct device_info checked; /* the self-checks' share of the device's counters, excluded from the steps' */
    struct {
        bool on, busy;               /* `on`: a yield is in force; `busy`: memory is still being given back */
        bool all;                    /* give back everything that may be given back */
        uint64_t bytes;              /* unless `all`: give back until so many are free */
        uint64_t cap;                /* bytes that hearth may hold meanwhile */
        uint64_t before;             /* bytes that it held before */
        double begun, until;         /* on the engine's clock */
        struct model_entry *parking; /* the model whose streams are being parked */
        void *owner;
        bool pressed; /* nobody has asked for this yield: other programs take memory */
    } yield;
    struct pressure pressure;
    struct {
        struct model_entry *model; /* a step of it was refused memory: none is planned until some was given back */
        uint64_t bytes;            /* of KV to give back; twice as many each time until a step is submitted */
        double widen_at;           /* when steps may become longer again (sched_group.rows_short) */
    } refused;
    double relieve_at;             /* a pool that was refused memory does not try again before this time */
    struct neighbours *neighbours; /* NULL: other programs on the device are not watched */
    struct model_entry *loading;
    uint64_t loading_for; /* the sequence for which it is loaded; 0: none */
    struct {
        bool known;
        double own, host; /* bytes per second that `dev` reads from its own memory and the host's; 0: not known */
    } rate;
    bool watchdog_load; /* a model is being loaded: the watchdog runs between steps, too */
    double last_progress;
    double load_until;                       /* other models' sequences get no step during a load before this time */
    void (*beside_load)(struct engine *eng); /* does what need not wait for a load's end: some commands, the tiers */
    double next_deadline;                    /* the earliest one of the sequences without a token; INFINITY: none */
    double step_done_at;                     /* latest possible time at which the last step was done */
    bool step_end_seen;                      /* the host was waiting for it, so that the time is exact */
    double submission;                       /* seconds that submitting a long step takes the host */
    struct hearth_err fatal;                 /* code 0: the device has not failed */
    TAILQ_HEAD(, model_entry) loaded;        /* most recently used last */
    struct seq_list waiting_for_memory;      /* sequences whose model has no memory; they are in no other list */
    uint32_t n_waiting_for_memory;
    double load_again_at; /* the first of them tries again then, if no model will become idle; 0: at once in any case */
    float *logits;        /* [n_logits, the vocabulary of the largest model] one row, for eval */
    uint32_t n_logits;
};

/* Wakes the device thread for another iteration of its loop. Any thread. */
void engine_wake(struct engine *eng);

/* The device that a loaded model runs on. */
static inline const struct device_info *info_of(const struct engine *eng, const struct model_entry *m)
{
    return m->model->dev == eng->dev ? &eng->info : &eng->cpu.info;
}

#endif
