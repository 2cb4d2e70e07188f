/*
 * bench-load.c - hearth bench --clients: a load of many connections on the daemon, at the requested rate.
 *
 * One thread polls all connections. A token's time is when its frame was read. Without a rate each client sends its
 * next request when the last one is answered (a closed loop); with one, requests are sent when they are due, whether or
 * not others have been answered (an open loop), so that a slow daemon does not reduce its own load.
 */
#include "config.h" /* ppoll */

#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/bench.h"

enum { KEYSTROKE_IDS = 16, KEYSTROKE_MS = 30, MOMENTS_MS = 50, WARM_IDS = 2 };

/* A connection, and its unanswered requests. */
struct load_client {
    struct hearth *h;
    struct load_request *first;
};

struct run {
    struct load *load;
    struct load_client *client; /* [n_client]: those of the load, then those of the late requests */
    size_t n_client;
    size_t next; /* index of the next request to send */
    size_t open, answered;
    int64_t late;     /* number of late prompts that were sent */
    double late_due;  /* when the next late prompt is sent; 0: not decided yet */
    uint64_t moments; /* random state of these times */
};

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

uint64_t bench_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t bench_fresh(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + ((uint64_t)getpid() << 40);
}

static void *allocate(size_t n, size_t size)
{
    void *p = calloc(n + 1, size);
    if (!p)
        abort();
    return p;
}

/* --- requests ---------------------------------------------------------------------------------------------------- */

static void request_init(struct load_request *r, int64_t n_prompt, int64_t n_output)
{
    *r = (struct load_request){.n_prompt = (size_t)n_prompt, .n_output = (size_t)n_output};
    r->prompt = allocate(r->n_prompt, sizeof *r->prompt);
    r->at = allocate(r->n_output, sizeof *r->at);
    r->id = allocate(r->n_output, sizeof *r->id);
}

static void make_requests(struct load *l, uint64_t vocab)
{
    const struct load_params *p = l->params;
    uint64_t ids = bench_fresh(), arrivals = p->seed;
    double due = 0;
    l->n_request = (size_t)(p->requests + LATE_REQUESTS * load_arrivals(p));
    l->request = allocate(l->n_request, sizeof *l->request);
    for (size_t i = 0; i < l->n_request; i++) {
        struct load_request *r = &l->request[i];
        size_t late = i - (size_t)p->requests;
        if (i < (size_t)p->requests)
            request_init(r, p->prompt, p->output);
        else
            request_init(r, late % LATE_REQUESTS ? KEYSTROKE_IDS : p->late, 1);
        size_t same = i && i < (size_t)p->requests ? (size_t)p->shared : 0;
        memcpy(r->prompt, l->request[0].prompt, same * sizeof *r->prompt);
        for (size_t k = same; k < r->n_prompt; k++)
            r->prompt[k] = (int32_t)(bench_random(&ids) % vocab);
        r->due = due;
        if (p->rate > 0) /* exponential interarrival times of a Poisson process; 1 - u is never 0 */
            due += -1e3 / p->rate * log(1 - 0x1p-53 * (double)(bench_random(&arrivals) >> 11));
    }
}

static void ask(const struct load *l, const struct load_request *r, struct hearth_generate *g)
{
    hearth_generate_init(g, sizeof *g);
    g->model = l->model->path;
    g->tokens = (struct hearth_ids){r->prompt, r->n_prompt};
    g->max_tokens = (int64_t)r->n_output;
    g->ignore_eos = true;
    g->sampling.temperature = 0;
    g->sampling.repetition_penalty = 1;
}

static void request_end(struct run *run, struct load_request *r, const struct hearth_err *err)
{
    struct load_request **at = &r->by->first;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    r->end = bench_now();
    if (err)
        r->err = *err;
    run->open--;
    run->answered++;
}

static void request_send(struct run *run, struct load_request *r, struct load_client *by)
{
    struct hearth_generate g;
    struct hearth_err err;
    ask(run->load, r, &g);
    r->by = by;
    r->next = by->first;
    by->first = r;
    if (++run->open > run->load->most_open)
        run->load->most_open = run->open;
    r->sent = bench_now();
    if (hearth_submit(by->h, &g, &r->number, &err))
        request_end(run, r, &err);
}

/* --- events ------------------------------------------------------------------------------------------------------ */

static void take_tokens(struct load_request *r, const struct hearth_stream_tokens *t)
{
    double now = bench_now();
    for (size_t i = 0; i < t->tokens.n && r->n < r->n_output; i++) {
        r->at[r->n] = now;
        r->id[r->n++] = t->tokens.v[i];
    }
}

