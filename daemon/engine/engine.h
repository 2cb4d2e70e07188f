/*
 * engine.h - the only interface to the device thread.
 *
 * Behind it: scheduler, sequences, KV, weights, kernels. In front of it: the link, templates, tokenizers, text. The
 * interface is narrow so that the two never meet otherwise. Commands go in: a sequence of token ids with limits and
 * sampling parameters, a cancellation, a model to load or unload. Events come out: token ids and the ends of sequences.
 * Text never enters the device thread, and neither thread waits for the other: each owns its data, and transfers
 * ownership through post.h. Only two things are shared: the counters for `status`, which are atomic, and constant data
 * (a mapped model file and its vocabulary).
 *
 * So a test can drive the device thread without a socket, the loop thread answers status and tokenize while a step runs
 * for seconds, and a backend with steps in flight needs nothing from the rest of the program.
 *
 * Rules. Every submitted sequence gets EV_ADMIT at most once, EV_STEP tokens after it, and exactly one EV_END, which is
 * the last event about it. Cancelling something that has ended does nothing. EV_FATAL is the last event of all: every
 * sequence that had arrived has had its EV_END, and the process must exit.
 *
 * Counters: `rows` is every row that went through a model. `tokens_computed` counts prompt tokens only, each once: it
 * is the sum of all usages' computed_tokens. Rows of completion tokens, of eval, and of prompts recomputed after a
 * preemption are counted only in `rows`.
 *
 * Thread: everything here is called by the loop thread.
 */
#ifndef HEARTH_ENGINE_H
#define HEARTH_ENGINE_H

#include <stdatomic.h>

#include "daemon/engine/clock.h"
#include "daemon/engine/neighbours.h"
#include "daemon/engine/sched/ledger.h"
#include "daemon/engine/sched/models.h"
#include "daemon/engine/post.h"
#include "daemon/engine/sched/seq.h"
#include "daemon/engine/kvtier/tier.h"

struct engine;

/*
 * Lets a test put a layer between the engine and its device: given the backend and the device that it opened, returns
 * the table that the engine calls from then on, or NULL and an error. The backend keeps ownership of the device and
 * closes it. The device thread calls this once, before anything else.
 */
typedef const struct backend *engine_wrap(const struct backend *be, struct device *d, struct hearth_err *e);

/* Which rows a GPU computes so that their bits depend only on the sequence's own tokens: see enum invariance. A CPU
 * always does so. AUTO: prompts, for models whose prompts are computed fast that way; otherwise nothing. */
enum engine_invariant { INVARIANT_AUTO, INVARIANT_NOTHING, INVARIANT_PROMPTS, INVARIANT_ALL, INVARIANTS };

/* The type in which KV is stored: the device's default (f32 on the CPU, f16 on a GPU), or one type for all models. A
 * device that does not support it refuses the model. */
enum engine_kv_type { KV_TYPE_AUTO, KV_TYPE_F16, KV_TYPE_Q8_0, KV_TYPES };

/* Whether a KV pool has all of its memory from the beginning, or acquires and releases it as pages are needed. AUTO:
 * the latter, where the device can. */
enum engine_kv_pool { KV_POOL_AUTO, KV_POOL_WHOLE, KV_POOL_GROWING, KV_POOLS };

struct engine_params {
    const char *backend;    /* "auto": the best one that opens, or a name */
    const char *variant;    /* of the backend; "auto" */
    uint32_t threads;       /* CPU: 0 = the machine's number */
    uint32_t max_in_flight; /* steps in flight; 0 = the device's default, which it never exceeds */
    const char *checked;    /* path of the self-check cache (cache.h); NULL: there is none */
    uint64_t kv_bytes;      /* size of a model's KV pool; 0 = depends on the device's memory */
    uint64_t kv_ram;        /* bytes of KV in host memory; 0 = none, TIER_RAM_AUTO = by the machine's and `sharers` */
    uint64_t gpu_memory;    /* bytes that it may use on a GPU; 0 = no limit */
    uint64_t host_weights;  /* bytes of host memory for weights that do not fit on a GPU; 0 = none, UINT64_MAX = this
                             * engine's share of what is free */
    uint32_t sharers;       /* engines of this machine, among which free host memory is shared; 0 = one for each device
                             * that the backend could use */
    uint32_t gpu_percent;   /* gpu_memory as a percentage; 0 = gpu_memory applies */
    uint64_t gpu_headroom;  /* bytes of a GPU that are kept free while other programs take more; 0 = none */
    const char *nvml;       /* file name of NVIDIA's management library; NULL = the default */
    enum engine_kv_type kv_type;
    enum engine_invariant invariant;
    enum engine_kv_pool kv_pool;
    const char *kv_dir; /* the directory of KV files; NULL = none are written before engine_kv_dir() */
    enum tier_policy restore;
    uint32_t step_seconds; /* a device whose step takes longer is considered failed; a matrix being loaded has ten times
                            * as long, as its disk may be slow. 0 = 60 on a GPU, no limit on a CPU */
    uint64_t idle_ms;      /* a model that was idle for so long is unloaded; 0 = never */
    uint64_t empty_ms;     /* EV_IDLE is sent when no model was held for so long; 0 = never */
    engine_wrap *wrap;     /* NULL: the engine calls its device directly */
};

