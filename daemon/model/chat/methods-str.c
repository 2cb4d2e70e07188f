/* methods-str.c - the methods of Python's str, over code points. */
#include "daemon/model/chat/exec.h"

#include <string.h>

#define METHOD(name) static struct val str_##name(struct run *r, struct val self, struct val *arg)

/* The string argument of a method; if self is markup, it is escaped first. */
static const struct str *other(struct run *r, struct val self, struct val v, const char *what)
{
    const struct str *s = need_str(r, v, what);
    return self.s->markup ? text_escape(r, v) : s;
}

METHOD(upper)
{
    (void)arg;
    return v_str(text_case(r, self.s, CASE_UPPER));
}
METHOD(lower)
{
    (void)arg;
    return v_str(text_case(r, self.s, CASE_LOWER));
}
METHOD(title)
{
    (void)arg;
    return v_str(text_case(r, self.s, CASE_TITLE));
}
METHOD(casefold)
{
    (void)arg;
    return v_str(text_case(r, self.s, CASE_FOLD));
}

/* The first character in title case, the rest in lower case. */
METHOD(capitalize)
{
    const struct str *s = self.s;
    (void)arg;
    if (!s->n)
        return self;
    size_t first = str_offset(r, s, 1);
    const struct str *low = text_case(r, s, CASE_LOWER);
    struct mark m = string_begin(r);
    put_str(r, text_case(r, str_sub(r, s, 0, first), CASE_TITLE));
    put_str(r, str_sub(r, low, text_case(r, str_sub(r, s, 0, first), CASE_LOWER)->n, low->n));
    return markup_like(r, s, string_end(r, m));
}

METHOD(swapcase)
{
    (void)arg;
    return v_str(text_case(r, self.s, CASE_SWAP));
}

METHOD(strip)
{
    return v_str(text_strip(r, self.s, arg[0], true, true));
}
METHOD(lstrip)
{
    return v_str(text_strip(r, self.s, arg[0], true, false));
}
METHOD(rstrip)
{
    return v_str(text_strip(r, self.s, arg[0], false, true));
}

/* --- splitting -------------------------------------------------------------------------------------------- */

static struct val split_space(struct run *r, const struct str *s, int64_t max)
{
    struct val out = list_new(r, V_LIST, 0);
    for (s = text_strip(r, s, NONE, true, false); s->n; max--) {
        size_t to = 0;
        while (to < s->n && max) {
            const char *p = s->p + to;
            if (code_is_space(code_next(&p)))
                break;
            to = (size_t)(p - s->p);
        }
        run_charge_bytes(r, to);
        list_add(r, out.l, v_str(max ? str_sub(r, s, 0, to) : s));
        if (!max)
            break;
        s = text_strip(r, str_sub(r, s, to, s->n), NONE, true, false);
    }
    return out;
}

static void turn(struct list *l)
{
    for (uint32_t i = 0; i < l->n / 2; i++) {
        struct val t = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = t;
    }
}

static struct val rsplit_space(struct run *r, const struct str *s, int64_t max)
{
    struct val out = list_new(r, V_LIST, 0);
    for (s = text_strip(r, s, NONE, false, true); s->n; max--) {
        size_t from = s->n;
        while (from && max) {
            size_t at = from - 1;
            while (!code_begins(s->p[at]))
                at--;
            const char *p = s->p + at;
            if (code_is_space(code_next(&p)))
                break;
            from = at;
        }
        run_charge_bytes(r, s->n - from);
        list_add(r, out.l, v_str(max ? str_sub(r, s, from, s->n) : s));
        if (!max)
            break;
        s = text_strip(r, str_sub(r, s, 0, from), NONE, false, true);
    }
    turn(out.l);
    return out;
}

static const struct str *split_by(struct run *r, struct val v)
{
    if (is_missing(v) || v.tag == V_NONE)
        return NULL;
    if (!need_str(r, v, "a separator")->n)
        type_error(r, "empty separator");
    return v.s;
}

METHOD(split)
{
    const struct str *sep = split_by(r, arg[0]), *s = self.s;
    int64_t max = is_missing(arg[1]) ? -1 : need_int(r, arg[1], "maxsplit"), found;
    if (max < 0)
        max = INT64_MAX;
    if (!sep)
        return split_space(r, s, max);
    struct val out = list_new(r, V_LIST, 0);
    size_t from = 0;
    for (; max && (found = str_find(r, s, sep, from, s->n)) >= 0; max--) {
        list_add(r, out.l, v_str(str_sub(r, s, from, (size_t)found)));
        from = (size_t)found + sep->n;
    }
    list_add(r, out.l, v_str(str_sub(r, s, from, s->n)));
    return out;
}

