/*
 * kvfile.h - KV on disk: one file holds one run ("extent") of consecutive full pages of one timeline.
 *
 * The format is in kv-format.md. What matters here: a file is for one fingerprint (struct kv_fingerprint) and one uid,
 * a checksum covers every byte of it, and it appears atomically: it is written under a temporary name, synced, renamed,
 * and the directory synced. So a file is either as it was written or refused, and a refused one costs a recomputation,
 * never a wrong hit.
 *
 * The reader assumes hostile input: a file is opened relative to the directory's descriptor without following links,
 * must be a regular file of our own that nobody else may write, and everything in it is checked before it is used. What
 * a refusal means:
 *     HEARTH_ESTORE          damaged, or inconsistent with its name: to be quarantined (kvfile_set_aside)
 *     HEARTH_EUNSUPPORTED    intact, but of another version of the format or with entries of an unknown kind
 *     HEARTH_EMODELMISMATCH  intact, but for another fingerprint; the message names the parts that differ
 *     HEARTH_EIO             the system failed (permission, no descriptors left); the file may be good
 *     HEARTH_ENOMEM
 * Absence is not an error: hearthd's eviction may remove a file at any time, and kvfile_open then returns 1. Messages
 * do not repeat the file's name.
 *
 * Threads: no state is shared; each struct belongs to one thread, in the engine the I/O thread (kvio.h).
 */
#ifndef HEARTH_ENGINE_KVFILE_H
#define HEARTH_ENGINE_KVFILE_H

#include "kernels/backend.h"

enum {
    KV_V_IN_K = 0xffff,      /* kv_fingerprint.d_v */
    KVFILE_PAGES_MAX = 4096, /* pages in one file; longer runs go into several */
    KVFILE_NAME = 64,        /* room for a file's name: "FINGERPRINT16HEX-CHAIN32HEX.kv", NUL included */
};

/* XXH3-128. The parent of a timeline's first page is a root instead: lo is 0 and hi is the number of the timeline's
 * RoPE frequency set, below ROPE_SETS_MAX; all zero for models with one set. */
struct kv_hash {
    uint64_t lo, hi;
};
static inline bool kv_hash_same(const struct kv_hash *a, const struct kv_hash *b)
{
    return a->lo == b->lo && a->hi == b->hi;
}

/* The fingerprint: all that the KV of a layer group depends on besides the token ids. It is written to the file as it
 * is in memory: no padding, unused bytes are zero. fingerprint.h makes one from a model. */
struct kv_fingerprint {
    struct kv_hash model;     /* metadata except the tokenizer's, tensor records, samples of every tensor */
    struct kv_hash tokenizer; /* the metadata of the tokenizer */
    struct kv_hash rope;      /* kind, dimensions, base, scaling, frequency factors */
    uint64_t page_bytes;      /* kv_page_bytes of the group's pool */
    uint32_t n_layer, n_kv, d_head, window;
    uint32_t kv_type;     /* enum dtype */
    uint32_t page_tokens; /* KV_PAGE */
    uint32_t numerics;    /* KV_NUMERICS of fingerprint.h */
    uint16_t group;       /* index of the layer group, among the model's, whose pool it is */
    /* The head size of V where it differs from K's; 0: it does not; KV_V_IN_K: there is no V, as values are part of
     * K. */
    uint16_t d_v;
    char backend[16]; /* "cpu" or "cuda", as their bits differ; zero-padded */
};

/* Returns the 64 bits that identify a fingerprint in file names; equality is decided by the whole fingerprint. */
uint64_t kv_fingerprint_id(const struct kv_fingerprint *p);

/* Writes the names of the parts that differ ("the model and the KV type (f16, not f32)") and returns out; "" where none
 * does. */
const char *kv_fingerprint_diff(const struct kv_fingerprint *have, const struct kv_fingerprint *want,
                                char out[HEARTH_ERR_MSG]);

