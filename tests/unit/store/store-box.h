/*
 * store-box.h - cmocka fixtures: a private, open store in a fresh state directory.
 */
#ifndef TESTS_UNIT_STORE_BOX_H
#define TESTS_UNIT_STORE_BOX_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/store/store.h"

struct box {
    char base[32], dir[48], db[64];
    struct store *st;
    uint64_t random; /* state of the random numbers of a test */
};

static inline int setup(void **state)
{
    struct box *b = calloc(1, sizeof *b);
    strcpy(b->base, "/tmp/hearth-store-XXXXXX");
    assert_non_null(mkdtemp(b->base));
    snprintf(b->dir, sizeof b->dir, "%s/deep/state", b->base);
    snprintf(b->db, sizeof b->db, "%s/sessions.db", b->dir);
    struct hearth_err e = {0};
    if (store_open(&b->st, b->dir, &e) != 0)
        fail_msg("%s", e.msg);
    *state = b;
    return 0;
}

static inline int teardown(void **state)
{
    struct box *b = *state;
    char cmd[64];
    store_close(b->st);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", b->base);
    assert_int_equal(system(cmd), 0);
    free(b);
    return 0;
}

#endif
