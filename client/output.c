/* output.c - what the user sees: errors, text from a model, tables, sizes and ages. See cmd.h. */
#include "config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/cmd.h"

enum { STDIN_MAX = 64 << 20 }; /* larger than any request, so that the daemon's limit gives the exact error */

/* Writes text; on a terminal, control characters become '?'. In UTF-8 the C1 controls are C2 followed by 80..9F. */
static void put_text(FILE *to, const char *data, size_t len)
{
    if (!isatty(fileno(to))) {
        fwrite(data, 1, len, to);
        return;
    }
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)data[i];
        bool c0 = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
        bool c1 = c == 0xc2 && i + 1 < len && (unsigned char)data[i + 1] < 0xa0;
        if (c1)
            i++;
        fputc(c0 || c1 ? '?' : c, to);
    }
}

/* A model may write anything, even escape sequences. */
void print_text(const char *data, size_t len)
{
    put_text(stdout, data, len);
}

static void put_formatted(FILE *to, const char *fmt, va_list ap)
{
    char *text;
    int len = vasprintf(&text, fmt, ap);
    if (len < 0)
        abort();
    put_text(to, text, (size_t)len);
    free(text);
}

void printf_text(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    put_formatted(stdout, fmt, ap);
    va_end(ap);
}

void say(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    put_formatted(stderr, fmt, ap);
    va_end(ap);
}

char *shell_operand(const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/:@%+,-";
    size_t n = strlen(text);
    char *operand = malloc(4 * n + sizeof "-- ''"), *to = operand;
    if (!operand)
        abort();
    bool quoted = n == 0;
    for (size_t i = 0; i < n; i++)
        quoted |= !strchr(plain, text[i]) && !((unsigned char)text[i] & 0x80);
    to = stpcpy(to, *text == '-' ? "-- " : "");
    to = stpcpy(to, quoted ? "'" : "");
    for (size_t i = 0; i < n; i++)
        if (text[i] == '\'')
            to = stpcpy(to, "'\\''");
        else
            *to++ = text[i];
    strcpy(to, quoted ? "'" : "");
    return operand;
}

bool json_errors, in_session;
json_t *errors_of_several;

const char context_step[] =
    "`hearth sessions export SESSION --markdown | tail -n 40 | hearth run --chat -s NEW -m MODEL` begins a new session "
    "with the end of that one";

bool term_has_sequences(void)
{
    const char *term = getenv("TERM");
    return term && *term && strcmp(term, "dumb") != 0;
}

bool style_is_on(FILE *to)
{
    const char *no_color = getenv("NO_COLOR");
    return isatty(fileno(to)) && !(no_color && *no_color) && term_has_sequences();
}

void style_begin(FILE *to, enum style style)
{
    static const char *const codes[] = {
        [STYLE_HEAD] = "\033[1m", [STYLE_ASIDE] = "\033[2m", [STYLE_ERROR] = "\033[1;31m"};
    if (style_is_on(to))
        fputs(codes[style], to);
}

void style_end(FILE *to)
{
    if (style_is_on(to))
        fputs("\033[0m", to);
}

void say_aside(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    style_begin(stderr, STYLE_ASIDE);
    put_formatted(stderr, fmt, ap);
    style_end(stderr);
    va_end(ap);
}

/* Returns what the user can do about an error, or NULL. */
static const char *next_step(int code)
{
    switch (code) {
    case HEARTH_ENOMODEL:
        return "`hearth list` has the models that can be named";
    case HEARTH_ENOSESSION:
        return "`hearth sessions` has the sessions";
    case HEARTH_ESESSIONEXISTS:
        return "another name is free; `hearth sessions` has those that are taken";
    case HEARTH_ESESSIONBUSY:
        return "`hearth streams` has what is running, and `hearth attach` goes on with it";
    case HEARTH_ENOSTREAM:
        return "`hearth streams --all` has the generations that can be shown";
    case HEARTH_EMODELMISMATCH:
        return "`hearth sessions export SESSION | hearth sessions import --name NEW -m MODEL` goes on with another one";
    case HEARTH_ECONTEXT:
        return in_session ? context_step : NULL;
    case HEARTH_ENOTEMPLATE:
        return "--template FILE gives one; `hearth run -m MODEL PROMPT` goes on from raw text, without a template";
    default:
        return NULL;
    }
}

int fail(const struct hearth_err *err)
{
    return fail_next(err, next_step(err->code));
}

int fail_next(const struct hearth_err *err, const char *next)
{
    const char *name = hearth_error_name(err->code);
    progress_clear();
    style_begin(stderr, STYLE_ERROR);
    say("hearth: %s", name);
    style_end(stderr);
    say(": %s\n", err->msg);
    if (next)
        say_aside("hearth: %s\n", next);
    json_t *error =
        json_pack("{s:s, s:o, s:s?}", "symbol", name, "message", json_text(err->msg, strlen(err->msg)), "next", next);
    if (errors_of_several)
        json_array_append(errors_of_several, error);
    else if (json_errors)
        print_json(json_pack("{s:O}", "error", error));
    json_decref(error);
    return err->code == HEARTH_ECONNECT ? STATUS_NO_DAEMON : STATUS_ERROR;
}

