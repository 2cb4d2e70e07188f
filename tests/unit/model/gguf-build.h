/* gguf-build.h - writes GGUF files for tests, sound ones and broken ones, without checking anything. */
#ifndef HEARTH_TEST_GGUF_BUILD_H
#define HEARTH_TEST_GGUF_BUILD_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

enum { T_U8, T_I8, T_U16, T_I16, T_U32, T_I32, T_F32, T_BOOL, T_STR, T_ARR, T_U64, T_I64, T_F64 };

struct build {
    unsigned char *p;
    size_t n, cap;
};

static inline void put(struct build *b, const void *data, size_t n)
{
    if (b->n + n > b->cap) {
        b->cap = (b->n + n) * 2;
        b->p = realloc(b->p, b->cap);
        assert_non_null(b->p);
    }
    memcpy(b->p + b->n, data, n);
    b->n += n;
}
static inline void put32(struct build *b, uint32_t v)
{
    put(b, &v, 4);
}
static inline void put64(struct build *b, uint64_t v)
{
    put(b, &v, 8);
}
static inline void put_str(struct build *b, const char *s)
{
    put64(b, strlen(s));
    put(b, s, strlen(s));
}
static inline void put_zeros(struct build *b, size_t n)
{
    for (; n; n--)
        put(b, "", 1);
}
static inline void put_header(struct build *b, uint32_t version, uint64_t n_tensor, uint64_t n_key)
{
    put(b, "GGUF", 4);
    put32(b, version);
    put64(b, n_tensor);
    put64(b, n_key);
}
static inline void key_u32(struct build *b, const char *key, uint32_t v)
{
    put_str(b, key);
    put32(b, T_U32);
    put32(b, v);
}
static inline void key_f32(struct build *b, const char *key, float v)
{
    put_str(b, key);
    put32(b, T_F32);
    put(b, &v, 4);
}
static inline void key_bool(struct build *b, const char *key, uint8_t v)
{
    put_str(b, key);
    put32(b, T_BOOL);
    put(b, &v, 1);
}
static inline void key_str(struct build *b, const char *key, const char *v)
{
    put_str(b, key);
    put32(b, T_STR);
    put_str(b, v);
}
static inline void key_arr(struct build *b, const char *key, uint32_t type, uint64_t n)
{
    put_str(b, key);
    put32(b, T_ARR);
    put32(b, type);
    put64(b, n);
}
static inline void put_tensor(struct build *b, const char *name, uint32_t n_dim, const uint64_t *dim, uint32_t type,
                              uint64_t offset)
{
    put_str(b, name);
    put32(b, n_dim);
    for (uint32_t i = 0; i < n_dim; i++)
        put64(b, dim[i]);
    put32(b, type);
    put64(b, offset);
}

/* Writes a file without a name, which `path` opens. The caller closes the returned descriptor. */
static inline int build_file(const struct build *b, char path[64])
{
    int fd = memfd_create("test.gguf", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, b->p ? (void *)b->p : "", b->n), (ssize_t)b->n);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

#endif
