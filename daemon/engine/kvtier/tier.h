/*
 * tier.h - KV beyond the device: saves pages to host memory and files when a turn ends, and restores them before a
 * generation that can use them.
 *
 * Three tiers: the model's pool on the device (kv.h), host memory, files (kvio.h). Pages are written through when a
 * turn or a long prompt ends, so demotion costs nothing: eviction drops the least recently used page (in host memory,
 * of the uid that has the most there), and a lower tier still has it. The index of the lower two (tier-index.h) goes by
 * content and fingerprint, not by pool, so a model that was unloaded, replaced by another for a while, or loaded by the
 * next process finds its KV again.
 *
 * A save takes the pages of an ended turn that are in no file yet from the device to host memory and from there to a
 * file, and references them by a block table of its own until they are copied. Turns that failed are not saved, nor is
 * eval. Of running turns the prompt is saved once it is computed, where it is long: what a crash or a yield would cost
 * is mostly that. What is saved later, of the answer, is in files of its own.
 *
 * A restore happens before the scheduler sees the sequence, so that the scheduler need not know of it: pages the device
 * lacks are taken from the pool, filled, published in the prefix cache, and released; then the sequence finds them like
 * any other cached page. Where a page cannot be restored, the restore ends there: the pages before it are used, and the
 * rest is computed. A sequence whose pages another restore is fetching waits for that one; one whose pages are in a
 * file that is still being written waits for the file, as long as that costs little beside computing.
 *
 * A model has a namespace for each of its layer groups, with files and pages in host memory of its own. Of a group with
 * a window a save takes what its pool has, the windows before the prompt's and the turn's end; and a restore brings
 * back, beside all pages of the others, the window before the place where it ends, or nothing: between the places that
 * windows were kept of, nobody can go on.
 *
 * Restore or recompute is decided by measured rates: tokens per second of prefill against bytes per second of the link
 * and the disk. Until a rate is known, restoring is taken to be cheaper. A restore that falls behind what computing
 * would have taken (judged after a tenth of that) is stopped, and the pages restored so far are used.
 *
 * Copies and steps overlap whole pages, not layers: the pages come in pieces, and a piece is uploaded while the next is
 * read. Letting the first layers compute while the last are copied would save at most the shorter of the copy and the
 * tail's compute: for 4,096 tokens of an 8B, 10 ms of copy beside some 5 ms for the rest of the prompt, so 5 ms in the
 * best case once per resumed turn; and every page would become n_layer copies of 64 KiB, which the link moves slower.
 * The other sequences' steps overlap with all of it already.
 *
 * Everything is done in pieces of a few MB between steps (tier_poll), and nothing here waits, but tier_wait.
 *
 * Thread: the device thread's; counters may be read anywhere.
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
    uint64_t fingerprint; /* SAVED and the kinds after it: the fingerprint's id */
    int64_t uid;
    uint64_t bytes;
    uint32_t tokens, pos;
    const char *label; /* the label of the sequence whose turn it holds */
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
    const char *dir;            /* of the files; NULL: none */
    uint64_t ram;               /* bytes of host memory for cached pages; TIER_RAM_AUTO: by the machine's memory */
    uint32_t sharers;           /* of which that is as many processes' together */
    uint64_t (*ram_left)(void); /* bytes that the machine has left for TIER_RAM_AUTO by now; NULL: any */
    enum tier_policy policy;
    struct tier_counters *counters; /* the caller's, for it to read after tier_close too */
    void (*notify)(void *arg, const struct tier_event *ev);
    void *arg;
};

struct tier;

/* Opens the tier. A folder that cannot be used returns its error: the tier then works without files, and `e` says why;
 * 0 otherwise. */
int tier_open(struct tier **out, const struct tier_params *p, struct hearth_err *e);
/* Ends everything under way; no sequence is left in it. May be NULL. */
void tier_close(struct tier *t);

/* Announces a loaded model, which has its pool. The first time, its files are looked for (scanned). */
void tier_attach(struct tier *t, struct model_entry *m, const struct kv_fingerprint *fingerprint /* [m->n_group] */);
/* The model is to be unloaded once it is saved: from now on host memory is pinned for it as if generations waited for
 * that. NULL: it has gone. */
void tier_hurry(struct tier *t, const struct model_entry *m);
/* Announces an unload: pages whose copy to host memory was not submitted yet are no longer saved. */
void tier_detach(struct tier *t, struct model_entry *m);
/* Returns whether jobs use the model's pool, which must not be freed before there are none. */
bool tier_busy(const struct tier *t, const struct model_entry *m);

/* Takes the sequence where there is something to restore for it, and returns it by tier_ready(); false: the caller
 * pushes it. */
bool tier_submit(struct tier *t, struct seq *q, double now);
/* The next sequence that may be pushed; NULL: none. */
struct seq *tier_ready(struct tier *t);
/* Removes a sequence and returns it, NULL where the tiers do not have it; tier_cancel_any removes one after the
 * other. */
struct seq *tier_cancel(struct tier *t, uint64_t seq_id);
struct seq *tier_cancel_any(struct tier *t);
/* The sequence, which stays there; NULL. */
struct seq *tier_find(const struct tier *t, uint64_t seq_id);

/* Saves what is computed of a turn that is in no tier yet; to be called while the sequence has its pages. */
void tier_save(struct tier *t, struct seq *q, double now);
/* How many of the model's pages stay in use until saves under way have copied them; an upper bound. */
uint32_t tier_pages_leaving(const struct tier *t, const struct model_entry *m);
bool tier_saving(const struct tier *t); /* files or copies are under way */

/* The file was removed: its pages are saved again when a turn that has them ends; or not `again`, for an hour, where it
 * had to give way soon after it was written. */
void tier_file_evicted(struct tier *t, const char *file, bool again, double now);

/* Reports that a prompt of n tokens was computed in this time, for the rate of prefill. */
void tier_computed(struct tier *t, const struct model_entry *m, uint32_t n_tok, double seconds);

/* Polls: handles the events that have come and starts the copies and reads that are possible. 1: call again soon,
 * copies are under way; 0: only a descriptor (tier_fd) or new work can bring progress; negative: the device failed. */
int tier_poll(struct tier *t, double now, struct hearth_err *e);
/* Sets the device thread's foreground work, until it is set anew: pinning host memory for a save delays all of it. */
enum tier_foreground {
    TIER_FG_IDLE,    /* no work, and a prompt may come at any moment */
    TIER_FG_DECODE,  /* steps of sequences that have had their first token */
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
/* tier_fd is readable when the I/O thread has posted events; -1: the tier has no files. tier_poll_timeout is how many
 * seconds to wait for it at most; < 0: for ever. Call the latter after tier_idle. */
int tier_fd(const struct tier *t);
double tier_poll_timeout(const struct tier *t);

#endif