/* Opens the device and starts the thread. */
int engine_open(struct engine **out, const struct engine_params *p, struct hearth_err *e);
/* Stops after the step under way and frees everything, including sequences that have not ended. False if that step
 * takes longer than `seconds`: then nothing was freed, and the process should simply exit. */
bool engine_close(struct engine *eng, double seconds);

const char *engine_backend(const struct engine *eng); /* "cpu" */
const char *engine_device(const struct engine *eng);  /* its description */
uint32_t engine_devices(const struct engine *eng);    /* how many devices the backend could use */

/* --- commands -------------------------------------------------------------------------------------------- */

/* Takes the sequence. Its model is loaded first if necessary. */
void engine_submit(struct engine *eng, struct seq *q);
void engine_cancel(struct engine *eng, uint64_t seq_id);
void engine_set_class(struct engine *eng, uint64_t seq_id, enum seq_class class);
/* Answered by EV_LOADED and EV_UNLOADED with the given owner. A busy model is not unloaded: HEARTH_ELIMIT. No event
 * reports that a model was unloaded because it was idle (idle_ms) or to make room; model_entry.loaded shows it. */
void engine_load(struct engine *eng, struct model_entry *m, void *owner);
/* Same, for a model that does not fit on any other device of the machine either: this engine serves it until it is
 * unloaded, on the CPU if necessary. */
void engine_load_here(struct engine *eng, struct model_entry *m, void *owner);
void engine_unload(struct engine *eng, struct model_entry *m, void *owner);
/* A pinned model is loaded and stays loaded: it is unloaded neither when idle nor to make room. engine_unload() unloads
 * and unpins it. Answered by EV_LOADED. */
void engine_pin(struct engine *eng, struct model_entry *m, bool pinned, void *owner);
/* Yields memory of the device to other programs for `seconds`: until `bytes` of it are free, or `all` that may be given
 * back; 0 seconds ends a yield. Answered by EV_YIELDED, with HEARTH_ELIMIT if less is free than was requested. */
void engine_yield(struct engine *eng, uint64_t bytes, bool all, double seconds, void *owner);
/* Continues a yield that an earlier engine process had been asked for: the engine holds at most `most` bytes for
 * `seconds`. Answered by EV_YIELDED. */
void engine_keep_yield(struct engine *eng, uint64_t most, double seconds, void *owner);
/* From now on KV is kept in files of this directory, too, unless it is already. Takes `path`, which is malloc'd. */
void engine_kv_dir(struct engine *eng, char *path);
/* hearthd has evicted the KV file; `again`: its pages may be written again at once. */
void engine_kv_evicted(struct engine *eng, const char file[static KVFILE_NAME], bool again);
/* Waits until saves of KV have ended, for at most `seconds`. Answered by EV_FINISHED. */
void engine_finish(struct engine *eng, double seconds);
/* Backpressure: no steps are started while throttled, because the loop thread's output is full. */
void engine_throttle(struct engine *eng, bool throttled);

/* --- events ---------------------------------------------------------------------------------------------- */

