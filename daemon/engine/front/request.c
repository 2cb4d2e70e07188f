/* request.c - requests, and what they wait for before they begin; see rpc.h. Thread: the loop's, except for the
 * jobs. */
#include "config.h"

#include <stdlib.h>

#include "daemon/engine/front/rpc.h"
#include "daemon/model/file.h"

enum {
    /* The most bytes of requests that may wait for the workers at a time, of one client and of all clients. */
    HELD_CLIENT = 64 << 20,
    HELD_ALL = 512 << 20,
};

/* A job on a model: opens its file, fills the tensors that are copies (gguf_fill), or reads its vocabulary. All
 * requests for the model wait for the same job. */
enum reading_part { READ_NOTHING, READ_FILE, READ_WEIGHTS, READ_VOCAB };
struct reading {
    struct job job;
    struct model_entry *model; /* a reference */
    enum reading_part part;
    bool wanted; /* even if no request waits for it */
    struct model_file file;
    struct vocab *vocab;
};

static void go(struct rpc_server *s, struct request *r);
static void work(struct rpc_server *s, struct request *r);

/* --- models ----------------------------------------------------------------------------------------------- */

static int read_file(struct job *j, struct hearth_err *e)
{
    struct reading *rd = j->owner;
    return model_file_read(rd->model->path, &rd->file, e);
}

static int read_weights(struct job *j, struct hearth_err *e)
{
    struct reading *rd = j->owner;
    return gguf_fill(rd->model->gguf, e);
}

static int read_vocab(struct job *j, struct hearth_err *e)
{
    struct reading *rd = j->owner;
    return vocab_load(&rd->vocab, rd->model->gguf, e);
}

static int start_reading(struct rpc_server *s, struct model_entry *m, enum reading_part part, int64_t client,
                         struct hearth_err *e)
{
    static int (*const run[])(struct job *, struct hearth_err *) = {
        [READ_FILE] = read_file, [READ_WEIGHTS] = read_weights, [READ_VOCAB] = read_vocab};
    struct reading *rd = m->reading ? NULL : calloc(1, sizeof *rd);
    if (m->reading)
        return 0;
    if (!rd)
        return err_set(e, HEARTH_ENOMEM, "no memory to read a model's file");
    rd->model = m;
    rd->part = part;
    rd->job.client = client;
    rd->job.run = run[part];
    rd->job.owner = rd;
    m->users++;
    m->reading = rd;
    work_begin(s->work, &rd->job);
    return 0;
}

void request_want_vocab(struct rpc_server *s, struct model_entry *m)
{
    if (m->vocab || m->vocab_err.code || start_reading(s, m, m->gguf ? READ_VOCAB : READ_FILE, 0, NULL))
        return; /* if out of memory, it is read when it is needed */
    ((struct reading *)m->reading)->wanted = true;
}

static bool waits_for(const struct request *r, const struct model_entry *m)
{
    return r->state == REQUEST_MODEL && r->model == m;
}

static void fail(struct rpc_server *s, struct request *r, const struct hearth_err *why)
{
    serve_error(s, r->rpc_id, why);
    request_free(s, r);
}

static void end_reading(struct rpc_server *s, struct reading *rd)
{
    struct model_entry *m = rd->model;
    const struct hearth_err *err = &rd->job.err;
    struct request *r, *next;
    bool failed = err->code && err->code != HEARTH_ECANCELLED;
    bool of_file = rd->part == READ_FILE, of_vocab = rd->part == READ_VOCAB;
    bool passes = failed && !of_file && !model_file_is_at_fault(err->code); /* the next request reads it again */
    m->reading = NULL;
    if (of_vocab && (!err->code || (failed && !passes)))
        models_set_vocab(m, rd->vocab, err);
    else if (rd->part == READ_WEIGHTS)
        m->filled = !err->code;
    else if (of_file && !err->code)
        models_set_file(m, &rd->file);
    else if (of_file && failed)
        m->replaced = true; /* the entry is useless and is freed with its last user */
    for (r = TAILQ_FIRST(&s->requests); r; r = next) {
        next = TAILQ_NEXT(r, link);
        if (!waits_for(r, m))
            continue;
        if (failed && of_file && r->steps->anyway && !r->cancelled)
            work(s, r);
        else if ((failed && of_file) || (passes && !r->cancelled))
            fail(s, r, err);
        else
            go(s, r);
    }
    models_put(&s->models, m);
    free(rd);
}

/* --- life cycle --------------------------------------------------------------------------------------------- */

int request_begin(struct rpc_server *s, const struct asked *a, const char *path, int64_t client,
                  const struct request_steps *steps, bool *taken, struct hearth_err *e)
{
    struct model_entry *m;
    int rc = models_get(&s->models, path, &m, e);
    if (!rc && (rc = request_begin_on(s, a, m, client, steps, taken, e)))
        models_put(&s->models, m);
    return rc;
}

int request_begin_on(struct rpc_server *s, const struct asked *a, struct model_entry *m, int64_t client,
                     const struct request_steps *steps, bool *taken, struct hearth_err *e)
{
    struct request *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, HEARTH_ENOMEM, "no memory for a request");
    r->model = m;
    r->rpc_id = a->rpc_id;
    r->method = a->method;
    r->params = a->params;
    r->held = a->bytes;
    r->client = client;
    r->steps = steps;
    r->arrived = engine_now();
    *taken = true;
    r->class = CLASS_NORMAL;
    if (a->method == &wire_methods[WIRE_ENGINE_GENERATE]) {
        r->msg = a->params;
        r->n_completion = (uint32_t)r->msg->resumed;
        generate_set_class(s, r, r->msg->req.service_class);
    }
    TAILQ_INSERT_TAIL(&s->requests, r, link);
    frame_conn_tick_in(s->conn, WATCHDOG_SECONDS);
    go(s, r);
    return 0;
}

