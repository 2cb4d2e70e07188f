/* utf8.c - see utf8.h. Pure. */
#include "libclient/utf8.h"

#include <stdint.h>

size_t utf8_prefix(const char *s, size_t n)
{
    const uint8_t *p = (const uint8_t *)s;
    size_t i = 0;
    while (i < n) {
        if (p[i] < 0x80) {
            i++;
            continue;
        }
        size_t more = p[i] >= 0xc2 && p[i] < 0xe0 ? 1 : (p[i] & 0xf0) == 0xe0 ? 2 : p[i] >= 0xf0 && p[i] < 0xf5 ? 3 : 0;
        if (!more || more >= n - i)
            return i;
        /* the second byte has a smaller range after these four: no overlong forms, no surrogates, nothing beyond
         * U+10FFFF */
        uint8_t lo = p[i] == 0xe0 ? 0xa0 : p[i] == 0xf0 ? 0x90 : 0x80;
        uint8_t hi = p[i] == 0xed ? 0x9f : p[i] == 0xf4 ? 0x8f : 0xbf;
        if (p[i + 1] < lo || p[i + 1] > hi)
            return i;
        for (size_t k = 2; k <= more; k++)
            if ((p[i + k] & 0xc0) != 0x80)
                return i;
        i += more + 1;
    }
    return i;
}
