/*
 * tier.h - KV beyond the device: saves pages to host memory and files when a turn ends, and restores them before a
 * generation that can use them.
 *
 * There are three tiers: the model's pool on the device (kv.h), host memory, and files (kvio.h). Pages are written
 * through when a turn or a long prompt ends, so demotion costs nothing: eviction drops the least recently used page (in
 * host memory, of the uid that has the most there), and a lower tier still has it. The index of the lower two tiers
 * (tier-index.h) is keyed by content and fingerprint, not by pool, so a model that was unloaded, replaced by another
 * for a while, or loaded by the next process finds its KV again.
 *
 * A save copies the pages of an ended turn that are in no file yet from the device to host memory and from there to a
 * file. It references them by a block table of its own until they are copied. Turns that failed are not saved, nor are
 * evals. While a turn is running, its prompt is saved once it is computed, if it is long, because most of what a crash
 * or a yield would cost is the prompt. The part of the answer that is saved later goes to files of its own.
 *
 * A restore happens before the scheduler sees the sequence, so that the scheduler need not know of it: pages that the
 * device lacks are allocated from the pool, filled, published in the prefix cache, and released; then the sequence
 * finds them like any other cached page. Where a page cannot be restored, the restore ends there: the pages before it
 * are used, and the rest is computed. A sequence whose pages another restore is fetching waits for that one; one whose
 * pages are in a file that is still being written waits for the file, as long as that costs little compared with
 * computing.
 *
 * A model has a namespace for each of its layer groups, with its own files and pages in host memory. Of a group with a
 * window, a save takes the pages that the pool has, those of the windows before the prompt's and the turn's end. A
 * restore brings back all pages of the other groups and the window before the place where it ends, or nothing at all: a
 * timeline cannot be resumed at a place whose window was not kept.
 *
 * Whether to restore or recompute is decided by measured rates: tokens per second of prefill against bytes per second
 * of the link and the disk. Until a rate is known, restoring is assumed to be cheaper. A restore that falls behind what
 * computing would have taken (judged after a tenth of that time) is stopped, and the pages restored so far are used.
 *
 * Copies and steps overlap by whole pages, not by layers: the pages are copied in pieces, and a piece is uploaded while
 * the next is read. Letting the first layers compute while the last are copied would save at most the shorter of the
 * copy and the compute time of the remaining prompt: for 4,096 tokens of an 8B model, 10 ms of copy beside some 5 ms
 * for the rest of the prompt, so 5 ms in the best case once per resumed turn. Every page would become n_layer copies of
 * 64 KiB, which the link moves more slowly. The other sequences' steps already overlap with all of it.
 *
 * Everything is done in pieces of a few MB between steps (tier_poll), and no function here waits, except tier_wait.
 *
 * Thread: the device thread's; counters may be read by any thread.
 */
#ifndef HEARTH_ENGINE_TIER_H
#define HEARTH_ENGINE_TIER_H

#include <stdatomic.h>

#include "daemon/engine/kvtier/kvfile.h"
#include "daemon/engine/sched/models.h"

#define TIER_RAM_AUTO UINT64_MAX

enum tier_policy { TIER_BY_COST, TIER_ALWAYS, TIER_NEVER };

/* An event for the owner, which reports it to hearthd. */
enum tier_event_kind { TIER_SAVED, TIER_USED, TIER_BAD };
struct tier_event {
    enum tier_event_kind kind;
    const char *file;
    uint64_t fingerprint; /* the fingerprint's id; set for SAVED */
    int64_t uid;
    uint64_t bytes;
    uint32_t tokens, pos;
    const char *label; /* the label of the sequence whose turn it holds */
    int64_t stream;    /* of that sequence */
    const char *why;   /* BAD */
};

struct tier_counters {
    _Atomic uint64_t host_pages, host_bytes, host_limit, file_pages, file_bytes;
    _Atomic uint64_t pages_saved, pages_restored, pages_dropped, bytes_saved, bytes_restored;
    _Atomic uint64_t bytes_written, bytes_read, files_written, files_bad, moving;
    _Atomic double prefill_rate, device_rate, read_rate, write_rate;
};

struct tier_params {
    const struct backend *be;
    struct device *dev;
    bool gpu;
    const char *dir; /* directory of the files; NULL: no files before tier_use_dir() */
    /* Bytes of host memory for cached pages; TIER_RAM_AUTO: derived from the machine's memory. */
    uint64_t ram;
    /* With TIER_RAM_AUTO: the number of processes that share that memory. */
    uint32_t sharers;
    /* Returns the bytes that the machine has left at present for TIER_RAM_AUTO; NULL: unlimited. */
    uint64_t (*ram_left)(void);
    enum tier_policy policy;
    struct tier_counters *counters; /* owned by the caller, which may read them after tier_close too */
    void (*notify)(void *arg, const struct tier_event *ev);
    void *arg;
};

