/* journal.c - streams survive the loss of their clients, kill -9 of hearthd, full disks and damaged journals. */
#include "config.h"

#include "tests/daemon/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/stream/journal-read.h"
#include "tests/sql.h"

static struct wire_attach attach(int64_t stream, const char *request_id, int64_t from)
{
    return (struct wire_attach){.stream = stream, .request = request_id, .from = from};
}

static void kill_daemon(struct box *b)
{
    assert_int_equal(box_stop(b, SIGKILL), 128 + SIGKILL);
}

static void path_of(const struct box *b, int64_t stream, const char *suffix, char path[static 160])
{
    snprintf(path, 160, "%s/journal/%lld%s", b->state, (long long)stream, suffix);
}

static int64_t tokens_of(struct peer *p, const char *session)
{
    struct wire_session_ref ref = {.session = session};
    struct hearth_err e;
    struct wire_session_show_result *s = peer_answer(p, peer_ask(p, WIRE_SESSIONS_SHOW, &ref), WIRE_SESSIONS_SHOW, &e);
    int64_t n = s != NULL ? s->session.tokens : -1;
    wire_free(s);
    return n;
}

/* Attaches at `from` to a stream that ends by itself, and checks that the events are the rest of the result. */
static struct wire_generate_result *attach_to_end(struct peer *p, const struct wire_attach *a, const char *text)
{
    p->n_begin = 0;
    p->first = a->from;
    struct wire_generate_result *r = peer_call(p, WIRE_STREAM_ATTACH, a);
    assert_int_equal(p->n_begin, 1);
    assert_string_equal(r->text.data, text);
    assert_int_equal(p->n_tok, r->tokens.n);
    assert_true(p->n_text <= r->text.len);
    assert_memory_equal(r->text.data + r->text.len - p->n_text, p->text, p->n_text);
    return r;
}

/* hearthd is killed after some tokens; the next one continues, and the turn is in the session once. */
static void test_daemon_killed(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *clock = peer_open(b);
    struct wire_generate g = request("gate n=5 tail", "s"), h = request("n=2", "s");
    wire_free(run(p, "n=1", "s")); /* 3 + 1 */
    g.request = "r";
    peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 2);
    for (int i = 0; i < 3; i++)
        peer_tick(clock);
    peer_await_tokens(p, 3);
    int64_t stream = p->stream;
    kill_daemon(b);
    peer_close(p);
    peer_close(clock);

    box_start(b);
    p = peer_open(b), clock = peer_open(b);
    peer_refused(clock, WIRE_GENERATE, &h, HEARTH_ESESSIONBUSY, "s");
    struct wire_attach a = attach(stream, NULL, 3);
    p->first = 3;
    uint32_t id = peer_ask(p, WIRE_STREAM_ATTACH, &a);
    peer_await_begin(p, 1);
    assert_int_equal(p->stream, stream);
    assert_string_equal(p->request, "r");
    for (int i = 0; i < 3; i++)
        peer_tick(clock);
    struct hearth_err e;
    struct wire_generate_result *r = peer_answer(p, id, WIRE_STREAM_ATTACH, &e);
    assert_non_null(r);
    assert_string_equal(p->text, "t3 t4 !");
    assert_string_equal(r->text.data, "t0 t1 t2 t3 t4 !");
    assert_string_equal(r->finish_reason, "stop");
    assert_int_equal(r->usage.prompt_tokens, 4 + 13);
    assert_int_equal(r->usage.completion_tokens, 5);
    wire_free(r);
    assert_int_equal(tokens_of(p, "s"), 4 + 13 + 5);
    wire_free(run(p, "n=1", "s"));
    assert_true(p->stream > stream); /* numbers are not used twice */
    peer_close(p);
    peer_close(clock);

    kill_daemon(b); /* finished streams are also available in the next one */
    box_start(b);
    p = peer_open(b);
    a = attach(-1, "r", 4);
    wire_free(attach_to_end(p, &a, "t0 t1 t2 t3 t4 !"));
    assert_string_equal(p->text, "t4 !");
    assert_int_equal(tokens_of(p, "s"), 4 + 13 + 5 + 4);
    peer_close(p);
}

