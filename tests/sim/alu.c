/*
 * alu.c - integer arithmetic and logic, and the search for the row of an opcode.
 */
#include "tests/sim/alu.h"

#include <string.h>

OP32(add32, U, U, U, U, A + B)
OP32(sub32, U, U, U, U, A - B)
OP32(mul_lo32, U, U, U, U, A *B)
OP32(mul_hi_u32, U, U, U, U, (U)((L)A *B >> 32))
OP32(mul_hi_s32, S, S, U, U, (U)((Q)A *B >> 32))
OP32(mad_lo32, U, U, U, U, A *B + C)
OP32(div_u32, U, U, U, U, B ? A / B : ~0u)
OP32(rem_u32, U, U, U, U, B ? A % B : A)
OP32(div_s32, S, S, U, U, B == 0 ? ~0u : B == -1 ? 0u - (U)A : (U)(A / B))
OP32(rem_s32, S, S, U, U, B == 0 ? (U)A : B == -1 ? 0u : (U)(A % B))
OP32(min_u32, U, U, U, U, A < B ? A : B)
OP32(max_u32, U, U, U, U, A > B ? A : B)
OP32(min_s32, S, S, U, S, A < B ? A : B)
OP32(max_s32, S, S, U, S, A > B ? A : B)
OP32(neg32, U, U, U, U, 0 - A)
OP32(abs_s32, S, U, U, U, A < 0 ? 0u - (U)A : (U)A)
OP32(and32, U, U, U, U, A &B)
OP32(or32, U, U, U, U, A | B)
OP32(xor32, U, U, U, U, A ^ B)
OP32(not32, U, U, U, U, ~A)
OP32(shl32, U, U, U, U, B > 31 ? 0 : A << B)
OP32(shr_u32, U, U, U, U, B > 31 ? 0 : A >> B)
OP32(shr_s32, S, U, U, S, B > 31 ? A >> 31 : A >> B)
OP32(mov32, U, U, U, U, A)
OP32(popc32, U, U, U, U, (U)__builtin_popcount(A))
OP32(clz32, U, U, U, U, A ? (U)__builtin_clz(A) : 32)
OP32(popc64, L, U, U, U, (U)__builtin_popcountll(A))
OP32(clz64, L, U, U, U, A ? (U)__builtin_clzll(A) : 64)
OP32(bfind_shift_u32, U, U, U, U, A ? (U)__builtin_clz(A) : ~0u)
OP32(bfind_u32, U, U, U, U, A ? 31 - (U)__builtin_clz(A) : ~0u)
OP32(shf_l_wrap, U, U, U, U, (U)(((L)B << 32 | A) << (C & 31) >> 32))
OP32(shf_r_wrap, U, U, U, U, (U)(((L)B << 32 | A) >> (C & 31)))
OP32(add16, U, U, U, U, (A + B) & 0xffff)
OP32(sub16, U, U, U, U, (A - B) & 0xffff)
OP32(mul_lo16, U, U, U, U, A *B & 0xffff)
OP32(mul_wide_u16, U, U, U, U, (A & 0xffff) * (B & 0xffff))
OP32(mul_wide_s16, U, U, U, S, (int16_t)A *(int16_t)B)
OP32(shl16, U, U, U, U, B > 15 ? 0 : A << B & 0xffff)
OP32(shr_u16, U, U, U, U, B > 15 ? 0 : (A & 0xffff) >> B)
OP32(shr_s16, U, U, U, U, (U)((int16_t)A >> (B > 15 ? 15 : B)) & 0xffff)
OP32(mov16, U, U, U, U, A & 0xffff)
OP32(not16, U, U, U, U, ~A & 0xffff)
OP32(neg16, U, U, U, U, (0 - A) & 0xffff)
OP32(min_u16, U, U, U, U, (A & 0xffff) < (B & 0xffff) ? A : B)
OP32(max_u16, U, U, U, U, (A & 0xffff) > (B & 0xffff) ? A : B)

