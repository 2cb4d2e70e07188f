/* tied.c - finds out whether a model's output is its embedding: see model.h. Thread: any. */
#include "daemon/model/model.h"

#include <string.h>

/* Compares two matrices of the same form by samples over all of their length: those that were trained apart differ
 * everywhere, and others would wait while gigabytes are read. Small matrices are compared whole. */
static bool same_numbers(const struct gguf_tensor *a, const struct gguf_tensor *b)
{
    enum { PIECES = 64, PIECE = 4096 };
    uint64_t n = a->bytes < PIECE ? a->bytes : PIECE;
    for (uint64_t i = 0; i < PIECES; i++) {
        uint64_t at = i == PIECES - 1 ? a->bytes - n : (a->bytes - n) / (PIECES - 1) * i;
        if (memcmp((const char *)a->data + at, (const char *)b->data + at, n))
            return false;
    }
    return true;
}

bool model_find_tied(struct hparams *hp, const struct gguf *g)
{
    const struct gguf_tensor *in = gguf_tensor_find(g, "token_embd.weight"),
                             *out = gguf_tensor_find(g, "output.weight");
    bool same = in && out && in->data && out->data && in->type == out->type && in->bytes == out->bytes &&
                !memcmp(in->dim, out->dim, sizeof in->dim) && !gguf_tensor_find(g, "token_embd.scale") &&
                !gguf_tensor_find(g, "output.scale") && same_numbers(in, out);
    if (same)
        hp->weight_bytes -= out->bytes;
    return !out || same;
}
