/*
 * parse.c - see parse.h. jansson 2.14 has no error code for a lack of memory: it reports a fault of the text, or leaves
 * characters out of a string. It is therefore given an allocator that notes each failure.
 */
#include "daemon/model/hf/parse.h"

#include <stdlib.h>

static _Thread_local bool failed;

static void *allocate(size_t n)
{
    void *p = malloc(n);
    failed |= !p;
    return p;
}

/* jansson has one allocator for the process, so it is set before there are threads. It suits all of its users, whose
 * failures are noted to no effect. */
__attribute__((constructor)) static void set_allocator(void)
{
    json_set_alloc_funcs(allocate, free);
}

json_t *hf_parse(const char *s, size_t n, size_t flags, json_error_t *why, bool *no_memory)
{
    failed = false;
    json_t *root = json_loadb(s, n, flags, why);
    *no_memory = failed;
    if (failed)
        json_decref(root);
    return failed ? NULL : root;
}
