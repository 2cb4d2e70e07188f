/* fork.c - forked sessions: what they read, what a removed parent leaves behind, and what counts for whom. */
#include "tests/unit/store/store-box.h"

#include "daemon/store/store-internal.h"
#include "tests/sql.h" /* wants cmocka.h */

enum { UID = 1000, TURNS = 6, IDS = 5 };

static int64_t committed;

static struct store_session row(int id, const char *name)
{
    struct store_session s = {.uid = UID, .name = (char *)name, .model = "tale", .path = "/m/tale.gguf", .used = 1};
    snprintf(s.id, sizeof s.id, "%016x", (unsigned)id);
    return s;
}

/* Adds turns of IDS ids each, numbered from `first` on, questions and answers alternately. */
static void add(struct box *b, struct store_session *s, bool create, int first, int n)
{
    int32_t ids[TURNS][IDS];
    struct store_turn t[TURNS];
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < IDS; k++)
            ids[i][k] = (first + i) * IDS + k;
        t[i] = (struct store_turn){.role = (first + i) % 2 ? "assistant" : "user", .text = "word", .len = 4};
        t[i].ids = ids[i];
        t[i].n_ids = IDS;
    }
    assert_int_equal(store_commit(b->st, s, create, t, (size_t)n, ++committed, NULL), 0);
}

static struct store_session *get(struct box *b, const char *name)
{
    struct store_session *s;
    struct hearth_err e;
    if (store_get(b->st, UID, name, &s, &e) != 0)
        fail_msg("%s: %s", name, e.msg);
    return s;
}

/* Makes a fork of the first turns of that session. */
static void make(struct box *b, int id, const char *name, const char *parent, int turns)
{
    struct store_session *p = get(b, parent), s = row(id, name);
    const struct store_session *v[] = {&s};
    memcpy(s.parent, p->id, sizeof s.parent);
    s.base = turns;
    s.base_tok = turns * IDS;
    assert_int_equal(store_fork(b->st, v, 1, NULL, 0, NULL), 0);
    store_session_free(p);
}

/* Checks that the session has the ids 0, 1, 2 ... of that many turns. */
static void check(struct box *b, const char *name, int turns)
{
    struct store_session *s = get(b, name);
    struct hearth_err e = {0};
    int32_t *ids;
    size_t n;
    if (store_timeline(b->st, s, &ids, &n, &e) != 0)
        fail_msg("%s: %s", name, e.msg);
    assert_int_equal(n, turns * IDS);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ids[i], i);
    free(ids);
    store_session_free(s);
}

static int64_t bytes(struct box *b)
{
    int64_t n;
    store_close(b->st); /* so that the sums are computed anew */
    assert_int_equal(store_open(&b->st, b->dir, NULL), 0);
    assert_int_equal(store_bytes(b->st, UID, &n, NULL), 0);
    return n;
}

static void drop(struct box *b, const char *name)
{
    struct store_session *s = get(b, name);
    int64_t before, after;
    assert_int_equal(store_bytes(b->st, UID, &before, NULL), 0);
    assert_int_equal(store_remove(b->st, s, NULL), 0);
    store_session_free(s);
    assert_int_equal(store_purge_all(b->st, NULL), 0);
    assert_int_equal(store_bytes(b->st, UID, &after, NULL), 0);
    assert_int_equal(after, bytes(b)); /* the running sum equals the computed one */
}

enum { TURN = 4 + 4 * IDS };

static void a_chain(struct box *b)
{
    struct store_session s = row(1, "a");
    add(b, &s, true, 0, TURNS);
    make(b, 2, "b", "a", 4);
    s = row(2, "b");
    add(b, &s, false, 4, 2);
    make(b, 3, "c", "b", 5); /* four of a's and one of b's */
    make(b, 4, "d", "b", 2); /* two of a's, and none of b's */
    s = row(3, "c");
    add(b, &s, false, 5, 1);
}

