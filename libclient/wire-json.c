/*
 * wire-json.c - see wire-json.h.
 *
 * Text is converted to MessagePack in one pass whose only state is its position, so it costs no memory beyond the
 * output. The count of a container precedes it but is known only at its end: it is written then, always as 32 bits. The
 * same goes for the length of a string.
 */
#include "libclient/wire-json.h"
#include "libclient/packed.h"
#include "libclient/utf8.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int wire_buf_add(struct wire_buf *b, const void *data, size_t n, size_t end)
{
    if (b->len > end || n > end - b->len)
        return HEARTH_ETOOBIG;
    if (n > b->cap - b->len) {
        size_t cap = b->cap ? b->cap : 256;
        while (cap - b->len < n)
            cap *= 2;
        uint8_t *grown = realloc(b->data, cap);
        if (!grown)
            return HEARTH_ENOMEM;
        b->data = grown;
        b->cap = cap;
    }
    if (n) /* data may be NULL where n is 0 */
        memcpy(b->data + b->len, data, n);
    b->len += n;
    return 0;
}

/* --- JSON to MessagePack ------------------------------------------------------------------------------------------ */

struct in {
    const char *at;
    struct wire_buf *b;
    size_t end; /* largest allowed length of b */
    int code;
    const char *why;
};

static int wrong(struct in *in, const char *why)
{
    if (!in->code) {
        in->code = HEARTH_EPARAMS;
        in->why = why;
    }
    return in->code;
}

static int put(struct in *in, const void *data, size_t n)
{
    if (!in->code)
        in->code = wire_buf_add(in->b, data, n, in->end);
    return in->code;
}

/* Appends a tag and `width` bytes of a number, big endian. */
static int put_head(struct in *in, uint8_t tag, uint64_t n, int width)
{
    uint8_t head[9] = {tag};
    for (int i = 0; i < width; i++)
        head[1 + i] = (uint8_t)(n >> 8 * (width - 1 - i));
    return put(in, head, 1 + (size_t)width);
}

static void skip_blanks(struct in *in)
{
    while (*in->at == ' ' || *in->at == '\t' || *in->at == '\n' || *in->at == '\r')
        in->at++;
}

static bool take(struct in *in, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(in->at, word, n))
        return false;
    in->at += n;
    return true;
}

/* Returns the number of the four hex digits of a \u escape; negative where they are not hex digits. */
static long hex4(const char *s)
{
    long c = 0;
    for (int i = 0; i < 4; i++) {
        char d = s[i];
        if (d >= '0' && d <= '9')
            c = c * 16 + d - '0';
        else if ((d | 0x20) >= 'a' && (d | 0x20) <= 'f')
            c = c * 16 + (d | 0x20) - 'a' + 10;
        else
            return -1;
    }
    return c;
}

static int put_code(struct in *in, uint32_t c)
{
    char s[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    if (n == 1)
        s[0] = (char)c;
    for (size_t i = n; n > 1 && i-- > 1; c >>= 6)
        s[i] = (char)(0x80 | (c & 0x3f));
    if (n > 1)
        s[0] = (char)((0xf0 << (4 - n) & 0xff) | c);
    return put(in, s, n);
}

static int escape(struct in *in)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *known = *in->at ? strchr(from, *in->at) : NULL;
    if (known) {
        in->at++;
        return put(in, to + (known - from), 1);
    }
    if (*in->at != 'u')
        return wrong(in, "has an unknown escape in a string");
    long c = hex4(in->at + 1), low;
    if (c < 0)
        return wrong(in, "has an unknown escape in a string");
    in->at += 5;
    if (c >= 0xd800 && c < 0xdc00 && in->at[0] == '\\' && in->at[1] == 'u' && (low = hex4(in->at + 2)) >= 0xdc00 &&
        low < 0xe000) {
        in->at += 6;
        return put_code(in, 0x10000 + ((uint32_t)(c - 0xd800) << 10) + (uint32_t)(low - 0xdc00));
    }
    if (c >= 0xd800 && c < 0xe000)
        return wrong(in, "has half a surrogate pair in a string");
    return put_code(in, (uint32_t)c);
}

