/* lines.c - the line editor, and how lines become a message; see lines.h. */
#include "config.h"

#include "client/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* Ctrl+C at the prompt discards the line. libedit's own signal handling (EL_SIGNAL) would send the signal to the whole
 * process group, so this file reads the characters itself. At the prompt SIGINT is blocked except during the wait
 * (ppoll), so one that arrives just before the wait ends it too. */
static volatile sig_atomic_t at_prompt_interrupted;
static sigset_t waiting_mask;
static struct sigaction action_before;

static void on_prompt_interrupt(int sig)
{
    (void)sig;
    at_prompt_interrupted = 1;
}

/* Ctrl+Z, `fg` and the terminal's size likewise, of which libedit would keep track with EL_SIGNAL. */
static volatile sig_atomic_t at_prompt_stopped, at_prompt_changed;
static const int prompt_signals[] = {SIGTSTP, SIGCONT, SIGWINCH};
enum { N_PROMPT_SIGNALS = sizeof prompt_signals / sizeof *prompt_signals };
static struct sigaction outside[N_PROMPT_SIGNALS]; /* their actions while there is no prompt */

static void on_prompt_signal(int sig)
{
    if (sig == SIGTSTP)
        at_prompt_stopped = 1;
    else
        at_prompt_changed = 1;
}

static void prompt_signals_begin(void)
{
    const struct sigaction sa = {.sa_handler = on_prompt_signal};
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    for (size_t i = 0; i < N_PROMPT_SIGNALS; i++)
        sigaddset(&blocked, prompt_signals[i]);
    sigprocmask(SIG_BLOCK, &blocked, &waiting_mask);
    for (size_t i = 0; i < N_PROMPT_SIGNALS; i++)
        signal_catch(prompt_signals[i], &sa, &outside[i]);
    at_prompt_stopped = at_prompt_changed = 0;
}

static void prompt_signals_end(void)
{
    for (size_t i = 0; i < N_PROMPT_SIGNALS; i++)
        sigaction(prompt_signals[i], &outside[i], NULL);
    sigprocmask(SIG_SETMASK, &waiting_mask, NULL);
}

static void brackets(bool on)
{
    if (!term_has_sequences())
        return;
    fputs(on ? "\033[?2004h" : "\033[?2004l", stdout);
    fflush(stdout);
}

/* Stops as the shell expects it, which gets the terminal as it was. */
static void stop(EditLine *el)
{
    brackets(false);
    el_set(el, EL_PREP_TERM, 0);
    prompt_signals_end();
    raise(SIGTSTP);
    prompt_signals_begin();
    at_prompt_changed = 1;
}

/* Draws the line again: the shell has changed the terminal's mode and what is on it, or a line has another length. */
static void redraw(EditLine *el)
{
    at_prompt_changed = 0;
    brackets(true);
    el_set(el, EL_PREP_TERM, 1);
    el_resize(el);
    el_set(el, EL_REFRESH);
}

/* Bytes that began what turned out to be no character, and are to be read again, but for the first. */
static char again[MB_LEN_MAX];
static size_t n_again;

/* Reads a byte: 1, or 0 at the end of input, or -1. */
static int next_byte(EditLine *el, char *out)
{
    if (n_again) {
        *out = again[0];
        memmove(again, again + 1, --n_again);
        return 1;
    }
    for (;;) {
        struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
        bool woken = ppoll(&in, 1, NULL, &waiting_mask) < 0 && errno == EINTR; /* what follows may set errno */
        if (at_prompt_interrupted)
            return -1;
        if (at_prompt_stopped)
            stop(el);
        if (at_prompt_changed)
            redraw(el);
        if (woken)
            continue;
        return (int)read(STDIN_FILENO, out, 1);
    }
}

static int next_char(EditLine *el, wchar_t *out)
{
    char seq[MB_LEN_MAX];
    mbstate_t state = {0};
    for (size_t n = 0; n < sizeof seq; n++) {
        int got = next_byte(el, &seq[n]);
        if (got <= 0)
            return got;
        size_t used = mbrtowc(out, &seq[n], 1, &state);
        if (used == (size_t)-2)
            continue;
        if (used == (size_t)-1) { /* the first byte is no character's: it is taken as it is */
            *out = (unsigned char)seq[0];
            memmove(again + n, again, n_again);
            memcpy(again, seq + 1, n);
            n_again += n;
        }
        return 1;
    }
    return -1; /* no character is as long */
}

/* --- pasting ------------------------------------------------------------------------------------------------------ */

/* A terminal in bracketed-paste mode sends pasted text between ESC[200~ and ESC[201~. The editor holds a single line,
 * so it shows a pasted newline as a mark, U+2424 or, where the locale lacks it, the control character RS; the mark
 * becomes a newline again in the message. */
#define PASTE_END L"\033[201~"
static const char mark_utf8[] = "\xe2\x90\xa4";
static const char mark_plain[] = "\x1e";

static const char *newline_mark(void)
{
    return MB_CUR_MAX > 1 ? mark_utf8 : mark_plain;
}

