/* life.c - sessions through the socket as a whole: exported, imported, pinned, limited, backed up; and by whom. */
#include "config.h"

#include "tests/daemon/harness.h"
#include "tests/sql.h"

#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static struct wire_session_page *page(struct peer *p, const char *session, int64_t from)
{
    struct wire_session_export x = {.session = session, .from = from};
    return peer_call(p, WIRE_SESSIONS_EXPORT, &x);
}

static struct wire_session_show_result *show(struct peer *p, const char *session)
{
    struct wire_session_ref r = {.session = session, .tokens = true};
    return peer_call(p, WIRE_SESSIONS_SHOW, &r);
}

/* Sessions that can be used. */
static size_t count(struct peer *p)
{
    struct wire_sessions_list all = {0};
    struct wire_sessions_list_result *l = peer_call(p, WIRE_SESSIONS_LIST, &all);
    size_t n = l->n_sessions;
    for (size_t i = 0; i < l->n_sessions; i++)
        n -= l->sessions[i].damaged;
    wire_free(l);
    return n;
}

static struct wire_session_import import_of(const char *name)
{
    struct wire_session_import im = {.version = 1, .name = name, .model = "fake"};
    return im;
}

static struct wire_turn a_turn(const char *role, const char *text, const int32_t *ids, size_t n)
{
    struct wire_turn t = {.role = role, .text = {text, strlen(text)}, .tokens = {ids, n}, .created = 5};
    wire_defaults(wire_methods[WIRE_TURN_MADE].params, &t.made);
    return t;
}

static const int32_t some[] = {0, 1999, 7};

/* --- export ---------------------------------------------------------------------------------------------- */

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
    assert_false(x->turns[0].has_made);
    const struct wire_turn *t = &x->turns[1];
    assert_string_equal(t->role, "completion");
    assert_int_equal(t->text.len, 6);
    assert_int_equal(t->tokens.v[1], 1001);
    assert_true(t->has_made);
    assert_string_equal(t->made.finish_reason, "stop");
    assert_int_equal(t->made.usage.completion_tokens, 2);
    assert_true(t->made.sampling.has_seed && t->made.sampling.temperature == 0.5);
    assert_int_equal(t->made.sampling.seed, 77);
    wire_free(x);
    struct wire_session_export bad = {.session = "nobody"};
    peer_refused(p, WIRE_SESSIONS_EXPORT, &bad, HEARTH_ENOSESSION, "nobody");
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
        snprintf(id, sizeof(id), "%s", x->session.id);
        size_t bytes = 0;
        for (size_t i = 0; i < x->n_turns; i++) {
            bytes += x->turns[i].text.len;
            assert_true(!x->turns[i].continues || (i == 0 && pages > 0));
        }
        assert_true(bytes <= WIRE_PAGE_BYTES);
        len += bytes;
        from = x->next;
        im.page = pages++; /* a page that was exported is one that can be imported */
        im.more = from >= 0;
        im.turns = x->turns;
        im.n_turns = x->n_turns;
        struct wire_imported *r = peer_call(p, WIRE_SESSIONS_IMPORT, &im);
        assert_int_equal(r->has_session, from < 0);
        wire_free(r);
        wire_free(x);
    }
    assert_true(pages >= 5);
    struct wire_session_show_result *a = show(p, "big"), *c = show(p, "copy");
    assert_int_equal(a->n_turns, 4);
    assert_int_equal(c->n_turns, 4);
    assert_int_equal(len, 2 * (15 + 300 * 8192));
    assert_int_equal(a->tokens.n, c->tokens.n);
    assert_memory_equal(a->tokens.v, c->tokens.v, a->tokens.n * 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(a->turns[i].role, c->turns[i].role);
        assert_int_equal(a->turns[i].text.len, c->turns[i].text.len);
        assert_memory_equal(a->turns[i].text.data, c->turns[i].text.data, a->turns[i].text.len);
        assert_int_equal(a->turns[i].has_made, c->turns[i].has_made);
    }
    assert_string_not_equal(a->session.id, c->session.id);
    assert_int_equal(a->session.bytes, c->session.bytes);
    wire_free(a);
    wire_free(c);
    peer_close(p);
}

