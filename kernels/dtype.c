/*
 * dtype.c - the table of tensor element types, generated from quant/list.h and the types' own files.
 *
 * Pure functions, any thread. to_f32 is the specification of a type; kernels expand to the same values in registers.
 */
#include "kernels/dtype.h"

#define QUANT_HEADERS
#include "kernels/quant/list.h"

#define X(t, T, number) static_assert((int)T##_LEN <= (int)BLOCK_LEN_MAX, #T);
QUANTS(X)
#undef X

static const struct dtype_info types[DT_COUNT] = {
#define X(t, T, number) [DT_##T] = {#T, T##_LEN, T##_BYTES, t##_decode, t##_encode},
    QUANTS(X)
#undef X
};

void (*const dtype_ints[DT_COUNT])(const void *block, struct quant_ints *out) = {
#define X(t, T) [DT_##T] = t##_ints,
    QUANTS_INT(X)
#undef X
};

const struct dtype_info *dtype_get(int type)
{
    return type >= 0 && type < DT_COUNT && types[type].name ? &types[type] : NULL;
}

const char *dtype_name(int type)
{
    static const char *const others[] = {
        [9] = "Q8_1", [15] = "Q8_K",  [19] = "IQ1_S", [24] = "I8",    [25] = "I16",  [26] = "I32",  [27] = "I64",
        [28] = "F64", [29] = "IQ1_M", [34] = "TQ1_0", [35] = "TQ2_0", [41] = "Q1_0", [42] = "Q2_0",
    };
    const struct dtype_info *t = dtype_get(type);
    if (t)
        return t->name;
    return type >= 0 && type < (int)(sizeof others / sizeof *others) ? others[type] : NULL;
}

uint64_t dtype_bytes(int type, uint64_t n)
{
    const struct dtype_info *t = dtype_get(type);
    uint64_t bytes;
    if (!t || n % t->block_len || __builtin_mul_overflow(n / t->block_len, (uint64_t)t->block_bytes, &bytes))
        return 0;
    return bytes;
}
