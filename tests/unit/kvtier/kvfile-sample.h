/* kvfile-sample.h - the extent that kvfile.py writes too, and a private folder for files. */
#ifndef HEARTH_TEST_KVFILE_SAMPLE_H
#define HEARTH_TEST_KVFILE_SAMPLE_H

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <cmocka.h>

#include "daemon/engine/kvtier/kvfile.h"

enum { SAMPLE_PAGES = 3, SAMPLE_BYTES = 1024, SAMPLE_POS = KV_PAGE };
static const int64_t sample_uid = 1000;

struct sample {
    struct kv_fingerprint fingerprint;
    struct kvfile_extent extent;
    struct kvfile_page page[SAMPLE_PAGES];
    unsigned char data[SAMPLE_PAGES][SAMPLE_BYTES];
};

static inline struct kv_hash hash_of(const char *text)
{
    XXH128_hash_t h = XXH3_128bits(text, strlen(text));
    return (struct kv_hash){h.low64, h.high64};
}

static inline void sample_init(struct sample *s)
{
    struct kv_hash root = {0}, above;
    int32_t before[KV_PAGE];
    memset(s, 0, sizeof *s);
    s->fingerprint = (struct kv_fingerprint){.model = hash_of("model"),
                                             .tokenizer = hash_of("tokenizer"),
                                             .rope = hash_of("rope"),
                                             .page_bytes = SAMPLE_BYTES,
                                             .n_layer = 2,
                                             .n_kv = 1,
                                             .d_head = 4,
                                             .kv_type = DT_F32,
                                             .page_tokens = KV_PAGE,
                                             .numerics = 1,
                                             .backend = "cpu"};
    for (int i = 0; i < KV_PAGE; i++)
        before[i] = 100 + i;
    above = kvfile_chain(&root, sample_uid, before);
    s->extent = (struct kvfile_extent){
        .uid = sample_uid, .pos = SAMPLE_POS, .n = SAMPLE_PAGES, .parent = above, .page = s->page};
    for (int p = 0; p < SAMPLE_PAGES; p++) {
        for (int i = 0; i < KV_PAGE; i++)
            s->page[p].id[i] = 7 * (p * KV_PAGE + i) + 3;
        s->page[p].hash = above = kvfile_chain(&above, sample_uid, s->page[p].id);
        for (int i = 0; i < SAMPLE_BYTES; i++)
            s->data[p][i] = (unsigned char)(p * 31 + i * 7 + i / 256);
    }
}

/* Writes the sample and returns its name. */
static inline void sample_write(const struct sample *s, int dir, char name[KVFILE_NAME])
{
    struct kvfile_writer *w;
    struct hearth_err e;
    uint64_t bytes;
    assert_int_equal(kvfile_begin(&w, dir, &s->fingerprint, &s->extent, &e), 0);
    for (uint32_t i = 0; i < s->extent.n; i++)
        assert_int_equal(kvfile_put(w, s->data[i], &e), 0);
    assert_int_equal(kvfile_commit(w, name, &bytes, &e), 0);
    kvfile_abort(w);
}

static inline void folder_make(char path[64], int *dir)
{
    struct hearth_err e;
    strcpy(path, "/tmp/hearth-kv-XXXXXX");
    assert_non_null(mkdtemp(path));
    assert_int_equal(kvfile_dir_open(dir, path, &e), 0);
}

/* Removes the files in the folder and returns how many there were. */
static inline int folder_empty(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *en;
    int n = 0;
    assert_non_null(d);
    while ((en = readdir(d)))
        if (strcmp(en->d_name, ".") && strcmp(en->d_name, "..")) {
            n++;
            if (unlinkat(dirfd(d), en->d_name, 0) && unlinkat(dirfd(d), en->d_name, AT_REMOVEDIR))
                fail_msg("cannot remove %s", en->d_name);
        }
    closedir(d);
    return n;
}

static inline void folder_remove(const char *path, int dir)
{
    close(dir);
    folder_empty(path);
    assert_int_equal(rmdir(path), 0);
}

#endif
