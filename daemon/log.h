/* log.h - hearthd's log: one line per event to stderr or a file. One process, one log: state is global here only. */
#ifndef DAEMON_LOG_H
#define DAEMON_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Lines above `level` are dropped. Until this is called: stderr, LOG_LEVEL_INFO. */
void log_set_level(enum log_level level);

/* From now on lines go to fd, which is not closed here. `journal`: the reader is journald, which stamps the time
 * itself and takes the priority from a "<N>" prefix. */
void log_set_fd(int fd, int journal);

/* The level of a name ("debug"), or -1. */
int log_level_find(const char *name);

/* Control bytes in the formatted line become '?', so that what a client names cannot forge a line. */
void log_at(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_at(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_at(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
