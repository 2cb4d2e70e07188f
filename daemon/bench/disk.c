/*
 * disk.c - the benchmark's KV transfers between the device and files; see bench.h. One thread, and kvio.h's I/O thread.
 *
 * The transfers are pipelined as in the engine: verified pages of a file go to the device while the next ones are read.
 * With the restored pages the logits of the next token must be bit-identical.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/bench/bench.h"
#include "daemon/engine/core/device.h"
#include "daemon/engine/kvtier/kvio.h"
#include "daemon/engine/kvtier/fingerprint.h"

static const int64_t owner = 0; /* the uid in the file, which no engine will look for */

struct disk {
    struct bench *b;
    struct bench_saved saved;
    struct kvio *io;
    struct kv_fingerprint fingerprint[KV_GROUPS_MAX];
    struct kvio_page *page; /* [kept.n] */
    char name[KVFILE_NAME];
    char path[4096];
};

static int system_error(struct disk *t, const char *what)
{
    return err_set(&t->b->err, HEARTH_EIO, "cannot %s %.150s: %s", what, t->path, strerror(errno));
}

/* Waits for the end of the job. With `restore`, its pages go to the device as they are read, and *ticket becomes that
 * of the last transfer. */
static int finish(struct disk *t, uint64_t job, bool restore, uint64_t *ticket)
{
    struct bench *b = t->b;
    for (;;) {
        struct pollfd p = {.fd = kvio_fd(t->io), .events = POLLIN};
        if (poll(&p, 1, -1) < 0 && errno != EINTR)
            return system_error(t, "wait for");
        kvio_take(t->io);
        for (struct kvio_event *ev; (ev = kvio_next(t->io));) {
            bool end = ev->job == job && ev->kind == KVIO_END;
            int rc = 0;
            if (end && ev->err.code)
                rc = err_set(&b->err, ev->err.code, "%s", ev->err.msg);
            else if (end && !restore)
                memcpy(t->name, ev->file, sizeof t->name);
            else if (ev->kind == KVIO_PIECE && restore)
                rc = bench_move(&t->saved, BENCH_LOAD, ev->first, ev->n, ticket);
            kvio_event_free(ev);
            if (rc || end)
                return rc;
        }
    }
}

/* Saves the pages to a file, up to the point where it would survive a power failure. */
static int save(struct disk *t, const struct kvfile_extent *x, double *ms)
{
    struct bench *b = t->b;
    uint64_t ticket;
    double begin = engine_now();
    int rc = bench_move(&t->saved, BENCH_SAVE, 0, t->saved.n, &ticket);
    if (rc || (rc = b->be->kv_transfer_wait(b->dev, ticket, &b->err)))
        return rc;
    uint64_t job = kvio_write(t->io, &(struct kvio_write){.fingerprint = t->fingerprint, .extent = x});
    kvio_put(t->io, job, (const void *const *)t->saved.host, t->saved.n);
    rc = finish(t, job, false, NULL);
    *ms = 1e3 * (engine_now() - begin);
    return rc;
}

static int restore(struct disk *t, double *ms)
{
    struct bench *b = t->b;
    uint64_t ticket = 0;
    for (uint32_t p = 0; p < t->saved.n; p++)
        b->be->kv_clear(b->dev, b->pool[0], b->pages[0][p]);
    int rc = b->be->sync(b->dev, &b->err);
    if (rc)
        return rc;
    double begin = engine_now();
    struct kvio_read job = {
        .fingerprint = t->fingerprint, .uid = owner, .file = t->name, .n = t->saved.n, .page = t->page};
    if (!(rc = finish(t, kvio_read(t->io, &job), true, &ticket)))
        rc = b->be->kv_transfer_wait(b->dev, ticket, &b->err);
    *ms = 1e3 * (engine_now() - begin);
    return rc;
}

/* Evicts the file from the page cache, so that it is read from the disk. */
static int forget(struct disk *t)
{
    int fd = open(t->path, O_RDONLY | O_CLOEXEC), rc = 0;
    if (fd < 0 || (errno = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED)))
        rc = system_error(t, "forget");
    if (fd >= 0)
        close(fd);
    return rc;
}

