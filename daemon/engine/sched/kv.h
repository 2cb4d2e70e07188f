/*
 * kv.h - the pages of KV and their users: reference counts, block tables, and the prefix cache.
 *
 * Pure: no device and no clock. A page here is a number in the pool of its layer group. An operation on its memory (a
 * copy, a clear) is queued as a `struct kv_action`, and the engine carries out the queue, in order, before its next
 * step.
 *
 * A pool's memory may be mapped and unmapped in extents of pages (struct kv_memory). A page whose extent has no memory
 * is on no list. An extent gets memory when pages are wanted and none is free, before anything cached is evicted;
 * kv_shrink gives it back once none of its pages is referenced or cached.
 *
 * A model has a pool for each of its layer groups (kernels/backend.h), and KV_PAGE tokens of a timeline have a page in
 * each. The i-th such stretch of a timeline is its place i: the i-th entry of a block table. A page is in one of three
 * states:
 *     free      on its pool's free list; its memory still holds its last uid's KV, and is cleared before another uid
 *               gets it
 *     private   in exactly one block table, being written
 *     cached    its content is identified by token ids and looked up by them; in any number of block tables.
 *               Unreferenced cached pages are in an LRU list, from which pages are taken when the free list is empty.
 *
 * The cache is a tree of nodes: a node is the KV_PAGE ids that follow its parent's, with the pages that hold their KV.
 * A node is looked up by a hash chained from the root over the token ids, salted by uid and frequency set, and accepted
 * only after all of these and its parent were compared. So resume, sharing between sessions and recovery are one
 * mechanism, and no uid ever sees another uid's pages. A full node is shared as it is; of the last one, the longest
 * common prefix is used: in place where no other table references it, else by copy on write.
 *
 * A group whose layers see everything has a page in every node; a node that loses that page is removed. A table that
 * references a page references its ancestors too, and releases its pages last to first; so a page is always more
 * recently used than its children, and evicting the oldest never orphans one.
 *
 * A group with a window needs the window before the next token to be computed, and no more. Its pages are allocated as
 * the tokens come near (kv_grow's `ahead`) and freed when the window has moved past them. Two windows stay cached, each
 * with KV_SLACK tokens more, because other sequences resume there: the one before the prompt's end (kv_table.keep) and
 * the one before the timeline's end at its release. A prefix of a timeline can be resumed only if its nodes are cached
 * together with the pages of every window before its end.
 *
 * Where timelines will diverge is not known while the first of them is read. Keeping windows at fixed intervals for all
 * of them would give up a good part of what windows save: 1024 tokens of each 4096 are a quarter of a full cache. So of
 * two prompts that begin with one document and then differ, the second computes all of it again. But it finds the nodes
 * of the first, and keeps the window before the place where it diverges from them (kv_table.part) if that is at least
 * PART_LEAST tokens beyond where it could itself resume; the third prompt resumes there. A client that wants a document
 * shared from the second prompt on computes it first by itself (max_tokens 0), or forks there.
 *
 * A group of recurrent states (kernels/backend.h) has a page in a node where the state after that node's last token was
 * kept. A table owns two more pages: the state before the next step, which that step only reads, so that a stopped step
 * can be run again, and the page that the step writes. A written state is kept by leaving its page in its place of the
 * table and writing to another page from then on: nothing is copied. Where the device can emit a state from within a
 * step (kv_shape.within), and a third page is available for it, a step may continue past one place where a state is
 * kept; else the step must end there (kv_cut). States are kept at whole places:
 *   - KV_SLACK tokens or a little more before the prompt's end, for sequences that resume there;
 *   - where timelines diverge, as for windows;
 *   - every STATE_READ tokens of a prompt up to that place, or every STATE_READ_APART where a step must end for it, and
 *     every STATE_SAID tokens after the prompt. Of these the latest stays, for the timeline's end, and so do, as long
 *     as there is room, those at a multiple of STATE_SPARSE.
 *
 * The state at the very end is kept too, when the table is released, unless steps in flight have gone beyond it, as
 * they have where an end token or a stop string was a surprise. A prefix of a timeline can be resumed where its state
 * was kept.
 *
 * Thread: the device thread's.
 */
#ifndef HEARTH_ENGINE_KV_H
#define HEARTH_ENGINE_KV_H

#include "kernels/backend.h"

