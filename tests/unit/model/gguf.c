/* gguf.c - the GGUF reader on sound files and on malformed files of many kinds. */
#include "config.h" /* memfd_create */

#include "daemon/model/gguf.h"
#include "tests/unit/model/gguf-build.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>

static int open_built(const struct build *b, struct gguf **g, struct hearth_err *e)
{
    char path[64];
    int fd = build_file(b, path);
    int ret = gguf_open(g, path, e);
    close(fd);
    return ret;
}

/* Checks that the file is refused with that code and a message that contains `what`. */
static void refused(struct build *b, int code, const char *what)
{
    struct gguf *g = NULL;
    struct hearth_err e = {0};
    int ret = open_built(b, &g, &e);
    if (ret != code || !strstr(e.msg, what) ||
        !strchr("/0123456789", e.msg[0])) /* the message begins with the file's name, /proc/self/fd/N */
        fail_msg("%d: \"%s\" instead of %d: \"%s\"", ret, ret ? e.msg : "opened", code, what);
    free(b->p);
    *b = (struct build){0};
}

/* Values of all types, and two tensors: F32 [4, 2] and Q8_0 [32]. */
static struct build sound(uint32_t version)
{
    struct build b = {0};
    put_header(&b, version, 3, 13);
    key_str(&b, "general.architecture", "llama");
    key_u32(&b, "general.alignment", 64);
    key_f32(&b, "f32", 1.5f);
    key_bool(&b, "yes", 1);
    put_str(&b, "u8");
    put32(&b, T_U8);
    put(&b, "\xff", 1);
    put_str(&b, "i16");
    put32(&b, T_I16);
    put(&b, "\xfe\xff", 2);
    put_str(&b, "i64");
    put32(&b, T_I64);
    put64(&b, 77);
    put_str(&b, "u64");
    put32(&b, T_U64);
    put64(&b, 1ull << 32);
    put_str(&b, "f64");
    put32(&b, T_F64);
    put(&b, &(double){0.25}, 8);
    key_arr(&b, "strs", T_STR, 3);
    put_str(&b, "a");
    put_str(&b, "");
    put_str(&b, "ccc");
    key_arr(&b, "i32s", T_I32, 2);
    put32(&b, 5);
    put32(&b, (uint32_t)-6);
    key_arr(&b, "f32s", T_F32, 1);
    put(&b, &(float){2.5f}, 4);
    key_arr(&b, "none", T_STR, 0);
    put_tensor(&b, "a", 2, (uint64_t[]){4, 2}, 0, 64);
    put_tensor(&b, "b", 1, (uint64_t[]){32}, 8, 0);
    put_tensor(&b, "odd", 1, (uint64_t[]){7}, 99, 0);
    while (b.n % 64)
        put_zeros(&b, 1);
    put_zeros(&b, 64);
    for (int i = 0; i < 8; i++)
        put(&b, &(float){(float)i}, 4);
    return b;
}

static void test_sound(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        struct build b = sound(version);
        struct gguf *g;
        struct hearth_err e = {0};
        if (open_built(&b, &g, &e))
            fail_msg("%s", e.msg);
        uint32_t u = 0;
        float f = 0;
        bool yes = false;
        struct gguf_str s, t[3];
        struct gguf_strs strs;
        struct gguf_nums nums;
        assert_int_equal(gguf_file_bytes(g), b.n);
        assert_int_equal(gguf_str(g, "general.architecture", &s, &e), 0);
        assert_true(gguf_str_is(s, "llama"));
        assert_true(!gguf_u32(g, "u8", &u, &e) && u == 255);
        assert_true(!gguf_u32(g, "i64", &u, &e) && u == 77);
        assert_true(!gguf_f32(g, "f32", &f, &e) && f == 1.5f);
        assert_true(!gguf_f32(g, "f64", &f, &e) && f == 0.25f);
        assert_true(!gguf_bool(g, "yes", &yes, &e) && yes);
        assert_int_equal(gguf_u32(g, "absent", &u, &e), 1);
        assert_int_equal(gguf_strs(g, "strs", &strs, &e), 0);
        for (int i = 0; i < 3; i++)
            assert_true(gguf_strs_next(&strs, &t[i]));
        assert_false(gguf_strs_next(&strs, &t[0]));
        assert_true(gguf_str_is(t[0], "a") && gguf_str_is(t[1], "") && gguf_str_is(t[2], "ccc"));
        assert_int_equal(gguf_strs(g, "none", &strs, &e), 0);
        assert_false(gguf_strs_next(&strs, &t[0]));
        assert_int_equal(gguf_i32s(g, "i32s", &nums, &e), 0);
        assert_true(nums.n == 2 && gguf_i32_at(&nums, 0) == 5 && gguf_i32_at(&nums, 1) == -6);
        assert_int_equal(gguf_f32s(g, "f32s", &nums, &e), 0);
        assert_true(nums.n == 1 && gguf_f32_at(&nums, 0) == 2.5f);

        const struct gguf_tensor *a = gguf_tensor_find(g, "a"), *odd = gguf_tensor_find(g, "odd");
        assert_int_equal(gguf_n_tensor(g), 3);
        assert_true(a && a->bytes == 32 && a->dim[0] == 4 && a->dim[1] == 2 && a->dim[2] == 1);
        assert_true(((const float *)a->data)[7] == 7.0f);
        assert_true(odd && !odd->data && !odd->bytes);
        assert_int_equal(gguf_tensor_find(g, "b")->bytes, 34);
        assert_null(gguf_tensor_find(g, "c"));
        gguf_close(g);
        free(b.p);
    }
}