/* --- import ---------------------------------------------------------------------------------------------- */

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
    snprintf(id, sizeof(id), "%s", r->session.id);
    wire_free(r);
    struct wire_session_page *x = page(p, "mine", 0);
    assert_true(x->turn_open);
    wire_free(x);

    /* The name is taken: refused before any page is sent, and nothing is touched. */
    peer_refused(p, WIRE_SESSIONS_IMPORT, &im, HEARTH_ESESSIONEXISTS, "mine");
    im.replace = true;
    im.n_turns = 1;
    wire_free(peer_call(p, WIRE_SESSIONS_IMPORT, &im));
    struct wire_session_show_result *s = show(p, "mine");
    assert_string_not_equal(s->session.id, id);
    assert_int_equal(s->n_turns, 1);
    wire_free(s);
    assert_int_equal(count(p), 1);

    /* It goes on like any other. */
    struct wire_generate g = request("n=1", "mine");
    g.model = NULL;
    struct wire_generate_result *made = peer_call(p, WIRE_GENERATE, &g);
    assert_int_equal(made->usage.prompt_tokens, 3 + 3);
    wire_free(made);

    /* Not while a generation runs in it, nor while one is making it. */
    struct peer *q = peer_open(b);
    g = request("hang", "mine");
    peer_ask(q, WIRE_GENERATE, &g);
    peer_await_begin(q, 1);
    peer_refused(p, WIRE_SESSIONS_IMPORT, &im, HEARTH_ESESSIONBUSY, "mine");
    g = request("hang", "fresh");
    peer_ask(q, WIRE_GENERATE, &g);
    peer_await_begin(q, 2);
    im.name = "fresh";
    peer_refused(p, WIRE_SESSIONS_IMPORT, &im, HEARTH_ESESSIONBUSY, "fresh");
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
        {"version: 7", HEARTH_EUNSUPPORTED},  {"version: 0", HEARTH_EUNSUPPORTED},
        {"name: is missing", HEARTH_EPARAMS}, {"name is empty", HEARTH_EPARAMS},
        {"control", HEARTH_EPARAMS},          {"an id", HEARTH_EPARAMS},
        {"model: is", HEARTH_EPARAMS},        {"nonesuch", HEARTH_ENOMODEL},
        {"3000", HEARTH_EMODELMISMATCH},      {"other/bpe", HEARTH_EMODELMISMATCH},
        {"2000 is not", HEARTH_EPARAMS},      {"robot", HEARTH_EPARAMS},
        {"no turn before", HEARTH_EPARAMS},   {"is not the next", HEARTH_ECONFLICT},
    };
    for (int i = 0; i < (int)(sizeof(cases) / sizeof(cases[0])); i++) {
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
        if (i == 11)
            t.role = "robot";
        t.continues = i == 12;
        im.page = i == 13 ? 1 : 0;
        if (i == 3) /* the wire itself does not let it pass */
            peer_refused(p, WIRE_SESSIONS_IMPORT, &im, HEARTH_EPARAMS, "name");
        else
            peer_refused(p, WIRE_SESSIONS_IMPORT, &im, cases[i].code, cases[i].what);
        assert_int_equal(count(p), 0);
    }
    /* What failed left nothing behind that would be in the way. */
    im = import_of("mine");
    im.turns = &good;
    im.n_turns = 1;
    wire_free(peer_call(p, WIRE_SESSIONS_IMPORT, &im));
    peer_close(p);
}