static inline uint32_t reversed(uint32_t v)
{
    v = (v >> 1 & 0x55555555) | (v & 0x55555555) << 1;
    v = (v >> 2 & 0x33333333) | (v & 0x33333333) << 2;
    v = (v >> 4 & 0x0f0f0f0f) | (v & 0x0f0f0f0f) << 4;
    return __builtin_bswap32(v);
}
OP32(brev32, U, U, U, U, reversed(A))
static inline uint32_t permuted(uint32_t a, uint32_t b, uint32_t sel)
{
    uint64_t both = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    for (int k = 0; k < 4; k++, sel >>= 4) {
        uint32_t byte = (uint32_t)(both >> (sel & 7) * 8) & 0xff;
        if (sel & 8)
            byte = byte & 0x80 ? 0xff : 0;
        r |= byte << 8 * k;
    }
    return r;
}
OP32(prmt32, U, U, U, U, permuted(A, B, C))
static inline uint32_t dots(uint32_t a, uint32_t b, uint32_t c, bool a_signed, bool b_signed)
{
    for (int k = 0; k < 4; k++) {
        int x = (a_signed ? (int8_t)(a >> 8 * k) : (int)(a >> 8 * k & 0xff)),
            y = (b_signed ? (int8_t)(b >> 8 * k) : (int)(b >> 8 * k & 0xff));
        c += (uint32_t)(x * y);
    }
    return c;
}
OP32(dp4a_ss, U, U, U, U, dots(A, B, C, true, true))
OP32(dp4a_us, U, U, U, U, dots(A, B, C, false, true))
OP32(dp4a_su, U, U, U, U, dots(A, B, C, true, false))
OP32(dp4a_uu, U, U, U, U, dots(A, B, C, false, false))
OP32(dp2a_lo_uu, U, U, U, U, C + (A & 0xffff) * (B & 0xff) + (A >> 16) * (B >> 8 & 0xff))
OP32(dp2a_hi_uu, U, U, U, U, C + (A & 0xffff) * (B >> 16 & 0xff) + (A >> 16) * (B >> 24))

static void lop3(struct warp *w, const struct ins *i)
{
    const uint32_t *a = at(w, i->a), *b = at(w, i->b), *c = at(w, i->c), table = *(const uint32_t *)at(w, i->e);
    uint32_t t[LANES];
    EACH
    {
        uint32_t r = 0;
        for (int k = 0; k < 8; k++)
            if (table >> k & 1)
                r |= (k & 4 ? a[l] : ~a[l]) & (k & 2 ? b[l] : ~b[l]) & (k & 1 ? c[l] : ~c[l]);
        t[l] = r;
    }
    put32(w, i->d, t);
}
/* bfi d, a, b, c, e: inserts `e` bits of a into b at bit c. */
static void bfi32(struct warp *w, const struct ins *i)
{
    const uint32_t *a = at(w, i->a), *b = at(w, i->b), *c = at(w, i->c), *e = at(w, i->e);
    uint32_t t[LANES];
    EACH
    {
        uint32_t pos = c[l] & 0xff, len = e[l] & 0xff;
        uint64_t field = (len > 31 ? 0xffffffffull : (1ull << len) - 1);
        field = pos > 31 ? 0 : (uint32_t)(field << pos);
        t[l] = (uint32_t)((b[l] & ~field) | ((pos > 31 ? 0 : (uint64_t)a[l] << pos) & field));
    }
    put32(w, i->d, t);
}
static void bfi64(struct warp *w, const struct ins *i)
{
    const uint64_t *a = at(w, i->a), *b = at(w, i->b);
    const uint32_t *c = at(w, i->c), *e = at(w, i->e);
    uint64_t t[LANES];
    EACH
    {
        uint32_t pos = c[l] & 0xff, len = e[l] & 0xff;
        uint64_t field = len > 63 ? ~0ull : (1ull << len) - 1;
        field = pos > 63 ? 0 : field << pos;
        t[l] = (b[l] & ~field) | ((pos > 63 ? 0 : a[l] << pos) & field);
    }
    put64(w, i->d, t);
}
OP32(bfe_u32, U, U, U, U,
     (B & 0xff) > 31 ? 0 : (U)((A >> (B & 0xff)) & ((C & 0xff) > 31 ? ~0ull : (1ull << (C & 0xff)) - 1)))

