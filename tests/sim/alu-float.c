/*
 * alu-float.c - floating-point arithmetic as IEEE 754 and the opcode define it, and conversions. `approx` uses the C
 * library, so its last bits are not a GPU's.
 */
#include "tests/sim/alu.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

#include "tests/sim/half.h"

static const uint32_t NAN32 = 0x7fffffff;
static inline float canonical(void)
{
    float f;
    memcpy(&f, &NAN32, 4);
    return f;
}
/* The smaller number, or the one that is not NaN; with `nan`, NaN if either is NaN. -0 is less than 0. */
static inline float least(float a, float b, bool nan)
{
    if (a != a || b != b)
        return nan || (a != a && b != b) ? canonical() : a != a ? b : a;
    return a == b ? (signbit(a) ? a : b) : a < b ? a : b;
}
static inline float most(float a, float b, bool nan)
{
    if (a != a || b != b)
        return nan || (a != a && b != b) ? canonical() : a != a ? b : a;
    return a == b ? (signbit(a) ? b : a) : a > b ? a : b;
}
OP32(add_f32, F, F, F, F, A + B)
OP32(sub_f32, F, F, F, F, A - B)
OP32(mul_f32, F, F, F, F, A *B)
OP32(fma_f32, F, F, F, F, __builtin_fmaf(A, B, C))
OP32(div_f32, F, F, F, F, A / B)
OP32(rcp_f32, F, F, F, F, 1.f / A)
OP32(sqrt_f32, F, F, F, F, __builtin_sqrtf(A))
OP32(rsqrt_f32, F, F, F, F, 1.f / __builtin_sqrtf(A))
OP32(neg_f32, U, U, U, U, A ^ 0x80000000u)
OP32(abs_f32, U, U, U, U, A & 0x7fffffffu)
OP32(copysign_f32, U, U, U, U, (A & 0x80000000u) | (B & 0x7fffffffu))
OP32(min_f32, F, F, F, F, least(A, B, false))
OP32(max_f32, F, F, F, F, most(A, B, false))
OP32(min_nan_f32, F, F, F, F, least(A, B, true))
OP32(max_nan_f32, F, F, F, F, most(A, B, true))
OP32(ex2_f32, F, F, F, F, exp2f(A))
OP32(lg2_f32, F, F, F, F, log2f(A))
OP32(sin_f32, F, F, F, F, sinf(A))
OP32(cos_f32, F, F, F, F, cosf(A))
OP32(tanh_f32, F, F, F, F, tanhf(A))

/* As on the device: subnormal numbers become 0 of the same sign. */
static inline float flushed(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}
OP32(ex2_ftz_f32, F, F, F, F, flushed(exp2f(flushed(A))))
OP32(rcp_ftz_f32, F, F, F, F, flushed(1.f / flushed(A)))

/* The product of two floats is exact in double, and rounding twice in the same direction is rounding once. */
static inline float fma_toward(float a, float b, float c, int mode)
{
    int was = fegetround();
    fesetround(mode);
    volatile double sum = (double)a * b + c;
    volatile float r = (float)sum;
    fesetround(was);
    return r;
}
OP32(fma_rm_f32, F, F, F, F, fma_toward(A, B, C, FE_DOWNWARD))
OP32(fma_rp_f32, F, F, F, F, fma_toward(A, B, C, FE_UPWARD))
OP32(add_rz_f32, F, F, F, F, fma_toward(A, 1, B, FE_TOWARDZERO))

OP64(add_f64, D, D, D, D, A + B)
OP64(sub_f64, D, D, D, D, A - B)
OP64(mul_f64, D, D, D, D, A *B)
OP64(div_f64, D, D, D, D, A / B)
OP64(fma_f64, D, D, D, D, __builtin_fma(A, B, C))
OP64(neg_f64, L, L, L, L, A ^ 1ull << 63)
OP64(abs_f64, L, L, L, L, A & ~(1ull << 63))

