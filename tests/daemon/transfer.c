/* transfer.c - export and import of whole sessions through the socket, and who may do so. */
#include "config.h"

#include "tests/daemon/harness.h"
#include "tests/sql.h"

#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static struct wire_session_page *page(struct peer *p, const char *session, int64_t from)
{
    struct wire_session_export x = {.session = session, .from = from};
    return peer_call(p, WIRE_SESSIONS_EXPORT, &x);
}

static struct wire_session_import import_of(const char *name)
{
    struct wire_session_import im = {.version = 1, .name = name, .model = "fake"};
    return im;
}

static struct wire_turn a_turn(const char *role, const char *text, const int32_t *ids, size_t n)
{
    struct wire_turn t = {.role = role, .text = {text, strlen(text)}, .tokens = {ids, n}, .created = 5};
    struct wire_turn_generation none;
    wire_defaults(wire_methods[WIRE_TURN_GENERATION].params, &none);
    t.generation = none.info;
    return t;
}

static const int32_t some[] = {0, 1999, 7};

/* --- export ------------------------------------------------------------------------------------------------------- */

static void test_export(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_generate g = request("ab n=2", "notes");
    g.sampling.temperature = 0.5;
    g.sampling.seed = 77;
    g.sampling.has_seed = true;
    wire_free(peer_call(p, WIRE_GENERATE, &g));
    struct wire_session_page *x = page(p, "notes", 0);
    assert_int_equal(x->version, 1);
    assert_int_equal(x->next, -1);
    assert_false(x->turn_open);
    assert_string_equal(x->session.name, "notes");
    assert_int_equal(x->session.bytes, 6 + 6 + 4 * 8);
    assert_int_equal(x->n_turns, 2);
    assert_string_equal(x->turns[0].role, "text");
    assert_int_equal(x->turns[0].tokens.n, 6);
    assert_false(x->turns[0].has_generation);
    const struct wire_turn *t = &x->turns[1];
    assert_string_equal(t->role, "completion");
    assert_int_equal(t->text.len, 6);
    assert_int_equal(t->tokens.v[1], 1001);
    assert_true(t->has_generation);
    assert_string_equal(t->generation.finish_reason, "stop");
    assert_int_equal(t->generation.usage.completion_tokens, 2);
    assert_true(t->generation.sampling.has_seed && t->generation.sampling.temperature == 0.5);
    assert_int_equal(t->generation.sampling.seed, 77);
    wire_free(x);
    struct wire_session_export bad = {.session = "nobody"};
    peer_refused(p, WIRE_SESSIONS_EXPORT, &bad, HEARTH_ENOSESSION, "nobody");
    bad = (struct wire_session_export){.session = "notes", .from = 1 + 6 + 6 + 1 + 6 + 2 - 1}; /* its last token */
    x = peer_call(p, WIRE_SESSIONS_EXPORT, &bad);
    assert_int_equal(x->n_turns, 1);
    wire_free(x);
    bad.from++; /* what a page of a longer session said is no end of this one */
    peer_refused(p, WIRE_SESSIONS_EXPORT, &bad, HEARTH_EPARAMS, "sessions.export.from: 22 is behind the end");
    peer_close(p);
}

