/* drive.c - drives a hearth-engine over a socket pair; see drive.h. */
#include "config.h"

#include "tests/daemon/drive.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { PATIENCE_MS = 60000 };

void drive_open(struct drive *d, char *const *args)
{
    int pair[2];
    char program[4096], *argv[16] = {program};
    const char *dir = getenv("top_builddir");
    memset(d, 0, sizeof *d);
    signal(SIGPIPE, SIG_IGN);
    snprintf(program, sizeof program, "%s/hearth-engine", dir ? dir : ".");
    for (int i = 0; args && args[i] && i < 14; i++)
        argv[i + 1] = args[i];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    d->pid = fork();
    assert_true(d->pid >= 0);
    if (d->pid == 0) {
        if (pair[1] == 3) /* dup2() onto the same descriptor would leave close-on-exec set */
            pair[1] = dup(3);
        dup2(pair[1], 3);
        execv(program, argv);
        perror(program);
        _exit(127);
    }
    close(pair[1]);
    d->fd = pair[0];
}

int drive_close(struct drive *d)
{
    int status;
    close(d->fd);
    assert_int_equal(waitpid(d->pid, &status, 0), d->pid);
    for (size_t i = 0; i < d->n_heard; i++) {
        free(d->heard[i]->text);
        free(d->heard[i]->held);
        wire_free(d->heard[i]->block);
        free(d->heard[i]);
    }
    wire_buf_fini(&d->in);
    wire_buf_fini(&d->out);
    return status;
}

static void send_request(struct drive *d, uint32_t id, int method, const void *params)
{
    struct hearth_err e;
    d->out.len = 0;
    assert_int_equal(wire_pack_request(&d->out, id, &wire_methods[method], params, &e), 0);
    for (size_t at = 0; at < d->out.len;) {
        ssize_t n = write(d->fd, d->out.data + at, d->out.len - at);
        assert_true(n > 0);
        at += (size_t)n;
    }
}

static void add_text(struct heard *h, struct wire_bytes b)
{
    h->text = realloc(h->text, h->n_text + b.len + 1);
    assert_non_null(h->text);
    if (b.len)
        memcpy(h->text + h->n_text, b.data, b.len);
    h->n_text += b.len;
    h->text[h->n_text] = 0;
}

static struct heard *find(struct drive *d, int64_t stream)
{
    for (size_t i = 0; i < d->n_heard; i++)
        if (d->heard[i]->stream == stream)
            return d->heard[i];
    fail_msg("an event of stream %lld, which nobody began", (long long)stream);
    return NULL;
}

static void on_event(struct drive *d, const struct wire_method *m, const void *msg)
{
    if (m == &wire_methods[WIRE_ENGINE_BEGIN]) {
        const struct wire_engine_begin *b = msg;
        struct heard *h = find(d, b->stream);
        assert_false(h->begun || h->ended);
        h->begun = true;
        assert_true(b->appended.n <= DRIVE_TOKENS);
        if (b->appended.n)
            memcpy(h->appended, b->appended.v, b->appended.n * sizeof *b->appended.v);
        h->n_appended = b->appended.n;
    } else if (m == &wire_methods[WIRE_ENGINE_TOKENS]) {
        const struct wire_engine_tokens *t = msg;
        struct heard *h = find(d, t->stream);
        assert_true(h->begun && !h->ended);
        if (h->n_frame++)
            assert_int_equal(t->index, h->result.usage.completion_tokens); /* where the last frame ended */
        h->result.usage.completion_tokens = t->index + (int64_t)t->tokens.n;
        for (size_t i = 0; i < t->tokens.n; i++) {
            assert_true(h->n_token < DRIVE_TOKENS);
            if (t->n_logprobs) {
                assert_int_equal(t->n_logprobs, t->tokens.n);
                assert_int_equal(t->logprobs[i].id, t->tokens.v[i]);
                h->logprob[h->n_token] = t->logprobs[i].logprob;
                h->n_top[h->n_token] = t->logprobs[i].n_top;
            }
            h->token[h->n_token++] = t->tokens.v[i];
        }
        add_text(h, t->text);
        free(h->held);
        h->held = strndup(t->held.len ? t->held.data : "", t->held.len);
        assert_non_null(h->held);
    } else if (m == &wire_methods[WIRE_ENGINE_PROGRESS]) {
        const struct wire_stream_progress *p = msg;
        struct heard *h = find(d, p->stream);
        assert_true(h->begun && !h->ended && !h->n_token);
        assert_true(p->done > h->prompt_done && p->done < p->total);
        h->n_prompt_events++;
        h->prompt_done = p->done;
        h->prompt_total = p->total;
    } else if (m == &wire_methods[WIRE_ENGINE_TRACE]) {
        const struct wire_engine_trace *t = msg;
        find(d, t->stream);
        assert_int_equal(t->pid, d->pid);
    } else if (m == &wire_methods[WIRE_ENGINE_KV_SAVED]) {
        find(d, ((const struct wire_engine_kv_saved *)msg)->stream);
        d->n_kv_saved++;
    } else {
        assert_ptr_equal(m, &wire_methods[WIRE_MODEL_PROGRESS]);
        d->n_progress++;
    }
}

