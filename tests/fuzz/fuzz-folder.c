/*
 * fuzz-folder.c - a Hugging Face folder: the input is config.json, tokenizer.json and model.safetensors, with lines
 * "%%" between them. Whatever they contain, each step ends in success or in an error with a message, the data of each
 * tensor are within the file, and a text has as many ids as vocab_reach() promises.
 */
#include "config.h" /* memmem, asprintf */

#include "daemon/model/file.h"
#include "daemon/model/model.h"
#include "daemon/model/tok/tok.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ret, const struct hearth_err *e)
{
    if (ret && (ret > 0 || e->code != ret || !e->msg[0]))
        abort();
    for (const char *c = e->msg; ret && *c; c++) /* the message goes to clients and terminals */
        if (*c < 0x20 || *c > 0x7e)
            abort();
}

static void write_part(const char *dir, const char *name, const uint8_t *data, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        abort();
    close(fd);
}

static void check_ids(const struct vocab *v, const struct ids *ids, size_t n)
{
    for (size_t i = 0; i < ids->n; i++)
        if (ids->v[i] < 0 || (uint32_t)ids->v[i] >= vocab_size(v))
            abort();
    if (vocab_reach(v) != SIZE_MAX && ids->n < n / vocab_reach(v))
        abort();
}

/* The text consists of a fixed one, the vocabulary's last tokens, which are the added ones, and the fixed one again. A
 * person wrote nothing or a part of it. */
static void encode(const struct vocab *v)
{
    static const char fixed[] = "<s>Hi  there,\n\xff 12 \xe2\x96\x81 na\xc3\xafve e\xcc\x81\xef\xac\x81 <|im_end|>";
    enum { FIXED = sizeof fixed - 1, TOKENS = 8, MOST = 300 };
    char *text = malloc(2 * FIXED + TOKENS * MOST);
    size_t n = FIXED;
    if (!text)
        abort();
    memcpy(text, fixed, FIXED);
    for (uint32_t i = vocab_size(v) > TOKENS ? vocab_size(v) - TOKENS : 0; i < vocab_size(v); i++) {
        size_t len = tok_piece(v, (int32_t)i, true, text + n, MOST);
        n += len < MOST ? len : MOST;
    }
    memcpy(text + n, fixed, FIXED);
    n += FIXED;
    const struct tok_span span[] = {{3, 5}, {20, (uint32_t)n - FIXED - 1}};
    for (int flags = 0; flags < 16; flags++) {
        struct hearth_err e = {0};
        struct ids ids = {0};
        check(tok_encode(v, text, n, flags, &ids, &e), &e);
        check_ids(v, &ids, e.code ? 0 : n);
        ids.n = 0;
        check(tok_encode_spans(v, text, n, flags, span, 2, &ids, &e), &e);
        check_ids(v, &ids, e.code ? 0 : n);
        ids_fini(&ids);
    }
    free(text);
}

static void use(struct gguf *g)
{
    struct hearth_err e = {0};
    struct hparams hp;
    struct vocab *v;
    uint64_t sum = 0;
    check(gguf_fill(g, &e), &e);
    for (size_t i = 0; i < gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        sum += (uint64_t)((const uint8_t *)t->data)[0] + ((const uint8_t *)t->data)[t->bytes - 1];
    }
    if (sum > 510 * gguf_n_tensor(g))
        abort();
    check(model_hparams(&hp, g, &e), &e);
    int ret = vocab_load(&v, g, &e);
    check(ret, &e);
    if (ret)
        return;
    encode(v);
    vocab_free(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"config.json", "tokenizer.json", "model.safetensors"};
    static char dir[] = "/tmp/hearth-fuzz-XXXXXX";
    struct hearth_err e = {0};
    struct gguf *g;
    char path[128];
    if (dir[sizeof dir - 2] == 'X' && !mkdtemp(dir))
        abort();
    for (int i = 0; i < 3; i++) {
        const uint8_t *end = i < 2 ? memmem(data, size, "\n%%\n", 4) : NULL;
        size_t n = end ? (size_t)(end - data) : size;
        write_part(dir, names[i], data, n);
        data += end ? n + 4 : n;
        size -= end ? n + 4 : n;
    }
    int ret = model_file_open(&g, dir, &e);
    check(ret, &e);
    if (!ret) {
        use(g);
        gguf_close(g);
    }
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
    snprintf(dir, sizeof dir, "/tmp/hearth-fuzz-XXXXXX");
    return 0;
}
