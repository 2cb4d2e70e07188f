/*
 * log.h - the log of hearthd and of its engine: one line per event on standard error, with time, program and level.
 *
 * The engine inherits hearthd's standard error and is told its level, so one file has the lines of both, each stamped
 * by the process that wrote it. One process, one log: this is the only global state. Every thread may write lines; a
 * line is one write(2) of less than PIPE_BUF bytes, so lines never mix.
 */
#ifndef DAEMON_LOG_H
#define DAEMON_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Lines above the level are dropped. Until log_open() it is LOG_LEVEL_INFO. Read by the macros below alone. */
extern enum log_level log_threshold;

/* Sets the level and looks at what standard error is: journald stamps the time itself and wants a "<N>" prefix. Called
 * again where standard error was replaced; not while another thread may log. */
void log_open(enum log_level level);

/* The level of a name ("debug"), or -1; and the name of a level. */
int log_level_find(const char *name);
const char *log_level_name(enum log_level level);

/* Writes a line, whatever its level. What could forge a line or move a terminal's cursor (control characters, C0 and C1
 * in UTF-8) becomes '?', as clients name much of what is logged; a line that is too long ends in "...". */
void log_at(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Bounds the log where standard error is the plain file at `path`: once it has more than `most` bytes it is copied to
 * `path`.1, in whose place it goes, and emptied, so that the engine goes on in it as well. NULL: no bound. Not while
 * another thread may log. */
void log_keep_within(const char *path, int64_t most);

/* How often a place in the program has logged lately; zero to begin with. */
struct log_limit {
    int64_t second; /* of the monotonic clock */
    int64_t n, dropped;
};
/* As log_at(), but LOG_OFTEN lines a second at most; the first line after that says how many there were more. */
enum { LOG_OFTEN = 20 };
void log_limited(struct log_limit *limit, enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Arguments are not evaluated where the level is off. */
static inline bool log_is_on(enum log_level level)
{
    return level <= log_threshold;
}
#define log_line(level, ...) (log_is_on(level) ? log_at(level, __VA_ARGS__) : (void)0)
#define log_error(...)       log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)        log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)        log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)       log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

/* For what any peer can cause as often as it likes. One thread. */
#define log_often(level, ...)                           \
    do {                                                \
        static struct log_limit limit_;                 \
        if (log_is_on(level))                           \
            log_limited(&limit_, (level), __VA_ARGS__); \
    } while (0)

#endif
