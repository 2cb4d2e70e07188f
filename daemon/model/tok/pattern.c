/*
 * pattern.c - see pattern.h. The Rust library `tokenizers` runs Oniguruma with Ruby's syntax. Constructs that mean the
 * same to both engines are copied. Those that tokenizers use and PCRE2 reads differently are translated: classes, sets,
 * the ends of lines, the ends of words. All else is refused by name: a pattern that is nearly right would cut some
 * texts into other words.
 */
#include "daemon/model/tok/pattern.h"

#include "daemon/model/gguf.h"

#include <stdlib.h>
#include <string.h>

/* Letters that are new in Unicode 15.1: modifiers, and others without case. */
#define NEW_LM "\\x{1E030}-\\x{1E06D}\\x{1E4EB}"
#define NEW_LO                                                                                                \
    "\\x{1123F}\\x{11240}\\x{11F02}\\x{11F04}-\\x{11F10}\\x{11F12}-\\x{11F33}\\x{1342F}\\x{13441}-\\x{13446}" \
    "\\x{1B132}\\x{1B155}\\x{1E4D0}-\\x{1E4EA}\\x{2B739}\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}"

/* Escapes for classes. PCRE2 would match a script's name by script extensions. */
static const struct {
    const char *name, *members;
} classes[] = {{"\\p{L}", LETTER},
               {"\\p{N}", NUMBER},
               {"\\p{P}", PUNCT},
               {"\\p{S}", SYMBOL},
               {"\\p{M}", MARK},
               {"\\p{Ll}", "\\p{Ll}\\x{1DF25}-\\x{1DF2A}"},
               {"\\p{Lm}", "\\p{Lm}" NEW_LM},
               {"\\p{Lo}", "\\p{Lo}" NEW_LO},
               {"\\p{Nd}", DECIMAL},
               {"\\p{Han}", HAN},
               {"\\p{Hiragana}", "\\p{sc:Hiragana}\\x{1B132}"},
               {"\\p{Katakana}", "\\p{sc:Katakana}\\x{1B155}"},
               {"\\p{Hangul}", "\\p{sc:Hangul}"},
               {"\\s", SPACE},
               {"\\d", DECIMAL},
               {"\\w", WORD},
               {"\\h", "0-9a-fA-F"}};

/* Negated classes; only outside of brackets. */
static const struct {
    const char *name, *members;
} opposites[] = {{"\\P{L}", LETTER}, {"\\P{N}", NUMBER}, {"\\S", SPACE}, {"\\D", DECIMAL}, {"\\W", WORD}};

/* Unicode classes that have the same name in both engines, and to which 15.1 added nothing that is likely in a text. */
static const char *const same[] = {"\\p{Lu}", "\\p{Lt}", "\\p{Mn}", "\\p{Mc}", "\\p{Me}", "\\p{Nl}", "\\p{No}",
                                   "\\p{Z}",  "\\p{Zs}", "\\p{Zl}", "\\p{Zp}", "\\p{C}",  "\\p{Cc}", "\\p{Cf}",
                                   "\\p{Pc}", "\\p{Pd}", "\\p{Ps}", "\\p{Pe}", "\\p{Pi}", "\\p{Pf}", "\\p{Po}",
                                   "\\p{Sm}", "\\p{Sc}", "\\p{Sk}", "\\p{So}"};

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void put(struct pattern *x, const char *s, size_t n)
{
    x->full |= n > sizeof x->s - x->n;
    if (x->full)
        return;
    memcpy(x->s + x->n, s, n);
    x->n += n;
}

static void put_text(struct pattern *x, const char *s)
{
    put(x, s, strlen(s));
}

static void put_set(struct pattern *x, const char *members, bool in_class, bool opposite)
{
    put_text(x, in_class ? "" : opposite ? "[^" : "[");
    put_text(x, members);
    put_text(x, in_class ? "" : "]");
}

static bool begins(const char *s, size_t n, const char *with)
{
    size_t len = strlen(with);
    return n >= len && !memcmp(s, with, len);
}

static int refused(struct hearth_err *e, const char *what, const char *s, size_t n)
{
    return err_set(e, HEARTH_EUNSUPPORTED, "a pre-tokenizer's pattern has %s (\"%s\"), which hearth does not read",
                   what, gguf_label((struct gguf_str){s, n < 12 ? n : 12}).s);
}