/* A stream that no engine had yet, and one whose client has disconnected: both end by themselves. */
static void test_nobody_there(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    setenv("FAKE_ENGINE", "mute", 1);
    struct wire_generate g = request("n=4", "s");
    g.request = "r";
    peer_ask(p, WIRE_GENERATE, &g);
    wire_free(peer_status(p)); /* it has been accepted */
    kill_daemon(b);
    unsetenv("FAKE_ENGINE");
    peer_close(p);
    box_start(b);
    p = peer_open(b);
    struct wire_attach a = attach(-1, "r", 0);
    wire_free(attach_to_end(p, &a, "t0 t1 t2 t3 "));
    assert_int_equal(tokens_of(p, "s"), 7);
    peer_close(p);
}

static void test_grace(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *clock = peer_open(b);
    struct wire_generate g = request("gate n=3", "s");
    peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 1);
    peer_tick(clock);
    peer_await_tokens(p, 1);
    int64_t stream = p->stream;
    peer_close(p);
    peer_tick(clock); /* continues without it */
    peer_tick(clock);
    p = peer_open(b);
    struct wire_attach a = attach(stream, NULL, 1);
    struct peer *second = peer_open(b);
    peer_tick(clock);
    wire_free(attach_to_end(p, &a, "t0 t1 t2 "));
    assert_string_equal(p->text, "t1 t2 ");
    a.from = 0;
    wire_free(attach_to_end(second, &a, "t0 t1 t2 "));
    a.from = 4; /* there are only three */
    peer_refused(second, WIRE_STREAM_ATTACH, &a, HEARTH_EPARAMS, "from");
    a = attach(stream + 1, NULL, 0);
    peer_refused(second, WIRE_STREAM_ATTACH, &a, HEARTH_ENOSTREAM, "there is no stream");
    peer_close(p);
    peer_close(second);
    peer_close(clock);
    assert_int_equal(box_stop(b, SIGTERM),
                     0); /* its exit status shows that everything was freed, in builds that check it */
}

/* Two readers of one stream, one of them late, and the same connection attaching twice. */
static void test_readers(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *late = peer_open(b), *clock = peer_open(b);
    struct wire_generate g = request("gate n=3", NULL);
    uint32_t id = peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 1);
    peer_tick(clock);
    peer_tick(clock);
    peer_await_tokens(p, 2);
    struct wire_attach a = attach(p->stream, NULL, 1);
    late->first = 1;
    uint32_t late_id = peer_ask(late, WIRE_STREAM_ATTACH, &a);
    peer_await_tokens(late, 2);
    assert_string_equal(late->text, "t1 ");
    peer_refused(late, WIRE_STREAM_ATTACH, &a, HEARTH_ECONFLICT, "already");
    peer_tick(clock);
    peer_tick(clock);
    struct hearth_err e;
    struct wire_generate_result *r = peer_answer(late, late_id, WIRE_STREAM_ATTACH, &e);
    assert_string_equal(late->text, "t1 t2 ");
    assert_string_equal(r->text.data, "t0 t1 t2 ");
    wire_free(r);
    r = peer_answer(p, id, WIRE_GENERATE, &e);
    assert_string_equal(p->text, "t0 t1 t2 ");
    wire_free(r);
    peer_close(p);
    peer_close(late);
    peer_close(clock);
}

