/*
 * kvio.h - the thread that reads and writes KV files, so that the device thread never waits for a disk.
 *
 * The owner (the device thread) submits jobs and takes events; both go through post.h and neither blocks. Each job gets
 * any number of events and exactly one KVIO_END, its last. A page buffer given to a job belongs to the I/O thread until
 * an event gives it back: KVIO_PIECE for the pages it names, KVIO_END for all of the job's. That holds after
 * kvio_cancel too: the buffers come back with the KVIO_END (HEARTH_ECANCELLED, or success where the job was done before
 * the cancellation arrived), not before.
 *
 *     read   selected pages of one file into given buffers. They are delivered in groups of KVIO_GROUP bytes once they
 *            are read and verified, in the requested order, so that the upload of one group overlaps with the reading
 *            of the next. Where a page fails the job ends there; the pages before it are valid.
 *     write  one extent. Its ids are known at the beginning; its pages arrive in any number of pieces (kvio_put), so
 *            that an extent may be larger than the staging memory for it. KVIO_PIECE gives buffers back once their
 *            bytes have been handed to the system; KVIO_END reports that the file is durable, and its name.
 *     scan   the heads of all files of one fingerprint: a KVIO_FILE each.
 *
 * Reads have priority over scans, and scans over writes, because generations wait for reads. Between two groups the
 * thread looks for new jobs and cancellations. Jobs of one kind are done in the order of their submission, except that
 * a write whose pages have not arrived yet does not block the jobs behind it.
 *
 * A file that is refused is reported by a KVIO_BAD before the job's next event. The event tells whether the file was
 * quarantined (renamed to NAME.bad): damaged files are, where the rename succeeds. The owner logs it and removes the
 * name from its index. A file that no longer exists, or that holds other pages than the owner expected (a longer one
 * replaced it), is a miss and no error: KVIO_END with `missing`.
 */
#ifndef HEARTH_ENGINE_KVIO_H
#define HEARTH_ENGINE_KVIO_H

#include <stdatomic.h>

#include "daemon/engine/kvtier/kvfile.h"
#include "daemon/engine/post.h"

enum { KVIO_GROUP = 8 << 20 /* bytes read or written in one go; at least one page */ };

struct kvio;

/* Opens the directory and starts the thread. `wake`, if not NULL, is called on the I/O thread after events have been
 * posted; it must not block (the device thread's sends itself a command). */
int kvio_open(struct kvio **out, const char *dir, void (*wake)(void *arg), void *arg, struct hearth_err *e);
/* Cancels everything, waits for the read or write under way (a sync included), removes unfinished files and frees
 * events not taken. No buffer is touched after it returns. */
void kvio_close(struct kvio *io);

/* --- jobs: ids are never 0 and never reused; everything in a job but its buffers is copied ----------------- */

struct kvio_page {
    uint32_t pos;              /* position of its first token */
    struct kvfile_page expect; /* the page as the owner's index has it; compared with the file */
    void *buf;                 /* page_bytes of host memory */
};
struct kvio_read {
    const struct kv_fingerprint *fingerprint;
    int64_t uid;
    const char *file;
    uint32_t n;
    const struct kvio_page *page; /* [n] */
};
uint64_t kvio_read(struct kvio *io, const struct kvio_read *job);

struct kvio_write {
    const struct kv_fingerprint *fingerprint;
    const struct kvfile_extent *extent; /* page[].hash is not read */
};
uint64_t kvio_write(struct kvio *io, const struct kvio_write *job);
/* Hands over the next n pages of a write job. After the last one the file is finished automatically; more pages than
 * the extent has is a programming error. Where the job has already ended (a full disk; its KVIO_END is posted but not
 * taken) this does nothing: KVIO_END gives back all of a job's buffers, including those handed over after it was
 * posted. */
void kvio_put(struct kvio *io, uint64_t job, const void *const *buf, uint32_t n);

uint64_t kvio_scan(struct kvio *io, const struct kv_fingerprint *fingerprint);

void kvio_cancel(struct kvio *io, uint64_t job);

/* --- events ------------------------------------------------------------------------------------------------ */

enum kvio_kind { KVIO_PIECE, KVIO_FILE, KVIO_BAD, KVIO_END };
struct kvio_event {
    struct post_item item;
    enum kvio_kind kind;
    uint64_t job;
    char file[KVFILE_NAME]; /* FILE, BAD; END of a read or of a write that succeeded */
    /* FILE: its length. END: the file's length (write), or the bytes of the pages read (read); 0 for a scan. */
    uint64_t bytes;
    double seconds;        /* END: the time that the I/O thread spent on the job */
    struct hearth_err err; /* END: code 0 is success. BAD: why */
    bool missing;          /* END of a read: no such file, or no such page in it; err says which */
    bool aside;            /* BAD: it was quarantined; else it was not, and if a rename failed, err says why */
    /* PIECE: entries [first, first + n) of the job's pages. END: n is the number of pages done. */
    uint32_t first, n;
    struct kvfile_extent extent; /* FILE: its extent; freed with the event */
};

/* kvio_fd is readable when there are events; kvio_take fetches them all, kvio_next returns them one by one (NULL: no
 * more), and the caller frees each. */
int kvio_fd(const struct kvio *io);
void kvio_take(struct kvio *io);
struct kvio_event *kvio_next(struct kvio *io);
void kvio_event_free(struct kvio_event *ev);

/* --- counters; any thread may read ------------------------------------------------------------------------- */

struct kvio_counters {
    /* Of pages, in successful and failed jobs. */
    _Atomic uint64_t read_bytes, written_bytes;
    _Atomic uint64_t files_written, files_bad; /* files_bad: quarantined */
    _Atomic double read_rate, write_rate;      /* bytes/s, averages: verified reads; synced writes. 0: unknown */
};
const struct kvio_counters *kvio_counters(const struct kvio *io);

#endif
