/* cache.c - the cache of passed self-checks, and its file; see cache.h. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "daemon/engine/selfcheck/selfcheck.h"
#include "daemon/engine/selfcheck/cache.h"
#include "daemon/log.h"

static const char head[] = "hearth checked 1\n";
enum {
    HEAD = sizeof head - 1,
    LINE = 33,                                           /* 32 hex digits and a newline */
    RECORD_MAX = HEAD + (SELFCHECK_CACHE_MAX + 1) * LINE /* the last line is the checksum */
};

/* --- the key --------------------------------------------------------------------------------------------- */

/* Returns the hash of this program's own bytes. It is computed once, since a program does not change while it runs. */
static int hash_program(XXH128_hash_t *out, struct hearth_err *e)
{
    static XXH128_hash_t done;
    static bool known;
    struct stat st;
    if (!known) {
        int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        void *p = MAP_FAILED;
        if (fd >= 0 && fstat(fd, &st) == 0)
            p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        int why = errno;
        if (fd >= 0)
            close(fd);
        if (p == MAP_FAILED)
            return err_set(e, HEARTH_EIO, "cannot read /proc/self/exe: %s", strerror(why));
        done = XXH3_128bits(p, (size_t)st.st_size);
        munmap(p, (size_t)st.st_size);
        known = true;
    }
    *out = done;
    return 0;
}

static void add_string(XXH3_state_t *h, const char *s, size_t n)
{
    uint64_t len = n; /* the length is hashed too, so that no two lists of strings hash alike */
    XXH3_128bits_update(h, &len, sizeof len);
    XXH3_128bits_update(h, s, n);
}

/* Hashes every tensor's name, type and shape, and its first, middle and last bytes, which identify a model without
 * reading all of it. The check compares kernels, and those depend only on a model's types and shapes. */
static void add_model(XXH3_state_t *h, const struct model *m)
{
    uint64_t bytes = gguf_file_bytes(m->gguf);
    add_string(h, m->hp.arch, strlen(m->hp.arch));
    XXH3_128bits_update(h, &bytes, sizeof bytes);
    for (size_t i = 0; i < gguf_n_tensor(m->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->gguf, i);
        uint64_t some = t->bytes < 64 ? t->bytes : 64, at[] = {0, (t->bytes - some) / 2, t->bytes - some};
        add_string(h, t->name.s, t->name.n);
        XXH3_128bits_update(h, &t->type, sizeof t->type);
        XXH3_128bits_update(h, t->dim, sizeof t->dim);
        for (int k = 0; k < 3 && t->data; k++)
            XXH3_128bits_update(h, (const char *)t->data + at[k], (size_t)some);
    }
}

int selfcheck_key_make(const struct model *m, const struct device_info *info, bool batches, struct selfcheck_key *out,
                       struct hearth_err *e)
{
    XXH128_hash_t program, all;
    int rc = hash_program(&program, e);
    if (rc)
        return rc;
    XXH3_state_t *h = XXH3_createState();
    if (!h)
        return err_set(e, HEARTH_ENOMEM, "no memory for a hash");
    XXH3_128bits_reset(h);
    add_string(h, head, HEAD);
    XXH3_128bits_update(h, &program, sizeof program);
    add_string(h, m->be->name, strlen(m->be->name));
    add_string(h, info->name, strlen(info->name));
    add_string(h, info->id, strlen(info->id));
    XXH3_128bits_update(h, &info->kv_type, sizeof info->kv_type);
    XXH3_128bits_update(h, &batches, sizeof batches);
    add_model(h, m);
    all = XXH3_128bits_digest(h);
    XXH3_freeState(h);
    *out = (struct selfcheck_key){{all.high64, all.low64}};
    return 0;
}

/* --- the file -------------------------------------------------------------------------------------------- */

static void print_line(char *to, uint64_t high, uint64_t low)
{
    char line[LINE + 1];
    snprintf(line, sizeof line, "%016" PRIx64 "%016" PRIx64 "\n", high, low);
    memcpy(to, line, LINE);
}

static void print_sum(char *record, size_t n)
{
    XXH128_hash_t sum = XXH3_128bits(record, n);
    print_line(record + n, sum.high64, sum.low64);
}

