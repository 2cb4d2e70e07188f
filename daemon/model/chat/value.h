/*
 * value.h - Python's values as templates see them: tagged, immutable, in the run's arena.
 */
#ifndef MODEL_CHAT_VALUE_H
#define MODEL_CHAT_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/model/chat/str.h"

enum tag {
    V_MISSING, /* no value: an unbound name, an argument that was not given */
    V_UNDEF,   /* Jinja's Undefined; s is the name that was looked up, or NULL */
    V_NONE,
    V_BOOL,
    V_INT,
    V_BIG, /* an integer that needs more than 64 bits, up to 128 */
    V_FLOAT,
    V_STR,
    V_LIST,
    V_TUPLE,
    V_DICT,
    V_RANGE,
    V_VIEW,      /* dict.keys(), .values(), .items() */
    V_ITER,      /* a generator or iterator: can be iterated once */
    V_NAMESPACE, /* a dict that templates may change */
    V_MACRO,
    V_FUNC,   /* a global function */
    V_METHOD, /* a method bound to its value */
    V_LOOP,
    V_CYCLER,
    V_JOINER,
};

__extension__ typedef __int128 int128;

struct val {
    uint8_t tag;
    uint8_t sub; /* V_VIEW: enum view */
    union {
        bool b;
        int64_t i;
        double f;
        const int128 *big;
        const struct str *s;
        struct list *l;
        struct dict *d;
        const struct range *range;
        struct iter *it;
        struct macro *macro;
        const struct builtin *func;
        struct method *method;
        struct loop *loop;
        struct cycler *cycler;
        struct joiner *joiner;
    };
};

struct method {
    const struct builtin *b;
    struct val self;
};
struct list {
    struct val *v;
    uint32_t n, cap;
    bool group; /* a tuple made by groupby, with the attributes .grouper and .list */
};
struct entry {
    struct val k, v;
    uint64_t hash;
};
struct dict {
    struct entry *e;
    uint32_t n, cap;
    uint32_t *slot; /* hash table of index + 1, from 8 entries on */
    uint32_t n_slot;
};
struct range {
    int64_t start, stop, step, n;
};
static inline int64_t range_at(const struct range *g, int64_t i) /* i * step alone may need more than 64 bits */
{
    return (int64_t)(g->start + (int128)i * g->step);
}
enum view { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };
struct cycler {
    struct list items;
    uint32_t at;
};
struct joiner {
    struct val sep;
    bool used;
};

#define NONE ((struct val){.tag = V_NONE})

static inline struct val v_bool(bool b)
{
    return (struct val){.tag = V_BOOL, .b = b};
}
static inline struct val v_int(int64_t i)
{
    return (struct val){.tag = V_INT, .i = i};
}
static inline struct val v_float(double f)
{
    return (struct val){.tag = V_FLOAT, .f = f};
}
static inline struct val v_str(const struct str *s)
{
    return (struct val){.tag = V_STR, .s = s};
}
static inline struct val v_undef(const struct str *name)
{
    return (struct val){.tag = V_UNDEF, .s = name};
}
static inline bool is_int(struct val v) /* bool counts as an integer, as in Python */
{
    return v.tag == V_INT || v.tag == V_BOOL || v.tag == V_BIG;
}
static inline bool is_number(struct val v)
{
    return is_int(v) || v.tag == V_FLOAT;
}
static inline bool is_seq(struct val v)
{
    return v.tag == V_LIST || v.tag == V_TUPLE;
}
static inline bool is_unhashable(struct val v) /* the value itself; a tuple's items are not considered */
{
    return v.tag == V_LIST || v.tag == V_DICT || (v.tag == V_VIEW && v.sub != VIEW_VALUES);
}
static inline bool is_missing(struct val v)
{
    return v.tag == V_MISSING;
}

struct val v_text(struct run *r, const char *text); /* borrows a NUL-terminated string */

/* --- lists and dicts -------------------------------------------------------------------------------------- */

struct val list_new(struct run *r, enum tag tag, uint32_t cap);
void list_add(struct run *r, struct list *l, struct val v);
struct val pair_new(struct run *r, struct val a, struct val b);
struct val dict_new(struct run *r, enum tag tag); /* V_DICT or V_NAMESPACE */
void dict_set(struct run *r, struct dict *d, struct val key, struct val v);
struct val dict_get(struct run *r, const struct dict *d, struct val key); /* V_MISSING where absent */
struct val dict_get_str(struct run *r, const struct dict *d, const struct str *key);

/* --- operations that Python has for any value ------------------------------------------------------------- */

const char *val_type_name(struct val v);
bool val_truth(struct val v);
bool val_equal(struct run *r, struct val a, struct val b);
int val_order(struct run *r, struct val a, struct val b, const char *op); /* <0, 0, >0, or 2 where one is NaN; fails
                                                                             where the types have no order */
bool val_less(struct run *r, struct val a, struct val b, const char *op); /* a OP b, with Python's rules for NaN */
int64_t val_length(struct run *r, struct val v);
bool val_contains(struct run *r, struct val all, struct val v);
struct val int_val(struct run *r, int128 i);
int128 int_of(struct val v); /* v must satisfy is_int() */
double float_of(struct val v);

/* Check that an argument has the type that Python requires; `what` is for the message. */
int64_t need_int(struct run *r, struct val v, const char *what);
const struct str *need_str(struct run *r, struct val v, const char *what);

void put_val(struct run *r, struct val v);  /* str() */
void put_repr(struct run *r, struct val v); /* repr() */
const struct str *to_str(struct run *r, struct val v);
/* Writes Python's repr of a float to `out`, of 32 bytes. */
int float_repr(char *out, double f);

/* --- iteration -------------------------------------------------------------------------------------------- */

struct iter *iter_new(struct run *r, struct val v); /* iter(v); fails where v is not iterable */
struct iter *iter_of(struct run *r, bool (*next)(struct run *r, struct iter *it, struct val *out), void *state);
bool iter_next(struct run *r, struct iter *it, struct val *out);
bool is_iterable(struct val v);
struct list *to_list(struct run *r, struct val v); /* list(v), or the value's own list if it is one, which must not be
                                                      changed */
struct val copy_list(struct run *r, struct val v, enum tag tag); /* a new list or tuple of everything that v iterates
                                                                    over */

struct iter {
    bool (*next)(struct run *r, struct iter *it, struct val *out);
    void *state;
    struct val of;
    int64_t at;
};

#endif