OP64(add64, L, L, L, L, A + B)
OP64(sub64, L, L, L, L, A - B)
OP64(mul_lo64, L, L, L, L, A *B)
OP64(mul_hi_u64, L, L, L, L, (L)((unsigned __int128)A *B >> 64))
OP64(mul_wide_u32, U, U, U, L, (L)A *B)
OP64(mul_wide_s32, S, S, S, L, (L)((Q)A *B))
OP64(mad_lo64, L, L, L, L, A *B + C)
OP64(mad_wide_u32, U, U, L, L, (L)A *B + C)
OP64(mad_wide_s32, S, S, L, L, (L)((Q)A *B) + C)
OP64(div_u64, L, L, L, L, B ? A / B : ~0ull)
OP64(rem_u64, L, L, L, L, B ? A % B : A)
OP64(min_u64, L, L, L, L, A < B ? A : B)
OP64(max_u64, L, L, L, L, A > B ? A : B)
OP64(min_s64, Q, Q, L, Q, A < B ? A : B)
OP64(max_s64, Q, Q, L, Q, A > B ? A : B)
OP64(neg64, L, L, L, L, 0 - A)
OP64(and64, L, L, L, L, A &B)
OP64(or64, L, L, L, L, A | B)
OP64(xor64, L, L, L, L, A ^ B)
OP64(not64, L, L, L, L, ~A)
OP64(shl64, L, U, U, L, B > 63 ? 0 : A << B)
OP64(shr_u64, L, U, U, L, B > 63 ? 0 : A >> B)
OP64(shr_s64, Q, U, U, Q, A >> (B > 63 ? 63 : B))
OP64(mov64, L, L, L, L, A)

