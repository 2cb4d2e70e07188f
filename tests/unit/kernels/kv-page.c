/* kv-page.c - pages of Q8_0, with numbers and scales in blocks or apart: where each byte goes, and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/backend.h"
#include "kernels/quant/q8_0.h"

enum { LAYERS = 2, HEADS = 3, D_K = 96, D_V = 64 };

static const struct kv_desc desc = {LAYERS, HEADS, D_K, D_V, 0, DT_Q8_0, 1, 0, 0};

/* The number and the scale of element i of a vector; all are different. */
static int8_t number(uint32_t layer, bool v, uint32_t head, uint32_t pos, uint32_t i)
{
    return (int8_t)(layer * 101 + v * 53 + head * 29 + pos * 7 + i);
}
static uint16_t scale(uint32_t layer, bool v, uint32_t head, uint32_t pos, uint32_t block)
{
    return (uint16_t)((((layer * 2 + v) * HEADS + head) * KV_PAGE + pos) * 3 + block);
}

static void test_apart(void **state)
{
    (void)state;
    size_t bytes = kv_page_bytes(&desc);
    uint8_t *blocks = malloc(bytes), *apart = malloc(bytes), *back = malloc(bytes);
    assert_true(blocks && apart && back);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t h = 0; h < 2 * HEADS; h++)
            for (uint32_t pos = 0; pos < KV_PAGE; pos++) {
                bool v = h >= HEADS;
                struct block_q8_0 b[D_K / 32];
                for (uint32_t i = 0; i < (v ? D_V : D_K); i++) {
                    b[i / 32].d = scale(layer, v, h % HEADS, pos, i / 32);
                    b[i / 32].qs[i % 32] = number(layer, v, h % HEADS, pos, i);
                }
                memcpy(blocks + kv_vector_at(&desc, layer, v, h % HEADS, pos), b, (v ? D_V : D_K) / 32 * sizeof *b);
            }
    memset(apart, 0xa5, bytes);
    kv_page_apart(&desc, blocks, apart);
    const uint8_t *at = apart; /* [layer][K heads, V heads][numbers of 16 positions, scales of 16 positions] */
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t h = 0; h < 2 * HEADS; h++) {
            bool v = h >= HEADS;
            uint32_t d = v ? D_V : D_K;
            for (uint32_t pos = 0; pos < KV_PAGE; pos++)
                for (uint32_t i = 0; i < d; i++)
                    assert_int_equal((int8_t)*at++, number(layer, v, h % HEADS, pos, i));
            for (uint32_t pos = 0; pos < KV_PAGE; pos++)
                for (uint32_t i = 0; i < d / 32; i++, at += 2)
                    assert_memory_equal(at, &(uint16_t){scale(layer, v, h % HEADS, pos, i)}, 2);
        }
    assert_ptr_equal(at, apart + bytes);
    kv_page_blocks(&desc, apart, back);
    assert_memory_equal(back, blocks, bytes);
    free(blocks), free(apart), free(back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
