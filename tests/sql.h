/*
 * sql.h - SQL on a database that a test looks into or changes from outside. Include cmocka.h before it.
 */
#ifndef TESTS_SQL_H
#define TESTS_SQL_H

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <sqlite3.h>

static inline int sql_on_row(void *arg, int n, char **v, char **names)
{
    (void)n, (void)names;
    *(int64_t *)arg = v[0] ? atoll(v[0]) : -1;
    return 0;
}

/* Runs statements on the database in that file, and gives the number that the last row has in front: -1 for a NULL, 0
 * where there was no row. */
static inline int64_t sql_run(const char *path, const char *text)
{
    sqlite3 *db;
    char *why = NULL;
    int64_t v = 0;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    if (sqlite3_exec(db, text, sql_on_row, &v, &why) != SQLITE_OK)
        fail_msg("%.200s: %s", text, why);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return v;
}

/* The same with printf's conversions. */
static inline int64_t sql_runf(const char *path, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline int64_t sql_runf(const char *path, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *text = sqlite3_vmprintf(fmt, ap);
    va_end(ap);
    assert_non_null(text);
    int64_t v = sql_run(path, text);
    sqlite3_free(text);
    return v;
}

#endif