static void test_retry(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *other = peer_open(b);
    struct wire_generate g = request("gate n=3", "s"), fails = request("fail=0", "s");
    g.request = "r";
    uint32_t id = peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 1);
    uint32_t again = peer_ask(other, WIRE_GENERATE, &g);
    peer_await_begin(other, 1);
    assert_int_equal(p->stream, other->stream);
    struct wire_generate changed = g;
    changed.max_tokens = 7;
    peer_refused(other, WIRE_GENERATE, &changed, HEARTH_ECONFLICT, "\"r\"");
    struct peer *clock = peer_open(b);
    for (int i = 0; i < 4; i++)
        peer_tick(clock);
    struct hearth_err e;
    struct wire_generate_result *r = peer_answer(p, id, WIRE_GENERATE, &e), *q;
    q = peer_answer(other, again, WIRE_GENERATE, &e);
    assert_string_equal(r->text.data, "t0 t1 t2 ");
    assert_string_equal(q->text.data, "t0 t1 t2 ");
    assert_string_equal(other->text, "t0 t1 t2 ");
    assert_true(q->seed == r->seed); /* although no seed was given */
    wire_free(q);
    g.stream = false; /* after the end; and the form of delivery is not part of the request's content */
    q = peer_call(other, WIRE_GENERATE, &g);
    assert_int_equal(q->stream, r->stream);
    assert_string_equal(q->text.data, "t0 t1 t2 ");
    wire_free(q);
    wire_free(r);
    assert_int_equal(tokens_of(p, "s"), 8 + 3);

    kill_daemon(b);
    peer_close(p);
    peer_close(other);
    peer_close(clock);
    box_start(b);
    p = peer_open(b);
    g.stream = true;
    r = peer_call(p, WIRE_GENERATE, &g);
    assert_string_equal(p->text, "t0 t1 t2 ");
    wire_free(r);
    peer_refused(p, WIRE_GENERATE, &changed, HEARTH_ECONFLICT, "\"r\"");
    assert_int_equal(tokens_of(p, "s"), 8 + 3);
    fails.request = "f"; /* a request that generated nothing may be tried again */
    peer_refused(p, WIRE_GENERATE, &fails, HEARTH_EBADMODEL, "as the prompt said");
    peer_refused(p, WIRE_GENERATE, &fails, HEARTH_EBADMODEL, "as the prompt said");
    peer_close(p);
    assert_int_equal(box_stop(b, SIGTERM), 0);
}

static int64_t after_restart(struct box *b, const char *session)
{
    box_start(b);
    struct peer *p = peer_open(b);
    int64_t n = tokens_of(p, session);
    peer_close(p);
    kill_daemon(b);
    return n;
}

/* Takes the write lock of the database, as another program can; sqlite3_close() gives it back. */
static sqlite3 *lock(const struct box *b)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(b->db, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    return db;
}

/* A generation whose turn cannot be written. */
static void not_written(struct peer *p, const char *text, const char *session)
{
    struct wire_generate_result *r = run(p, text, session);
    assert_string_equal(r->finish_reason, "error");
    assert_non_null(strstr(r->error, "locked"));
    wire_free(r);
}

/* A turn could not be written, and the session went on without it before hearthd was killed: the later stream counts,
 * whether it had ended or not. */
static void test_replaced(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *clock = peer_open(b);
    wire_free(run(p, "n=1", "s")); /* 3 + 1 */
    sqlite3 *db = lock(b);
    not_written(p, "n=2", "s");
    struct wire_generate g = request("gate n=5", "s");
    g.request = "r";
    p->n_tok = 0;
    peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 3);
    peer_tick(clock);
    peer_await_tokens(p, 1);
    sqlite3_close(db);
    kill_daemon(b);
    peer_close(p);
    peer_close(clock);

    box_start(b);
    p = peer_open(b), clock = peer_open(b);
    struct wire_attach a = attach(-1, "r", 1);
    p->first = 1;
    uint32_t id = peer_ask(p, WIRE_STREAM_ATTACH, &a);
    peer_await_begin(p, 1);
    for (int i = 0; i < 5; i++)
        peer_tick(clock);
    struct hearth_err e;
    struct wire_generate_result *r = peer_answer(p, id, WIRE_STREAM_ATTACH, &e);
    assert_non_null(r);
    assert_string_equal(r->text.data, "t0 t1 t2 t3 t4 ");
    wire_free(r);
    assert_int_equal(tokens_of(p, "s"), 4 + 8 + 5);
    assert_int_equal(box_log_count(b, "the session has gone on without it"), 1);

    db = lock(b);
    not_written(p, "n=2", "s");
    not_written(p, "n=3", "s");
    kill_daemon(b);
    sqlite3_close(db);
    peer_close(p);
    peer_close(clock);
    for (int i = 0; i < 2; i++) {
        box_start(b);
        p = peer_open(b);
        assert_int_equal(tokens_of(p, "s"), 17 + 3 + 3);
        assert_int_equal(box_log_count(b, "the session has gone on without it"), 2);
        peer_close(p);
        kill_daemon(b);
    }
}

