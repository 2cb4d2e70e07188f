/*
 * fuzz-folder.c - a Hugging Face folder: the input is config.json, tokenizer.json and model.safetensors, with lines
 * "%%" between them. Whatever they contain, each step ends in success or in an error with a message, and the data of
 * each tensor are within the file.
 */
#include "config.h" /* memmem, asprintf */

#include "daemon/model/file.h"
#include "daemon/model/model.h"
#include "daemon/model/tok/tok.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
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

static void use(struct gguf *g)
{
    static const char text[] = "<s>Hi  there,\n\xff 12 \xe2\x96\x81 na\xc3\xafve<|im_end|>";
    struct hearth_err e = {0};
    struct hparams hp;
    struct vocab *v;
    uint64_t sum = 0;
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
    struct ids ids = {0};
    for (int flags = 0; flags < 8; flags++)
        check(tok_encode(v, text, sizeof text - 1, flags, &ids, &e), &e);
    for (size_t i = 0; i < ids.n; i++)
        if (ids.v[i] < 0 || (uint32_t)ids.v[i] >= vocab_size(v))
            abort();
    ids_fini(&ids);
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
