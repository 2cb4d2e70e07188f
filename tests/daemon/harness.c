/* harness.c - see harness.h. */
#include "config.h"

#include "tests/daemon/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_MS = 120000 };

/* --- the daemon ----------------------------------------------------------------------------------------- */

static const char *build(void)
{
    const char *dir = getenv("top_builddir");
    return dir != NULL ? dir : ".";
}

char *box_model(const struct box *b, const char *name)
{
    char *path;
    assert_true(asprintf(&path, "%s/%s.gguf", b->models, name) > 0);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    close(fd);
    return path;
}

int box_setup_idle(void **state)
{
    struct box *b = calloc(1, sizeof *b);
    const char *tmp = getenv("TMPDIR");
    snprintf(b->dir, sizeof b->dir, "%s/hearth-test-XXXXXX", tmp && strlen(tmp) < 40 ? tmp : "/tmp");
    assert_non_null(mkdtemp(b->dir));
    snprintf(b->socket, sizeof b->socket, "%s/run/hearth.sock", b->dir);
    snprintf(b->state, sizeof b->state, "%s/state", b->dir);
    snprintf(b->db, sizeof b->db, "%s/sessions.db", b->state);
    snprintf(b->conf, sizeof b->conf, "%s/hearth.conf", b->dir);
    snprintf(b->log, sizeof b->log, "%s/log", b->dir);
    snprintf(b->models, sizeof b->models, "%s/models", b->dir);
    assert_int_equal(mkdir(b->models, 0755), 0);
    free(box_model(b, "fake"));
    free(box_model(b, "other"));
    box_configure(b, "");
    *state = b;
    return 0;
}

int box_setup(void **state)
{
    box_setup_idle(state);
    box_start(*state);
    return 0;
}

int box_teardown(void **state)
{
    struct box *b = *state;
    if (b->pid > 0)
        box_stop(b, SIGKILL);
    char cmd[96];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", b->dir);
    assert_int_equal(system(cmd), 0);
    free(b);
    return 0;
}

void box_configure(struct box *b, const char *lines)
{
    FILE *f = fopen(b->conf, "we");
    assert_non_null(f);
    fprintf(f, "model_dir = %s\n%s", b->models, lines);
    /* A fake engine that is suspended for a while, as on a loaded machine, must not count as unresponsive. */
    if (!strstr(lines, "engine_timeout"))
        fprintf(f, "engine_timeout = 1200\n");
    assert_int_equal(fclose(f), 0);
}

pid_t box_spawn(struct box *b, const char *const extra[], int *ready)
{
    int pair[2];
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char program[4096], engine[4096], fd[16];
        const char *argv[24] = {"hearthd",  "--config", b->conf,      "--socket", b->socket,     "--state", b->state,
                                "--engine", engine,     "--ready-fd", fd,         "--log-level", "debug"};
        size_t n = 13;
        for (; extra != NULL && *extra != NULL; extra++)
            argv[n++] = *extra;
        snprintf(program, sizeof program, "%s/hearthd", build());
        snprintf(engine, sizeof engine, "%s/tests/daemon/fake-engine", build());
        if (b->engine)
            snprintf(engine, sizeof engine, "%s", b->engine);
        snprintf(fd, sizeof fd, "%d", pair[1]);
        fcntl(pair[1], F_SETFD, 0);
        int log = open(b->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(log, STDERR_FILENO);
        close(log);
        execv(program, (char **)argv);
        _exit(126);
    }
    close(pair[1]);
    *ready = pair[0];
    return pid;
}

void box_start(struct box *b)
{
    static const char *const foreground[] = {"--foreground", NULL};
    int ready;
    char byte;
    b->pid = box_spawn(b, foreground, &ready);
    if (read(ready, &byte, 1) != 1) {
        char cmd[160];
        snprintf(cmd, sizeof cmd, "sed 's/^/# /' '%s'", b->log);
        (void)!system(cmd);
        fail_msg("hearthd did not start");
    }
    close(ready);
}

void box_limit_files(const struct box *b, unsigned long bytes)
{
    struct rlimit l = {bytes > 0 ? bytes : RLIM_INFINITY, RLIM_INFINITY};
    assert_int_equal(prlimit(b->pid, RLIMIT_FSIZE, &l, NULL), 0);
}

