/* utf8.h - how much of some bytes is valid UTF-8 (RFC 3629: no overlong forms, no surrogates, up to U+10FFFF). */
#ifndef HEARTH_UTF8_H
#define HEARTH_UTF8_H

#include <stddef.h>

/* How many bytes of s are whole, valid UTF-8: n where all of it is. */
size_t utf8_prefix(const char *s, size_t n);

#endif
