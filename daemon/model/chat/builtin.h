/*
 * builtin.h - filters, tests, methods and global functions: table rows that are called with bound arguments.
 */
#ifndef MODEL_CHAT_BUILTIN_H
#define MODEL_CHAT_BUILTIN_H

#include "daemon/model/chat/unicode.h"
#include "daemon/model/chat/value.h"

#define BUILTIN_ARGS 6

/* The arguments of a call, after * and ** have been expanded. */
struct call {
    struct val *pos;
    uint32_t n_pos;
    const struct str **kw_name;
    struct val *kw;
    uint32_t n_kw;
};

/* `params` are the names of the parameters after the subject (the filtered value, or the method's self), separated by
 * spaces; the first `required` ones must be given. A name that begins with '/' is positional-only. If `raw` is set, it
 * is called instead of fn, with the call's arguments unbound. */
struct builtin {
    const char *name;
    struct val (*fn)(struct run *r, struct val self, struct val *arg);
    const char *params;
    int required;
    struct val (*raw)(struct run *r, struct val self, const struct call *c);
};

struct val builtin_call(struct run *r, const struct builtin *b, struct val self, const struct call *c);

/* Find by name; NULL where there is none. */
const struct builtin *filter_find(const struct str *name);
const struct builtin *test_find(const struct str *name);
const struct builtin *global_find(const struct str *name);
const struct builtin *method_find(struct val self, const struct str *name);
const struct builtin *str_method_find(const struct str *name);
const struct builtin *str_is_find(const struct str *name); /* the subset of str_method_find() whose names are is...() */

/* Finds a row by name in an unsorted table that ends with a NULL name. */
const struct builtin *table_find(const struct builtin *table, const struct str *name);

extern const struct builtin text_filters[], list_filters[], value_filters[], rare_filters[];

/* Whether v passes the test, as select() and `is` evaluate it. */
bool test_call(struct run *r, const struct builtin *b, struct val v, const struct call *c);

struct val call_value(struct run *r, struct val callee, const struct call *c);
struct val filter_by_name(struct run *r, struct val name, struct val v, const struct call *c);

_Noreturn void undefined_error(struct run *r, struct val v);

/* --- shared by several of them ---------------------------------------------------------------------------- */

struct val get_attr(struct run *r, struct val v, const struct str *name); /* v.name */
struct val get_item(struct run *r, struct val v, struct val key);         /* v[key] */
struct val get_slice(struct run *r, struct val v, struct val from, struct val to, struct val step);
struct val get_path(struct run *r, struct val v, struct val attribute, struct val def); /* attribute="a.b.0" */
struct val op_binary(struct run *r, int op, struct val a, struct val b);

/* Markup: the rules for joining escaped and unescaped strings. */
const struct str *text_escape(struct run *r, struct val v);
struct val markup_like(struct run *r, const struct str *like, const struct str *s);

/* Python's two ways of formatting. */
struct val format_percent(struct run *r, const struct str *fmt, struct val arg);
struct val format_braces(struct run *r, const struct str *fmt, const struct call *c);

const struct str *plain_str(struct run *r, struct val v);                     /* str(v), which is never markup */
struct val get_own_attr(struct run *r, struct val v, const struct str *name); /* without items; V_UNDEF where there is
                                                                                 none */
struct val text_lines(struct run *r, const struct str *s, bool keep_ends);
const struct str *text_strip(struct run *r, const struct str *s, struct val chars, bool left, bool right);
struct val text_replace(struct run *r, const struct str *s, const struct str *old, const struct str *to, int64_t count);
struct val text_join(struct run *r, const struct str *sep, struct val items, bool any_type);
const struct str *text_case(struct run *r, const struct str *s, enum unicode_case to);

void put_json(struct run *r, struct val v, const struct val *arg); /* arg: tojson's four arguments */
struct val json_read(struct run *r, const char *text, size_t n, const char *const *own);
struct val parse_int(struct run *r, const struct str *s, int64_t base); /* V_MISSING where s is no number */

void sort_values(struct run *r, struct list *items, const struct list *keys, bool reverse);

#endif
