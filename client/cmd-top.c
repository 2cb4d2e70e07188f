/*
 * cmd-top.c - hearth top: models, streams and memory, redrawn until q or Ctrl+C. It uses plain ANSI sequences; lines
 * that do not fit into the terminal are left out at the bottom. Where stdout is not a terminal, or one that knows
 * no such sequences, or with --once, it prints once.
 */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "client/cmd.h"

enum { ROWS_MAX = 512, COLUMNS_MAX = 1024 };

/* --- the screen: lines of text, cut to the terminal --------------------------------------------------------------- */

static struct screen {
    bool live;         /* it is redrawn, and what is drawn is cut to the terminal's size */
    int rows, columns; /* this size; 0: not live */
    int row;           /* the row that is written next */
} screen;

__attribute__((format(printf, 1, 2))) static void line(const char *fmt, ...)
{
    char text[COLUMNS_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    text_straighten(text);
    if (screen.rows && screen.row >= screen.rows)
        return;
    if (screen.rows && screen.row) /* no newline after the last line, or the terminal would scroll */
        putchar('\n');
    print_text(text, screen.rows ? text_fitting(text, (size_t)screen.columns) : strlen(text));
    fputs(screen.rows ? "\033[K" : "\n", stdout);
    screen.row++;
}

static void measure(void)
{
    struct winsize w;
    if (!screen.live)
        return;
    bool known = !ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) && w.ws_row && w.ws_col;
    screen.rows = known ? w.ws_row : 24;
    screen.columns = known ? w.ws_col : 80;
}

/* --- what is shown ------------------------------------------------------------------------------------------------ */

/* The speed of a stream: its tokens between two updates. */
struct speed {
    int64_t stream, tokens;
    double per_second;
};

static struct speeds {
    struct speed v[ROWS_MAX];
    size_t n;
    double at;
} speeds;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const struct speed *speed_of(int64_t stream)
{
    for (size_t i = 0; i < speeds.n; i++)
        if (speeds.v[i].stream == stream)
            return &speeds.v[i];
    return NULL;
}

static void look(const struct hearth_streams_list_result *r)
{
    struct speed v[ROWS_MAX];
    size_t n = 0;
    double at = now(), passed = at - speeds.at;
    for (size_t i = 0; i < r->n_streams && n < ROWS_MAX; i++) {
        const struct hearth_stream_info *s = &r->streams[i];
        const struct speed *before = speed_of(s->stream);
        v[n++] = (struct speed){s->stream, s->tokens,
                                before && passed > 0 ? (double)(s->tokens - before->tokens) / passed : 0};
    }
    memcpy(speeds.v, v, n * sizeof *v);
    speeds.n = n;
    speeds.at = at;
}

static const char *part_of(int64_t used, int64_t limit)
{
    static char text[64];
    if (limit)
        snprintf(text, sizeof text, "%s of %s", human_bytes(used), human_bytes(limit));
    else
        snprintf(text, sizeof text, "%s", human_bytes(used));
    return text;
}

static void draw_engine(const struct hearth_engine_status *e)
{
    if (!e->backend)
        line("engine  %s", e->state);
    else
        line("engine  %s  %s: %s", e->state, e->backend, e->device ? e->device : "-");
}

static void draw_head(const struct hearth_status_result *r)
{
    const struct hearth_engine_status *e = &r->engine;
    const struct hearth_served *s = &r->served;
    line("hearthd %s  up %.0f s  %lld clients  %lld running, %lld waiting  %lld done", r->version, r->uptime,
         (long long)r->connections, (long long)e->running, (long long)(e->queued + r->waiting),
         (long long)(s->stop + s->length + s->context_full + s->cancelled + s->error));
    for (size_t i = 0; i < r->n_engines; i++)
        draw_engine(&r->engines[i]);
    if (!r->n_engines)
        draw_engine(e);
    if (e->no_gpu)
        line("WARNING no GPU is used: %s", e->no_gpu);
    if (!e->mem_total) /* no engine has told it */
        return;
    line("memory  %s free of the device's", part_of(e->mem_free, e->mem_total));
    char who[COLUMNS_MAX];
    memory_own_line(&e->memory, who, sizeof who);
    line("hearth  %s", who);
    memory_others_line(&e->memory, who, sizeof who);
    line("others  %s", who);
}

