/*
 * tier-internal.h - what tier.c (the turn, sequences), tier-save.c and tier-restore.c share. Nothing outside includes
 * it.
 */
#ifndef HEARTH_ENGINE_TIER_INSIDE_H
#define HEARTH_ENGINE_TIER_INSIDE_H

#include "daemon/engine/kvtier/kvio.h"
#include "daemon/engine/kvtier/tier-index.h"
#include "daemon/engine/kvtier/tier.h"

enum {
    TRANSFERS_MAX = 8, /* copies under way in one direction */
    PIECE_MAX = 64,    /* pages in one of them */
    READS_MAX = 4,     /* of one restore, so that the I/O thread never waits for the next */
};

enum direction { TO_HOST, TO_DEVICE };

/* The pages of one timeline that go to host memory and into one file. */
struct save {
    TAILQ_ENTRY(save) link;
    struct model_entry *model; /* NULL once the pages are copied */
    struct kv_namespace *ns;
    struct kv_table table; /* holds them, from the timeline's first one on */
    int64_t uid;
    char label[SEQ_LABEL + 1]; /* of the sequence, as are the next two */
    int64_t stream;
    uint64_t seq;
    uint32_t first, n;         /* pages of the timeline */
    struct tier_entry **entry; /* [n], referenced; [0, n_returned) are released */
    uint32_t n_submitted, n_copied, n_queued, n_returned;
    uint64_t job; /* of the I/O thread; 0: goes into no file, or the job has ended */
};

/* Pages on their way from a file for a restore. */
struct fetch {
    TAILQ_ENTRY(fetch) link;
    struct restore *restore; /* NULL: it has ended meanwhile */
    struct kv_namespace *ns;
    uint64_t job;
    uint32_t first, n;          /* of the restore's pages */
    struct tier_entry *entry[]; /* [n], held */
};

struct restore {
    TAILQ_ENTRY(restore) link;
    struct model_entry *model;
    struct seq *seq; /* NULL: cancelled; what is under way has to end yet */
    struct kv_table table;
    uint32_t first, n;              /* pages of the timeline to be had */
    struct kv_hash *hash;           /* of the timeline from its beginning ... */
    const struct kv_hash *from;     /* ... and from `first` on: [n] */
    struct tier_entry **entry;      /* [n]; [n_loaded, n_found) are held */
    uint32_t n_found;               /* in host memory, or asked for */
    uint32_t n_submitted, n_loaded; /* copies to the device begun, ended */
    uint32_t limit;                 /* it ends here: n, or where something failed */
    uint32_t n_fetch;
    double begin, compute; /* when; seconds that computing would take, 0 = unknown */
};

/* A copy under way. */
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
    uint32_t n_begun; /* in this turn */
};

struct tier {
    struct tier_params p;
    struct host host;
    struct tier_index index;
    struct kvio *io; /* NULL: no files */
    uint64_t io_jobs;
    uint64_t ram;         /* for pages that are kept */
    uint64_t piece;       /* bytes in one copy */
    double disk_retry_at; /* no files are written before: the last one failed */
    bool disk_failed;     /* and that was said */
    struct transfers transfers[2];
    struct rate device; /* of copies to it */
    enum tier_foreground foreground;
    double busy;                /* when steps were under way last */
    bool pinned;                /* in this turn */
    bool pin_wanted;            /* since this turn began, but that was not the time for it ... */
    double pin_at;              /* ... which is, as things stand, */
    double pin_ended, pin_took; /* of the last slab: when, and seconds */
    double last_transfer_done;  /* when the last of them was seen to be done */
    uint64_t page_bytes;        /* of the model loaded last */
    TAILQ_HEAD(, save) saves;
    TAILQ_HEAD(, fetch) fetches;
    TAILQ_HEAD(, restore) restores;
    struct seq_list waiting; /* for another's restore, or for a scan */
    struct seq_list ready;
    bool retry_waiting; /* a wait may be over */
};

/* tier.c */
struct host_page *tier_host_page(struct tier *t, enum direction way, const struct model_entry *m); /* NULL: not now */
void tier_notify(struct tier *t, const struct tier_event *ev);
void tier_used(struct tier *t, struct tier_file *f, double now);
/* The chain of hashes over n pages of a timeline, from page 0 on. NULL: no memory. */
struct kv_hash *tier_chain(int64_t uid, const int32_t *ids, uint32_t n);
/* Begins a copy of m.n pages, m.bytes in all, where tier_may_transfer. */
bool tier_may_transfer(const struct tier *t, enum direction way);
int tier_transfer(struct tier *t, enum direction way, struct transfer m, struct kv_pool *pool, const uint32_t *pages,
                  void **host, struct hearth_err *e);
static inline uint64_t tier_page_bytes(const struct kv_namespace *s)
{
    return s->fingerprint.page_bytes;
}
/* Pages in one copy. */
static inline uint32_t tier_piece(const struct tier *t, const struct kv_namespace *s)
{
    uint64_t n = t->piece / tier_page_bytes(s);
    return n < 1 ? 1 : n > PIECE_MAX ? PIECE_MAX : (uint32_t)n;
}

/* tier-save.c */
int save_poll(struct tier *t, struct hearth_err *e);
void save_copied(struct tier *t, struct save *s, uint32_t n);
void save_event(struct tier *t, struct save *s, const struct kvio_event *ev, double now);
void save_free(struct tier *t, struct save *s); /* at the end: nothing is under way any more */

/* tier-restore.c */
enum restore_begun { RESTORE_NOT, RESTORE_LATER, RESTORE_BEGUN };
enum restore_begun restore_begin(struct tier *t, struct seq *q, double now);
int restore_poll(struct tier *t, double now, struct hearth_err *e);
void restore_stop(struct restore *r); /* with what it has */
void restore_loaded(struct tier *t, struct restore *r, uint32_t n);
void restore_free(struct tier *t, struct restore *r); /* no copy of it is under way */
void fetch_event(struct tier *t, struct fetch *f, const struct kvio_event *ev, double now);
void fetch_free(struct tier *t, struct fetch *f);

#endif
