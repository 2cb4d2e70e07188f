/*
 * folder-makers.c - Hugging Face folders as makers publish them, which differ from what transformers saves of a small
 * model of text: they have the tensors of other parts, and more tokens than rows of the embedding.
 */
#include "config.h" /* memfd_create */

#include "tests/unit/model/folder-box.h"

/* The other parts of a multimodal model have tensors that hearth does not read: the patches of Qwen's vision models go
 * through a convolution of five dimensions, Gemma 4's audio has limits without a dimension, and positions are integers.
 * In the text part, the same tensors are refused. */
static void test_other_parts(void **state)
{
    (void)state;
    static const char *const others[] = {"\"dtype\": \"BF16\", \"shape\": [2, 1, 1, 2, 2], \"data_offsets\": [32, 48]",
                                         "\"dtype\": \"BF16\", \"shape\": [], \"data_offsets\": [32, 34]",
                                         "\"dtype\": \"I64\", \"shape\": [1, 2], \"data_offsets\": [32, 48]",
                                         "\"dtype\": \"F8_E4M3\", \"shape\": [4], \"data_offsets\": [32, 36]",
                                         "\"dtype\": \"F32\", \"shape\": [0], \"data_offsets\": [32, 32]"};
    static const char *const why[] = {"its shape is not one of 1 to 4 dimensions",
                                      "its shape is not one of 1 to 4 dimensions", "is of type I64", "is of type F8",
                                      "a dimension is out of range"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char header[256];
        struct gguf *g = NULL;
        struct hearth_err e = {0};
        write_folder();
        snprintf(header, sizeof header, "%.*s, \"model.visual.patch_embed.proj.weight\": {%s}}", (int)sizeof NORM - 2,
                 NORM, others[i]);
        write_tensors(header, 48);
        if (model_file_open(&g, dir, &e))
            fail_msg("%s: %s", others[i], e.msg);
        assert_true(gguf_n_tensor(g) == 1 && gguf_tensor_find(g, "output_norm.weight"));
        gguf_close(g);
        snprintf(header, sizeof header, "%.*s, \"model.layers.0.self_attn.q_proj.weight\": {%s}}", (int)sizeof NORM - 2,
                 NORM, others[i]);
        write_tensors(header, 48);
        refused(dir, i == 2 || i == 3 ? HEARTH_EUNSUPPORTED : HEARTH_EBADMODEL, why[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_other_parts, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