/* Pairs of fp16. A sum or product of two is rounded correctly by way of float, whose 24 bits are 2 x 11 + 2. */
static inline uint32_t pair(float low, float high)
{
    return half_of(low) | (uint32_t)half_of(high) << 16;
}
#define LOW(V)  half_to((uint16_t)(V))
#define HIGH(V) half_to((uint16_t)((V) >> 16))
OP32(add_f16x2, U, U, U, U, pair(LOW(A) + LOW(B), HIGH(A) + HIGH(B)))
OP32(sub_f16x2, U, U, U, U, pair(LOW(A) - LOW(B), HIGH(A) - HIGH(B)))
OP32(mul_f16x2, U, U, U, U, pair(LOW(A) * LOW(B), HIGH(A) * HIGH(B)))
OP32(fma_f16x2, U, U, U, U,
     half_of_sum((double)LOW(A) * LOW(B), LOW(C)) | (U)half_of_sum((double)HIGH(A) * HIGH(B), HIGH(C)) << 16)
OP32(neg_f16x2, U, U, U, U, A ^ 0x80008000u)
OP32(cvt_f16x2, F, F, F, U, pair(B, A))
OP32(cvt_f32_f16, U, U, U, F, LOW(A))
OP32(cvt_f16_f32, F, U, U, U, half_of(A))

/* --- conversions ------------------------------------------------------------------------------------------------ */

/* Out-of-range values become the nearest number of the type, NaN becomes 0. */
static inline int64_t whole(double v, double low, double high)
{
    return v != v ? 0 : v <= low ? (int64_t)low : v >= high ? (int64_t)high : (int64_t)v;
}
static inline uint64_t natural64(double v)
{
    return v != v || v <= 0 ? 0 : v >= 0x1p64 ? ~0ull : (uint64_t)v;
}
OP64(cvt_u64_u32, U, U, U, L, A)
OP64(cvt_s64_s32, S, U, U, Q, A)
OP64(cvt_u64_u16, U, U, U, L, (uint16_t)A)
OP64(cvt_s64_s16, U, U, U, Q, (int16_t)A)
OP32(cvt_u32_u64, L, U, U, U, (U)A)
OP32(cvt_u16_u64, L, U, U, U, (U)A & 0xffff)
OP32(cvt_u32_u16, U, U, U, U, A & 0xffff)
OP32(cvt_s32_s16, U, U, U, S, (int16_t)A)
OP32(cvt_u16_u32, U, U, U, U, A & 0xffff)
OP32(cvt_s32_s8, U, U, U, S, (int8_t)A)
OP32(cvt_u32_u8, U, U, U, U, (uint8_t)A)
OP32(cvt_s16_s8, U, U, U, U, (uint16_t)(int8_t)A)
OP32(cvt_f32_s32, S, U, U, F, (float)A)
OP32(cvt_f32_u32, U, U, U, F, (float)A)
OP32(cvt_f32_u16, U, U, U, F, (float)(uint16_t)A)
OP32(cvt_f32_s16, U, U, U, F, (float)(int16_t)A)
OP32(cvt_f32_u64, L, U, U, F, (float)A)
OP32(cvt_f32_s64, Q, U, U, F, (float)A)
OP32(cvt_f32_f64, D, U, U, F, (float)A)
OP64(cvt_f64_f32, F, U, U, D, A)
OP64(cvt_f64_u64, L, U, U, D, (double)A)
OP64(cvt_f64_s64, Q, U, U, D, (double)A)
OP64(cvt_f64_u32, U, U, U, D, A)
OP64(cvt_f64_s32, S, U, U, D, A)
OP32(cvt_rni_f32, F, U, U, F, rintf(A))
OP32(cvt_rzi_f32, F, U, U, F, truncf(A))
OP32(cvt_rmi_f32, F, U, U, F, floorf(A))
OP32(cvt_rpi_f32, F, U, U, F, ceilf(A))
OP64(cvt_rpi_f64, D, U, U, D, ceil(A))
OP64(cvt_rmi_f64, D, U, U, D, floor(A))
OP32(cvt_sat_f32, F, U, U, F, !(A > 0) ? 0.f : A < 1 ? A : 1.f)
OP32(cvt_rzi_u32, F, U, U, U, (U)whole(trunc(A), 0, 4294967295.))
OP32(cvt_rzi_s32, F, U, U, S, (S)whole(trunc(A), -2147483648., 2147483647.))
OP32(cvt_rni_s32, F, U, U, S, (S)whole(rint(A), -2147483648., 2147483647.))
OP32(cvt_rmi_s32, F, U, U, S, (S)whole(floor(A), -2147483648., 2147483647.))
OP32(cvt_rni_u32, F, U, U, U, (U)whole(rint(A), 0, 4294967295.))
OP64(cvt_rzi_u64, F, U, U, L, natural64(truncf(A)))
OP64(cvt_rzi_u64_f64, D, U, U, L, natural64(trunc(A)))
OP32(cvt_f16_s32, S, U, U, U, half_of_sum((double)A, 0))
OP32(cvt_f16_u32, U, U, U, U, half_of_sum((double)A, 0))
OP32(cvt_f16_s16, U, U, U, U, half_of((float)(int16_t)A))
OP32(cvt_f16_u16, U, U, U, U, half_of((float)(uint16_t)A))