static void test_value_types(void **state)
{
    (void)state;
    struct build b = {0};
    struct gguf *g;
    struct hearth_err e = {0};
    uint32_t u = 42;
    float f = 42;
    bool yes;
    struct gguf_str s;
    struct gguf_strs strs;
    struct gguf_nums nums;
    put_header(&b, 3, 0, 6);
    key_str(&b, "str", "x");
    key_f32(&b, "nan", NAN);
    key_bool(&b, "two", 2);
    put_str(&b, "minus");
    put32(&b, T_I8);
    put(&b, "\xff", 1);
    put_str(&b, "big");
    put32(&b, T_U64);
    put64(&b, 1ull << 32);
    key_arr(&b, "u8s", T_U8, 1);
    put(&b, "x", 1);
    assert_int_equal(open_built(&b, &g, &e), 0);
    const int rets[] = {
        gguf_u32(g, "str", &u, &e),     gguf_f32(g, "str", &f, &e),     gguf_bool(g, "str", &yes, &e),
        gguf_str(g, "nan", &s, &e),     gguf_strs(g, "u8s", &strs, &e), gguf_strs(g, "str", &strs, &e),
        gguf_f32s(g, "u8s", &nums, &e), gguf_i32s(g, "u8s", &nums, &e), gguf_f32(g, "nan", &f, &e),
        gguf_bool(g, "two", &yes, &e),  gguf_u32(g, "minus", &u, &e),   gguf_u32(g, "big", &u, &e),
        gguf_u32(g, "nan", &u, &e),
    };
    for (size_t i = 0; i < sizeof rets / sizeof *rets; i++)
        assert_int_equal(rets[i], HEARTH_EBADMODEL);
    assert_true(u == 42 && f == 42);
    gguf_u32(g, "str", &u, &e);
    assert_non_null(strstr(e.msg, "str"));
    assert_non_null(strstr(e.msg, "integer"));
    gguf_close(g);
    free(b.p);
}

/* A header for one key, or one tensor; the faulty part is appended by the caller. */
static struct build one_key(const char *name, uint32_t type)
{
    struct build b = {0};
    put_header(&b, 3, 0, 1);
    put_str(&b, name);
    put32(&b, type);
    return b;
}

static struct build one_tensor(uint32_t n_dim, uint64_t d0, uint64_t d1, uint32_t type, uint64_t offset)
{
    struct build b = {0};
    put_header(&b, 3, 1, 0);
    put_tensor(&b, "weight", n_dim, (uint64_t[]){d0, d1, 1, 1, 1}, type, offset);
    put_zeros(&b, 4096);
    return b;
}

static void test_header(void **state)
{
    (void)state;
    struct build b = {0};
    refused(&b, HEARTH_EBADMODEL, "0 bytes");
    put(&b, "GG", 2);
    refused(&b, HEARTH_EBADMODEL, "header");
    put(&b, "PK\3\4................................", 32);
    refused(&b, HEARTH_EBADMODEL, "not a GGUF");
    put_header(&b, 1, 0, 0);
    refused(&b, HEARTH_EUNSUPPORTED, "version 1");
    put_header(&b, 4, 0, 0);
    refused(&b, HEARTH_EUNSUPPORTED, "version 4");
    put_header(&b, 0x03000000, 0, 0);
    refused(&b, HEARTH_EUNSUPPORTED, "big-endian");
    put_header(&b, 3, UINT64_MAX, 0);
    refused(&b, HEARTH_EBADMODEL, "tensors; the limit");
    put_header(&b, 3, 0, UINT64_MAX);
    refused(&b, HEARTH_EBADMODEL, "keys; the limit");
    put_header(&b, 3, 0, 60000); /* below the limit, but the file is shorter */
    refused(&b, HEARTH_EBADMODEL, "ends within");
}

