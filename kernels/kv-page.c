/* kv-page.c - the two layouts of a Q8_0 page: blocks, as in dtype.h, and quants and scales apart. */
#include "kernels/backend.h"

#include <string.h>

#include "kernels/quant/q8_0.h"

/* The vectors of one head: n blocks at `blocks`, n * Q8_0_LEN quants and then n scales at `apart`. */
static void head_apart(const struct block_q8_0 *blocks, uint8_t *apart, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        memcpy(apart + i * Q8_0_LEN, blocks[i].qs, Q8_0_LEN);
        memcpy(apart + n * Q8_0_LEN + i * sizeof blocks[i].d, &blocks[i].d, sizeof blocks[i].d);
    }
}

static void head_blocks(const uint8_t *apart, struct block_q8_0 *blocks, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        memcpy(blocks[i].qs, apart + i * Q8_0_LEN, Q8_0_LEN);
        memcpy(&blocks[i].d, apart + n * Q8_0_LEN + i * sizeof blocks[i].d, sizeof blocks[i].d);
    }
}

/* Calls one of the two for each head of each layer, of K and of V. */
static void each_head(const struct kv_desc *d, const uint8_t *from, uint8_t *to, bool apart)
{
    for (uint32_t layer = 0; layer < d->n_layer; layer++)
        for (uint32_t h = 0; h < 2 * d->n_kv; h++) {
            bool v = h >= d->n_kv;
            uint64_t at = kv_vector_at(d, layer, v, h % d->n_kv, 0);
            size_t n = (size_t)KV_PAGE * (v ? d->d_v : d->d_k) / Q8_0_LEN;
            if (apart)
                head_apart((const struct block_q8_0 *)(const void *)(from + at), to + at, n);
            else
                head_blocks(from + at, (struct block_q8_0 *)(void *)(to + at), n);
        }
}

void kv_page_apart(const struct kv_desc *d, const void *blocks, void *apart)
{
    each_head(d, blocks, apart, true);
}

void kv_page_blocks(const struct kv_desc *d, const void *apart, void *blocks)
{
    each_head(d, apart, blocks, false);
}
