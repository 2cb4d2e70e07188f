/*
 * opcodes.c - the opcodes of PTX with modifiers, memory operands or an effect on the order of execution, and which
 * forms of them this machine executes. Arithmetic has its rows in alu.c.
 */
#include "tests/sim/decode.h"

#include <stdlib.h>
#include <string.h>

/* An opcode's words: "ld.global.v2.u32". */
struct words {
    struct text w[16];
    uint32_t n;
};
static bool has(const struct words *o, const char *word)
{
    for (uint32_t k = 1; k < o->n; k++)
        if (text_is(o->w[k], word))
            return true;
    return false;
}
static struct text last(const struct words *o)
{
    return o->w[o->n - 1];
}
/* The parts of an operand in braces; an operand without braces is its only part. */
static uint32_t elements(struct decoding *d, struct text t, struct text *parts, uint32_t most)
{
    uint32_t n = 0;
    if (*t.p != '{') {
        parts[0] = t;
        return 1;
    }
    const char *p = t.p + 1, *end = t.p + t.n - 1;
    while ((p = text_skip(p, end)) < end) {
        const char *from = p;
        while (p < end && *p != ',')
            p++;
        const char *to = p;
        while (to > from && (to[-1] == ' ' || to[-1] == '\t'))
            to--;
        if (n == most)
            decode_fail(d, "more than %u elements", most);
        parts[n++] = (struct text){from, (size_t)(to - from)};
        p += p < end;
    }
    return n;
}
/* All elements of the operands from..to, registers of `width` bits, in one list. */
static const operand *list(struct decoding *d, struct text *parts, uint32_t from, uint32_t to, uint32_t width,
                           uint32_t *n)
{
    operand *v = NULL;
    *n = 0;
    for (uint32_t k = from; k <= to; k++) {
        struct text e[160];
        uint32_t m = elements(d, parts[k], e, 160);
        v = realloc(v, (*n + m) * sizeof *v);
        for (uint32_t j = 0; j < m; j++)
            v[(*n)++] = decode_operand(d, e[j], width);
    }
    return v;
}
/* "[base+offset]": the register or constant, and the offset. */
struct address {
    operand base;
    int64_t offset;
    bool is_wide;
    enum space space; /* of a name; generic for a register */
};
static struct address address_of(struct decoding *d, struct text t)
{
    struct address a = {.space = SPACE_GENERIC};
    if (t.n < 2 || *t.p != '[')
        decode_fail(d, "no address: %.*s", (int)t.n, t.p);
    const char *p = text_skip(t.p + 1, t.p + t.n - 1), *end = t.p + t.n - 1;
    struct text base = text_name(p, end);
    const char *rest = text_skip(base.p + base.n, end);
    if (rest < end && *rest == '+')
        a.offset = strtoll(rest + 1, NULL, 0);
    else if (rest < end)
        decode_fail(d, "no address: %.*s", (int)t.n, t.p);
    const struct name *n = decode_name(d, base);
    if (n && !n->is_register) {
        a.space = n->space;
        a.is_wide = n->place != NULL;
        a.base = n->place ? decode_constant(d, (uint64_t)n->place, 64) : decode_constant(d, n->offset, 32);
        return a;
    }
    struct value v = decode_value(d, base, 64);
    a.base = v.o, a.is_wide = v.width == 64;
    return a;
}
/* A second address of an instruction, which is a register without an offset. */
static operand whole_address(struct decoding *d, struct text t, uint32_t width)
{
    struct address a = address_of(d, t);
    if (a.is_wide != (width == 64))
        decode_fail(d, "an address of %d bits", a.is_wide ? 64 : 32);
    if (!a.offset)
        return a.base;
    operand o = decode_register(d, width);
    struct ins *i = decode_emit(d, sim_alu(width == 64 ? "add.s64" : "add.s32")->fn);
    i->d = o, i->a = a.base;
    operand by = decode_constant(d, (uint64_t)a.offset, width);
    d->code[d->n_code - 1].b = by;
    return o;
}
static void set_address(struct ins *i, struct address a)
{
    i->a = a.base, i->imm = a.offset, i->is_wide = a.is_wide;
}
static enum space space_of(struct decoding *d, const struct words *o, struct address a)
{
    if (has(o, "global"))
        return SPACE_GLOBAL;
    if (has(o, "shared") || has(o, "shared::cta"))
        return SPACE_SHARED;
    if (has(o, "shared::cluster"))
        return SPACE_CLUSTER;
    if (has(o, "local"))
        return SPACE_LOCAL;
    if (has(o, "const"))
        return SPACE_GLOBAL;
    if (has(o, "param") || has(o, "param::entry") || has(o, "param::func"))
        return a.space == SPACE_LOCAL ? SPACE_LOCAL : SPACE_PARAM;
    if (a.space != SPACE_GENERIC)
        decode_fail(d, "a name of another space");
    return SPACE_GENERIC;
}
static bool shared_by_threads(const struct words *o)
{
    return has(o, "volatile") || has(o, "relaxed") || has(o, "acquire");
}
static bool is_wide(struct decoding *d, struct text t)
{
    struct text e[8];
    elements(d, t, e, 8);
    struct value v = decode_value(d, e[0], 32);
    return v.width == 64;
}