static void test_reads(void **state)
{
    struct box *b = *state;
    a_chain(b);
    check(b, "a", 6);
    check(b, "b", 6);
    check(b, "c", 6);
    check(b, "d", 2);
    assert_int_equal(bytes(b), (6 + 2 + 1) * TURN);
    struct store_session *c = get(b, "c");
    struct store_turn *t;
    size_t n;
    assert_int_equal(c->bytes, TURN);
    assert_int_equal(store_turns(b->st, c, &t, &n, NULL), 0);
    assert_int_equal(n, 6);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(t[i].role, i % 2 ? "assistant" : "user");
    store_turns_free(t, n);
    /* In pages of any size. */
    for (size_t most = 1; most < 8; most++) {
        int64_t at = 0;
        int32_t next = 0;
        while (at >= 0) {
            assert_int_equal(store_page(b->st, c, &at, 1000, most, &t, &n, NULL), 0);
            for (size_t i = 0; i < n; i++)
                for (size_t k = 0; k < t[i].n_ids; k++)
                    assert_int_equal(t[i].ids[k], next++);
            store_turns_free(t, n);
        }
        assert_int_equal(next, 6 * IDS);
    }
    store_session_free(c);
}

/* With any order of removal, the remaining sessions read what they read before, and in the end nothing is left. */
static void test_removal(void **state)
{
    struct box *b = *state;
    static const char *const names[] = {"a", "b", "c", "d"};
    static const int turns[] = {6, 6, 6, 2};
    for (int order = 0; order < 24; order++) {
        int gone = 0, rest = order;
        a_chain(b);
        for (int left = 4; left > 0; left--) {
            int pick = rest % left, i = 0;
            rest /= left;
            while (gone & 1 << i || pick-- > 0)
                i++;
            drop(b, names[i]);
            gone |= 1 << i;
            for (int k = 0; k < 4; k++)
                if (!(gone & 1 << k))
                    check(b, names[k], turns[k]);
            int64_t n;
            assert_int_equal(store_count(b->st, UID, &n, NULL), 0);
            assert_int_equal(n, left - 1);
        }
        assert_int_equal(sql_run(b->db, "SELECT count(*) FROM turns"), 0);
        assert_int_equal(sql_run(b->db, "SELECT count(*) FROM sessions"), 0);
    }
}

/* Turns that no session has any more are removed at once, the others with the last fork. */
static void test_trunk(void **state)
{
    struct box *b = *state;
    struct store_session *s;
    a_chain(b);
    drop(b, "a");
    assert_int_equal(sql_run(b->db, "SELECT count(*) FROM turns WHERE session = '0000000000000001'"), 4);
    assert_int_equal(store_get(b->st, UID, "0000000000000001", &s, NULL), HEARTH_ENOSESSION);
    assert_int_equal(store_get(b->st, UID, "a", &s, NULL), HEARTH_ENOSESSION);
    struct store_session again = row(9, "a"); /* its name is free again */
    add(b, &again, true, 0, 1);
    s = get(b, "b");
    assert_false(s->has_parent);
    store_session_free(s);
    drop(b, "b");
    drop(b, "c");
    check(b, "d", 2); /* through b, of which only the link is left */
    assert_int_equal(sql_run(b->db, "SELECT count(*) FROM turns WHERE session = '0000000000000002'"), 0);
    /* Nor is any of a left except what d has, although b had more. */
    assert_int_equal(sql_run(b->db, "SELECT count(*) FROM turns WHERE session = '0000000000000001'"), 2);
    /* What is left of either is removed with d, or when d takes fewer turns. */
    for (int turns = 0; turns < 4; turns++) {
        const struct store_shared left = {.forks = turns > 0, .turns = turns, .tokens = turns * IDS};
        struct store_trunk *v;
        size_t n;
        s = get(b, "d");
        assert_int_equal(store_trunks(b->st, s, &left, &v, &n, NULL), 0);
        assert_int_equal(n, turns < 2 ? 2 : 0);
        for (size_t i = 0; i < n; i++) {
            assert_string_equal(v[i].id, i ? "0000000000000001" : "0000000000000002");
            assert_int_equal(v[i].tokens, left.tokens);
        }
        free(v);
        store_session_free(s);
    }
}

