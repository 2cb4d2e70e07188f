/*
 * pattern.h - translates the patterns of a tokenizer.json from Oniguruma's syntax to PCRE2's; and defines the character
 * classes of all patterns.
 *
 * White space is Unicode's White_Space rather than PCRE2's \s, which has one character more (U+180E). The characters
 * that Unicode 15.1 added after version 14 are listed besides \p{..}, because Debian 12's PCRE2 knows only Unicode 14.
 */
#ifndef HEARTH_PATTERN_H
#define HEARTH_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "libclient/err.h"

/* Class members, to be put between brackets. */
#define SPACE "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define NOT_SPACE                                                                                                \
    "\\x{0}-\\x{8}\\x{E}-\\x{1F}!-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}\\x{1681}-\\x{1FFF}\\x{200B}-\\x{2027}" \
    "\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{10FFFF}"
#define LETTER                                                                                                      \
    "\\p{L}\\x{1123F}\\x{11240}\\x{11F02}\\x{11F04}-\\x{11F10}\\x{11F12}-\\x{11F33}\\x{1342F}\\x{13441}-\\x{13446}" \
    "\\x{1B132}\\x{1B155}\\x{1DF25}-\\x{1DF2A}\\x{1E030}-\\x{1E06D}\\x{1E4D0}-\\x{1E4EB}\\x{2B739}"                 \
    "\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}"
#define NUMBER "\\p{N}\\x{11F50}-\\x{11F59}\\x{1D2C0}-\\x{1D2D3}\\x{1E4F0}-\\x{1E4F9}"
#define PUNCT  "\\p{P}\\x{11B00}-\\x{11B09}\\x{11F43}-\\x{11F4F}"
#define SYMBOL                                                                                                \
    "\\p{S}\\x{2FFC}-\\x{2FFF}\\x{31EF}\\x{1F6DC}\\x{1F774}-\\x{1F776}\\x{1F77B}-\\x{1F77F}\\x{1F7D9}"        \
    "\\x{1FA75}-\\x{1FA77}\\x{1FA87}\\x{1FA88}\\x{1FAAD}-\\x{1FAAF}\\x{1FABB}-\\x{1FABD}\\x{1FABF}\\x{1FACE}" \
    "\\x{1FACF}\\x{1FADA}\\x{1FADB}\\x{1FAE8}\\x{1FAF7}\\x{1FAF8}"
#define MARK                                                                                                   \
    "\\p{M}\\x{CF3}\\x{ECE}\\x{10EFD}-\\x{10EFF}\\x{11241}\\x{11F00}\\x{11F01}\\x{11F03}\\x{11F34}-\\x{11F3A}" \
    "\\x{11F3E}-\\x{11F42}\\x{13440}\\x{13447}-\\x{13455}\\x{1E08F}\\x{1E4EC}-\\x{1E4EF}"
#define DECIMAL "\\p{Nd}\\x{11F50}-\\x{11F59}\\x{1E4F0}-\\x{1E4F9}"
#define HAN     "\\p{sc:Han}\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}" /* by script, not by script extensions */
/* Oniguruma's \w: between brackets, and elsewhere, where it includes Latin-1's fractions and superscript digits. Both
 * include letters in circles and squares. */
#define WORD_IN_SET     \
    LETTER MARK DECIMAL \
        "\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}"
#define WORD WORD_IN_SET "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"
/* \b and \B: a position with a word character on exactly one side, and any other position. */
#define WORD_END    "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD "])(?=[" WORD "]))"
#define NO_WORD_END "(?:(?<=[" WORD "])(?=[" WORD "])|(?<![" WORD "])(?![" WORD "]))"

/* Digits in groups of three from the right. The makers' \d{1,3}(?=(?:\d{3})*\b) and (?=(\d{3})+(?!\d)) read the rest of
 * a number at each group, so that their time is quadratic. These read it once, where it begins; \G, where the search
 * starts, is where a group ended. The second one's matches are empty: the ends of all groups but the last, and where a
 * number begins that has no shorter group in front, unless the search starts there. */
#define DIGIT             "[" DECIMAL "]"
#define NO_DIGIT_BEFORE   "(?<!" DIGIT ")"
#define DIGITS3_TO(end)   "(?=(?:" DIGIT "{3})*+" end ")"
#define DIGITS3_TO_LAST   DIGITS3_TO("(?!" DIGIT ")")
#define NEXT_3_DIGITS     "\\G(?<=" DIGIT ")" DIGIT "{3}"
#define DIGIT_GROUPS(end) NO_DIGIT_BEFORE DIGIT "{1,3}" DIGITS3_TO(end) "|" NEXT_3_DIGITS
#define DIGIT_GROUP_ENDS                                                                                       \
    "(?!\\G)" NO_DIGIT_BEFORE "(?=" DIGIT "{3})" DIGITS3_TO_LAST "|" NO_DIGIT_BEFORE DIGIT "{1,3}\\K(?=" DIGIT \
    ")" DIGITS3_TO_LAST "|" NEXT_3_DIGITS "\\K(?=" DIGIT ")"

struct pattern {
    char s[16 * 1024];
    size_t n;
    bool full;
};

/* Translates s[0..n), which is untrusted. HEARTH_EUNSUPPORTED names a construct that means something else to PCRE2 and
 * is not translated. */
int pattern_translate(struct pattern *out, const char *s, size_t n, struct hearth_err *e);

#endif
