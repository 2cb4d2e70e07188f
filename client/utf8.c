/* utf8.c - converts any bytes to valid UTF-8, and measures text in columns of a terminal. See cmd.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "client/cmd.h"

/* Returns the length of the complete, valid character at s (no overlong forms, no surrogates, up to U+10FFFF), or 0. */
static size_t character(const unsigned char *s, size_t n)
{
    if (s[0] < 0x80)
        return 1;
    size_t len = s[0] >= 0xc2 && s[0] <= 0xdf ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4 : 0;
    if (!len || n < len)
        return 0;
    unsigned char lo = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char hi = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    if (s[1] < lo || s[1] > hi)
        return 0;
    for (size_t i = 2; i < len; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return len;
}

bool utf8_is(const char *s, size_t n)
{
    for (size_t i = 0, len; i < n; i += len)
        if (!(len = character((const unsigned char *)s + i, n - i)))
            return false;
    return true;
}

char *utf8_mend(const char *s, size_t n, size_t *out_n)
{
    char *out = malloc(3 * n + 1);
    if (!out)
        abort();
    size_t to = 0;
    for (size_t i = 0; i < n;) {
        size_t len = character((const unsigned char *)s + i, n - i);
        memcpy(out + to, len ? s + i : "\xef\xbf\xbd", len ? len : 3);
        to += len ? len : 3;
        i += len ? len : 1;
    }
    out[to] = '\0';
    *out_n = to;
    return out;
}

/* Returns the columns of the character at s, and its length. What is no character takes the one column of the mark that
 * a terminal shows in its place. wcwidth() knows the widths where LC_CTYPE is a UTF-8 locale, which main() sees to; it
 * is what the line editor goes by, too. */
static size_t columns_of(const char *s, size_t n, size_t *len)
{
    const unsigned char *u = (const unsigned char *)s;
    *len = character(u, n);
    if (*len == 0) {
        *len = 1;
        return 1;
    }
    wchar_t c = *len == 1 ? u[0] : u[0] & (0xff >> (*len + 1));
    for (size_t i = 1; i < *len; i++)
        c = (c << 6) | (u[i] & 0x3f);
    int columns = wcwidth(c);
    return columns < 0 ? 1 : (size_t)columns;
}

size_t text_columns(const char *s, size_t n)
{
    size_t columns = 0;
    for (size_t i = 0, len; i < n; i += len)
        columns += columns_of(s + i, n - i, &len);
    return columns;
}

size_t text_fitting(const char *s, size_t columns)
{
    size_t i = 0, n = strlen(s);
    for (size_t used = 0, len; i < n; i += len)
        if ((used += columns_of(s + i, n - i, &len)) > columns)
            break;
    return i;
}

void text_straighten(char *s)
{
    while (*(s += strcspn(s, "\n\t")))
        *s = '?';
}
