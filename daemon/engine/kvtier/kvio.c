/* kvio.c - the thread that reads and writes KV files; see kvio.h. First come the functions that the owner calls, then,
 * after a section line, those of the I/O thread. */
#include "config.h"

#include "daemon/engine/kvtier/kvio.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "daemon/engine/clock.h"

/* The read-ahead window in bytes: a disk reaches its full rate only with a deep enough queue. */
static const uint64_t readahead_bytes = 32 << 20;

enum job_kind { JOB_READ, JOB_SCAN, JOB_WRITE, JOB_KINDS }; /* in order of priority */

/* A job, made by the owner and handed over to the I/O thread. */
struct job {
    TAILQ_ENTRY(job) link;
    enum job_kind kind;
    uint64_t id;
    struct kv_fingerprint fingerprint;
    struct kvfile_extent extent; /* WRITE; its page array is owned by the job */
    uint32_t n;                  /* pages in all */
    int64_t uid;                 /* READ */
    char name[KVFILE_NAME];      /* READ */
    struct kvio_page *page;      /* READ: [n] */
    const void **buf;            /* WRITE: [n], of which n_put have arrived */

    /* The I/O thread's. */
    uint32_t n_put, n_done, n_readahead;
    struct kvfile_reader *file;   /* READ, open */
    struct kvfile_writer *writer; /* WRITE, begun */
    DIR *folder;                  /* SCAN, begun */
    uint64_t bytes;
    double seconds;
};
TAILQ_HEAD(job_list, job);

enum io_command_kind { IO_CMD_JOB, IO_CMD_PUT, IO_CMD_CANCEL, IO_CMD_STOP };
struct io_command {
    struct post_item item;
    enum io_command_kind kind;
    struct job *job; /* JOB; owned */
    uint64_t id;     /* PUT, CANCEL */
    uint32_t n;      /* PUT */
    const void *buf[];
};

struct kvio {
    /* Constant after kvio_open. */
    int dir;
    pthread_t thread;
    void (*wake)(void *arg);
    void *wake_arg;

    /* Shared by both threads. */
    struct post inbox, outbox;
    struct kvio_counters counters;
    _Atomic bool stop;

    /* Used by the owner only. */
    struct post_list taken;
    uint64_t last_id;

    /* The I/O thread's. */
    struct post_list todo, out;
    struct job_list jobs[JOB_KINDS];
    struct rate read, write;
};

static void send_command(struct kvio *io, struct io_command *o)
{
    struct post_list l;
    post_list_init(&l);
    post_list_push(&l, &o->item);
    post_send(&io->inbox, &l);
}

static struct job *job_new(struct kvio *io, enum job_kind kind, const struct kv_fingerprint *fingerprint, uint32_t n)
{
    struct job *j = post_alloc(sizeof *j);
    j->kind = kind;
    j->id = ++io->last_id;
    j->fingerprint = *fingerprint;
    j->n = n;
    return j;
}

static void job_free(struct job *j)
{
    if (!j)
        return;
    kvfile_close(j->file);
    kvfile_abort(j->writer);
    if (j->folder)
        closedir(j->folder);
    free(j->extent.page);
    free(j->page);
    free(j->buf);
    free(j);
}

static uint64_t submit(struct kvio *io, struct job *j)
{
    struct io_command *o = post_alloc(sizeof *o);
    uint64_t id = j->id;
    o->kind = IO_CMD_JOB;
    o->job = j;
    send_command(io, o);
    return id;
}

uint64_t kvio_read(struct kvio *io, const struct kvio_read *job)
{
    struct job *j = job_new(io, JOB_READ, job->fingerprint, job->n);
    assert(job->n > 0 && strlen(job->file) < KVFILE_NAME);
    strcpy(j->name, job->file);
    j->uid = job->uid;
    j->page = post_alloc(job->n * sizeof *j->page);
    memcpy(j->page, job->page, job->n * sizeof *j->page);
    return submit(io, j);
}

uint64_t kvio_write(struct kvio *io, const struct kvio_write *job)
{
    const struct kvfile_extent *x = job->extent;
    assert(x->n > 0 && x->n <= KVFILE_PAGES_MAX);
    struct job *j = job_new(io, JOB_WRITE, job->fingerprint, x->n);
    j->extent = *x;
    j->extent.page = post_alloc(x->n * sizeof *x->page);
    memcpy(j->extent.page, x->page, x->n * sizeof *x->page);
    j->buf = post_alloc(x->n * sizeof *j->buf);
    return submit(io, j);
}

