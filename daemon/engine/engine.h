/*
 * engine.h - the narrow door to the device thread.
 *
 * Behind it: scheduler, sequences, KV, weights, kernels. Before it: the link, templates, tokenizers, text. The door is
 * narrow so that the two never meet otherwise. What goes in is a sequence of token ids with limits and sampling
 * parameters, a cancellation, a model to load or unload; what comes out are token ids and endings. Text never enters
 * the device thread, and neither thread waits for the other: each owns what it holds, and gives it away through post.h.
 * Two things are shared: counters for `status`, which are atomic, and what is constant (a mapped model file, its
 * vocabulary).
 *
 * So the device thread can be driven by a test without a socket, the loop thread answers status and tokenize while a
 * step runs for seconds, and a backend with steps in flight needs nothing from the rest of the program.
 *
 * Rules. Every submitted sequence gets EV_ADMIT at most once, EV_STEP tokens after it, and exactly one EV_END, which
 * is the last that is heard of it. A cancellation of something that has ended does nothing. EV_FATAL is the last event
 * of all: every sequence that had arrived has had its EV_END, and the process must end.
 *
 * What is counted: `rows` is every row that went through a model. `tokens_computed` is prompt tokens only, each once:
 * the sum of all usages' computed_tokens. Rows of completion tokens, of eval, and of prompts computed again after a
 * preemption are in `rows` alone.
 *
 * Thread: everything here is the loop thread's to call.
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
 * What a test puts between the engine and its device: given the backend and the device that it opened, returns the
 * table that the engine calls from then on, or NULL and an error. The device stays the backend's, which also closes it.
 * The device thread calls it once, before anything else.
 */
typedef const struct backend *engine_wrap(const struct backend *be, struct device *d, struct hearth_err *e);

/* What a GPU computes so that its bits depend on a sequence's own tokens alone: see enum invariance. A CPU always does.
 * AUTO: prompts of models whose prompts are quick so, else nothing. */
enum engine_invariant { INVARIANT_AUTO, INVARIANT_NOTHING, INVARIANT_PROMPTS, INVARIANT_ALL, INVARIANTS };

/* What KV is kept in: as the device likes (f32 on the CPU, f16 on a GPU), or one type for all models. A device that
 * cannot refuses the model. */
enum engine_kv_type { KV_TYPE_AUTO, KV_TYPE_F16, KV_TYPE_Q8_0, KV_TYPES };

/* Whether a KV pool has all of its memory from the beginning, or takes and gives it as pages are needed. AUTO: the
 * latter on the CPU. */
enum engine_kv_pool { KV_POOL_AUTO, KV_POOL_WHOLE, KV_POOL_GROWING, KV_POOLS };

struct engine_params {
    const char *backend;    /* "auto": the best one that opens, or a name */
    const char *variant;    /* of the backend; "auto" */
    uint32_t threads;       /* CPU: 0 = the machine's */
    uint32_t max_in_flight; /* steps in flight, 0 = as the device says; it never exceeds what the device allows */
    const char *checked;    /* path of the self-check cache (cache.h); NULL: there is none */
    uint64_t kv_bytes;      /* of a model's KV pool; 0 = by the device's memory */
    uint64_t kv_ram;        /* of KV in host memory; 0 = none, TIER_RAM_AUTO = by the machine's memory and `sharers` */
    uint64_t gpu_memory;    /* bytes that it may take of a GPU; 0 = any */
    uint64_t host_weights;  /* bytes of the host's memory for weights that a GPU has no room for; 0 = none, UINT64_MAX:
                               this engine's part of what is free */
    uint32_t sharers;     /* engines of this machine, between which what is free of the host's memory is shared; 0 = one
                             for each device that the backend could use */
    uint32_t gpu_percent; /* the same as a share of it; 0 = gpu_memory says it */
    uint64_t gpu_headroom; /* bytes that stay free of a GPU while other programs take more; 0 = none */
    const char *nvml;      /* the name of NVIDIA's management library; NULL: its own */
    enum engine_kv_type kv_type;
    enum engine_invariant invariant;
    enum engine_kv_pool kv_pool;
    const char *kv_dir; /* the folder of KV files; NULL = none are written */
    enum tier_policy restore;
    uint32_t step_seconds; /* a device whose step takes longer has failed; a matrix that is loaded has ten times that,
                              as its disk may be slow. 0: 60 on a GPU, no limit on a CPU */
    uint64_t idle_ms;      /* a model that was idle for so long is unloaded; 0 = it stays */
    uint64_t empty_ms;     /* EV_IDLE comes when no model was held for so long; 0 = never */
    engine_wrap *wrap;     /* NULL: the engine calls its device directly */
};

/* Opens the device and starts the thread. */
int engine_open(struct engine **out, const struct engine_params *p, struct hearth_err *e);
/* Stops after the step under way and frees everything, sequences that have not ended included. False where that step
 * takes longer than `seconds`: then nothing was freed, and the process should just end. */
bool engine_close(struct engine *eng, double seconds);

const char *engine_backend(const struct engine *eng); /* "cpu" */
const char *engine_device(const struct engine *eng);  /* its description */
uint32_t engine_devices(const struct engine *eng);    /* how many the backend could use */

/* --- in -------------------------------------------------------------------------------------------------- */

/* Takes the sequence. Its model is loaded first where need be. */
void engine_submit(struct engine *eng, struct seq *q);
void engine_cancel(struct engine *eng, uint64_t seq_id);
void engine_set_class(struct engine *eng, uint64_t seq_id, enum seq_class class);
/* Answered by EV_LOADED and EV_UNLOADED with the owner given. A busy model is not unloaded: HEARTH_ELIMIT. No event
 * tells of a model that is unloaded because it was idle (idle_ms) or to make room: model_entry.loaded says it. */
