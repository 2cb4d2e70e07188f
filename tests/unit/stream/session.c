/* session.c - the session of a stream that a new hearthd has recovered continues as the opened session did; and what is
 * told of a session. */
#include "tests/unit/store/rows.h"

#include "daemon/conf.h"
#include "daemon/stream/session.h"
#include "daemon/stream/sessions.h"
#include "daemon/stream/stream.h"

static const int32_t appended[] = {10, 11}, completion[] = {20, 21, 22};

static int commit(struct server *s, struct session *ss, struct hearth_err *e)
{
    const struct wire_generate request = {.text = {.data = "x", .len = 1}};
    const struct session_turn t = {.request = &request,
                                   .appended = {.v = (int32_t *)appended, .n = 2},
                                   .completion = {.v = (int32_t *)completion, .n = 3},
                                   .text = {.data = "y", .len = 1},
                                   .info = {.info = {.finish_reason = "length"}},
                                   .stream = ++committed};
    return session_commit(s, ss, &t, e);
}

static void test_the_next_request_finds_the_timeline(void **state)
{
    struct box *b = *state;
    struct server s = {.store = b->st};
    const struct store_session was = row(ID_A, 1000, "a");
    const struct store_turn two[] = {one, one};
    struct hearth_err e = {0};
    commit_ok(b, &was, true, two, 2);

    const struct wire_journal_head head = {
        .uid = 1000, .session = ID_A, .name = "a", .model = "tale", .path = "/models/tale.gguf", .history = 8};
    struct session *ss;
    assert_int_equal(session_reopen(&s, &head, &ss, &e), 0);
    assert_int_equal(ss->n_ids, 8);
    assert_int_equal(commit(&s, ss, &e), 0);
    session_free(ss);

    struct store_session *now;
    int32_t *ids;
    size_t n;
    assert_int_equal(store_get(b->st, 1000, "a", &now, &e), 0);
    assert_int_equal(now->n_turns, 4);
    assert_true(timeline_cache_get(b->st, now, &ids, &n));
    assert_int_equal(n, 13);
    assert_memory_equal(ids, ids_one, sizeof ids_one);
    assert_memory_equal(ids + 8, appended, sizeof appended);
    assert_memory_equal(ids + 10, completion, sizeof completion);
    free(ids);
    store_session_free(now);
}

static void test_a_session_that_has_grown_is_refused(void **state)
{
    struct box *b = *state;
    struct server s = {.store = b->st};
    const struct store_session was = row(ID_A, 1000, "a");
    struct hearth_err e = {0};
    commit_ok(b, &was, true, &one, 1);
    const struct wire_journal_head head = {
        .uid = 1000, .session = ID_A, .name = "a", .model = "tale", .path = "/models/tale.gguf", .history = 3};
    struct session *ss;
    assert_int_equal(session_reopen(&s, &head, &ss, &e), HEARTH_ECONFLICT);
}

/* A client refuses a list with such a name as a whole. */
static void test_a_name_that_is_too_long_is_not_reported(void **state)
{
    (void)state;
    struct hearth_err e = {0};
    struct conf conf = {0};
    struct server s = {.conf = &conf, .streams = streams_new(&e)};
    char name[WIRE_NAME_MAX + 2] = "";
    assert_non_null(s.streams);
    struct store_session from = row(ID_A, 1000, name);
    struct wire_session to;
    memset(name, 'm', WIRE_NAME_MAX);
    session_describe(&s, &from, &to);
    assert_string_equal(to.name, name);
    name[WIRE_NAME_MAX] = 'm';
    session_describe(&s, &from, &to);
    assert_null(to.name);
    assert_string_equal(to.id, ID_A);
    assert_string_equal(to.model, "tale");
    streams_free(s.streams);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_next_request_finds_the_timeline, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_session_that_has_grown_is_refused, setup, teardown),
        cmocka_unit_test(test_a_name_that_is_too_long_is_not_reported),
    };
    return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}