METHOD(rsplit)
{
    const struct str *sep = split_by(r, arg[0]), *s = self.s;
    int64_t max = is_missing(arg[1]) ? -1 : need_int(r, arg[1], "maxsplit"), found;
    if (max < 0)
        max = INT64_MAX;
    if (!sep)
        return rsplit_space(r, s, max);
    struct val out = list_new(r, V_LIST, 0);
    size_t to = s->n;
    for (; max && (found = str_rfind(r, s, sep, 0, to)) >= 0; max--) {
        list_add(r, out.l, v_str(str_sub(r, s, (size_t)found + sep->n, to)));
        to = (size_t)found;
    }
    list_add(r, out.l, v_str(str_sub(r, s, 0, to)));
    turn(out.l);
    return out;
}

METHOD(splitlines)
{
    return text_lines(r, self.s, val_truth(arg[0]));
}

static struct val three(struct run *r, struct val a, struct val b, struct val c)
{
    struct val t = list_new(r, V_TUPLE, 3);
    list_add(r, t.l, a);
    list_add(r, t.l, b);
    list_add(r, t.l, c);
    return t;
}

static struct val part_at(struct run *r, struct val self, struct val sep, int64_t at, bool last)
{
    const struct str *s = self.s;
    struct val none = v_text(r, "");
    if (at < 0)
        return last ? three(r, none, none, self) : three(r, self, none, none);
    size_t from = (size_t)at;
    return three(r, v_str(str_sub(r, s, 0, from)), sep, v_str(str_sub(r, s, from + sep.s->n, s->n)));
}

METHOD(partition)
{
    split_by(r, arg[0].tag == V_NONE ? v_int(0) : arg[0]);
    return part_at(r, self, arg[0], str_find(r, self.s, arg[0].s, 0, self.s->n), false);
}
METHOD(rpartition)
{
    split_by(r, arg[0].tag == V_NONE ? v_int(0) : arg[0]);
    return part_at(r, self, arg[0], str_rfind(r, self.s, arg[0].s, 0, self.s->n), true);
}

/* --- finding ---------------------------------------------------------------------------------------------- */

/* The byte offsets of self[arg[0]:arg[1]]; false where the start is after the end. */
static bool window(struct run *r, const struct str *s, const struct val *arg, size_t *from, size_t *to)
{
    int64_t n = str_codes(r, s), a = 0, b = n;
    if (!is_missing(arg[0]) && arg[0].tag != V_NONE)
        a = need_int(r, arg[0], "a start");
    if (!is_missing(arg[1]) && arg[1].tag != V_NONE)
        b = need_int(r, arg[1], "an end");
    a = a < -n ? 0 : a < 0 ? a + n : a;
    b = b < -n ? 0 : b < 0 ? b + n : b > n ? n : b;
    if (a > n || a > b)
        return false;
    *from = str_offset(r, s, a);
    *to = str_offset(r, s, b);
    return true;
}

static int64_t find(struct run *r, struct val self, const struct val *arg, bool last)
{
    const struct str *what = need_str(r, arg[0], "what is looked for");
    size_t from, to;
    if (!window(r, self.s, arg + 1, &from, &to))
        return -1;
    int64_t at = last ? str_rfind(r, self.s, what, from, to) : str_find(r, self.s, what, from, to);
    return at < 0 ? -1 : str_codes(r, str_sub(r, self.s, 0, (size_t)at));
}

METHOD(find_)
{
    return v_int(find(r, self, arg, false));
}
METHOD(rfind_)
{
    return v_int(find(r, self, arg, true));
}

static struct val index_or_fail(struct run *r, int64_t at)
{
    if (at < 0)
        type_error(r, "substring not found");
    return v_int(at);
}
METHOD(index)
{
    return index_or_fail(r, find(r, self, arg, false));
}
METHOD(rindex)
{
    return index_or_fail(r, find(r, self, arg, true));
}

METHOD(count)
{
    const struct str *what = need_str(r, arg[0], "what is counted");
    size_t from, to;
    int64_t n = 0, at;
    if (!window(r, self.s, arg + 1, &from, &to))
        return v_int(0);
    if (!what->n)
        return v_int(str_codes(r, str_sub(r, self.s, from, to)) + 1);
    for (; (at = str_find(r, self.s, what, from, to)) >= 0; n++)
        from = (size_t)at + what->n;
    return v_int(n);
}

static bool affix(struct run *r, struct val self, struct val *arg, bool end)
{
    struct list one = {.v = arg, .n = 1}, *all = arg[0].tag == V_TUPLE ? arg[0].l : &one;
    size_t from, to;
    bool inside = window(r, self.s, arg + 1, &from, &to);
    run_charge(r, all->n);
    for (uint32_t i = 0; i < all->n; i++) {
        const struct str *s = need_str(r, all->v[i], "a prefix or suffix");
        if (inside && s->n <= to - from && (!s->n || !memcmp(self.s->p + (end ? to - s->n : from), s->p, s->n)))
            return true;
    }
    return false;
}
METHOD(startswith)
{
    return v_bool(affix(r, self, arg, false));
}
METHOD(endswith)
{
    return v_bool(affix(r, self, arg, true));
}

