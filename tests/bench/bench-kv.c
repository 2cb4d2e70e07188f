/*
 * bench-kv.c - the cost of the disk tier of KV, compared with the ceilings of the folder's file system. Not a test: run
 * it by hand.
 *
 *     tests/bench/bench-kv FOLDER [PAGES [PAGE_KIB [MODEL.gguf]]]
 *
 * The default is 256 pages of 2,048 KiB: 4,096 tokens of an 8B model.
 *
 * It measures the ceilings first: checksums and copies in memory, and the same number of bytes written (with their
 * sync) and read by plain calls, with the file in the page cache and without. Then it sends an extent through the I/O
 * thread: written, read from the page cache, read from the disk; it times the arrival of the first pages, and a small
 * read during the write of an extent. With a model it times the fingerprint. Everything that is read is compared. Best
 * and median of five.
 */
#include "config.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "daemon/engine/kvtier/kvio.h"
#include "daemon/engine/kvtier/fingerprint.h"

enum { REPEAT = 5 };

static uint32_t n_page = 256;
static uint64_t page_bytes = 2048 << 10;
static unsigned char *data, *out;
static struct kv_fingerprint print = {.numerics = 0xbe9c, .page_tokens = KV_PAGE, .backend = "bench"};
static struct kvfile_page *page;
static struct kvfile_extent extent;
static int dir;
static struct kvio *io;
static char written[KVFILE_NAME]; /* the last file */

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static void must(bool ok, const char *what)
{
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *what, double *s, double bytes)
{
    qsort(s, REPEAT, sizeof *s, by_size);
    printf("%-44s %9.2f ms %9.2f ms", what, 1e3 * s[0], 1e3 * s[REPEAT / 2]);
    if (bytes > 0)
        printf(" %8.2f GB/s", 1e-9 * bytes / s[REPEAT / 2]);
    putchar('\n');
}

/* Drops the file from the page cache; the file must be clean. */
static void forget(const char *name)
{
    int fd = openat(dir, name, O_RDONLY);
    must(fd >= 0 && !posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), name);
    close(fd);
}

static void plain(void)
{
    double t[4][REPEAT], bytes = (double)(n_page * page_bytes);
    for (int r = 0; r < REPEAT; r++) {
        double begin = now();
        uint64_t sum = 0;
        for (uint32_t i = 0; i < n_page; i++)
            sum += XXH3_128bits(data + i * page_bytes, page_bytes).low64;
        t[0][r] = now() - begin;
        must(sum != 1, "sum");
        int fd = openat(dir, "plain", O_RDWR | O_CREAT | O_TRUNC, 0600);
        must(fd >= 0, "plain");
        begin = now();
        for (uint32_t i = 0; i < n_page; i++)
            must(write(fd, data + i * page_bytes, page_bytes) == (ssize_t)page_bytes, "write");
        must(!fdatasync(fd), "fdatasync");
        t[1][r] = now() - begin;
        for (int cold = 0; cold < 2; cold++) {
            if (cold)
                forget("plain");
            begin = now();
            for (uint32_t i = 0; i < n_page; i++)
                must(pread(fd, out + i * page_bytes, page_bytes, (off_t)(i * page_bytes)) == (ssize_t)page_bytes,
                     "pread");
            t[2 + cold][r] = now() - begin;
        }
        close(fd);
        unlinkat(dir, "plain", 0);
    }
    report("XXH3-128 of the pages", t[0], bytes);
    report("plain write and fdatasync", t[1], bytes);
    report("plain read, page cache", t[2], bytes);
    report("plain read, disk", t[3], bytes);
}

/* Waits for the job's end and returns how long it took since `begin`; *first: the time until its first pages
 * arrived. */
static double wait_end(uint64_t job, double begin, double *first)
{
    static uint64_t ended[2]; /* the last two: one may end while the other is waited for */
    while (ended[0] != job && ended[1] != job) {
        struct kvio_event *ev = kvio_next(io);
        if (!ev) {
            poll(&(struct pollfd){.fd = kvio_fd(io), .events = POLLIN}, 1, -1);
            kvio_take(io);
            continue;
        }
        if (ev->job == job && ev->kind == KVIO_PIECE && first && !ev->first)
            *first = now() - begin;
        bool end = ev->kind == KVIO_END;
        if (end && ev->err.code) {
            fprintf(stderr, "%s\n", ev->err.msg);
            exit(1);
        }
        if (end) {
            ended[1] = ended[0];
            ended[0] = ev->job;
            if (ev->bytes > n_page * page_bytes) /* includes a head: not a read */
                strcpy(written, ev->file);
        }
        kvio_event_free(ev);
    }
    return now() - begin;
}

static uint64_t submit_write(void)
{
    uint64_t job = kvio_write(io, &(struct kvio_write){&print, &extent});
    for (uint32_t i = 0; i < n_page; i++)
        kvio_put(io, job, (const void *[]){data + i * page_bytes}, 1);
    return job;
}