static void adopt(struct box *b, const char *fork, const char *parent)
{
    struct store_session *f = get(b, fork), *p = get(b, parent);
    int64_t n;
    assert_int_equal(store_adopt(b->st, f, p, 7, NULL), 0);
    assert_int_equal(store_bytes(b->st, UID, &n, NULL), 0);
    assert_int_equal(n, bytes(b)); /* the running sum equals the computed one */
    store_session_free(f);
    store_session_free(p);
}

/* A session that by an adoption has fewer turns of a removed one than before lets the other turns be removed. */
static void test_adopt_trunk(void **state)
{
    struct box *b = *state;
    a_chain(b);
    drop(b, "a");
    adopt(b, "c", "b");
    assert_int_equal(sql_run(b->db, "SELECT count(*) FROM turns WHERE session = '0000000000000001'"), 4);
    adopt(b, "d", "b");
    check(b, "b", 2);
    assert_int_equal(sql_run(b->db, "SELECT count(*) FROM turns WHERE session = '0000000000000001'"), 2);
    make(b, 5, "e", "b", 0);
    struct store_session s = row(5, "e");
    add(b, &s, false, 0, 1);
    adopt(b, "e", "b");
    check(b, "b", 1);
    assert_int_equal(sql_run(b->db, "SELECT count(*) FROM turns WHERE session = '0000000000000001'"), 0);
    drop(b, "b");
    assert_int_equal(sql_run(b->db, "SELECT count(*) FROM turns"), 0);
    assert_int_equal(sql_run(b->db, "SELECT count(*) FROM sessions"), 0);
}

/* A fork that was cut within the parent's first turn shares no turns with it. It is a fork all the same, and stays one
 * when it adopts a fork itself. */
static void test_adopt_of_nothing(void **state)
{
    struct box *b = *state;
    struct store_session s = row(1, "a"), *fork;
    add(b, &s, true, 0, 1);
    make(b, 2, "b", "a", 0);
    make(b, 3, "c", "b", 0);
    adopt(b, "c", "b");
    fork = get(b, "b");
    assert_true(fork->has_parent);
    assert_string_equal(fork->parent, "0000000000000001");
    store_session_free(fork);
}

static void test_adopt(void **state)
{
    struct box *b = *state;
    struct store_session *fork, *parent;
    a_chain(b);
    fork = get(b, "c");
    parent = get(b, "b");
    int64_t before = bytes(b);
    assert_int_equal(store_adopt(b->st, fork, parent, 7, NULL), 0);
    store_session_free(fork);
    store_session_free(parent);
    check(b, "b", 6);
    check(b, "d", 2);
    parent = get(b, "b");
    assert_int_equal(parent->bytes, 2 * TURN);
    assert_true(parent->used == 7);
    store_session_free(parent);
    assert_int_equal(bytes(b), before - TURN); /* b's last turn was replaced by c's */
    assert_int_equal(store_get(b->st, UID, "c", &parent, NULL), HEARTH_ENOSESSION);
    /* A cut within turns that the parent itself has by reference. */
    fork = get(b, "d");
    parent = get(b, "b");
    assert_int_equal(store_adopt(b->st, fork, parent, 8, NULL), 0);
    store_session_free(fork);
    store_session_free(parent);
    check(b, "b", 2);
    check(b, "a", 6);
}

