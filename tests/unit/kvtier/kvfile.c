/*
 * kvfile.c - KV files: the writer's bytes are those of the format (kvfile.py produces them independently), the reader
 * returns what was written, anything else in the file's place is refused with the reason, and then a sound file is
 * still read.
 */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "daemon/engine/kvtier/kvfile-internal.h"
#include "tests/unit/kvtier/kvfile-sample.h"

static struct sample sample;
static char folder[64], name[KVFILE_NAME];
static int dir;
static unsigned char sound[16384]; /* the sample's file */
static size_t n_sound;

static void write_file(const char *to, const void *p, size_t n)
{
    unlinkat(dir, to, 0); /* a new file, because some file systems sync one that is truncated and written again */
    int fd = openat(dir, to, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, p, n), n);
    close(fd);
}

static size_t read_file(int at, const char *from, void *p, size_t cap)
{
    int fd = openat(at, from, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t n = read(fd, p, cap);
    assert_true(n >= 0 && (size_t)n < cap);
    close(fd);
    return (size_t)n;
}

static int setup(void **state)
{
    (void)state;
    sample_init(&sample);
    folder_make(folder, &dir);
    sample_write(&sample, dir, name);
    n_sound = read_file(dir, name, sound, sizeof sound);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    folder_remove(folder, dir);
    return 0;
}

/* Opens the file and reads every page: 0, 1 or the first error. */
static int read_all_of(const char *file, const struct kv_fingerprint *fingerprint, const int64_t *uid,
                       struct hearth_err *e)
{
    struct kvfile_reader *f;
    unsigned char page[SAMPLE_BYTES];
    int rc = kvfile_open(&f, dir, file, fingerprint, uid, e);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < kvfile_extent(f)->n && !rc; i++)
        rc = kvfile_read(f, i, page, e);
    kvfile_close(f);
    return rc;
}

static void the_same_bytes_as_an_independent_writer(void **state)
{
    (void)state;
    char path[4096];
    unsigned char golden[sizeof sound];
    const char *top = getenv("top_srcdir");
    snprintf(path, sizeof path, "%s/tests/fuzz/corpus/kvfile/sound", top ? top : ".");
    size_t n = read_file(AT_FDCWD, path, golden, sizeof golden);
    assert_int_equal(n, n_sound);
    assert_memory_equal(golden, sound, n);
    assert_string_equal(name, "a2dddd4db9afe1d9-22c52c788d77226f100da142b74389bd.kv");
}