static void on_stream_end(struct heard *h, const struct wire_frame *f)
{
    struct hearth_err e;
    assert_false(h->ended);
    h->ended = true;
    if (f->is_error) {
        h->err = f->err;
        return;
    }
    assert_int_equal(wire_unpack(wire_methods[WIRE_ENGINE_GENERATE].result, f->body, f->body_len, &h->block, &e), 0);
    h->result = *(struct wire_engine_result *)h->block;
    if (h->held)
        add_text(h, (struct wire_bytes){h->held, strlen(h->held)});
}

/* Takes frames until one answers `rpc` (which is left in *f, with its body in d->in: call drop()) or, with rpc 0, until
 * one has been handled. */
static bool next_frame(struct drive *d, uint32_t rpc, struct wire_frame *f, size_t *len)
{
    struct hearth_err e;
    for (;;) {
        struct wire_scan scan = {0};
        ptrdiff_t n = wire_scan(&scan, d->in.data, d->in.len, WIRE_LINK_FRAME_MAX, &e);
        assert_true(n >= 0);
        if (n) {
            *len = (size_t)n;
            memset(f, 0, sizeof *f);
            assert_int_equal(wire_frame_open(f, d->in.data, (size_t)n, &e), 0);
            return true;
        }
        if (d->in.cap - d->in.len < 65536) {
            d->in.cap = 2 * d->in.cap + 65536;
            d->in.data = realloc(d->in.data, d->in.cap);
            assert_non_null(d->in.data);
        }
        struct pollfd pfd = {.fd = d->fd, .events = POLLIN};
        if (poll(&pfd, 1, PATIENCE_MS) != 1)
            fail_msg("the engine said nothing for %d s", PATIENCE_MS / 1000);
        ssize_t got = read(d->fd, d->in.data + d->in.len, d->in.cap - d->in.len);
        if (got <= 0)
            fail_msg("the engine closed the link (waiting for answer %u)", rpc);
        d->in.len += (size_t)got;
    }
}

static void drop(struct drive *d, size_t n)
{
    d->in.len -= n;
    memmove(d->in.data, d->in.data + n, d->in.len);
}

/* Handles one frame; true if it answers `rpc`, in which case it is not dropped. */
static bool handle(struct drive *d, uint32_t rpc, struct wire_frame *f, size_t *len)
{
    struct hearth_err e;
    next_frame(d, rpc, f, len);
    if (f->kind == WIRE_FRAME_RESPONSE) {
        for (size_t i = 0; i < d->n_heard; i++)
            if (d->rpc[i] == f->id && !d->heard[i]->ended) {
                on_stream_end(d->heard[i], f);
                drop(d, *len);
                return false;
            }
        assert_int_equal(f->id, rpc);
        return true;
    }
    assert_int_equal(f->kind, WIRE_FRAME_EVENT);
    void *msg;
    const struct wire_method *m = wire_method_find(f->method, f->method_len);
    assert_non_null(m);
    assert_int_equal(wire_unpack(m->params, f->body, f->body_len, &msg, &e), 0);
    on_event(d, m, msg);
    wire_free(msg);
    drop(d, *len);
    return false;
}

