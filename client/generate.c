/* generate.c - one generation, as run, chat and resume make it: options, streaming, Ctrl+C. See cmd.h. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "client/cmd.h"

void gen_init(struct gen *gen)
{
    *gen = (struct gen){0};
    hearth_generate_init(&gen->g, sizeof gen->g);
    struct hearth_generate *g = &gen->g;
    struct hearth_sampling *s = &g->sampling;
    const struct opt table[] = {
        {"model", 'm', OPT_TEXT, &gen->model, 0, 0, "MODEL",
         "a name or a path; without it the session's, or the default"},
        {"session", 's', OPT_TEXT, &gen->session, 0, 0, "NAME", "go on with the session, or begin it"},
        {"max-tokens", 'n', OPT_INT, &g->max_tokens, -1, 1 << 30, "N", "tokens at most; -1: until the context is full"},
        {"system", 0, OPT_TEXT, &gen->system, 0, 0, "TEXT", "a system message before the first one"},
        {"temperature", 0, OPT_REAL, &s->temperature, 0, 100, "T", "the same as --temp"},
        {"temp", 0, OPT_REAL, &s->temperature, 0, 100, "T", "temperature; 0 takes the best token always (0.8)"},
        {"top-k", 0, OPT_INT, &s->top_k, 0, 1000000, "K", "of the K best tokens; 0: off (40)"},
        {"top-p", 0, OPT_REAL, &s->top_p, 0, 1, "P", "of the best that reach P together; 1: off (0.95)"},
        {"min-p", 0, OPT_REAL, &s->min_p, 0, 1, "P", "at least P times as likely as the best; 0: off (0.05)"},
        {"seed", 0, OPT_SEED, s, 0, 0, "N", "the same seed gives the same text; drawn where none is given"},
        {"stop", 0, OPT_TEXTS, &g->stop, 0, 0, "TEXT", "ends the text where this appears; again for more"},
        {"repeat-penalty", 0, OPT_REAL, &s->repetition_penalty, 0.01, 100, "R",
         "divides logits of seen tokens; 1: off"},
        {"presence-penalty", 0, OPT_REAL, &s->presence_penalty, -100, 100, "R", "taken off logits of seen tokens"},
        {"frequency-penalty", 0, OPT_REAL, &s->frequency_penalty, -100, 100, "R", "the same, for each time seen"},
        {"penalty-last", 0, OPT_INT, &s->penalty_last, 0, 1 << 20, "N", "tokens that count as seen; 0: all (64)"},
        {"template", 0, OPT_TEXT, &gen->template, 0, 0, "FILE|NAME", "another chat template than the model's"},
        {"set", 0, OPT_TEXTS, &gen->set, 0, 0, "KEY=JSON", "a variable of the chat template; again for more"},
        {"think", 0, OPT_TEXT, &gen->think, 0, 0, "on|off|hide",
         "have the model think first, or not; hide: think, and print the answer alone"},
        {"class", 0, OPT_CLASS, &g->service_class, 0, 0, "CLASS",
         "interactive, normal or background: who is served first"},
        {"stats", 0, OPT_FLAG, &gen->stats, 0, 0, NULL, "say on stderr what was reused, and how fast it was"},
        OPT_END,
    };
    _Static_assert(sizeof table <= sizeof gen->opts, "struct gen has no room for the table");
    memcpy(gen->opts, table, sizeof table);
}

/* --- Ctrl+C: a byte in a pipe, so that hearth_wait() sees it without a race -------------------------------------- */

static int interrupt_pipe[2] = {-1, -1};
static struct sigaction interrupt_before;

static void on_interrupt(int sig)
{
    (void)sig;
    int saved = errno;
    if (write(interrupt_pipe[1], "", 1) < 0) {
        /* The pipe is full: there are enough interrupts in it. */
    }
    errno = saved;
}

void signal_catch(int sig, const struct sigaction *with, struct sigaction *before)
{
    if (!sigaction(sig, NULL, before) && before->sa_handler != SIG_IGN)
        sigaction(sig, with, NULL);
}

static void interrupts_begin(void)
{
    if (interrupt_pipe[0] < 0 && pipe2(interrupt_pipe, O_CLOEXEC | O_NONBLOCK)) {
        perror("hearth: pipe");
        exit(STATUS_ERROR);
    }
    struct sigaction sa = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    sigemptyset(&sa.sa_mask);
    signal_catch(SIGINT, &sa, &interrupt_before);
}

static void interrupts_end(void)
{
    sigaction(SIGINT, &interrupt_before, NULL);
    char waste[16];
    while (read(interrupt_pipe[0], waste, sizeof waste) > 0)
        continue;
}

/* --- the bar ------------------------------------------------------------------------------------------------------ */

static bool bar_drawn;