/* The places at which a session can be cut, and whether an assistant's turn is open there. */
static void test_cut(void **state)
{
    struct box *b = *state;
    a_chain(b);
    struct store_session *c = get(b, "c");
    for (int64_t at = 0; at < 6 * IDS; at++) {
        struct store_cut cut;
        assert_int_equal(store_cut(b->st, c, at, &cut, NULL), 0);
        assert_int_equal(cut.turns, at / IDS);
        assert_int_equal(cut.tokens, at / IDS * IDS);
        assert_int_equal(cut.inside, at % IDS != 0);
        assert_int_equal(cut.open, at >= IDS);
        if (cut.inside) {
            assert_int_equal(cut.turn->n_ids, IDS);
            assert_int_equal(cut.turn->ids[0], cut.tokens);
            assert_int_equal(cut.generated, cut.turns % 2);
        }
        store_turns_free(cut.turn, cut.turn != NULL);
    }
    store_session_free(c);
}

static void test_ephemeral(void **state)
{
    struct box *b = *state;
    struct store_session **v, s = row(1, "a"), *p;
    struct store_cursor at = {0};
    size_t n;
    add(b, &s, true, 0, 2);
    make(b, 2, "kept", "a", 2);
    p = get(b, "a");
    s = row(3, "short");
    s.ephemeral = true;
    memcpy(s.parent, p->id, sizeof s.parent);
    store_session_free(p);
    const struct store_session *one[] = {&s};
    assert_int_equal(store_fork(b->st, one, 1, NULL, 0, NULL), 0);
    for (int all = 0; all < 2; all++) {
        at = (struct store_cursor){0};
        assert_int_equal(store_list(b->st, UID, all, &at, 10, &v, &n, NULL), 0);
        assert_int_equal(n, 2 + all);
        while (n > 0)
            store_session_free(v[--n]);
        free(v);
    }
    at = (struct store_cursor){0};
    assert_int_equal(store_list_old(b->st, -1e12, 2, &at, 10, &v, &n, NULL), 0);
    assert_int_equal(n, 1);
    assert_string_equal(v[0]->name, "short");
    store_session_free(v[0]);
    free(v);
}

/* Forks of forks are refused before the last one could no longer be read. */
static void test_depth(void **state)
{
    enum { MOST = 1024 };
    struct box *b = *state;
    struct store_session s = row(1, "1");
    const struct store_session *v[] = {&s};
    struct hearth_err e;
    char name[16];
    int rc = 0, n = 1;
    add(b, &s, true, 0, 1);
    while (!rc && n < 2 * MOST) {
        snprintf(s.parent, sizeof s.parent, "%016x", (unsigned)n++);
        snprintf(s.id, sizeof s.id, "%016x", (unsigned)n);
        snprintf(name, sizeof name, "%d", n);
        s.name = name;
        s.base = 1;
        s.base_tok = IDS;
        rc = store_fork(b->st, v, 1, NULL, 0, &e);
    }
    assert_int_equal(rc, HEARTH_ELIMIT);
    assert_int_equal(n, MOST + 1);
    check(b, "1024", 1);
}

/* Rows that were tampered with are forks of nothing. */
static void test_damage(void **state)
{
    static const char *const harm[] = {
        "UPDATE sessions SET parent = '00000000000000ff' WHERE name = 'c'",
        "UPDATE sessions SET base = 4 WHERE name = 'c'",
        "UPDATE sessions SET base_tok = 24 WHERE name = 'c'",
        "UPDATE sessions SET parent = id WHERE name = 'b'",                           /* a cycle */
        "UPDATE sessions SET base = 9, parent = '0000000000000003' WHERE name = 'b'", /* a longer one */
        "UPDATE turns SET tokens = x'01000000' WHERE session = '0000000000000001' AND seq = 1",
        "DELETE FROM turns WHERE session = '0000000000000001' AND seq = 1",
    };
    struct box *b = *state;
    for (size_t i = 0; i < sizeof harm / sizeof harm[0]; i++) {
        struct store_session *s;
        struct hearth_err e = {0};
        int32_t *ids;
        size_t n;
        a_chain(b);
        sql_run(b->db, harm[i]);
        int rc = store_get(b->st, UID, "c", &s, &e);
        if (!rc) {
            rc = store_timeline(b->st, s, &ids, &n, &e);
            store_session_free(s);
        }
        if (rc != HEARTH_ESTORE || !strstr(e.msg, "damaged"))
            fail_msg("%s: %d %s", harm[i], rc, e.msg);
        /* Each of them can be removed. */
        for (int k = 0; k < 4; k++) {
            assert_int_equal(store_find(b->st, UID, (const char *[]){"c", "b", "d", "a"}[k], &s, NULL), 0);
            assert_int_equal(store_remove(b->st, s, NULL), 0);
            store_session_free(s);
        }
        assert_int_equal(sql_run(b->db, "DELETE FROM sessions"), 0);
        store_close(b->st);
        assert_int_equal(store_open(&b->st, b->dir, NULL), 0);
    }
}