/* ld d, [a]; st [a], d */
static void load_or_store(struct decoding *d, const struct words *o, struct text *parts, bool load)
{
    struct text value = parts[load ? 0 : 1];
    struct address a = address_of(d, parts[load ? 1 : 0]);
    uint32_t size = text_type(last(o)), n;
    if (!size)
        decode_fail(d, "a type that is not known");
    bool two = size == 8 || (size < 8 && is_wide(d, value));
    const operand *v = list(d, &value, 0, 0, size == 16 ? 128 : two ? 64 : 32, &n);
    enum space space = space_of(d, o, a);
    struct ins *i = decode_emit(d, load ? sim_load_op : sim_store_op);
    set_address(i, a);
    i->space = (uint8_t)space, i->size = (uint8_t)size, i->n = (uint16_t)n, i->v = v, i->wide_value = two;
    i->is_signed = *last(o).p == 's';
    if (load && shared_by_threads(o) && space != SPACE_LOCAL && space != SPACE_PARAM)
        i->flow = FLOW_POLL;
}
static void atomic(struct decoding *d, const struct words *o, struct text *parts, uint32_t n, bool result)
{
    static const struct {
        const char *name;
        enum atom how;
    } rows[] = {{"add", ATOM_ADD}, {"min", ATOM_MIN}, {"max", ATOM_MAX},   {"and", ATOM_AND},
                {"or", ATOM_OR},   {"xor", ATOM_XOR}, {"exch", ATOM_EXCH}, {"cas", ATOM_CAS}};
    uint32_t size = text_type(last(o)), width = 8 * size, k = result;
    struct address a = address_of(d, parts[k]);
    operand to = result ? decode_operand(d, parts[0], width) : NONE, b = decode_operand(d, parts[k + 1], width),
            c = n > k + 2 ? decode_operand(d, parts[k + 2], width) : NONE;
    enum space space = space_of(d, o, a);
    struct ins *i = decode_emit(d, sim_atom_op);
    set_address(i, a);
    i->d = to, i->b = b, i->c = c, i->space = (uint8_t)space, i->size = (uint8_t)size;
    i->is_signed = *last(o).p == 's';
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        if (has(o, rows[r].name)) {
            i->kind = rows[r].how;
            if (*last(o).p == 'f' && size == 4 && i->kind == ATOM_ADD)
                i->kind |= 0x100;
            else if (*last(o).p == 'f')
                break;
            return;
        }
    decode_fail(d, "an atomic operation that is not known");
}
/* Conversion to a generic address, and back. */
static void convert_address(struct decoding *d, const struct words *o, struct text *parts)
{
    uint64_t window = has(o, "shared") || has(o, "shared::cta") ? GENERIC_SHARED
                      : has(o, "local")                         ? GENERIC_LOCAL
                      : has(o, "param")                         ? GENERIC_PARAM
                                                                : 0;
    operand to = decode_operand(d, parts[0], 64), from = decode_operand(d, parts[1], 64);
    const char *name = !window ? "mov.u64" : has(o, "to") ? "and.b64" : "or.b64";
    operand by = decode_constant(d, has(o, "to") ? (1ull << GENERIC_SHIFT) - 1 : window << GENERIC_SHIFT, 64);
    struct ins *i = decode_emit(d, sim_alu(name)->fn);
    i->d = to, i->a = from, i->b = window ? by : from, i->c = from;
}
static void shuffle(struct decoding *d, const struct words *o, struct text *parts, uint32_t n)
{
    uint32_t k = 1, n_pred = 0;
    const operand *pred = NULL;
    if (n == 6)
        pred = list(d, parts, 1, 1, 1, &n_pred), k = 2;
    operand to = decode_operand(d, parts[0], 32), a = decode_operand(d, parts[k], 32),
            b = decode_operand(d, parts[k + 1], 32), c = decode_operand(d, parts[k + 2], 32),
            e = decode_operand(d, parts[k + 3], 32);
    struct ins *i = decode_emit(d, sim_shfl_op);
    i->d = to, i->a = a, i->b = b, i->c = c, i->e = e, i->flow = FLOW_CONVERGE;
    i->v = pred, i->n = (uint16_t)(pred && *pred != NONE);
    i->kind = has(o, "idx") ? SHFL_IDX : has(o, "up") ? SHFL_UP : has(o, "down") ? SHFL_DOWN : SHFL_BFLY;
}
static void vote(struct decoding *d, const struct words *o, struct text *parts)
{
    bool ballot = has(o, "ballot"), inverted = *parts[1].p == '!';
    if (inverted)
        parts[1].p++, parts[1].n--;
    operand to = decode_operand(d, parts[0], ballot ? 32 : 1), a = decode_operand(d, parts[1], 1),
            e = decode_operand(d, parts[2], 32);
    struct ins *i = decode_emit(d, sim_vote_op);
    i->d = to, i->a = a, i->e = e, i->flow = FLOW_CONVERGE;
    i->kind = (ballot ? VOTE_BALLOT : has(o, "any") ? VOTE_ANY : VOTE_ALL) | (inverted ? 0x100u : 0);
}
static void reduce(struct decoding *d, const struct words *o, struct text *parts)
{
    operand to = decode_operand(d, parts[0], 32), a = decode_operand(d, parts[1], 32),
            e = decode_operand(d, parts[2], 32);
    struct ins *i = decode_emit(d, sim_redux_op);
    i->d = to, i->a = a, i->e = e, i->flow = FLOW_CONVERGE, i->is_signed = *last(o).p == 's';
    i->kind = has(o, "add")   ? ATOM_ADD
              : has(o, "min") ? ATOM_MIN
              : has(o, "max") ? ATOM_MAX
              : has(o, "and") ? ATOM_AND
              : has(o, "or")  ? ATOM_OR
                              : ATOM_XOR;
}
/* An instruction that all threads of a warp execute together. */
static struct ins *together(struct decoding *d, op_fn *fn)
{
    struct ins *i = decode_emit(d, fn);
    i->flow = FLOW_CONVERGE;
    return i;
}
static void multiply(struct decoding *d, const struct words *o, struct text *parts)
{
    static const struct {
        const char *shape, *a, *b;
        enum mma kind;
    } rows[] = {{"m16n8k16", "f16", "f16", MMA_F16_K16},  {"m16n8k8", "f16", "f16", MMA_F16_K8},
                {"m16n8k8", "tf32", "tf32", MMA_TF32_K8}, {"m16n8k32", "s8", "s8", MMA_S8_K32},
                {"m16n8k32", "u8", "s8", MMA_U8_K32},     {"m16n8k16", "u8", "s8", MMA_U8_K16},
                {"m16n8k16", "s8", "s8", MMA_S8_K16}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        if (has(o, rows[r].shape) && text_is(o->w[o->n - 3], rows[r].a) && text_is(o->w[o->n - 2], rows[r].b)) {
            uint32_t n;
            const operand *v = list(d, parts, 0, 3, 32, &n);
            struct ins *i = together(d, sim_mma_op);
            i->v = v, i->n = (uint16_t)n, i->kind = rows[r].kind;
            return;
        }
    decode_fail(d, "a product of matrices that is not known");
}
/* wgmma.mma_async d, {a}, b, p, scale a, scale b, transposed b */
static void multiply_async(struct decoding *d, const struct words *o, struct text *parts, uint32_t n)
{
    const char *shape = NULL;
    for (uint32_t k = 1; k < o->n; k++)
        if (o->w[k].n > 4 && !memcmp(o->w[k].p, "m64n", 4))
            shape = o->w[k].p + 4;
    uint32_t columns = shape ? (uint32_t)atoi(shape) : 0, m;
    if (n != 7 || !columns || columns > 256 || *parts[1].p != '{' || !text_is(last(o), "f16") ||
        !text_is(o->w[o->n - 2], "f16") || !text_is(o->w[o->n - 3], "f32") || !text_is(parts[4], "1") ||
        !text_is(parts[5], "1") || !text_is(parts[6], "0"))
        decode_fail(d, "a product of matrices that is not known");
    const operand *v = list(d, parts, 0, 1, 32, &m);
    operand b = decode_operand(d, parts[2], 64), add = decode_operand(d, parts[3], 1);
    struct ins *i = together(d, sim_wgmma_op);
    i->v = v, i->n = (uint16_t)m, i->b = b, i->c = add, i->kind = columns;
}
static void load_matrix(struct decoding *d, const struct words *o, struct text *parts)
{
    uint32_t n;
    const operand *v = list(d, parts, 0, 0, 32, &n);
    struct address a = address_of(d, parts[1]);
    struct ins *i = together(d, sim_ldmatrix_op);
    set_address(i, a);
    i->v = v, i->n = (uint16_t)n, i->kind = has(o, "trans");
}
static void barrier(struct decoding *d, struct text *parts, uint32_t n, bool arrives)
{
    operand a = decode_operand(d, parts[0], 32), b = n > 1 ? decode_operand(d, parts[1], 32) : NONE;
    struct ins *i = decode_emit(d, NULL);
    i->flow = FLOW_BARRIER, i->a = a, i->b = b, i->kind = arrives;
}
static void mbarrier(struct decoding *d, const struct words *o, struct text *parts, uint32_t n)
{
    if (has(o, "init")) {
        struct address a = address_of(d, parts[0]);
        operand count = decode_operand(d, parts[1], 32);
        struct ins *i = decode_emit(d, sim_mbar_init_op);
        set_address(i, a);
        i->b = count;
    } else if (has(o, "arrive")) {
        struct address a = address_of(d, parts[1]);
        operand bytes = n > 2 ? decode_operand(d, parts[2], 32) : NONE;
        if (n > 2 && !has(o, "expect_tx"))
            decode_fail(d, "an arrival of several");
        struct ins *i = decode_emit(d, sim_mbar_arrive_op);
        set_address(i, a);
        i->b = bytes, i->kind = bytes != NONE;
    } else if (has(o, "parity")) {
        struct address a = address_of(d, parts[1]);
        operand to = decode_operand(d, parts[0], 1), parity = decode_operand(d, parts[2], 32);
        struct ins *i = decode_emit(d, sim_mbar_test_op);
        set_address(i, a);
        i->d = to, i->b = parity, i->flow = FLOW_POLL;
    } else {
        decode_fail(d, "an opcode that is not known");
    }
}
static void copy_async(struct decoding *d, const struct words *o, struct text *parts, uint32_t n)
{
    if (has(o, "commit_group")) {
        decode_emit(d, sim_copy_commit_op);
    } else if (has(o, "wait_group") || has(o, "wait_all")) {
        decode_emit(d, sim_copy_wait_op)->kind = has(o, "wait_all") ? UINT32_MAX : (uint32_t)atoi(parts[0].p);
    } else if (has(o, "mbarrier")) {
        if (!has(o, "noinc"))
            decode_fail(d, "an opcode that is not known");
        struct address a = address_of(d, parts[0]);
        set_address(decode_emit(d, sim_mbar_noinc_op), a);
    } else if (has(o, "prefetch")) {
        struct address a = address_of(d, parts[0]);
        operand bytes = decode_operand(d, parts[1], 32);
        struct ins *i = decode_emit(d, sim_touch_op);
        set_address(i, a);
        i->b = bytes;
    } else if (has(o, "bulk")) {
        if (!has(o, "shared::cluster") || !has(o, "global") || n < 4)
            decode_fail(d, "a copy that is not known");
        operand from = whole_address(d, parts[1], 64), barrier = whole_address(d, parts[3], 32);
        struct address a = address_of(d, parts[0]);
        operand bytes = decode_operand(d, parts[2], 32);
        struct ins *i = decode_emit(d, sim_bulk_op);
        set_address(i, a);
        i->b = from, i->c = bytes, i->e = barrier;
    } else {
        bool hint = has(o, "L2::cache_hint");
        operand from = whole_address(d, parts[1], 64), read = n > 3u + hint ? decode_operand(d, parts[3], 32) : NONE;
        struct address a = address_of(d, parts[0]);
        struct ins *i = decode_emit(d, sim_cp_async_op);
        set_address(i, a);
        i->b = from, i->n = (uint16_t)atoi(parts[2].p), i->e = read;
    }
}
static void store_async(struct decoding *d, const struct words *o, struct text *parts)
{
    uint32_t n, size = text_type(last(o));
    const operand *v = list(d, parts, 1, 1, 8 * size, &n);
    operand barrier = whole_address(d, parts[2], 32);
    struct address a = address_of(d, parts[0]);
    struct ins *i = decode_emit(d, sim_st_async_op);
    set_address(i, a);
    i->v = v, i->n = (uint16_t)n, i->size = (uint8_t)size, i->wide_value = size == 8, i->e = barrier;
}
/* mov d, {a, b}; mov {a, b}, d */
static void pack(struct decoding *d, const struct words *o, struct text *parts)
{
    bool to_parts = *parts[0].p == '{';
    struct text e[8];
    uint32_t n = elements(d, parts[to_parts ? 0 : 1], e, 8), bytes = text_type(last(o)), m;
    const operand *v = list(d, parts, to_parts ? 0 : 1, to_parts ? 0 : 1, 8 * bytes / n, &m);
    operand whole = decode_operand(d, parts[to_parts ? 1 : 0], 8 * bytes);
    struct ins *i = decode_emit(d, to_parts ? sim_unpack_op : sim_pack_op);
    if (to_parts)
        i->a = whole;
    else
        i->d = whole;
    i->v = v, i->n = (uint16_t)n, i->size = (uint8_t)(bytes / n), i->wide_value = bytes == 8;
}
static void arithmetic(struct decoding *d, struct text opcode, struct text *parts, uint32_t n)
{
    char name[64];
    if (opcode.n >= sizeof name)
        decode_fail(d, "an opcode that is not known");
    memcpy(name, opcode.p, opcode.n);
    name[opcode.n] = 0;
    const struct alu_row *row = sim_alu(name);
    if (!row)
        decode_fail(d, "an opcode that is not known: %s", name);
    if (n != strlen(row->widths))
        decode_fail(d, "%u operands", n);
    operand v[5] = {0};
    /* Numbers among operands of 16 bits are bit patterns. */
    const bool narrow = opcode.n > 2 && !memcmp(opcode.p + opcode.n - 2, "16", 2) && opcode.p[0] != 'c';
    for (uint32_t k = 0; k < n; k++)
        v[k] = decode_operand(d, parts[k], row->widths[k] == 'p' ? 1 : row->widths[k] == '6' ? 64 : narrow ? 16 : 32);
    struct ins *i = decode_emit(d, row->fn);
    i->d = v[0], i->a = v[1], i->b = v[2], i->c = v[3], i->e = v[4];
}

void decode_instruction(struct decoding *d, struct text opcode, struct text *parts, uint32_t n)
{
    struct words o = {.n = 0};
    const char *p = opcode.p, *end = p + opcode.n;
    while (p <= end && o.n < 16) {
        const char *from = p;
        while (p < end && *p != '.')
            p++;
        o.w[o.n++] = (struct text){from, (size_t)(p - from)};
        p++;
    }
    struct text base = o.w[0];
    /* The least number of operands. */
    static const struct {
        const char *name;
        uint32_t least;
    } counts[] = {{"bra", 1},      {"ld", 2},        {"st", 2},   {"atom", 3},  {"red", 2},
                  {"cvta", 2},     {"shfl", 5},      {"vote", 3}, {"redux", 3}, {"mma", 4},
                  {"ldmatrix", 2}, {"movmatrix", 2}, {"bar", 1},  {"mov", 2},   {"mapa", 3}};
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
        if (text_is(base, counts[k].name) && n < counts[k].least)
            decode_fail(d, "%u operands", n);
    if (text_is(base, "bra")) {
        decode_branch(d, parts[0]);
    } else if (text_is(base, "ret") && d->leave.p) {
        decode_branch(d, d->leave);
    } else if (text_is(base, "ret") || text_is(base, "exit")) {
        decode_emit(d, NULL)->flow = FLOW_EXIT;
    } else if (text_is(base, "trap")) {
        decode_emit(d, sim_trap_op);
    } else if (text_is(base, "call")) {
        decode_call(d, parts, n);
    } else if (text_is(base, "ld") || text_is(base, "ldu")) {
        load_or_store(d, &o, parts, true);
    } else if (text_is(base, "st") && has(&o, "async")) {
        store_async(d, &o, parts);
    } else if (text_is(base, "st")) {
        load_or_store(d, &o, parts, false);
    } else if (text_is(base, "atom") || text_is(base, "red")) {
        atomic(d, &o, parts, n, text_is(base, "atom"));
    } else if (text_is(base, "cvta")) {
        convert_address(d, &o, parts);
    } else if (text_is(base, "mov") && (*parts[0].p == '{' || *parts[1].p == '{')) {
        pack(d, &o, parts);
    } else if (text_is(base, "shfl")) {
        shuffle(d, &o, parts, n);
    } else if (text_is(base, "vote")) {
        vote(d, &o, parts);
    } else if (text_is(base, "activemask")) {
        operand to = decode_operand(d, parts[0], 32);
        decode_emit(d, sim_activemask_op)->d = to;
    } else if (text_is(base, "redux")) {
        reduce(d, &o, parts);
    } else if (text_is(base, "mma")) {
        multiply(d, &o, parts);
    } else if (text_is(base, "wgmma") && has(&o, "mma_async")) {
        multiply_async(d, &o, parts, n);
    } else if (text_is(base, "wgmma") && has(&o, "commit_group")) {
        together(d, sim_wgmma_commit_op);
    } else if (text_is(base, "wgmma") && has(&o, "wait_group")) {
        together(d, sim_wgmma_wait_op)->kind = (uint32_t)atoi(parts[0].p);
    } else if (text_is(base, "wgmma") || text_is(base, "setmaxnreg")) {
        together(d, sim_nothing_op);
    } else if (text_is(base, "ldmatrix")) {
        load_matrix(d, &o, parts);
    } else if (text_is(base, "movmatrix")) {
        operand to = decode_operand(d, parts[0], 32), from = decode_operand(d, parts[1], 32);
        struct ins *i = together(d, sim_movmatrix_op);
        i->d = to, i->a = from;
    } else if (text_is(base, "bar") && has(&o, "warp")) {
        operand mask = decode_operand(d, parts[0], 32);
        together(d, sim_nothing_op)->e = mask;
    } else if (text_is(base, "barrier") && has(&o, "cluster")) {
        decode_emit(d, NULL)->flow = has(&o, "arrive") ? FLOW_CLUSTER_ARRIVE : FLOW_CLUSTER_WAIT;
    } else if (text_is(base, "bar") || text_is(base, "barrier")) {
        barrier(d, parts, n, has(&o, "arrive"));
    } else if (text_is(base, "mbarrier")) {
        mbarrier(d, &o, parts, n);
    } else if (text_is(base, "cp")) {
        copy_async(d, &o, parts, n);
    } else if (text_is(base, "mapa")) {
        operand to = decode_operand(d, parts[0], 32), a = decode_operand(d, parts[1], 32),
                b = decode_operand(d, parts[2], 32);
        struct ins *i = decode_emit(d, sim_mapa_op);
        i->d = to, i->a = a, i->b = b;
    } else if (text_is(base, "createpolicy")) {
        operand to = decode_operand(d, parts[0], 64), none = decode_constant(d, 0, 64);
        struct ins *i = decode_emit(d, sim_alu("mov.u64")->fn);
        i->d = to, i->a = none;
    } else if (text_is(base, "griddepcontrol") || text_is(base, "fence") || text_is(base, "membar") ||
               text_is(base, "prefetch") || text_is(base, "nanosleep")) {
        /* Launches run one after another, and memory operations have a single order: there is nothing to do. */
        decode_emit(d, sim_nothing_op);
    } else {
        arithmetic(d, opcode, parts, n);
    }
}