static int put_string(struct in *in)
{
    if (*in->at != '"')
        return wrong(in, *in->at ? "has a key that is not a string" : "ends inside an object");
    in->at++;
    put_head(in, 0xdb, 0, 4);
    size_t start = in->b->len;
    while (!in->code && *in->at != '"') {
        const char *plain = in->at;
        while ((unsigned char)*in->at >= 0x20 && *in->at != '"' && *in->at != '\\')
            in->at++;
        put(in, plain, (size_t)(in->at - plain));
        if (*in->at == '\\') {
            in->at++;
            escape(in);
        } else if (*in->at != '"') {
            wrong(in, *in->at ? "has a control character in a string" : "ends inside a string");
        }
    }
    if (in->code)
        return in->code;
    in->at++;
    size_t n = in->b->len - start;
    for (int i = 0; i < 4; i++)
        in->b->data[start - 4 + (size_t)i] = (uint8_t)(n >> 8 * (3 - i));
    return utf8_prefix((char *)in->b->data + start, n) == n ? 0 : wrong(in, "is not valid UTF-8");
}

static size_t digits(const char *s)
{
    return strspn(s, "0123456789");
}

static int put_integer(struct in *in, const char *s)
{
    errno = 0;
    if (*s == '-') {
        long long v = strtoll(s, NULL, 10);
        return errno ? wrong(in, "has an integer beyond 64 bits")
               : v   ? put_head(in, 0xd3, (uint64_t)v, 8)
                     : put_head(in, 0, 0, 0);
    }
    unsigned long long v = strtoull(s, NULL, 10);
    if (errno)
        return wrong(in, "has an integer beyond 64 bits");
    return v < 128 ? put_head(in, (uint8_t)v, 0, 0) : put_head(in, 0xcf, v, 8);
}

/* strtod() expects the locale's decimal point, which may have several bytes, so it is substituted first. */
static int put_float(struct in *in, const char *s, size_t n)
{
    enum { DIGITS = 400 };
    char text[DIGITS + MB_LEN_MAX];
    uint64_t bits;
    if (n >= DIGITS)
        return wrong(in, "has a number of more than 399 characters");
    const char *point = memchr(s, '.', n);
    size_t whole = point ? (size_t)(point - s) : n;
    snprintf(text, sizeof text, "%.*s%s%.*s", (int)whole, s, point ? localeconv()->decimal_point : "",
             point ? (int)(n - whole - 1) : 0, point ? point + 1 : "");
    double v = strtod(text, NULL);
    if (!isfinite(v))
        return wrong(in, "has a number that is too large");
    memcpy(&bits, &v, sizeof bits);
    return put_head(in, 0xcb, bits, 8);
}

static int put_number(struct in *in)
{
    const char *s = in->at, *p = s + (*s == '-');
    size_t n = digits(p);
    bool whole = true;
    if (!n || (n > 1 && *p == '0'))
        return wrong(in, "is not JSON");
    p += n;
    if (*p == '.' && digits(p + 1)) {
        whole = false;
        p += 1 + digits(p + 1);
    }
    if (*p == 'e' || *p == 'E') {
        const char *x = p + 1 + (p[1] == '+' || p[1] == '-');
        if (!digits(x))
            return wrong(in, "is not JSON");
        whole = false;
        p = x + digits(x);
    }
    in->at = p;
    return whole ? put_integer(in, s) : put_float(in, s, (size_t)(p - s));
}

static int put_value(struct in *in, int depth);