METHOD(removeprefix)
{
    const struct str *s = self.s, *p = other(r, self, arg[0], "a prefix");
    bool has = p->n <= s->n && !memcmp(s->p, p->p, p->n);
    return v_str(has ? str_sub(r, s, p->n, s->n) : s);
}
METHOD(removesuffix)
{
    const struct str *s = self.s, *p = other(r, self, arg[0], "a suffix");
    bool has = p->n <= s->n && !memcmp(s->p + s->n - p->n, p->p, p->n);
    return v_str(has ? str_sub(r, s, 0, s->n - p->n) : s);
}

/* --- making other strings --------------------------------------------------------------------------------- */

METHOD(replace)
{
    const struct str *old = other(r, self, arg[0], "what is replaced"), *to = other(r, self, arg[1], "a replacement");
    int64_t count = is_missing(arg[2]) ? -1 : need_int(r, arg[2], "a count");
    return markup_like(r, self.s, text_replace(r, self.s, old, to, count).s);
}

METHOD(join)
{
    return text_join(r, self.s, arg[0], false);
}

static struct val pad(struct run *r, struct val self, const struct val *arg, int left_of_four)
{
    const struct str *s = self.s, *fill = is_missing(arg[1]) ? v_text(r, " ").s : need_str(r, arg[1], "a fill");
    int64_t width = need_int(r, arg[0], "a width"), left = 0;
    if (str_codes(r, fill) != 1)
        type_error(r, "The fill character must be exactly one character long");
    if (width <= str_codes(r, s))
        return self;
    int64_t room = width - str_codes(r, s);
    if (left_of_four == 2) /* center(): Python's rule for an odd number of fill characters */
        left = room / 2 + (room & width & 1);
    else if (left_of_four == 4)
        left = room;
    const char *p = fill->p;
    uint32_t c = code_next(&p);
    struct mark m = string_begin(r);
    put_fill(r, c, left);
    put_str(r, s);
    put_fill(r, c, room - left);
    return markup_like(r, s, string_end(r, m));
}
METHOD(ljust)
{
    return pad(r, self, arg, 0);
}
METHOD(center)
{
    return pad(r, self, arg, 2);
}
METHOD(rjust)
{
    return pad(r, self, arg, 4);
}

METHOD(zfill)
{
    const struct str *s = self.s;
    int64_t width = need_int(r, arg[0], "a width"), n = str_codes(r, s);
    size_t sign = s->n && (s->p[0] == '-' || s->p[0] == '+');
    struct mark m = string_begin(r);
    put_str(r, str_sub(r, s, 0, sign));
    put_fill(r, '0', width > n ? width - n : 0);
    put_str(r, str_sub(r, s, sign, s->n));
    return markup_like(r, s, string_end(r, m));
}

METHOD(expandtabs)
{
    int64_t size = is_missing(arg[0]) ? 8 : need_int(r, arg[0], "a tab's size"), column = 0;
    struct mark m = string_begin(r);
    run_charge(r, self.s->n / 8);
    for (const char *p = self.s->p; p < self.s->p + self.s->n;) {
        uint32_t c = code_next(&p);
        if (c == '\t' && size > 0)
            put_fill(r, ' ', size - column % size);
        else if (c != '\t')
            put_code(r, c);
        column = c == '\n' || c == '\r' ? 0
                 : c == '\t'            ? (size > 0 ? column + size - column % size : column)
                                        : column + 1;
    }
    put_as(r, m, self.s);
    return markup_like(r, self.s, string_end(r, m));
}

static struct val str_format(struct run *r, struct val self, const struct call *c)
{
    return format_braces(r, self.s, c);
}
/* str.translate() with a dict from code points to a string, a code point, or none, which removes the character. */
METHOD(translate)
{
    struct mark m = string_begin(r);
    if (arg[0].tag != V_DICT)
        type_error(r, "translate() takes a dict here, not '%s'", val_type_name(arg[0]));
    run_charge(r, self.s->n);
    for (size_t at = 0; at < self.s->n;) {
        const struct str *c = str_char(r, self.s, at);
        const char *p = c->p;
        struct val to = dict_get(r, arg[0].d, v_int(code_next(&p)));
        at += c->n;
        if (is_missing(to))
            put_str(r, c);
        else if (to.tag == V_STR)
            put_str(r, to.s);
        else if (to.tag != V_NONE && (need_int(r, to, "a code point") < 0 || int_of(to) > 0x10ffff))
            type_error(r, "character mapping must be in range(0x110000)");
        else if (to.tag != V_NONE)
            put_code(r, (uint32_t)int_of(to));
    }
    return markup_like(r, self.s, string_end(r, m));
}

