/* folder-box.h - cmocka fixtures: a private folder with a valid Hugging Face folder in it, of which tests change single
 * files. */
#ifndef HEARTH_TESTS_FOLDER_BOX_H
#define HEARTH_TESTS_FOLDER_BOX_H

#include "daemon/model/file.h"

#include <limits.h>

#include "tests/unit/model/gguf-build.h"

static char dir[] = "/tmp/hearth-file-XXXXXX";

static inline const char *in_dir(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static inline void write_file(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(in_dir(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline int set_up(void **state)
{
    (void)state;
    memset(dir + sizeof dir - 7, 'X', 6);
    return mkdtemp(dir) ? 0 : -1;
}

static inline int tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static inline void refused(const char *path, int code, const char *words)
{
    struct gguf *g = NULL;
    struct hearth_err e = {0};
    int ret = model_file_open(&g, path, &e);
    if (ret != code || !strstr(e.msg, words))
        fail_msg("%d, \"%s\" where \"%s\" is expected", ret, e.msg, words);
}

#define LATENT  "\"kv_lora_rank\": 8, \"qk_nope_head_dim\": 4, \"qk_rope_head_dim\": 4, \"v_head_dim\": 4, "
#define CONFIG  CONFIG_OF("1")
#define CONFIG2 CONFIG_OF("2")
#define CONFIG_OF(layers)                                                                                  \
    "\"hidden_size\": 8, \"intermediate_size\": 8, \"num_hidden_layers\": " layers ", \"vocab_size\": 4, " \
    "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"max_position_embeddings\": 64, "            \
    "\"rms_norm_eps\": 1e-5"
#define VOCAB "\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]"
static const char byte_level[] =
    "{\"model\": {\"type\": \"BPE\", " VOCAB "}, \"added_tokens\": [{\"id\": 3, \"content\": "
    "\"<e>\", \"special\": true}], \"pre_tokenizer\": {\"type\": \"ByteLevel\"}}";

static inline void write_text(const char *name, const char *text)
{
    write_file(name, text, strlen(text));
}

static inline void write_tensors(const char *header, size_t n_data)
{
    struct build b = {0};
    put64(&b, strlen(header));
    put(&b, header, strlen(header));
    put_zeros(&b, n_data);
    write_file("model.safetensors", b.p, b.n);
    free(b.p);
}

#define NORM "{\"model.norm.weight\": {\"dtype\": \"F32\", \"shape\": [8], \"data_offsets\": [0, 32]}}"

static inline void write_folder(void)
{
    write_text("config.json", "{\"model_type\": \"llama\", " CONFIG "}");
    write_text("tokenizer.json", byte_level);
    write_tensors(NORM, 32);
}

#endif