/* The columns of the terminal that is stderr. */
static int columns(void)
{
    struct winsize w;
    return !ioctl(STDERR_FILENO, TIOCGWINSZ, &w) && w.ws_col ? w.ws_col : 80;
}

/* Draws a line in place of the one before. It must not be wrapped: only its last row would be drawn over. */
__attribute__((format(printf, 1, 2))) static void bar_line(const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\r%.*s\033[K", (int)text_fitting(text, (size_t)columns() - 1), text);
    bar_drawn = true;
}

/* "loading [####    ] 50 % of 4.6 MB" */
static void bar(const char *what, int64_t done, int64_t total, const char *of)
{
    enum { WIDTH = 40 };
    if (!isatty(STDERR_FILENO) || total <= 0)
        return;
    double part = (double)done / (double)total;
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    int width = columns() - 1 - (int)(strlen(what) + strlen(" [] 100 % of  ") + strlen(of));
    width = width > WIDTH ? WIDTH : width < 1 ? 1 : width;
    char bar[WIDTH + 1];
    memset(bar, ' ', (size_t)width);
    memset(bar, '#', (size_t)(part * width));
    bar[width] = '\0';
    bar_line("%s [%s] %3.0f %% of %s ", what, bar, part * 100, of);
}

/* Reports once, before the model is loaded, that it does not fit into the GPU's memory, and what speed to expect. */
static void expectation_show(const struct hearth_model_progress *p)
{
    static int64_t told;
    if (!p->host_bytes || p->host_bytes == told)
        return;
    told = p->host_bytes;
    progress_clear();
    say("hearth: %s does not fit into the GPU's memory: %s of its weights stay in the host's", p->model,
        human_bytes(p->host_bytes));
    if (p->speed > 0)
        say(", at most %.1f tokens/s", p->speed);
    say("\n");
}

/* Draws the progress of a load on stderr, if that is a terminal. */
static void progress_show(const struct hearth_model_progress *p)
{
    expectation_show(p);
    bar("loading", p->done, p->total, human_bytes(p->total));
}

/* Draws the bar from the second report on a stream's prompt on, which comes at least a tenth of a second after the
 * first: most prompts that take several steps have been read by then. Even short prompts take several steps while the
 * engine does not know the model's speed yet. */
static void prompt_show(const struct hearth_stream_progress *p)
{
    static int64_t told = -1;
    char of[40];
    bool first = p->stream != told;
    told = p->stream;
    if (first)
        return;
    snprintf(of, sizeof of, "%lld tokens", (long long)p->total);
    bar("reading the prompt", p->done, p->total, of);
}

/* "too many streams are running; 3 in line, about 12 s" */
static void queue_show(const struct hearth_stream_queued *q)
{
    if (!isatty(STDERR_FILENO))
        return;
    char wait[48] = "";
    if (q->seconds >= 1)
        snprintf(wait, sizeof wait, ", about %.0f s", q->seconds);
    bar_line("too many streams are running; %lld in line%s", (long long)q->position, wait);
}

void progress_clear(void)
{
    if (bar_drawn)
        fputs("\r\033[K", stderr);
    bar_drawn = false;
}

int progress_event(void *arg, const struct hearth_event *ev)
{
    (void)arg;
    if (ev->type == HEARTH_EVENT_PROGRESS)
        progress_show(ev->body.progress);
    return 0;
}

/* --- a generation ------------------------------------------------------------------------------------------------ */

/* The position in a stream, or the request whose choices are streams, none of which has been printed yet. */
struct stream_pos {
    int64_t stream, tokens; /* -1: not known */
    char request[257];      /* its id, of 256 bytes at most; "": the request has no choices */
};

/* Prints which model answers, on a terminal, because the user may not have named one. */
static void show_model(struct gen *gen, const struct hearth_stream_begin *b)
{
    if (gen->told || gen->json || !b->model || !isatty(STDERR_FILENO))
        return;
    progress_clear();
    say_aside("hearth: %s answers%s\n", b->model,
              gen->model || gen->session ? "" : ", as no model was named (`hearth run MODEL` picks one)");
    gen->told = true;
}

/* Prints a notice; those about the template, which repeat with every turn, only once. */
static void show_notice(struct gen *gen, const struct hearth_notice *n)
{
    bool kept = !strcmp(n->name, "HISTORY_KEPT"), unknown = !strcmp(n->name, "THINK_UNKNOWN");
    if (!(kept && gen->kept_told) && !(unknown && gen->unknown_told))
        say("hearth: %s: %s\n", n->name, n->message);
    gen->kept_told |= kept;
    gen->unknown_told |= unknown;
}

static void show_event(struct gen *gen, const struct hearth_event *ev)
{
    switch (ev->type) {
    case HEARTH_EVENT_BEGIN:
        progress_clear();
        show_model(gen, ev->body.begin);
        break;
    case HEARTH_EVENT_QUEUED:
        queue_show(ev->body.queued);
        break;
    case HEARTH_EVENT_PROMPT:
        prompt_show(ev->body.prompt);
        break;
    case HEARTH_EVENT_PROGRESS:
        progress_show(ev->body.progress);
        break;
    case HEARTH_EVENT_NOTICE:
        progress_clear();
        show_notice(gen, ev->body.notice);
        break;
    case HEARTH_EVENT_TOKENS:
        progress_clear();
        if (!gen->json && !(gen->several && ev->body.tokens->choice >= 0)) {
            reasoning_show(gen, ev->body.tokens->reasoning);
            if (ev->body.tokens->text.len)
                reasoning_end(gen);
            print_text(ev->body.tokens->text.data, ev->body.tokens->text.len);
            fflush(stdout);
        }
        break;
    default:
        break;
    }
}

/* Prints how to get the rest of a stream whose connection has broken. Without a BEGIN event its number is unknown. */
static void show_resume_hint(const struct gen *gen, const struct stream_pos *at)
{
    const char *request = *at->request ? at->request : gen->g.request;
    char *id = shell_operand(request ? request : "");
    progress_clear();
    if (at->stream >= 0)
        say("\nhearth: `hearth attach %lld --from %lld` goes on with it\n", (long long)at->stream,
            (long long)at->tokens);
    else if (request)
        say("hearth: `hearth attach --request %s` goes on with it%s\n", id, *at->request ? "" : ", if it had begun");
    else
        say("hearth: `hearth attach` goes on with it, if it had begun\n");
    free(id);
}

/* Waits for the end of one submitted generation. */
static int gen_wait(struct hearth *h, struct gen *gen, uint32_t request, struct hearth_generate_result **out,
                    struct hearth_err *err)
{
    int interrupts = 0;
    struct stream_pos at = {.stream = -1};
    for (;;) {
        struct hearth_event ev;
        int rc;
        while ((rc = hearth_next(h, &ev, err)) > 0) {
            if (ev.request && ev.request != request)
                continue;
            show_event(gen, &ev);
            if (ev.type == HEARTH_EVENT_BEGIN && gen->several && ev.body.begin->choice >= 0)
                snprintf(at.request, sizeof at.request, "%s", ev.body.begin->request);
            else if (ev.type == HEARTH_EVENT_BEGIN)
                at.stream = ev.body.begin->stream;
            if (ev.type == HEARTH_EVENT_TOKENS)
                at.tokens = ev.body.tokens->index + ev.body.tokens->count;
            if (ev.type == HEARTH_EVENT_DONE) {
                *out = hearth_take(h);
                return 0;
            }
            if (ev.type == HEARTH_EVENT_ERROR) {
                *err = ev.err;
                return err->code;
            }
        }
        if (!rc)
            rc = hearth_wait(h, interrupt_pipe[0], NULL, err);
        if (rc < 0) {
            show_resume_hint(gen, &at);
            return rc;
        }
        char byte;
        if (rc != HEARTH_WAIT_FD || read(interrupt_pipe[0], &byte, 1) != 1)
            continue;
        if (interrupts++) {
            fputc('\n', stderr);
            exit(STATUS_INTERRUPTED); /* the cancel has been sent to the daemon */
        }
        gen->interrupted = true;
        rc = hearth_cancel(h, request, err);
        if (rc < 0 && rc != HEARTH_ENOSTREAM)
            return rc;
    }
}

static int gen_finish(struct hearth *h, struct gen *gen, uint32_t request, struct hearth_generate_result **out,
                      struct hearth_err *err)
{
    gen->shown = SHOWN_NOTHING;
    gen->interrupted = false;
    interrupts_begin();
    int rc = gen_wait(h, gen, request, out, err);
    interrupts_end();
    progress_clear();
    return rc;
}

static int gen_once(struct hearth *h, struct gen *gen, struct hearth_generate_result **out, struct hearth_err *err)
{
    uint32_t request;
    int rc = hearth_submit(h, &gen->g, &request, err);
    return rc ? rc : gen_finish(h, gen, request, out, err);
}

int gen_attach(struct hearth *h, struct gen *gen, int64_t stream, const char *id, int64_t from,
               struct hearth_generate_result **out, struct hearth_err *err)
{
    uint32_t request;
    int rc = hearth_attach(h, stream, id, from, &request, err);
    return rc ? rc : gen_finish(h, gen, request, out, err);
}

/* Passes the files of a session's model again, because the daemon to which they were passed may have been restarted. */
static bool pass_again(struct hearth *h, const struct gen *gen)
{
    struct hearth_session_show_result *r;
    if (!gen->session || hearth_sessions_show(h, gen->session, false, &r, NULL, NULL))
        return false;
    bool passed = r->session.path && !hearth_models_pass(h, r->session.path, NULL, NULL);
    hearth_free(r);
    return passed;
}

int gen_run(struct hearth *h, struct gen *gen, struct hearth_generate_result **out, struct hearth_err *err)
{
    char *model = gen->model || !gen->session ? model_or_default(h, gen->model) : NULL;
    gen->g.model = model;
    gen->g.session = gen->session;
    gen->g.stream = !gen->json;
    in_session = gen->session != NULL;
    int rc = gen_once(h, gen, out, err);
    /* A new session, which starts with the default model; or a retry of the request that created it. */
    if (!model && (rc == HEARTH_ENOSESSION || (rc == HEARTH_ECONFLICT && gen->g.request))) {
        gen->g.model = model = model_or_default(h, NULL);
        rc = gen_once(h, gen, out, err);
    }
    if (rc == HEARTH_ENOTPASSED && pass_again(h, gen))
        rc = gen_once(h, gen, out, err);
    gen->g.model = NULL;
    free(model);
    return rc;
}

int gen_fail(const struct gen *gen, const struct hearth_err *err)
{
    if (!gen->interrupted || err->code != HEARTH_ECANCELLED)
        return fail(err);
    if (gen->json)
        fail(err); /* a script that asked for JSON gets an object in any case */
    return STATUS_INTERRUPTED;
}

/* The line above each choice gives the seed with which the choice can be generated again. */
void gen_print_choices(struct gen *gen, const struct hearth_generate_result *r)
{
    for (size_t i = 0; i < r->n_choices; i++) {
        const struct hearth_choice *c = &r->choices[i];
        style_begin(stdout, STYLE_ASIDE);
        printf("--- choice %lld, seed %" PRIu64 ", %s", (long long)c->index, c->seed, c->finish_reason);
        style_end(stdout);
        putchar('\n');
        gen->shown = SHOWN_NOTHING;
        reasoning_show(gen, c->reasoning);
        reasoning_end(gen);
        print_text(c->text.data, c->text.len);
        if (!c->text.len || c->text.data[c->text.len - 1] != '\n')
            putchar('\n');
        if (c->error)
            say("hearth: %s\n", c->error);
    }
    fflush(stdout);
}

/* The finish_reason that is reported: of several choices, that of the one which ended worst. */
static const char *worst_reason(const struct hearth_generate_result *r)
{
    static const char *const bad[] = {"error", "cancelled", "context_full"};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        for (size_t i = 0; i < r->n_choices; i++)
            if (r->choices[i].finish_reason && !strcmp(r->choices[i].finish_reason, bad[k]))
                return bad[k];
    return r->finish_reason ? r->finish_reason : "";
}

static bool has_report(const struct gen *gen, const struct hearth_generate_result *r)
{
    const char *why = r->finish_reason ? r->finish_reason : "";
    return gen->stats || !strcmp(why, "context_full") || !strcmp(why, "error") ||
           (!strcmp(why, "cancelled") && !gen->interrupted);
}

/* A file gets only the text. */
void gen_end_line(const struct gen *gen, const struct hearth_generate_result *r)
{
    const struct hearth_bytes *text = &r->text;
    bool follows = isatty(STDOUT_FILENO) || (has_report(gen, r) && stdout_is_stderr());
    if (follows && !(text->len && text->data[text->len - 1] == '\n'))
        putchar('\n');
    fflush(stdout);
}

int gen_report(const struct gen *gen, const struct hearth_generate_result *r)
{
    const char *why = worst_reason(r);
    if (!strcmp(why, "context_full"))
        say("hearth: the context is full%s%s\n", gen->session ? "; " : "", gen->session ? context_step : "");
    for (size_t i = 0; i < r->n_choices && gen->json; i++) /* gen_print_choices() has said it already */
        if (r->choices[i].error)
            say("hearth: choice %lld: %s\n", (long long)r->choices[i].index, r->choices[i].error);
    if (!strcmp(why, "error") && !r->n_choices)
        say("hearth: %s\n", r->error ? r->error : "INTERNAL: the generation failed");
    if (!strcmp(why, "cancelled") && !gen->interrupted)
        say("hearth: the generation was cancelled, and not from here\n");
    if (gen->stats)
        say_aside(
            "reused %lld of %lld prompt tokens, restored %lld; %lld tokens, %.1f ms to the first, %.0f tokens/s\n",
            (long long)r->usage.reused_tokens, (long long)r->usage.prompt_tokens, (long long)r->usage.restored_tokens,
            (long long)r->usage.completion_tokens,
            r->timings.queue_ms + r->timings.load_ms + r->timings.restore_ms + r->timings.prefill_ms,
            r->timings.tokens_per_second);
    if (!strcmp(why, "cancelled"))
        return STATUS_INTERRUPTED;
    return strcmp(why, "error") ? STATUS_OK : STATUS_ERROR;
}