/* Trunks that are each other's parents have an end. */
static void test_cycle(void **state)
{
    struct box *b = *state;
    struct store_trunk *v;
    const struct store_shared none = {0};
    size_t n;
    a_chain(b);
    sql_run(b->db, "UPDATE sessions SET parent = '0000000000000002', base = 3, name = id WHERE name = 'a'");
    sql_run(b->db, "UPDATE sessions SET base = 1, name = id WHERE name = 'b'");
    sql_run(b->db, "UPDATE sessions SET base = 0 WHERE name = 'c'");
    sql_run(b->db, "DELETE FROM sessions WHERE name = 'd'");
    struct store_session *s;
    assert_int_equal(store_find(b->st, UID, "c", &s, NULL), 0);
    assert_int_equal(store_trunks(b->st, s, &none, &v, &n, NULL), 0);
    free(v);
    assert_int_equal(store_remove(b->st, s, NULL), 0);
    store_session_free(s);
}

/* A parent with a damaged row can be removed; its forks keep what they share of it, and with the last of them it goes.
 */
static void test_damaged_parent(void **state)
{
    static const char *const harm[] = {
        "UPDATE sessions SET path = '/other' WHERE name = 'a'",
        "UPDATE sessions SET n_turns = 0, n_tok = 0, bytes = 0 WHERE name = 'a'",
        "UPDATE sessions SET n_turns = 1000000 WHERE name = 'a'",
        "UPDATE sessions SET n_turns = -9223372036854775807 - 1 WHERE name = 'a'", /* the least number of 64 bits */
        "UPDATE sessions SET bytes = -9223372036854775807 - 1 WHERE name = 'a'",
        "UPDATE sessions SET id = 'nonsense' WHERE name = 'a'", /* it is given another */
        "UPDATE sessions SET id = '00000000000000ff' WHERE name = 'a'",
    };
    static const char *const names[] = {"d", "c", "b"};
    static const int turns[] = {2, 6, 6};
    struct box *b = *state;
    for (size_t i = 0; i < sizeof harm / sizeof harm[0]; i++) {
        struct store_session *a, other = row(9, "other");
        a_chain(b);
        add(b, &other, true, 0, 1);
        store_close(b->st);
        sql_run(b->db, harm[i]);
        assert_int_equal(store_open(&b->st, b->dir, NULL), 0);
        assert_int_equal(store_find(b->st, UID, "a", &a, NULL), 0);
        assert_true(a->damaged);
        assert_int_equal(store_remove(b->st, a, NULL), 0);
        store_session_free(a);
        bytes(b); /* opened again, with all that is to be purged */
        for (int gone = 0; gone < 3; gone++) {
            for (int k = gone; k < 3; k++)
                check(b, names[k], turns[k]);
            drop(b, names[gone]);
        }
        check(b, "other", 1);
        drop(b, "other");
        assert_int_equal(sql_run(b->db, "SELECT count(*) FROM turns"), 0);
        assert_int_equal(sql_run(b->db, "SELECT count(*) FROM sessions"), 0);
    }
}