/* Returns the number of keys in buf; 0 where its form or checksum is wrong. */
static size_t read_record(const char *path, char buf[RECORD_MAX + 1])
{
    struct stat st;
    char sum[LINE];
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return 0;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_size >= HEAD + LINE &&
        st.st_size <= RECORD_MAX) {
        ssize_t got;
        while (n <= RECORD_MAX && (got = read(fd, buf + n, RECORD_MAX + 1 - n)) > 0)
            n += (size_t)got;
    }
    close(fd);
    if (n < HEAD + LINE || n > RECORD_MAX || (n - HEAD) % LINE || memcmp(buf, head, HEAD))
        return 0;
    memcpy(sum, buf + n - LINE, LINE);
    print_sum(buf, n - LINE);
    return memcmp(sum, buf + n - LINE, LINE) ? 0 : n - LINE;
}

bool selfcheck_cache_find(const char *record, struct selfcheck_key key)
{
    char buf[RECORD_MAX + LINE], line[LINE];
    size_t n = read_record(record, buf);
    print_line(line, key.v[0], key.v[1]);
    for (size_t at = HEAD; at < n; at += LINE)
        if (!memcmp(buf + at, line, LINE))
            return true;
    return false;
}

static int write_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t done = write(fd, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -1;
        p += done;
        n -= (size_t)done;
    }
    return fdatasync(fd);
}

int selfcheck_cache_add(const char *record, struct selfcheck_key key, struct hearth_err *e)
{
    char old[RECORD_MAX + LINE], new[RECORD_MAX + LINE], *tmp;
    size_t had = read_record(record, old), n = HEAD + LINE;
    memcpy(new, head, HEAD);
    print_line(new + HEAD, key.v[0], key.v[1]);
    for (size_t at = HEAD; at < had && n < HEAD + SELFCHECK_CACHE_MAX * LINE; at += LINE)
        if (memcmp(old + at, new + HEAD, LINE)) {
            memcpy(new + n, old + at, LINE);
            n += LINE;
        }
    print_sum(new, n);
    if (asprintf(&tmp, "%s.tmp", record) < 0)
        return err_set(e, HEARTH_ENOMEM, "no memory for a path");
    (void)unlink(tmp); /* left over from a process that crashed; the engine's lock lets only one run at a time */
    int rc = 0, fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || write_all(fd, new, n + LINE) || rename(tmp, record)) {
        rc = err_set(e, HEARTH_EIO, "%.120s: %s", record, strerror(errno));
        (void)unlink(tmp);
    }
    if (fd >= 0)
        close(fd);
    free(tmp);
    return rc;
}

/* --- the decision ---------------------------------------------------------------------------------------- */

static const struct backend *reference(void)
{
    for (int i = 0; backends[i]; i++)
        if (!strcmp(backends[i]->name, "cpu"))
            return backends[i];
    return NULL;
}

int selfcheck_verify(const struct model *m, const char *record, bool batches, struct selfcheck_verdict *out,
                     struct hearth_err *e)
{
    const char *name = m->hp.name[0] ? m->hp.name : m->hp.arch;
    struct device_info info;
    struct selfcheck s;
    struct selfcheck_key key;
    struct hearth_err err;
    memset(out, 0, sizeof *out);
    m->be->info(m->dev, &info);
    bool keep = record && info.id[0] && !selfcheck_key_make(m, &info, batches, &key, &err);
    if (keep && selfcheck_cache_find(record, key)) {
        out->ok = out->cached = true;
        return 0;
    }
    int rc = selfcheck_run(m, reference(), &(struct device_params){.variant = "auto"}, batches, &s, e);
    if (rc)
        return rc;
    out->ok = !s.failed[0];
    if (!out->ok) {
        snprintf(out->why, sizeof out->why, "%s", s.failed);
        log_error("SELF-CHECK FAILED: %s (%s) on %s computes wrongly: %s", name, m->hp.type, info.name, s.failed);
        return 0;
    }
    log_info("self-check of %s (%s) on %s passed: %u ops in %.1f ms, the device %.1f", name, m->hp.type, info.name,
             s.n_op, s.ms, s.device_ms);
    if (keep && selfcheck_cache_add(record, key, &err))
        log_warn("the self-check will be made again: %s", err.msg);
    return 0;
}
