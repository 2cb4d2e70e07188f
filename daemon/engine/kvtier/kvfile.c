/* kvfile.c - names, hashes and the reader of KV files; see kvfile.h. The writer is in kvfile-write.c. */
#include "config.h"

#include "daemon/engine/kvtier/kvfile-internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

struct kvfile_reader {
    int fd;
    uint64_t bytes, page_bytes;
    struct kvdisk_head *head;
    struct kvfile_extent extent;
};

/* --- hashes and names ------------------------------------------------------------------------------------ */

struct kv_hash kvdisk_sum(const void *p, size_t n)
{
    XXH128_hash_t h = XXH3_128bits(p, n);
    return (struct kv_hash){h.low64, h.high64};
}

struct kv_hash kvdisk_head_sum(struct kvdisk_head *h, uint32_t head_bytes)
{
    struct kv_hash had = h->head_sum;
    h->head_sum = (struct kv_hash){0, 0};
    struct kv_hash sum = kvdisk_sum(h, head_bytes);
    h->head_sum = had;
    return sum;
}

struct kv_hash kvfile_chain(const struct kv_hash *parent, int64_t uid, const int32_t id[KV_PAGE])
{
    struct {
        struct kv_hash parent;
        int64_t uid;
        int32_t id[KV_PAGE];
    } in = {.parent = *parent, .uid = uid};
    static_assert(sizeof in == 88, "hashed without padding");
    memcpy(in.id, id, sizeof in.id);
    return kvdisk_sum(&in, sizeof in);
}

uint64_t kv_fingerprint_id(const struct kv_fingerprint *p)
{
    return XXH3_64bits(p, sizeof *p);
}

void kvdisk_name(char out[KVFILE_NAME], const struct kv_fingerprint *fingerprint, const struct kv_hash *last)
{
    snprintf(out, KVFILE_NAME, "%016" PRIx64 "-%016" PRIx64 "%016" PRIx64 ".kv", kv_fingerprint_id(fingerprint),
             last->hi, last->lo);
}

bool kvfile_is_name(const char *name, const struct kv_fingerprint *p)
{
    static const char form[] = "xxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.kv";
    char id[17];
    size_t i;
    for (i = 0; form[i]; i++)
        if (form[i] == 'x' ? !name[i] || !strchr("0123456789abcdef", name[i]) : name[i] != form[i])
            return false;
    if (name[i])
        return false;
    snprintf(id, sizeof id, "%016" PRIx64, p ? kv_fingerprint_id(p) : 0);
    return !p || !memcmp(name, id, 16);
}

static const char *type_name(uint32_t type)
{
    const struct dtype_info *info = type < DT_COUNT ? dtype_get((int)type) : NULL;
    return info ? info->name : "of an unknown type";
}

const char *kv_fingerprint_diff(const struct kv_fingerprint *have, const struct kv_fingerprint *want,
                                char out[HEARTH_ERR_MSG])
{
    size_t at = 0;
    out[0] = 0;
/* The list is truncated where it does not fit: its first parts say enough. */
#define DIFFERS(condition, ...)                                                          \
    do {                                                                                 \
        if ((condition) && at < HEARTH_ERR_MSG) {                                        \
            at += (size_t)snprintf(out + at, HEARTH_ERR_MSG - at, "%s", at ? ", " : ""); \
            if (at < HEARTH_ERR_MSG)                                                     \
                at += (size_t)snprintf(out + at, HEARTH_ERR_MSG - at, __VA_ARGS__);      \
        }                                                                                \
    } while (0)
    DIFFERS(!kv_hash_same(&have->model, &want->model), "the model");
    DIFFERS(!kv_hash_same(&have->tokenizer, &want->tokenizer), "the tokenizer");
    DIFFERS(!kv_hash_same(&have->rope, &want->rope), "the RoPE parameters");
    DIFFERS(have->n_layer != want->n_layer, "the layers (%u, not %u)", have->n_layer, want->n_layer);
    DIFFERS(have->n_kv != want->n_kv, "the KV heads (%u, not %u)", have->n_kv, want->n_kv);
    DIFFERS(have->d_head != want->d_head, "the head size (%u, not %u)", have->d_head, want->d_head);
    DIFFERS(have->window != want->window, "the window (%u, not %u)", have->window, want->window);
    DIFFERS(have->kv_type != want->kv_type, "the KV type (%s, not %s)", type_name(have->kv_type),
            type_name(want->kv_type));
    DIFFERS(have->page_tokens != want->page_tokens, "the page size (%u tokens, not %u)", have->page_tokens,
            want->page_tokens);
    DIFFERS(have->page_bytes != want->page_bytes, "the page size (%" PRIu64 " bytes, not %" PRIu64 ")",
            have->page_bytes, want->page_bytes);
    DIFFERS(have->numerics != want->numerics, "the numerics (version %u, not %u)", have->numerics, want->numerics);
    DIFFERS(have->group != want->group, "the layer group (%u, not %u)", have->group, want->group);
    DIFFERS(have->d_v != want->d_v, "the head size of values (%u, not %u; 0: that of keys)", have->d_v, want->d_v);
    DIFFERS(memcmp(have->backend, want->backend, sizeof have->backend), "the backend (not %.16s)", want->backend);
#undef DIFFERS
    return out;
}