static void test_keys(void **state)
{
    (void)state;
    struct build b = {0};
    put_header(&b, 3, 0, 1);
    put64(&b, UINT64_MAX); /* the length of a name */
    put_zeros(&b, 100);
    refused(&b, HEARTH_EBADMODEL, "name of a key is");
    b = one_key("k", 13);
    put_zeros(&b, 100);
    refused(&b, HEARTH_EBADMODEL, "unknown type 13");
    b = one_key("k", T_STR);
    put64(&b, 1 << 20); /* more than the file has */
    refused(&b, HEARTH_EBADMODEL, "a string of k");
    b = one_key("k", T_STR);
    put64(&b, UINT64_MAX - 7); /* p + n wraps */
    refused(&b, HEARTH_EBADMODEL, "limit");
    b = one_key("k", T_ARR);
    put32(&b, T_ARR);
    put64(&b, 1);
    put_zeros(&b, 100);
    refused(&b, HEARTH_EBADMODEL, "array of arrays");
    b = one_key("k", T_ARR);
    put32(&b, 1000);
    put64(&b, 1);
    refused(&b, HEARTH_EBADMODEL, "unknown type");
    b = one_key("k", T_ARR);
    put32(&b, T_U64);
    put64(&b, UINT64_MAX / 8 + 1); /* n * 8 wraps */
    refused(&b, HEARTH_EBADMODEL, "elements; the limit");
    b = one_key("k", T_ARR);
    put32(&b, T_F32);
    put64(&b, 1 << 20); /* allowed, but the file is shorter */
    refused(&b, HEARTH_EBADMODEL, "ends within");
    put_header(&b, 3, 0, 2);
    key_u32(&b, "twin", 1);
    key_f32(&b, "twin", 1);
    refused(&b, HEARTH_EBADMODEL, "twin is there twice");
    const uint32_t bad[] = {0, 1, 4, 48, 1 << 20, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_header(&b, 3, 0, 1);
        key_u32(&b, "general.alignment", bad[i]);
        refused(&b, HEARTH_EBADMODEL, "general.alignment is");
    }
    put_header(&b, 3, 0, 1);
    key_str(&b, "general.alignment", "32");
    refused(&b, HEARTH_EBADMODEL, "general.alignment");
    put_header(&b, 3, 0, 1);
    put_str(&b, "\x1b[31m\xff"); /* none of these bytes may reach a terminal or the wire */
    put32(&b, 99);
    refused(&b, HEARTH_EBADMODEL, "key ?[31m? has");
}

static void test_tensors(void **state)
{
    (void)state;
    struct build b = one_tensor(0, 0, 0, 0, 0);
    refused(&b, HEARTH_EBADMODEL, "0 dimensions");
    b = one_tensor(5, 1, 1, 0, 0);
    refused(&b, HEARTH_EBADMODEL, "5 dimensions");
    b = one_tensor(2, 4, 0, 0, 0);
    refused(&b, HEARTH_EBADMODEL, "dimension 1 of 0");
    b = one_tensor(2, 4, 1ull << 40, 0, 0);
    refused(&b, HEARTH_EBADMODEL, "out of range");
    b = one_tensor(2, UINT64_MAX, 1, 0, 0);
    refused(&b, HEARTH_EBADMODEL, "dimension 0");
    put_header(&b, 3, 1, 0); /* the product wraps to 0 */
    put_tensor(&b, "weight", 4, (uint64_t[]){1 << 16, 1 << 16, 1 << 16, 1 << 16}, 0, 0);
    refused(&b, HEARTH_EBADMODEL, "out of range");
    b = one_tensor(2, 33, 1, 8, 0);
    refused(&b, HEARTH_EBADMODEL, "no multiple of Q8_0");
    b = one_tensor(1, 4, 0, 0, 8);
    refused(&b, HEARTH_EBADMODEL, "not aligned");
    b = one_tensor(1, 4, 0, 0, 1 << 20);
    refused(&b, HEARTH_EBADMODEL, "within the data of tensor weight");
    b = one_tensor(1, 4, 0, 0, UINT64_MAX - 31); /* start + offset wraps */
    refused(&b, HEARTH_EBADMODEL, "within the data");
    b = one_tensor(2, 1024, 2, 0, 0); /* 8 KiB in a file of 4 */
    refused(&b, HEARTH_EBADMODEL, "within the data");
    put_header(&b, 3, 2, 0);
    put_tensor(&b, "twin", 1, (uint64_t[]){4}, 0, 0);
    put_tensor(&b, "twin", 1, (uint64_t[]){4}, 0, 0);
    put_zeros(&b, 100);
    refused(&b, HEARTH_EBADMODEL, "twin is there twice");
}

