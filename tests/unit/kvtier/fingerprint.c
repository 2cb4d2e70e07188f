/* fingerprint.c - the fingerprint of a model's KV: equal for equal files, and different, in the digest that covers it,
 * for a file that differs in anything that KV depends on. Uses copies of the embedded model. */
#include "config.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/engine/kvtier/fingerprint.h"

static const struct backend *be;
static struct device *dev;
static unsigned char *file;
static size_t n_file;
static struct kv_fingerprint original;

/* The fingerprint of the contents of `file` with KV of that type. */
static struct kv_fingerprint print_of(enum dtype type)
{
    struct hearth_err e = {0};
    struct gguf *g;
    struct model *m;
    struct kv_desc desc[KV_GROUPS_MAX];
    struct kv_fingerprint p[KV_GROUPS_MAX];
    char path[64];
    int fd = memfd_create("model.gguf", MFD_CLOEXEC);
    assert_int_equal(write(fd, file, n_file), n_file);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (gguf_open(&g, path, &e) || model_load(&m, g, be, dev, NULL, NULL, &e))
        fail_msg("%s", e.msg);
    model_kv_descs(m, type, desc);
    desc->n_page = 77; /* must not matter */
    assert_int_equal(kv_fingerprint_make(p, m, desc, &e), 0);
    model_free(m);
    gguf_close(g);
    close(fd);
    return p[0];
}

static int setup(void **state)
{
    (void)state;
    struct hearth_err e;
    struct stat st;
    char path[4096];
    const char *top = getenv("top_srcdir");
    snprintf(path, sizeof path, "%s/contrib/models/tale-q4_k_m.gguf", top ? top : ".");
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && !fstat(fd, &st));
    n_file = (size_t)st.st_size;
    file = malloc(n_file);
    assert_int_equal(read(fd, file, n_file), n_file);
    close(fd);
    be = backend_find("cpu");
    assert_int_equal(be->open(&dev, &(struct device_params){.threads = 1, .variant = "reference"}, &e), 0);
    original = print_of(DT_F32);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    be->close(dev);
    free(file);
    return 0;
}

/* Checks which digest differs if one byte of the file does. */
static void differs(size_t at, const char *in)
{
    char diff[HEARTH_ERR_MSG];
    file[at] ^= 1;
    struct kv_fingerprint p = print_of(DT_F32);
    file[at] ^= 1;
    assert_string_equal(kv_fingerprint_diff(&p, &original, diff), in);
    assert_true(kv_fingerprint_id(&p) != kv_fingerprint_id(&original));
}

/* The offset of the value of a key with a number. */
static size_t value_of(const char *key)
{
    unsigned char *at = memmem(file, n_file, key, strlen(key));
    assert_non_null(at);
    return (size_t)(at - file) + strlen(key) + 4;
}

static void the_same_file_is_the_same(void **state)
{
    (void)state;
    struct kv_fingerprint p = print_of(DT_F32);
    assert_memory_equal(&p, &original, sizeof p);
    assert_string_equal(p.backend, "cpu");
    assert_int_equal(p.page_tokens, KV_PAGE);
    assert_int_equal(p.page_bytes, (uint64_t)p.n_layer * 2 * p.n_kv * KV_PAGE * p.d_head * sizeof(float));
}

static void weights(void **state)
{
    (void)state;
    struct hearth_err e;
    struct gguf *g;
    char path[64];
    int fd = memfd_create("model.gguf", MFD_CLOEXEC);
    assert_int_equal(write(fd, file, n_file), n_file);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    assert_int_equal(gguf_open(&g, path, &e), 0);
    size_t n = gguf_n_tensor(g), first = n_file;
    const char *low = gguf_tensor_at(g, 0)->data;
    for (size_t i = 0; i < n; i++) { /* the data begins with the first tensor, and the file ends with the last one */
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        low = (const char *)t->data < low ? t->data : low;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        size_t end = (size_t)((const char *)t->data - low) + t->bytes;
        bytes = end > bytes ? end : bytes;
    }
    first -= bytes;
    for (size_t i = 0; i < n; i += n / 7) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        size_t at = first + (size_t)((const char *)t->data - low);
        assert_memory_equal(file + at, t->data, t->bytes < 64 ? t->bytes : 64);
        differs(at + 8, "the model");
        differs(at + t->bytes / 2, "the model");
        differs(at + t->bytes - 1, "the model");
    }
    gguf_close(g);
    close(fd);
}

static void metadata(void **state)
{
    (void)state;
    differs(value_of("general.name") + 8, "the model"); /* 8: past the string's length */
    differs(value_of("tokenizer.ggml.eos_token_id"), "the tokenizer");
    differs(value_of("llama.rope.freq_base"), "the model, the RoPE parameters");
}

static void the_type_of_the_kv(void **state)
{
    (void)state;
    char diff[HEARTH_ERR_MSG];
    struct kv_fingerprint p = print_of(DT_F16);
    assert_non_null(strstr(kv_fingerprint_diff(&p, &original, diff), "the KV type (F16, not F32), the page size ("));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_file_is_the_same),
        cmocka_unit_test(weights),
        cmocka_unit_test(metadata),
        cmocka_unit_test(the_type_of_the_kv),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