int finish(int status)
{
    /* A write error on stdout, such as a full disk, must not look like success. */
    if ((fflush(stdout) || ferror(stdout)) && status == STATUS_OK) {
        fputs("hearth: the output could not be written\n", stderr);
        status = STATUS_ERROR;
    }
    return status;
}

bool stdout_is_stderr(void)
{
    struct stat out, err;
    return !fstat(STDOUT_FILENO, &out) && !fstat(STDERR_FILENO, &err) && out.st_dev == err.st_dev &&
           out.st_ino == err.st_ino;
}

bool read_stdin(struct hearth_bytes *out, struct hearth_err *err)
{
    size_t len = 0, cap = 4096;
    char *data = malloc(cap);
    for (;;) {
        if (!data)
            abort();
        size_t n = fread(data + len, 1, cap - len - 1, stdin);
        len += n;
        if (n == 0 || (feof(stdin) && len <= STDIN_MAX)) /* do not read a terminal again after Ctrl+D */
            break;
        if (len > STDIN_MAX) {
            err->code = HEARTH_ETOOBIG;
            snprintf(err->msg, sizeof err->msg, "stdin holds more than %d bytes", STDIN_MAX);
            free(data);
            return false;
        }
        if (cap - len == 1)
            data = realloc(data, cap *= 2);
    }
    if (ferror(stdin)) {
        err->code = HEARTH_EIO;
        snprintf(err->msg, sizeof err->msg, "stdin: %s", strerror(errno));
        free(data);
        return false;
    }
    data[len] = '\0';
    out->data = data;
    out->len = len;
    return true;
}

void table_add(struct table *t, size_t n_col, ...)
{
    char **cell = realloc(t->cell, (t->n_cell + n_col) * sizeof *cell);
    if (!cell)
        abort();
    t->cell = cell;
    t->n_col = n_col;
    va_list ap;
    va_start(ap, n_col);
    for (size_t i = 0; i < n_col; i++) {
        const char *s = va_arg(ap, const char *);
        char *copy = strdup(s ? s : "-");
        if (!copy)
            abort();
        text_straighten(copy);
        t->cell[t->n_cell++] = copy;
    }
    va_end(ap);
}

void table_print(struct table *t)
{
    size_t *widest = calloc(t->n_col + 1, sizeof *widest); /* of each column */
    if (!widest)
        abort();
    for (size_t i = 0; i < t->n_cell; i++) {
        size_t own = text_columns(t->cell[i], strlen(t->cell[i])), *most = &widest[i % t->n_col];
        *most = own > *most ? own : *most;
    }
    for (size_t i = 0; i < t->n_cell; i++) {
        size_t col = i % t->n_col, own = text_columns(t->cell[i], strlen(t->cell[i]));
        bool head = t->has_head && i < t->n_col;
        if (head)
            style_begin(stdout, STYLE_HEAD);
        print_text(t->cell[i], strlen(t->cell[i]));
        if (head)
            style_end(stdout);
        if (col + 1 < t->n_col)
            printf("%*s", (int)(widest[col] - own + 2), "");
        else
            putchar('\n');
    }
    for (size_t i = 0; i < t->n_cell; i++)
        free(t->cell[i]);
    free(t->cell);
    free(widest);
    *t = (struct table){0};
}

static char *scratch(size_t *size)
{
    static char buf[8][32];
    static unsigned turn;
    *size = sizeof buf[0];
    return buf[turn++ % 8];
}

const char *human_bytes(int64_t bytes)
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB"};
    size_t size, u = 0;
    char *buf = scratch(&size);
    double v = (double)bytes;
    while (v >= 1000 && u + 1 < sizeof unit / sizeof *unit) {
        v /= 1000;
        u++;
    }
    snprintf(buf, size, u ? "%.1f %s" : "%.0f %s", v, unit[u]);
    return buf;
}

static const char *human_span(double s)
{
    size_t size;
    char *buf = scratch(&size);
    if (s < 60)
        snprintf(buf, size, "%.0f s", s > 0 ? s : 0);
    else if (s < 3600)
        snprintf(buf, size, "%.0f min", s / 60);
    else if (s < 2 * 86400)
        snprintf(buf, size, "%.0f h", s / 3600);
    else
        snprintf(buf, size, "%.0f days", s / 86400);
    return buf;
}

const char *human_ago(double when)
{
    size_t size;
    char *buf = scratch(&size);
    double s = difftime(time(NULL), (time_t)when);
    if (s < 60)
        return "now";
    snprintf(buf, size, "%s ago", human_span(s));
    return buf;
}

const char *human_in(double when)
{
    return human_span(difftime((time_t)when, time(NULL)));
}

const char *human_since(double when)
{
    return human_span(difftime(time(NULL), (time_t)when));
}
