/*
 * decode.h - the state of decoding a kernel's body: names, constants, labels, and the instructions so far.
 */
#ifndef HEARTH_SIM_DECODE_H
#define HEARTH_SIM_DECODE_H

#include "tests/sim/module.h"

/* A name within a function: a register, or `counted` registers under one name ("%r<7>"), or a place in memory. */
struct name {
    struct text text;
    bool is_register;
    int counted; /* -1: the name is not followed by a number */
    uint32_t width, offset;
    operand o;
    enum space space;
    uint8_t *place;
};
struct known {
    uint64_t v;
    uint32_t width;
    operand o;
};
struct jump {
    struct text label;
    uint32_t at;
};
struct decoding {
    struct sim_fn *fn;
    struct ins *code;
    uint8_t *consts;
    struct known *known;
    struct name *names;
    struct jump *labels, *jumps; /* jumps: those whose labels have not been found yet */
    uint32_t n_code, n_constants, n_names, n_labels, n_jumps, consts_bytes;
    uint32_t code_room, constants_room, names_room, labels_room, jumps_room, consts_room;
    uint32_t regs_bytes, local_bytes, shared_bytes;
    operand pred; /* of the statement */
    bool pred_not;
    struct text leave; /* where an inlined function returns to; none in the kernel itself */
    int depth;
    uint32_t line;
    const char *statement, *counted_to;
    jmp_buf failed;
};

_Noreturn void decode_fail(struct decoding *, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Widths: 1 a predicate, else bits. */
struct value {
    operand o;
    uint32_t width;
};
operand decode_register(struct decoding *, uint32_t width);
operand decode_constant(struct decoding *, uint64_t v, uint32_t width);
struct value decode_value(struct decoding *, struct text, uint32_t width);
operand decode_operand(struct decoding *, struct text, uint32_t width);
const struct name *decode_name(struct decoding *, struct text);

/* Appends an instruction with the statement's predicate and no operands. The pointer is invalid once another is
 * appended. */
struct ins *decode_emit(struct decoding *, op_fn *);
void decode_branch(struct decoding *, struct text label);
void decode_call(struct decoding *, struct text *parts, uint32_t n);
void decode_body(struct decoding *, const char *p, const char *end);

/* opcodes.c: decodes the instruction of a statement. */
void decode_instruction(struct decoding *, struct text opcode, struct text *parts, uint32_t n);

#endif