int drive_call(struct drive *d, int method, const void *params, void **out, struct hearth_err *e)
{
    uint32_t id = ++d->last_id;
    struct wire_frame f;
    size_t len;
    int rc = 0;
    *out = NULL;
    send_request(d, id, method, params);
    while (!handle(d, id, &f, &len)) {
    }
    if (f.is_error) {
        *e = f.err;
        rc = f.err.code;
    } else {
        assert_int_equal(wire_unpack(wire_methods[method].result, f.body, f.body_len, out, e), 0);
    }
    drop(d, len);
    return rc;
}

uint32_t drive_send(struct drive *d, int method, const void *params)
{
    send_request(d, ++d->last_id, method, params);
    return d->last_id;
}

uint32_t drive_answer(struct drive *d, int *code)
{
    struct wire_frame f = {0};
    size_t len;
    for (next_frame(d, 0, &f, &len); f.kind != WIRE_FRAME_RESPONSE; next_frame(d, 0, &f, &len))
        drop(d, len); /* events are not of interest here */
    uint32_t id = f.id;
    *code = f.is_error ? f.err.code : 0;
    drop(d, len);
    return id;
}

const char *drive_tale(void)
{
    static char tale[4096];
    char path[4096];
    const char *top = getenv("top_srcdir");
    snprintf(path, sizeof path, "%s/contrib/models/tale-q4_k_m.gguf", top ? top : ".");
    if (!tale[0])
        assert_non_null(realpath(path, tale));
    return tale;
}

void drive_defaults(struct wire_engine_generate *g)
{
    wire_defaults(wire_methods[WIRE_ENGINE_GENERATE].params, g);
    g->uid = 1000;
    g->path = drive_tale();
    g->req.max_tokens = 16;
    g->req.sampling.temperature = 0;
}

void drive_prompt(struct wire_engine_generate *g, const char *text, int64_t max_tokens)
{
    drive_defaults(g);
    g->req.text = hearth_text(text);
    g->req.max_tokens = max_tokens;
}

struct heard *drive_begin(struct drive *d, struct wire_engine_generate *g)
{
    assert_true(d->n_heard < DRIVE_STREAMS);
    struct heard *h = calloc(1, sizeof *h);
    assert_non_null(h);
    add_text(h, (struct wire_bytes){"", 0});
    g->stream = h->stream = ++d->last_stream;
    d->rpc[d->n_heard] = ++d->last_id;
    d->heard[d->n_heard++] = h;
    send_request(d, d->last_id, WIRE_ENGINE_GENERATE, g);
    return h;
}

void drive_wait_tokens(struct drive *d, const struct heard *h, size_t n)
{
    struct wire_frame f;
    size_t len;
    while (!h->ended && h->n_token < n)
        assert_false(handle(d, 0, &f, &len));
}

void drive_wait(struct drive *d, const struct heard *h)
{
    drive_wait_tokens(d, h, SIZE_MAX);
}

struct heard *drive_generate(struct drive *d, struct wire_engine_generate *g)
{
    struct heard *h = drive_begin(d, g);
    drive_wait(d, h);
    return h;
}

void drive_same_tokens(const struct heard *a, const struct heard *b)
{
    assert_int_equal(a->n_token, b->n_token);
    assert_memory_equal(a->token, b->token, a->n_token * sizeof *a->token);
    assert_string_equal(a->text, b->text);
}

struct wire_engine_status *drive_status(struct drive *d)
{
    struct hearth_err e;
    void *out;
    assert_int_equal(drive_call(d, WIRE_ENGINE_STATUS, &(struct wire_empty){0}, &out, &e), 0);
    return out;
}
