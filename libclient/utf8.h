/* utf8.h - the length of the valid UTF-8 at the front of some bytes (RFC 3629: no overlong forms, no surrogates, up to
 * U+10FFFF). */
#ifndef HEARTH_UTF8_H
#define HEARTH_UTF8_H

#include <stddef.h>

/* Returns how many leading bytes of s are complete, valid UTF-8 characters; n where all are. */
size_t utf8_prefix(const char *s, size_t n);

#endif