/* --- the directory --------------------------------------------------------------------------------------- */

int kvfile_dir_open(int *dir, const char *path, struct hearth_err *e)
{
    struct stat st;
    int rc, fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, HEARTH_EIO, "the folder for KV, %.100s: %s", path, strerror(errno));
    if (fstat(fd, &st) < 0)
        rc = err_set(e, HEARTH_EIO, "the folder for KV, %.100s: %s", path, strerror(errno));
    else if (st.st_uid != geteuid())
        rc = err_set(e, HEARTH_EDENIED, "the folder for KV, %.100s, belongs to user %u, not to %u", path, st.st_uid,
                     geteuid());
    else if (st.st_mode & 022)
        rc = err_set(e, HEARTH_EDENIED, "the folder for KV, %.100s, may be written by others (mode %03o)", path,
                     st.st_mode & 0777);
    else {
        *dir = fd;
        return 0;
    }
    close(fd);
    return rc;
}

int kvfile_set_aside(int dir, const char *name, struct hearth_err *e)
{
    char bad[KVFILE_NAME + 4];
    snprintf(bad, sizeof bad, "%.*s.bad", KVFILE_NAME - 1, name);
    if (renameat(dir, name, dir, bad) < 0 && errno != ENOENT)
        return err_set(e, HEARTH_EIO, "cannot be renamed to .bad: %s", strerror(errno));
    return 0;
}

/* --- opening --------------------------------------------------------------------------------------------- */

static int open_regular(int dir, const char *name, int *out, uint64_t *bytes, struct hearth_err *e)
{
    struct stat st;
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    int rc, fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return 1;
    if (fd < 0 && errno == ELOOP)
        return err_set(e, HEARTH_ESTORE, "is a symbolic link");
    if (fd < 0 && errno == ENXIO)
        return err_set(e, HEARTH_ESTORE, "is not a regular file");
    if (fd < 0)
        return err_set(e, HEARTH_EIO, "cannot be opened: %s", strerror(errno));
    if (fstat(fd, &st) < 0)
        rc = err_set(e, HEARTH_EIO, "fstat: %s", strerror(errno));
    else if (!S_ISREG(st.st_mode))
        rc = err_set(e, HEARTH_ESTORE, "is not a regular file");
    else if (st.st_uid != geteuid())
        rc = err_set(e, HEARTH_ESTORE, "belongs to user %u, not to %u", st.st_uid, geteuid());
    else if (st.st_mode & 022)
        rc = err_set(e, HEARTH_ESTORE, "may be written by others (mode %03o)", st.st_mode & 0777);
    else {
        *out = fd;
        *bytes = (uint64_t)st.st_size;
        return 0;
    }
    close(fd);
    return rc;
}

/* A read that fails on an open file counts as damage to the file: a file that cannot be read is of no use. */
static int read_all(int fd, void *to, uint64_t n, uint64_t at, const char *what, struct hearth_err *e)
{
    for (uint64_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)to + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set(e, HEARTH_ESTORE, "cannot be read at byte %" PRIu64 ": %s", at + done, strerror(errno));
        if (!got)
            return err_set(e, HEARTH_ESTORE, "ends within %s, at byte %" PRIu64, what, at + done);
        done += (uint64_t)got;
    }
    return 0;
}