void box_open_to_all(const struct box *b)
{
    char run_dir[80];
    snprintf(run_dir, sizeof run_dir, "%s/run", b->dir);
    assert_int_equal(chmod(b->dir, 0755), 0);
    assert_int_equal(chmod(run_dir, 0755), 0);
    assert_int_equal(chmod(b->socket, 0666), 0);
}

int wait_exit(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int box_stop(struct box *b, int signal)
{
    if (signal != 0)
        kill(b->pid, signal);
    int status = wait_exit(b->pid);
    b->pid = 0;
    return status;
}

int box_log_count(const struct box *b, const char *text)
{
    FILE *f = fopen(b->log, "re");
    char line[4096];
    int n = 0;
    while (f && fgets(line, sizeof line, f))
        n += strstr(line, text) != NULL;
    if (f)
        fclose(f);
    return n;
}

bool box_log_has(const struct box *b, const char *text)
{
    return box_log_count(b, text) > 0;
}

/* --- peers ---------------------------------------------------------------------------------------------- */

struct peer *peer_try(const struct box *b)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strcpy(to.sun_path, b->socket);
    struct peer *p = calloc(1, sizeof *p);
    p->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(p->fd, (struct sockaddr *)&to, sizeof to) == 0)
        return p;
    close(p->fd);
    free(p);
    return NULL;
}

struct peer *peer_open(const struct box *b)
{
    struct peer *p = peer_try(b);
    assert_non_null(p);
    return p;
}

void peer_close(struct peer *p)
{
    close(p->fd);
    free(p->in);
    free(p->text);
    free(p->end_text);
    free(p);
}

void peer_send(struct peer *p, const void *data, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = send(p->fd, (const char *)data + at, len - at, MSG_NOSIGNAL);
        if (n < 0 && errno == EPIPE)
            return; /* the daemon has closed the connection; what it sent can still be read */
        assert_true(n > 0);
        at += (size_t)n;
    }
}

uint32_t peer_ask(struct peer *p, int method, const void *params)
{
    struct wire_buf b = {0};
    struct hearth_err e = {0};
    if (wire_pack_request(&b, ++p->last_id, &wire_methods[method], params, &e) != 0)
        fail_msg("%s", e.msg);
    peer_send(p, b.data, b.len);
    wire_buf_fini(&b);
    return p->last_id;
}

void peer_notify(struct peer *p, int method, const void *params)
{
    struct wire_buf b = {0};
    struct hearth_err e = {0};
    if (wire_pack_event(&b, &wire_methods[method], params, NULL, NULL, &e) != 0)
        fail_msg("%s", e.msg);
    peer_send(p, b.data, b.len);
    wire_buf_fini(&b);
}

static void on_end(struct peer *p, const struct wire_generate_result *r)
{
    p->n_ends++;
    snprintf(p->ended, sizeof p->ended, "%s", r->request);
    snprintf(p->reason, sizeof p->reason, "%s", r->finish_reason);
    free(p->end_text);
    p->end_text = strdup(r->text.data);
}

static void on_error(struct peer *p, const struct wire_stream_error *s)
{
    p->n_ends++;
    snprintf(p->ended, sizeof p->ended, "%s", s->request);
    snprintf(p->reason, sizeof p->reason, "%d %s", s->error.is_request, s->error.line);
}

static void on_tokens(struct peer *p, const struct wire_stream_tokens *t)
{
    assert_int_equal(t->stream, p->stream);
    assert_int_equal(t->index, p->n_tok); /* every token once, in order */
    p->n_tok += t->count;
    p->text = realloc(p->text, p->n_text + t->text.len + 1);
    if (t->text.len > 0)
        memcpy(p->text + p->n_text, t->text.data, t->text.len);
    p->n_text += t->text.len;
    p->text[p->n_text] = '\0';
    p->n_tokens_events++;
}

