/*
 * module.h - the text of PTX: what modules and functions have in common when they are read.
 */
#ifndef HEARTH_SIM_MODULE_H
#define HEARTH_SIM_MODULE_H

#include "tests/sim/machine.h"

/* A piece of the module's text. */
struct text {
    const char *p;
    size_t n;
};

/* What a name of a module is: a variable, in the place that the function gives it where it is shared memory. */
struct variable {
    struct text name;
    enum space space;
    uint32_t bytes, align;
    uint8_t *place; /* of global and constant memory */
    bool is_extern; /* shared memory whose size the launch says */
};
struct device_function {
    struct text name, results, params, body;
};
struct sim_module {
    const char *p;
    size_t n;
    struct sim_fn *fns;
    size_t n_fns;
    struct device_function *functions;
    size_t n_functions;
    struct variable *variables;
    size_t n_variables;
};

bool text_is(struct text, const char *);
/* Blanks and comments before the next token. */
const char *text_skip(const char *p, const char *end);
/* A name at p: letters, digits, '_', '$', '%' and '.' within special registers. */
struct text text_name(const char *p, const char *end);
/* To the bracket that closes the one at p; the end where there is none. */
const char *text_close(const char *p, const char *end);

/*
 * A declaration after its space: ".align 8 .b8 name[16]", ".u64 name". The bytes of its array, or of one.
 * false: not one that we know.
 */
bool text_declaration(const char *p, const char *end, struct text *name, uint32_t *bytes, uint32_t *align);
/* The bytes of a type, "b8" to "b128"; 0 for what is none. */
uint32_t text_type(struct text);

#endif