/* Pages out of turn, two at once, and a client that goes away in the middle. */
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
    peer_refused(p, WIRE_SESSIONS_IMPORT, &im, HEARTH_ECONFLICT, "page: 2");
    peer_refused(q, WIRE_SESSIONS_IMPORT, &other, HEARTH_ELIMIT, "importing");
    assert_int_equal(count(q), 0);
    im.page = 1;
    wire_free(peer_call(p, WIRE_SESSIONS_IMPORT, &im)); /* it is still there */
    peer_close(p);
    p = peer_open(b);
    wire_free(peer_call(p, WIRE_SESSIONS_LIST, &(struct wire_sessions_list){0})); /* by now the other end is known */
    wire_free(peer_call(q, WIRE_SESSIONS_IMPORT, &other));
    assert_int_equal(count(q), 1);

    /* The name is taken between the first page and the last. */
    im.page = 0;
    wire_free(peer_call(p, WIRE_SESSIONS_IMPORT, &im));
    wire_free(run(q, "n=1", "mine"));
    im.page = 1;
    im.more = false;
    peer_refused(p, WIRE_SESSIONS_IMPORT, &im, HEARTH_ESESSIONEXISTS, "mine");
    assert_int_equal(count(q), 2);
    peer_close(p);
    peer_close(q);
}

/* A turn that goes on and on, and a session that does: each is refused when it is too much, and not kept until then. */
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
        assert_int_equal(count(p), 0);
    }
    /* So is a timeline that is longer than any model's, though its bytes are not many; and a time that is none. */
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
    assert_int_equal(count(p), 0);
    box_works(b);
    peer_close(p);
}

/* --- pins and limits ------------------------------------------------------------------------------------- */

static void sql(struct box *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void sql(struct box *b, const char *fmt, ...)
{
    char path[128], *text;
    va_list ap;
    va_start(ap, fmt);
    assert_true(vasprintf(&text, fmt, ap) > 0);
    va_end(ap);
    snprintf(path, sizeof(path), "%s/sessions.db", b->state);
    sql_run(path, text);
    free(text);
}

static double now(void)
{
    struct timeval tv;
    gettimeofday(&tv, NULL);
    return (double)tv.tv_sec;
}

static void pin(struct peer *p, const char *session, bool pinned)
{
    struct wire_session_pin s = {.session = session, .pinned = pinned};
    wire_free(peer_call(p, WIRE_SESSIONS_PIN, &s));
}

static void test_age(void **state)
{
    struct box *b = *state;
    enum { DAY = 24 * 3600 };
    box_configure(b, "session_age = 10\n");
    box_start(b);
    struct peer *p = peer_open(b);
    static const char *const names[] = {"old", "pinned", "young", "running"};
    for (int i = 0; i < 4; i++)
        wire_free(run(p, "n=1", names[i]));
    pin(p, "pinned", true);
    struct wire_session_show_result *s = show(p, "young");
    assert_true(s->session.expires == s->session.used + 10 * DAY);
    wire_free(s);
    s = show(p, "pinned");
    assert_true(s->session.pinned && s->session.expires == 0);
    wire_free(s);
    struct wire_generate g = request("gate n=2", "running");
    peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 5);
    peer_close(p);
    assert_int_equal(box_stop(b, SIGKILL), 128 + SIGKILL); /* so it goes on in the next hearthd */
    sql(b, "UPDATE sessions SET used = %f WHERE name <> 'young'", now() - 11 * DAY);
    sql(b, "UPDATE sessions SET used = %f WHERE name = 'young'", now() - 9 * DAY);

    /* A clock that came a month ahead since the last time: nothing goes. */
    sql(b, "UPDATE clock SET wall = %f, doubt = 0", now() - 30 * DAY);
    box_start(b);
    p = peer_open(b);
    assert_int_equal(count(p), 4);
    assert_true(box_log_has(b, "it has jumped"));
    peer_close(p);
    assert_int_equal(box_stop(b, SIGKILL), 128 + SIGKILL);
    /* The doubt is kept: starting again does not end it. */
    box_start(b);
    p = peer_open(b);
    assert_int_equal(count(p), 4);
    peer_close(p);
    assert_int_equal(box_stop(b, SIGKILL), 128 + SIGKILL);

    /* A clock that went evenly: what is old goes, by name; not what is pinned, running or young. */
    sql(b, "UPDATE clock SET wall = %f, doubt = 0", now() - DAY);
    box_start(b);
    p = peer_open(b);
    assert_int_equal(count(p), 3);
    struct wire_session_ref r = {.session = "old"};
    peer_refused(p, WIRE_SESSIONS_SHOW, &r, HEARTH_ENOSESSION, "old");
    assert_true(box_log_has(b, "session \"old\""));
    assert_true(box_log_has(b, "session_age"));
    peer_close(p);
}