const struct alu_row sim_alu_whole[] = {
    {"add.s32", add32, "333"},
    {"add.u32", add32, "333"},
    {"add.s64", add64, "666"},
    {"add.u64", add64, "666"},
    {"add.s16", add16, "333"},
    {"add.u16", add16, "333"},
    {"sub.s32", sub32, "333"},
    {"sub.u32", sub32, "333"},
    {"sub.s64", sub64, "666"},
    {"sub.u64", sub64, "666"},
    {"sub.s16", sub16, "333"},
    {"sub.u16", sub16, "333"},
    {"mul.lo.s32", mul_lo32, "333"},
    {"mul.lo.u32", mul_lo32, "333"},
    {"mul.hi.u32", mul_hi_u32, "333"},
    {"mul.hi.s32", mul_hi_s32, "333"},
    {"mul.lo.s64", mul_lo64, "666"},
    {"mul.lo.u64", mul_lo64, "666"},
    {"mul.hi.u64", mul_hi_u64, "666"},
    {"mul.wide.u32", mul_wide_u32, "633"},
    {"mul.wide.s32", mul_wide_s32, "633"},
    {"mul.wide.u16", mul_wide_u16, "333"},
    {"mul.wide.s16", mul_wide_s16, "333"},
    {"mul.lo.s16", mul_lo16, "333"},
    {"mul.lo.u16", mul_lo16, "333"},
    {"mad.lo.s32", mad_lo32, "3333"},
    {"mad.lo.u32", mad_lo32, "3333"},
    {"mad.lo.s64", mad_lo64, "6666"},
    {"mad.lo.u64", mad_lo64, "6666"},
    {"mad.wide.u32", mad_wide_u32, "6336"},
    {"mad.wide.s32", mad_wide_s32, "6336"},
    {"div.u32", div_u32, "333"},
    {"div.s32", div_s32, "333"},
    {"rem.u32", rem_u32, "333"},
    {"rem.s32", rem_s32, "333"},
    {"div.u64", div_u64, "666"},
    {"rem.u64", rem_u64, "666"},
    {"min.u32", min_u32, "333"},
    {"max.u32", max_u32, "333"},
    {"min.s32", min_s32, "333"},
    {"max.s32", max_s32, "333"},
    {"min.u16", min_u16, "333"},
    {"max.u16", max_u16, "333"},
    {"min.u64", min_u64, "666"},
    {"max.u64", max_u64, "666"},
    {"min.s64", min_s64, "666"},
    {"max.s64", max_s64, "666"},
    {"neg.s32", neg32, "33"},
    {"neg.s16", neg16, "33"},
    {"neg.s64", neg64, "66"},
    {"abs.s32", abs_s32, "33"},
    {"and.b32", and32, "333"},
    {"or.b32", or32, "333"},
    {"xor.b32", xor32, "333"},
    {"not.b32", not32, "33"},
    {"and.b16", and32, "333"},
    {"or.b16", or32, "333"},
    {"xor.b16", xor32, "333"},
    {"not.b16", not16, "33"},
    {"and.b64", and64, "666"},
    {"or.b64", or64, "666"},
    {"xor.b64", xor64, "666"},
    {"not.b64", not64, "66"},
    {"shl.b32", shl32, "333"},
    {"shr.u32", shr_u32, "333"},
    {"shr.b32", shr_u32, "333"},
    {"shr.s32", shr_s32, "333"},
    {"shl.b16", shl16, "333"},
    {"shr.u16", shr_u16, "333"},
    {"shr.b16", shr_u16, "333"},
    {"shr.s16", shr_s16, "333"},
    {"shl.b64", shl64, "663"},
    {"shr.u64", shr_u64, "663"},
    {"shr.b64", shr_u64, "663"},
    {"shr.s64", shr_s64, "663"},
    {"mov.u32", mov32, "33"},
    {"mov.s32", mov32, "33"},
    {"mov.b32", mov32, "33"},
    {"mov.f32", mov32, "33"},
    {"mov.u16", mov16, "33"},
    {"mov.b16", mov16, "33"},
    {"mov.u64", mov64, "66"},
    {"mov.s64", mov64, "66"},
    {"mov.b64", mov64, "66"},
    {"mov.f64", mov64, "66"},
    {"popc.b32", popc32, "33"},
    {"popc.b64", popc64, "36"},
    {"clz.b32", clz32, "33"},
    {"clz.b64", clz64, "36"},
    {"brev.b32", brev32, "33"},
    {"bfind.u32", bfind_u32, "33"},
    {"bfind.shiftamt.u32", bfind_shift_u32, "33"},
    {"bfi.b32", bfi32, "33333"},
    {"bfi.b64", bfi64, "66633"},
    {"bfe.u32", bfe_u32, "3333"},
    {"prmt.b32", prmt32, "3333"},
    {"lop3.b32", lop3, "33333"},
    {"shf.l.wrap.b32", shf_l_wrap, "3333"},
    {"shf.r.wrap.b32", shf_r_wrap, "3333"},
    {"dp4a.s32.s32", dp4a_ss, "3333"},
    {"dp4a.u32.s32", dp4a_us, "3333"},
    {"dp4a.s32.u32", dp4a_su, "3333"},
    {"dp4a.u32.u32", dp4a_uu, "3333"},
    {"dp2a.lo.u32.u32", dp2a_lo_uu, "3333"},
    {"dp2a.hi.u32.u32", dp2a_hi_uu, "3333"},
    {NULL, NULL, NULL},
};

const struct alu_row *sim_alu(const char *opcode)
{
    const struct alu_row *const lists[] = {sim_alu_whole, sim_alu_float, sim_alu_compare};
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
        for (const struct alu_row *r = lists[k]; r->name; r++)
            if (!strcmp(r->name, opcode))
                return r;
    return NULL;
}
