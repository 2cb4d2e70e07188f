/* cases.c - the case table of the ops tests. A kernel or a type is tested by adding a row. */
#include "tests/ops/rig.h"

#define LLAMA .norm = NORM_RMS, .rope = ROPE_NORM, .glu = GLU_SWIGLU, .embed_scale = 1.0f, .kv_type = DT_F32
#define NEOX  .norm = NORM_RMS, .rope = ROPE_NEOX, .glu = GLU_SWIGLU, .embed_scale = 1.0f, .kv_type = DT_F32

#define A_TYPE_EACH                                                                                  \
    {                                                                                                \
        [P_Q] = DT_Q4_1, [P_K] = DT_IQ4_NL, [P_V] = DT_Q5_1, [P_O] = DT_IQ3_S, [P_GATE] = DT_IQ4_XS, \
        [P_UP] = DT_MXFP4, [P_DOWN] = DT_Q3_K                                                        \
    }
#define A_SMALL_TYPE_EACH                                                                                \
    {                                                                                                    \
        [P_Q] = DT_IQ2_S, [P_K] = DT_IQ2_XS, [P_V] = DT_Q6_K, [P_O] = DT_IQ3_XXS, [P_GATE] = DT_IQ2_XXS, \
        [P_UP] = DT_Q4_K, [P_DOWN] = DT_Q5_0                                                             \
    }