static void take_end(struct run *run, struct load_request *r, const struct hearth_generate_result *result)
{
    struct hearth_err err = {.code = HEARTH_EINTERNAL};
    r->usage = result->usage;
    snprintf(err.msg, sizeof err.msg, "it ended with %s after %zu of %zu tokens%s%s", result->finish_reason, r->n,
             r->n_output, result->error ? ": " : "", result->error ? result->error : "");
    request_end(run, r, r->n < r->n_output ? &err : NULL);
}

static void take_event(struct run *run, struct load_client *c, const struct hearth_event *ev)
{
    struct load_request *r = c->first;
    while (r && r->number != ev->request)
        r = r->next;
    if (!r)
        return;
    if (ev->type == HEARTH_EVENT_TOKENS)
        take_tokens(r, ev->body.tokens);
    else if (ev->type == HEARTH_EVENT_DONE)
        take_end(run, r, ev->body.result);
    else if (ev->type == HEARTH_EVENT_ERROR)
        request_end(run, r, &ev->err);
}

/* Moves bytes and takes events. Where the connection is broken, all its unanswered requests fail. */
static void client_move(struct run *run, struct load_client *c, short ready)
{
    struct hearth_event ev;
    struct hearth_err err;
    int what = (ready & (POLLIN | POLLHUP | POLLERR) ? HEARTH_READ : 0) | (ready & POLLOUT ? HEARTH_WRITE : 0);
    int rc = what ? hearth_io(c->h, what, &err) : 0;
    while (rc >= 0 && (rc = hearth_next(c->h, &ev, &err)) == 1)
        take_event(run, c, &ev);
    while (rc < 0 && c->first)
        request_end(run, c->first, &err);
}

/* --- pace -------------------------------------------------------------------------------------------------------- */

/* Returns whether every client of the load is in the middle of an answer. */
static bool all_decode(const struct run *run)
{
    for (int64_t i = 0; i < run->load->params->clients; i++) {
        const struct load_request *r = run->client[i].first;
        if (!r || !r->n || r->n + 1 >= r->n_output)
            return false;
    }
    return true;
}

/* Returns the keystroke request of the last arrival if it has not been sent yet, else NULL. */
static struct load_request *keystroke(const struct run *run)
{
    struct load_request *r = run->late ? load_late(run->load, run->late - 1) + 1 : NULL;
    return r && r->sent <= 0 ? r : NULL;
}

/* Returns whether another arrival may be sent: there is one, and both requests of the previous one have been answered.
 */
static bool late_is_next(const struct run *run)
{
    if (run->late == load_arrivals(run->load->params))
        return false;
    const struct load_request *before = run->late ? load_late(run->load, run->late - 1) : NULL;
    return !before || (before[0].end > 0 && before[1].end > 0);
}

/* Sends the keystroke that is due, and the next late prompt at a random moment within MOMENTS_MS while all clients
 * decode, so that it is not aligned with the steps. */
static void send_late(struct run *run)
{
    struct load_request *r = keystroke(run);
    double now = bench_now();
    if (r && now >= r[-1].sent + KEYSTROKE_MS)
        request_send(run, r, &run->client[run->load->params->clients + 1]);
    if (!late_is_next(run) || !all_decode(run)) {
        run->late_due = 0;
    } else if (run->late_due <= 0) {
        run->late_due = now + MOMENTS_MS * 0x1p-53 * (double)(bench_random(&run->moments) >> 11);
    } else if (now >= run->late_due) {
        request_send(run, load_late(run->load, run->late), &run->client[run->load->params->clients]);
        run->late++;
        run->late_due = 0;
    }
}

static void send_due(struct run *run)
{
    const struct load_params *p = run->load->params;
    for (; run->next < (size_t)p->requests; run->next++) {
        struct load_request *r = &run->load->request[run->next];
        struct load_client *by = &run->client[run->next % (size_t)p->clients];
        if (p->rate <= 0) /* closed loop: the first idle client */
            for (by = run->client; by < run->client + p->clients && by->first; by++)
                continue;
        if (p->rate > 0 ? bench_now() < run->load->begin + r->due : by == run->client + p->clients)
            break;
        request_send(run, r, by);
    }
    send_late(run);
}

/* Returns the milliseconds until a request has to be sent; -1: that depends on answers. */
static int patience(const struct run *run)
{
    const struct load_params *p = run->load->params;
    const struct load_request *late = keystroke(run);
    double until = -1;
    if (p->rate > 0 && run->next < (size_t)p->requests)
        until = run->load->begin + run->load->request[run->next].due;
    if (late) /* never combined with a rate */
        until = late[-1].sent + KEYSTROKE_MS;
    else if (run->late_due > 0)
        until = run->late_due;
    if (until < 0)
        return -1;
    double ms = ceil(until - bench_now());
    return ms < 0 ? 0 : ms > 1000 ? 1000 : (int)ms;
}