/* More than a page: 600 tokens of 8 KiB of text each. */
static void test_large(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    wire_free(run(p, "n=300 size=8192", "big"));
    wire_free(run(p, "n=300 size=8192", "big"));
    struct wire_session_import im = import_of("copy");
    int64_t from = 0, pages = 0;
    size_t len = 0;
    char id[20] = "big";
    while (from >= 0) {
        struct wire_session_page *x = page(p, id, from);
        snprintf(id, sizeof id, "%s", x->session.id);
        size_t bytes = 0;
        for (size_t i = 0; i < x->n_turns; i++) {
            bytes += x->turns[i].text.len;
            assert_true(!x->turns[i].continues || (i == 0 && pages > 0));
        }
        assert_true(bytes <= WIRE_PAGE_BYTES);
        len += bytes;
        from = x->next;
        im.page = pages++; /* every exported page can be imported */
        im.more = from >= 0;
        im.turns = x->turns;
        im.n_turns = x->n_turns;
        struct wire_imported *r = peer_call(p, WIRE_SESSIONS_IMPORT, &im);
        assert_int_equal(r->has_session, from < 0);
        wire_free(r);
        wire_free(x);
    }
    assert_true(pages >= 5);
    struct wire_session_show_result *a = peer_show(p, "big"), *c = peer_show(p, "copy");
    assert_int_equal(a->n_turns, 4);
    assert_int_equal(c->n_turns, 4);
    assert_int_equal(len, 2 * (15 + 300 * 8192));
    assert_int_equal(a->tokens.n, c->tokens.n);
    assert_memory_equal(a->tokens.v, c->tokens.v, a->tokens.n * 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(a->turns[i].role, c->turns[i].role);
        assert_int_equal(a->turns[i].text.len, c->turns[i].text.len);
        assert_memory_equal(a->turns[i].text.data, c->turns[i].text.data, a->turns[i].text.len);
        assert_int_equal(a->turns[i].has_generation, c->turns[i].has_generation);
    }
    assert_string_not_equal(a->session.id, c->session.id);
    assert_int_equal(a->session.bytes, c->session.bytes);
    wire_free(a);
    wire_free(c);
    /* A session of that size is gone at once, and its turns are deleted in slices. */
    struct wire_session_ref big = {.session = "big"};
    wire_free(peer_call(p, WIRE_SESSIONS_REMOVE, &big));
    peer_refused(p, WIRE_SESSIONS_SHOW, &big, HEARTH_ENOSESSION, "big");
    while (sql_run(b->db, "SELECT count(*) FROM turns") > 4)
        assert_int_equal(peer_sessions(p), 1);
    assert_int_equal(sql_run(b->db, "SELECT count(*) FROM sessions WHERE name = 'copy'"), 1);
    wire_free(peer_show(p, "copy"));
    peer_close(p);
}

/* An imported document gets new checksums, so a session that is damaged here would become a sound one there. */
static void test_damaged_export(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    wire_free(run(p, "n=3", "sound"));
    wire_free(run(p, "n=3", "other"));
    peer_close(p);
    assert_int_equal(box_stop(b, SIGTERM), 0);
    assert_int_equal(sql_run(b->db, "UPDATE turns SET tokens = zeroblob(length(tokens)) WHERE seq = 1 AND"
                                    " session = (SELECT id FROM sessions WHERE name = 'other') RETURNING 1"),
                     1);
    box_start(b);
    p = peer_open(b);
    struct wire_session_export x = {.session = "other"};
    peer_refused(p, WIRE_SESSIONS_EXPORT, &x, HEARTH_ESTORE, "turn 1 is not as it was written");
    wire_free(page(p, "sound", 0));
    peer_close(p);
}

/* --- import ------------------------------------------------------------------------------------------------------- */

static void test_import(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_turn turns[] = {a_turn("user", "hi", some, 3), a_turn("assistant", "", some, 1)};
    struct wire_session_import im = import_of("mine");
    im.turns = turns;
    im.n_turns = 2;
    im.turn_open = im.pinned = true;
    im.created = 1234.5;
    im.tokenizer = "fake";
    im.vocab = 2000;
    struct wire_imported *r = peer_call(p, WIRE_SESSIONS_IMPORT, &im);
    assert_true(r->has_session);
    assert_string_equal(r->session.name, "mine");
    assert_int_equal(r->session.tokens, 4);
    assert_true(r->session.pinned && r->session.created == 1234.5 && r->session.used > 1e9);
    char id[20];
    snprintf(id, sizeof id, "%s", r->session.id);
    wire_free(r);
    struct wire_session_page *x = page(p, "mine", 0);
    assert_true(x->turn_open);
    wire_free(x);

    /* The name is taken: refused before any page is sent, and nothing is changed. */
    peer_refused(p, WIRE_SESSIONS_IMPORT, &im, HEARTH_ESESSIONEXISTS, "mine");
    im.replace = true;
    im.n_turns = 1;
    wire_free(peer_call(p, WIRE_SESSIONS_IMPORT, &im));
    struct wire_session_show_result *s = peer_show(p, "mine");
    assert_string_not_equal(s->session.id, id);
    assert_int_equal(s->n_turns, 1);
    wire_free(s);
    assert_int_equal(peer_sessions(p), 1);

    /* It can be continued like any other session. */
    struct wire_generate g = request("n=1", "mine");
    g.model = NULL;
    struct wire_generate_result *made = peer_call(p, WIRE_GENERATE, &g);
    assert_int_equal(made->usage.prompt_tokens, 3 + 3);
    wire_free(made);

    /* Not while a generation runs in the session, nor while one is creating it. */
    struct peer *q = peer_open(b);
    g = request("hang", "mine");
    peer_ask(q, WIRE_GENERATE, &g);
    peer_await_begin(q, 1);
    peer_refused(p, WIRE_SESSIONS_IMPORT, &im, HEARTH_ESESSIONBUSY, "mine");
    g = request("hang", "fresh");
    peer_ask(q, WIRE_GENERATE, &g);
    peer_await_begin(q, 2);
    im.name = "fresh";
    peer_refused(p, WIRE_SESSIONS_IMPORT, &im, HEARTH_ESESSIONBUSY, "creating session \"fresh\"");
    im.replace = false;
    peer_refused(p, WIRE_SESSIONS_IMPORT, &im, HEARTH_ESESSIONEXISTS, "creating session \"fresh\"");
    peer_close(q);
    peer_close(p);
}