void kvio_put(struct kvio *io, uint64_t job, const void *const *buf, uint32_t n)
{
    struct io_command *o = post_alloc(sizeof *o + n * sizeof *buf);
    o->kind = IO_CMD_PUT;
    o->id = job;
    o->n = n;
    memcpy(o->buf, buf, n * sizeof *buf);
    send_command(io, o);
}

uint64_t kvio_scan(struct kvio *io, const struct kv_fingerprint *fingerprint)
{
    return submit(io, job_new(io, JOB_SCAN, fingerprint, 0));
}

void kvio_cancel(struct kvio *io, uint64_t job)
{
    struct io_command *o = post_alloc(sizeof *o);
    o->kind = IO_CMD_CANCEL;
    o->id = job;
    send_command(io, o);
}

int kvio_fd(const struct kvio *io)
{
    return io->outbox.fd;
}

void kvio_take(struct kvio *io)
{
    post_take(&io->outbox, &io->taken);
}

struct kvio_event *kvio_next(struct kvio *io)
{
    return (struct kvio_event *)post_list_pop(&io->taken);
}

void kvio_event_free(struct kvio_event *ev)
{
    if (ev)
        free(ev->extent.page);
    free(ev);
}

const struct kvio_counters *kvio_counters(const struct kvio *io)
{
    return &io->counters;
}

static void *io_main(void *arg);

int kvio_open(struct kvio **out, const char *dir, void (*wake)(void *arg), void *arg, struct hearth_err *e)
{
    struct kvio *io = post_alloc(sizeof *io);
    io->wake = wake;
    io->wake_arg = arg;
    post_list_init(&io->taken);
    post_list_init(&io->todo);
    post_list_init(&io->out);
    for (int k = 0; k < JOB_KINDS; k++)
        TAILQ_INIT(&io->jobs[k]);
    int rc = kvfile_dir_open(&io->dir, dir, e);
    if (rc)
        goto fail;
    if ((rc = post_init(&io->inbox, e)))
        goto fail_dir;
    if ((rc = post_init(&io->outbox, e)))
        goto fail_inbox;
    if (pthread_create(&io->thread, NULL, io_main, io)) {
        rc = err_set(e, HEARTH_ENOMEM, "cannot start the I/O thread");
        goto fail_outbox;
    }
    *out = io;
    return 0;

fail_outbox:
    post_fini(&io->outbox);
fail_inbox:
    post_fini(&io->inbox);
fail_dir:
    close(io->dir);
fail:
    free(io);
    return rc;
}

void kvio_close(struct kvio *io)
{
    struct io_command *o = post_alloc(sizeof *o);
    struct kvio_event *ev;
    o->kind = IO_CMD_STOP;
    atomic_store(&io->stop, true);
    send_command(io, o);
    pthread_join(io->thread, NULL);
    post_take(&io->inbox, &io->todo); /* jobs posted after the thread had ended */
    while ((o = (struct io_command *)post_list_pop(&io->todo))) {
        job_free(o->job);
        free(o);
    }
    kvio_take(io);
    while ((ev = kvio_next(io)))
        kvio_event_free(ev);
    post_fini(&io->outbox);
    post_fini(&io->inbox);
    close(io->dir);
    free(io);
}

/* --- the I/O thread -------------------------------------------------------------------------------------- */

static struct kvio_event *post_event(struct kvio *io, const struct job *j, enum kvio_kind kind)
{
    struct kvio_event *ev = post_alloc(sizeof *ev);
    ev->kind = kind;
    ev->job = j->id;
    post_list_push(&io->out, &ev->item);
    return ev;
}

static void hand_over(struct kvio *io)
{
    if (!io->out.first)
        return;
    post_send(&io->outbox, &io->out);
    if (io->wake)
        io->wake(io->wake_arg);
}

static void post_piece(struct kvio *io, const struct job *j, uint32_t first)
{
    if (j->n_done == first)
        return;
    struct kvio_event *ev = post_event(io, j, KVIO_PIECE);
    ev->first = first;
    ev->n = j->n_done - first;
}

static struct kvio_event *end_job(struct kvio *io, struct job *j, const struct hearth_err *err)
{
    struct kvio_event *ev = post_event(io, j, KVIO_END);
    ev->n = j->n_done;
    ev->bytes = j->bytes;
    ev->seconds = j->seconds;
    if (err)
        ev->err = *err;
    memcpy(ev->file, j->name, sizeof ev->file);
    TAILQ_REMOVE(&io->jobs[j->kind], j, link);
    job_free(j);
    return ev;
}

/* Reports that a file was refused, and quarantines it where it is damaged. A system failure does not count against the
 * file. */