/* A turn that was to create a session could not be written, and a later one created it: when that session is removed,
 * the earlier one does not create it again. */
static void test_not_created_again(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *clock = peer_open(b);
    struct wire_session_ref ref = {.session = "new"};
    wire_free(run(p, "n=1", "s"));
    sqlite3 *db = lock(b);
    not_written(p, "n=2", "new");
    struct wire_generate g = request("gate n=1", "new");
    uint32_t id = peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 3);
    sqlite3_close(db);
    for (int i = 0; i < 2; i++)
        peer_tick(clock);
    struct hearth_err e;
    struct wire_generate_result *r = peer_answer(p, id, WIRE_GENERATE, &e);
    assert_string_equal(r->finish_reason, "stop");
    wire_free(r);
    wire_free(peer_call(p, WIRE_SESSIONS_REMOVE, &ref));
    assert_int_equal(tokens_of(p, "s"), 4);
    assert_int_equal(tokens_of(p, "new"), -1);
    peer_close(p);
    peer_close(clock);
    kill_daemon(b);
    box_start(b);
    p = peer_open(b);
    assert_int_equal(tokens_of(p, "new"), -1);
    peer_close(p);
}

/* Killed between the end of the journal and the commit of its turn to the session, and after the commit. */
static void test_fold_once(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    wire_free(run(p, "n=3", "new")); /* 3 + 3 */
    wire_free(run(p, "n=1", "new")); /* + 3 + 1 */
    peer_close(p);
    kill_daemon(b);
    sql_run(
        b->db,
        "PRAGMA foreign_keys = ON; DELETE FROM folded; DELETE FROM sessions;"); /* as if neither had been committed */
    assert_int_equal(after_restart(b, "new"), 10);
    assert_int_equal(after_restart(b, "new"), 10);
    sql_run(
        b->db,
        "DELETE FROM folded WHERE stream = 2;"); /* its turn is there: a session that has continued is not changed */
    assert_int_equal(after_restart(b, "new"), 10);
    assert_true(box_log_has(b, "cannot be written to its session"));
    sql_run(b->db,
            "PRAGMA foreign_keys = ON; DELETE FROM sessions; DELETE FROM folded; INSERT INTO folded VALUES(1), (2);");
    assert_int_equal(after_restart(b, "new"), -1); /* removed, and remembered as committed */
}

/* A full disk. */
static void test_full_disk(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b), *clock = peer_open(b);
    struct wire_generate g = request("gate n=4 size=2000", "s");
    uint32_t id = peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 1);
    peer_tick(clock);
    peer_await_tokens(p, 1);
    int64_t stream = p->stream;
    box_limit_files(b, 3000);
    for (int i = 0; i < 2; i++)
        peer_tick(clock);
    peer_await_tokens(p, 3); /* it continues, with a notice */
    assert_int_equal(p->n_notices, 1);
    struct peer *new = peer_open(b);
    box_limit_files(b, 10);
    struct wire_generate_result *r = run(new, "n=2", NULL);
    assert_int_equal(new->n_notices, 1);
    assert_string_equal(r->text.data, "t0 t1 ");
    wire_free(r);
    box_limit_files(b, 0);
    peer_tick(clock);
    peer_tick(clock);
    struct hearth_err e;
    r = peer_answer(p, id, WIRE_GENERATE, &e);
    assert_string_equal(r->finish_reason, "stop");
    assert_int_equal(r->tokens.n, 4);
    wire_free(r);
    struct wire_attach a = attach(stream, NULL, 0); /* that stream left no journal */
    peer_refused(p, WIRE_STREAM_ATTACH, &a, HEARTH_ENOSTREAM, "");
    peer_close(p);
    peer_close(new);
    peer_close(clock);
    box_works(b);
}

/* Checks what a start recovers from a journal with other contents. */
static void damaged(struct box *b, int64_t stream, const char *log)
{
    char path[160];
    box_start(b);
    box_works(b);
    if (log && !box_log_has(b, log))
        fail_msg("the log does not say \"%s\"", log);
    kill_daemon(b);
    path_of(b, stream, ".bad", path);
    unlink(path);
    path_of(b, stream, "", path);
    unlink(path);
}