static void draw_tiers(const struct hearth_status_result *r)
{
    const struct hearth_engine_status *e = &r->engine;
    struct kv_bytes kv = kv_bytes_of(r);
    char device[64], host[64], disk[64];
    snprintf(device, sizeof device, "%s", part_of(kv.used, kv.total));
    snprintf(host, sizeof host, "%s", part_of(e->kv.host_bytes, e->kv.host_limit));
    snprintf(disk, sizeof disk, "%s", part_of(kv.files, r->kv_files.limit));
    if (e->mem_total)
        line("KV      device %s  host %s  files %s", device, host, disk);
    else
        line("KV      files %s", disk);
}

static void draw_models(const struct hearth_engine_status *e)
{
    line("%s", "");
    char context[48], kv[24], at[64];
    size_t width = 10; /* width of the column WHERE, which is seldom wider */
    for (size_t i = 0; i < e->n_models; i++) {
        size_t n = strlen(memory_where(&e->models[i], at, sizeof at));
        width = n > width ? n : width;
    }
    line("%-24s %-*s %9s %14s %7s %9s", "MODEL", (int)width, "WHERE", "WEIGHTS", "CONTEXT", "RUNNING", "KV");
    for (size_t i = 0; i < e->n_models; i++) {
        const struct hearth_loaded_model *m = &e->models[i];
        const char *name = m->name ? m->name : m->path;
        size_t n = text_columns(name, strlen(name));
        snprintf(context, sizeof context, "%lld/%lld", (long long)m->context_used, (long long)m->context);
        snprintf(kv, sizeof kv, "%s", human_bytes(m->pages_used * m->page_bytes));
        line("%s%*s %-*s %9s %14s %7lld %9s", name, n < 24 ? 24 - (int)n : 0, "", (int)width,
             memory_where(m, at, sizeof at), human_bytes(m->bytes), context, (long long)m->sequences, kv);
    }
}

static void draw_streams(const struct hearth_streams_list_result *r)
{
    line("%s", "");
    line("%-8s %-20s %-20s %7s %7s %-9s %s", "STREAM", "SESSION", "MODEL", "TOKENS", "TOK/S", "STATE", "AGE");
    for (size_t i = 0; i < r->n_streams; i++) {
        const struct hearth_stream_info *s = &r->streams[i];
        const struct speed *v = speed_of(s->stream);
        const char *name = s->name ? s->name : "-", *model = s->model ? s->model : "-";
        size_t n_name = text_fitting(name, 20), n_model = text_fitting(model, 20);
        line("%-8lld %.*s%*s %.*s%*s %7lld %7.1f %-9s %s", (long long)s->stream, (int)n_name, name,
             20 - (int)text_columns(name, n_name), "", (int)n_model, model, 20 - (int)text_columns(model, n_model), "",
             (long long)s->tokens, v ? v->per_second : 0, s->state, human_since(s->began));
    }
}

/* Draws the screen once. Returns 0, or a HEARTH_E* code. */
static int draw(struct hearth *h, struct hearth_err *err)
{
    struct hearth_status_result *r;
    struct hearth_streams_list_result *streams;
    int rc = hearth_status(h, &r, NULL, err);
    if (rc)
        return rc;
    if ((rc = hearth_streams_list(h, false, &streams, NULL, err))) {
        hearth_free(r);
        return rc;
    }
    look(streams);
    measure();
    screen.row = 0;
    if (screen.rows)
        fputs("\033[H", stdout);
    draw_head(r);
    draw_tiers(r);
    draw_streams(streams);
    draw_models(&r->engine);
    if (screen.rows)
        fputs("\033[J", stdout);
    fflush(stdout);
    hearth_free(streams);
    hearth_free(r);
    return 0;
}

/* --- the terminal ---------------------------------------------------------------------------------------------------
 */

static volatile sig_atomic_t redraw;
static bool has_keys; /* stdin is a terminal */
static struct termios was, raw;

/* These two are called by signal handlers, too. */
static void terminal_take(void)
{
    static const char sequence[] = "\033[?1049h\033[?25l"; /* the alternate screen; no cursor */
    if (has_keys) /* in the background this stops the process, before anything is written */
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    if (write(STDOUT_FILENO, sequence, sizeof sequence - 1) < 0)
        return; /* the next line will fail as well */
}

static void terminal_return(void)
{
    static const char sequence[] = "\033[?25h\033[?1049l";
    ssize_t n = write(STDOUT_FILENO, sequence, sizeof sequence - 1);
    (void)n; /* the mode is to be set all the same */
    if (has_keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &was);
}

static void on_resize(int sig)
{
    (void)sig;
    redraw = 1;
}

/* Ends here, because a daemon that does not answer may be waited for. */
static void on_end(int sig)
{
    (void)sig;
    terminal_return();
    _exit(STATUS_OK);
}

