/* generate.c - streams and eval: a request becomes a sequence, its tokens become frames. Thread: the loop's, except for
 * the work that turns requests into sequences and logits into answers, which may take long. */
#include "config.h"

#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/front/sampling-params.h"
#include "daemon/engine/front/rpc.h"
#include "daemon/trace.h"

/* The KV of eval is salted with a uid that no user has, so that no other request finds it. */
static const int64_t eval_uid = -2;

enum { EVAL_LOGITS_MAX = 4 << 20 /* (id, logit) pairs in one answer, which must fit into a frame */ };

struct request *generate_find(const struct rpc_server *s, int64_t stream)
{
    struct request *r;
    TAILQ_FOREACH (r, &s->requests, link)
        if (r->msg && r->msg->stream == stream)
            return r;
    return NULL;
}

static int runnable(const struct model_entry *m, struct hearth_err *e)
{
    if (m->hp_err.code) {
        *e = m->hp_err;
        return e->code;
    }
    return 0;
}

/* Weights and vocabulary take 0.1 to 0.3 s each to load. If neither is loaded, the device thread starts with the
 * weights while a worker reads the vocabulary. A failure is reported to the sequence. */
static int generate_opened(struct rpc_server *s, struct request *r, struct hearth_err *e)
{
    struct model_entry *m = r->model;
    int rc = runnable(m, e);
    if (rc || m->vocab || m->vocab_err.code || m->reading || atomic_load(&m->loaded))
        return rc; /* the request that started reading the vocabulary also loads the weights, or needs none */
    m->users++;
    engine_load(s->engine, m, NULL);
    return 0;
}

/* Makes a sequence of the timeline (the history and the appended ids), with its limits. */
static int make_seq(struct request *r, struct seq **out, struct hearth_err *e)
{
    const struct wire_engine_generate *g = r->msg;
    const struct hparams *hp = &r->model->hp;
    size_t total = g->history.n + r->appended.n, prompt = total - (size_t)g->resumed;
    /* A prompt may fill the whole context only if no token is to follow it. */
    size_t most = g->req.max_tokens == 0 ? hp->n_ctx : hp->n_ctx - 1;
    if (prompt > most)
        return err_set(e, HEARTH_ECONTEXT, "the prompt has %zu tokens (%zu of history); the context of the model is %u",
                       prompt, g->history.n - (size_t)g->resumed, hp->n_ctx);
    uint64_t wanted = g->req.max_tokens < 0 ? UINT32_MAX : prompt + (uint64_t)g->req.max_tokens;
    uint32_t limit = wanted < hp->n_ctx ? (uint32_t)wanted : hp->n_ctx;
    if (total > limit)
        return err_set(e, HEARTH_EPARAMS, "resumed: %lld tokens are there, and %u is the limit", (long long)g->resumed,
                       limit - (uint32_t)prompt);
    struct seq *q = seq_new(g->history.v, (uint32_t)g->history.n, limit);
    if (!q)
        return err_set(e, HEARTH_ENOMEM, "no memory for a sequence of %u tokens", limit);
    for (size_t i = 0; i < r->appended.n; i++)
        seq_push_token(q, r->appended.v[i]);
    r->sampling = g->req.sampling;
    int rc = sample_params_fill(r->model->gguf, &r->sampling, e);
    if (!rc)
        rc = sample_params_make(r->model->gguf, &r->sampling, g->req.logprobs, hp->n_vocab, &q->sampling, &q->bias, e);
    if (rc) {
        seq_free(q);
        return rc;
    }
    q->uid = g->uid;
    q->client = g->client;
    q->n_appended = (uint32_t)r->appended.n;
    q->n_prompt = (uint32_t)prompt;
    q->n_limit = limit;
    q->n_wanted = wanted < UINT32_MAX ? (uint32_t)wanted : UINT32_MAX;
    q->ignore_eos = g->req.ignore_eos;
    *out = q;
    return 0;
}

