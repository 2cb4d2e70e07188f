/* arch.c - the architectures hearth runs: local.mk's list. */
#include "daemon/model/arch/arch.h"

#include "daemon/model/arch/list.h" /* archs[], made by local.mk */
#include "daemon/model/gguf.h"

const struct arch *arch_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (gguf_str_is((struct gguf_str){name, n}, archs[i]->name))
            return archs[i];
    return NULL;
}