/* Reads to the end of the paste; malloc'd, NULL where the end does not come. */
static wchar_t *paste_read(EditLine *el)
{
    size_t n = 0, cap = 4096;
    const size_t n_end = wcslen(PASTE_END);
    wchar_t *text = malloc(cap * sizeof *text);
    while (text && next_char(el, &text[n]) == 1) {
        text[++n] = L'\0';
        if (n >= n_end && !wcscmp(text + n - n_end, PASTE_END)) {
            text[n - n_end] = L'\0';
            return text;
        }
        if (n + 1 == cap)
            text = reallocarray(text, cap *= 2, sizeof *text);
    }
    free(text);
    return NULL;
}

static unsigned char paste_insert(EditLine *el, int key)
{
    (void)key;
    wchar_t *text = paste_read(el), *to = text;
    if (!text)
        return CC_EOF;
    wchar_t before = L'\0'; /* as it was read: the mark may have taken its place already */
    for (const wchar_t *p = text; *p; p++) {
        /* CR LF, which the terminal may have turned round, is one newline, and has its mark already. */
        if ((*p == L'\n' && before == L'\r') || (*p == L'\r' && before == L'\n')) {
            before = L'\0';
            continue;
        }
        before = *p;
        *to++ = *p == L'\r' || *p == L'\n' ? (MB_CUR_MAX > 1 ? L'\u2424' : L'\x1e') : *p;
    }
    *to = L'\0';
    int rc = el_winsertstr(el, text);
    free(text);
    return rc ? CC_ERROR : CC_REFRESH;
}

/* --- the editor --------------------------------------------------------------------------------------------------- */

static char *prompt_text(EditLine *el)
{
    struct lines *in;
    el_get(el, EL_CLIENTDATA, &in);
    return (char *)(in->goes_on ? "... " : ">>> ");
}

void lines_history_file(char *path, size_t size)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (state && *state == '/')
        n = snprintf(path, size, "%s/hearth/chat_history", state);
    else if (home && *home)
        n = snprintf(path, size, "%s/.local/state/hearth/chat_history", home);
    if (n < 0 || (size_t)n >= size || *path != '/')
        *path = '\0';
}

enum { HISTORY_LINES = 1000 };

/* Makes the folders above a file. hearthd has made them, unless it is another user's, such as the system's. */
static void folders_make(const char *file)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", file);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0700) && errno != EEXIST)
            return; /* then there will be no history */
        *slash = '/';
    }
}

/* Several conversations may share the file: each appends its lines as they are typed, whatever becomes of it later. The
 * lock is held by who writes. */
static int history_lock(const struct lines *in)
{
    if (!*in->file)
        return -1;
    int fd = open(in->file, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600); /* as private as the sessions */
    if (fd >= 0 && flock(fd, LOCK_EX)) {
        close(fd);
        return -1;
    }
    return fd;
}

static void history_open(struct lines *in)
{
    HistEvent he;
    lines_history_file(in->file, sizeof in->file);
    history(in->history, &he, H_SETSIZE, HISTORY_LINES);
    history(in->history, &he, H_SETUNIQUE, 1);
    if (!*in->file)
        return;
    folders_make(in->file);
    int fd = history_lock(in);                           /* < 0: the file may still be readable */
    int n = history(in->history, &he, H_LOAD, in->file); /* keeps the last ones */
    if (fd >= 0 && n > 2 * HISTORY_LINES)
        history(in->history, &he, H_SAVE, in->file);
    if (fd >= 0)
        close(fd);
}

/* Has libedit write a line into a file in memory, as it writes no stream that is no file, and copies it. The first line
 * there is the one by which libedit knows its files. */
static void history_copy(int fd, const char *line)
{
    HistEvent he;
    struct stat sb;
    char *text = NULL;
    size_t size = 0;
    FILE *memory = fdopen(memfd_create("line", MFD_CLOEXEC), "w+");
    History *one = history_init();
    if (memory && one && !fstat(fd, &sb)) {
        history(one, &he, H_SETSIZE, 1);
        history(one, &he, H_ENTER, line);
        history(one, &he, H_SAVE_FP, memory);
        rewind(memory);
        bool known = sb.st_size > 0, whole = true;
        for (ssize_t n; whole && (n = getline(&text, &size, memory)) > 0; known = false)
            whole = known || write(fd, text, (size_t)n) == n;
        if (!whole && ftruncate(fd, sb.st_size)) /* a full disk: the line is not kept, nor a part of it */
            say("hearth: the history has a part of a line: %s\n", strerror(errno));
    }
    free(text);
    if (one)
        history_end(one);
    if (memory)
        fclose(memory);
}

static void history_keep(const struct lines *in, const char *line)
{
    int fd = history_lock(in);
    if (fd < 0)
        return;
    history_copy(fd, line);
    close(fd);
}