/* Replays the tokens that a resumed stream has already sent, so that detokenisation continues where it stopped. */
static int replay(struct request *r, struct hearth_err *e)
{
    const struct wire_ids *h = &r->msg->history;
    const char *out;
    size_t n;
    int rc = 0;
    for (size_t i = h->n - (size_t)r->msg->resumed; i < h->n && !rc && r->text.vocab; i++)
        rc = text_push(&r->text, h->v[i], &out, &n, e);
    return rc || !r->text.vocab ? rc : text_held(&r->text, e); /* only the end may have been lost */
}

static int give_to_device(struct rpc_server *s, struct request *r, struct hearth_err *e)
{
    struct seq *q = r->seq;
    (void)e;
    q->id = r->seq_id = ++s->last_seq;
    q->owner = r;
    q->model = r->model;
    q->stream = r->msg ? r->msg->stream : 0; /* eval has none */
    if (r->msg && r->msg->label)
        snprintf(q->label, sizeof q->label, "%s", r->msg->label);
    q->time.submit = r->arrived;
    q->class = r->class;
    if (r->msg && r->msg->req.deadline_ms && !r->msg->resumed)
        q->deadline = r->arrived + 1e-3 * (double)r->msg->req.deadline_ms;
    r->seed = q->sampling.seed;
    trace(.stage = TRACE_RECEIVED, .stream = q->stream, .seq = q->id, .n = {q->n_prompt, q->n_limit});
    r->seq = NULL;
    engine_submit(s->engine, q);
    if (r->text.stopped) { /* the resumed stream had its last token, and only its end was lost */
        r->stopped = true;
        engine_cancel(s->engine, r->seq_id);
    }
    return 0;
}

static enum seq_class class_of(const char *word)
{
    return !word || !strcmp(word, "normal") ? CLASS_NORMAL
           : !strcmp(word, "interactive")   ? CLASS_INTERACTIVE
                                            : CLASS_BACKGROUND;
}

void generate_set_class(struct rpc_server *s, struct request *r, const char *class)
{
    r->class = class_of(class);
    if (r->seq_id)
        engine_set_class(s->engine, r->seq_id, r->class);
}

int generate_check(const struct rpc_server *s, const struct wire_engine_generate *msg, struct hearth_err *e)
{
    if (generate_find(s, msg->stream))
        return err_set(e, HEARTH_ECONFLICT, "stream %lld is running", (long long)msg->stream);
    if (msg->resumed > (int64_t)msg->history.n)
        return err_set(e, HEARTH_EPARAMS, "resumed is %lld, but the history has %zu tokens", (long long)msg->resumed,
                       msg->history.n);
    return 0;
}

static size_t generate_cost(const struct request *r)
{
    enum { TOKEN = 8 /* average bytes of text per token */ };
    /* A template may take any number of steps, however short the messages are. */
    size_t cost = r->msg->req.n_messages ? WORK_LOOP + 1 : 0;
    return cost + prompt_bytes(&r->msg->req) + (size_t)r->msg->resumed * TOKEN;
}

/* A session's ids belong to the model with which it was made; the model's file may have been replaced since. */
static int check_history(const struct wire_engine_generate *g, const struct model_entry *m, struct hearth_err *e)
{
    if (g->hash && m->vocab && g->hashed <= (int64_t)g->history.n) {
        char hash[TOK_HASH];
        int rc = tok_hash(m->vocab, g->history.v, (size_t)g->hashed, hash, e);
        if (rc)
            return rc;
        if (strcmp(g->hash, hash) != 0)
            return err_set(e, HEARTH_EMODELMISMATCH,
                           "the session's tokens are other texts in this vocabulary: it was made with another model, "
                           "which was in this one's place");
    }
    for (size_t i = 0; i < g->history.n; i++)
        if (g->history.v[i] < 0 || (uint32_t)g->history.v[i] >= m->hp.n_vocab)
            return err_set(
                e, HEARTH_EMODELMISMATCH,
                "history[%zu]: %d is not in the vocabulary of %u tokens: it was made with another model, which "
                "was in this one's place",
                i, g->history.v[i], m->hp.n_vocab);
    return 0;
}

