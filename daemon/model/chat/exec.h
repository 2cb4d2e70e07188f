/*
 * exec.h - running a template's tree: scopes, loops and macros.
 *
 * A name is looked for in the scopes around the place where it stands, then among the variables given and set at top
 * level, then among the global functions. A loop's body has a new scope in each round; `if` has none.
 */
#ifndef MODEL_CHAT_EXEC_H
#define MODEL_CHAT_EXEC_H

#include "daemon/model/chat/ast.h"
#include "daemon/model/chat/builtin.h"

struct binding {
    uint32_t id;
    struct val v;
};
struct scope {
    struct scope *up; /* NULL: top level is around */
    struct binding *b;
    uint32_t n, cap;
    bool captured; /* a macro may look into it later */
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

struct macro {
    const struct node *node; /* N_MACRO or N_CALLBLOCK */
    struct scope *scope;     /* in which it was defined */
    struct val name;
};

/* Jinja's LoopContext. What comes next is read ahead only where a template asks. */
struct loop {
    const struct node *node;
    struct scope *scope; /* around the loop */
    struct iter *it;
    struct val of, before, current, after; /* V_MISSING: none, after: not read */
    int64_t index0;                        /* -1 before the first */
    int64_t length;                        /* -1: not known */
    int depth0;
    struct list *changed; /* the arguments of the last changed(), or NULL */
};

struct val eval_expr(struct run *r, struct scope *s, const struct node *n);
enum flow exec_body(struct run *r, struct scope *s, struct node *const *body, uint32_t n);
struct scope *scope_new(struct run *r, struct scope *up);
void scope_capture(struct scope *s);
void exec_assign(struct run *r, struct scope *s, const struct node *target, struct val v);

bool loop_next(struct run *r, struct loop *l, struct val *out);
struct val loop_attr(struct run *r, struct val loop, const struct str *name); /* V_MISSING: none */
int64_t loop_length(struct run *r, struct loop *l);
/* A whole for statement over a value, depth0 loops of it around: its text goes to the output. */
enum flow loop_run(struct run *r, struct scope *s, const struct node *n, struct val of, int depth0);

struct call eval_args(struct run *r, struct scope *s, const struct args *a);
struct val macro_call(struct run *r, const struct macro *m, const struct call *c);
struct val filter_call(struct run *r, struct scope *s, const struct node *n, struct val v);

#endif