const struct alu_row sim_alu_float[] = {
    {"add.f32", add_f32, "333"},
    {"add.rn.f32", add_f32, "333"},
    {"add.rz.f32", add_rz_f32, "333"},
    {"sub.f32", sub_f32, "333"},
    {"sub.rn.f32", sub_f32, "333"},
    {"mul.f32", mul_f32, "333"},
    {"mul.rn.f32", mul_f32, "333"},
    {"fma.rn.f32", fma_f32, "3333"},
    {"fma.rm.f32", fma_rm_f32, "3333"},
    {"fma.rp.f32", fma_rp_f32, "3333"},
    {"div.rn.f32", div_f32, "333"},
    {"div.approx.f32", div_f32, "333"},
    {"div.full.f32", div_f32, "333"},
    {"rcp.rn.f32", rcp_f32, "33"},
    {"rcp.approx.f32", rcp_f32, "33"},
    {"rcp.approx.ftz.f32", rcp_ftz_f32, "33"},
    {"sqrt.rn.f32", sqrt_f32, "33"},
    {"sqrt.approx.f32", sqrt_f32, "33"},
    {"rsqrt.approx.f32", rsqrt_f32, "33"},
    {"rsqrt.approx.ftz.f32", rsqrt_f32, "33"},
    {"ex2.approx.f32", ex2_f32, "33"},
    {"ex2.approx.ftz.f32", ex2_ftz_f32, "33"},
    {"lg2.approx.f32", lg2_f32, "33"},
    {"lg2.approx.ftz.f32", lg2_f32, "33"},
    {"sin.approx.f32", sin_f32, "33"},
    {"cos.approx.f32", cos_f32, "33"},
    {"tanh.approx.f32", tanh_f32, "33"},
    {"neg.f32", neg_f32, "33"},
    {"abs.f32", abs_f32, "33"},
    {"copysign.f32", copysign_f32, "333"},
    {"min.f32", min_f32, "333"},
    {"max.f32", max_f32, "333"},
    {"min.NaN.f32", min_nan_f32, "333"},
    {"max.NaN.f32", max_nan_f32, "333"},
    {"add.f64", add_f64, "666"},
    {"add.rn.f64", add_f64, "666"},
    {"sub.f64", sub_f64, "666"},
    {"mul.f64", mul_f64, "666"},
    {"mul.rn.f64", mul_f64, "666"},
    {"div.rn.f64", div_f64, "666"},
    {"fma.rn.f64", fma_f64, "6666"},
    {"neg.f64", neg_f64, "66"},
    {"abs.f64", abs_f64, "66"},
    {"add.f16x2", add_f16x2, "333"},
    {"add.rn.f16x2", add_f16x2, "333"},
    {"sub.f16x2", sub_f16x2, "333"},
    {"sub.rn.f16x2", sub_f16x2, "333"},
    {"mul.f16x2", mul_f16x2, "333"},
    {"mul.rn.f16x2", mul_f16x2, "333"},
    {"fma.rn.f16x2", fma_f16x2, "3333"},
    {"neg.f16x2", neg_f16x2, "33"},
    {"cvt.u64.u32", cvt_u64_u32, "63"},
    {"cvt.s64.s32", cvt_s64_s32, "63"},
    {"cvt.u64.u16", cvt_u64_u16, "63"},
    {"cvt.s64.s16", cvt_s64_s16, "63"},
    {"cvt.u32.u64", cvt_u32_u64, "36"},
    {"cvt.u16.u64", cvt_u16_u64, "36"},
    {"cvt.u32.u16", cvt_u32_u16, "33"},
    {"cvt.s32.s16", cvt_s32_s16, "33"},
    {"cvt.u16.u32", cvt_u16_u32, "33"},
    {"cvt.s32.s8", cvt_s32_s8, "33"},
    {"cvt.u32.u8", cvt_u32_u8, "33"},
    {"cvt.u16.u8", cvt_u32_u8, "33"},
    {"cvt.s16.s8", cvt_s16_s8, "33"},
    {"cvt.rn.f32.s32", cvt_f32_s32, "33"},
    {"cvt.rn.f32.u32", cvt_f32_u32, "33"},
    {"cvt.rn.f32.u16", cvt_f32_u16, "33"},
    {"cvt.rn.f32.s16", cvt_f32_s16, "33"},
    {"cvt.rn.f32.u64", cvt_f32_u64, "36"},
    {"cvt.rn.f32.s64", cvt_f32_s64, "36"},
    {"cvt.rn.f32.f64", cvt_f32_f64, "36"},
    {"cvt.f64.f32", cvt_f64_f32, "63"},
    {"cvt.rn.f64.u64", cvt_f64_u64, "66"},
    {"cvt.rn.f64.s64", cvt_f64_s64, "66"},
    {"cvt.rn.f64.u32", cvt_f64_u32, "63"},
    {"cvt.rn.f64.s32", cvt_f64_s32, "63"},
    {"cvt.rni.f32.f32", cvt_rni_f32, "33"},
    {"cvt.rzi.f32.f32", cvt_rzi_f32, "33"},
    {"cvt.rmi.f32.f32", cvt_rmi_f32, "33"},
    {"cvt.rpi.f32.f32", cvt_rpi_f32, "33"},
    {"cvt.rpi.f64.f64", cvt_rpi_f64, "66"},
    {"cvt.rmi.f64.f64", cvt_rmi_f64, "66"},
    {"cvt.sat.f32.f32", cvt_sat_f32, "33"},
    {"cvt.rzi.u32.f32", cvt_rzi_u32, "33"},
    {"cvt.rzi.s32.f32", cvt_rzi_s32, "33"},
    {"cvt.rni.s32.f32", cvt_rni_s32, "33"},
    {"cvt.rni.u32.f32", cvt_rni_u32, "33"},
    {"cvt.rmi.s32.f32", cvt_rmi_s32, "33"},
    {"cvt.rzi.u64.f32", cvt_rzi_u64, "63"},
    {"cvt.rzi.u64.f64", cvt_rzi_u64_f64, "66"},
    {"cvt.f32.f16", cvt_f32_f16, "33"},
    {"cvt.rn.f16.f32", cvt_f16_f32, "33"},
    {"cvt.rn.f16x2.f32", cvt_f16x2, "333"},
    {"cvt.rn.f16.s32", cvt_f16_s32, "33"},
    {"cvt.rn.f16.u32", cvt_f16_u32, "33"},
    {"cvt.rn.f16.s16", cvt_f16_s16, "33"},
    {"cvt.rn.f16.u16", cvt_f16_u16, "33"},
    {NULL, NULL, NULL},
};
