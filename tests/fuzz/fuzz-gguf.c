/*
 * fuzz-gguf.c - any bytes as a model file: it is opened and walked, its vocabulary is used, its weights are bound. Each
 * step must end in success or in an error with a message; token ids must be in the vocabulary.
 */
#include "config.h" /* memfd_create */

#include "daemon/model/chat/templates.h"
#include "daemon/model/model.h"
#include "daemon/model/tok/tok.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
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

static void use_vocab(const struct gguf *g)
{
    static const char text[] = "<s>Hi  there,\n\xff 12 \xe2\x96\x81 na\xc3\xafve<|im_end|>";
    struct vocab *v;
    struct hearth_err e = {0};
    struct ids ids = {0};
    char piece[16];
    int ret = vocab_load(&v, g, &e);
    check(ret, &e);
    if (ret)
        return;
    for (int flags = 0; flags < 8; flags++)
        check(tok_encode(v, text, sizeof text - 1, flags, &ids, &e), &e);
    for (size_t i = 0; i < ids.n; i++) {
        if (ids.v[i] < 0 || (uint32_t)ids.v[i] >= vocab_size(v))
            abort();
        tok_piece(v, ids.v[i], true, piece, sizeof piece);
        vocab_is_end(v, ids.v[i]);
    }
    const struct tok_span span[] = {{3, 5}, {20, sizeof text - 2}};
    for (int flags = 0; flags < 8; flags++)
        check(tok_encode_spans(v, text, sizeof text - 1, flags, span, 2, &ids, &e), &e);
    struct templates *all;
    const struct jinja *t;
    ret = templates_load(&all, g, &e);
    check(ret, &e);
    if (!ret) {
        ret = templates_get(all, NULL, true, &t, &e); /* the error may quote the template */
        if (ret > 0 || (ret && (e.code != ret || !e.msg[0])))
            abort();
        templates_free(all);
    }
    ids_fini(&ids);
    vocab_free(v);
}

static void use_model(struct gguf *g)
{
    static const struct backend *be;
    static struct device *dev;
    struct model *m;
    struct hearth_err e = {0};
    if (!be) {
        be = backend_find("cpu");
        if (be->open(&dev, &(struct device_params){.threads = 1, .variant = "reference"}, &e))
            abort();
    }
    int ret = model_load(&m, g, be, dev, NULL, NULL, &e);
    check(ret, &e);
    if (!ret)
        model_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g;
    struct hearth_err e = {0};
    char path[64];
    int fd = memfd_create("fuzz.gguf", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int ret = gguf_open(&g, path, &e);
    check(ret, &e);
    if (!ret) {
        uint64_t sum = 0; /* each tensor is entirely within the file */
        for (size_t i = 0; i < gguf_n_tensor(g); i++) {
            const struct gguf_tensor *t = gguf_tensor_at(g, i);
            if (t->data)
                sum += (uint64_t)((const uint8_t *)t->data)[0] + ((const uint8_t *)t->data)[t->bytes - 1];
        }
        if (sum > 510 * gguf_n_tensor(g))
            abort();
        use_vocab(g);
        use_model(g);
        check(gguf_check(g, &e), &e);
        if (gguf_check(g, &e))
            abort();
        gguf_close(g);
    }
    close(fd);
    return 0;
}