static struct val code_at(struct run *r, const struct str *s, size_t *at)
{
    const char *p = s->p + *at;
    uint32_t c = code_next(&p);
    run_charge(r, 1);
    *at = (size_t)(p - s->p);
    return v_int(c);
}

/* Makes a dict for translate(): from another dict, whose keys may be characters, or from two strings of equal length
 * and an optional string of characters to remove. */
METHOD(maketrans)
{
    struct val out = dict_new(r, V_DICT);
    size_t i = 0, k = 0;
    (void)self;
    if (is_missing(arg[1]) && arg[0].tag != V_DICT)
        type_error(r, "if you give only one argument to maketrans it must be a dict");
    for (uint32_t n = 0; is_missing(arg[1]) && n < arg[0].d->n; n++) {
        const struct entry *e = &arg[0].d->e[n];
        if (e->k.tag == V_STR && str_codes(r, e->k.s) != 1)
            type_error(r, "string keys in translate table must be of length 1");
        if (e->k.tag != V_STR && !is_int(e->k))
            type_error(r, "keys in translate table must be strings or integers");
        dict_set(r, out.d, e->k.tag == V_STR ? code_at(r, e->k.s, &(size_t){0}) : e->k, e->v);
    }
    if (is_missing(arg[1]))
        return out;
    const struct str *from = need_str(r, arg[0], "what is replaced"), *to = need_str(r, arg[1], "the replacement");
    if (str_codes(r, from) != str_codes(r, to))
        type_error(r, "the first two maketrans arguments must have equal length");
    while (i < from->n) {
        struct val key = code_at(r, from, &i);
        dict_set(r, out.d, key, code_at(r, to, &k));
    }
    const struct str *drop = is_missing(arg[2]) ? NULL : need_str(r, arg[2], "what is dropped");
    for (i = 0; drop && i < drop->n;)
        dict_set(r, out.d, code_at(r, drop, &i), NONE);
    return out;
}

METHOD(format_map)
{
    if (arg[0].tag != V_DICT)
        type_error(r, "format_map() takes a mapping");
    struct call c = {.n_kw = arg[0].d->n};
    c.kw_name = run_alloc(r, c.n_kw + 1u, sizeof *c.kw_name);
    c.kw = run_alloc(r, c.n_kw + 1u, sizeof *c.kw);
    for (uint32_t i = 0; i < c.n_kw; i++) {
        c.kw_name[i] = need_str(r, arg[0].d->e[i].k, "a key");
        c.kw[i] = arg[0].d->e[i].v;
    }
    return format_braces(r, self.s, &c);
}

static const struct builtin str_methods[] = {
    {"split", str_split, "sep maxsplit", 0},
    {"strip", str_strip, "/chars", 0},
    {"rstrip", str_rstrip, "/chars", 0},
    {"lstrip", str_lstrip, "/chars", 0},
    {"startswith", str_startswith, "/prefix /start /end", 1},
    {"endswith", str_endswith, "/suffix /start /end", 1},
    {"replace", str_replace, "/old /new /count", 2},
    {"join", str_join, "/iterable", 1},
    {"upper", str_upper, "", 0},
    {"lower", str_lower, "", 0},
    {"title", str_title, "", 0},
    {"capitalize", str_capitalize, "", 0},
    {"casefold", str_casefold, "", 0},
    {"swapcase", str_swapcase, "", 0},
    {"rsplit", str_rsplit, "sep maxsplit", 0},
    {"splitlines", str_splitlines, "keepends", 0},
    {"partition", str_partition, "/sep", 1},
    {"rpartition", str_rpartition, "/sep", 1},
    {"find", str_find_, "/sub /start /end", 1},
    {"rfind", str_rfind_, "/sub /start /end", 1},
    {"index", str_index, "/sub /start /end", 1},
    {"rindex", str_rindex, "/sub /start /end", 1},
    {"count", str_count, "/sub /start /end", 1},
    {"removeprefix", str_removeprefix, "/prefix", 1},
    {"removesuffix", str_removesuffix, "/suffix", 1},
    {"ljust", str_ljust, "/width /fillchar", 1},
    {"rjust", str_rjust, "/width /fillchar", 1},
    {"center", str_center, "/width /fillchar", 1},
    {"zfill", str_zfill, "/width", 1},
    {"expandtabs", str_expandtabs, "tabsize", 0},
    {"format", NULL, NULL, 0, str_format},
    {"translate", str_translate, "/table", 1},
    {"maketrans", str_maketrans, "/x /y /z", 1},
    {"format_map", str_format_map, "/mapping", 1},
    {NULL},
};

const struct builtin *str_method_find(const struct str *name)
{
    const struct builtin *b = table_find(str_methods, name);
    return b ? b : str_is_find(name);
}
