/*
 * mxfp4.c - gpt-oss as OpenAI publishes it: the experts' matrices are in MXFP4, with the nibbles in one tensor and the
 * powers of two (the scales) in another, and with the rows of gate and up interleaved. gguf_fill() copies them into
 * GGUF's blocks.
 */
#include "daemon/model/hf/hf-internal.h"

#include <stdio.h>

#include "daemon/model/hf/safetensors.h"
#include "daemon/model/pace.h"

enum { LEN = 32, BYTES = 17, NIBBLES = 16 }; /* of a block: weights; bytes in GGUF; bytes of nibbles */

/* One matrix, or gate and up, of all experts in a layer. */
struct hf_mxfp4 {
    struct hf_mxfp4 *next;
    unsigned layer;
    bool down;
    uint64_t n_block, n_row, n_expert; /* blocks in a row; rows in the folder's tensor */
    const uint8_t *nibbles,
        *scales;      /* [n_expert][n_row][n_block], of NIBBLES bytes and of one; scales NULL: not seen */
    uint8_t *part[2]; /* gate and up, or down: [n_expert][n_row / parts][n_block] blocks */
};

static uint8_t *block_at(const struct hf_mxfp4 *m, uint64_t expert, uint64_t row, uint64_t block)
{
    uint64_t parts = m->down ? 1 : 2;
    return m->part[row % parts] + ((expert * (m->n_row / parts) + row / parts) * m->n_block + block) * BYTES;
}

static int add_parts(const struct hf *h, struct hf_mxfp4 *m)
{
    uint64_t parts = m->down ? 1 : 2, rows = m->n_row / parts;
    for (uint64_t i = 0; i < parts; i++) {
        struct gguf_tensor t = {.n_dim = 3, .dim = {m->n_block * LEN, rows, m->n_expert, 1}, .type = DT_MXFP4};
        char name[64];
        snprintf(name, sizeof name, "blk.%u.ffn_%s_exps.weight", m->layer, m->down ? "down" : i ? "up" : "gate");
        t.bytes = m->n_expert * rows * m->n_block * BYTES;
        t.name = gguf_make_name(h->m, name);
        t.data = m->part[i] = gguf_make_alloc(h->m, t.bytes);
        if (!t.data)
            return err_set(h->e, HEARTH_ENOMEM, "no memory for tensor %s", name);
        gguf_make_tensor(h->m, &t);
    }
    return 0;
}

/* Byte i of a block has the weights 2 i and 2 i + 1 in the folder, but i and i + 16 in GGUF. */
static void copy_nibbles(const uint8_t *from, uint8_t *to)
{
    for (unsigned i = 0; i < NIBBLES; i++) {
        unsigned low = from[i / 2] >> i % 2 * 4 & 15, high = from[(i + NIBBLES) / 2] >> i % 2 * 4 & 15;
        to[1 + i] = (uint8_t)(low | high << 4);
    }
}

static int fill(const void *arg, struct hearth_err *e)
{
    const struct hf_mxfp4 *m = arg;
    const uint8_t *nibbles = m->nibbles, *scale = m->scales;
    for (uint64_t i = 0; i < m->n_expert; i++)
        for (uint64_t r = 0; r < m->n_row; r++) {
            int ret = pace(m->n_block * (NIBBLES + 1), e);
            if (ret)
                return ret;
            for (uint64_t b = 0; b < m->n_block; b++, nibbles += NIBBLES) {
                uint8_t *to = block_at(m, i, r, b);
                to[0] = *scale++;
                copy_nibbles(nibbles, to);
            }
        }
    return 0;
}

static int add_blocks(struct hf *h, unsigned layer, bool down, const struct gguf_tensor *t)
{
    if (t->n_dim != 4 || t->dim[0] != NIBBLES || (!down && t->dim[2] % 2))
        return err_set(h->e, HEARTH_EBADMODEL, "layer %u: the experts' blocks have not the shape of MXFP4", layer);
    struct hf_mxfp4 *m = gguf_make_alloc(h->m, sizeof *m);
    if (!m)
        return err_set(h->e, HEARTH_ENOMEM, "no memory for the experts of layer %u", layer);
    *m = (struct hf_mxfp4){.next = h->mxfp4,
                           .layer = layer,
                           .down = down,
                           .n_block = t->dim[1],
                           .n_row = t->dim[2],
                           .n_expert = t->dim[3],
                           .nibbles = t->data};
    h->mxfp4 = m;
    return add_parts(h, m);
}

static int add_scales(struct hf *h, unsigned layer, bool down, const struct gguf_tensor *t)
{
    struct hf_mxfp4 *m = h->mxfp4;
    while (m && (m->layer != layer || m->down != down))
        m = m->next;
    if (!m)
        return err_set(h->e, HEARTH_EBADMODEL, "layer %u: scales of experts come without their blocks before", layer);
    if (m->scales || t->n_dim != 3 || t->dim[0] != m->n_block || t->dim[1] != m->n_row || t->dim[2] != m->n_expert)
        return err_set(h->e, HEARTH_EBADMODEL, "layer %u: the scales of the experts do not fit their blocks", layer);
    m->scales = t->data;
    gguf_make_later(h->m, fill, m);
    return 0;
}

int hf_mxfp4_tensor(struct hf *h, unsigned layer, const char *s, const struct gguf_tensor *t)
{
    static const char *const names[] = {"mlp.experts.gate_up_proj_blocks", "mlp.experts.down_proj_blocks",
                                        "mlp.experts.gate_up_proj_scales", "mlp.experts.down_proj_scales"};
    size_t k = 0, n = sizeof names / sizeof *names;
    while (k < n && strcmp(names[k], s))
        k++;
    if (k == n || t->type != SAFETENSOR_U8 || !(h->arch->rules & HF_TRANSPOSED))
        return 1;
    return k < 2 ? add_blocks(h, layer, k % 2, t) : add_scales(h, layer, k % 2, t);
}

int hf_mxfp4_end(const struct hf *h, int ret)
{
    for (const struct hf_mxfp4 *m = h->mxfp4; m && !ret; m = m->next)
        if (!m->scales)
            ret = err_set(h->e, HEARTH_EBADMODEL, "layer %u: the experts' blocks come without scales", m->layer);
    return ret;
}
