/*
 * lex.c - splits a template's source into tokens: the text between tags, without the white space that tags, trim_blocks
 * and lstrip_blocks remove, and the tokens inside the tags. Follows jinja2/lexer.py rule by rule.
 */
#include "daemon/model/chat/ast.h"
#include "daemon/model/chat/unicode.h"

#include <stdlib.h>
#include <string.h>

struct lexer {
    struct run *r;
    const char *s, *end, *at;
    struct token *token;
    uint32_t n, cap;
    char open[JINJA_NEST_MAX + 1]; /* the closing brackets of those that are open */
    int n_open;
};

/* Operators; of two with a common prefix, the longer one comes first. */
static const struct {
    char text[3];
    enum token_type type;
} operators[] = {
    {"**", T_POW},   {"//", T_FLOORDIV}, {"==", T_EQ},    {"!=", T_NE},    {">=", T_GE},      {"<=", T_LE},
    {"+", T_ADD},    {"-", T_SUB},       {"*", T_MUL},    {"/", T_DIV},    {"%", T_MOD},      {"~", T_TILDE},
    {"<", T_LT},     {">", T_GT},        {"=", T_ASSIGN}, {".", T_DOT},    {":", T_COLON},    {"|", T_PIPE},
    {",", T_COMMA},  {";", T_SEMICOLON}, {"(", T_LPAREN}, {")", T_RPAREN}, {"[", T_LBRACKET}, {"]", T_RBRACKET},
    {"{", T_LBRACE}, {"}", T_RBRACE},
};

const char *token_name(enum token_type t)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (operators[i].type == t)
            return operators[i].text;
    switch (t) {
    case T_EOF:
        return "end of template";
    case T_BLOCK_BEGIN:
        return "begin of statement block";
    case T_BLOCK_END:
        return "end of statement block";
    case T_VAR_BEGIN:
        return "begin of print statement";
    case T_VAR_END:
        return "end of print statement";
    case T_NAME:
        return "name";
    case T_STRING:
        return "string";
    case T_INTEGER:
        return "integer";
    case T_FLOAT:
        return "float";
    default:
        return "text";
    }
}

static bool starts(struct lexer *x, const char *at, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(x->end - at) >= n && !memcmp(at, text, n);
}

static void add(struct lexer *x, enum token_type type, struct val v)
{
    x->token = run_grow(x->r, x->token, x->n, &x->cap, sizeof *x->token);
    x->token[x->n++] = (struct token){type, x->r->line, v};
}

/* Advances to `to`, counting lines. */
static void advance(struct lexer *x, const char *to)
{
    for (; x->at < to; x->at++)
        x->r->line += *x->at == '\n';
}

static const char *skip_space(struct lexer *x, const char *at)
{
    while (at < x->end) {
        const char *next = at;
        if (!code_is_space(code_next(&next)))
            break;
        at = next;
    }
    return at;
}

/* The start of the white space at the end of s[from, to). */
static const char *space_before(const char *from, const char *to)
{
    while (to > from) {
        const char *c = to - 1;
        while (c > from && !code_begins(*c))
            c--;
        const char *next = c;
        if (!code_is_space(code_next(&next)))
            break;
        to = c;
    }
    return to;
}

/* Adds the text up to a tag, without what the tag removes: '-' removes all white space, lstrip_blocks the line's
 * indentation. */
static void add_data(struct lexer *x, const char *to, char sign, bool variable)
{
    const char *from = x->at, *end = to;
    if (sign == '-') {
        end = space_before(from, to);
    } else if (sign != '+' && !variable) {
        const char *line = to;
        while (line > from && line[-1] != '\n')
            line--;
        bool line_start = line > from || from == x->s || from[-1] == '\n';
        if (line_start && space_before(line, to) == line)
            end = line;
    }
    if (end > from)
        add(x, T_DATA, v_str(str_new(x->r, from, (size_t)(end - from))));
    advance(x, to);
}

static char sign_at(struct lexer *x, const char *at)
{
    return at < x->end && (*at == '-' || *at == '+') ? *at : 0;
}