/* Ctrl+Z: the shell gets its screen back, and `fg` comes here again. */
static void on_stop(int sig)
{
    const struct sigaction stop = {.sa_handler = SIG_DFL};
    struct sigaction own;
    int saved = errno;
    terminal_return();
    sigaction(sig, &stop, &own);
    raise(sig);
    sigaction(sig, &own, NULL);
    terminal_take();
    redraw = 1;
    errno = saved;
}

/* The signals that have a handler here; each runs by itself, since all of them change the terminal. */
static sigset_t handled(void)
{
    static const int signals[] = {SIGWINCH, SIGINT, SIGTERM, SIGTSTP};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaddset(&set, signals[i]);
    return set;
}

/* Waits until the next update; returns false where the user wants to quit. The signals are only let in while it waits,
 * so that none is missed. */
static bool rest(double seconds, const sigset_t *waiting)
{
    double until = now() + seconds;
    while (!redraw) {
        double left = until - now();
        struct timespec most = {(time_t)left, (long)(1e9 * (left - (double)(time_t)left))};
        struct pollfd in = {.fd = has_keys ? STDIN_FILENO : -1, .events = POLLIN};
        int n = left > 0 ? ppoll(&in, 1, &most, waiting) : 0;
        if (n == 0)
            return true;
        char c;
        if (n > 0 && (read(STDIN_FILENO, &c, 1) != 1 || c == 'q' || c == 'Q'))
            return false;
        if (n < 0 && errno != EINTR)
            return false;
    }
    redraw = 0;
    return true;
}

/* Draws again and again until the user wants to quit; returns with the signals blocked. Drawing can be interrupted: a
 * daemon that does not answer may be waited for. */
static int draw_on(struct hearth *h, double seconds, const sigset_t *waiting, struct hearth_err *err)
{
    const sigset_t set = handled();
    for (;;) {
        sigprocmask(SIG_SETMASK, waiting, NULL);
        int rc = draw(h, err);
        sigprocmask(SIG_BLOCK, &set, NULL);
        if (rc || !rest(seconds, waiting))
            return rc;
    }
}

static int watch(struct hearth *h, double seconds)
{
    has_keys = !tcgetattr(STDIN_FILENO, &was);
    raw = was;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    const struct sigaction resize = {.sa_handler = on_resize, .sa_mask = handled()};
    const struct sigaction end = {.sa_handler = on_end, .sa_mask = handled()};
    struct sigaction stop = {.sa_handler = on_stop, .sa_flags = SA_NODEFER, .sa_mask = handled()};
    sigdelset(&stop.sa_mask, SIGTSTP); /* which stops the process in there */
    struct sigaction before[4];
    sigset_t waiting;
    screen.live = true;
    sigprocmask(SIG_BLOCK, NULL, &waiting);
    sigaction(SIGWINCH, &resize, &before[0]);
    signal_catch(SIGINT, &end, &before[1]);
    signal_catch(SIGTERM, &end, &before[2]);
    signal_catch(SIGTSTP, &stop, &before[3]);
    terminal_take();
    struct hearth_err err;
    int rc = draw_on(h, seconds, &waiting, &err);
    fflush(stdout);
    terminal_return();
    sigaction(SIGWINCH, &before[0], NULL);
    sigaction(SIGINT, &before[1], NULL);
    sigaction(SIGTERM, &before[2], NULL);
    sigaction(SIGTSTP, &before[3], NULL);
    sigprocmask(SIG_SETMASK, &waiting, NULL);
    return rc ? fail(&err) : STATUS_OK; /* printed after the alternate screen has been left */
}

static int run(const struct cmd *cmd, int argc, char **argv)
{
    double seconds = 1;
    bool once = false;
    const struct opt opts[] = {
        {"interval", 'n', OPT_REAL, &seconds, 0.1, 3600, "SECONDS", "between two looks (1)"},
        {"once", 0, OPT_FLAG, &once, 0, 0, NULL, "print it once"},
        OPT_END,
    };
    opts_parse(cmd, &argc, &argv, opts, NULL);
    if (argc)
        return usage(cmd, "no argument is expected, not '%s'", argv[0]);
    struct hearth *h;
    int status = daemon_open_running(&h);
    if (status != STATUS_OK)
        return status;
    struct hearth_err err;
    if (!once && isatty(STDOUT_FILENO) && term_has_sequences())
        status = watch(h, seconds);
    else if (draw(h, &err))
        status = fail(&err);
    return verb_end(h, NULL, status);
}

const struct cmd cmd_top = {"top", "[-n SECONDS] [--once]", "models, streams and memory, live", run};
