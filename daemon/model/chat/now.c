/* now.c - parses a local time for strftime_now(). */
#include "config.h" /* strptime, timegm */

#include "daemon/model/chat/jinja.h"

bool jinja_parse_now(const char *text, struct tm *out)
{
    static const char *const formats[] = {"%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"};
    for (int i = 0; i < 2; i++) {
        struct tm t = {0}, same;
        const char *end = strptime(text, formats[i], &t);
        if (!end || *end)
            continue;
        same = t; /* timegm() computes the days of the week and the year, and turns a 30 February into a valid date */
        timegm(&same);
        *out = same;
        return same.tm_mday == t.tm_mday && same.tm_mon == t.tm_mon;
    }
    return false;
}

void jinja_local_now(struct tm *out)
{
    time_t t = time(NULL);
    localtime_r(&t, out);
}
