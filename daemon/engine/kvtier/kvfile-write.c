/* kvfile-write.c - writes a KV file: under a temporary name, synced, then renamed; see kvfile.h. */
#include "config.h"

#include "daemon/engine/kvtier/kvfile-internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Write-back is started each time the file has grown by this many bytes, so that the final sync is short: if all of it
 * were left to the end, a restore arriving then would wait for half a gigabyte. */
enum { PUSH_BYTES = 32 << 20 };

struct kvfile_writer {
    int dir, fd;
    bool created; /* the temporary file exists */
    char name[KVFILE_NAME], tmp[KVFILE_NAME + 4];
    uint32_t n_put;
    uint64_t at, pushed; /* bytes written, and bytes whose write-back was started */
    struct kvdisk_head *head;
};

static int failed(const char *what, struct hearth_err *e)
{
    return err_set(e, HEARTH_EIO, "%s: %s", what, strerror(errno));
}

static int write_all(int fd, const void *from, uint64_t n, uint64_t at, struct hearth_err *e)
{
    for (uint64_t done = 0; done < n;) {
        ssize_t put = pwrite(fd, (const char *)from + done, n - done, (off_t)(at + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return failed("writing a KV file", e);
        done += (uint64_t)put;
    }
    return 0;
}

/* Fills in the head, except for its checksums. */
static int make_head(struct kvfile_writer *w, const struct kv_fingerprint *fingerprint, const struct kvfile_extent *x,
                     struct hearth_err *e)
{
    uint32_t n = kvdisk_head_bytes(x->n);
    struct kvdisk_head *h = w->head = calloc(1, n);
    if (!h)
        return err_set(e, HEARTH_ENOMEM, "no memory for a head of %u bytes", n);
    memcpy(h->magic, KVDISK_MAGIC, sizeof h->magic);
    h->version = KVDISK_VERSION;
    h->head_bytes = n;
    h->file_bytes = n + x->n * fingerprint->page_bytes;
    h->uid = x->uid;
    h->parent = x->parent;
    h->pos = x->pos;
    h->n_entry = x->n;
    h->fingerprint = *fingerprint;
    struct kv_hash above = x->parent;
    for (uint32_t i = 0; i < x->n; i++) {
        struct kvdisk_entry *en = &kvdisk_entries(h)[i];
        en->kind = KVDISK_PAGE;
        en->pos = x->pos + i * KV_PAGE;
        memcpy(en->id, x->page[i].id, sizeof en->id);
        en->hash = above = kvfile_chain(&above, x->uid, en->id);
        en->offset = n + i * fingerprint->page_bytes;
        en->bytes = fingerprint->page_bytes;
    }
    kvdisk_name(w->name, fingerprint, &above);
    snprintf(w->tmp, sizeof w->tmp, "%s.tmp", w->name);
    return 0;
}

static int create(struct kvfile_writer *w, struct hearth_err *e)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    w->fd = openat(w->dir, w->tmp, flags, 0600);
    if (w->fd < 0 && errno == EEXIST && !unlinkat(w->dir, w->tmp, 0)) /* left by an engine that crashed */
        w->fd = openat(w->dir, w->tmp, flags, 0600);
    if (w->fd < 0)
        return failed("creating a KV file", e);
    w->created = true;
    /* Preallocation detects a full disk at once, not after a gigabyte. Not every file system supports it. */
    int rc;
    while ((rc = fallocate(w->fd, 0, 0, (off_t)w->head->file_bytes)) < 0 && errno == EINTR) {
    }
    if (rc < 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        return failed("making room for a KV file", e);
    return 0;
}

int kvfile_begin(struct kvfile_writer **out, int dir, const struct kv_fingerprint *fingerprint,
                 const struct kvfile_extent *x, struct hearth_err *e)
{
    assert(x->n >= 1 && x->n <= KVFILE_PAGES_MAX && x->pos % KV_PAGE == 0 && fingerprint->page_bytes > 0);
    struct kvfile_writer *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(e, HEARTH_ENOMEM, "no memory for a file");
    w->dir = dir;
    w->fd = -1;
    int rc = make_head(w, fingerprint, x, e);
    if (!rc)
        rc = create(w, e);
    if (rc) {
        kvfile_abort(w);
        return rc;
    }
    w->at = w->pushed = w->head->head_bytes;
    *out = w;
    return 0;
}

int kvfile_put(struct kvfile_writer *w, const void *page, struct hearth_err *e)
{
    assert(w->n_put < w->head->n_entry);
    struct kvdisk_entry *en = &kvdisk_entries(w->head)[w->n_put++];
    en->sum = kvdisk_sum(page, en->bytes);
    int rc = write_all(w->fd, page, en->bytes, w->at, e);
    if (rc)
        return rc;
    w->at += en->bytes;
    if (w->at - w->pushed >= PUSH_BYTES) { /* start write-back of this stretch and wait for the previous ones */
        sync_file_range(w->fd, (off_t)w->pushed, (off_t)(w->at - w->pushed), SYNC_FILE_RANGE_WRITE);
        if (w->pushed > w->head->head_bytes)
            sync_file_range(w->fd, 0, (off_t)w->pushed,
                            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
        w->pushed = w->at;
    }
    return 0;
}

/* Whether an existing file of the same name is longer. The name tells where an extent ends; an existing file of that
 * name may begin earlier, and then holds all of this extent and more. */
static bool have_longer(const struct kvfile_writer *w)
{
    struct kvfile_reader *f;
    struct hearth_err ignored;
    if (kvfile_open(&f, w->dir, w->name, &w->head->fingerprint, &w->head->uid, &ignored))
        return false;
    bool longer = kvfile_extent(f)->pos < w->head->pos;
    kvfile_close(f);
    return longer;
}

int kvfile_commit(struct kvfile_writer *w, char name[KVFILE_NAME], uint64_t *bytes, struct hearth_err *e)
{
    assert(w->n_put == w->head->n_entry && w->created);
    w->head->head_sum = kvdisk_head_sum(w->head, w->head->head_bytes);
    int rc = write_all(w->fd, w->head, w->head->head_bytes, 0, e);
    if (rc)
        return rc;
    if (fdatasync(w->fd) < 0)
        return failed("syncing a KV file", e);
    if (have_longer(w))
        return err_set(e, HEARTH_ECONFLICT, "%s is there and begins before token %u", w->name, w->head->pos);
    if (renameat(w->dir, w->tmp, w->dir, w->name) < 0)
        return failed("renaming a KV file", e);
    w->created = false;
    if (fsync(w->dir) < 0) {
        rc = failed("syncing the folder for KV", e);
        unlinkat(w->dir, w->name, 0); /* a file that is not reported must not stay */
        return rc;
    }
    memcpy(name, w->name, KVFILE_NAME);
    *bytes = w->head->file_bytes;
    return 0;
}

void kvfile_abort(struct kvfile_writer *w)
{
    if (!w)
        return;
    if (w->created)
        unlinkat(w->dir, w->tmp, 0);
    if (w->fd >= 0)
        close(w->fd);
    free(w->head);
    free(w);
}
