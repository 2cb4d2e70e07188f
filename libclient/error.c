/* error.c - looks up the error table of hearth.h, by code and by name. */
#include "libclient/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int code;
    const char *name;
    bool request;
} errors[] = {
#define X(name, number, symbol, request) {number, symbol, request},
    HEARTH_ERRORS(X)
#undef X
};

int err_set(struct hearth_err *e, int code, const char *fmt, ...)
{
    if (e) {
        va_list ap;
        va_start(ap, fmt);
        e->code = code;
        vsnprintf(e->msg, sizeof e->msg, fmt, ap);
        va_end(ap);
    }
    return code;
}

const char *err_name(int code)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code)
            return errors[i].name;
    return "INTERNAL";
}

int err_code(const char *name)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (!strcmp(errors[i].name, name))
            return errors[i].code;
    return HEARTH_EINTERNAL;
}

bool err_is_request(int code)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code)
            return errors[i].request;
    return false;
}
