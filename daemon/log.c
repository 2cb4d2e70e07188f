/* log.c - one line per event, one write(2) per line. Loop thread. */
#include "daemon/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

static const struct {
    const char *name;
    int priority; /* syslog's, for journald */
} levels[] = {{"error", 3}, {"warn", 4}, {"info", 6}, {"debug", 7}};

static struct {
    enum log_level level;
    int fd;
    int journal;
} sink = {LOG_LEVEL_INFO, STDERR_FILENO, 0};

void log_set_level(enum log_level level)
{
    sink.level = level;
}

void log_set_fd(int fd, int journal)
{
    sink.fd = fd;
    sink.journal = journal;
}

int log_level_find(const char *name)
{
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if (strcasecmp(levels[i].name, name) == 0)
            return (int)i;
    return -1;
}

static size_t prefix(char *line, size_t size, enum log_level level)
{
    if (sink.journal)
        return (size_t)snprintf(line, size, "<%d>", levels[level].priority);
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &tm);
    size_t n = strftime(line, size, "%Y-%m-%d %H:%M:%S", &tm);
    return n + (size_t)snprintf(line + n, size - n, ".%03ld hearthd[%d] %s: ", now.tv_nsec / 1000000, (int)getpid(),
                                levels[level].name);
}

void log_at(enum log_level level, const char *fmt, ...)
{
    if (level > sink.level)
        return;
    char line[1024];
    size_t start = prefix(line, sizeof line, level);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line + start, sizeof line - start - 1, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    size_t end = start + strlen(line + start);
    for (size_t i = start; i < end; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
    line[end++] = '\n';
    /* A log that cannot be written has nobody to tell. */
    ssize_t ignored = write(sink.fd, line, end);
    (void)ignored;
}