void request_free(struct rpc_server *s, struct request *r)
{
    TAILQ_REMOVE(&s->requests, r, link);
    models_put(&s->models, r->model);
    text_fini(&r->text);
    ids_fini(&r->appended);
    seq_free(r->seq);
    eval_free(r->eval);
    wire_buf_fini(&r->answer);
    wire_free(r->params);
    free(r);
}

int request_answer(struct rpc_server *s, struct request *r, struct hearth_err *e)
{
    int rc = wire_buf_add(frame_conn_out(s->conn), r->answer.data, r->answer.len, SIZE_MAX);
    if (rc)
        return err_set(e, rc, "no memory for an answer of %zu bytes", r->answer.len);
    request_free(s, r);
    return 0;
}

/* --- the steps of a request --------------------------------------------------------------------------------- */

static int run_work(struct job *j, struct hearth_err *e)
{
    struct request *r = j->owner;
    return r->steps->work(r, e);
}

/* Requests that wait for the workers take memory, of which one client may use only a share. */
static int check_held(const struct rpc_server *s, const struct request *r, struct hearth_err *e)
{
    size_t all = r->held, own = r->held;
    const struct request *q;
    TAILQ_FOREACH (q, &s->requests, link)
        if (q != r && q->state != REQUEST_BEGUN) {
            all += q->held;
            own += q->client == r->client ? q->held : 0;
        }
    if ((own != r->held && own > HELD_CLIENT) || all > HELD_ALL)
        return err_set(e, HEARTH_ELIMIT, "%zu bytes of long texts are waiting already; ask again when some are through",
                       (own > HELD_CLIENT ? own : all) - r->held);
    return 0;
}

static void cancelled(struct rpc_server *s, struct request *r)
{
    struct hearth_err e;
    if (r->msg) {
        generate_cancelled(s, r);
        return;
    }
    err_set(&e, HEARTH_ECANCELLED, "nobody waits for it any more");
    fail(s, r, &e);
}

static void begin(struct rpc_server *s, struct request *r)
{
    struct hearth_err e;
    r->state = REQUEST_BEGUN;
    if (r->steps->begin(s, r, &e))
        fail(s, r, &e);
}

static void work(struct rpc_server *s, struct request *r)
{
    struct hearth_err e;
    r->state = REQUEST_WORK;
    size_t cost = r->steps->work ? r->steps->cost(r) : 0;
    int rc = 0;
    if (r->steps->work && cost <= WORK_LOOP) {
        rc = r->steps->work(r, &e);
    } else if (r->steps->work && !(rc = check_held(s, r, &e))) {
        r->job = (struct job){.client = r->client, .cost = cost, .run = run_work, .owner = r};
        work_begin(s->work, &r->job);
        return;
    }
    if (rc)
        fail(s, r, &e);
    else
        begin(s, r);
}

/* What a request's model still lacks, and what is to be read next. */
static enum reading_part lacks(const struct request *r)
{
    const struct model_entry *m = r->model;
    return !m->gguf                                             ? READ_FILE
           : r->steps->weights && !m->filled                    ? READ_WEIGHTS
           : r->steps->vocab && !m->vocab && !m->vocab_err.code ? READ_VOCAB
                                                                : READ_NOTHING;
}

/* Advances a request in REQUEST_MODEL as far as possible, which may free it. */
static void go(struct rpc_server *s, struct request *r)
{
    struct model_entry *m = r->model;
    struct hearth_err e;
    int rc = 0;
    if (r->cancelled) {
        cancelled(s, r);
        return;
    }
    enum reading_part part = lacks(r);
    if (part != READ_FILE && part != READ_WEIGHTS && !r->opened) {
        r->opened = true;
        rc = r->steps->opened ? r->steps->opened(s, r, &e) : 0;
    }
    if (!rc && part)
        rc = start_reading(s, m, part, r->client, &e);
    if (rc)
        fail(s, r, &e);
    else if (!part)
        work(s, r);
}

static void end_work(struct rpc_server *s, struct request *r)
{
    if (r->cancelled)
        cancelled(s, r);
    else if (r->job.err.code)
        fail(s, r, &r->job.err);
    else
        begin(s, r);
}

void request_go_on(struct rpc_server *s, struct request *r, const struct request_steps *steps)
{
    r->steps = steps;
    work(s, r);
}

void request_cancel(struct rpc_server *s, struct request *r)
{
    struct model_entry *m = r->model;
    struct reading *rd = m->reading;
    const struct request *other;
    switch (r->state) {
    case REQUEST_BEGUN:
        if (r->seq_id)
            engine_cancel(s->engine, r->seq_id);
        return;
    case REQUEST_WORK:
        r->cancelled = true;
        work_cancel(s->work, &r->job);
        return;
    case REQUEST_MODEL:
        TAILQ_FOREACH (other, &s->requests, link)
            if (other != r && waits_for(other, m))
                break;
        if (!other && !rd->wanted)
            work_cancel(s->work, &rd->job);
        cancelled(s, r);
        return;
    }
}

void request_on_work(void *rpc_server)
{
    struct rpc_server *s = rpc_server;
    struct job *j;
    work_take(s->work);
    while ((j = work_next(s->work)))
        if (j->run == run_work)
            end_work(s, j->owner);
        else if (heads_is_theirs(j))
            heads_end(j);
        else
            end_reading(s, j->owner);
}