static int generate_work(struct request *r, struct hearth_err *e)
{
    const struct wire_engine_generate *g = r->msg;
    struct model_entry *m = r->model;
    int rc;
    text_fini(&r->text);
    ids_fini(&r->appended);
    r->hash[0] = '\0';
    /* Ids need no vocabulary: a model without one still runs, but its text is empty. */
    if (!m->vocab && (prompt_needs_vocab(&g->req) || g->req.stop.n)) {
        *e = m->vocab_err;
        return e->code;
    }
    if ((rc = check_history(g, m, e)) || (rc = text_init(&r->text, m->vocab, g->req.stop.v, g->req.stop.n, e)) ||
        (rc = prompt_make(g, m, &r->appended, &r->told, e)) || (rc = make_seq(r, &r->seq, e)))
        return rc;
    text_divide(&r->text, m->vocab ? r->told.family : NULL, r->told.open);
    r->n_hashed = r->seq->n_prompt;
    if ((rc = replay(r, e)) || (m->vocab && (rc = tok_hash(m->vocab, r->seq->token, r->n_hashed, r->hash, e)))) {
        seq_free(r->seq);
        r->seq = NULL;
    }
    return rc;
}

const struct request_steps generate_steps = {
    .weights = true,
    .vocab = true,
    .opened = generate_opened,
    .cost = generate_cost,
    .work = generate_work,
    .begin = give_to_device,
};

/* --- measuring a prompt -------------------------------------------------------------------------------------- */

static int measure_opened(struct rpc_server *s, struct request *r, struct hearth_err *e)
{
    (void)s;
    return runnable(r->model, e);
}

static size_t measure_cost(const struct request *r)
{
    const struct wire_engine_generate *g = r->params;
    return (g->req.n_messages ? WORK_LOOP + 1 : 0) + prompt_bytes(&g->req);
}

/* Makes the prompt as generate would, and a sequence of it to be looked up on the device. */
static int measure_work(struct request *r, struct hearth_err *e)
{
    const struct wire_engine_generate *g = r->params;
    struct model_entry *m = r->model;
    int rc;
    ids_fini(&r->appended);
    if (!m->vocab && prompt_needs_vocab(&g->req)) {
        *e = m->vocab_err;
        return e->code;
    }
    if ((rc = check_history(g, m, e)) || (rc = prompt_make(g, m, &r->appended, &r->told, e)))
        return rc;
    uint64_t total = g->history.n + r->appended.n;
    if (total > UINT32_MAX)
        return err_set(e, HEARTH_ECONTEXT, "the prompt has %llu tokens", (unsigned long long)total);
    struct seq *q = seq_new(g->history.v, (uint32_t)g->history.n, (uint32_t)total);
    if (!q)
        return err_set(e, HEARTH_ENOMEM, "no memory for a sequence of %llu tokens", (unsigned long long)total);
    for (size_t i = 0; i < r->appended.n; i++)
        seq_push_token(q, r->appended.v[i]);
    q->uid = g->uid;
    q->n_prompt = q->n_limit = q->n_wanted = (uint32_t)total;
    q->measure = true;
    r->seq = q;
    return 0;
}

const struct request_steps measure_steps = {
    .vocab = true, .opened = measure_opened, .cost = measure_cost, .work = measure_work, .begin = give_to_device};

/* A prompt may fill the whole context only if no token is to follow it. */
static void measure_answer(struct rpc_server *s, const struct request *r, const struct event_end *ev)
{
    const struct wire_engine_generate *g = r->params;
    uint64_t total = g->history.n + r->appended.n;
    uint64_t more = g->req.max_tokens < 0 ? 1 : (uint64_t)g->req.max_tokens;
    struct wire_measured res = {
        .prompt_tokens = (int64_t)total, .reused_tokens = ev->n_reused, .fits = total + more <= r->model->hp.n_ctx};
    serve_result(s, r->rpc_id, r->method, &res);
}