/* Recognises the end of a tag at `at`; `close` is "%}", "#}" or "}}". Returns the position after it and after what it
 * removes, NULL where there is none. '-' removes all white space; otherwise a block or comment (not a print statement)
 * removes one line end, unless it has '+'. */
static const char *tag_end(struct lexer *x, const char *at, const char *close)
{
    bool variable = close[0] == '}';
    char sign = sign_at(x, at);
    if (sign == '+' && variable)
        return NULL;
    const char *p = at + (sign != 0);
    if (!starts(x, p, close))
        return NULL;
    p += 2;
    if (sign == '-')
        return skip_space(x, p);
    if (!sign && !variable && p < x->end && *p == '\n')
        p++;
    return p;
}

/* Recognises the beginning of "{% raw %}" or "{% endraw %}", with an optional sign, at `at`: returns the position after
 * the word and the white space, or NULL. */
static const char *raw_word(struct lexer *x, const char *at, const char *word)
{
    if (!starts(x, at, "{%"))
        return NULL;
    at += 2;
    at += sign_at(x, at) != 0;
    at = skip_space(x, at);
    if (!starts(x, at, word))
        return NULL;
    return skip_space(x, at + strlen(word));
}

/* Reads the text between raw and endraw. Returns false where the tag is no raw. As in Jinja's lexer, a raw or a comment
 * at the end of the template that contains nothing needs no end tag. */
static bool lex_raw(struct lexer *x, const char *tag)
{
    const char *begin = raw_word(x, tag, "raw"), *end;
    if (!begin || sign_at(x, begin) == '+')
        return false;
    if (starts(x, begin, "-%}"))
        begin = skip_space(x, begin + 3);
    else if (starts(x, begin, "%}"))
        begin += 2;
    else
        return false;
    add_data(x, tag, sign_at(x, tag + 2), false);
    advance(x, begin);
    for (const char *p = begin; p < x->end; p++) {
        const char *word = *p == '{' ? raw_word(x, p, "endraw") : NULL;
        if (!word || !(end = tag_end(x, word, "%}")))
            continue;
        add_data(x, p, sign_at(x, p + 2), false);
        advance(x, end);
        return true;
    }
    if (begin == x->end)
        return true;
    run_fail(x->r, JINJA_SYNTAX, "Missing end of raw directive");
}

static void lex_comment(struct lexer *x, const char *begin)
{
    const char *end;
    for (const char *p = begin; p < x->end; p++) {
        if ((end = tag_end(x, p, "#}"))) {
            advance(x, end);
            return;
        }
    }
    if (begin < x->end)
        run_fail(x->r, JINJA_SYNTAX, "Missing end of comment tag");
}

/* --- strings and numbers ---------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
}

static const char *escape_hex(struct lexer *x, const char *p, const char *end, int digits)
{
    uint32_t code = 0;
    for (int i = 0; i < digits; i++) {
        int d = p < end ? hex_digit(*p++) : -1;
        if (d < 0)
            run_fail(x->r, JINJA_SYNTAX, "truncated escape in a string");
        code = code << 4 | (uint32_t)d;
    }
    if (code > 0x10ffff)
        run_fail(x->r, JINJA_SYNTAX, "illegal Unicode character in a string's escape");
    put_code(x->r, code);
    return p;
}

/* Python first encodes to ASCII with backslash escapes, so a backslash before an é yields a backslash and "xe9". */
static const char *escape_other(struct lexer *x, const char *p)
{
    const char *next = p;
    uint32_t c = code_next(&next);
    put_char(x->r, '\\');
    if (c < 0x80)
        put_char(x->r, (char)c);
    else
        put_fmt(x->r, c < 0x100 ? "x%02x" : c < 0x10000 ? "u%04x" : "U%08x", c);
    return next;
}

