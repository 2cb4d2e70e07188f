/* chat.c - a conversation: lines in, answers out. On a terminal the line is edited by libedit and has a history. */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#include <histedit.h>

#include "client/cmd.h"

/* Where lines come from: the editor on a terminal, else plain stdin. */
struct lines {
    EditLine *el; /* NULL: plain */
    History *history;
    char file[PATH_MAX]; /* of the history; empty: none is kept */
    char *line;
    size_t cap;
};

/* Ctrl+C at the prompt drops the line. libedit's own handling of signals (EL_SIGNAL) sends the signal to the whole
 * process group, so reading a character is ours. SIGINT is blocked at the prompt but for the wait itself (ppoll), so
 * one that comes just before the wait ends it too. */
static volatile sig_atomic_t at_prompt_interrupted;
static sigset_t waiting_mask;

static void on_prompt_interrupt(int sig)
{
    (void)sig;
    at_prompt_interrupted = 1;
}

static int next_char(EditLine *el, wchar_t *out)
{
    (void)el;
    mbstate_t state = {0};
    for (;;) {
        char byte;
        struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
        int ready = ppoll(&in, 1, NULL, &waiting_mask);
        if (at_prompt_interrupted)
            return -1;
        if (ready < 0 && errno == EINTR)
            continue;
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n <= 0)
            return (int)n;
        size_t used = mbrtowc(out, &byte, 1, &state);
        if (used != (size_t)-2) { /* a whole character, or a byte of none, which is taken as it is */
            if (used == (size_t)-1)
                *out = (unsigned char)byte;
            return 1;
        }
    }
}

static char *prompt_text(EditLine *el)
{
    (void)el;
    return (char *)">>> ";
}

/* $XDG_STATE_HOME/hearth/chat_history, beside the sessions; a place that cannot be had means no history file. */
static void history_file(char *path, size_t size)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n;
    if (state && *state == '/')
        n = snprintf(path, size, "%s/hearth/chat_history", state);
    else
        n = snprintf(path, size, "%s/.local/state/hearth/chat_history", home ? home : "");
    if (n < 0 || (size_t)n >= size || *path != '/')
        *path = '\0';
}

static void lines_open(struct lines *in)
{
    *in = (struct lines){0};
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return;
    HistEvent he;
    in->el = el_init("hearth", stdin, stdout, stderr);
    in->history = history_init();
    if (!in->el || !in->history)
        return;
    history_file(in->file, sizeof in->file);
    history(in->history, &he, H_SETSIZE, 1000);
    history(in->history, &he, H_SETUNIQUE, 1);
    if (*in->file)
        history(in->history, &he, H_LOAD, in->file);
    el_set(in->el, EL_PROMPT, prompt_text);
    el_set(in->el, EL_EDITOR, "emacs");
    el_set(in->el, EL_GETCFN, next_char);
    el_set(in->el, EL_HIST, history, in->history);
    el_source(in->el, NULL);
}

static void lines_close(struct lines *in)
{
    HistEvent he;
    if (in->history) {
        /* What was asked is as private as the sessions: nobody else may read it. */
        mode_t before = umask(0077);
        if (*in->file)
            history(in->history, &he, H_SAVE, in->file);
        umask(before);
        history_end(in->history);
    }
    if (in->el)
        el_end(in->el);
    free(in->line);
}

/* The next line without its newline; false at the end of input. It is valid until the next call. */
static bool lines_next(struct lines *in, struct hearth_bytes *out)
{
    if (!in->el) {
        ssize_t len = getline(&in->line, &in->cap, stdin);
        if (len < 0)
            return false;
        out->data = in->line;
        out->len = (size_t)len - (len > 0 && in->line[len - 1] == '\n');
        return true;
    }
    for (;;) {
        int len;
        sigset_t interrupt;
        sigemptyset(&interrupt);
        sigaddset(&interrupt, SIGINT);
        sigprocmask(SIG_BLOCK, &interrupt, &waiting_mask);
        at_prompt_interrupted = 0;
        el_resize(in->el);
        el_set(in->el, EL_PREP_TERM, 1); /* or what is typed just after the prompt is echoed twice */
        const char *line = el_gets(in->el, &len);
        sigprocmask(SIG_SETMASK, &waiting_mask, NULL);
        if (line && len > 0) {
            HistEvent he;
            if (in->history && len > 1)
                history(in->history, &he, H_ENTER, line);
            out->data = line;
            out->len = (size_t)len - (line[len - 1] == '\n');
            return true;
        }
        putchar('\n');
        if (!at_prompt_interrupted)
            return false;
        el_reset(in->el);
    }
}

/* One exchange. Returns the exit status it would mean. */
static int chat_turn(struct hearth *h, struct gen *gen, struct hearth_bytes line)
{
    struct hearth_message messages[2];
    size_t n = 0;
    if (gen->system)
        messages[n++] = (struct hearth_message){.role = "system", .content = hearth_text(gen->system)};
    messages[n++] = (struct hearth_message){.role = "user", .content = line};
    gen->g.messages = messages;
    gen->g.n_messages = n;

    struct hearth_generate_result *r;
    struct hearth_err err;
    if (gen_run(h, gen, &r, &err))
        return fail(&err);
    gen->system = NULL; /* said once */
    if (gen->json)
        print_json(json_result(r));
    else
        putchar('\n');
    fflush(stdout);
    int status = gen_report(gen, r);
    hearth_free(r);
    return status;
}

int chat_loop(struct hearth *h, struct gen *gen)
{
    struct lines in;
    struct hearth_bytes line;
    int status = STATUS_OK;
    lines_open(&in);
    struct sigaction sa = {.sa_handler = on_prompt_interrupt}, before;
    sigemptyset(&sa.sa_mask);
    if (in.el)
        sigaction(SIGINT, &sa, &before);
    while (lines_next(&in, &line)) {
        if (!line.len)
            continue;
        status = chat_turn(h, gen, line);
        /* A script stops at the first error; a person sees it and goes on, while there is a daemon. */
        if (status == STATUS_NO_DAEMON || (!in.el && status != STATUS_OK))
            break;
        status = STATUS_OK;
    }
    if (in.el)
        sigaction(SIGINT, &before, NULL);
    lines_close(&in);
    return status;
}

int chat_begin(struct hearth *h, struct gen *gen)
{
    /* A conversation is worth keeping, so one that was not named gets a name that nobody else has. */
    char name[48];
    bool named = gen->session;
    if (!named) {
        time_t now = time(NULL);
        size_t n = strftime(name, sizeof name, "chat-%Y%m%d-%H%M%S", localtime(&now));
        snprintf(name + n, sizeof name - n, "-%d", (int)getpid());
        gen->session = name;
    }
    int status = chat_loop(h, gen);
    if (!named && isatty(STDIN_FILENO))
        fprintf(stderr, "`hearth resume %s` goes on with this\n", name);
    return status;
}
