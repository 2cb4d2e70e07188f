/*
 * tier-internal.h - declarations shared by tier.c (polling, sequences), tier-pin.c, tier-save.c, tier-admit.c and
 * tier-restore.c. No other file includes it.
 */
#ifndef HEARTH_ENGINE_TIER_INTERNAL_H
#define HEARTH_ENGINE_TIER_INTERNAL_H

#include "daemon/engine/kvtier/kvio.h"
#include "daemon/engine/kvtier/tier-index.h"
#include "daemon/engine/kvtier/tier.h"

enum {
    TRANSFERS_MAX = 8, /* copies under way in one direction */
    PIECE_MAX = 64,    /* pages in one of them */
    READS_MAX = 4,     /* reads under way for one restore, so that the I/O thread never waits for the next */
};

enum direction { TO_HOST, TO_DEVICE };

/* A save: pages of a layer group, of one timeline, that go to host memory and into one file. */
struct save {
    TAILQ_ENTRY(save) link;
    struct model_entry *model; /* NULL once the pages are copied */
    uint32_t group;            /* the layer group whose pages they are ... */
    struct kv_namespace *ns;   /* ... and its namespace */
    struct kv_table table;     /* references the pages, from the timeline's first one on */
    int64_t uid;
    char label[SEQ_LABEL + 1]; /* label of the sequence; the next two are its numbers */
    int64_t stream;
    uint64_t seq;
    uint32_t first, n;         /* pages of the timeline */
    struct tier_entry **entry; /* [n], referenced; [0, n_returned) are released */
    uint32_t n_submitted, n_copied, n_queued, n_returned;
    uint64_t job; /* the I/O thread's job; 0: the save is for host memory alone, or the job has ended */
};

/* A fetch: pages being read from one file for a restore. */
struct fetch {
    TAILQ_ENTRY(fetch) link;
    struct restore *restore; /* NULL: the restore has ended */
    struct kv_namespace *ns;
    uint64_t job;
    uint32_t first, n;          /* indices of the restore's items */
    struct tier_entry *entry[]; /* [n], referenced */
};

/* A page to restore. */
struct restore_item {
    uint32_t group, place;    /* place: index in the timeline, in units of KV_PAGE tokens */
    struct tier_entry *entry; /* [n_loaded, n_found) are referenced */
};

struct restore {
    TAILQ_ENTRY(restore) link;
    struct model_entry *model;
    struct seq *seq; /* NULL: cancelled; its reads and copies have yet to end */
    struct kv_table table;
    struct kv_hash *hash; /* [end] of the timeline's places */
    /* The places at which the timeline can be resumed without this restore, and with it. */
    uint32_t had, end;
    uint32_t first; /* groups that see everything are restored from this place on */
    /* The first items are pages of windows: unless all of them are restored, the restore is useless. */
    uint32_t n_window;
    struct restore_item *item; /* [n] by group, in the order of their places */
    uint32_t n;
    uint32_t n_found;               /* items in host memory, or requested from a file */
    uint32_t n_submitted, n_loaded; /* copies to the device submitted, completed */
    uint32_t limit;                 /* the restore ends at this item: n, or where something failed */
    uint32_t n_fetch;
    double begin, compute; /* start time; seconds that computing would take, 0 = unknown */
};

/* A KV transfer (asynchronous copy) under way. */
struct transfer {
    uint64_t ticket;
    uint64_t bytes;
    double begin;
    struct save *save;
    struct restore *restore;
    uint32_t n;
};
struct transfers {
    struct transfer ring[TRANSFERS_MAX];
    uint32_t first, n, most;
    uint32_t n_begun; /* begun in this call of tier_poll */
};