/* Of every type: one row, a ragged batch around the borders of pages, a prompt. */
#define OF_TYPE(t, T, number)                                                                                 \
    {#t " of 512", DT_##T, 512, 256, 30, 8, 1, 64, LLAMA, .n_rot = 64, .seq = {{100, 1}}},                    \
        {#t " of 512, ragged", DT_##T, 512, 256, 30, 8, 1, 64, LLAMA, .n_rot = 64, .seq = {{0, 3}, {99, 4}}}, \
        {#t " of 512, 40 tokens", DT_##T, 512, 256, 30, 8, 1, 64, LLAMA, .n_rot = 64, .bias = true, .seq = {{0, 40}}},

const struct op_case op_cases[] = {
    /* types in shapes of their own: those that models have, and widths of few blocks */
    {"f32", DT_F32, 64, 96, 50, 4, 4, 64, LLAMA, .n_rot = 64, .seq = {{0, 1}}},
    {"f32 ragged", DT_F32, 64, 96, 50, 4, 4, 64, LLAMA, .n_rot = 64,
     .seq = {{15, 1}, {16, 1}, {0, 17}, {14, 5}, {31, 2}}},
    {"f16", DT_F16, 128, 80, 66, 4, 2, 64, LLAMA, .n_rot = 64, .seq = {{3, 1}}},
    {"f16 ragged", DT_F16, 128, 80, 66, 4, 2, 64, LLAMA, .n_rot = 64, .hadamard = true,
     .seq = {{0, 16}, {16, 1}, {17, 3}}},
    {"bf16", DT_BF16, 96, 112, 40, 3, 1, 64, NEOX, .n_rot = 64, .seq = {{40, 1}}},
    {"bf16 ragged", DT_BF16, 96, 112, 40, 3, 1, 64, NEOX, .n_rot = 64, .seq = {{0, 4}, {15, 2}}},
    {"q4_0 896 wide", DT_Q4_0, 896, 160, 35, 14, 2, 64, NEOX, .n_rot = 64, .hadamard = true, .bias = true,
     .seq = {{20, 1}}},
    {"q4_0 896 ragged", DT_Q4_0, 896, 160, 35, 14, 2, 64, NEOX, .n_rot = 64, .bias = true, .seq = {{0, 5}, {47, 2}}},
    {"q8_0 896 wide", DT_Q8_0, 896, 608, 35, 14, 2, 64, NEOX, .n_rot = 64, .bias = true, .seq = {{0, 1}}},
    {"q8_0 ragged", DT_Q8_0, 288, 160, 33, 6, 1, 96, NEOX, .n_rot = 96, .hadamard = true,
     .seq = {{0, 7}, {1, 1}, {2, 1}}},
    {"q4_k", DT_Q4_K, 256, 768, 47, 4, 2, 64, LLAMA, .n_rot = 64, .seq = {{33, 1}}},
    {"q4_k ragged", DT_Q4_K, 256, 768, 47, 4, 2, 64, LLAMA, .n_rot = 64, .hadamard = true,
     .seq = {{0, 33}, {31, 1}, {32, 1}}},
    {"q6_k", DT_Q6_K, 768, 512, 31, 6, 2, 128, LLAMA, .n_rot = 128, .seq = {{5, 1}}},
    {"q6_k ragged", DT_Q6_K, 768, 512, 31, 6, 2, 128, LLAMA, .n_rot = 128, .hadamard = true,
     .seq = {{16, 16}, {0, 1}, {15, 2}}},
    QUANTS(OF_TYPE)
    /* shapes: one of everything, and sizes that no vector width divides */
    {"one", DT_F32, 1, 1, 1, 1, 1, 2, LLAMA, .n_rot = 2, .seq = {{0, 1}}},
    {"odd", DT_F32, 33, 17, 15, 3, 3, 6, LLAMA, .n_rot = 4, .seq = {{0, 3}, {7, 1}}},
    {"odd f16 kv", DT_F16, 257, 255, 129, 5, 1, 20, .norm = NORM_LAYER, .rope = ROPE_NEOX, .glu = GLU_GELU,
     .embed_scale = 1.0f, .kv_type = DT_F16, .n_rot = 10, .bias = true, .seq = {{0, 2}, {30, 5}}},
    {"q8_0 kv", DT_F16, 256, 512, 47, 4, 2, 64, .norm = NORM_RMS, .rope = ROPE_NORM, .glu = GLU_SWIGLU,
     .embed_scale = 1.0f, .kv_type = DT_Q8_0, .n_rot = 64, .hadamard = true, .seq = {{33, 1}, {0, 20}}},
    {"q8_0 kv, a window", DT_Q8_0, 192, 96, 31, 6, 2, 96, .norm = NORM_RMS, .rope = ROPE_NEOX, .glu = GLU_GEGLU,
     .embed_scale = 1.0f, .kv_type = DT_Q8_0, .n_rot = 32, .window = 20, .seq = {{70, 1}, {15, 2}, {40, 30}}},
    /* the same with a head size that GPUs have attention for: one row, few, a prompt */
    {"one of 64", DT_F32, 1, 1, 1, 1, 1, 64, LLAMA, .n_rot = 64, .seq = {{0, 1}}},
    {"one of 64, 9 tokens", DT_F16, 1, 1, 1, 1, 1, 64, LLAMA, .n_rot = 64, .seq = {{0, 9}}},
    {"odd f16", DT_F16, 257, 255, 129, 5, 1, 64, NEOX, .n_rot = 64, .bias = true, .seq = {{30, 1}}},
    {"odd f16 ragged", DT_F16, 257, 255, 129, 5, 1, 64, LLAMA, .n_rot = 64, .hadamard = true, .seq = {{0, 2}, {30, 5}}},
    {"odd f16, 71 tokens", DT_F16, 255, 257, 127, 3, 3, 64, LLAMA, .n_rot = 64, .seq = {{0, 61}, {3, 10}}},
    {"odd bf16 ragged", DT_BF16, 95, 97, 31, 4, 2, 80, NEOX, .n_rot = 80, .seq = {{0, 2}, {30, 5}}},
    {"odd bf16, 133 tokens", DT_BF16, 97, 95, 33, 4, 2, 80, LLAMA, .n_rot = 80, .seq = {{0, 130}, {7, 3}}},
    {"odd f32, 67 tokens", DT_F32, 33, 31, 17, 3, 1, 96, NEOX, .n_rot = 96, .seq = {{0, 64}, {7, 3}}},
    {"a block more, q8_0", DT_Q8_0, 288, 32, 257, 4, 4, 64, LLAMA, .n_rot = 64, .seq = {{0, 7}, {40, 1}}},
    {"a block less, q4_0", DT_Q4_0, 224, 480, 255, 4, 1, 128, NEOX, .n_rot = 128, .seq = {{0, 6}, {40, 1}}},
    {"many tokens", DT_Q4_K, 256, 256, 20, 4, 1, 64, LLAMA, .n_rot = 64, .seq = {{0, 101}, {3, 1}}},
    {"q4_0 896 wide, 70 tokens", DT_Q4_0, 896, 160, 35, 14, 2, 64, NEOX, .n_rot = 64, .bias = true,
     .seq = {{0, 9}, {3, 61}}},
    {"q8_0 100 tokens", DT_Q8_0, 608, 288, 70, 8, 2, 96, NEOX, .n_rot = 96, .bias = true, .seq = {{0, 99}, {3, 1}}},
    {"f16 40 tokens", DT_F16, 640, 272, 70, 8, 2, 64, LLAMA, .n_rot = 64, .bias = true, .seq = {{0, 40}}},
    {"bf16 70 tokens", DT_BF16, 320, 272, 70, 4, 2, 80, NEOX, .n_rot = 80, .seq = {{0, 61}, {3, 9}}},
    /* more than one chunk of decode attention, at its borders */
    {"one long", DT_Q4_K, 256, 256, 20, 4, 1, 64, LLAMA, .n_rot = 64, .seq = {{310, 1}}},
    {"long, ragged", DT_Q6_K, 256, 256, 20, 8, 2, 128, LLAMA, .n_rot = 128, .hadamard = true,
     .seq = {{255, 1}, {256, 1}, {3, 1}, {310, 2}}},
    {"long, 8 rows", DT_Q4_K, 256, 256, 20, 4, 2, 64, NEOX, .n_rot = 64, .seq = {{300, 2}, {257, 2}, {254, 4}}},
    /* groups of query heads: 7 of head size 128, 8 of 80 */
    {"gqa 7", DT_F16, 48, 64, 20, 7, 1, 128, NEOX, .n_rot = 128, .seq = {{17, 1}, {0, 2}}},
    {"gqa 8 of 80", DT_F16, 48, 64, 20, 16, 2, 80, NEOX, .n_rot = 80, .hadamard = true, .seq = {{17, 1}, {0, 18}}},
    {"f16 kv", DT_Q4_K, 256, 256, 47, 4, 2, 64, .norm = NORM_RMS, .rope = ROPE_NORM, .glu = GLU_SWIGLU,
     .embed_scale = 1.0f, .kv_type = DT_F16, .n_rot = 64, .seq = {{20, 1}, {0, 20}}},
    /* types beside each other in one op: those of Q4_K_M and Q5_K_M, and three that nobody mixes */
    {"q4_k, v and down q6_k", DT_Q4_K, 256, 512, 47, 8, 2, 64, LLAMA, .n_rot = 64, .hadamard = true,
     .mix = {[P_V] = DT_Q6_K, [P_DOWN] = DT_Q6_K}, .seq = {{20, 1}}},
    {"q4_k, v and down q6_k, ragged", DT_Q4_K, 256, 512, 47, 8, 2, 64, LLAMA, .n_rot = 64,
     .mix = {[P_V] = DT_Q6_K, [P_DOWN] = DT_Q6_K}, .seq = {{0, 9}, {31, 2}, {15, 1}}},
    {"q5_k, v and down q6_k", DT_Q5_K, 512, 256, 30, 8, 1, 64, NEOX, .n_rot = 64, .bias = true,
     .mix = {[P_V] = DT_Q6_K, [P_DOWN] = DT_Q6_K}, .seq = {{99, 3}}},
    {"q5_k, v and down q6_k, 70 tokens", DT_Q5_K, 512, 256, 30, 8, 1, 64, NEOX, .n_rot = 64,
     .mix = {[P_V] = DT_Q6_K, [P_DOWN] = DT_Q6_K}, .seq = {{0, 61}, {3, 9}}},
    /* those of IQ4_XS, Q3_K_M, Q2_K, and of Q4_K_M in rows that are no multiple of 256 */
    {"iq4_xs, v and down q5_k", DT_IQ4_XS, 512, 256, 30, 8, 2, 64, NEOX, .n_rot = 64, .hadamard = true, .bias = true,
     .mix = {[P_V] = DT_Q5_K, [P_DOWN] = DT_Q5_K}, .seq = {{99, 1}}},
    {"iq4_xs, v and down q5_k, 9 tokens", DT_IQ4_XS, 512, 256, 30, 8, 2, 64, LLAMA, .n_rot = 64,
     .mix = {[P_V] = DT_Q5_K, [P_DOWN] = DT_Q5_K}, .seq = {{3, 9}}},
    {"q3_k, v q4_k, 9 tokens", DT_Q3_K, 512, 256, 30, 8, 2, 64, NEOX, .n_rot = 64,
     .mix = {[P_V] = DT_Q4_K, [P_O] = DT_Q4_K, [P_DOWN] = DT_Q4_K}, .seq = {{3, 9}}},
    {"q3_k, v q5_k, 70 tokens", DT_Q3_K, 512, 256, 30, 8, 2, 64, LLAMA, .n_rot = 64, .mix = {[P_V] = DT_Q5_K},
     .seq = {{0, 61}, {3, 9}}},
    {"q2_k, v q4_k, 9 tokens", DT_Q2_K, 512, 256, 30, 8, 2, 64, LLAMA, .n_rot = 64,
     .mix = {[P_V] = DT_Q4_K, [P_O] = DT_Q3_K}, .seq = {{3, 9}}},
    {"q5_0 896 wide, v q8_0, ragged", DT_Q5_0, 896, 160, 35, 14, 2, 64, NEOX, .n_rot = 64, .bias = true,
     .mix = {[P_V] = DT_Q8_0}, .seq = {{0, 5}, {47, 2}}},
    {"five types", DT_Q4_K, 256, 256, 33, 4, 2, 64, LLAMA, .n_rot = 64, .bias = true,
     .mix = {[P_Q] = DT_F16, [P_K] = DT_Q8_0, [P_V] = DT_Q4_0, [P_UP] = DT_Q5_K}, .seq = {{20, 1}}},
    {"five types, ragged", DT_Q4_K, 256, 256, 33, 4, 2, 64, NEOX, .n_rot = 64, .hadamard = true,
     .mix = {[P_Q] = DT_F16, [P_K] = DT_Q8_0, [P_V] = DT_Q4_0, [P_UP] = DT_Q5_K}, .seq = {{0, 5}, {33, 2}}},
    {"five types, 80 tokens", DT_Q4_K, 256, 256, 33, 4, 2, 64, LLAMA, .n_rot = 64,
     .mix = {[P_Q] = DT_F16, [P_K] = DT_Q8_0, [P_V] = DT_Q4_0, [P_UP] = DT_Q5_K}, .seq = {{0, 70}, {33, 10}}},
    {"three of quantised", DT_Q6_K, 256, 256, 33, 4, 2, 64, LLAMA, .n_rot = 64,
     .mix = {[P_K] = DT_Q4_K, [P_V] = DT_Q5_K, [P_GATE] = DT_Q4_K, [P_O] = DT_BF16}, .seq = {{20, 1}, {0, 3}}},
    /* a type for each matrix, those of one op included, as people's mixtures have them */
    {"a type each", DT_Q2_K, 256, 512, 47, 8, 2, 64, LLAMA, .n_rot = 64, .bias = true, .mix = A_TYPE_EACH,
     .seq = {{20, 1}}},
    {"a type each, ragged", DT_Q2_K, 256, 512, 47, 8, 2, 64, NEOX, .n_rot = 64, .mix = A_TYPE_EACH,
     .seq = {{0, 5}, {33, 2}}},
    {"a type each, 80 tokens", DT_Q2_K, 256, 512, 47, 8, 2, 64, LLAMA, .n_rot = 64, .mix = A_TYPE_EACH,
     .seq = {{0, 70}, {33, 10}}},
    {"a small type each, ragged", DT_NVFP4, 256, 512, 47, 8, 2, 64, LLAMA, .n_rot = 64, .mix = A_SMALL_TYPE_EACH,
     .seq = {{0, 5}, {33, 2}}},
    {"nvfp4 with factors", DT_NVFP4, 256, 512, 47, 8, 2, 64, LLAMA, .n_rot = 64, .bias = true, .factor = 0.37f,
     .seq = {{20, 1}}},
    {"nvfp4 with factors, ragged", DT_NVFP4, 256, 512, 47, 8, 2, 64, NEOX, .n_rot = 64, .factor = 0.37f,
     .mix = {[P_K] = DT_Q4_K, [P_DOWN] = DT_Q8_0}, .seq = {{0, 5}, {33, 2}}},
    /* K of more than 16 records and few rows: two sets of warps on a GPU, but not where tiles go in pairs */
    {"long down", DT_Q4_K, 256, 4608, 33, 4, 2, 64, LLAMA, .n_rot = 64, .seq = {{20, 1}, {0, 3}}},
    {"long down, q8_0 and q6_k", DT_Q8_0, 256, 4864, 33, 4, 2, 64, LLAMA, .n_rot = 64, .mix = {[P_DOWN] = DT_Q6_K},
     .seq = {{20, 1}}},
    {"long layernorm, pairs", DT_Q8_0, 4352, 64, 33, 4, 2, 64, .norm = NORM_LAYER, .rope = ROPE_NEOX, .glu = GLU_GELU,
     .n_rot = 64, .embed_scale = 1.0f, .bias = true, .seq = {{0, 5}, {16, 1}}},
    /* architectures */
    {"gemma2", DT_F16, 256, 128, 64, 4, 2, 256, .norm = NORM_RMS, .rope = ROPE_NEOX, .glu = GLU_GEGLU, .n_rot = 256,
     .post_norm = true, .window = 16, .att_softcap = 50.0f, .softcap = 30.0f, .embed_scale = 16.0f, .kv_type = DT_F32,
     .seq = {{0, 20}, {40, 3}, {15, 1}, {16, 1}}},
    {"qwen3", DT_F16, 64, 64, 33, 4, 2, 96, NEOX, .n_rot = 96, .hadamard = true, .head_norms = true,
     .seq = {{0, 5}, {16, 1}}},
    {"starcoder2", DT_F16, 64, 100, 33, 4, 2, 64, .norm = NORM_LAYER, .rope = ROPE_NEOX, .glu = GLU_GELU, .n_rot = 64,
     .embed_scale = 1.0f, .kv_type = DT_F32, .bias = true, .seq = {{0, 5}, {16, 1}}},
    {"olmo2",
     DT_F16,
     96,
     64,
     33,
     6,
     2,
     32,
     .norm = NORM_NONE,
     .rope = ROPE_NEOX,
     .glu = GLU_SWIGLU,
     .n_rot = 32,
     .hadamard = true,
     .embed_scale = 1.0f,
     .kv_type = DT_F32,
     .head_norms = true,
     .whole_norms = true,
     .post_norm = true,
     .residual_scale = 0.4f,
     .cpu_only = true,
     .seq = {{0, 5}, {16, 1}}},
    {"olmo2, a row of more than a block", DT_Q4_0, 544, 64, 33, 18, 9, 64, .norm = NORM_NONE, .rope = ROPE_NEOX,
     .glu = GLU_SWIGLU, .n_rot = 64, .embed_scale = 1.0f, .kv_type = DT_F16, .head_norms = true, .whole_norms = true,
     .cpu_only = true, .seq = {{0, 3}, {16, 1}}},
    {"nemotron", DT_F16, 64, 100, 33, 4, 2, 64, .norm = NORM_LAYER, .rope = ROPE_NEOX, .glu = GLU_RELU2, .n_rot = 32,
     .embed_scale = 1.0f, .kv_type = DT_F32, .bias = true, .cpu_only = true, .seq = {{0, 5}, {16, 1}}},
    {"shared expert, gated", DT_Q8_0, 544, 96, 33, 4, 2, 64, NEOX, .n_rot = 64, .row_gate = true, .cpu_only = true,
     .seq = {{0, 5}, {16, 1}}},
    {"gpt-oss, dense", DT_Q8_0, 64, 96, 33, 8, 2, 64, .norm = NORM_RMS, .rope = ROPE_NEOX, .glu = GLU_OAI, .n_rot = 64,
     .embed_scale = 1.0f, .kv_type = DT_F32, .bias = true, .sinks = true, .window = 16, .cpu_only = true,
     .seq = {{0, 5}, {16, 1}, {90, 3}}},
    {"sinks, heads in a group of 7", DT_F16, 48, 64, 20, 7, 1, 80, NEOX, .n_rot = 80, .sinks = true,
     .att_softcap = 20.0f, .cpu_only = true, .seq = {{17, 1}, {0, 2}, {300, 1}}},
    {"granite", DT_Q8_0, 64, 96, 33, 4, 2, 64, LLAMA, .n_rot = 64, .residual_scale = 0.4f, .cpu_only = true,
     .seq = {{0, 5}, {16, 1}}},
    {"mistral3", DT_F16, 64, 64, 33, 4, 2, 64, LLAMA, .n_rot = 64, .temperature = 0.25f, .cpu_only = true,
     .seq = {{0, 9}, {7, 1}, {8, 1}, {90, 1}}},
    /* head sizes of small models, and of wide ones: a row, few, and a prompt beside a long context */
    {"heads of 32", DT_F16, 96, 64, 33, 6, 2, 32, LLAMA, .n_rot = 32, .hadamard = true, .seq = {{310, 1}}},
    {"heads of 32, a prompt", DT_F16, 96, 64, 33, 6, 2, 32, NEOX, .n_rot = 32, .seq = {{0, 70}, {300, 3}}},
    {"heads of 48", DT_F16, 96, 64, 33, 4, 2, 48, NEOX, .n_rot = 48, .hadamard = true, .seq = {{310, 1}}},
    {"heads of 48, a prompt", DT_F16, 96, 64, 33, 4, 2, 48, LLAMA, .n_rot = 48, .seq = {{0, 70}, {300, 3}}},
    {"heads of 112", DT_Q8_0, 224, 64, 33, 4, 1, 112, NEOX, .n_rot = 112, .hadamard = true, .seq = {{310, 1}}},
    {"heads of 112, a prompt", DT_Q8_0, 224, 64, 33, 4, 1, 112, LLAMA, .n_rot = 112, .seq = {{0, 70}, {300, 3}}},
    {"heads of 192", DT_Q8_0, 192, 64, 33, 4, 1, 192, LLAMA, .n_rot = 64, .window = 280, .seq = {{310, 1}, {5, 1}}},
    {"heads of 192, a prompt", DT_Q8_0, 192, 64, 33, 4, 1, 192, NEOX, .n_rot = 192, .seq = {{0, 70}, {300, 3}}},
    {"partial rope", DT_F32, 64, 64, 33, 2, 2, 64, LLAMA, .n_rot = 32, .seq = {{0, 5}, {90, 1}}},
};
const size_t n_op_cases = sizeof op_cases / sizeof *op_cases;