static void test_room(void **state)
{
    struct box *b = *state;
    /* A turn "n=1" is 3 bytes of text and 12 of ids, "t0 " and 4: 22 in all. */
    box_configure(b, "session_bytes_per_uid = 100\nsession_bytes = 60\n");
    box_start(b);
    struct peer *p = peer_open(b);
    static const char *const names[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++)
        wire_free(run(p, "n=1", names[i]));
    wire_free(run(p, "n=1", "a")); /* 110 bytes: b is the least recently used now */
    assert_int_equal(count(p), 3);
    struct wire_session_ref r = {.session = "b"};
    peer_refused(p, WIRE_SESSIONS_SHOW, &r, HEARTH_ENOSESSION, "b");
    assert_true(box_log_has(b, "session \"b\""));
    wire_free(run(p, "n=1", "a")); /* c goes too */
    r.session = "c";
    peer_refused(p, WIRE_SESSIONS_SHOW, &r, HEARTH_ENOSESSION, "c");
    struct wire_generate g = request("n=1", "a");
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_ELIMIT, "session_bytes"); /* 66 bytes already */

    /* All that could go is pinned: no generation in a session, but the others work. */
    pin(p, "a", true);
    pin(p, "d", true);
    wire_free(run(p, "n=1", "e")); /* 110 */
    pin(p, "e", true);
    g.session = "f";
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_ELIMIT, "no more may be removed now");
    wire_free(run(p, "n=1", NULL));
    assert_int_equal(count(p), 3);
    pin(p, "d", false);
    wire_free(run(p, "n=1", "f"));
    assert_int_equal(count(p), 3);
    r.session = "d"; /* made room for it; it is over again with f, but f was used last */
    peer_refused(p, WIRE_SESSIONS_SHOW, &r, HEARTH_ENOSESSION, "d");
    peer_close(p);
}

/* What a crash left to be written down makes room only when all that goes on is known to be in use. */
static void test_room_at_start(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    static const char *const names[] = {"s", "b", "c"};
    for (int i = 0; i < 3; i++)
        wire_free(run(p, "n=1", names[i]));
    wire_free(run(p, "n=4", "late"));
    struct wire_generate g = request("gate n=2", "s");
    peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 5);
    peer_close(p);
    assert_int_equal(box_stop(b, SIGKILL), 128 + SIGKILL);
    sql(b, "DELETE FROM turns WHERE session = (SELECT id FROM sessions WHERE name = 'late');"
           "DELETE FROM sessions WHERE name = 'late'; DELETE FROM folded WHERE stream = 4");
    box_configure(b, "session_bytes_per_uid = 100\n"); /* 109 with what is in the journal */
    box_start(b);
    p = peer_open(b);
    wire_free(show(p, "s"));
    wire_free(show(p, "late"));
    assert_true(box_log_has(b, "stream 5 of an earlier hearthd goes on"));
    assert_int_equal(count(p), 3); /* b went */
    peer_close(p);
}

/* Many go in pieces, between which hearthd does what it is for. */
static void test_much_room(void **state)
{
    enum { N = 70 };
    struct box *b = *state;
    struct peer *p = peer_open(b);
    char name[16];
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof(name), "s%d", i);
        wire_free(run(p, "n=1", name));
    }
    peer_close(p);
    assert_int_equal(box_stop(b, SIGTERM), 0);
    box_configure(b, "session_bytes_per_uid = 100\n"); /* of 1,540 */
    box_start(b);
    p = peer_open(b);
    while (count(p) > 4)
        continue;
    assert_int_equal(count(p), 4);
    struct wire_session_ref r = {.session = "s69"};
    wire_free(peer_call(p, WIRE_SESSIONS_SHOW, &r));
    peer_close(p);
}