static const char *escape(struct lexer *x, const char *p, const char *end)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char *known = strchr(from, *p);
    if (*p == '\n')
        return p + 1;
    if (known && *p) {
        put_char(x->r, to[known - from]);
        return p + 1;
    }
    if (*p == 'x' || *p == 'u' || *p == 'U')
        return escape_hex(x, p + 1, end, *p == 'x' ? 2 : *p == 'u' ? 4 : 8);
    if (*p == 'N')
        run_fail(x->r, JINJA_SYNTAX, "names of characters are not supported in strings");
    if (*p >= '0' && *p <= '7') {
        uint32_t code = 0;
        for (int i = 0; i < 3 && p < end && *p >= '0' && *p <= '7'; i++)
            code = code << 3 | (uint32_t)(*p++ - '0');
        put_code(x->r, code);
        return p;
    }
    return escape_other(x, p);
}

static void lex_string(struct lexer *x)
{
    char quote = *x->at;
    const char *p = x->at + 1, *end = p;
    while (end < x->end && *end != quote)
        end += *end == '\\' ? 2 : 1;
    if (end >= x->end)
        run_fail(x->r, JINJA_SYNTAX, "a string does not end");
    struct mark m = string_begin(x->r);
    while (p < end) {
        const char *run = p;
        while (p < end && *p != '\\')
            p++;
        put_bytes(x->r, run, (size_t)(p - run));
        if (p < end)
            p = escape(x, p + 1, end);
    }
    add(x, T_STRING, v_str(string_end(x->r, m)));
    advance(x, end + 1);
}

/* The end of the digits of that base at p, with single underscores between them; `p` where there are none. */
static const char *digits(struct lexer *x, const char *p, int base)
{
    const char *end = p;
    while (end < x->end) {
        const char *c = end > p && *end == '_' ? end + 1 : end;
        int d = c < x->end ? hex_digit(*c) : -1;
        if (d < 0 || d >= base)
            break;
        end = c + 1;
    }
    return end;
}

/* The end of a float that begins at p; NULL where there is none. */
static const char *float_end(struct lexer *x, const char *p)
{
    const char *end = digits(x, p, 10), *e;
    bool fraction = end < x->end && *end == '.' && digits(x, end + 1, 10) > end + 1;
    if (end == p)
        return NULL;
    if (fraction)
        end = digits(x, end + 1, 10);
    if (end < x->end && (*end | 0x20) == 'e') {
        e = end + 1;
        if (e < x->end && (*e == '+' || *e == '-'))
            e++;
        if (digits(x, e, 10) > e)
            return digits(x, e, 10);
    }
    return fraction ? end : NULL;
}

static void lex_float(struct lexer *x, const char *end)
{
    char text[400];
    size_t n = 0;
    for (const char *p = x->at; p < end; p++) {
        if (*p != '_' && n + 1 < sizeof text)
            text[n++] = *p;
        else if (*p != '_')
            run_fail(x->r, JINJA_SYNTAX, "a number of more than %zu digits", sizeof text);
    }
    text[n] = 0;
    add(x, T_FLOAT, v_float(strtod(text, NULL)));
    advance(x, end);
}

static void lex_integer(struct lexer *x)
{
    const char *p = x->at, *end = NULL;
    char kind = p + 1 < x->end ? (char)(p[1] | 0x20) : 0;
    int base = *p != '0' ? 10 : kind == 'b' ? 2 : kind == 'o' ? 8 : kind == 'x' ? 16 : 1; /* 1: only zeros */
    if (base != 10 && base != 1) {
        const char *from = p + 2 < x->end && p[2] == '_' ? p + 3 : p + 2;
        end = digits(x, from, base);
        if (end == from)
            end = NULL;
        else
            p = from;
    }
    if (!end) {
        base = *p == '0' ? 1 : 10;
        end = digits(x, p, base);
    }
    int128 n = 0;
    for (const char *c = p; c < end; c++)
        if (*c != '_' && (__builtin_mul_overflow(n, base, &n) || __builtin_add_overflow(n, hex_digit(*c), &n)))
            run_fail(x->r, JINJA_LIMIT, "an integer of more than 128 bits");
    add(x, T_INTEGER, int_val(x->r, n));
    advance(x, end);
}