static void test_import_refused(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    static const int32_t over[] = {5, 2000};
    struct wire_turn good = a_turn("user", "hi", some, 3), t;
    struct wire_session_import im;
    const struct {
        const char *what;
        int code;
    } cases[] = {
        {"version: 7", HEARTH_EUNSUPPORTED},  {"version: 0", HEARTH_EUNSUPPORTED}, {"name: is missing", HEARTH_EPARAMS},
        {"name is empty", HEARTH_EPARAMS},    {"control", HEARTH_EPARAMS},         {"an id", HEARTH_EPARAMS},
        {"model: is", HEARTH_EPARAMS},        {"nonesuch", HEARTH_ENOMODEL},       {"3000", HEARTH_EMODELMISMATCH},
        {"other/bpe", HEARTH_EMODELMISMATCH}, {"2000 is not", HEARTH_EPARAMS},     {"no turn before", HEARTH_EPARAMS},
        {"not the first", HEARTH_ECONFLICT},
    };
    for (int i = 0; i < (int)(sizeof cases / sizeof cases[0]); i++) {
        t = good;
        im = import_of("mine");
        im.turns = &t;
        im.n_turns = 1;
        im.version = i == 0 ? 7 : i == 1 ? 0 : 1;
        im.name = i == 2 ? NULL : i == 3 ? "" : i == 4 ? "a\nb" : i == 5 ? "0123456789abcdef" : "mine";
        im.model = i == 6 ? NULL : i == 7 ? "nonesuch" : "fake";
        im.vocab = i == 8 ? 3000 : 0;
        im.tokenizer = i == 9 ? "other/bpe" : NULL;
        if (i == 10)
            t.tokens = (struct wire_ids){over, 2};
        t.continues = i == 11;
        im.page = i == 12 ? 1 : 0;
        if (i == 3) /* the wire format itself refuses it */
            peer_refused(p, WIRE_SESSIONS_IMPORT, &im, HEARTH_EPARAMS, "name");
        else
            peer_refused(p, WIRE_SESSIONS_IMPORT, &im, cases[i].code, cases[i].what);
        assert_int_equal(peer_sessions(p), 0);
    }
    /* Failed imports leave nothing behind that would be in the way. */
    im = import_of("mine");
    im.turns = &good;
    im.n_turns = 1;
    wire_free(peer_call(p, WIRE_SESSIONS_IMPORT, &im));
    peer_close(p);
}

/* Pages out of order, two imports at once, and a client that disconnects in the middle. */
static void test_import_pages(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *q = peer_open(b);
    struct wire_turn t = a_turn("user", "hi", some, 3);
    struct wire_session_import im = import_of("mine"), other = import_of("other");
    im.turns = other.turns = &t;
    im.n_turns = other.n_turns = 1;
    im.more = true;
    wire_free(peer_call(p, WIRE_SESSIONS_IMPORT, &im));
    peer_refused(p, WIRE_SESSIONS_IMPORT, &im, HEARTH_ECONFLICT, "page: 0");
    im.page = 2;
    peer_refused(p, WIRE_SESSIONS_IMPORT, &im, HEARTH_ECONFLICT, "not the next one of session \"mine\", which is 1");
    peer_refused(q, WIRE_SESSIONS_IMPORT, &other, HEARTH_ELIMIT, "importing");
    assert_int_equal(peer_sessions(q), 0);
    im.page = 1;
    wire_free(peer_call(p, WIRE_SESSIONS_IMPORT, &im)); /* the import is still open */
    peer_close(p);
    p = peer_open(b);
    wire_free(peer_call(p, WIRE_SESSIONS_LIST,
                        &(struct wire_sessions_list){0})); /* by now hearthd has noticed the disconnect */
    wire_free(peer_call(q, WIRE_SESSIONS_IMPORT, &other));
    assert_int_equal(peer_sessions(q), 1);

    /* The name is taken between the first page and the last. */
    im.page = 0;
    wire_free(peer_call(p, WIRE_SESSIONS_IMPORT, &im));
    wire_free(run(q, "n=1", "mine"));
    im.page = 1;
    im.more = false;
    peer_refused(p, WIRE_SESSIONS_IMPORT, &im, HEARTH_ESESSIONEXISTS, "mine");
    assert_int_equal(peer_sessions(q), 2);
    peer_close(p);
    peer_close(q);
}