/* Returns whether all requests have been answered, including the late ones that could be sent. */
static bool is_over(const struct run *run)
{
    return run->answered >= (size_t)(run->load->params->requests + LATE_REQUESTS * run->late);
}

/* Set by Ctrl+C, which is unblocked only in ppoll(). */
static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
    (void)sig;
    interrupted = 1;
}

/* Cancels all running requests: otherwise they would disturb the next measurement for as long as the daemon waits for a
 * disconnected client to come back. */
static void cancel_all(struct run *run)
{
    struct hearth_err err;
    run->next = (size_t)run->load->params->requests;
    for (size_t i = 0; i < run->n_client; i++)
        for (const struct load_request *r = run->client[i].first; r; r = r->next)
            hearth_cancel(run->client[i].h, r->number, &err);
}

/* Runs the load to its end. Returns false where it was interrupted. */
static bool run_load(struct run *run)
{
    struct pollfd *fd = allocate(run->n_client, sizeof *fd);
    const struct sigaction sa = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND}; /* a second one kills */
    struct sigaction before;
    sigset_t blocked, as_before;
    bool told = false;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigprocmask(SIG_BLOCK, &blocked, &as_before);
    signal_catch(SIGINT, &sa, &before);
    run->load->begin = bench_now();
    for (;;) {
        if (interrupted && !told)
            cancel_all(run);
        told = interrupted;
        if (!told)
            send_due(run);
        if (told ? !run->open : is_over(run))
            break;
        for (size_t i = 0; i < run->n_client; i++) {
            struct hearth *h = run->client[i].h;
            int want = hearth_events(h);
            fd[i] = (struct pollfd){.fd = run->client[i].first ? hearth_fd(h) : -1};
            fd[i].events = (short)((want & HEARTH_READ ? POLLIN : 0) | (want & HEARTH_WRITE ? POLLOUT : 0));
        }
        int ms = told ? -1 : patience(run);
        const struct timespec until = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
        if (ppoll(fd, run->n_client, ms < 0 ? NULL : &until, &as_before) <= 0)
            continue;
        for (size_t i = 0; i < run->n_client; i++)
            if (fd[i].revents)
                client_move(run, &run->client[i], fd[i].revents);
    }
    /* The load ends with its last regular request, because its throughput is reported; late requests may end after
     * that. */
    for (int64_t i = 0; i < run->load->params->requests; i++)
        run->load->end = fmax(run->load->end, run->load->request[i].end);
    free(fd);
    sigaction(SIGINT, &before, NULL);
    sigprocmask(SIG_SETMASK, &as_before, NULL);
    return !told;
}

/* --- the texts ---------------------------------------------------------------------------------------------------- */

/* Returns in *id the token that the model chooses after the given ids, with `bias` added to the logit of one; -1 where
 * it chooses none. */
static int next_token(struct hearth *h, const struct load *l, struct hearth_ids ids, struct hearth_bias bias,
                      int64_t *id, struct hearth_err *err)
{
    const struct load_request one = {.prompt = (int32_t *)(uintptr_t)ids.v, .n_prompt = ids.n, .n_output = 1};
    struct hearth_generate g;
    struct hearth_generate_result *got;
    ask(l, &one, &g);
    g.sampling.logit_bias = &bias;
    g.sampling.n_logit_bias = bias.bias != 0;
    int rc = hearth_run(h, &g, NULL, NULL, NULL, &got, err);
    if (rc)
        return rc;
    *id = got->tokens.n ? got->tokens.v[0] : -1;
    hearth_free(got);
    return 0;
}

/* Whether `chosen` is right after the given ids, although `best` has a higher logit: a token that the model's file
 * suppresses is never chosen, whatever is added to its logit. */
static int check_suppressed(struct hearth *h, const struct load *l, struct hearth_ids ids, int32_t best, int32_t chosen,
                            bool *right, struct hearth_err *err)
{
    int64_t id = -1;
    int rc = next_token(h, l, ids, (struct hearth_bias){best, 100}, &id, err);
    *right = false;
    if (rc || id == best)
        return rc;
    rc = next_token(h, l, ids, (struct hearth_bias){0}, &id, err);
    *right = id == chosen;
    return rc;
}

/* Checks that the model gives the same text in a batch of its own: `eval`, which reuses no KV, returns the best token
 * after each position of the whole text. */