struct tier {
    struct tier_params p;
    struct host host;
    struct tier_index index;
    struct kvio *io; /* NULL: the tier works without files */
    uint64_t io_jobs;
    uint64_t ram; /* bytes of host memory for cached pages */
    /* The upper bound of `ram` with TIER_RAM_AUTO; 0: a fixed size was configured. */
    uint64_t ram_most;
    double looked;        /* when the machine's remaining memory was last queried */
    uint64_t piece;       /* bytes in one copy */
    double disk_retry_at; /* no file is written before this time, as the last write failed */
    bool disk_failed;     /* that failure was reported */
    struct transfers transfers[2];
    struct rate device; /* rate of copies to the device */
    enum tier_foreground foreground;
    double busy;                /* the time at which steps were last under way */
    bool pinned;                /* a slab was pinned in this call of tier_poll */
    bool pin_wanted;            /* a slab was wanted in this call of tier_poll, but too early: */
    double pin_at;              /* the earliest time to pin one, as things stand */
    double pin_ended, pin_took; /* the last slab: when its pinning ended, and how many seconds it took */
    double last_transfer_done;  /* when the last transfer was seen to be done */
    uint64_t page_bytes;        /* of the model loaded last */
    TAILQ_HEAD(, save) saves;
    TAILQ_HEAD(, fetch) fetches;
    TAILQ_HEAD(, restore) restores;
    struct seq_list waiting; /* sequences that wait for another restore, a file or a scan */
    struct seq_list ready;
    bool retry_waiting; /* some sequence's wait may be over */
    /* The model that will be unloaded once its saves have ended; NULL: none. */
    const struct model_entry *leaving;
};

/* tier-pin.c */
void pin_open(struct tier *t);             /* fills in ram, ram_most and host */
void pin_for_transit(struct tier *t);      /* pins memory for pages in transit of the model loaded last */
void pin_poll(struct tier *t, double now); /* called at the start of tier_poll */
/* Returns host memory for a page of `bytes` of the model; NULL: none at present. */
struct host_page *tier_host_page(struct tier *t, enum direction way, const struct model_entry *m, uint64_t bytes);

/* tier.c */
void tier_notify(struct tier *t, const struct tier_event *ev);
void tier_count_moving(struct tier *t);
void tier_used(struct tier *t, struct tier_file *f, double now);
/* Returns the chain of hashes over n pages of a timeline, from page 0 on; the caller frees it. NULL: no memory. */
struct kv_hash *tier_chain(const struct seq *q, uint32_t n);
/* Returns the root of the hash chain, which differs for each of RoPE's frequency sets (kv-format.md, `parent`). */
struct kv_hash tier_root(const struct seq *q);
/* Begins a copy of m.n pages, m.bytes in all. Requires tier_may_transfer. */
bool tier_may_transfer(const struct tier *t, enum direction way);
int tier_transfer(struct tier *t, enum direction way, struct transfer m, struct kv_pool *pool, const uint32_t *pages,
                  void **host, struct hearth_err *e);
static inline uint64_t tier_page_bytes(const struct kv_namespace *s)
{
    return s->fingerprint.page_bytes;
}
/* Returns the number of pages in one copy. */
static inline uint32_t tier_piece(const struct tier *t, const struct kv_namespace *s)
{
    uint64_t n = t->piece / tier_page_bytes(s);
    return n < 1 ? 1 : n > PIECE_MAX ? PIECE_MAX : (uint32_t)n;
}

/* tier-save.c */
int save_poll(struct tier *t, struct hearth_err *e);
void save_copied(struct save *s, uint32_t n);
void save_event(struct tier *t, struct save *s, const struct kvio_event *ev, double now);
void save_free(struct tier *t, struct save *s); /* for tier_close: nothing is under way any more */

/* Whether the group's layers see all of the context; and whether the model has groups that do not. */
static inline bool tier_sees_all(const struct model_entry *m, uint32_t group)
{
    return !m->kv[group].window && !m->kv[group].d_state;
}
static inline bool tier_has_windows(const struct model_entry *m)
{
    return !tier_sees_all(m, m->n_group - 1); /* such groups come last */
}

/* A restore is judged after this share of the time that computing would take, and not before this many seconds. */
#define TIER_GRACE_SHARE 0.1
#define TIER_GRACE_LEAST 0.02

/* tier-admit.c */
enum restore_begun { RESTORE_NOT, RESTORE_LATER, RESTORE_BEGUN };
enum restore_begun restore_begin(struct tier *t, struct seq *q, double now);

/* tier-restore.c */
int restore_poll(struct tier *t, double now, struct hearth_err *e);
void restore_stop(struct restore *r); /* ends it with the pages restored so far */
void restore_loaded(struct tier *t, struct restore *r, uint32_t n);
void restore_free(struct tier *t, struct restore *r); /* called when no copy of it is under way */
void fetch_event(struct tier *t, struct fetch *f, const struct kvio_event *ev, double now);
void fetch_free(struct tier *t, struct fetch *f);

#endif
