/*
 * kv-files.h - the KV files of a hearthd in a test, by the names that the fake engine gives them, and their rows in
 * hearthd's manifest. Nothing reads the files themselves, which contain no KV.
 */
#ifndef TESTS_DAEMON_KV_FILES_H
#define TESTS_DAEMON_KV_FILES_H

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/daemon/harness.h"
#include "tests/sql.h"

static inline const char *in_kv(const struct box *b, const char *name)
{
    static char path[4][256];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof path[0], "%s/kv/%s", b->state, name);
    return p;
}

/* The name of the Ith file of a stream. */
static inline const char *name_of(int64_t stream, int64_t i)
{
    static char name[4][64];
    static int next;
    char *p = name[next++ % 4];
    snprintf(p, sizeof name[0], "000000000000fa4e-%024llx%08llx.kv", (long long)stream, (long long)i);
    return p;
}

/* The name of the first one after it has been set aside. */
static inline const char *bad_of(int64_t stream)
{
    static char name[80];
    snprintf(name, sizeof name, "%s.bad", name_of(stream, 0));
    return name;
}

static inline bool has(const struct box *b, const char *name)
{
    struct stat sb;
    return lstat(in_kv(b, name), &sb) == 0;
}

static inline bool has_file(const struct box *b, int64_t stream, int64_t i)
{
    return has(b, name_of(stream, i));
}

static inline int n_files(const struct box *b)
{
    int n = 0;
    DIR *dir = opendir(in_kv(b, "."));
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

static inline void put_file(const struct box *b, const char *name, off_t bytes)
{
    int fd = open(in_kv(b, name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, bytes), 0);
    close(fd);
}

static inline int64_t rows(const struct box *b)
{
    return sql_run(b->db, "SELECT count(*) FROM kv_file");
}

/* Runs a generation whose KV is saved, and returns the stream's number. The files have been announced when a later
 * status is answered. */
static inline int64_t save(const struct box *b, const char *script, const char *session)
{
    struct peer *p = peer_open(b);
    struct wire_generate_result *r = run(p, script, session);
    int64_t stream = r->stream;
    wire_free(r);
    wire_free(peer_call(p, WIRE_STATUS, NULL));
    peer_close(p);
    return stream;
}

static inline void again(struct box *b)
{
    assert_int_equal(box_stop(b, SIGTERM), 0);
    box_start(b);
}

static inline struct wire_kv_files usage(const struct box *b)
{
    struct peer *p = peer_open(b);
    struct wire_status_result *r = peer_call(p, WIRE_STATUS, NULL);
    struct wire_kv_files k = r->kv_files;
    static struct wire_kv_share share;
    share = k.n_shares > 0 ? k.shares[0] : (struct wire_kv_share){0};
    k.shares = &share;
    wire_free(r);
    peer_close(p);
    return k;
}

#endif