/* The chain: a page's hash is over its parent's hash, the uid and its ids, so it stands for the whole timeline. */
struct kv_hash kvfile_chain(const struct kv_hash *parent, int64_t uid, const int32_t id[KV_PAGE]);

/* One page of an extent. */
struct kvfile_page {
    int32_t id[KV_PAGE];
    struct kv_hash hash;
};

/* The description of an extent: all but its pages' bytes. */
struct kvfile_extent {
    int64_t uid;
    uint32_t pos;             /* position of the first token; a multiple of KV_PAGE */
    uint32_t n;               /* pages, 1..KVFILE_PAGES_MAX */
    struct kv_hash parent;    /* of the page before the first; at pos 0 the root */
    struct kvfile_page *page; /* [n] */
};

/* --- the directory --------------------------------------------------------------------------------------- */

/* Opens the directory, which must exist, be our own, and be writable by nobody else. */
int kvfile_dir_open(int *dir, const char *path, struct hearth_err *e);

/* Returns whether the name is that of a KV file of this fingerprint; with NULL, of any fingerprint. */
bool kvfile_is_name(const char *name, const struct kv_fingerprint *p);

/* Renames the file to NAME.bad, which replaces an earlier one of that name. Returns 0 also where the file no longer
 * exists. */
int kvfile_set_aside(int dir, const char *name, struct hearth_err *e);

/* --- reading --------------------------------------------------------------------------------------------- */

struct kvfile_reader;

/* Opens a file and checks all of its head: 0, 1 where there is no such file, or an error as above. `uid` is the one
 * it must belong to, or NULL for any (a scan). */
int kvfile_open(struct kvfile_reader **out, int dir, const char *name, const struct kv_fingerprint *want,
                const int64_t *uid, struct hearth_err *e);
void kvfile_close(struct kvfile_reader *f);

/* Returns the extent that the file holds; borrowed until kvfile_close. */
const struct kvfile_extent *kvfile_extent(const struct kvfile_reader *f);
uint64_t kvfile_bytes(const struct kvfile_reader *f); /* the file's length */

/* Returns the index of the page whose first token is at position `pos` and whose hash and ids are those of `expect`; -1
 * where the file holds no such page. */
int32_t kvfile_find(const struct kvfile_reader *f, uint32_t pos, const struct kvfile_page *expect);

/* Requests read-ahead of pages [i, i + n). */
void kvfile_readahead(const struct kvfile_reader *f, uint32_t i, uint32_t n);

/* Reads page i into `out` (page_bytes of host memory) and checks its bytes. After an error the content of `out` must
 * not be used. */
int kvfile_read(struct kvfile_reader *f, uint32_t i, void *out, struct hearth_err *e);

/* --- writing --------------------------------------------------------------------------------------------- */

/* A file being written. The pages are put one by one, in order. */
struct kvfile_writer;

/* Starts a file. The extent's ids are copied, its hashes computed here (what `page[].hash` holds is not read). Errors
 * are HEARTH_EIO (with the system's reason: a full disk, a read-only file system) and HEARTH_ENOMEM; after
 * an error the only use of the writer is kvfile_abort. */
int kvfile_begin(struct kvfile_writer **out, int dir, const struct kv_fingerprint *fingerprint,
                 const struct kvfile_extent *x, struct hearth_err *e);
/* Appends the next page: page_bytes of host memory, borrowed for the call. */
int kvfile_put(struct kvfile_writer *w, const void *page, struct hearth_err *e);
/* Commits the file, after the last page: writes the head, syncs, renames, syncs the directory. On success the file
 * exists under `name` and survives a power failure. The name tells where the extent ends, not where it begins: a file
 * of that name which holds no more than this one is replaced; one which holds more stays, and HEARTH_ECONFLICT is
 * returned. */
int kvfile_commit(struct kvfile_writer *w, char name[KVFILE_NAME], uint64_t *bytes, struct hearth_err *e);
/* Frees the writer, after a commit too; without a commit it removes the temporary file. */
void kvfile_abort(struct kvfile_writer *w);

#endif