void lines_open(struct lines *in)
{
    *in = (struct lines){0};
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return;
    in->el = el_init("hearth", stdin, stdout, stderr);
    in->history = history_init();
    if (!in->el || !in->history)
        return;
    history_open(in);
    el_set(in->el, EL_CLIENTDATA, in);
    el_set(in->el, EL_PROMPT, prompt_text);
    el_set(in->el, EL_EDITOR, "emacs");
    el_set(in->el, EL_GETCFN, next_char);
    el_set(in->el, EL_HIST, history, in->history);
    el_wset(in->el, EL_ADDFN, L"hearth-paste", L"insert what is pasted", paste_insert); /* el_set() leaks copies */
    el_set(in->el, EL_BIND, "\\e[200~", "hearth-paste", NULL);
    el_source(in->el, NULL);
    struct sigaction sa = {.sa_handler = on_prompt_interrupt};
    sigemptyset(&sa.sa_mask);
    signal_catch(SIGINT, &sa, &action_before);
}

void lines_close(struct lines *in)
{
    if (in->history)
        history_end(in->history);
    if (in->el) {
        sigaction(SIGINT, &action_before, NULL);
        el_end(in->el);
    }
    free(in->line);
    free(in->message);
}

/* Reads one line without its newline; NULL at the end of input, and where Ctrl+C has discarded the line. */
static const char *edit_line(struct lines *in, size_t *len)
{
    int n;
    prompt_signals_begin();
    at_prompt_interrupted = 0;
    n_again = 0;
    brackets(true);
    el_resize(in->el);
    el_set(in->el, EL_PREP_TERM, 1); /* otherwise text that is typed just after the prompt is echoed twice */
    const char *line = el_gets(in->el, &n);
    brackets(false);
    prompt_signals_end();
    if (!line || n <= 0) {
        putchar('\n');
        el_reset(in->el);
        return NULL;
    }
    HistEvent he;
    if (in->history && n > 1) {
        history(in->history, &he, H_ENTER, line);
        history_keep(in, line);
    }
    *len = (size_t)n - (line[n - 1] == '\n');
    return line;
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

/* Appends a line to the message; marks of pasted newlines become newlines. */
static void append(struct lines *in, const char *line, size_t len)
{
    const char *mark = newline_mark(), *end = line + len;
    size_t n_mark = strlen(mark);
    char *to = realloc(in->message, in->n_message + len + 2);
    if (!to)
        abort();
    in->message = to;
    for (to += in->n_message; line < end; to++) {
        bool newline = (size_t)(end - line) >= n_mark && !memcmp(line, mark, n_mark);
        *to = newline ? '\n' : *line;
        line += newline ? n_mark : 1;
    }
    *to = '\0';
    in->n_message = (size_t)(to - in->message);
}

static bool message_ends_with(const struct lines *in, const char *tail)
{
    size_t n = strlen(tail);
    return in->n_message >= n && !memcmp(in->message + in->n_message - n, tail, n);
}

/* Removes n bytes from the message's end. */
static void cut(struct lines *in, size_t n)
{
    in->n_message -= n;
    in->message[in->n_message] = '\0';
}

/* Called when a line has been appended to the message; removes its markers. Returns whether the message continues on
 * the next line: *quoted is set while a """ is open. */
static bool message_goes_on(struct lines *in, bool *quoted)
{
    static const char quotes[] = "\"\"\"";
    const size_t n_quotes = sizeof quotes - 1;
    if (!*quoted && in->n_message >= n_quotes && !memcmp(in->message, quotes, n_quotes)) {
        *quoted = true;
        memmove(in->message, in->message + n_quotes, in->n_message - n_quotes + 1);
        in->n_message -= n_quotes;
    }
    if (*quoted && message_ends_with(in, quotes)) {
        cut(in, n_quotes);
        cut(in, message_ends_with(in, "\n"));
        return false;
    }
    if (!*quoted && message_ends_with(in, "\\")) {
        cut(in, 1);
        append(in, "\n", 1);
        return true;
    }
    if (*quoted && in->n_message)
        append(in, "\n", 1);
    return *quoted;
}

/* Reads a whole message; returns false at the end of input, and where Ctrl+C has discarded it. */
static bool edit_message(struct lines *in)
{
    size_t len;
    bool quoted = false;
    in->n_message = 0;
    in->goes_on = false;
    do {
        const char *line = edit_line(in, &len);
        if (!line)
            return false;
        append(in, line, len);
        in->goes_on = message_goes_on(in, &quoted);
    } while (in->goes_on);
    return true;
}

static bool plain_line(struct lines *in, struct hearth_bytes *out)
{
    ssize_t len = getline(&in->line, &in->cap, stdin);
    if (len < 0)
        return false;
    out->data = in->line;
    out->len = (size_t)len - (len > 0 && in->line[len - 1] == '\n');
    return true;
}

bool lines_next(struct lines *in, struct hearth_bytes *out)
{
    if (!in->el)
        return plain_line(in, out);
    while (!edit_message(in))
        if (!at_prompt_interrupted)
            return false;
    out->data = in->message;
    out->len = in->n_message;
    return true;
}