static int check_text(struct hearth *h, struct load *l, const struct load_request *r, struct hearth_err *err)
{
    struct hearth_eval_result *got = NULL;
    size_t n = r->n_prompt + r->n_output - 1, same = 0;
    int32_t *ids = allocate(n, sizeof *ids);
    memcpy(ids, r->prompt, r->n_prompt * sizeof *ids);
    memcpy(ids + r->n_prompt, r->id, (r->n_output - 1) * sizeof *ids);
    int rc = hearth_eval(h, l->model->path, (struct hearth_ids){ids, n}, 1, 0, &got, NULL, err);
    for (bool right = true; !rc && right && same < r->n_output; same += right) {
        int32_t best = got->top[r->n_prompt - 1 + same].v[0].id;
        right = best == r->id[same];
        if (!right)
            rc = check_suppressed(h, l, (struct hearth_ids){ids, r->n_prompt + same}, best, r->id[same], &right, err);
    }
    free(ids);
    hearth_free(got);
    if (rc)
        return rc;
    l->n_checked++;
    l->n_differ += same < r->n_output;
    if (same < r->n_output)
        say("hearth: request %td: token %zu is another one than in the same text alone\n", r - l->request, same);
    return 0;
}

/* Returns whether the device guarantees that a result does not depend on the batch. */
static bool is_promised(const struct load *l)
{
    return !strcmp(l->where, "cpu");
}

static int check_texts(struct hearth *h, struct load *l, struct hearth_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < l->n_request && !rc && is_promised(l); i++)
        if (!l->request[i].err.code && l->request[i].end > 0)
            rc = check_text(h, l, &l->request[i], err);
    return rc;
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

static int connect_all(struct run *run, struct hearth *h, struct hearth_err *err)
{
    const struct load_params *p = run->load->params;
    struct hearth_hello_result *hello;
    int rc = hearth_hello(h, &hello, NULL, err);
    if (rc)
        return rc;
    int64_t most = hello->limits.connections;
    hearth_free(hello);
    size_t n = (size_t)p->clients + (p->late ? LATE_REQUESTS : 0);
    if ((int64_t)n + 1 > most) {
        err->code = HEARTH_ELIMIT;
        snprintf(err->msg, sizeof err->msg,
                 "%zu connections are wanted and a user may have %lld: "
                 "connections_per_uid in hearth.conf is the limit",
                 n + 1, (long long)most);
        return err->code;
    }
    run->client = allocate(n, sizeof *run->client);
    while (!rc && run->n_client < n && !(rc = hearth_open(&run->client[run->n_client].h, NULL, err)))
        hearth_set_client(run->client[run->n_client++].h, "hearth bench");
    return rc;
}

/* Loads the model and runs one request through it. */
static int warm(struct hearth *h, struct load *l, struct hearth_model_load_result **loaded, struct hearth_err *err)
{
    struct load_request r;
    struct hearth_generate g;
    struct hearth_generate_result *got = NULL;
    uint64_t ids = bench_fresh();
    int rc = hearth_models_load(h, l->model->path, NULL, NULL, NULL, loaded, err);
    if (rc)
        return rc;
    request_init(&r, l->params->prompt, WARM_IDS);
    for (size_t i = 0; i < r.n_prompt; i++)
        r.prompt[i] = (int32_t)(bench_random(&ids) % (uint64_t)l->model->vocab);
    ask(l, &r, &g);
    rc = hearth_run(h, &g, NULL, NULL, NULL, &got, err);
    hearth_free(got);
    free(r.prompt);
    free(r.at);
    free(r.id);
    return rc;
}

int bench_load(struct hearth *h, const struct hearth_model *m, const struct load_params *p)
{
    struct load l = {.params = p, .model = m};
    struct run run = {.load = &l, .moments = p->seed};
    struct hearth_model_load_result *loaded = NULL;
    struct hearth_err err;
    int64_t longest = p->late > p->prompt + p->output ? p->late : p->prompt + p->output;
    int status;
    if (longest > m->context)
        return usage(&cmd_bench, "%s has a context of %lld tokens, and a request of %lld is asked for", m->name,
                     (long long)m->context, (long long)longest);
    if (connect_all(&run, h, &err) || warm(h, &l, &loaded, &err)) {
        status = fail(&err);
    } else {
        l.where = loaded->where;
        make_requests(&l, (uint64_t)m->vocab);
        if (!run_load(&run)) {
            status = STATUS_INTERRUPTED;
        } else { /* what was measured is reported, also if the daemon has gone since */
            int rc = check_texts(h, &l, &err);
            status = load_report(&l);
            if (rc) {
                say("hearth bench: not all texts were compared: %s: %s\n", hearth_error_name(err.code), err.msg);
                status = STATUS_ERROR;
            }
        }
    }
    for (size_t i = 0; i < run.n_client; i++)
        hearth_close(run.client[i].h);
    for (size_t i = 0; i < l.n_request; i++) {
        free(l.request[i].prompt);
        free(l.request[i].at);
        free(l.request[i].id);
    }
    free(l.request);
    free(run.client);
    hearth_free(loaded);
    return status;
}
