/*
 * kvio.c - the I/O thread: the order of its events, what it delivers for a job that fails or is cancelled, and that it
 * leaves nothing behind. Also run under the thread sanitizer.
 *
 * The thread calls `wake` after it has posted events. The tests hold it there, so that everything they submit meanwhile
 * is queued when it continues. Nothing here depends on time.
 */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/resource.h>

#include "daemon/engine/kvtier/kvio.h"
#include "tests/unit/kvtier/kvfile-sample.h"

enum { BIG_PAGES = 20, BIG_BYTES = 1 << 20, PER_GROUP = KVIO_GROUP / BIG_BYTES };

static char folder[64];
static int dir;
static struct kvio *io;
static struct sample sample;
static struct kv_fingerprint big_fingerprint;
static struct kvfile_extent big;
static struct kvfile_page big_page[BIG_PAGES];
static unsigned char (*big_data)[BIG_BYTES], (*big_out)[BIG_BYTES];

/* The thread waits in `wake` while this is set, for one post of `go_on` each time. */
static _Atomic bool holding;
static sem_t held, go_on;
static void wake(void *arg)
{
    (void)arg;
    if (atomic_load(&holding)) {
        sem_post(&held);
        while (sem_wait(&go_on) < 0) {
        }
    }
}

static struct kvio_event *next_event(void)
{
    struct kvio_event *ev;
    while (!(ev = kvio_next(io))) {
        struct pollfd p = {.fd = kvio_fd(io), .events = POLLIN};
        assert_true(poll(&p, 1, -1) >= 0 || errno == EINTR);
        kvio_take(io);
    }
    return ev;
}

/* Checks that the next event is of this kind and job; its other fields go to *out. */
static void expect(enum kvio_kind kind, uint64_t job, struct kvio_event *out)
{
    struct kvio_event *ev = next_event();
    if (ev->kind != kind || ev->job != job)
        fail_msg("event %d of job %d (%s) where %d of %d is expected", (int)ev->kind, (int)ev->job, ev->err.msg,
                 (int)kind, (int)job);
    *out = *ev;
    out->extent.page = NULL; /* its memory goes with the event */
    kvio_event_free(ev);
}

static uint64_t read_pages(const char *file, const struct kv_fingerprint *fingerprint, const struct kvfile_extent *x,
                           unsigned char *to, uint64_t bytes)
{
    struct kvio_page p[BIG_PAGES];
    for (uint32_t i = 0; i < x->n; i++)
        p[i] = (struct kvio_page){x->pos + i * KV_PAGE, x->page[i], to + i * bytes};
    return kvio_read(io, &(struct kvio_read){fingerprint, x->uid, file, x->n, p});
}

static uint64_t read_sample(const char *file, unsigned char *to)
{
    return read_pages(file, &sample.fingerprint, &sample.extent, to, SAMPLE_BYTES);
}

static uint64_t read_big(const char *file)
{
    memset(big_out, 0, sizeof *big_out * BIG_PAGES);
    return read_pages(file, &big_fingerprint, &big, big_out[0], BIG_BYTES);
}

static uint64_t begin_write(const struct kv_fingerprint *fingerprint, const struct kvfile_extent *x)
{
    return kvio_write(io, &(struct kvio_write){fingerprint, x});
}

static void put_big(uint64_t job, uint32_t first, uint32_t n)
{
    const void *buf[BIG_PAGES];
    for (uint32_t i = 0; i < n; i++)
        buf[i] = big_data[first + i];
    kvio_put(io, job, buf, n);
}

static void put_sample(uint64_t job)
{
    kvio_put(io, job, (const void *[]){sample.data[0], sample.data[1], sample.data[2]}, 3);
}

static void wait_held(void)
{
    while (sem_wait(&held) < 0) {
    }
}

/* Holds the thread in the wake after the end of a scan, namely one for a fingerprint that no file has. If the thread
 * gets to the wake of earlier events first, it is held there and released. */
static void hold(void)
{
    struct kvio_event *ev;
    struct kv_fingerprint nobody = {.numerics = 77};
    atomic_store(&holding, true);
    uint64_t job = kvio_scan(io, &nobody);
    wait_held();
    kvio_take(io);
    if (!(ev = kvio_next(io))) {
        sem_post(&go_on);
        wait_held();
        ev = next_event();
    }
    assert_int_equal(ev->kind, KVIO_END);
    assert_int_equal(ev->job, job);
    kvio_event_free(ev);
}

/* Lets the thread continue to its next events. */
static void step(void)
{
    sem_post(&go_on);
    wait_held();
}