#define KV_NONE UINT32_MAX
enum { KV_SLACK = 2 * KV_PAGE /* tokens kept before a window, because a resuming sequence may go back by a few */ };
enum { STATE_READ = 512, STATE_READ_APART = 2048, STATE_SAID = 128, STATE_SPARSE = 4096 }; /* multiples of KV_PAGE */
enum { PART_LEAST = 512 };

struct kv; /* the page table of a model: the pages of all its pools */

/* The shape of a pool. */
struct kv_shape {
    uint32_t n_page;
    uint32_t window; /* tokens visible, the token itself included; 0: all */
    bool state;      /* its pages are recurrent states, not KV */
    uint32_t extent; /* pages that are mapped together; 0: all pages always have memory */
    bool within;     /* states only: a step can emit one from between its rows */
};

/* Maps and unmaps the memory of extents. */
struct kv_memory {
    bool (*map)(void *arg, uint32_t group, uint32_t extent); /* false: no memory is available for now */
    void (*unmap)(void *arg, uint32_t group, uint32_t extent);
    void *arg;
};

/* A sequence's own pages in a group of states. */
struct kv_state {
    /* The state after `at` tokens; the page that the next step writes; and a page for the state from within that step.
     * As in batch_seq.pages. */
    uint32_t page[3];
    /* has[0] is false where `at` is 0; has[2] is set where the next step may pass a place at which a state is kept. */
    bool has[3];
};

/* The block table of a sequence. Zero-initialise it and set uid, freq_set and keep; kv_match may set part. kv_release
 * empties it and frees its memory. */
struct kv_table {
    int64_t uid;
    uint32_t freq_set; /* batch_seq.freq_set: under another set the same ids have different KV */
    /* The prompt's end: a position at which other sequences may resume; 0: none. */
    uint32_t keep;
    /* Where other timelines diverge from this one, at a multiple of KV_PAGE, and more may; its window and state are
     * kept too; 0: not known. */
    uint32_t part;
    uint32_t n, cap;
    uint32_t n_cached; /* leading places that are in the cache; the pages of later places are private */
    uint32_t *node;    /* [n_cached] nodes of the cache */
    /* [n] by group; KV_NONE: no page, as the window has passed or no state was kept. */
    uint32_t *page[KV_GROUPS_MAX];
    uint32_t from[KV_GROUPS_MAX]; /* no place before this one has a page */
    struct kv_state state[KV_GROUPS_MAX];
    uint32_t at; /* tokens that the state to be read next covers */
    /* Tokens covered by the state in the third page after the step that kv_cut was called for; 0: that page is not
     * written. */
    uint32_t within;
};

enum kv_action_kind { KV_COPY, KV_CLEAR };
struct kv_action {
    enum kv_action_kind kind;
    uint32_t group;
    uint32_t page; /* the page written */
    uint32_t from; /* KV_COPY */
};

struct kv_counts {
    uint32_t total /* with memory */, free, held /* by block tables */, cached /* unreferenced, in the prefix cache */;
};

int kv_cache_new(struct kv **out, const struct kv_shape *shape, uint32_t n_group, struct hearth_err *e);
void kv_cache_free(struct kv *kv);

/* Fills the empty table with the cached pages of the longest prefix of ids[0..n) that can be resumed, and returns its
 * length in tokens. */
uint32_t kv_match(struct kv *kv, struct kv_table *t, const int32_t *ids, uint32_t n);

/* Reports that the timeline, which can be resumed at `from`, coincides with another one up to `at`, a multiple of
 * KV_PAGE. `at` becomes t->part if it is far enough beyond `from`. */
void kv_parts(struct kv_table *t, uint32_t from, uint32_t at);

/* Returns how many of the tokens whose nodes kv_match_nodes has found could be resumed; like kv_match, but full pages
 * only. */
uint32_t kv_usable(const struct kv *kv, const struct kv_table *t);

/* For code that moves pages to and from other tiers. Like kv_match, but kv_match_nodes takes full nodes only and
 * references no pages of windows or states: it allocates no page and copies nothing. Returns the number of places. */
uint32_t kv_match_nodes(struct kv *kv, struct kv_table *t, const int32_t *ids, uint32_t n);
/* Whether the cache has the page of this group at place i < t->n_cached. */
bool kv_has(const struct kv *kv, const struct kv_table *t, uint32_t group, uint32_t i);
/* References such a page, which must be in the cache. */
void kv_hold(struct kv *kv, struct kv_table *t, uint32_t group, uint32_t i);
/* Whether the table has a private page there: not in the cache, to be filled. */
bool kv_is_private(const struct kv *kv, const struct kv_table *t, uint32_t group, uint32_t i);
/* Marks the private page at place i < t->n_cached as filled: others may find it from now on. */
void kv_enter(struct kv *kv, struct kv_table *t, uint32_t group, uint32_t i);
/* Releases all places from n on. */
void kv_truncate(struct kv *kv, struct kv_table *t, uint32_t n);