static void what_was_written_comes_back(void **state)
{
    (void)state;
    struct kvfile_reader *f;
    struct hearth_err e;
    unsigned char page[SAMPLE_BYTES];
    assert_int_equal(kvfile_open(&f, dir, name, &sample.fingerprint, &sample_uid, &e), 0);
    const struct kvfile_extent *x = kvfile_extent(f);
    assert_int_equal(x->uid, sample_uid);
    assert_int_equal(x->pos, SAMPLE_POS);
    assert_int_equal(x->n, SAMPLE_PAGES);
    assert_true(kv_hash_same(&x->parent, &sample.extent.parent));
    assert_memory_equal(x->page, sample.page, sizeof sample.page);
    assert_int_equal(kvfile_bytes(f), n_sound);
    for (uint32_t i = SAMPLE_PAGES; i-- > 0;) { /* in an unusual order */
        kvfile_readahead(f, i, 1);
        assert_int_equal(kvfile_read(f, i, page, &e), 0);
        assert_memory_equal(page, sample.data[i], sizeof page);
        assert_int_equal(kvfile_find(f, SAMPLE_POS + i * KV_PAGE, &sample.page[i]), i);
        assert_int_equal(kvfile_find(f, SAMPLE_POS + i * KV_PAGE, &sample.page[(i + 1) % SAMPLE_PAGES]), -1);
        assert_int_equal(kvfile_find(f, SAMPLE_POS + i * KV_PAGE + 1, &sample.page[i]), -1);
    }
    assert_int_equal(kvfile_find(f, 0, &sample.page[0]), -1);
    assert_int_equal(kvfile_find(f, SAMPLE_POS + SAMPLE_PAGES * KV_PAGE, &sample.page[0]), -1);
    kvfile_close(f);
    struct stat st;
    assert_int_equal(fstatat(dir, name, &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(
        kvfile_open(&f, dir, "0123456789abcdef-0123456789abcdef0123456789abcdef.kv", &sample.fingerprint, NULL, &e), 1);
}

static void a_chain_depends_on_all_of_it(void **state)
{
    (void)state;
    int32_t id[KV_PAGE];
    struct kv_hash root = {0}, h, other;
    memcpy(id, sample.page[0].id, sizeof id);
    h = kvfile_chain(&root, 1000, id);
    other = kvfile_chain(&root, 1001, id);
    assert_false(kv_hash_same(&h, &other));
    other = kvfile_chain(&h, 1000, id);
    assert_false(kv_hash_same(&h, &other));
    id[15]++;
    other = kvfile_chain(&root, 1000, id);
    assert_false(kv_hash_same(&h, &other));
}

/* --- damage ---------------------------------------------------------------------------------------------- */

static unsigned n_damaged;

/* Checks that the file under the sample's name is refused with a reason that contains `says`, and that a damaged one is
 * set aside; afterwards, and beside it, a sound file is read. */
static void refused(int code, const char *says)
{
    struct hearth_err e = {0};
    char bad[KVFILE_NAME + 4];
    int rc = read_all_of(name, &sample.fingerprint, &sample_uid, &e);
    if (rc != code || e.code != code || !strstr(e.msg, says))
        fail_msg("%d \"%s\" where %d \"%s\" is expected", rc, rc ? e.msg : "", code, says);
    n_damaged++;
    snprintf(bad, sizeof bad, "%s.bad", name);
    if (code == HEARTH_ESTORE) {
        assert_int_equal(kvfile_set_aside(dir, name, &e), 0);
        assert_int_equal(faccessat(dir, bad, F_OK, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(read_all_of(name, &sample.fingerprint, &sample_uid, &e), 1);
        if (unlinkat(dir, bad, 0))
            assert_int_equal(unlinkat(dir, bad, AT_REMOVEDIR), 0);
    }
    write_file(name, sound, n_sound);
    assert_int_equal(read_all_of(name, &sample.fingerprint, &sample_uid, &e), 0);
}

static void cut_at_any_length(void **state)
{
    (void)state;
    for (size_t n = 0; n < n_sound; n += n < 600 ? 1 : 61) {
        write_file(name, sound, n);
        refused(HEARTH_ESTORE, n < kvdisk_head_bytes(SAMPLE_PAGES) ? "ends within its head" : "bytes long where");
    }
    unsigned char more[sizeof sound] = {0};
    memcpy(more, sound, n_sound);
    write_file(name, more, n_sound + 1);
    refused(HEARTH_ESTORE, "bytes long where");
    write_file(name, more, sizeof more);
    refused(HEARTH_ESTORE, "bytes long where");
}

static void any_bit_turned(void **state)
{
    (void)state;
    unsigned char turned[sizeof sound];
    struct hearth_err e;
    for (size_t i = 0; i < n_sound; i++) {
        memcpy(turned, sound, n_sound);
        turned[i] ^= (unsigned char)(1 << i % 8);
        write_file(name, turned, n_sound);
        int rc = read_all_of(name, &sample.fingerprint, &sample_uid, &e);
        const char *says = i < 8                                 ? "is not a KV file"
                           : i >= 12 && i < 16                   ? "its head"
                           : i < kvdisk_head_bytes(SAMPLE_PAGES) ? "the checksum of its head differs"
                                                                 : "the checksum of the page of tokens";
        if (rc != HEARTH_ESTORE || !(strstr(e.msg, says) || strstr(e.msg, "has a head of")))
            fail_msg("byte %zu: %d %s where \"%s\" is expected", i, rc, e.msg, says);
        n_damaged++;
    }
    write_file(name, sound, n_sound);
    assert_int_equal(read_all_of(name, &sample.fingerprint, &sample_uid, &e), 0);
}

/* Heads whose checksum is right but whose contents are not, as somebody who knows the format could make them. */
static void crafted(void **state)
{
    (void)state;
#define HEAD(field)  offsetof(struct kvdisk_head, field), sizeof(((struct kvdisk_head *)0)->field)
#define PRINT(field) offsetof(struct kvdisk_head, fingerprint.field), sizeof(((struct kv_fingerprint *)0)->field)
#define ENTRY(i, field)                                                                                    \
    sizeof(struct kvdisk_head) + (i) * sizeof(struct kvdisk_entry) + offsetof(struct kvdisk_entry, field), \
        sizeof(((struct kvdisk_entry *)0)->field)
    static const struct {
        size_t at, size;
        uint64_t value;
        int code;
        const char *says;
    } rows[] = {
        {HEAD(version), 0, HEARTH_EUNSUPPORTED, "version 0"},
        {HEAD(version), 2, HEARTH_EUNSUPPORTED, "version 2"},
        {HEAD(version), UINT32_MAX, HEARTH_EUNSUPPORTED, "version 4294967295"},
        {HEAD(head_bytes), 0, HEARTH_ESTORE, "a head of 0 bytes"},
        {HEAD(head_bytes), 4095, HEARTH_ESTORE, "a head of 4095 bytes"},
        {HEAD(head_bytes), 8192, HEARTH_ESTORE, "ends within its head"},
        {HEAD(head_bytes), UINT32_MAX - 4095, HEARTH_ESTORE, "a head of 4294963200 bytes"},
        {HEAD(file_bytes), 0, HEARTH_ESTORE, "bytes long"},
        {HEAD(file_bytes), UINT64_MAX, HEARTH_ESTORE, "bytes long"},
        {HEAD(uid), 1001, HEARTH_ESTORE, "belongs to uid 1001, not to 1000"},
        {HEAD(uid), UINT64_MAX, HEARTH_ESTORE, "belongs to uid -1, not to 1000"},
        {HEAD(parent.lo), 5, HEARTH_ESTORE, "entry 0 has another hash"},
        {HEAD(pos), 0, HEARTH_ESTORE, "begins at token 0 and has one"},
        {HEAD(pos), 17, HEARTH_ESTORE, "begins at token 17, which no page does"},
        {HEAD(pos), 32, HEARTH_ESTORE, "entry 0 is for token 16 where 32"},
        {HEAD(pos), UINT32_MAX - 15, HEARTH_ESTORE, "begins at token 4294967280"},
        {HEAD(n_entry), 0, HEARTH_ESTORE, "has 0 entries"},
        {HEAD(n_entry), 4, HEARTH_ESTORE, "has another's name"},
        {HEAD(n_entry), 2, HEARTH_ESTORE, "has another's name"},
        {HEAD(n_entry), 31, HEARTH_ESTORE, "has 31 entries"},
        {HEAD(n_entry), 4097, HEARTH_ESTORE, "has 4097 entries"},
        {HEAD(n_entry), UINT32_MAX, HEARTH_ESTORE, "has 4294967295 entries"},
        {PRINT(model.lo), 1, HEARTH_ESTORE, "differs in the model"},
        {PRINT(tokenizer.hi), 1, HEARTH_ESTORE, "differs in the tokenizer"},
        {PRINT(rope.lo), 1, HEARTH_ESTORE, "differs in the RoPE parameters"},
        {PRINT(page_bytes), 0, HEARTH_ESTORE, "differs in the page size (0 bytes, not 1024)"},
        {PRINT(page_bytes), UINT64_MAX, HEARTH_ESTORE, "differs in the page size"},
        {PRINT(n_layer), 3, HEARTH_ESTORE, "differs in the layers (3, not 2)"},
        {PRINT(n_kv), 0, HEARTH_ESTORE, "differs in the KV heads (0, not 1)"},
        {PRINT(d_head), 8, HEARTH_ESTORE, "differs in the head size (8, not 4)"},
        {PRINT(window), 8, HEARTH_ESTORE, "differs in the window (8, not 0)"},
        {PRINT(kv_type), DT_F16, HEARTH_ESTORE, "differs in the KV type (F16, not F32)"},
        {PRINT(kv_type), 77777, HEARTH_ESTORE, "differs in the KV type (of an unknown type, not F32)"},
        {PRINT(page_tokens), 32, HEARTH_ESTORE, "differs in the page size (32 tokens, not 16)"},
        {PRINT(numerics), 2, HEARTH_ESTORE, "differs in the numerics (version 2, not 1)"},
        {PRINT(backend[0]), 'g', HEARTH_ESTORE, "differs in the backend (not cpu)"},
        {PRINT(group), 1, HEARTH_ESTORE, "differs in the layer group (1, not 0)"},
        {PRINT(d_v), 8, HEARTH_ESTORE, "differs in the head size of values (8, not 0; 0: that of keys)"},
        {ENTRY(0, kind), 0, HEARTH_EUNSUPPORTED, "entry 0 is of kind 0"},
        {ENTRY(1, kind), 2, HEARTH_EUNSUPPORTED, "entry 1 is of kind 2, which"},
        {ENTRY(2, kind), UINT32_MAX, HEARTH_EUNSUPPORTED, "entry 2 is of kind 4294967295"},
        {ENTRY(0, pos), 32, HEARTH_ESTORE, "entry 0 is for token 32 where 16"},
        {ENTRY(2, pos), 0, HEARTH_ESTORE, "entry 2 is for token 0 where 48"},
        {ENTRY(1, id[3]), 5, HEARTH_ESTORE, "entry 1 has another hash than its token ids"},
        {ENTRY(1, hash.hi), 5, HEARTH_ESTORE, "entry 1 has another hash than its token ids"},
        {ENTRY(2, hash.lo), 5, HEARTH_ESTORE, "has another's name"},
        {ENTRY(0, offset), 0, HEARTH_ESTORE, "entry 0 has 1024 bytes at 0 where"},
        {ENTRY(1, offset), 4096, HEARTH_ESTORE, "entry 1 has 1024 bytes at 4096 where"},
        {ENTRY(1, offset), UINT64_MAX - 100, HEARTH_ESTORE, "entry 1 has 1024 bytes at"},
        {ENTRY(2, offset), 1ull << 63, HEARTH_ESTORE, "entry 2 has 1024 bytes at 9223372036854775808"},
        {ENTRY(1, bytes), 0, HEARTH_ESTORE, "entry 1 has 0 bytes at"},
        {ENTRY(1, bytes), UINT64_MAX, HEARTH_ESTORE, "entry 1 has 18446744073709551615 bytes"},
        {ENTRY(2, bytes), 1025, HEARTH_ESTORE, "entry 2 has 1025 bytes"},
        {ENTRY(1, sum.lo), 5, HEARTH_ESTORE, "the checksum of the page of tokens 32-47 differs"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        union {
            struct kvdisk_head head;
            unsigned char b[sizeof sound];
        } u;
        memcpy(u.b, sound, n_sound);
        memcpy(u.b + rows[i].at, &rows[i].value, rows[i].size < 8 ? rows[i].size : 8);
        uint32_t n = u.head.head_bytes;
        if (n <= n_sound)
            u.head.head_sum = kvdisk_head_sum(&u.head, n);
        write_file(name, u.b, n_sound);
        refused(rows[i].code, rows[i].says);
    }
}

static void not_our_file(void **state)
{
    (void)state;
    char target[128];
    struct sockaddr_un sun = {.sun_family = AF_UNIX};

    write_file("elsewhere", sound, n_sound);
    snprintf(target, sizeof target, "%s/elsewhere", folder);
    unlinkat(dir, name, 0);
    assert_int_equal(symlinkat(target, dir, name), 0);
    refused(HEARTH_ESTORE, "is a symbolic link");
    unlinkat(dir, name, 0);
    assert_int_equal(symlinkat("/nowhere", dir, name), 0);
    refused(HEARTH_ESTORE, "is a symbolic link");
    unlinkat(dir, "elsewhere", 0);

    unlinkat(dir, name, 0);
    assert_int_equal(mkdirat(dir, name, 0700), 0);
    refused(HEARTH_ESTORE, "is not a regular file");
    unlinkat(dir, name, 0);
    assert_int_equal(mkfifoat(dir, name, 0600), 0);
    refused(HEARTH_ESTORE, "is not a regular file");
    unlinkat(dir, name, 0);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(sun.sun_path, sizeof sun.sun_path, "%.40s/%.60s", folder, name);
    assert_int_equal(bind(fd, (struct sockaddr *)&sun, sizeof sun), 0);
    refused(HEARTH_ESTORE, "is not a regular file");
    close(fd);

    for (int mode = 0620; mode <= 0622; mode += 2) {
        assert_int_equal(fchmodat(dir, name, (mode_t)mode, 0), 0);
        refused(HEARTH_ESTORE, "may be written by others");
    }
    assert_int_equal(fchmodat(dir, name, 0640, 0), 0); /* whether others may read the file is up to its owner */
    assert_int_equal(read_all_of(name, &sample.fingerprint, &sample_uid, NULL), 0);
    if (geteuid() == 0) {
        assert_int_equal(fchownat(dir, name, 65534, (gid_t)-1, 0), 0);
        refused(HEARTH_ESTORE, "belongs to user 65534, not to 0");
    }
    unlinkat(dir, name, 0);
    write_file(name, "GGUF and so on", 14);
    refused(HEARTH_ESTORE, "ends within its head");
}

static void whole_but_for_another(void **state)
{
    (void)state;
    struct hearth_err e;
    struct kv_fingerprint other = sample.fingerprint;
    const int64_t uid = 1001;
    other.kv_type = DT_F16;
    other.tokenizer.lo ^= 1;
    strcpy(other.backend, "cuda");
    assert_int_equal(read_all_of(name, &other, &sample_uid, &e), HEARTH_EMODELMISMATCH);
    assert_string_equal(e.msg, "differs in the tokenizer, the KV type (F32, not F16), the backend (not cuda)");
    assert_int_equal(read_all_of(name, &sample.fingerprint, &uid, &e), HEARTH_ESTORE);
    assert_int_equal(read_all_of(name, &sample.fingerprint, NULL, &e), 0);
    char diff[HEARTH_ERR_MSG];
    struct kv_fingerprint nothing = {0};
    assert_string_equal(kv_fingerprint_diff(&other, &other, diff), "");
    assert_true(strlen(kv_fingerprint_diff(&nothing, &other, diff)) < sizeof diff);
    write_file("0123456789abcdef-0123456789abcdef0123456789abcdef.kv", sound, n_sound);
    assert_int_equal(read_all_of("0123456789abcdef-0123456789abcdef0123456789abcdef.kv", &sample.fingerprint, NULL, &e),
                     HEARTH_ESTORE);
    assert_non_null(strstr(e.msg, name));
}

static void damaged_enough(void **state)
{
    (void)state;
    print_message("# %u damaged files\n", n_damaged);
    assert_true(n_damaged >= 200);
}

/* --- names and folders ----------------------------------------------------------------------------------- */

static void names(void **state)
{
    (void)state;
    struct kv_fingerprint other = sample.fingerprint;
    other.numerics++;
    assert_true(kvfile_is_name(name, &sample.fingerprint));
    assert_true(kvfile_is_name(name, NULL));
    assert_false(kvfile_is_name(name, &other));
    static const char *const no[] = {"",
                                     ".",
                                     "..",
                                     "x.kv",
                                     "0123456789abcdef-0123456789abcdef0123456789abcdef.kv.tmp",
                                     "0123456789abcdef-0123456789abcdef0123456789abcdef.kv.bad",
                                     "0123456789ABCDEF-0123456789abcdef0123456789abcdef.kv",
                                     "0123456789abcdef-0123456789abcdef0123456789abcde.kv",
                                     "0123456789abcdef/0123456789abcdef0123456789abcdef.kv"};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        assert_false(kvfile_is_name(no[i], NULL));
}

static void a_folder_must_be_ours(void **state)
{
    (void)state;
    struct hearth_err e;
    int fd;
    char path[128];
    assert_int_equal(kvfile_dir_open(&fd, "/nowhere/kv", &e), HEARTH_EIO);
    assert_non_null(strstr(e.msg, "/nowhere/kv"));
    chmod(folder, 0770);
    assert_int_equal(kvfile_dir_open(&fd, folder, &e), HEARTH_EDENIED);
    assert_non_null(strstr(e.msg, "written by others"));
    chmod(folder, 0700);
    snprintf(path, sizeof path, "%s/link", folder);
    assert_int_equal(symlink(folder, path), 0);
    assert_int_equal(kvfile_dir_open(&fd, path, &e), HEARTH_EIO);
    unlink(path);
    if (geteuid() == 0) {
        assert_int_equal(chown(folder, 65534, (gid_t)-1), 0);
        assert_int_equal(kvfile_dir_open(&fd, folder, &e), HEARTH_EDENIED);
        assert_int_equal(chown(folder, 0, (gid_t)-1), 0);
    }
}

/* --- writing --------------------------------------------------------------------------------------------- */

/* Writes the sample's pages [first, SAMPLE_PAGES). */
static int write_from(uint32_t first, struct hearth_err *e)
{
    struct kvfile_extent x = sample.extent;
    struct kvfile_writer *w;
    char as[KVFILE_NAME];
    uint64_t bytes;
    x.pos += first * KV_PAGE;
    x.parent = first ? sample.page[first - 1].hash : x.parent;
    x.page += first;
    x.n -= first;
    int rc = kvfile_begin(&w, dir, &sample.fingerprint, &x, e);
    if (rc)
        return rc;
    for (uint32_t i = first; i < SAMPLE_PAGES && !rc; i++)
        rc = kvfile_put(w, sample.data[i], e);
    if (!rc && !(rc = kvfile_commit(w, as, &bytes, e)))
        assert_string_equal(as, name);
    kvfile_abort(w);
    return rc;
}

static void the_longer_one_is_kept(void **state)
{
    (void)state;
    struct hearth_err e;
    unsigned char b[sizeof sound];
    write_file(name, sound, n_sound);
    assert_int_equal(write_from(1, &e), HEARTH_ECONFLICT);
    assert_int_equal(read_file(dir, name, b, sizeof b), n_sound);
    assert_memory_equal(b, sound, n_sound);
    write_file(name, sound, n_sound - 1); /* damaged: does not count as present */
    assert_int_equal(write_from(1, &e), 0);
    assert_int_equal(read_file(dir, name, b, sizeof b), n_sound - SAMPLE_BYTES);
    assert_int_equal(read_all_of(name, &sample.fingerprint, &sample_uid, &e), 0);
    assert_int_equal(write_from(0, &e), 0);
    assert_int_equal(read_file(dir, name, b, sizeof b), n_sound);
    assert_memory_equal(b, sound, n_sound);
}

static void what_was_left_is_written_over(void **state)
{
    (void)state;
    struct hearth_err e;
    char tmp[KVFILE_NAME + 4];
    folder_empty(folder);
    snprintf(tmp, sizeof tmp, "%s.tmp", name);
    write_file(tmp, "half", 4);
    assert_int_equal(write_from(0, &e), 0);
    assert_int_equal(folder_empty(folder), 1);
    assert_int_equal(mkdirat(dir, tmp, 0700), 0); /* cannot be removed by the writer */
    assert_int_equal(write_from(0, &e), HEARTH_EIO);
    assert_int_equal(folder_empty(folder), 1);
    assert_int_equal(mkdirat(dir, name, 0700), 0); /* nor can what is in the file's place */
    assert_int_equal(write_from(0, &e), HEARTH_EIO);
    assert_int_equal(folder_empty(folder), 1);
}

static void an_abandoned_file_is_gone(void **state)
{
    (void)state;
    struct kvfile_writer *w;
    struct hearth_err e;
    assert_int_equal(kvfile_begin(&w, dir, &sample.fingerprint, &sample.extent, &e), 0);
    assert_int_equal(kvfile_put(w, sample.data[0], &e), 0);
    kvfile_abort(w);
    assert_int_equal(folder_empty(folder), 0);
}

static void a_full_disk(void **state)
{
    (void)state;
    struct rlimit was, small;
    struct hearth_err e;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    small = was;
    small.rlim_cur = 6000; /* the head and a little more */
    setrlimit(RLIMIT_FSIZE, &small);
    int rc = write_from(0, &e);
    setrlimit(RLIMIT_FSIZE, &was);
    assert_int_equal(rc, HEARTH_EIO);
    assert_non_null(strstr(e.msg, strerror(EFBIG)));
    assert_int_equal(folder_empty(folder), 0);
    assert_int_equal(write_from(0, &e), 0);
    folder_empty(folder);
}

static void a_folder_that_cannot_be_written(void **state)
{
    (void)state;
    struct hearth_err e;
    bool root = geteuid() == 0;
    if (root) /* file modes do not stop root */
        assert_int_equal(chown(folder, 65534, (gid_t)-1) | seteuid(65534), 0);
    assert_int_equal(chmod(folder, 0500), 0);
    int rc = write_from(0, &e);
    assert_int_equal(chmod(folder, 0700), 0);
    if (root)
        assert_int_equal(seteuid(0) | chown(folder, 0, (gid_t)-1), 0);
    assert_int_equal(rc, HEARTH_EIO);
    assert_non_null(strstr(e.msg, strerror(EACCES)));
    assert_int_equal(folder_empty(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bytes_as_an_independent_writer),
        cmocka_unit_test(what_was_written_comes_back),
        cmocka_unit_test(a_chain_depends_on_all_of_it),
        cmocka_unit_test(cut_at_any_length),
        cmocka_unit_test(any_bit_turned),
        cmocka_unit_test(crafted),
        cmocka_unit_test(not_our_file),
        cmocka_unit_test(whole_but_for_another),
        cmocka_unit_test(damaged_enough),
        cmocka_unit_test(names),
        cmocka_unit_test(a_folder_must_be_ours),
        cmocka_unit_test(the_longer_one_is_kept),
        cmocka_unit_test(what_was_left_is_written_over),
        cmocka_unit_test(an_abandoned_file_is_gone),
        cmocka_unit_test(a_full_disk),
        cmocka_unit_test(a_folder_that_cannot_be_written),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