static int put_container(struct in *in, int depth)
{
    bool map = *in->at++ == '{';
    char close = map ? '}' : ']';
    uint32_t n = 0;
    if (depth == WIRE_JSON_DEPTH)
        return wrong(in, "nests too deep");
    put_head(in, map ? 0xdf : 0xdd, 0, 4);
    size_t start = in->b->len;
    skip_blanks(in);
    while (!in->code && *in->at != close) {
        if (n && *in->at != ',')
            return wrong(in, *in->at ? "is not JSON" : map ? "ends inside an object" : "ends inside an array");
        in->at += n > 0;
        skip_blanks(in);
        if (map) {
            put_string(in);
            skip_blanks(in);
            if (!in->code && *in->at != ':')
                return wrong(in, *in->at ? "is not JSON" : "ends inside an object");
            in->at += in->code == 0;
        }
        put_value(in, depth + 1);
        skip_blanks(in);
        n++;
    }
    if (in->code)
        return in->code;
    in->at++;
    for (int i = 0; i < 4; i++)
        in->b->data[start - 4 + (size_t)i] = (uint8_t)(n >> 8 * (3 - i));
    return 0;
}

static int put_value(struct in *in, int depth)
{
    if (in->code)
        return in->code;
    skip_blanks(in);
    if (*in->at == '{' || *in->at == '[')
        return put_container(in, depth);
    if (*in->at == '"')
        return put_string(in);
    if (take(in, "null"))
        return put_head(in, 0xc0, 0, 0);
    if (take(in, "true"))
        return put_head(in, 0xc3, 0, 0);
    if (take(in, "false"))
        return put_head(in, 0xc2, 0, 0);
    return put_number(in);
}

int wire_json_pack(struct wire_buf *b, size_t end, const char *json, enum wire_json_root root, const char **why)
{
    struct in in = {.at = json, .b = b, .end = end};
    skip_blanks(&in);
    if (*in.at != (root == WIRE_JSON_MAP ? '{' : '['))
        wrong(&in, root == WIRE_JSON_MAP ? "must be a JSON object" : "must be a JSON array");
    put_value(&in, 0);
    skip_blanks(&in);
    if (*in.at)
        wrong(&in, "is not JSON");
    *why = in.why;
    return in.code;
}

/* --- MessagePack to JSON ------------------------------------------------------------------------------------------ */

/* The daemon and its engines do this on the threads that serve all clients, for up to a frame's bytes: so characters
 * and integers are written without printf, and a float is printed once. */
struct out {
    char *p; /* NULL: only the length is counted */
    size_t n;
    size_t left; /* how many more values there may be */
    const char *why;
};

static void text(struct out *t, const char *s, size_t n)
{
    if (t->p)
        memcpy(t->p + t->n, s, n);
    t->n += n;
}

static void escaped(struct out *t, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    char s[6] = {'\\', (char)c};
    if (c >= 0x20) {
        text(t, s, 2);
        return;
    }
    memcpy(s + 1, "u00", 3);
    s[4] = hex[c >> 4];
    s[5] = hex[c & 15];
    text(t, s, sizeof s);
}

static void string(struct out *t, const char *s, size_t n)
{
    if (utf8_prefix(s, n) != n)
        t->why = "has a string that is not valid UTF-8";
    text(t, "\"", 1);
    for (size_t i = 0, plain; i < n && !t->why; i = plain) {
        for (plain = i; plain < n && (unsigned char)s[plain] >= 0x20 && s[plain] != '"' && s[plain] != '\\';)
            plain++;
        text(t, s + i, plain - i);
        if (plain < n)
            escaped(t, (unsigned char)s[plain++]);
    }
    text(t, "\"", 1);
}

static void integer(struct out *t, uint64_t v, bool negative)
{
    char s[21], *at = s + sizeof s;
    do
        *--at = (char)('0' + v % 10);
    while (v /= 10);
    if (negative)
        *--at = '-';
    text(t, at, (size_t)(s + sizeof s - at));
}

static void number(struct out *t, double v)
{
    enum { LONGEST = 24 }; /* -2.2250738585072014e-308 */
    char s[LONGEST + MB_LEN_MAX + 3];
    if (!isfinite(v)) {
        t->why = "has a number that is not finite";
        return;
    }
    if (!t->p) {
        t->n += LONGEST;
        return;
    }
    const char *mark = localeconv()->decimal_point;
    snprintf(s, sizeof s - 2, "%.17g", v);
    char *point = strstr(s, mark);
    if (point) {
        *point = '.';
        memmove(point + 1, point + strlen(mark), strlen(point + strlen(mark)) + 1);
    }
    if (!strpbrk(s, ".e"))
        strcat(s, ".0");
    text(t, s, strlen(s));
}