static void test_truncated(void **state)
{
    (void)state;
    struct build b = sound(3);
    size_t whole = b.n;
    for (b.n = 0; b.n < whole; b.n++) {
        struct gguf *g;
        struct hearth_err e = {0};
        assert_int_equal(open_built(&b, &g, &e), HEARTH_EBADMODEL);
        assert_true(e.msg[0]);
    }
    free(b.p);
}

static void test_not_a_file(void **state)
{
    (void)state;
    struct gguf *g;
    struct hearth_err e = {0};
    char dir[] = "/tmp/hearth-gguf-XXXXXX", fifo[64];
    assert_non_null(mkdtemp(dir));
    snprintf(fifo, sizeof fifo, "%s/fifo", dir);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(gguf_open(&g, dir, &e), HEARTH_EBADMODEL);
    assert_non_null(strstr(e.msg, "not a regular file"));
    assert_int_equal(gguf_open(&g, fifo, &e), HEARTH_EBADMODEL); /* without waiting for a writer */
    assert_int_equal(gguf_open(&g, "/dev/zero", &e), HEARTH_EBADMODEL);
    assert_int_equal(gguf_open(&g, "/nonexistent/model.gguf", &e), HEARTH_ENOMODEL);
    unlink(fifo);
    rmdir(dir);
}

/* The file is truncated while it is mapped: reading continues, and gguf_check() reports it. */
static void test_shrinks(void **state)
{
    (void)state;
    struct build b = {0};
    struct gguf *g;
    struct hearth_err e = {0};
    char path[64];
    put_header(&b, 3, 1, 0);
    put_tensor(&b, "w", 1, (uint64_t[]){1 << 16}, 0, 0);
    while (b.n % 32)
        put_zeros(&b, 1);
    for (int i = 0; i < 1 << 16; i++)
        put(&b, &(float){1}, 4);
    int fd = build_file(&b, path);
    assert_int_equal(gguf_open(&g, path, &e), 0);
    assert_int_equal(gguf_check(g, &e), 0);
    assert_int_equal(ftruncate(fd, 100 * 1000), 0);
    const float *w = gguf_tensor_find(g, "w")->data;
    float sum = 0;
    for (int i = 0; i < 1 << 16; i++)
        sum += w[i];
    assert_true(sum > 0 && sum < 1 << 16);
    assert_int_equal(gguf_check(g, &e), HEARTH_EBADMODEL);
    assert_non_null(strstr(e.msg, "shrank"));
    /* After it has grown again it is still not the file that was opened, because pages were lost. */
    assert_int_equal(ftruncate(fd, (off_t)b.n), 0);
    assert_int_equal(gguf_check(g, &e), HEARTH_EBADMODEL);
    gguf_close(g);

    /* The next file is not affected by the damage of the previous one. */
    char path2[64];
    int fd2 = build_file(&b, path2);
    assert_int_equal(gguf_open(&g, path2, &e), 0);
    assert_int_equal(gguf_check(g, &e), 0);
    gguf_close(g);
    close(fd2);
    close(fd);
    free(b.p);
}

/* The most keys and tensors that are allowed: a quadratic reader would take minutes. */
static void test_linear(void **state)
{
    (void)state;
    struct build b = {0};
    struct gguf *g;
    struct hearth_err e = {0};
    char name[32];
    enum { N = 1 << 16 };
    put_header(&b, 3, N, N);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "key.%d", i);
        key_u32(&b, name, (uint32_t)i);
    }
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "blk.%d.weight", i);
        put_tensor(&b, name, 1, (uint64_t[]){8}, 0, (uint64_t)i * 32);
    }
    while (b.n % 32)
        put_zeros(&b, 1);
    put_zeros(&b, (size_t)N * 32);
    if (open_built(&b, &g, &e))
        fail_msg("%s", e.msg);
    for (uint32_t i = 0, v; i < N; i += 97) {
        snprintf(name, sizeof name, "key.%u", i);
        assert_int_equal(gguf_u32(g, name, &v, &e), 0);
        assert_int_equal(v, i);
        snprintf(name, sizeof name, "blk.%u.weight", i);
        assert_non_null(gguf_tensor_find(g, name));
    }
    gguf_close(g);
    free(b.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sound),      cmocka_unit_test(test_value_types), cmocka_unit_test(test_header),
        cmocka_unit_test(test_keys),       cmocka_unit_test(test_tensors),     cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_not_a_file), cmocka_unit_test(test_shrinks),     cmocka_unit_test(test_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