/* A turn that never ends, and a session that never ends: each is refused when it is too large, instead of being kept
 * until then. */
static void test_import_endless(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    static char text[WIRE_PAGE_BYTES + 1];
    memset(text, 'x', WIRE_PAGE_BYTES);
    struct wire_turn t = a_turn("user", text, some, 0);
    for (int whole = 0; whole < 2; whole++) {
        struct wire_session_import im = import_of("mine");
        im.turns = &t;
        im.n_turns = 1;
        im.more = true;
        int most = whole ? 16 : 8; /* MiB */
        for (int i = 0; i < most; i++) {
            t.continues = !whole && i > 0;
            im.page = i;
            wire_free(peer_call(p, WIRE_SESSIONS_IMPORT, &im));
        }
        im.page = most;
        t.continues = !whole;
        peer_refused(p, WIRE_SESSIONS_IMPORT, &im, HEARTH_ETOOBIG, "larger than");
        assert_int_equal(peer_sessions(p), 0);
    }
    /* So is a timeline that is longer than any model's, although its bytes are few; and an invalid time. */
    static int32_t many[100000];
    struct wire_session_import im = import_of("mine");
    t = a_turn("user", "", many, 100000);
    struct wire_turn turns[] = {t, t, t, t, t, t};
    im.turns = turns;
    im.n_turns = 6;
    im.more = true;
    wire_free(peer_call(p, WIRE_SESSIONS_IMPORT, &im));
    im.page = 1;
    peer_refused(p, WIRE_SESSIONS_IMPORT, &im, HEARTH_ETOOBIG, "1048576 tokens");
    im = import_of("mine");
    im.turns = &t;
    im.n_turns = 1;
    t.created = 1e13;
    peer_refused(p, WIRE_SESSIONS_IMPORT, &im, HEARTH_EPARAMS, "created");
    assert_int_equal(peer_sessions(p), 0);
    box_works(b);
    peer_close(p);
}

/* --- permissions -------------------------------------------------------------------------------------------------- */

static int another_user(const struct box *b)
{
    pid_t pid = fork();
    if (pid == 0) {
        if (setgid(65534) != 0 || setuid(65534) != 0)
            _exit(3);
        struct peer *p = peer_open(b);
        struct wire_session_export x = {.session = "mine"};
        struct wire_session_pin s = {.session = "mine", .pinned = true};
        struct wire_backup bk = {.path = "/tmp/never"};
        peer_refused(p, WIRE_SESSIONS_EXPORT, &x, HEARTH_ENOSESSION, "mine");
        peer_refused(p, WIRE_SESSIONS_PIN, &s, HEARTH_ENOSESSION, "mine");
        peer_refused(p, WIRE_BACKUP, &bk, HEARTH_EDENIED, "backup");
        struct wire_turn t = a_turn("user", "theirs", some, 1);
        struct wire_session_import im =
            import_of("mine"); /* another uid's session of that name does not matter, and is not replaced */
        im.turns = &t;
        im.n_turns = 1;
        im.replace = true;
        wire_free(peer_call(p, WIRE_SESSIONS_IMPORT, &im));
        _exit(peer_sessions(p) == 1 ? 0 : 4);
    }
    return wait_exit(pid);
}

static void test_other_uid(void **state)
{
    struct box *b = *state;
    if (geteuid() != 0)
        skip();
    struct peer *p = peer_open(b);
    wire_free(run(p, "n=1", "mine"));
    box_open_to_all(b);
    assert_int_equal(another_user(b), 0);
    struct wire_session_show_result *s = peer_show(p, "mine");
    assert_int_equal(s->session.tokens, 4);
    assert_false(s->session.pinned);
    wire_free(s);
    peer_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_export, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_large, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_damaged_export, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_import, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_import_refused, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_import_pages, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_import_endless, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_other_uid, box_setup, box_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