static int eval_opened(struct rpc_server *s, struct request *r, struct hearth_err *e)
{
    (void)s;
    return runnable(r->model, e);
}

static size_t eval_cost(const struct request *r)
{
    (void)r;
    return 0; /* it is bounded by the context */
}

static int eval_work(struct request *r, struct hearth_err *e)
{
    const struct wire_eval *msg = r->params;
    const struct model_entry *m = r->model;
    uint64_t n = msg->tokens.n, limit = n + (uint64_t)msg->greedy;
    int rc = prompt_check_ids("eval.tokens", msg->tokens.v, n, m->hp.n_vocab, e);
    if (rc)
        return rc;
    if (limit > m->hp.n_ctx)
        return err_set(e, HEARTH_ECONTEXT, "%llu tokens and %lld to follow; the context of the model is %u",
                       (unsigned long long)n, (long long)msg->greedy, m->hp.n_ctx);
    if (n * (uint64_t)msg->top > EVAL_LOGITS_MAX)
        return err_set(e, HEARTH_ETOOBIG, "top %lld at %llu positions is more than %d logits", (long long)msg->top,
                       (unsigned long long)n, EVAL_LOGITS_MAX);
    struct seq *q = seq_new(msg->tokens.v, (uint32_t)n, (uint32_t)limit);
    if (q)
        q->eval = eval_new((uint32_t)n, (uint32_t)msg->top, m->hp.n_vocab, (uint32_t)msg->greedy);
    if (!q || !q->eval) {
        seq_free(q);
        return err_set(e, HEARTH_ENOMEM, "no memory for eval of %llu tokens", (unsigned long long)n);
    }
    q->uid = eval_uid;
    q->client = msg->client;
    q->n_prompt = (uint32_t)n;
    q->n_limit = q->n_wanted = (uint32_t)limit;
    r->seq = q;
    return 0;
}

/* The vocabulary's end-of-sequence tokens end the greedy part; a model without a vocabulary has none. */
const struct request_steps eval_steps = {
    .weights = true,
    .vocab = true,
    .opened = eval_opened,
    .cost = eval_cost,
    .work = eval_work,
    .begin = give_to_device,
};

void generate_admitted(struct rpc_server *s, struct request *r)
{
    if (!r->msg)
        return; /* eval */
    struct wire_engine_begin body = {.stream = r->msg->stream,
                                     .appended = {r->appended.v, r->appended.n},
                                     .history_kept = r->told.history_kept,
                                     .think_unknown = r->told.think_unknown,
                                     .thinking = r->told.open,
                                     .has_sampling = true,
                                     .sampling = r->sampling};
    if (r->hash[0]) {
        body.hash = r->hash;
        body.hashed = r->n_hashed;
    }
    if (r->told.family)
        body.markers = reasoning_family_name(r->told.family);
    body.sampling.logit_bias = NULL;
    body.sampling.n_logit_bias = 0;
    body.sampling.has_seed = false; /* hearthd drew the seed and knows it */
    serve_event(s, &wire_methods[WIRE_ENGINE_BEGIN], &body);
}

void generate_progress(struct rpc_server *s, const struct event_prompt *ev)
{
    const struct request *r = ev->owner;
    struct wire_stream_progress body = {.stream = r->msg->stream, .done = ev->done, .total = ev->total};
    serve_event(s, &wire_methods[WIRE_ENGINE_PROGRESS], &body);
}

/* The bytes of a token, which are the vocabulary's. */
static struct wire_bytes piece(const struct vocab *v, int32_t id)
{
    struct wire_bytes b = {"", 0};
    if (v)
        b.data = tok_bytes(v, id, &b.len);
    return b;
}

