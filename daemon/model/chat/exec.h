/*
 * exec.h - executes a template's tree: scopes, loops and macros.
 *
 * A name is looked up in the enclosing scopes, then among the variables given or set at the top level, then among the
 * global functions. A loop's body has a new scope in each iteration; `if` has none.
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
    struct scope *up; /* NULL: the enclosing scope is the top level */
    struct binding *b;
    uint32_t n, cap;
    bool captured; /* a macro may read it later */
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

struct macro {
    const struct node *node; /* N_MACRO or N_CALLBLOCK */
    struct scope *scope;     /* the scope in which it was defined */
    struct val name;
};

/* Jinja's LoopContext. The next item is read ahead only if a template needs it. */
struct loop {
    const struct node *node;
    struct scope *scope; /* the scope around the loop */
    struct iter *it;
    struct val of, before, current, after; /* V_MISSING: there is none; `after`: not read yet */
    int64_t index0;                        /* -1 before the first item */
    int64_t length;                        /* -1: unknown */
    int depth0;
    struct list *changed; /* the arguments of the last changed(), or NULL */
};

struct val eval_expr(struct run *r, struct scope *s, const struct node *n);
enum flow exec_body(struct run *r, struct scope *s, struct node *const *body, uint32_t n);
void exec_assign(struct run *r, struct scope *s, const struct node *target, struct val v);

bool loop_next(struct run *r, struct loop *l, struct val *out);
struct val loop_attr(struct run *r, struct val loop, const struct str *name); /* V_MISSING where there is none */
int64_t loop_length(struct run *r, struct loop *l);
/* Executes a whole for statement over a value, as recursion level depth0; its text is appended to the output. */
enum flow loop_run(struct run *r, struct scope *s, const struct node *n, struct val of, int depth0);

struct call eval_args(struct run *r, struct scope *s, const struct args *a);
struct val macro_call(struct run *r, const struct macro *m, const struct call *c);
struct val filter_call(struct run *r, struct scope *s, const struct node *n, struct val v);

#endif