static void put(const char *path, const void *data, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), len);
    close(fd);
}

static void test_damaged(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    struct wire_generate g = request("gate n=9", NULL);
    static uint8_t whole[65536], bytes[65536];
    char path[160], other[256];
    peer_ask(p, WIRE_GENERATE, &g);
    peer_await_begin(p, 1);
    peer_tick(p);
    peer_await_tokens(p, 1);
    kill_daemon(b);
    int64_t stream = p->stream;
    peer_close(p);
    path_of(b, stream, "", path);
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, whole, sizeof whole);
    close(fd);
    struct stat sb;
    assert_int_equal(stat(path, &sb), 0);
    assert_int_equal(sb.st_mode & 0777, 0600);
    assert_true(n > 100);

    put(path, whole, 0); /* killed before the head was written */
    damaged(b, stream, NULL);
    assert_false(box_log_has(b, "set aside"));
    put(path, whole, 7);
    damaged(b, stream, "not a journal: set aside");
    put(path, whole, 20);
    damaged(b, stream, "an unfinished record: set aside");
    put(path, whole, (size_t)n - 1);
    damaged(b, stream, "an unfinished record: what follows byte");
    memcpy(bytes, whole, (size_t)n);
    bytes[40] ^= 4;
    put(path, bytes, (size_t)n);
    damaged(b, stream, "checksum is wrong: set aside");
    memcpy(bytes, whole, (size_t)n);
    bytes[n - 3] ^= 4;
    put(path, bytes, (size_t)n);
    damaged(b, stream, "checksum is wrong: what follows byte");
    memcpy(bytes, whole, (size_t)n);
    bytes[8] = 9;
    put(path, bytes, (size_t)n);
    damaged(b, stream, "of version 9, this hearthd knows 1: set aside");
    path_of(b, stream + 5, "", other); /* the journal of another stream, under this number */
    put(other, whole, (size_t)n);
    damaged(b, stream + 5, "does not belong there: set aside");
    snprintf(other, sizeof other, "%s/victim", b->dir);
    put(other, whole, (size_t)n);
    assert_int_equal(symlink(other, path), 0);
    damaged(b, stream, "a symbolic link: set aside");
    assert_int_equal(stat(other, &sb), 0); /* the link was not followed */
    assert_int_equal(sb.st_size, n);
    assert_int_equal(mkfifo(path, 0600), 0);
    damaged(b, stream, "not a file: set aside");
    assert_int_equal(mkdir(path, 0700), 0);
    damaged(b, stream, "s a directory: set aside");
    path_of(b, stream, ".bad", other);
    rmdir(other);
    put(path, whole, (size_t)n);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 65534, 65534), 0);
        damaged(b, stream, "belongs to user 65534: set aside");
    }
    snprintf(other, sizeof other, "%s/journal/9223372036854775806", b->state); /* the next number would be negative */
    put(other, whole, (size_t)n);
    box_start(b);
    p = peer_open(b);
    wire_free(run(p, "n=1", "a"));
    assert_true(box_log_has(b, "no stream has that number"));
    assert_true(p->stream > stream && p->stream < stream + 100);
    peer_close(p);
    assert_int_equal(box_stop(b, SIGTERM), 0);
    /* The directory itself is replaced. */
    snprintf(other, sizeof other, "rm -rf '%s/journal'; ln -s /tmp '%s/journal'", b->state, b->state);
    assert_int_equal(system(other), 0);
    damaged(b, stream, "streams have no journal");
    /* Sessions work without it: numbers continue after those in the database. */
    box_start(b);
    p = peer_open(b);
    struct wire_generate_result *r = run(p, "n=1", "a");
    assert_string_equal(r->finish_reason, "stop");
    wire_free(r);
    struct wire_session_show_result *a = peer_call(p, WIRE_SESSIONS_SHOW, &(struct wire_session_ref){.session = "a"});
    assert_int_equal(a->session.turns, 4);
    wire_free(a);
    peer_close(p);
}