/* Reads the whole head; only its length has been checked at this point. */
static int read_head(struct kvfile_reader *f, struct hearth_err *e)
{
    struct kvdisk_head first;
    int rc = read_all(f->fd, &first, sizeof first, 0, "its head", e);
    if (rc)
        return rc;
    if (memcmp(first.magic, KVDISK_MAGIC, sizeof first.magic))
        return err_set(e, HEARTH_ESTORE, "is not a KV file (its first 8 bytes are others)");
    uint32_t n = first.head_bytes;
    if (n < KVDISK_BLOCK || n % KVDISK_BLOCK || n > kvdisk_head_bytes(KVFILE_PAGES_MAX))
        return err_set(e, HEARTH_ESTORE, "has a head of %u bytes; a multiple of %d up to %u is possible", n,
                       KVDISK_BLOCK, kvdisk_head_bytes(KVFILE_PAGES_MAX));
    if (!(f->head = malloc(n)))
        return err_set(e, HEARTH_ENOMEM, "no memory for a head of %u bytes", n);
    if ((rc = read_all(f->fd, f->head, n, 0, "its head", e)))
        return rc;
    struct kv_hash sum = kvdisk_head_sum(f->head, n);
    if (!kv_hash_same(&sum, &f->head->head_sum))
        return err_set(e, HEARTH_ESTORE, "is damaged: the checksum of its head differs");
    if (f->head->version != KVDISK_VERSION)
        return err_set(e, HEARTH_EUNSUPPORTED, "is of version %u of the format; %d is read", f->head->version,
                       KVDISK_VERSION);
    if (f->head->n_entry < 1 || f->head->n_entry > KVFILE_PAGES_MAX || n != kvdisk_head_bytes(f->head->n_entry))
        return err_set(e, HEARTH_ESTORE, "has %u entries, which a head of %u bytes does not hold", f->head->n_entry, n);
    return 0;
}

/* Checks that the file is for this fingerprint and uid. */
static int check_owner(const struct kvfile_reader *f, const char *name, const struct kv_fingerprint *want,
                       const int64_t *uid, struct hearth_err *e)
{
    const struct kvdisk_head *h = f->head;
    char diff[HEARTH_ERR_MSG], ours[KVFILE_NAME];
    struct kv_hash last = kvdisk_entries(f->head)[h->n_entry - 1].hash;
    kvdisk_name(ours, &h->fingerprint, &last);
    if (memcmp(&h->fingerprint, want, sizeof *want)) /* if the name agrees, the file is intact */
        return err_set(e, strcmp(name, ours) ? HEARTH_ESTORE : HEARTH_EMODELMISMATCH, "differs in %.170s",
                       kv_fingerprint_diff(&h->fingerprint, want, diff));
    if (uid && h->uid != *uid)
        return err_set(e, HEARTH_ESTORE, "holds what belongs to uid %" PRId64 ", not to %" PRId64, h->uid, *uid);
    if (strcmp(name, ours))
        return err_set(e, HEARTH_ESTORE, "has another's name; its own is %s", ours);
    return 0;
}

/* Checks the only order of entries allowed: page after page, their bytes without a gap up to the end of the file. */
static int check_entries(struct kvfile_reader *f, struct hearth_err *e)
{
    struct kvdisk_head *h = f->head;
    struct kv_hash above = h->parent;
    uint64_t size = h->fingerprint.page_bytes, at = h->head_bytes;
    if (h->pos % KV_PAGE || h->pos > INT32_MAX - h->n_entry * KV_PAGE)
        return err_set(e, HEARTH_ESTORE, "begins at token %u, which no page does", h->pos);
    if (!h->pos != (!above.lo && above.hi < ROPE_SETS_MAX))
        return err_set(e, HEARTH_ESTORE, "begins at token %u and %s", h->pos, h->pos ? "has no parent" : "has one");
    if (size < 1 ||
        size > (INT64_MAX - at) / h->n_entry) /* equal to page_bytes of `want`, but a test may have set that */
        return err_set(e, HEARTH_ESTORE, "has pages of %" PRIu64 " bytes", size);
    for (uint32_t i = 0; i < h->n_entry; i++, at += size) {
        const struct kvdisk_entry *en = &kvdisk_entries(h)[i];
        if (en->kind != KVDISK_PAGE)
            return err_set(e, HEARTH_EUNSUPPORTED, "entry %u is of kind %u, which this version does not read", i,
                           en->kind);
        if (en->pos != h->pos + i * KV_PAGE)
            return err_set(e, HEARTH_ESTORE, "entry %u is for token %u where %u is expected", i, en->pos,
                           h->pos + i * KV_PAGE);
        if (en->offset != at || en->bytes != size)
            return err_set(e, HEARTH_ESTORE,
                           "entry %u has %" PRIu64 " bytes at %" PRIu64 " where %" PRIu64 " at %" PRIu64
                           " are expected",
                           i, en->bytes, en->offset, size, at);
        above = kvfile_chain(&above, h->uid, en->id);
        if (!kv_hash_same(&above, &en->hash))
            return err_set(e, HEARTH_ESTORE, "entry %u has another hash than its token ids", i);
    }
    if (h->file_bytes != at || f->bytes != at)
        return err_set(e, HEARTH_ESTORE, "is %" PRIu64 " bytes long where %" PRIu64 " are expected", f->bytes, at);
    return 0;
}