/* --- inside a tag ----------------------------------------------------------------------------------------- */

static void lex_name(struct lexer *x)
{
    const char *p = x->at;
    while (p < x->end) {
        const char *next = p;
        if (!code_is_name(code_next(&next)))
            break;
        p = next;
    }
    add(x, T_NAME, v_str(str_new(x->r, x->at, (size_t)(p - x->at))));
    advance(x, p);
}

static void balance(struct lexer *x, enum token_type t)
{
    static const enum token_type open[] = {T_LPAREN, T_LBRACKET, T_LBRACE};
    for (int i = 0; i < 3; i++) {
        if (t == open[i]) {
            if (x->n_open == JINJA_NEST_MAX)
                run_fail(x->r, JINJA_LIMIT, "more than %d brackets inside each other", JINJA_NEST_MAX);
            x->open[x->n_open++] = ")]}"[i];
        }
        if (t == open[i] + 1) {
            if (!x->n_open)
                run_fail(x->r, JINJA_SYNTAX, "unexpected '%c'", ")]}"[i]);
            if (x->open[--x->n_open] != ")]}"[i])
                run_fail(x->r, JINJA_SYNTAX, "unexpected '%c', expected '%c'", ")]}"[i], x -> open[x->n_open]);
        }
    }
}

static void lex_operator(struct lexer *x)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (!starts(x, x->at, operators[i].text))
            continue;
        balance(x, operators[i].type);
        add(x, operators[i].type, (struct val){0});
        advance(x, x->at + strlen(operators[i].text));
        return;
    }
    const char *next = x->at;
    uint32_t c = code_next(&next);
    run_fail(x->r, JINJA_SYNTAX, c > 0x20 && c < 0x7f ? "unexpected char '%c'" : "unexpected char U+%04X", (int)c);
}

/* Reads tokens up to the tag's end, `close`. */
static void lex_tag(struct lexer *x, const char *close)
{
    const char *end;
    x->n_open = 0;
    while (x->at < x->end) {
        const char *next = x->at;
        if (!x->n_open && (end = tag_end(x, x->at, close))) {
            add(x, close[0] == '}' ? T_VAR_END : T_BLOCK_END, (struct val){0});
            advance(x, end);
            return;
        }
        char c = *x->at;
        bool digit = c >= '0' && c <= '9';
        if ((next = skip_space(x, next)) > x->at)
            advance(x, next);
        else if (digit && (x->at == x->s || x->at[-1] != '.') && (end = float_end(x, x->at)))
            lex_float(x, end);
        else if (digit)
            lex_integer(x);
        else if (c == '\'' || c == '"')
            lex_string(x);
        else if (code_is_name_start(code_next(&next)))
            lex_name(x);
        else
            lex_operator(x);
    }
}

struct token *template_lex(struct run *r, const char *src, size_t n, uint32_t *n_token)
{
    struct lexer x = {.r = r, .s = src, .at = src, .end = src + n};
    r->line = 1;
    while (x.at < x.end) {
        const char *tag = x.at;
        while (tag + 1 < x.end && !(tag[0] == '{' && strchr("%{#", tag[1]) && tag[1]))
            tag++;
        if (tag + 1 >= x.end) {
            add_data(&x, x.end, '+', false);
            break;
        }
        if (tag[1] == '%' && lex_raw(&x, tag))
            continue;
        char sign = sign_at(&x, tag + 2);
        add_data(&x, tag, sign, tag[1] == '{');
        if (tag[1] != '#')
            add(&x, tag[1] == '%' ? T_BLOCK_BEGIN : T_VAR_BEGIN, (struct val){0});
        advance(&x, tag + 2 + (sign != 0));
        if (tag[1] == '#')
            lex_comment(&x, x.at);
        else
            lex_tag(&x, tag[1] == '%' ? "%}" : "}}");
    }
    add(&x, T_EOF, (struct val){0});
    *n_token = x.n;
    return x.token;
}