static void on_event(struct peer *p, const struct wire_frame *f)
{
    const struct wire_method *m = wire_method_find(f->method, f->method_len);
    assert_non_null(m);
    void *body;
    assert_int_equal(wire_unpack(m->params, f->body, f->body_len, &body, NULL), 0);
    if (m == &wire_methods[WIRE_STREAM_BEGIN]) {
        const struct wire_stream_begin *b = body;
        p->n_begin++;
        p->stream = b->stream;
        p->n_tok = p->first;
        p->first = 0;
        p->n_text = 0;
        snprintf(p->session, sizeof p->session, "%s", b->session != NULL ? b->session : "");
        snprintf(p->request, sizeof p->request, "%s", b->request != NULL ? b->request : "");
    } else if (m == &wire_methods[WIRE_STREAM_TOKENS]) {
        on_tokens(p, body);
    } else if (m == &wire_methods[WIRE_MODEL_PROGRESS]) {
        assert_null(strchr(((struct wire_model_progress *)body)->model, '/')); /* the name, not the path */
        p->n_progress++;
    } else if (m == &wire_methods[WIRE_STREAM_PROGRESS]) {
        const struct wire_stream_progress *s = body;
        assert_int_equal(s->stream, p->stream);
        assert_int_equal(p->n_tok, 0); /* comes before the first token */
        assert_int_equal(s->done, p->n_prompt++);
    } else if (m == &wire_methods[WIRE_STREAM_QUEUED]) {
        const struct wire_stream_queued *q = body;
        size_t n = strlen(p->queued);
        snprintf(p->queued + n, sizeof p->queued - n, "%s%s:%lld", n ? " " : "", q->request ? q->request : "",
                 (long long)q->position);
        p->queue_seconds = q->seconds;
    } else if (m == &wire_methods[WIRE_STREAM_END]) {
        on_end(p, body);
    } else if (m == &wire_methods[WIRE_STREAM_ERROR]) {
        on_error(p, body);
    } else if (m == &wire_methods[WIRE_NOTICE]) {
        const struct wire_notice *n = body;
        snprintf(p->notice, sizeof p->notice, "%s: %s", n->name, n->message);
        p->n_notices++;
    } else {
        fail_msg("event %s is not for clients", m->name);
    }
    wire_free(body);
}

/* Reads once; false at the end of the stream. */
static bool fill(struct peer *p)
{
    struct pollfd pfd = {p->fd, POLLIN, 0};
    if (poll(&pfd, 1, PATIENCE_MS) <= 0)
        fail_msg("nothing came for %d s", PATIENCE_MS / 1000);
    if (p->cap - p->len < 65536)
        p->in = realloc(p->in, p->cap = p->cap * 2 + 65536);
    ssize_t n = recv(p->fd, p->in + p->len, p->cap - p->len, 0);
    if (n <= 0)
        return false;
    p->len += (size_t)n;
    return true;
}

/* The next frame, whose bytes are p->in[0..return). 0 at the end of the stream. */
static size_t next_frame(struct peer *p, struct wire_frame *f)
{
    for (;;) {
        struct wire_scan scan = {0};
        struct hearth_err e;
        ptrdiff_t n = p->len > 0 ? wire_scan(&scan, p->in, p->len, WIRE_LINK_FRAME_MAX, &e) : 0;
        if (n < 0)
            fail_msg("hearthd sent what is not a frame: %s", e.msg);
        if (n > 0) {
            assert_int_equal(wire_frame_open(f, p->in, (size_t)n, NULL), 0);
            return (size_t)n;
        }
        if (!fill(p))
            return 0;
    }
}

static void drop(struct peer *p, size_t n)
{
    memmove(p->in, p->in + n, p->len - n);
    p->len -= n;
}

void *peer_answer(struct peer *p, uint32_t id, int method, struct hearth_err *e)
{
    struct wire_frame f;
    size_t n;
    while ((n = next_frame(p, &f)) > 0) {
        if (f.kind == WIRE_FRAME_EVENT) {
            on_event(p, &f);
            drop(p, n);
            continue;
        }
        assert_int_equal(f.kind, WIRE_FRAME_RESPONSE);
        assert_int_equal(f.id, id);
        void *result = NULL;
        if (f.is_error)
            *e = f.err;
        else if (wire_unpack(wire_methods[method].result, f.body, f.body_len, &result, e) != 0)
            fail_msg("%s", e->msg);
        drop(p, n);
        return result;
    }
    fail_msg("hearthd closed the connection");
    return NULL;
}

void *peer_call(struct peer *p, int method, const void *params)
{
    struct hearth_err e = {0};
    void *r = peer_answer(p, peer_ask(p, method, params), method, &e);
    if (!r)
        fail_msg("%s: %s", wire_methods[method].name, e.msg);
    return r;
}

void peer_expect_text(struct peer *p, uint32_t id, const char *text)
{
    struct hearth_err e;
    struct wire_generate_result *r = peer_answer(p, id, WIRE_GENERATE, &e);
    if (!r)
        fail_msg("\"%s\" was expected: %s", text, e.msg);
    assert_string_equal(r->text.data, text);
    wire_free(r);
}