void engine_load(struct engine *eng, struct model_entry *m, void *owner);
/* The same of a model that no other device of the machine has room for either: this one serves it until it is unloaded,
 * if need be with the CPU. */
void engine_load_here(struct engine *eng, struct model_entry *m, void *owner);
void engine_unload(struct engine *eng, struct model_entry *m, void *owner);
/* A pinned model is loaded and stays: it is unloaded neither because it is idle nor to make room. engine_unload()
 * unloads it, and it is not pinned any more. Answered by EV_LOADED. */
void engine_pin(struct engine *eng, struct model_entry *m, bool pinned, void *owner);
/* Gives memory of the device to other programs for so many seconds: until `bytes` of it are free, or `all`; 0 seconds:
 * takes it again. Answered by EV_YIELDED: HEARTH_ELIMIT where less is free than was wanted. */
void engine_yield(struct engine *eng, uint64_t bytes, bool all, double seconds, void *owner);
/* Goes on with a yield that an earlier engine was asked for: holds `most` bytes at most for so many seconds. Answered
 * by EV_YIELDED. */
void engine_keep_yield(struct engine *eng, uint64_t most, double seconds, void *owner);
/* hearthd has evicted the KV file; `again`: its pages may be written again at once. */
void engine_kv_evicted(struct engine *eng, const char file[static KVFILE_NAME], bool again);
/* Waits for saves of KV to end, for some seconds at most. Answered by EV_FINISHED. */
void engine_finish(struct engine *eng, double seconds);
/* Back-pressure: no steps are started while throttled, because the loop's output is full. */
void engine_throttle(struct engine *eng, bool throttled);

/* --- out ------------------------------------------------------------------------------------------------- */

enum event_kind {
    EV_ADMIT,
    EV_PROMPT,
    EV_STEP,
    EV_END,
    EV_PROGRESS,
    EV_LOADED,
    EV_UNLOADED,
    EV_KV,
    EV_FINISHED,
    EV_YIELDED,
    EV_PARKED,
    EV_IDLE, /* for so long (empty_ms) there was no model, and nothing to save; it comes again */
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

struct event_prompt { /* EV_PROMPT: so much of a prompt has been computed, and not all; at most ten times a second */
    struct engine_event ev;
    void *owner;
    uint32_t done, total; /* tokens, reused ones among them */
};

struct step_token {
    void *owner;
    int32_t id;
    struct sampled *detail; /* owned; NULL where the sequence asked for no logprobs */
};
struct event_step { /* EV_STEP: at most one token per sequence */
    struct engine_event ev;
    uint32_t n;
    struct step_token token[];
};

enum end_reason {
    END_STOP /* an end token, not among the tokens */,
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
    uint32_t n_restored; /* of the reused */
    struct seq_times time;
    struct eval *eval; /* owned; what seq.eval pointed to */
};

struct event_model { /* EV_PROGRESS, EV_LOADED, EV_UNLOADED */
    struct engine_event ev;
    struct model_entry *model;
    void *owner;           /* NULL in EV_PROGRESS */
    struct hearth_err err; /* code 0: done */
    uint64_t done, total;  /* bytes */
    double seconds;
    bool was_loaded;
};

struct event_kv { /* EV_KV: a file of KV was saved, used, or found bad */
    struct engine_event ev;
    struct tier_event what; /* its strings are below */
    char file[KVFILE_NAME];
    char label[SEQ_LABEL + 1];
    char why[HEARTH_ERR_MSG];
};

struct event_yield { /* EV_YIELDED */
    struct engine_event ev;
    void *owner;
    struct hearth_err err;
    bool holds;                 /* although not so much is free: `err` says that then */
    uint64_t freed, free, held; /* bytes */
};

struct event_parked { /* EV_PARKED: the sequence waits for memory; or it goes on */
    struct engine_event ev;
    void *owner;
    bool parked;
    bool yielded; /* the memory, to other programs; else models that are at work hold it */
};

struct event_fatal { /* EV_FATAL */
    struct engine_event ev;
    struct hearth_err err;
};

/* Readable when events have come; engine_take() then fetches them all, engine_next() gives them one by one (NULL: no
 * more), and the caller frees each. */
int engine_fd(const struct engine *eng);
void engine_take(struct engine *eng);
struct engine_event *engine_next(struct engine *eng);
void engine_event_free(struct engine_event *ev);

/* --- counters -------------------------------------------------------------------------------------------- */

struct engine_counters {
    _Atomic uint64_t steps, rows, rows_max, tokens_computed;
    _Atomic uint32_t queued, running;
    /* Rows by path, and replays (device_info), counted when the ledger is. */
    struct {
        const char *_Atomic path; /* NULL: there are no more */
        _Atomic uint64_t rows;
    } path[DEVICE_PATHS];
    _Atomic uint64_t replays;
};
/* Of the device, when it was idle last, or 10 s ago. */
void engine_ledger(struct engine *eng, struct ledger *out);
/* The other programs on it; not known where it is no GPU. */
void engine_neighbours(struct engine *eng, struct neighbours_seen *out);
/* Why the best backend of this build is not the one that serves; NULL: it is, or another one was asked for. */
const char *engine_no_gpu(const struct engine *eng);
/* HEARTH_EDEVICE where the device has not done in time what is waited for: it hangs. */
int engine_stuck(const struct engine *eng, struct hearth_err *e);
const struct engine_counters *engine_counters(const struct engine *eng);
const struct tier_counters *engine_tiers(const struct engine *eng);

#endif
