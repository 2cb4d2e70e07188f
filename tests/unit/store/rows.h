/* rows.h - sessions and turns to store, and a store that is opened anew. */
#ifndef TESTS_UNIT_STORE_ROWS_H
#define TESTS_UNIT_STORE_ROWS_H

#include "tests/unit/store/store-box.h"

static inline void reopen(struct box *b)
{
    store_close(b->st);
    b->st = NULL;
    assert_int_equal(store_open(&b->st, b->dir, NULL), 0);
}

static inline struct store_session row(const char *id, uid_t uid, const char *name)
{
    struct store_session s = {.uid = uid,
                              .name = (char *)name,
                              .model = "tale",
                              .path = "/models/tale.gguf",
                              .created = 1000.5,
                              .used = 1000.5};
    snprintf(s.id, sizeof s.id, "%.16s", id);
    return s;
}

#define ID_A "00000000000000aa"
#define ID_B "00000000000000bb"
#define ID_C "00000000000000cc"

static const int32_t ids_one[] = {1, 258, 65536, INT32_MAX}, ids_two[] = {7, 0};
static int64_t committed; /* every commit belongs to another stream */
static const struct store_turn one = {"text", "x", 1, ids_one, 4, 1};

static inline void commit_ok(struct box *b, const struct store_session *s, bool create, const struct store_turn *t,
                             size_t n)
{
    struct hearth_err e = {0};
    if (store_commit(b->st, s, create, t, n, ++committed, &e) != 0)
        fail_msg("%s", e.msg);
}

#endif