/* A damaged size is nobody's: the other sessions do not go for it, and nothing is refused because of it. */
static void test_room_and_damage(void **state)
{
    struct box *b = *state;
    box_configure(b, "session_bytes_per_uid = 1000\n");
    box_start(b);
    struct peer *p = peer_open(b);
    static const char *const names[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++)
        wire_free(run(p, "n=1", names[i]));
    for (int damaged = 0; damaged < 2; damaged++) { /* the sum of two is more than a number holds */
        sql(b, "UPDATE sessions SET bytes = bytes + 9000000000000000000 WHERE name = '%s'", names[damaged]);
        wire_free(run(p, "n=1", "d"));
        assert_int_equal(count(p), 3 - damaged);
    }
    peer_close(p);
}

/* A damaged one is shown as such, refused, and removed when its owner says so: with its KV and its journal. */
static void test_damaged_session(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    char db[128], kv[128];
    snprintf(db, sizeof(db), "%s/sessions.db", b->state);
    wire_free(run(p, "n=1 save=1", "a"));
    wire_free(run(p, "n=1", "b"));
    assert_int_equal(sql_run(db, "SELECT count(*) FROM kv_file"), 1);
    sql(b, "UPDATE sessions SET path = '/other' WHERE name = 'a'");
    sql(b, "UPDATE sessions SET name = x'1b5b32004a' WHERE name = 'b'"); /* nothing for a terminal */
    struct wire_sessions_list all = {0};
    struct wire_sessions_list_result *l = peer_call(p, WIRE_SESSIONS_LIST, &all);
    assert_int_equal(l->n_sessions, 2);
    assert_true(l->sessions[0].damaged && l->sessions[1].damaged);
    assert_null(l->sessions[0].name);
    assert_string_equal(l->sessions[1].name, "a");
    struct wire_generate g = request("n=1", "a");
    peer_refused(p, WIRE_GENERATE, &g, HEARTH_ESTORE, "it can only be removed");
    struct wire_attach at = {.stream = 1};
    struct wire_session_ref r = {.session = "a"};
    peer_refused(p, WIRE_SESSIONS_SHOW, &r, HEARTH_ESTORE, "it can only be removed");
    wire_free(peer_call(p, WIRE_SESSIONS_REMOVE, &r));
    peer_refused(p, WIRE_SESSIONS_REMOVE, &r, HEARTH_ENOSESSION, "");
    peer_refused(p, WIRE_STREAM_ATTACH, &at, HEARTH_ENOSTREAM, "");
    r.session = l->sessions[0].id;
    wire_free(peer_call(p, WIRE_SESSIONS_REMOVE, &r));
    wire_free(l);
    assert_int_equal(count(p), 0);
    assert_int_equal(sql_run(db, "SELECT count(*) FROM turns"), 0);
    assert_int_equal(sql_run(db, "SELECT count(*) FROM kv_file"), 0);
    snprintf(kv, sizeof(kv), "test $(ls '%s/kv' | wc -l) = 0", b->state);
    assert_int_equal(system(kv), 0);
    wire_free(run(p, "n=1", "a"));
    peer_close(p);
}

/* True where the words are in a file of the state directory. */
static bool is_somewhere(const struct box *b, const char *words)
{
    char cmd[256];
    snprintf(cmd, sizeof(cmd), "grep -rqs '%s' '%s'", words, b->state);
    int rc = system(cmd);
    return WEXITSTATUS(rc) == 0;
}