struct tier;

/* Opens the tier. If the directory cannot be used, returns that error in `e` and opens the tier without files; 0
 * otherwise. */
int tier_open(struct tier **out, const struct tier_params *p, struct hearth_err *e);
/* Opens the directory, for a tier without files, and looks for the files of all models. Pages that the device has
 * already are written when the next turn that has them ends. A tier with files stays as it is. */
int tier_use_dir(struct tier *t, const char *dir, struct hearth_err *e);
/* Ends everything under way; no sequence may be left in it. `t` may be NULL. */
void tier_close(struct tier *t);

/* Announces a loaded model, which must have its pools. The first time, its files are looked for (scanned). */
void tier_attach(struct tier *t, struct model_entry *m, const struct kv_fingerprint *fingerprint /* [m->n_group] */);
/* Announces that the model is to be unloaded once it is saved: from now on host memory is pinned for it as if
 * generations waited for that. NULL: it was unloaded. */
void tier_hurry(struct tier *t, const struct model_entry *m);
/* Announces an unload: pages whose copy to host memory was not submitted yet are no longer saved. */
void tier_detach(struct tier *t, struct model_entry *m);
/* Returns whether jobs use the model's pool, which must not be freed before there are none. */
bool tier_busy(const struct tier *t, const struct model_entry *m);

/* Takes the sequence if there is something to restore for it, and returns it by tier_ready(); false: the caller pushes
 * it. */
bool tier_submit(struct tier *t, struct seq *q, double now);
/* Returns the next sequence that may be pushed; NULL: none. */
struct seq *tier_ready(struct tier *t);
/* Removes a sequence and returns it, NULL where the tiers do not have it; each call of tier_cancel_any removes one. */
struct seq *tier_cancel(struct tier *t, uint64_t seq_id);
struct seq *tier_cancel_any(struct tier *t);
/* Returns the sequence, which stays in the tiers; NULL: they do not have it. */
struct seq *tier_find(const struct tier *t, uint64_t seq_id);

/* Returns the sequence in the tiers whose first token is due the earliest; NULL: none of them has a deadline. */
struct seq *tier_first_due(const struct tier *t);

/* Saves the computed pages of a turn that are in no tier yet; call it while the sequence has its pages. */
void tier_save(struct tier *t, struct seq *q, double now);
/* How many of the model's pages stay in use until saves under way have copied them; an upper bound. */
uint32_t tier_pages_leaving(const struct tier *t, const struct model_entry *m);
bool tier_saving(const struct tier *t); /* files or copies are under way */

/* Reports that the file was evicted. With `again`, its pages are saved again when a turn that has them ends. Without,
 * not for an hour: for a file that was evicted soon after it was written. */
void tier_file_evicted(struct tier *t, const char *file, bool again, double now);

/* Reports that n_tok prompt tokens were computed in `seconds`, for the prefill rate. */
void tier_computed(struct tier *t, const struct model_entry *m, uint32_t n_tok, double seconds);

/* Handles the events that have arrived and starts the copies and reads that are possible. 1: call again soon, copies
 * are under way; 0: only the descriptor (tier_fd) or new work can bring progress; negative: the device failed. */
int tier_poll(struct tier *t, double now, struct hearth_err *e);
/* Sets the device thread's foreground work, which holds until the next call: pinning host memory for a save delays all
 * of it. */
enum tier_foreground {
    TIER_FG_IDLE,    /* no work, and a prompt may arrive at any moment */
    TIER_FG_DECODE,  /* steps of sequences that already have their first token */
    TIER_FG_PREFILL, /* steps, and a sequence waits for its first token */
    TIER_FG_SUBMIT,  /* as TIER_FG_PREFILL, but that sequence's step is not submitted yet */
    TIER_FG_BLOCKED, /* no work: all waiting sequences wait for saves to end */
};
void tier_foreground(struct tier *t, enum tier_foreground what);
/* Waits for the oldest copy under way, where there is one. */
int tier_wait(struct tier *t, struct hearth_err *e);
/* Preallocates host memory, for idle times. False: there is enough of it, a sequence waits for a restore, or it is too
 * early after the last slab. */
bool tier_idle(struct tier *t);
/* tier_fd is readable when the I/O thread has posted events; -1: the tier has no files. tier_poll_timeout is the
 * longest time in seconds to wait for it; < 0: for ever. Call the latter after tier_idle. */
int tier_fd(const struct tier *t);
double tier_poll_timeout(const struct tier *t);

#endif
