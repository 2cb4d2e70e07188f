/*
 * tier-index.h - the index of the lower two tiers: which pages of KV are in host memory, in files, or in both.
 *
 * Pure: no device, no I/O, no clock. A page is found by the chain hash of its timeline up to its end (kvfile.h), and
 * accepted only where its parent's hash, its uid and its ids are equal too; so a walk from the root compares every id.
 * A page names its parent by a 128-bit hash, where kv.h has the parent itself: files outlive the process, and pointers
 * do not.
 *
 * A namespace holds the pages of one fingerprint. It stays when the model is unloaded: pages belong to their content,
 * not to the pool that they were computed in.
 *
 * Thread: the device thread's.
 */
#ifndef HEARTH_ENGINE_TIER_INDEX_H
#define HEARTH_ENGINE_TIER_INDEX_H

#include <sys/queue.h>

#include "daemon/engine/clock.h"
#include "daemon/engine/kvtier/kvfile.h"
#include "daemon/engine/kvtier/tier-host.h"

enum { FILE_BUCKETS = 256 };

struct tier_file {
    TAILQ_ENTRY(tier_file) link;
    char name[KVFILE_NAME];
    uint64_t bytes;
    LIST_HEAD(, tier_entry) pages; /* pages of this file; a page is in one file at most */
    double notified_at;            /* when its use was last reported */
    double retired_at; /* 0: the file exists; else when it was evicted, and its pages are not to be written */
    struct kv_namespace *ns;
    TAILQ_ENTRY(tier_file) retired; /* ordered by retired_at, oldest first */
};

TAILQ_HEAD(tier_files, tier_file);

/* A uid's share of host memory. Where room is needed, pages of the uid with the most are evicted. */
struct tier_owner {
    TAILQ_ENTRY(tier_owner) link;
    int64_t uid;
    uint32_t n_entry;
    TAILQ_HEAD(, tier_entry) lru; /* pages in host memory that no job uses; the least recently used first */
    uint64_t lru_bytes;           /* bytes of the pages in lru */
};

struct tier_entry {
    struct tier_entry *next; /* in the bucket */
    TAILQ_ENTRY(tier_entry) lru;
    struct kv_namespace *ns;
    struct kv_hash hash, parent;
    struct tier_owner *owner;
    int32_t id[KV_PAGE];
    struct host_page *host; /* NULL: not in host memory */
    bool ready;             /* its content is valid; else a transfer or a read is about to fill it */
    bool saving;            /* being saved: to a file, or to host memory alone where there are no files */
    uint32_t users;         /* jobs that need the entry and its host memory to stay */
    struct tier_file *file; /* NULL: in no file */
    LIST_ENTRY(tier_entry) in_file;
    uint32_t pos; /* position of its first token */
};

/* Whether the page can be read from a file: `file` may have been evicted. */
static inline bool index_in_file(const struct tier_entry *en)
{
    return en->file && !en->file->retired_at;
}

struct kv_namespace {
    TAILQ_ENTRY(kv_namespace) link;
    struct kv_fingerprint fingerprint;
    uint64_t scan; /* the job that scans the folder; 0 = none, or ended */
    bool scanned;  /* a scan was submitted */
    struct rate prefill;
    _Atomic double prefill_rate; /* tokens/s of prefill, a moving average; 0 = unknown */
    struct tier_entry **bucket;
    uint32_t n_bucket, n_entry;
    struct tier_files files[FILE_BUCKETS];
};

struct tier_index {
    TAILQ_HEAD(, kv_namespace) namespaces;
    TAILQ_HEAD(tier_owners, tier_owner) owners;              /* most recently used last */
    uint64_t lru_bytes;                                      /* bytes of all owners' lru */
    uint64_t host_pages, host_bytes, file_pages, file_bytes; /* of files that exist */
    struct tier_files retired;
    uint64_t dropped; /* pages evicted that were in no other tier */
    uint32_t n_entry;
    struct host *host; /* borrowed */
};

void index_init(struct tier_index *x, struct host *host);
void index_fini(struct tier_index *x); /* no job may be left */

/* Returns the fingerprint's namespace, creating it if there is none; NULL without memory. */
struct kv_namespace *index_namespace(struct tier_index *x, const struct kv_fingerprint *fingerprint);

/* Returns the page of exactly that content after `parent`, or NULL. */
struct tier_entry *index_find(const struct kv_namespace *s, const struct kv_hash *hash, const struct kv_hash *parent,
                              int64_t uid, const int32_t *id);
/* Returns the page of that hash, or NULL, for callers that have already compared the rest. */
struct tier_entry *index_lookup(const struct kv_namespace *s, const struct kv_hash *hash);

/* Returns the page as index_find does, or a new entry where there is none. NULL: no memory, too many entries, or
 * another content has that hash. */
struct tier_entry *index_add(struct tier_index *x, struct kv_namespace *s, const struct kv_hash *hash,
                             const struct kv_hash *parent, int64_t uid, uint32_t pos, const int32_t *id);

/* Enters a file: pages of the extent that are in no other existing file become this file's. */
void index_file(struct tier_index *x, struct kv_namespace *s, const char *name, uint64_t bytes,
                const struct kvfile_extent *extent);
/* Removes a file that was evicted or is damaged. */
void index_forget(struct tier_index *x, struct kv_namespace *s, const char *name);
/* index_retire marks a file that was evicted for lack of space soon after it was written: its pages are in no file, but
 * are not written again until the file is forgotten. index_forget_retired forgets files retired before that time. */
void index_retire(struct tier_index *x, struct kv_namespace *s, const char *name, double now);
void index_forget_retired(struct tier_index *x, double before);

/* Take and release a job's reference to the entry. With the last reference an entry that is in no tier is freed; one in
 * host memory becomes the most recently used. */
void index_acquire(struct tier_index *x, struct tier_entry *en);
void index_release(struct tier_index *x, struct tier_entry *en);
/* Makes an entry the most recently used. Touch a timeline from its end backwards, so that its first pages are dropped
 * last. */
void index_touch(struct tier_index *x, struct tier_entry *en);

/* Attaches host memory to the entry (not ready), or frees the entry's host memory. */
void index_set_host(struct tier_index *x, struct tier_entry *en, struct host_page *page);
void index_drop_host(struct tier_index *x, struct tier_entry *en);
/* Evicts from host memory the least recently used page of the uid that has the most there; false where there is
 * none. */
bool index_evict_oldest(struct tier_index *x);
/* Evicts that page only where this loses nothing, as it is in a file too, and where its size is page_bytes. */
bool index_evict_clean(struct tier_index *x, uint64_t page_bytes);

#endif