/* Converts the log-probabilities of a token. A model file may hold any weights, so logits may be NaN or infinite, which
 * a frame cannot carry: HEARTH_EBADMODEL. */
static int logprobs(const struct request *r, const struct step_token *t, struct wire_logprob top[LOGPROBS_MAX],
                    struct wire_token_logprobs *out, struct hearth_err *e)
{
    const struct sampled *d = t->detail;
    bool finite = isfinite(d->logprob);
    size_t n = r->msg->req.logprobs == 0 ? 0 : d->n_top;
    for (size_t i = 0; i < n; i++) {
        top[i] = (struct wire_logprob){d->top[i].id, (double)d->top[i].logprob,
                                       piece(r->model->vocab, (int32_t)d->top[i].id)};
        finite = finite && isfinite(d->top[i].logprob);
    }
    *out = (struct wire_token_logprobs){t->id, (double)d->logprob, top, n};
    return finite ? 0
                  : err_set(e, HEARTH_EBADMODEL, "the model's logits are no numbers at token %u of the text",
                            r->n_completion);
}

/* The bytes for a field that is absent if it is empty. */
static struct wire_bytes present(const char *s, size_t n)
{
    return (struct wire_bytes){n ? s : NULL, n};
}

void generate_token(struct rpc_server *s, struct request *r, const struct step_token *t)
{
    struct wire_engine_tokens body = {.stream = r->msg->stream, .index = r->n_completion, .tokens = {&t->id, 1}};
    struct wire_token_logprobs lp;
    struct wire_logprob top[LOGPROBS_MAX];
    if (r->stopped || r->err.code)
        return;
    if (!r->text.vocab)
        body.text = (struct wire_bytes){"", 0};
    else if (text_push(&r->text, t->id, &body.text.data, &body.text.len, &r->err) || text_held(&r->text, &r->err))
        engine_cancel(s->engine, r->seq_id);
    body.reasoning = present(r->text.thought, r->text.n_thought);
    body.held = present(r->text.held, r->text.n_held);
    body.held_reasoning = present(r->text.held_thought, r->text.n_held_thought);
    body.reasoning_tokens = r->text.reasoning.n_tokens;
    if (t->detail && r->msg->req.logprobs >= 0) {
        if (logprobs(r, t, top, &lp, &r->err)) {
            engine_cancel(s->engine, r->seq_id);
            return;
        }
        body.logprobs = &lp;
        body.n_logprobs = 1;
    }
    r->n_completion++;
    serve_event(s, &wire_methods[WIRE_ENGINE_TOKENS], &body);
    if (r->text.stopped) {
        r->stopped = true;
        engine_cancel(s->engine, r->seq_id);
    }
}

static double ms(double seconds)
{
    return seconds > 0 ? 1e3 * seconds : 0;
}

static void timings(struct wire_timings *out, const struct seq_times *t, uint32_t n_token)
{
    double now = engine_now();
    *out = (struct wire_timings){.load_ms = ms(t->load), .restore_ms = ms(t->restore), .total_ms = ms(now - t->submit)};
    if (!t->admit)
        return;
    out->queue_ms = ms(t->admit - t->submit - t->load - t->restore);
    out->prefill_ms = ms((t->first ? t->first : now) - t->admit);
    out->decode_ms = ms(t->last - t->first);
    if (n_token > 1 && t->last > t->first)
        out->tokens_per_second = (n_token - 1) / (t->last - t->first);
}

static int eval_check(const struct eval *got, struct hearth_err *e)
{
    for (size_t i = 0; i < (size_t)got->n_row * got->n_per_row; i++)
        if (!isfinite(got->best[i].logprob))
            return err_set(e, HEARTH_EBADMODEL, "position %zu: the logit of token %u is %g", i / got->n_per_row,
                           got->best[i].id, (double)got->best[i].logprob);
    return 0;
}

