/* log.c - see log.h. Any thread. */
#include "config.h"

#include "daemon/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 1024 };

static const struct {
    const char *name;
    int priority; /* syslog's, for journald */
} levels[] = {{"error", 3}, {"warn", 4}, {"info", 6}, {"debug", 7}};

enum log_level log_threshold = LOG_LEVEL_INFO;
static bool is_journal;

/* systemd sets $JOURNAL_STREAM to device and inode of the stream, as standard error may have been replaced since. */
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

void log_at(enum log_level level, const char *fmt, ...)
{
    static const char cut[] = "...";
    int saved_errno = errno;
    char line[LINE_MAX_BYTES];
    size_t start = prefix(line, sizeof line, level),
           room = sizeof line - start - 1; /* the last byte is the newline's */
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line + start, room, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    if ((size_t)n >= room)
        memcpy(line + start + room - sizeof cut, cut, sizeof cut);
    replace_controls(line + start);
    size_t end = start + strlen(line + start);
    line[end++] = '\n';
    (void)!write(STDERR_FILENO, line, end); /* a log that cannot be written has nobody to tell */
    errno = saved_errno;
}
