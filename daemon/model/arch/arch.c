/* arch.c - the architectures hearth runs. */
#include "daemon/model/arch/arch.h"

#include "daemon/model/gguf.h"

static const struct arch archs[] = {
    {"llama", ROPE_NORM, llama_bind_layer, llama_build},
    {"qwen2", ROPE_NEOX, qwen2_bind_layer, llama_build},
};

const struct arch *arch_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (gguf_str_is((struct gguf_str){name, n}, archs[i].name))
            return &archs[i];
    return NULL;
}