static size_t answer_cost(const struct request *r)
{
    enum { LOGIT = 12 /* bytes of a packed (id, logit) pair */ };
    return (size_t)r->eval->n_row * r->eval->n_per_row * LOGIT;
}

static int answer_work(struct request *r, struct hearth_err *e)
{
    const struct eval *got = r->eval;
    int rc = eval_check(got, e);
    if (rc)
        return rc;
    struct wire_logit *logit = malloc((size_t)got->n_row * got->n_per_row * sizeof *logit + 1);
    struct wire_top *top = malloc(got->n_row * sizeof *top + 1);
    if (logit && top) {
        for (size_t i = 0; i < (size_t)got->n_row * got->n_per_row; i++)
            logit[i] = (struct wire_logit){got->best[i].id, (double)got->best[i].logprob};
        for (size_t i = 0; i < got->n_row; i++)
            top[i] = (struct wire_top){logit + i * got->n_per_row, got->n_per_row};
        struct wire_eval_result res = {top, got->n_row, {got->greedy, got->n_greedy}};
        rc = wire_pack_result(&r->answer, r->rpc_id, r->method, &res, e);
    } else {
        rc = err_set(e, HEARTH_ENOMEM, "no memory for %u rows of logits", got->n_row);
    }
    free(logit);
    free(top);
    return rc;
}

/* The remaining steps of an eval once the device thread has done its part. */
static const struct request_steps eval_answer_steps = {
    .cost = answer_cost, .work = answer_work, .begin = request_answer};

static void generate_answer(struct rpc_server *s, struct request *r, const struct event_end *ev)
{
    static const char *const reasons[] = {"stop", "length", "context_full", "cancelled"};
    const struct wire_engine_generate *g = r->msg;
    bool stopped = r->stopped || (r->text.held_stops && ev->reason != END_CANCELLED);
    struct wire_engine_result res = {.finish_reason = stopped ? "stop" : reasons[ev->reason], .seed = r->seed};
    res.usage.reused_tokens = ev->n_reused;
    res.usage.restored_tokens = ev->n_restored;
    res.usage.computed_tokens = ev->n_computed;
    res.usage.prompt_tokens = res.usage.reused_tokens + res.usage.computed_tokens;
    res.usage.completion_tokens = r->n_completion;
    res.usage.reasoning_tokens = r->text.reasoning.n_tokens;
    /* A turn of the chat template stays open until the next turn closes it; raw text leaves the state unchanged. */
    res.turn_open = g->turn_open || g->req.n_messages > 0;
    timings(&res.timings, &ev->time, r->n_completion - (uint32_t)g->resumed);
    serve_result(s, r->rpc_id, r->method, &res);
}

void generate_cancelled(struct rpc_server *s, struct request *r)
{
    const struct wire_engine_generate *g = r->msg;
    trace(.stage = TRACE_FINISHED, .stream = g->stream, .word = "cancelled");
    generate_answer(s, r, &(struct event_end){.reason = END_CANCELLED, .time.submit = r->arrived});
    request_free(s, r);
}

void generate_end(struct rpc_server *s, struct request *r, struct event_end *ev)
{
    if (ev->reason == END_ERROR || r->err.code) {
        serve_error(s, r->rpc_id, r->err.code ? &r->err : &ev->err);
    } else if (r->msg) {
        generate_answer(s, r, ev);
    } else if (r->method == &wire_methods[WIRE_ENGINE_MEASURE]) {
        measure_answer(s, r, ev);
    } else if (ev->reason == END_CANCELLED) {
        struct hearth_err e;
        err_set(&e, HEARTH_ECANCELLED, "nobody waits for it any more");
        serve_error(s, r->rpc_id, &e);
    } else {
        r->eval = ev->eval;
        ev->eval = NULL;
        request_go_on(s, r, &eval_answer_steps);
        return;
    }
    request_free(s, r);
}
