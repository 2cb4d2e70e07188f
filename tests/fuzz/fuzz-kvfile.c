/*
 * fuzz-kvfile.c - any bytes as a KV file: as they are, with the head's checksum corrected, and with its hash chain
 * corrected as well, so that the code behind the checksums is reached too. Each is opened with the fingerprint and name
 * that it claims. That must end in success or in an error with a message, and an extent that opens must be entirely
 * within the file.
 */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/engine/kvtier/kvfile-internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int dir = -1;
static char folder[256];

static void at_end(void)
{
    rmdir(folder);
}

static void check(int ret, const struct hearth_err *e)
{
    if (ret > 0 || e->code != ret || !e->msg[0])
        abort();
    for (const char *c = e->msg; *c; c++) /* the message goes into the log and to terminals */
        if (*c < 0x20 || *c > 0x7e)
            abort();
}

static void read_it(const char *name, const struct kv_fingerprint *fingerprint, size_t size)
{
    struct kvfile_reader *f;
    struct hearth_err e = {0};
    int ret = kvfile_open(&f, dir, name, fingerprint, NULL, &e);
    if (ret) {
        check(ret, &e);
        return;
    }
    const struct kvfile_extent *x = kvfile_extent(f);
    struct kv_hash above = x->parent;
    char *page = malloc(fingerprint->page_bytes);
    if (!page || x->n < 1 || kvfile_bytes(f) != size || x->n * fingerprint->page_bytes >= size)
        abort();
    for (uint32_t i = 0; i < x->n; i++) {
        above = kvfile_chain(&above, x->uid, x->page[i].id);
        if (!kv_hash_same(&above, &x->page[i].hash) || kvfile_find(f, x->pos + i * KV_PAGE, &x->page[i]) != (int32_t)i)
            abort();
        kvfile_readahead(f, i, x->n - i);
        if ((ret = kvfile_read(f, i, page, &e)))
            check(ret, &e);
    }
    free(page);
    kvfile_close(f);
}

static void try_it(const void *data, size_t size, const struct kv_fingerprint *fingerprint, const struct kv_hash *last)
{
    char name[KVFILE_NAME];
    kvdisk_name(name, fingerprint, last);
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    close(fd);
    read_it(name, fingerprint, size);
    unlinkat(dir, name, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hearth_err e;
    if (dir < 0) {
        const char *tmp = getenv("TMPDIR");
        snprintf(folder, sizeof folder, "%.200s/hearth-fuzz-kvfile-XXXXXX", tmp ? tmp : "/tmp");
        if (!mkdtemp(folder) || kvfile_dir_open(&dir, folder, &e) || atexit(at_end))
            abort();
    }
    struct kv_fingerprint fingerprint = {.page_bytes = 1};
    struct kv_hash last = {0};
    struct kvdisk_head *h = malloc(size ? size : 1);
    memcpy(h, data, size);
    uint32_t n = 0;
    if (size >= sizeof *h) {
        fingerprint = h->fingerprint;
        if ((size - sizeof *h) / sizeof(struct kvdisk_entry) >= h->n_entry)
            n = h->n_entry;
    }
    if (n)
        last = kvdisk_entries(h)[n - 1].hash;
    try_it(h, size, &fingerprint, &last);
    if (!n)
        goto out;
    if (h->head_bytes <= size && h->head_bytes >= sizeof *h) {
        h->head_sum = kvdisk_head_sum(h, h->head_bytes);
        try_it(h, size, &fingerprint, &last);
    }
    h->head_bytes = kvdisk_head_bytes(n <= KVFILE_PAGES_MAX ? n : 1);
    if (h->head_bytes > size)
        goto out;
    last = h->parent;
    for (uint32_t i = 0; i < n; i++) {
        struct kvdisk_entry *en = &kvdisk_entries(h)[i];
        if ((char *)(en + 1) > (char *)h + h->head_bytes)
            goto out;
        en->hash = last = kvfile_chain(&last, h->uid, en->id);
    }
    h->head_sum = kvdisk_head_sum(h, h->head_bytes);
    try_it(h, size, &fingerprint, &last);
out:
    free(h);
    return 0;
}
