/*
 * module.h - the text of PTX: shared by the parsers of modules and functions.
 */
#ifndef HEARTH_SIM_MODULE_H
#define HEARTH_SIM_MODULE_H

#include "tests/sim/machine.h"

/* A part of the module's text. */
struct text {
    const char *p;
    size_t n;
};

/* A variable of a module, which is at the place that the function assigns if it is in shared memory. */
struct variable {
    struct text name;
    enum space space;
    uint32_t bytes, align;
    uint8_t *place; /* in global or constant memory */
    bool is_extern; /* shared memory whose size the launch gives */
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
/* Skips white space and comments before the next token. */
const char *text_skip(const char *p, const char *end);
/* The name at p: letters, digits, '_', '$', '%', and '.' within special registers. */
struct text text_name(const char *p, const char *end);
/* The bracket that closes the one at p; the end if there is none. */
const char *text_close(const char *p, const char *end);

/*
 * Parses a declaration after its space: ".align 8 .b8 name[16]", ".u64 name". *bytes is the size of the array, or of
 * the variable. False: an unknown form.
 */
bool text_declaration(const char *p, const char *end, struct text *name, uint32_t *bytes, uint32_t *align);
/* The size of a type in bytes, "b8" to "b128"; 0 if it is not a type. */
uint32_t text_type(struct text);

#endif