static void refuse(struct kvio *io, const struct job *j, const char *name, const struct hearth_err *err)
{
    struct hearth_err why = {0};
    if (err->code == HEARTH_EIO || err->code == HEARTH_ENOMEM)
        return;
    bool aside = err->code == HEARTH_ESTORE && !kvfile_set_aside(io->dir, name, &why);
    struct kvio_event *ev = post_event(io, j, KVIO_BAD);
    ev->err = *err;
    ev->aside = aside;
    if (why.code)
        err_set(&ev->err, err->code, "%.120s; it %.60s", err->msg, why.msg);
    memcpy(ev->file, name, strnlen(name, KVFILE_NAME - 1));
    if (aside)
        atomic_fetch_add(&io->counters.files_bad, 1);
}

/* --- reading --------------------------------------------------------------------------------------------- */

static void end_missing(struct kvio *io, struct job *j, const char *what)
{
    struct hearth_err err;
    err_set(&err, HEARTH_EIO, "%.60s %s", j->name, what);
    end_job(io, j, &err)->missing = true;
}

/* Returns the number of pages that are read or written in one go. */
static uint32_t group_pages(const struct job *j)
{
    uint64_t n = KVIO_GROUP / j->fingerprint.page_bytes;
    return n < 1 ? 1 : n > j->n ? j->n : (uint32_t)n;
}

/* Requests read-ahead of the next pages; consecutive pages are contiguous in the file. */
static void read_ahead(struct job *j)
{
    uint64_t most = readahead_bytes / j->fingerprint.page_bytes, end = j->n_done + (most < 1 ? 1 : most);
    while (j->n_readahead < j->n && j->n_readahead < end) {
        const struct kvio_page *p = &j->page[j->n_readahead];
        int32_t at = kvfile_find(j->file, p->pos, &p->expect);
        uint32_t run = 1, left = at < 0 ? 0 : kvfile_extent(j->file)->n - (uint32_t)at;
        while (run < j->n - j->n_readahead && j->n_readahead + run < end && p[run].pos == p->pos + run * KV_PAGE)
            run++;
        if (left)
            kvfile_readahead(j->file, (uint32_t)at, run < left ? run : left);
        j->n_readahead += run;
    }
}

static void read_some(struct kvio *io, struct job *j)
{
    struct hearth_err err = {0};
    uint32_t first = j->n_done, n = group_pages(j);
    double begin = engine_now();
    int rc = 0;
    bool missing = false;
    if (!j->file) {
        rc = kvfile_open(&j->file, io->dir, j->name, &j->fingerprint, &j->uid, &err);
        if (rc > 0) {
            end_missing(io, j, "is not there");
            return;
        }
    }
    if (!rc)
        read_ahead(j);
    while (!rc && !missing && j->n_done < j->n && j->n_done < first + n) {
        const struct kvio_page *p = &j->page[j->n_done];
        int32_t at = kvfile_find(j->file, p->pos, &p->expect);
        missing = at < 0;
        if (!missing && !(rc = kvfile_read(j->file, (uint32_t)at, p->buf, &err)))
            j->n_done++;
    }
    double seconds = engine_now() - begin;
    uint64_t bytes = (j->n_done - first) * j->fingerprint.page_bytes;
    j->seconds += seconds;
    j->bytes += bytes;
    atomic_fetch_add(&io->counters.read_bytes, bytes);
    if (bytes)
        rate_add(&io->read, (double)bytes, seconds, &io->counters.read_rate);
    post_piece(io, j, first);
    if (rc)
        refuse(io, j, j->name, &err);
    if (missing)
        end_missing(io, j, "holds other pages");
    else if (rc || j->n_done == j->n)
        end_job(io, j, &err);
}

/* --- scanning: one file at a time ------------------------------------------------------------------------ */

static void scan_file(struct kvio *io, struct job *j, const char *name)
{
    struct hearth_err err = {0};
    struct kvfile_reader *f;
    int rc = kvfile_open(&f, io->dir, name, &j->fingerprint, NULL, &err);
    if (rc < 0)
        refuse(io, j, name, &err);
    if (rc)
        return;
    const struct kvfile_extent *x = kvfile_extent(f);
    struct kvio_event *ev = post_event(io, j, KVIO_FILE);
    strcpy(ev->file, name);
    ev->bytes = kvfile_bytes(f);
    ev->extent = *x;
    ev->extent.page = post_alloc(x->n * sizeof *x->page);
    memcpy(ev->extent.page, x->page, x->n * sizeof *x->page);
    kvfile_close(f);
    j->n_done++;
}

