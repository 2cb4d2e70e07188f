/*
 * unicode.h - code points as Python's str treats them: UTF-8 that may contain lone surrogates, categories, cases.
 */
#ifndef MODEL_CHAT_UNICODE_H
#define MODEL_CHAT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the code point at *p and advances *p past it. The bytes are valid UTF-8, except that they may be
 * surrogates. */
uint32_t code_next(const char **p);
size_t code_put(char *out, uint32_t code); /* 1 to 4 bytes */

static inline bool code_begins(char c) /* not a continuation byte */
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

bool code_is_space(uint32_t c);
bool code_is_printable(uint32_t c);
bool code_is_alpha(uint32_t c);
bool code_is_alnum(uint32_t c);
bool code_is_decimal(uint32_t c);
int code_decimal(uint32_t c); /* the value of a decimal digit of any script; -1 for other characters */
bool code_is_digit(uint32_t c);
bool code_is_numeric(uint32_t c);
bool code_is_upper(uint32_t c);
bool code_is_lower(uint32_t c);
bool code_is_title(uint32_t c);
bool code_is_cased(uint32_t c);
bool code_is_case_ignorable(uint32_t c);
bool code_is_name_start(uint32_t c); /* of an identifier */
bool code_is_name(uint32_t c);
bool code_is_word(uint32_t c); /* \w of Python's re */

/* The full case mappings: writes up to three code points to out and returns their number. */
enum unicode_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_FOLD, CASE_SWAP };
int code_case(uint32_t c, enum unicode_case to, uint32_t out[3]);

#endif