static void value(struct out *t, struct cursor *in, int depth);

static void array(struct out *t, struct cursor *in, size_t n, int depth)
{
    text(t, "[", 1);
    for (size_t i = 0; i < n && !t->why; i++) {
        if (i)
            text(t, ",", 1);
        value(t, in, depth + 1);
    }
    text(t, "]", 1);
}

static void map(struct out *t, struct cursor *in, size_t n, int depth)
{
    struct packed key;
    text(t, "{", 1);
    for (size_t i = 0; i < n && !t->why; i++) {
        if (i)
            text(t, ",", 1);
        if (packed_next(in, &key) || key.kind != SCAN_STR) {
            t->why = "has a key that is not a string";
            return;
        }
        string(t, key.data, key.n);
        text(t, ":", 1);
        value(t, in, depth + 1);
    }
    text(t, "}", 1);
}

static void value(struct out *t, struct cursor *in, int depth)
{
    struct packed v;
    if (t->why)
        return;
    if (!t->left) {
        static_assert(WIRE_JSON_VALUES == 200000, "");
        t->why = "has too many values: all lists and dicts of a request may have 200000";
        return;
    }
    t->left--;
    if (packed_next(in, &v)) {
        t->why = "is not well-formed msgpack";
        return;
    }
    if (depth == WIRE_JSON_DEPTH && (v.kind == SCAN_ARRAY || v.kind == SCAN_MAP)) {
        t->why = "nests too deep";
        return;
    }
    switch (v.kind) {
    case SCAN_NIL:
        text(t, "null", 4);
        return;
    case SCAN_BOOL:
        text(t, v.b ? "true" : "false", v.b ? 4 : 5);
        return;
    case SCAN_UINT:
        integer(t, v.u, false);
        return;
    case SCAN_INT:
        integer(t, v.i < 0 ? -(uint64_t)v.i : (uint64_t)v.i, v.i < 0);
        return;
    case SCAN_FLOAT:
        number(t, v.f);
        return;
    case SCAN_STR:
        string(t, v.data, v.n);
        return;
    case SCAN_ARRAY:
        array(t, in, v.n, depth);
        return;
    case SCAN_MAP:
        map(t, in, v.n, depth);
        return;
    case SCAN_BIN:
    case SCAN_EXT:
        t->why = "has bytes in it, which JSON cannot hold";
    }
}

/* Converts the value at the beginning of the bytes, with that root. */
static void convert(struct out *t, const uint8_t *data, size_t len, enum wire_json_root root)
{
    struct cursor in = {data, data + len}, first = in;
    struct packed v = {0};
    int rc = packed_next(&first, &v);
    if (root == WIRE_JSON_MAP && v.kind == SCAN_ARRAY && !v.n)
        text(t, "{}", 2);
    else if (rc || v.kind != (root == WIRE_JSON_MAP ? SCAN_MAP : SCAN_ARRAY))
        t->why = root == WIRE_JSON_MAP ? "must be a map" : "must be an array";
    else
        value(t, &in, 0);
}

size_t wire_json_measure(const uint8_t *data, size_t len, enum wire_json_root root, size_t *left, const char **why)
{
    struct out t = {.left = *left};
    convert(&t, data, len, root);
    *left = t.left;
    *why = t.why;
    return t.why ? SIZE_MAX : t.n;
}

size_t wire_json_write(const uint8_t *data, size_t len, enum wire_json_root root, char *out)
{
    struct out t = {.p = out, .left = SIZE_MAX};
    convert(&t, data, len, root);
    return t.n;
}

const char *wire_json_fault(const uint8_t *data, size_t len)
{
    struct out t = {.left = SIZE_MAX};
    struct cursor in = {data, data + len};
    value(&t, &in, 1);
    return t.why;
}