static void test_expires(void **state)
{
    struct box *b = *state;
    struct peer *p = peer_open(b);
    int64_t first = 0;
    for (int i = 0; i < 12; i++) { /* 12 x 200 kB with a limit of 1 MiB */
        wire_free(run(p, "n=100 size=2000", NULL));
        first = first == 0 ? p->stream : first;
    }
    struct wire_attach a = attach(first, NULL, 0);
    peer_refused(p, WIRE_STREAM_ATTACH, &a, HEARTH_ENOSTREAM, "");
    a.stream = p->stream;
    p->n_begin = 0;
    wire_free(peer_call(p, WIRE_STREAM_ATTACH, &a));
    peer_close(p);
}

/* Plants the journal of a finished stream, as hearthd would have left it. */
static void plant(const struct box *b, int64_t stream, double ended)
{
    char path[160];
    struct wire_buf buf = {0};
    struct wire_journal_head h = {
        .stream = stream, .uid = geteuid(), .session = "00000000000000aa", .model = "fake", .path = "/fake.gguf"};
    h.req = request("n=0", NULL);
    int32_t id = 'n';
    struct wire_engine_begin begin = {.stream = stream, .appended = {&id, 1}};
    struct wire_journal_end end = {.time = ended, .result = {.finish_reason = "stop"}};
    const struct {
        int method;
        const void *body;
    } records[] = {{WIRE_JOURNAL_HEAD, &h}, {WIRE_ENGINE_BEGIN, &begin}, {WIRE_JOURNAL_END, &end}};
    path_of(b, stream, "", path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    off_t at = 0;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(journal_pack(&buf, at, &wire_methods[records[i].method], records[i].body, NULL), 0);
        assert_int_equal(write(fd, buf.data, buf.len), buf.len);
        at += (off_t)buf.len;
    }
    close(fd);
    wire_buf_fini(&buf);
}

/* The clock decides only how long finished streams are kept; after a jump it decides nothing. */
static void attachable(struct box *b, bool all)
{
    struct peer *p = peer_open(b);
    for (int64_t i = 11; i <= 14; i++) {
        struct wire_attach a = attach(i, NULL, 0);
        char path[160];
        path_of(b, i, "", path);
        bool kept = all || i == 12 || i == 13;
        if (kept)
            wire_free(peer_call(p, WIRE_STREAM_ATTACH, &a));
        else
            peer_refused(p, WIRE_STREAM_ATTACH, &a, HEARTH_ENOSTREAM, "");
        assert_int_equal(access(path, F_OK) == 0, kept);
    }
    peer_close(p);
}

static void test_clock(void **state)
{
    struct box *b = *state;
    const double day = 24 * 3600, now = (double)time(NULL);
    box_works(b);
    kill_daemon(b);
    plant(b, 11, now - day - 60);
    plant(b, 12, now - day + 600);
    plant(b, 13, now + 3650 * day); /* the clock was set back afterwards */
    plant(b, 14, -1e18);
    char text[96];
    snprintf(text, sizeof text, "UPDATE clock SET wall = %f, doubt = 0", now - 30 * day);
    sql_run(b->db, text);
    box_start(b);
    attachable(b, true);
    kill_daemon(b);
    snprintf(text, sizeof text, "UPDATE clock SET wall = %f, doubt = 0", now - 60);
    sql_run(b->db, text);
    box_start(b);
    attachable(b, false);
    struct peer *p = peer_open(b);
    wire_free(run(p, "n=1", NULL));
    assert_int_equal(p->stream, 15); /* numbers continue after those */
    peer_close(p);
}

static int setup_small(void **state)
{
    box_setup_idle(state);
    box_configure(*state, "journal_bytes = 1M\n");
    box_start(*state);
    return 0;
}

static int setup_mute(void **state)
{
    setenv("FAKE_ENGINE", "mute", 1);
    box_setup(state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_daemon_killed, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_nobody_there, setup_mute, box_teardown),
        cmocka_unit_test_setup_teardown(test_grace, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_readers, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_retry, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_replaced, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_not_created_again, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_fold_once, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_damaged, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_clock, box_setup, box_teardown),
        cmocka_unit_test_setup_teardown(test_expires, setup_small, box_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
