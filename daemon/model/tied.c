/* tied.c - finds out whether a model's output is its embedding: see model.h. Thread: any. */
#include "daemon/model/model.h"

#include <string.h>

#include "daemon/model/pace.h"

int model_find_tied(struct hparams *hp, const struct gguf *g, bool *tied, struct hearth_err *e)
{
    enum { STEP = 1 << 20 };
    const struct gguf_tensor *in = gguf_tensor_find(g, "token_embd.weight"),
                             *out = gguf_tensor_find(g, "output.weight");
    bool same = in && out && in->data && out->data && in->type == out->type && in->bytes == out->bytes &&
                !memcmp(in->dim, out->dim, sizeof in->dim) && !gguf_tensor_find(g, "token_embd.scale") &&
                !gguf_tensor_find(g, "output.scale");
    for (uint64_t at = 0; same && at < in->bytes; at += STEP) {
        uint64_t n = in->bytes - at < STEP ? in->bytes - at : STEP;
        int ret = pace(n, e);
        if (ret)
            return ret;
        same = !memcmp((const char *)in->data + at, (const char *)out->data + at, n);
    }
    if (same)
        hp->weight_bytes -= out->bytes;
    *tied = !out || same;
    return 0;
}