/* Translates \uHHHH, \xHH and \x{H...}; returns the length, 0 where s is none of them. */
static size_t put_number(struct pattern *x, const char *s, size_t n)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    size_t used = 2, many = s[1] == 'u' ? 4 : 2;
    bool braces = s[1] == 'x' && n > 2 && s[2] == '{';
    if (braces)
        used++, many = 8;
    size_t from = used;
    while (used < n && used < from + many && strchr(digits, s[used]) && s[used])
        used++;
    if (used == from || (s[1] == 'u' && used != from + many) || (braces && (used == n || s[used] != '}')))
        return 0;
    put_text(x, "\\x{");
    put(x, s + from, used - from);
    put_text(x, "}");
    return used + braces;
}

/* Translates the escape at s and sets *used to its length. */
static int put_escape(struct pattern *x, const char *s, size_t n, bool in_class, size_t *used, struct hearth_err *e)
{
    *used = 2;
    if (in_class && (begins(s, n, "\\w") || begins(s, n, "\\S"))) {
        put_text(x, s[1] == 'w' ? WORD_IN_SET : NOT_SPACE);
        return 0;
    }
    for (size_t i = 0; i < COUNT(classes); i++)
        if (begins(s, n, classes[i].name)) {
            put_set(x, classes[i].members, in_class, false);
            *used = strlen(classes[i].name);
            return 0;
        }
    for (size_t i = 0; i < COUNT(opposites) && !in_class; i++)
        if (begins(s, n, opposites[i].name)) {
            put_set(x, opposites[i].members, false, true);
            *used = strlen(opposites[i].name);
            return 0;
        }
    for (size_t i = 0; i < COUNT(same); i++)
        if (begins(s, n, same[i])) {
            *used = strlen(same[i]);
            put(x, s, *used);
            return 0;
        }
    char c = n > 1 ? s[1] : 0;
    if ((c == 'b' || c == 'B') && !in_class) {
        put_text(x, c == 'B' ? NO_WORD_END : WORD_END);
        return 0;
    }
    if ((c == 'u' || c == 'x') && (*used = put_number(x, s, n)))
        return 0;
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    bool known = strchr("rntfaeAz", c);
    if (!c || (letter && !known))
        return refused(e, "an escape", s, n);
    put(x, s, 2);
    return 0;
}

/* Translates the start of a group; *used is its length. Of the groups that begin with "(?", only the listed ones
 * pass. */
static int put_group(struct pattern *x, const char *s, size_t n, bool first, size_t *used, struct hearth_err *e)
{
    static const char *const groups[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    *used = 1;
    if (n > 1 && s[1] == '*')
        return refused(e, "a verb", s, n);
    if (n < 2 || s[1] != '?') {
        put(x, s, 1);
        return 0;
    }
    for (size_t i = 0; i < COUNT(groups); i++)
        if (begins(s, n, groups[i])) {
            *used = strlen(groups[i]);
            put(x, s, *used);
            return 0;
        }
    if (first && begins(s, n, "(?i)")) { /* further in, its scope differs between the engines */
        *used = 4;
        put(x, s, 4);
        return 0;
    }
    return refused(e, "a group", s, n);
}

#define ANY "[\\x{0}-\\x{10FFFF}]"

/* Whether the set that begins at s is an intersection: has "&&" outside of the sets within it. */
static bool intersects(const char *s, size_t n)
{
    size_t depth = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '\\')
            i++;
        else if (s[i] == '[')
            depth++;
        else if (s[i] == ']' && i > 1 && !--depth)
            return false;
        else if (depth == 1 && begins(s + i, n - i, "&&"))
            return true;
    }
    return false;
}

/* Translates members of a set from s[*at] up to where a bracket closes it or "&&" follows. Members of a set within it
 * are its own. */
static int put_members(struct pattern *x, const char *s, size_t n, size_t *at, int depth, struct hearth_err *e)
{
    enum { DEPTH_MAX = 4 };
    size_t i = *at;
    while (i < n && s[i] != ']' && !begins(s + i, n - i, "&&")) {
        size_t len = 1;
        int ret = 0;
        if (s[i] == '[') {
            /* a hyphen at an edge of the inner set would become part of a range */
            if (depth == DEPTH_MAX || s[i - 1] == '-' || (i + 1 < n && strchr("^:]-", s[i + 1])))
                return refused(e, "a set within a set", s + i, n - i);
            i++;
            ret = put_members(x, s, n, &i, depth + 1, e);
            if (!ret && (i == n || s[i] != ']' || s[i - 1] == '-' || (i + 1 < n && s[i + 1] == '-')))
                ret = refused(e, "a set within a set", s + *at, n - *at);
        } else if (s[i] == '\\') {
            ret = put_escape(x, s + i, n - i, true, &len, e);
        } else {
            put(x, s + i, 1);
        }
        if (ret)
            return ret;
        i += len;
    }
    *at = i;
    return 0;
}

