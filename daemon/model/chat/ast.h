/*
 * ast.h - tokens and the syntax tree of a template.
 */
#ifndef MODEL_CHAT_AST_H
#define MODEL_CHAT_AST_H

#include "daemon/model/chat/value.h"

/* Operators are named after their characters; see lex.c's table. */
enum token_type {
    T_EOF,
    T_DATA,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_VAR_BEGIN,
    T_VAR_END,
    T_NAME,
    T_STRING,
    T_INTEGER,
    T_FLOAT,
    T_ADD,
    T_SUB,
    T_MUL,
    T_DIV,
    T_FLOORDIV,
    T_MOD,
    T_POW,
    T_TILDE,
    T_EQ,
    T_NE,
    T_LT,
    T_LE,
    T_GT,
    T_GE,
    T_IN,    /* these two are created by the parser */
    T_NOTIN, /* not in */
    T_ASSIGN,
    T_DOT,
    T_COLON,
    T_PIPE,
    T_COMMA,
    T_SEMICOLON,
    T_LPAREN,
    T_RPAREN,
    T_LBRACKET,
    T_RBRACKET,
    T_LBRACE,
    T_RBRACE,
};
struct token {
    enum token_type type;
    int line;
    struct val v; /* T_DATA, T_NAME, T_STRING: V_STR; numbers: the number */
};

/* Returns all tokens of a source whose line ends are \n; the last is T_EOF. */
struct token *template_lex(struct run *r, const char *src, size_t n, uint32_t *n_token);
const char *token_name(enum token_type t);

enum node_kind {
    /* expressions */
    N_CONST,   /* v */
    N_NAME,    /* id, v (its name) */
    N_NSREF,   /* id . v: a target of set */
    N_LIST,    /* kid */
    N_TUPLE,   /* kid */
    N_DICT,    /* kid: key, value, key, value ... */
    N_COND,    /* a if b else c (or NULL) */
    N_AND,     /* a, b */
    N_OR,      /* a, b */
    N_NOT,     /* a */
    N_NEG,     /* a */
    N_POS,     /* a */
    N_BINARY,  /* a op b */
    N_CONCAT,  /* kid */
    N_COMPARE, /* a, then ops[i] kid[i] */
    N_GETATTR, /* a . v */
    N_GETITEM, /* a [ b ] */
    N_SLICE,   /* a [ kid[0] : kid[1] : kid[2] ], NULL where not given */
    N_CALL,    /* a ( args ) */
    N_FILTER,  /* a (NULL: the captured text) | v ( args ) */
    N_TEST,    /* a is v ( args ) */
    /* statements */
    N_TEXT,        /* v */
    N_PRINT,       /* kid */
    N_FOR,         /* for a in b if c: kid, else: other; flag: recursive */
    N_IF,          /* if a: kid, else: other (an elif is a single N_IF in `other`) */
    N_SET,         /* a = b */
    N_SETBLOCK,    /* a = the text of kid, through the filters b (or NULL) */
    N_MACRO,       /* id, v; decl, kid */
    N_CALLBLOCK,   /* a (a call), decl, kid */
    N_FILTERBLOCK, /* b: the filters, kid */
    N_WITH,        /* pair: targets and values; kid */
    N_SCOPE,       /* kid in its own scope; decl */
    N_BREAK,
    N_CONTINUE,
    N_FAIL, /* v: the error message, raised when the node is executed */
};

struct args {
    struct node **pos;
    uint32_t n_pos;
    struct node **kw_value;
    const struct str **kw_name;
    uint32_t n_kw;
    struct node *star, *star_star; /* or NULL */
};
struct decl {            /* the signature of a macro or a call block */
    struct node **param; /* N_NAME */
    struct node **def;   /* default values; NULL: none */
    uint32_t n;
    bool uses_varargs, uses_kwargs, uses_caller;
    struct decl *up; /* of the enclosing macro, while parsing */
};
struct hidden { /* names that are undefined in a scope until they are set there: see scopes.c */
    uint32_t *id;
    uint32_t n, cap;
};
struct node {
    uint8_t kind;
    uint8_t op;
    bool flag;
    int line;
    uint32_t id;
    struct val v;
    struct node *a, *b, *c;
    struct node **kid;
    uint32_t n_kid;
    struct node **other;
    uint32_t n_other;
    uint8_t *ops;
    struct args *args;
    struct decl *decl;
    struct hidden hidden, other_hidden; /* of kid's scope, and of other's */
    const struct builtin *builtin;      /* of a filter or test; NULL where there is none of that name */
};

/* A compiled template: its own arena, its body, and its names; a name's index in the table is its id. */
struct jinja {
    struct arena cells, bytes;
    struct node **body;
    uint32_t n_body;
    const struct str **name;
    uint32_t n_name, cap_name;
    struct hidden hidden; /* of the top level */
};
enum { NAME_LOOP, NAME_CALLER, NAME_VARARGS, NAME_KWARGS, N_FIXED_NAMES };

/* Fills in the `hidden` lists of a tree. */
void find_hidden(struct run *r, struct jinja *t);

void template_parse(struct run *r, struct jinja *t, const char *src, size_t n);

/* --- internals of the parser: parse.c has statements, parse-expr.c expressions ---------------------------- */

struct parser {
    struct run *r;
    struct jinja *t;
    struct token *at;
    bool soft;            /* within an `if`: an unknown filter is an error only where it is executed */
    struct node *unknown; /* the first unknown filter or test that is an error */
    unsigned loops;       /* number of enclosing for statements, up to the next macro */
    unsigned in_for;      /* number of all enclosing for statements: `loop` cannot be assigned to */
    struct decl *decl;    /* of the enclosing macro, which records uses of varargs, kwargs and caller */
};
struct nodes { /* a growing list */
    struct node **v;
    uint32_t n, cap;
};

struct node *node_new(struct parser *p, enum node_kind kind, int line);
void nodes_add(struct parser *p, struct nodes *l, struct node *n);
uint32_t name_id(struct parser *p, const struct str *name);
_Noreturn void syntax_error(struct parser *p, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool parser_at_name(struct parser *p, const char *name);
bool parser_skip_name(struct parser *p, const char *name);
bool parser_skip(struct parser *p, enum token_type t);
struct token *parser_expect(struct parser *p, enum token_type t);
void parser_nest(struct parser *p);
void parser_unnest(struct parser *p);

struct node *parse_expr(struct parser *p, bool with_cond);
enum tuple_flags {
    TUPLE_SIMPLE = 1,    /* only primaries: a target */
    TUPLE_NO_COND = 2,   /* without inline if */
    TUPLE_PARENS = 4,    /* may be empty */
    TUPLE_NAMESPACE = 8, /* ns.x is a target */
};
struct node *parse_tuple(struct parser *p, int flags);
struct node *parse_target(struct parser *p, bool tuple, bool with_namespace);
struct node *parse_name_target(struct parser *p);
struct node *parse_unary(struct parser *p, bool with_filter);
struct node *parse_filters(struct parser *p, struct node *on, bool inline_first);

#endif
