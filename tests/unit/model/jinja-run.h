/* jinja-run.h - compiles and renders a chat template, for the tests of Jinja. */
#ifndef TESTS_JINJA_RUN_H
#define TESTS_JINJA_RUN_H

#include <string.h>

#include "daemon/model/chat/jinja.h"

/* Sunday 2026-11-22, 10:00: the date of the vectors. */
static const struct tm now = {.tm_year = 126, .tm_mon = 10, .tm_mday = 22, .tm_hour = 10, .tm_yday = 325};

static inline enum jinja_failure render(const char *source, size_t n, const char *context, const char *const *own,
                                        struct jinja_text *text, struct jinja_err *e)
{
    struct jinja *t;
    enum jinja_failure failure = jinja_compile(&t, source, n, e);
    if (failure)
        return failure;
    failure = jinja_render(t, context, strlen(context), own, &now, text, e);
    jinja_free(t);
    return failure;
}

#endif