/* Reads the file once in one thread, to measure the rate that the disk itself reaches. */
static int read_plainly(struct disk *t, double *ms)
{
    uint64_t room = (uint64_t)t->saved.n * t->saved.page;
    double begin = engine_now();
    int fd = open(t->path, O_RDONLY | O_CLOEXEC), rc = 0;
    if (fd < 0)
        return system_error(t, "open");
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    for (ssize_t n = 1; n > 0 && !rc;)
        if ((n = read(fd, t->saved.slab, room < KVIO_GROUP ? room : KVIO_GROUP)) < 0)
            rc = system_error(t, "read");
    close(fd);
    *ms = 1e3 * (engine_now() - begin);
    return rc;
}

static int time_all(struct disk *t, const char *dir, const struct kvfile_extent *x, struct bench_result *out, size_t *n)
{
    enum { SAVE, COLD, PLAIN, CACHED, TESTS };
    static const char *const name[TESTS][2] = {
        {"kv_disk_save", ""}, {"kv_disk_restore", ""}, {"disk_read", ""}, {"kv_disk_restore", "_cached"}};
    double ms[TESTS][BENCH_RUNS];
    int rc = 0;
    for (int i = 0; i < BENCH_RUNS && !rc; i++) {
        if ((rc = save(t, x, &ms[SAVE][i])))
            break;
        snprintf(t->path, sizeof t->path, "%s/%s", dir, t->name);
        if (!(rc = forget(t)) && !(rc = restore(t, &ms[COLD][i])) && !(rc = forget(t)) &&
            !(rc = read_plainly(t, &ms[PLAIN][i])))
            rc = restore(t, &ms[CACHED][i]);
        if (unlink(t->path) && !rc)
            rc = system_error(t, "remove");
    }
    for (int k = 0; k < TESTS && !rc; k++) {
        struct bench_result *r = &out[(*n)++];
        *r = (struct bench_result){.ms = bench_median(ms[k]), .n_token = x->n * KV_PAGE};
        snprintf(r->test, sizeof r->test, "%s@%u%s", name[k][0], x->n * KV_PAGE, name[k][1]);
    }
    return rc;
}

/* Identifies the pages by the token ids of the first sequence. */
static int name_pages(struct disk *t, struct kvfile_extent *x)
{
    struct bench *b = t->b;
    uint32_t n = t->saved.n;
    *x = (struct kvfile_extent){.uid = owner, .n = n, .page = malloc(n * sizeof *x->page)};
    t->page = calloc(n, sizeof *t->page);
    if (!x->page || !t->page)
        return err_set(&b->err, HEARTH_ENOMEM, "no memory for %u pages' names", n);
    struct kv_hash parent = {0};
    for (uint32_t i = 0; i < n; i++) {
        memcpy(x->page[i].id, b->token + i * KV_PAGE, sizeof x->page[i].id);
        parent = x->page[i].hash = kvfile_chain(&parent, owner, x->page[i].id);
        t->page[i] = (struct kvio_page){.pos = i * KV_PAGE, .expect = x->page[i], .buf = t->saved.host[i]};
    }
    return 0;
}

int bench_time_disk(struct bench *b, const char *dir, uint32_t depth, struct bench_result *out, size_t *n)
{
    struct disk t = {.b = b};
    struct kvfile_extent x = {0};
    float *want = malloc(b->hp.n_vocab * sizeof *want);
    int rc;
    if (depth / KV_PAGE > KVFILE_PAGES_MAX)
        rc = err_set(&b->err, HEARTH_EPARAMS, "%u tokens: a file has %d at most", depth, KVFILE_PAGES_MAX * KV_PAGE);
    else
        rc = want ? bench_saved_init(&t.saved, b, depth) : err_set(&b->err, HEARTH_ENOMEM, "no memory for logits");
    if (rc || (rc = name_pages(&t, &x)) || (rc = kv_fingerprint_make(t.fingerprint, b->model, b->kv, &b->err)) ||
        (rc = kvio_open(&t.io, dir, NULL, NULL, &b->err)) || (rc = bench_next_logits(b, depth, want)) ||
        (rc = time_all(&t, dir, &x, out, n)) || (rc = bench_next_logits(b, depth, b->logits)))
        goto out;
    if (memcmp(want, b->logits, b->hp.n_vocab * sizeof *want))
        rc = err_set(&b->err, HEARTH_EINTERNAL, "pages that were on disk give other logits");
out:
    if (t.io)
        kvio_close(t.io); /* the I/O thread must have ended before its buffers are freed */
    bench_saved_free(&t.saved);
    free(t.page);
    free(x.page);
    free(want);
    return rc;
}
