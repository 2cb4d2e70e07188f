/*
 * parse.c - see parse.h. jansson 2.14 has no error code for a lack of memory, and its lexer ignores one: it goes on
 * without the character for which its buffer could not grow, and then overruns that buffer in search of the quote that
 * it lost, or ends the process by an assertion. Therefore its text ends where memory first lacks, and the request that
 * found none, which may be the lexer's, is met from a reserve that is large enough for any token. All later requests
 * fail, so that nothing but an error can follow.
 */
#include "daemon/model/hf/parse.h"

#include <stdlib.h>

static _Thread_local struct {
    const char *next, *end; /* the text that is left */
    void *reserve;          /* NULL: it has been given away, or nothing is being parsed */
    size_t n_reserve;
    bool failed;
} own;

static void *allocate(size_t n)
{
    void *p = own.failed ? NULL : malloc(n);
    if (p || own.failed || !own.reserve)
        return p;
    if (n <= own.n_reserve) {
        p = own.reserve; /* which jansson frees */
        own.reserve = NULL;
    }
    own.failed = true;
    return p;
}

/* One byte at a time, so that none follows a failure. */
static size_t next_byte(void *to, size_t most, void *arg)
{
    (void)most, (void)arg;
    if (own.failed || own.next == own.end)
        return 0;
    *(char *)to = *own.next++;
    return 1;
}

/* jansson has one allocator for the process, so it is set before there are threads. For jansson's other users it is
 * malloc(). */
__attribute__((constructor)) static void set_allocator(void)
{
    json_set_alloc_funcs(allocate, free);
}

json_t *hf_parse(const char *s, size_t n, size_t flags, json_error_t *why, bool *no_memory)
{
    own.next = s;
    own.end = s + n;
    own.n_reserve = 2 * n + 64; /* the buffer doubles until a token fits */
    own.reserve = malloc(own.n_reserve);
    *no_memory = !own.reserve;
    if (*no_memory)
        return NULL;
    json_t *root = json_load_callback(next_byte, NULL, flags, why);
    free(own.reserve);
    own.reserve = NULL;
    *no_memory = own.failed;
    own.failed = false;
    if (*no_memory)
        json_decref(root);
    return *no_memory ? NULL : root;
}