/* Translates one set of an intersection, from s[*at] up to "&&" or the closing bracket. */
static int put_operand(struct pattern *x, const char *s, size_t n, size_t *at, struct hearth_err *e)
{
    bool opposite = begins(s + *at, n - *at, "[^");
    size_t i = *at + (opposite ? 2 : 0), from = i;
    put_text(x, opposite ? "(?=[^" : "(?=[");
    int ret = put_members(x, s, n, &i, 0, e);
    put_text(x, "])");
    bool closed = opposite ? i < n && s[i] == ']' : from < n && s[from] != '^'; /* a member there, in Oniguruma */
    if (opposite && closed) /* the bracket of the negated set, which has to be all of this operand */
        closed = ++i < n && (s[i] == ']' || begins(s + i, n - i, "&&"));
    if (!ret && (!closed || i == from))
        ret = refused(e, "a set within a set", s + *at, n - *at);
    *at = i;
    return ret;
}

/* Translates the set that begins at s; *used is its length. Oniguruma allows sets within sets and their intersections,
 * which PCRE2 would read as characters: an intersection becomes a character before which each set matches. */
static int put_brackets(struct pattern *x, const char *s, size_t n, size_t *used, struct hearth_err *e)
{
    bool opposite = n > 1 && s[1] == '^';
    size_t i = opposite ? 2 : 1;
    int ret = 0;
    if (intersects(s, n)) {
        put_text(x, opposite ? "(?:(?!" : "(?:");
        for (bool more = true; more && !ret; i += more ? 2 : 0) {
            ret = put_operand(x, s, n, &i, e);
            more = begins(s + i, n - i, "&&");
        }
        put_text(x, opposite ? ")" ANY ")" : ANY ")");
    } else {
        put(x, s, i);
        if (i < n && s[i] == ']') /* a closing bracket in first position is a member */
            put(x, s + i++, 1);
        ret = put_members(x, s, n, &i, 0, e);
        put_text(x, "]");
    }
    *used = i + 1;
    return ret || (i < n && s[i] == ']') ? ret : refused(e, "no end of a set", s, n);
}

/* Checks {2}, {2,} and {2,4}. A + or ? after an interval repeats it in Oniguruma, but makes it possessive or lazy in
 * PCRE2. */
static int check_interval(const char *s, size_t n, struct hearth_err *e)
{
    size_t i = 1;
    while (i < n && ((s[i] >= '0' && s[i] <= '9') || s[i] == ','))
        i++;
    if (i == n || s[i] != '}' || i == 1) /* a literal brace */
        return 0;
    if (s[1] == ',' || (i + 1 < n && strchr("+?*", s[i + 1])))
        return refused(e, "a repetition", s, n);
    return 0;
}

int pattern_translate(struct pattern *x, const char *s, size_t n, struct hearth_err *e)
{
    /* Patterns whose time is quadratic, and what matches the same. */
    static const struct {
        const char *s, *same;
    } slow[] = {{"\\d{1,3}(?=(?:\\d{3})*\\b)", DIGIT_GROUPS(WORD_END)}, {"(?=(\\d{3})+(?!\\d))", DIGIT_GROUP_ENDS}};
    int ret = 0;
    x->n = 0;
    x->full = false;
    for (size_t i = 0; i < COUNT(slow); i++)
        if (strlen(slow[i].s) == n && !memcmp(slow[i].s, s, n)) {
            put_text(x, slow[i].same);
            return 0;
        }
    for (size_t i = 0; i < n && !ret;) {
        size_t used = 1;
        if (s[i] == '\\')
            ret = put_escape(x, s + i, n - i, false, &used, e);
        else if (s[i] == '(')
            ret = put_group(x, s + i, n - i, !i, &used, e);
        else if (s[i] == '[')
            ret = put_brackets(x, s + i, n - i, &used, e);
        else if (s[i] == '^' || s[i] == '$') /* in Ruby's syntax, ends of lines */
            put_text(x, s[i] == '^' ? "(?m:^)" : "(?m:$)");
        else {
            ret = s[i] == '{' ? check_interval(s + i, n - i, e) : 0;
            put(x, s + i, 1);
        }
        i += used;
    }
    if (!ret && x->full)
        ret = err_set(e, HEARTH_EUNSUPPORTED, "a pre-tokenizer's pattern is longer than %zu bytes", sizeof x->s);
    return ret;
}