/* What was said in a session that is removed is nowhere any more: soon, or after a kill at the next start. */
static void test_gone(void **state)
{
    struct box *b = *state;
    struct wire_session_ref r = {.session = "s"};
    char bad[128], cmd[300];
    for (int round = 0; round < 3; round++) {
        struct peer *p = peer_open(b);
        wire_free(run(p, "n=3 nobody else says this", "s"));
        wire_free(run(p, "n=3 nobody else says this", "s"));
        wire_free(run(p, "n=3", "other"));
        assert_true(is_somewhere(b, "nobody else says"));
        wire_free(peer_call(p, WIRE_SESSIONS_REMOVE, &r));
        while (round == 0 && is_somewhere(b, "nobody else says"))
            assert_true(count(p) == 1);
        peer_close(p);
        if (round == 1)
            assert_int_equal(box_stop(b, SIGKILL), 128 + SIGKILL);
        if (round == 2)
            assert_int_equal(box_stop(b, SIGTERM), 0);
        if (round > 0)
            box_start(b);
        assert_false(is_somewhere(b, "nobody else says"));
    }
    /* A journal that was set aside may be anybody's. */
    assert_int_equal(box_stop(b, SIGTERM), 0);
    snprintf(bad, sizeof(bad), "%s/journal/99.bad", b->state);
    snprintf(cmd, sizeof(cmd), "echo nobody else says this > '%s'", bad);
    assert_int_equal(system(cmd), 0);
    box_start(b);
    struct peer *p = peer_open(b);
    assert_int_equal(access(bad, F_OK), 0);
    r.session = "other";
    wire_free(peer_call(p, WIRE_SESSIONS_REMOVE, &r));
    assert_int_equal(access(bad, F_OK), -1);
    peer_close(p);
    assert_int_equal(box_stop(b, SIGKILL), 128 + SIGKILL);
    box_start(b);
    p = peer_open(b);
    struct wire_generate g = request("n=1", "other");
    peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 1);
    assert_int_equal(p->stream, 100); /* its number is not given again */
    peer_close(p);
}

/* --- backup ---------------------------------------------------------------------------------------------- */