static void scan_some(struct kvio *io, struct job *j)
{
    struct hearth_err err = {0};
    double begin = engine_now();
    if (!j->folder) {
        int fd = openat(io->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || !(j->folder = fdopendir(fd))) {
            err_set(&err, HEARTH_EIO, "reading the folder for KV: %s", strerror(errno));
            if (fd >= 0)
                close(fd);
            end_job(io, j, &err);
            return;
        }
    }
    const struct dirent *en;
    errno = 0;
    while ((en = readdir(j->folder)) && !kvfile_is_name(en->d_name, &j->fingerprint)) {
    }
    int why = errno;
    if (en)
        scan_file(io, j, en->d_name);
    j->seconds += engine_now() - begin;
    if (en)
        return;
    if (why)
        err_set(&err, HEARTH_EIO, "reading the folder for KV: %s", strerror(why));
    end_job(io, j, &err);
}

/* --- writing --------------------------------------------------------------------------------------------- */

static void write_some(struct kvio *io, struct job *j)
{
    struct hearth_err err = {0};
    uint32_t first = j->n_done, n = group_pages(j);
    double begin = engine_now();
    int rc = 0;
    bool whole = j->n_done == j->n; /* the commit, with its sync, is done in a call of its own */
    if (!j->writer)
        rc = kvfile_begin(&j->writer, io->dir, &j->fingerprint, &j->extent, &err);
    while (!rc && j->n_done < j->n_put && j->n_done < first + n)
        if (!(rc = kvfile_put(j->writer, j->buf[j->n_done], &err)))
            j->n_done++;
    uint64_t bytes = (j->n_done - first) * j->fingerprint.page_bytes;
    if (whole)
        rc = kvfile_commit(j->writer, j->name, &j->bytes, &err);
    j->seconds += engine_now() - begin;
    atomic_fetch_add(&io->counters.written_bytes, bytes);
    post_piece(io, j, first);
    if (whole && !rc) {
        rate_add(&io->write, (double)j->bytes, j->seconds, &io->counters.write_rate);
        atomic_fetch_add(&io->counters.files_written, 1);
    }
    if (whole || rc)
        end_job(io, j, &err);
}

/* --- choosing the next job ------------------------------------------------------------------------------- */

static struct job *find(struct kvio *io, uint64_t id)
{
    struct job *j;
    for (int k = 0; k < JOB_KINDS; k++)
        TAILQ_FOREACH (j, &io->jobs[k], link)
            if (j->id == id)
                return j;
    return NULL;
}

static void put(struct kvio *io, const struct io_command *o)
{
    struct job *j = find(io, o->id);
    if (!j) /* the job has ended */
        return;
    assert(j->kind == JOB_WRITE && o->n <= j->n - j->n_put);
    memcpy(j->buf + j->n_put, o->buf, o->n * sizeof *o->buf);
    j->n_put += o->n;
}

static void cancel(struct kvio *io, uint64_t id)
{
    struct hearth_err err;
    struct job *j = find(io, id);
    err_set(&err, HEARTH_ECANCELLED, "cancelled");
    if (j)
        end_job(io, j, &err);
}

static void carry_out_orders(struct kvio *io)
{
    struct io_command *o;
    post_take(&io->inbox, &io->todo);
    while ((o = (struct io_command *)post_list_pop(&io->todo))) {
        switch (o->kind) {
        case IO_CMD_JOB:
            TAILQ_INSERT_TAIL(&io->jobs[o->job->kind], o->job, link);
            break;
        case IO_CMD_PUT:
            put(io, o);
            break;
        case IO_CMD_CANCEL:
            cancel(io, o->id);
            break;
        case IO_CMD_STOP:
            break;
        }
        free(o);
    }
}

/* Returns false where there is nothing to do. */
static bool turn(struct kvio *io)
{
    struct job *j;
    if ((j = TAILQ_FIRST(&io->jobs[JOB_READ]))) {
        read_some(io, j);
        return true;
    }
    if ((j = TAILQ_FIRST(&io->jobs[JOB_SCAN]))) {
        scan_some(io, j);
        return true;
    }
    TAILQ_FOREACH (j, &io->jobs[JOB_WRITE], link)
        if (j->n_put > j->n_done || j->n_done == j->n) {
            write_some(io, j);
            return true;
        }
    return false;
}

static void *io_main(void *arg)
{
    struct kvio *io = arg;
    struct job *j;
    pthread_setname_np(pthread_self(), "kvio");
    while (!atomic_load(&io->stop)) {
        carry_out_orders(io);
        bool idle = !turn(io);
        hand_over(io);
        if (idle && !atomic_load(&io->stop))
            post_wait(&io->inbox);
    }
    for (int k = 0; k < JOB_KINDS; k++)
        while ((j = TAILQ_FIRST(&io->jobs[k]))) {
            TAILQ_REMOVE(&io->jobs[k], j, link);
            job_free(j);
        }
    return NULL;
}