static int fill_extent(struct kvfile_reader *f, struct hearth_err *e)
{
    struct kvdisk_head *h = f->head;
    f->extent = (struct kvfile_extent){.uid = h->uid, .pos = h->pos, .n = h->n_entry, .parent = h->parent};
    if (!(f->extent.page = malloc(h->n_entry * sizeof *f->extent.page)))
        return err_set(e, HEARTH_ENOMEM, "no memory for %u entries", h->n_entry);
    for (uint32_t i = 0; i < h->n_entry; i++) {
        const struct kvdisk_entry *en = &kvdisk_entries(h)[i];
        memcpy(f->extent.page[i].id, en->id, sizeof en->id);
        f->extent.page[i].hash = en->hash;
    }
    return 0;
}

int kvfile_open(struct kvfile_reader **out, int dir, const char *name, const struct kv_fingerprint *want,
                const int64_t *uid, struct hearth_err *e)
{
    struct kvfile_reader *f = calloc(1, sizeof *f);
    if (!f)
        return err_set(e, HEARTH_ENOMEM, "no memory for a file");
    f->fd = -1;
    int rc = open_regular(dir, name, &f->fd, &f->bytes, e);
    if (!rc)
        rc = read_head(f, e);
    if (!rc)
        rc = check_owner(f, name, want, uid, e);
    if (!rc)
        rc = check_entries(f, e);
    if (!rc)
        rc = fill_extent(f, e);
    if (rc) {
        kvfile_close(f);
        return rc;
    }
    f->page_bytes = f->head->fingerprint.page_bytes;
    *out = f;
    return 0;
}

void kvfile_close(struct kvfile_reader *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        close(f->fd);
    free(f->extent.page);
    free(f->head);
    free(f);
}

/* --- contents -------------------------------------------------------------------------------------------- */

const struct kvfile_extent *kvfile_extent(const struct kvfile_reader *f)
{
    return &f->extent;
}

uint64_t kvfile_bytes(const struct kvfile_reader *f)
{
    return f->bytes;
}

int32_t kvfile_find(const struct kvfile_reader *f, uint32_t pos, const struct kvfile_page *expect)
{
    uint32_t i = (pos - f->extent.pos) / KV_PAGE;
    if (pos < f->extent.pos || pos % KV_PAGE || i >= f->extent.n)
        return -1;
    const struct kvfile_page *p = &f->extent.page[i];
    return kv_hash_same(&p->hash, &expect->hash) && !memcmp(p->id, expect->id, sizeof p->id) ? (int32_t)i : -1;
}

void kvfile_readahead(const struct kvfile_reader *f, uint32_t i, uint32_t n)
{
    assert(i <= f->extent.n && n <= f->extent.n - i);
    posix_fadvise(f->fd, (off_t)(f->head->head_bytes + i * f->page_bytes), (off_t)(n * f->page_bytes),
                  POSIX_FADV_WILLNEED);
}

int kvfile_read(struct kvfile_reader *f, uint32_t i, void *out, struct hearth_err *e)
{
    assert(i < f->extent.n);
    const struct kvdisk_entry *en = &kvdisk_entries(f->head)[i];
    char what[64];
    snprintf(what, sizeof what, "the page of tokens %u-%u", en->pos, en->pos + KV_PAGE - 1);
    int rc = read_all(f->fd, out, en->bytes, en->offset, what, e);
    if (rc)
        return rc;
    struct kv_hash sum = kvdisk_sum(out, en->bytes);
    if (!kv_hash_same(&sum, &en->sum))
        return err_set(e, HEARTH_ESTORE, "is damaged: the checksum of %s differs", what);
    return 0;
}
