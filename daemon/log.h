/*
 * log.h - the log of hearthd and of its engine: one line per event on standard error, with time, program and level.
 *
 * The engine inherits hearthd's standard error and is given its level, so one file holds the lines of both, each
 * stamped by the process that wrote it. The log is the only global state, one per process. Every thread may write
 * lines; a line is one write(2) of less than PIPE_BUF bytes, so lines never interleave.
 */
#ifndef DAEMON_LOG_H
#define DAEMON_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Lines above this level are dropped. It is LOG_LEVEL_INFO until log_open() is called. Only the macros below read
 * it. */
extern enum log_level log_threshold;

/* Sets the level and checks whether standard error is the journal: journald adds the time itself and expects a "<N>"
 * prefix. Call it again after standard error was replaced, but not while another thread may log. */
void log_open(enum log_level level);

/* The level of a name ("debug"), or -1; and the name of a level. */
int log_level_find(const char *name);
const char *log_level_name(enum log_level level);

/* Writes a line, whatever its level. Clients choose much of the logged text, so control characters (C0, and C1 in
 * UTF-8), which could forge a line or move a terminal's cursor, are replaced by '?'. A line that is too long is cut and
 * ends in "...". */
void log_at(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Bounds the log where standard error is the regular file at `path`. Once the file exceeds `most` bytes, it is copied
 * to `path`.1, replacing the previous copy, and truncated in place, so that the engine, which shares the descriptor,
 * keeps logging to it. NULL: no bound. Not while another thread may log. */
void log_keep_within(const char *path, int64_t most);

/* How often one call site has logged in the current second; zero-initialised. */
struct log_limit {
    int64_t second; /* of the monotonic clock */
    int64_t n, dropped;
};
/* As log_at(), but at most LOG_OFTEN lines a second; the next time it logs, one line reports how many were dropped. */
enum { LOG_OFTEN = 20 };
void log_limited(struct log_limit *limit, enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The arguments are not evaluated when the level is off. */
static inline bool log_is_on(enum log_level level)
{
    return level <= log_threshold;
}
#define log_line(level, ...) (log_is_on(level) ? log_at(level, __VA_ARGS__) : (void)0)
#define log_error(...)       log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)        log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)        log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)       log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

/* For events that any peer can cause arbitrarily often. For one thread only. */
#define log_often(level, ...)                           \
    do {                                                \
        static struct log_limit limit_;                 \
        if (log_is_on(level))                           \
            log_limited(&limit_, (level), __VA_ARGS__); \
    } while (0)

#endif