/* While the row that has lost its id is there, it might be repaired: what is removed then are the forks alone. */
static void test_forks_before_a_damaged_parent(void **state)
{
    struct box *b = *state;
    struct store_session *a;
    a_chain(b);
    store_close(b->st);
    sql_run(b->db, "UPDATE sessions SET id = 'nonsense' WHERE name = 'a'");
    assert_int_equal(store_open(&b->st, b->dir, NULL), 0);
    drop(b, "d");
    drop(b, "b");
    drop(b, "c");
    assert_int_equal(sql_run(b->db, "SELECT count(*) FROM turns"), TURNS);
    assert_int_equal(store_find(b->st, UID, "a", &a, NULL), 0);
    assert_int_equal(store_remove(b->st, a, NULL), 0);
    store_session_free(a);
    assert_int_equal(sql_run(b->db, "SELECT count(*) FROM turns"), 0);
}

/* A damaged row that has its turns is not one that these may belong to: they go with the last fork. */
static void test_damage_elsewhere(void **state)
{
    struct box *b = *state;
    struct store_session *a, other = row(9, "other");
    a_chain(b);
    add(b, &other, true, 0, 1);
    store_close(b->st);
    sql_run(b->db, "UPDATE sessions SET id = 'nonsense' WHERE name = 'a'");
    sql_run(b->db, "UPDATE sessions SET path = '/other' WHERE name = 'other'");
    assert_int_equal(store_open(&b->st, b->dir, NULL), 0);
    assert_int_equal(store_find(b->st, UID, "a", &a, NULL), 0);
    assert_int_equal(store_remove(b->st, a, NULL), 0);
    store_session_free(a);
    check(b, "b", 6);
    drop(b, "d");
    drop(b, "b");
    drop(b, "c");
    assert_int_equal(sql_run(b->db, "SELECT count(*) FROM turns"), 1);
}

static int count(void *n)
{
    ++*(int *)n;
    return 0;
}

/* Removing one of many forks of a removed session does not read the rows of all others. */
static void test_many(void **state)
{
    enum { FORKS = 3000, OPS = 100 /* of SQLite's machine, between two calls of count() */ };
    struct box *b = *state;
    struct store_session parent = row(1, "parent"), *p = NULL, *f = NULL;
    add(b, &parent, true, 0, TURNS);
    static struct store_session s[FORKS];
    static char name[FORKS][16];
    static const struct store_session *v[FORKS];
    for (int i = 0; i < FORKS; i++) {
        snprintf(name[i], sizeof name[i], "fork%d", i);
        s[i] = row(10 + i, name[i]);
        memcpy(s[i].parent, parent.id, sizeof s[i].parent);
        s[i].base = TURNS;
        s[i].base_tok = TURNS * IDS;
        v[i] = &s[i];
    }
    assert_int_equal(store_fork(b->st, v, FORKS, NULL, 0, NULL), 0);
    p = get(b, "parent");
    assert_int_equal(store_remove(b->st, p, NULL), 0);
    f = get(b, "fork7");
    const struct store_shared left = {0};
    struct store_trunk *trunks;
    size_t n;
    int calls = 0;
    sqlite3_progress_handler(b->st->db, OPS, count, &calls);
    assert_int_equal(store_trunks(b->st, f, &left, &trunks, &n, NULL), 0);
    assert_int_equal(n, 0);
    free(trunks);
    assert_int_equal(store_remove(b->st, f, NULL), 0);
    sqlite3_progress_handler(b->st->db, 0, NULL, NULL);
    assert_true(calls * OPS < FORKS);
    check(b, "fork8", TURNS);
    store_session_free(p);
    store_session_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_reads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_removal, setup, teardown),
        cmocka_unit_test_setup_teardown(test_trunk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cycle, setup, teardown),
        cmocka_unit_test_setup_teardown(test_adopt, setup, teardown),
        cmocka_unit_test_setup_teardown(test_adopt_trunk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_adopt_of_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ephemeral, setup, teardown),
        cmocka_unit_test_setup_teardown(test_depth, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged_parent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_forks_before_a_damaged_parent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage_elsewhere, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