static void release(void)
{
    atomic_store(&holding, false);
    sem_post(&go_on);
}

static int setup(void **state)
{
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    sample_init(&sample);
    big_fingerprint = sample.fingerprint;
    big_fingerprint.page_bytes = BIG_BYTES;
    big = (struct kvfile_extent){.uid = sample_uid, .n = BIG_PAGES, .page = big_page};
    big_data = malloc(sizeof *big_data * BIG_PAGES);
    big_out = malloc(sizeof *big_out * BIG_PAGES);
    struct kv_hash above = {0};
    for (uint32_t p = 0; p < BIG_PAGES; p++) {
        for (int i = 0; i < KV_PAGE; i++)
            big_page[p].id[i] = (int32_t)(p * 100) + i;
        big_page[p].hash = above = kvfile_chain(&above, sample_uid, big_page[p].id);
        for (uint32_t i = 0; i < BIG_BYTES; i++)
            big_data[p][i] = (unsigned char)(i * 13 + i / 256 * 7 + p);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(big_data);
    free(big_out);
    return 0;
}

static int open_io(void **state)
{
    struct hearth_err e;
    (void)state;
    sem_init(&held, 0, 0);
    sem_init(&go_on, 0, 0);
    folder_make(folder, &dir);
    return kvio_open(&io, folder, wake, NULL, &e);
}

static int close_io(void **state)
{
    (void)state;
    kvio_close(io);
    sem_destroy(&held);
    sem_destroy(&go_on);
    folder_remove(folder, dir);
    return 0;
}

static void write_all_of_big(char file[KVFILE_NAME])
{
    struct kvio_event ev;
    uint64_t job = begin_write(&big_fingerprint, &big);
    uint32_t back = 0;
    put_big(job, 0, BIG_PAGES);
    while (back < BIG_PAGES) {
        expect(KVIO_PIECE, job, &ev);
        back += ev.n;
    }
    expect(KVIO_END, job, &ev);
    assert_int_equal(ev.err.code, 0);
    strcpy(file, ev.file);
}

/* --- reading and writing --------------------------------------------------------------------------------- */

static void in_pieces(void **state)
{
    struct kvio_event ev;
    char file[KVFILE_NAME];
    (void)state;
    uint64_t w = begin_write(&big_fingerprint, &big);
    for (uint32_t first = 0; first < BIG_PAGES; first += 5) { /* the I/O thread has five buffers at most */
        put_big(w, first, 5);
        expect(KVIO_PIECE, w, &ev);
        assert_int_equal(ev.first, first);
        assert_int_equal(ev.n, 5);
    }
    expect(KVIO_END, w, &ev);
    assert_int_equal(ev.err.code, 0);
    assert_int_equal(ev.n, BIG_PAGES);
    assert_int_equal(ev.bytes, 4096 + (uint64_t)BIG_PAGES * BIG_BYTES);
    assert_true(ev.seconds > 0);
    strcpy(file, ev.file);
    assert_true(kvfile_is_name(file, &big_fingerprint));

    uint64_t r = read_big(file);
    for (uint32_t first = 0; first < BIG_PAGES; first += PER_GROUP) {
        uint32_t n = BIG_PAGES - first < PER_GROUP ? BIG_PAGES - first : PER_GROUP;
        expect(KVIO_PIECE, r, &ev);
        assert_int_equal(ev.first, first);
        assert_int_equal(ev.n, n);
        assert_memory_equal(big_out[first], big_data[first], n * BIG_BYTES); /* already delivered */
    }
    expect(KVIO_END, r, &ev);
    assert_int_equal(ev.err.code, 0);
    assert_int_equal(ev.n, BIG_PAGES);
    assert_int_equal(ev.bytes, (uint64_t)BIG_PAGES * BIG_BYTES);
    assert_string_equal(ev.file, file);
    const struct kvio_counters *c = kvio_counters(io);
    assert_int_equal(atomic_load(&c->read_bytes), (uint64_t)BIG_PAGES * BIG_BYTES);
    assert_int_equal(atomic_load(&c->written_bytes), (uint64_t)BIG_PAGES * BIG_BYTES);
    assert_int_equal(atomic_load(&c->files_written), 1);
    assert_true(atomic_load(&c->read_rate) > 0 && atomic_load(&c->write_rate) > 0);
}

static void chosen_pages_in_the_order_asked_for(void **state)
{
    struct kvio_event ev;
    char file[KVFILE_NAME];
    static const uint32_t want[] = {17, 3, 4, 5, 0};
    enum { N = sizeof want / sizeof *want };
    struct kvio_page p[N];
    (void)state;
    write_all_of_big(file);
    for (uint32_t i = 0; i < N; i++)
        p[i] = (struct kvio_page){want[i] * KV_PAGE, big_page[want[i]], big_out[i]};
    uint64_t r = kvio_read(io, &(struct kvio_read){&big_fingerprint, sample_uid, file, N, p});
    expect(KVIO_PIECE, r, &ev);
    assert_int_equal(ev.n, N);
    expect(KVIO_END, r, &ev);
    assert_int_equal(ev.err.code, 0);
    for (uint32_t i = 0; i < N; i++)
        assert_memory_equal(big_out[i], big_data[want[i]], BIG_BYTES);
}

static void what_is_not_there_is_a_quiet_miss(void **state)
{
    struct kvio_event ev;
    char name[KVFILE_NAME];
    unsigned char out[SAMPLE_PAGES * SAMPLE_BYTES];
    (void)state;
    uint64_t r = read_sample("0123456789abcdef-0123456789abcdef0123456789abcdef.kv", out);
    expect(KVIO_END, r, &ev);
    assert_int_equal(ev.err.code, HEARTH_EIO);
    assert_true(ev.missing);
    assert_int_equal(ev.n, 0);

    sample_write(&sample, dir, name);
    struct kvfile_extent other = sample.extent;
    struct kvfile_page page[SAMPLE_PAGES];
    memcpy(page, sample.page, sizeof page);
    page[1].id[7]++;
    other.page = page;
    r = read_pages(name, &sample.fingerprint, &other, out, SAMPLE_BYTES);
    expect(KVIO_PIECE, r, &ev);
    assert_int_equal(ev.n, 1);
    expect(KVIO_END, r, &ev);
    assert_true(ev.missing);
    assert_int_equal(ev.n, 1);
    r = read_sample(name, out); /* not affected */
    expect(KVIO_PIECE, r, &ev);
    expect(KVIO_END, r, &ev);
    assert_int_equal(ev.err.code, 0);
    assert_memory_equal(out, sample.data, sizeof out);
}

static void damage_ends_the_job_and_what_came_before_counts(void **state)
{
    struct kvio_event ev;
    char file[KVFILE_NAME], bad[KVFILE_NAME + 4];
    (void)state;
    write_all_of_big(file);
    int fd = openat(dir, file, O_RDWR);
    assert_int_equal(pwrite(fd, "damage", 6, 4096 + 10 * BIG_BYTES + 5000), 6);
    close(fd);
    uint64_t r = read_big(file);
    expect(KVIO_PIECE, r, &ev);
    assert_int_equal(ev.n, 8);
    expect(KVIO_PIECE, r, &ev);
    assert_int_equal(ev.first, 8);
    assert_int_equal(ev.n, 2);
    expect(KVIO_BAD, r, &ev);
    assert_string_equal(ev.file, file);
    assert_true(ev.aside);
    assert_non_null(strstr(ev.err.msg, "the checksum of the page of tokens 160-175 differs"));
    expect(KVIO_END, r, &ev);
    assert_int_equal(ev.err.code, HEARTH_ESTORE);
    assert_false(ev.missing);
    assert_int_equal(ev.n, 10);
    assert_memory_equal(big_out, big_data, 10 * BIG_BYTES);
    snprintf(bad, sizeof bad, "%s.bad", file);
    assert_int_equal(faccessat(dir, bad, F_OK, 0), 0);
    assert_int_equal(atomic_load(&kvio_counters(io)->files_bad), 1);
    r = read_big(file);
    expect(KVIO_END, r, &ev);
    assert_true(ev.missing);
}

/* --- scanning -------------------------------------------------------------------------------------------- */

static void a_scan_finds_what_is_ours(void **state)
{
    struct kvio_event ev;
    char name[KVFILE_NAME], other[KVFILE_NAME];
    (void)state;
    struct sample s = sample;
    sample_write(&sample, dir, name);
    s.extent.page = s.page;
    s.fingerprint.numerics = 5;
    sample_write(&s, dir, other); /* of another fingerprint: not even opened */
    assert_int_equal(symlinkat("/etc/passwd", dir, "0123456789abcdef-0123456789abcdef0123456789abcdef.kv"), 0);
    assert_int_equal(mkdirat(dir, "folder", 0700), 0);

    uint64_t job = kvio_scan(io, &sample.fingerprint);
    struct kvio_event *f = next_event();
    assert_int_equal(f->kind, KVIO_FILE);
    assert_int_equal(f->job, job);
    assert_string_equal(f->file, name);
    assert_int_equal(f->bytes, 4096 + sizeof sample.data);
    assert_int_equal(f->extent.uid, sample_uid);
    assert_int_equal(f->extent.pos, SAMPLE_POS);
    assert_int_equal(f->extent.n, SAMPLE_PAGES);
    assert_true(kv_hash_same(&f->extent.parent, &sample.extent.parent));
    assert_memory_equal(f->extent.page, sample.page, sizeof sample.page);
    kvio_event_free(f);
    expect(KVIO_END, job, &ev);
    assert_int_equal(ev.err.code, 0);
    assert_int_equal(ev.n, 1);

    /* A valid file name that is not a file of ours: one that can be moved, and one that cannot. */
    char bad[KVFILE_NAME + 4];
    snprintf(bad, sizeof bad, "%s.bad", name);
    assert_int_equal(unlinkat(dir, name, 0) | symlinkat(other, dir, name), 0);
    assert_int_equal(mkdirat(dir, bad, 0700), 0);
    job = kvio_scan(io, &sample.fingerprint);
    expect(KVIO_BAD, job, &ev);
    assert_string_equal(ev.file, name);
    assert_non_null(strstr(ev.err.msg, "is a symbolic link; it cannot be renamed"));
    assert_false(ev.aside);
    expect(KVIO_END, job, &ev);
    assert_int_equal(ev.n, 0);
    assert_int_equal(unlinkat(dir, bad, AT_REMOVEDIR), 0);
    job = kvio_scan(io, &sample.fingerprint);
    expect(KVIO_BAD, job, &ev);
    assert_true(ev.aside);
    expect(KVIO_END, job, &ev);
    job = kvio_scan(io, &sample.fingerprint);
    expect(KVIO_END, job, &ev);
}

/* --- order and cancellation ------------------------------------------------------------------------------ */

static void readers_go_first(void **state)
{
    struct kvio_event ev;
    char name[KVFILE_NAME];
    unsigned char out[2][SAMPLE_PAGES * SAMPLE_BYTES];
    (void)state;
    sample_write(&sample, dir, name);
    hold();
    uint64_t waiting = begin_write(&big_fingerprint, &big); /* it gets no pages, but must not block others */
    uint64_t w = begin_write(&sample.fingerprint, &sample.extent);
    put_sample(w);
    uint64_t s = kvio_scan(io, &big_fingerprint);
    uint64_t r = read_sample(name, out[0]), r2 = read_sample(name, out[1]);
    release();
    expect(KVIO_PIECE, r, &ev);
    expect(KVIO_END, r, &ev);
    expect(KVIO_PIECE, r2, &ev);
    expect(KVIO_END, r2, &ev);
    expect(KVIO_END, s, &ev);
    expect(KVIO_PIECE, w, &ev);
    expect(KVIO_END, w, &ev);
    assert_int_equal(ev.err.code, 0);
    kvio_cancel(io, waiting);
    expect(KVIO_END, waiting, &ev);
    assert_int_equal(ev.err.code, HEARTH_ECANCELLED);
}

static void cancelled_before_it_began(void **state)
{
    struct kvio_event ev;
    char file[KVFILE_NAME];
    (void)state;
    write_all_of_big(file);
    hold();
    uint64_t r = read_big(file), w = begin_write(&sample.fingerprint, &sample.extent);
    put_sample(w);
    kvio_cancel(io, w);
    kvio_cancel(io, r);
    kvio_cancel(io, r); /* it has ended: no effect */
    kvio_cancel(io, 4711);
    release();
    expect(KVIO_END, w, &ev);
    assert_int_equal(ev.err.code, HEARTH_ECANCELLED);
    assert_int_equal(ev.n, 0);
    expect(KVIO_END, r, &ev);
    assert_int_equal(ev.err.code, HEARTH_ECANCELLED);
    assert_int_equal(folder_empty(folder), 1);
}

static void cancelled_in_the_middle(void **state)
{
    struct kvio_event ev;
    char file[KVFILE_NAME];
    (void)state;
    write_all_of_big(file);
    hold();
    uint64_t r = read_big(file);
    step(); /* one group has been read */
    kvio_cancel(io, r);
    release();
    expect(KVIO_PIECE, r, &ev);
    assert_int_equal(ev.n, PER_GROUP);
    expect(KVIO_END, r, &ev);
    assert_int_equal(ev.err.code, HEARTH_ECANCELLED);
    assert_int_equal(ev.n, PER_GROUP);
    for (uint32_t p = PER_GROUP; p < BIG_PAGES; p++)
        for (uint32_t i = 0; i < BIG_BYTES; i++)
            if (big_out[p][i])
                fail_msg("page %u was written after the cancellation", p);
    folder_empty(folder);

    hold();
    uint64_t w = begin_write(&big_fingerprint, &big);
    put_big(w, 0, BIG_PAGES);
    step();
    kvio_cancel(io, w);
    release();
    expect(KVIO_PIECE, w, &ev);
    expect(KVIO_END, w, &ev);
    assert_int_equal(ev.err.code, HEARTH_ECANCELLED);
    assert_int_equal(folder_empty(folder), 0);
}

static void closed_in_the_middle(void **state)
{
    char file[KVFILE_NAME];
    struct hearth_err e;
    (void)state;
    write_all_of_big(file);
    hold();
    read_big(file);
    uint64_t w = begin_write(&big_fingerprint, &big);
    put_big(w, 0, 7);
    kvio_scan(io, &big_fingerprint);
    release();
    kvio_close(io);
    assert_int_equal(folder_empty(folder), 1);
    assert_int_equal(kvio_open(&io, folder, wake, NULL, &e), 0);
}

/* --- what the system refuses ----------------------------------------------------------------------------- */

static void a_full_disk(void **state)
{
    struct rlimit was, small;
    (void)state;
    getrlimit(RLIMIT_FSIZE, &was);
    small = was;
    small.rlim_cur = BIG_BYTES;
    setrlimit(RLIMIT_FSIZE, &small);
    hold();
    uint64_t w = begin_write(&big_fingerprint, &big);
    put_big(w, 0, BIG_PAGES);
    release();
    struct kvio_event *ev = next_event(); /* the limit stays until the write has failed */
    setrlimit(RLIMIT_FSIZE, &was);
    assert_int_equal(ev->kind, KVIO_END);
    assert_int_equal(ev->job, w);
    assert_int_equal(ev->err.code, HEARTH_EIO);
    assert_non_null(strstr(ev->err.msg, strerror(EFBIG)));
    kvio_event_free(ev);
    assert_int_equal(folder_empty(folder), 0);
    char file[KVFILE_NAME];
    write_all_of_big(file);
}

static void a_folder_that_cannot_be_written(void **state)
{
    struct kvio_event *ev;
    (void)state;
    bool root = geteuid() == 0;
    if (root) /* file modes do not stop root */
        assert_int_equal(chown(folder, 65534, (gid_t)-1) | seteuid(65534), 0);
    assert_int_equal(chmod(folder, 0500), 0);
    uint64_t w = begin_write(&big_fingerprint, &big);
    put_big(w, 0, BIG_PAGES);
    ev = next_event();
    assert_int_equal(chmod(folder, 0700), 0);
    if (root)
        assert_int_equal(seteuid(0) | chown(folder, 0, (gid_t)-1), 0);
    assert_int_equal(ev->kind, KVIO_END);
    assert_int_equal(ev->job, w);
    assert_int_equal(ev->err.code, HEARTH_EIO);
    assert_non_null(strstr(ev->err.msg, strerror(EACCES)));
    kvio_event_free(ev);
    put_big(w, 0, 3); /* too late: no effect */
    char file[KVFILE_NAME];
    write_all_of_big(file);
}

static void a_folder_that_is_gone(void **state)
{
    (void)state;
    assert_int_equal(rmdir(folder), 0);
    uint64_t w = begin_write(&big_fingerprint, &big);
    put_big(w, 0, BIG_PAGES);
    struct kvio_event ev;
    expect(KVIO_END, w, &ev);
    assert_int_equal(ev.err.code, HEARTH_EIO);
    uint64_t s = kvio_scan(io, &big_fingerprint);
    expect(KVIO_END, s, &ev);
    assert_int_equal(ev.n, 0);
    assert_int_equal(mkdir(folder, 0700), 0); /* for the teardown */
}

#define T(name) cmocka_unit_test_setup_teardown(name, open_io, close_io)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(in_pieces),
        T(chosen_pages_in_the_order_asked_for),
        T(what_is_not_there_is_a_quiet_miss),
        T(damage_ends_the_job_and_what_came_before_counts),
        T(a_scan_finds_what_is_ours),
        T(readers_go_first),
        T(cancelled_before_it_began),
        T(cancelled_in_the_middle),
        T(closed_in_the_middle),
        T(a_full_disk),
        T(a_folder_that_cannot_be_written),
        T(a_folder_that_is_gone),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