void peer_refused(struct peer *p, int method, const void *params, int code, const char *names)
{
    struct hearth_err e = {0};
    void *r = peer_answer(p, peer_ask(p, method, params), method, &e);
    assert_null(r);
    if (e.code != code || !strstr(e.msg, names))
        fail_msg("%s: %s: %s; want %s naming \"%s\"", wire_methods[method].name, err_name(e.code), e.msg,
                 err_name(code), names);
}

/* Handles one event; anything else is unexpected. */
static void take_event(struct peer *p)
{
    struct wire_frame f;
    size_t n = next_frame(p, &f);
    assert_true(n > 0);
    assert_int_equal(f.kind, WIRE_FRAME_EVENT);
    on_event(p, &f);
    drop(p, n);
}

void peer_await_tokens(struct peer *p, int64_t n)
{
    while (p->n_tok < n)
        take_event(p);
}

void peer_await_begin(struct peer *p, int n)
{
    while (p->n_begin < n)
        take_event(p);
}

void peer_await_ends(struct peer *p, int n)
{
    while (p->n_ends < n)
        take_event(p);
}

int peer_error(struct peer *p, uint32_t *id, struct hearth_err *e)
{
    struct wire_frame f;
    size_t n = next_frame(p, &f);
    if (n == 0)
        fail_msg("hearthd closed the connection without a word");
    assert_int_equal(f.kind, WIRE_FRAME_RESPONSE);
    assert_true(f.is_error);
    *e = f.err;
    if (id)
        *id = f.id;
    drop(p, n);
    return e->code;
}

void peer_await_close(struct peer *p)
{
    while (fill(p))
        p->len = 0;
}

/* --- generations ---------------------------------------------------------------------------------------- */

struct wire_generate request(const char *text, const char *session)
{
    struct wire_generate g;
    wire_defaults(wire_methods[WIRE_GENERATE].params, &g);
    g.model = "fake";
    g.session = session;
    if (text)
        g.text = (struct wire_bytes){text, strlen(text)};
    return g;
}

struct wire_generate_result *run(struct peer *p, const char *text, const char *session)
{
    struct wire_generate g = request(text, session);
    int begun = p->n_begin;
    struct wire_generate_result *r = peer_call(p, WIRE_GENERATE, &g);
    assert_int_equal(p->n_begin, begun + 1);
    assert_int_equal(r->stream, p->stream);
    assert_int_equal(r->text.len, p->n_text); /* the frames' texts add up to the result's */
    if (p->n_text > 0)
        assert_memory_equal(r->text.data, p->text, p->n_text);
    assert_int_equal(r->usage.completion_tokens, p->n_tok);
    return r;
}

void peer_tick(struct peer *p)
{
    struct wire_tokenize t;
    wire_defaults(wire_methods[WIRE_TOKENIZE].params, &t);
    t.model = "fake";
    t.text = (struct wire_bytes){"tick", 4};
    wire_free(peer_call(p, WIRE_TOKENIZE, &t));
}

struct wire_status_result *peer_status(struct peer *p)
{
    struct wire_empty none = {0};
    return peer_call(p, WIRE_STATUS, &none);
}

void run_many(struct peer *p, int n)
{
    char name[16];
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "s%d", i);
        wire_free(run(p, "n=1", name));
    }
}

struct wire_session_show_result *peer_show(struct peer *p, const char *session)
{
    struct wire_session_ref r = {.session = session, .tokens = true};
    return peer_call(p, WIRE_SESSIONS_SHOW, &r);
}

size_t peer_sessions(struct peer *p)
{
    struct wire_sessions_list all = {0};
    struct wire_sessions_list_result *l = peer_call(p, WIRE_SESSIONS_LIST, &all);
    size_t n = l->n_sessions;
    for (size_t i = 0; i < l->n_sessions; i++)
        n -= l->sessions[i].damaged;
    wire_free(l);
    return n;
}

void box_works(const struct box *b)
{
    struct peer *p = peer_open(b);
    struct wire_generate_result *r = run(p, "n=2", NULL);
    assert_string_equal(r->text.data, "t0 t1 ");
    assert_string_equal(r->finish_reason, "stop");
    wire_free(r);
    peer_close(p);
}