/*
 * Makes the table long enough for n tokens, of which `done` are computed or in a step already submitted. In a group
 * with a window it releases the pages that the window has passed, and allocates only those of the next `ahead` tokens.
 * Returns false, with no page allocated, where too few pages are available.
 */
bool kv_grow(struct kv *kv, struct kv_table *t, uint32_t done, uint32_t n, uint32_t ahead);

/* Records that a step up to token `done` was submitted, as kv_grow also does. Call it before kv_release, so that the
 * last state is kept. */
void kv_advance(struct kv *kv, struct kv_table *t, uint32_t done);

/* Returns how many of the n tokens after `done` the next step may compute; call it after kv_grow for that step. The
 * step must end where a state is to be kept, unless that state goes to the third page (t->within). */
uint32_t kv_cut(const struct kv *kv, struct kv_table *t, uint32_t done, uint32_t n);

/* Allocates the pages of a timeline of n tokens, a multiple of KV_PAGE, that are to be filled from elsewhere, except
 * those that a sequence resuming at its end does not need. The counterpart of kv_grow, which is for sequences that are
 * computed. */
bool kv_reserve(struct kv *kv, struct kv_table *t, uint32_t n);

/* Whether a timeline can be resumed after each of its full pages, and not only where a window or a state is kept. */
bool kv_joins_anywhere(const struct kv *kv);

/* Must be called before pages are allocated if a shape has extents. */
void kv_set_memory(struct kv *kv, const struct kv_memory *m);
/* Whether memory was refused since the last kv_may_grow(); until then no more is requested. */
bool kv_was_refused(const struct kv *kv);
void kv_may_grow(struct kv *kv);
/* Makes n pages of each pool free (all pages of a smaller pool), as far as memory is available. False: it did not
 * suffice. */
bool kv_ahead(struct kv *kv, uint32_t n);
/* Unmaps extents of the group that have no page in use, `most` at most; with `cached`, unreferenced cached pages are
 * evicted for it, least recently used first. Returns how many were unmapped. The action queue must be empty, and no
 * step or transfer under way may name a page without references. */
uint32_t kv_shrink(struct kv *kv, uint32_t group, uint32_t most, bool cached);

/* Returns how many pages of the fullest pool kv_grow could allocate: free ones, unreferenced cached ones, and those
 * that may still get memory. */
uint32_t kv_available(const struct kv *kv);

/* Returns in lacks[], by group, how many more pages would have to be available for kv_grow with these arguments to
 * leave `spare` pages of each pool available. */
void kv_lacks(const struct kv *kv, const struct kv_table *t, uint32_t done, uint32_t n, uint32_t ahead, uint32_t spare,
              uint32_t lacks[KV_GROUPS_MAX]);

/* A dry run of the release of several tables: adds to freed[], by group, the pages that no table will reference any
 * more once this one is released, too. With `leaves` false it takes that back, as must be done before the table
 * changes. */
void kv_count_leaving(struct kv *kv, const struct kv_table *t, bool leaves, uint32_t freed[KV_GROUPS_MAX]);

/* The most pages that a table needs from a pool with that window, whatever the table's length. */
uint32_t kv_most(uint32_t window, uint32_t ahead);

/* Enters the full pages of ids[0..n) into the prefix cache. Their KV must have been computed, or be in a step already
 * submitted. A page whose content is already cached is exchanged for the cached one. */
void kv_publish(struct kv *kv, struct kv_table *t, const int32_t *ids, uint32_t n);

/* Releases all pages; those that hold KV of ids[0..n) stay in the prefix cache, including an unfinished last page. */
void kv_release(struct kv *kv, struct kv_table *t, const int32_t *ids, uint32_t n);

/* Takes the next action from the queue; false where it is empty. */
bool kv_next_action(struct kv *kv, struct kv_action *out);

void kv_count(const struct kv *kv, uint32_t group, struct kv_counts *out);
/* Returns the length in tokens of the longest cached sequence. */
uint32_t kv_longest(struct kv *kv);

/* Walks all pages and returns whether the invariants above hold; for tests. */
bool kv_check(const struct kv *kv);

#endif
