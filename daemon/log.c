/* log.c - see log.h. Any thread. */
#include "config.h"

#include "daemon/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 1024 };

static const struct {
    const char *name;
    int priority; /* syslog priority, for journald */
} levels[] = {{"error", 3}, {"warn", 4}, {"info", 6}, {"debug", 7}};

enum log_level log_threshold = LOG_LEVEL_INFO;
static bool is_journal;

static struct {
    char *path; /* NULL: no bound */
    int64_t most;
    atomic_uint lines;
    atomic_bool busy; /* a thread is rotating the file */
} bound;

/* systemd sets $JOURNAL_STREAM to the device and inode of the journal's stream. They are compared with standard error,
 * which may have been replaced since. */
static bool stderr_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long dev, ino;
    struct stat sb;
    return stream && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 && !fstat(STDERR_FILENO, &sb) && sb.st_dev == dev &&
           sb.st_ino == ino;
}

void log_open(enum log_level level)
{
    log_threshold = level;
    is_journal = stderr_is_journal();
}

int log_level_find(const char *name)
{
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (!strcasecmp(levels[i].name, name))
            return (int)i;
    return -1;
}

const char *log_level_name(enum log_level level)
{
    return levels[level].name;
}

static size_t prefix(char *line, size_t size, enum log_level level)
{
    if (is_journal)
        return (size_t)snprintf(line, size, "<%d>", levels[level].priority);
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &tm);
    size_t n = strftime(line, size, "%Y-%m-%d %H:%M:%S", &tm);
    return n + (size_t)snprintf(line + n, size - n, ".%03ld %.32s[%d] %s: ", now.tv_nsec / 1000000,
                                program_invocation_short_name, (int)getpid(), levels[level].name);
}

/* C0 and DEL are one byte, C1 is 0xc2 and a byte within 0x80..0x9f. */
static void replace_controls(char *s)
{
    for (unsigned char *p = (unsigned char *)s; *p; p++) {
        if (*p < 0x20 || *p == 0x7f)
            *p = '?';
        else if (*p == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f)
            p[0] = p[1] = '?';
    }
}

/* --- the bound ------------------------------------------------------------------------------------------ */

/* Copies the file at `path` to `path`.1, if it is still the one open as standard error; false: it was moved away. */
static bool copy_away(const char *path, const struct stat *is)
{
    char old[PATH_MAX];
    struct stat sb;
    int from = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool same = from >= 0 && fstat(from, &sb) == 0 && sb.st_dev == is->st_dev && sb.st_ino == is->st_ino;
    bool fits = same && snprintf(old, sizeof old, "%s.1", path) < (int)sizeof old;
    int to = fits ? open(old, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600) : -1;
    ssize_t n = to >= 0 ? 1 : -1;
    while (n > 0)
        n = sendfile(to, from, NULL, 1 << 20);
    if (from >= 0)
        close(from);
    if (to >= 0)
        close(to);
    return same;
}

/* Rotates the file if it is too large. If it cannot be copied, most likely for lack of space, it is truncated
 * nevertheless; but not one that was moved away, which is somebody's copy. */
static void keep_within(void)
{
    enum { LINES = 64 /* lines between two checks of the size */ };
    struct stat sb;
    if (!bound.path || atomic_fetch_add(&bound.lines, 1) % LINES || fstat(STDERR_FILENO, &sb) != 0 ||
        !S_ISREG(sb.st_mode) || sb.st_size <= bound.most || atomic_exchange(&bound.busy, true))
        return;
    if (copy_away(bound.path, &sb))
        (void)!ftruncate(STDERR_FILENO, 0);
    atomic_store(&bound.busy, false);
}

void log_keep_within(const char *path, int64_t most)
{
    free(bound.path);
    bound.path = path ? strdup(path) : NULL;
    bound.most = most;
}

/* --- lines ---------------------------------------------------------------------------------------------- */

static void write_line(enum log_level level, const char *fmt, va_list ap)
{
    static const char cut[] = "...";
    char line[LINE_MAX_BYTES];
    size_t start = prefix(line, sizeof line, level),
           room = sizeof line - start - 1; /* the last byte is for the newline */
    int n = vsnprintf(line + start, room, fmt, ap);
    if (n < 0)
        return;
    if ((size_t)n >= room)
        memcpy(line + start + room - sizeof cut, cut, sizeof cut);
    replace_controls(line + start);
    size_t end = start + strlen(line + start);
    line[end++] = '\n';
    (void)!write(STDERR_FILENO, line, end); /* there is nowhere to report a log that cannot be written */
    keep_within();
}

void log_at(enum log_level level, const char *fmt, ...)
{
    int saved_errno = errno;
    va_list ap;
    va_start(ap, fmt);
    write_line(level, fmt, ap);
    va_end(ap);
    errno = saved_errno;
}

void log_limited(struct log_limit *limit, enum log_level level, const char *fmt, ...)
{
    int saved_errno = errno;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec != limit->second) {
        if (limit->dropped)
            log_at(level, "%lld more lines like the next one are left out", (long long)limit->dropped);
        *limit = (struct log_limit){.second = now.tv_sec};
    }
    va_list ap;
    va_start(ap, fmt);
    if (limit->n++ < LOG_OFTEN)
        write_line(level, fmt, ap);
    else
        limit->dropped++;
    va_end(ap);
    errno = saved_errno;
}