static double read_extent(const char *name, uint32_t n, double *first)
{
    struct kvio_page *p = calloc(n, sizeof *p);
    must(p != NULL, "memory");
    for (uint32_t i = 0; i < n; i++)
        p[i] = (struct kvio_page){i * KV_PAGE, page[i], out + i * page_bytes};
    memset(out, 0, n * page_bytes);
    double begin = now();
    double took = wait_end(kvio_read(io, &(struct kvio_read){&print, 0, name, n, p}), begin, first);
    must(!memcmp(out, data, n * page_bytes), "what was read differs");
    free(p);
    return took;
}

static void through_the_thread(void)
{
    double t[6][REPEAT], bytes = (double)(n_page * page_bytes), begin;
    char name[KVFILE_NAME];
    for (int r = 0; r < REPEAT; r++) {
        begin = now();
        t[0][r] = wait_end(submit_write(), begin, NULL);
        strcpy(name, written);
        t[1][r] = read_extent(name, n_page, &t[2][r]);
        forget(name);
        t[3][r] = read_extent(name, n_page, &t[4][r]);
        print.numerics++; /* so that another file is written */
        uint64_t job = submit_write();
        print.numerics--;
        uint32_t some = n_page < 4 ? n_page : 4;
        usleep(20000); /* the write is in progress by then */
        t[5][r] = read_extent(name, some, NULL);
        wait_end(job, begin, NULL);
        unlinkat(dir, written, 0);
        unlinkat(dir, name, 0);
    }
    report("kvio write, until durable", t[0], bytes);
    report("kvio read, page cache", t[1], bytes);
    report("  until its first pages", t[2], 0);
    report("kvio read, disk", t[3], bytes);
    report("  until its first pages", t[4], 0);
    report("kvio read of 4 pages while an extent is written", t[5], 0);
    printf("rates it would go by: read %.2f GB/s, write %.2f GB/s\n", 1e-9 * atomic_load(&kvio_counters(io)->read_rate),
           1e-9 * atomic_load(&kvio_counters(io)->write_rate));
}

static void fingerprint(const char *path)
{
    struct hearth_err e;
    struct gguf *g;
    struct model *m;
    struct device *dev;
    struct kv_desc desc[KV_GROUPS_MAX];
    struct kv_fingerprint p[KV_GROUPS_MAX];
    double t[REPEAT];
    const struct backend *be = backend_find("cpu");
    if (be->open(&dev, &(struct device_params){.threads = 1, .variant = "auto"}, &e) || gguf_open(&g, path, &e) ||
        model_load(&m, g, be, dev, NULL, NULL, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        exit(1);
    }
    model_kv_descs(m, DT_F16, desc);
    for (int r = 0; r < REPEAT; r++) {
        double begin = now();
        must(!kv_fingerprint_make(p, m, desc, &e), "fingerprint");
        t[r] = now() - begin;
        if (!r)
            printf("%-44s %9.2f ms\n", "fingerprint, the first time", 1e3 * t[0]);
    }
    report("fingerprint", t, 0);
    model_free(m);
    gguf_close(g);
    be->close(dev);
}

int main(int argc, char **argv)
{
    struct hearth_err e;
    char path[4096];
    if (argc < 2) {
        fputs("usage: bench-kv FOLDER [PAGES [PAGE_KIB [MODEL.gguf]]]\n", stderr);
        return 2;
    }
    if (argc > 2)
        n_page = (uint32_t)atoi(argv[2]);
    if (argc > 3)
        page_bytes = (uint64_t)atoi(argv[3]) << 10;
    must(n_page >= 1 && n_page <= KVFILE_PAGES_MAX && page_bytes > 0, "pages");
    snprintf(path, sizeof path, "%s/bench-kv-XXXXXX", argv[1]);
    must(mkdtemp(path) != NULL, path);
    if (kvfile_dir_open(&dir, path, &e) || kvio_open(&io, path, NULL, NULL, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    data = malloc(n_page * page_bytes);
    out = malloc(n_page * page_bytes);
    page = calloc(n_page, sizeof *page);
    must(data && out && page, "memory");
    uint64_t x = 1;
    for (uint64_t i = 0; i < n_page * page_bytes; i += sizeof x) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        memcpy(data + i, &x, sizeof x);
    }
    print.page_bytes = page_bytes;
    struct kv_hash above = {0, 0};
    for (uint32_t i = 0; i < n_page; i++) {
        page[i].id[0] = (int32_t)i;
        page[i].hash = above = kvfile_chain(&above, 0, page[i].id);
    }
    extent = (struct kvfile_extent){.n = n_page, .page = page};
    memset(out, 1, n_page * page_bytes);

    printf("%u pages of %.0f KiB, %.0f MB in %s\n%-44s %12s %12s\n", n_page, (double)page_bytes / 1024,
           1e-6 * (double)(n_page * page_bytes), argv[1], "", "best", "median");
    plain();
    through_the_thread();
    if (argc > 4)
        fingerprint(argv[4]);
    kvio_close(io);
    close(dir);
    rmdir(path);
    free(data);
    free(out);
    free(page);
    return 0;
}