static void test_backup(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *q = peer_open(b);
    char path[128], cmd[512];
    snprintf(path, sizeof(path), "%s/copy.db", b->dir);
    /* Streams run all the while, and every turn that was answered before a backup is in it. */
    struct wire_generate g = request("gate n=1000", "running");
    peer_ask(q, WIRE_GENERATE, &g);
    peer_await_begin(q, 1);
    struct wire_tokenize tick = {.model = "fake", .text = {"tick", 4}, .bos = -1};
    for (int i = 1; i <= 10; i++) {
        char name[16];
        snprintf(name, sizeof(name), "s%d", i);
        wire_free(run(p, "n=3", name));
        wire_free(peer_call(p, WIRE_TOKENIZE, &tick));
        struct wire_backup bk = {.path = path, .replace = i > 1};
        struct wire_backup_result *r = peer_call(p, WIRE_BACKUP, &bk);
        struct stat sb;
        assert_int_equal(stat(path, &sb), 0);
        assert_int_equal(sb.st_size, r->bytes);
        assert_int_equal(sb.st_mode & 0777, 0600);
        wire_free(r);
        assert_int_equal(sql_run(path, "SELECT count(*) FROM sessions"), i);
        assert_int_equal(sql_run(path, "SELECT count(*) FROM turns"), 2 * i);
        assert_int_equal(sql_run(path, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"), 0);
    }
    peer_await_tokens(q, 10); /* it went on meanwhile */
    struct wire_backup bk = {.path = path};
    peer_refused(p, WIRE_BACKUP, &bk, HEARTH_EIO, "exists");
    bk.path = "relative";
    peer_refused(p, WIRE_BACKUP, &bk, HEARTH_EPARAMS, "absolute");
    bk.path = "/nonexistent/copy";
    peer_refused(p, WIRE_BACKUP, &bk, HEARTH_EIO, "/nonexistent/copy");
    /* Over itself: hearthd would go on in a file that is nowhere any more. */
    static const char *const own[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(cmd, sizeof(cmd), "%s/../%s/sessions.db%s", b->state, strrchr(b->state, '/') + 1, own[i]);
        bk = (struct wire_backup){.path = cmd, .replace = true};
        peer_refused(p, WIRE_BACKUP, &bk, HEARTH_EPARAMS, "database itself");
    }
    peer_close(p);
    peer_close(q);

    /* Restored as hearthd.8 says: it is all there. */
    assert_int_equal(box_stop(b, SIGTERM), 0);
    snprintf(cmd, sizeof(cmd),
             "cd '%s' && rm -rf sessions.db sessions.db-wal sessions.db-shm journal && cp '%s' sessions.db", b->state,
             path);
    assert_int_equal(system(cmd), 0);
    box_start(b);
    p = peer_open(b);
    assert_int_equal(count(p), 10);
    struct wire_generate_result *r = run(p, "n=1", "s10");
    assert_int_equal(r->usage.prompt_tokens, 6 + 3);
    wire_free(r);
    peer_close(p);
}

/* hearthd ends in the middle of one: no hang, no half of a file. */
static void test_backup_and_end(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    char path[128], cmd[160];
    wire_free(run(p, "n=200 size=60000", "big")); /* 12 MB */
    snprintf(path, sizeof(path), "%s/copy.db", b->dir);
    struct wire_backup bk = {.path = path};
    peer_ask(p, WIRE_BACKUP, &bk);
    struct wire_shutdown now_please = {.now = true};
    peer_ask(p, WIRE_SHUTDOWN, &now_please);
    assert_int_equal(wait_exit(b->pid), 0);
    b->pid = 0;
    peer_close(p);
    if (access(path, F_OK) == 0)
        assert_int_equal(sql_run(path, "SELECT count(*) FROM turns"), 2);
    snprintf(cmd, sizeof(cmd), "test $(ls '%s' | grep -c 'copy[.]db[.]') = 0", b->dir);
    assert_int_equal(system(cmd), 0);
}

/* --- damage ---------------------------------------------------------------------------------------------- */

/* A document gets sums of its own where it is imported: what is damaged here would be sound there. */
static void test_damaged_export(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    char path[128];
    sqlite3 *db;
    wire_free(run(p, "n=3", "sound"));
    wire_free(run(p, "n=3", "other"));
    peer_close(p);
    assert_int_equal(box_stop(b, SIGTERM), 0);
    snprintf(path, sizeof(path), "%s/sessions.db", b->state);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "UPDATE turns SET tokens = zeroblob(length(tokens)) WHERE seq = 1 AND"
                                  " session = (SELECT id FROM sessions WHERE name = 'other')",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_changes(db), 1);
    sqlite3_close(db);
    box_start(b);
    p = peer_open(b);
    struct wire_session_export x = {.session = "other"};
    peer_refused(p, WIRE_SESSIONS_EXPORT, &x, HEARTH_ESTORE, "turn 1 is not as it was written");
    wire_free(page(p, "sound", 0));
    peer_close(p);
}

/* --- by whom --------------------------------------------------------------------------------------------- */

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
        struct wire_session_import im = import_of("mine"); /* another uid's name is no obstacle, and is not replaced */
        im.turns = &t;
        im.n_turns = 1;
        im.replace = true;
        wire_free(peer_call(p, WIRE_SESSIONS_IMPORT, &im));
        _exit(count(p) == 1 ? 0 : 4);
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
    char dir[80];
    snprintf(dir, sizeof(dir), "%s/run", b->dir);
    chmod(b->dir, 0755);
    chmod(dir, 0755);
    chmod(b->socket, 0666);
    assert_int_equal(another_user(b), 0);
    struct wire_session_show_result *s = show(p, "mine");
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
        cmocka_unit_test_setup_teardown(test_import, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_import_refused, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_import_pages, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_import_endless, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_age, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_room, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_room_at_start, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_much_room, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_room_and_damage, box_setup_idle, box_teardown),
        cmocka_unit_test_setup_teardown(test_damaged_session, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_gone, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_backup, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_backup_and_end, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_damaged_export, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_other_uid, box_setup, box_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