enum event_kind {
    EV_ADMIT,
    EV_PROMPT,
    EV_STEP,
    EV_END,
    EV_PROGRESS,
    EV_LOADED,
    EV_UNLOADED,
    EV_FREED, /* a model is no longer in memory, whether somebody asked for it or not */
    EV_KV,
    EV_FINISHED,
    EV_YIELDED,
    EV_PARKED,
    EV_IDLE,     /* no model was loaded for empty_ms, and nothing is left to save; sent repeatedly */
    EV_RELIEVED, /* memory that other programs had taken may be taken again */
    EV_FATAL
};
struct engine_event {
    struct post_item item;
    enum event_kind kind;
};

struct event_admit { /* EV_ADMIT */
    struct engine_event ev;
    void *owner;
};

struct event_prompt { /* EV_PROMPT: progress of a prompt that is not finished; at most ten times a second */
    struct engine_event ev;
    void *owner;
    uint32_t done, total; /* tokens, including reused ones */
};

struct step_token {
    void *owner;
    int32_t id;
    struct sampled *detail; /* owned; NULL if the sequence requested no logprobs */
};
struct event_step { /* EV_STEP: at most one token per sequence */
    struct engine_event ev;
    uint32_t n;
    struct step_token token[];
};

enum end_reason {
    END_STOP /* an end token, which is not among the tokens */,
    END_LENGTH,
    END_CONTEXT,
    END_CANCELLED,
    END_ERROR
};
struct event_end { /* EV_END */
    struct engine_event ev;
    void *owner;
    enum end_reason reason;
    struct hearth_err err; /* END_ERROR */
    uint32_t n_reused, n_computed;
    uint32_t n_restored; /* the part of n_reused that was restored */
    struct seq_times time;
    struct eval *eval; /* owned; from seq.eval */
};

struct event_model { /* EV_PROGRESS, EV_LOADED, EV_UNLOADED */
    struct engine_event ev;
    struct model_entry *model;
    void *owner;           /* NULL in EV_PROGRESS */
    struct hearth_err err; /* code 0: success */
    uint64_t done, total;  /* bytes */
    double seconds;
    bool was_loaded;
};

struct event_kv { /* EV_KV: a KV file was saved, used, or found damaged */
    struct engine_event ev;
    struct tier_event what; /* its strings are the arrays below */
    char file[KVFILE_NAME];
    char label[SEQ_LABEL + 1];
    char why[HEARTH_ERR_MSG];
};

struct event_yield { /* EV_YIELDED */
    struct engine_event ev;
    void *owner;
    struct hearth_err err;
    bool holds;                 /* memory is yielded; `err` is set if less is free than requested */
    uint64_t freed, free, held; /* bytes */
};

struct event_parked { /* EV_PARKED: the sequence waits for memory, or continues */
    struct engine_event ev;
    void *owner;
    bool parked;
    bool yielded; /* the memory is yielded to other programs; otherwise models in use hold it */
};

struct event_fatal { /* EV_FATAL */
    struct engine_event ev;
    struct hearth_err err;
};

/* The descriptor is readable when events have arrived; engine_take() then fetches them all, engine_next() returns them
 * one by one (NULL: no more), and the caller frees each. */
int engine_fd(const struct engine *eng);
void engine_take(struct engine *eng);
struct engine_event *engine_next(struct engine *eng);
void engine_event_free(struct engine_event *ev);

/* --- counters -------------------------------------------------------------------------------------------- */

struct engine_counters {
    _Atomic uint64_t steps, rows, rows_max, tokens_computed;
    _Atomic uint32_t queued, running;
    /* Rows per code path, and graph replays (device_info), updated together with the ledger. */
    struct {
        const char *_Atomic path; /* NULL ends the list */
        _Atomic uint64_t rows;
    } path[DEVICE_PATHS];
    _Atomic uint64_t replays;
};
/* The device's memory, as of the last time it was idle or at most about 10 s ago. */
void engine_ledger(struct engine *eng, struct ledger *out);
/* The other programs on the device; not known if it is not a GPU. */
void engine_neighbours(struct engine *eng, struct neighbours_seen *out);
/* Why the best backend of this build is not the one in use; NULL if it is, or another one was configured. */
const char *engine_no_gpu(const struct engine *eng);
/* HEARTH_EDEVICE if the device has exceeded its time for the current operation: it hangs. */
int engine_stuck(const struct engine *eng, struct hearth_err *e);
const struct engine_counters *engine_counters(const struct engine *eng);
const struct tier_counters *engine_tiers(const struct engine *eng);

#endif
