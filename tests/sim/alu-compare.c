/*
 * alu-compare.c - comparisons, selections and predicates.
 */
#include "tests/sim/alu.h"

#include <immintrin.h>

/* Turns a word per lane that is all ones or zero into a bit per lane. */
static inline uint32_t bits(const uint32_t *t)
{
    uint32_t r = 0;
    for (int k = 0; k < 4; k++)
        r |= (uint32_t)_mm256_movemask_ps(_mm256_loadu_ps((const float *)t + 8 * k)) << 8 * k;
    return r;
}
#define SETP(NAME, T, EXPR)                                           \
    static void setp_##NAME(struct warp *w, const struct ins *i)      \
    {                                                                 \
        const T##_lane *a = at(w, i->a), *b = at(w, i->b);            \
        uint32_t t[LANES];                                            \
        EACH                                                          \
        {                                                             \
            const T##_value A = (T##_value)a[l], B = (T##_value)b[l]; \
            t[l] = (EXPR) ? ~0u : 0;                                  \
        }                                                             \
        put_pred(w, i->d, bits(t));                                   \
    }
#define TYPE(T, LANE, VALUE) \
    typedef LANE T##_lane;   \
    typedef VALUE T##_value;
TYPE(s16, uint32_t, int16_t)
TYPE(u16, uint32_t, uint16_t)
TYPE(s32, int32_t, int32_t)
TYPE(u32, uint32_t, uint32_t)
TYPE(s64, int64_t, int64_t)
TYPE(u64, uint64_t, uint64_t)
TYPE(f32, float, float)
TYPE(f64, double, double)
#define ORDERS(T)           \
    SETP(eq_##T, T, A == B) \
    SETP(ne_##T, T, A != B) \
    SETP(lt_##T, T, A < B)  \
    SETP(le_##T, T, A <= B) \
    SETP(gt_##T, T, A > B)  \
    SETP(ge_##T, T, A >= B)
/* For floats `ne` is false if either is NaN, and the comparisons that end in u are true then. */
#define FLOATS(T)                       \
    SETP(eq_##T, T, A == B)             \
    SETP(ne_##T, T, A<B || A> B)        \
    SETP(lt_##T, T, A < B)              \
    SETP(le_##T, T, A <= B)             \
    SETP(gt_##T, T, A > B)              \
    SETP(ge_##T, T, A >= B)             \
    SETP(equ_##T, T, !(A < B || A > B)) \
    SETP(neu_##T, T, A != B)            \
    SETP(ltu_##T, T, !(A >= B))         \
    SETP(leu_##T, T, !(A > B))          \
    SETP(gtu_##T, T, !(A <= B))         \
    SETP(geu_##T, T, !(A < B))          \
    SETP(num_##T, T, A == A && B == B)  \
    SETP(nan_##T, T, A != A || B != B)
ORDERS(s16)
ORDERS(u16)
ORDERS(s32)
ORDERS(u32)
ORDERS(s64)
ORDERS(u64)
FLOATS(f32)
FLOATS(f64)

static void selp32(struct warp *w, const struct ins *i)
{
    const uint32_t *a = at(w, i->a), *b = at(w, i->b), p = pred_of(w, i->c);
    uint32_t t[LANES];
    EACH t[l] = p >> l & 1 ? a[l] : b[l];
    put32(w, i->d, t);
}
static void selp64(struct warp *w, const struct ins *i)
{
    const uint64_t *a = at(w, i->a), *b = at(w, i->b);
    uint32_t p = pred_of(w, i->c);
    uint64_t t[LANES];
    EACH t[l] = p >> l & 1 ? a[l] : b[l];
    put64(w, i->d, t);
}
static void mov_pred(struct warp *w, const struct ins *i)
{
    put_pred(w, i->d, pred_of(w, i->a));
}
static void not_pred(struct warp *w, const struct ins *i)
{
    put_pred(w, i->d, ~pred_of(w, i->a));
}
static void and_pred(struct warp *w, const struct ins *i)
{
    put_pred(w, i->d, pred_of(w, i->a) & pred_of(w, i->b));
}
static void or_pred(struct warp *w, const struct ins *i)
{
    put_pred(w, i->d, pred_of(w, i->a) | pred_of(w, i->b));
}
static void xor_pred(struct warp *w, const struct ins *i)
{
    put_pred(w, i->d, pred_of(w, i->a) ^ pred_of(w, i->b));
}

#define SETP_ROWS(T, W)                                                                                \
    {"setp.eq." #T, setp_eq_##T, W}, {"setp.ne." #T, setp_ne_##T, W}, {"setp.lt." #T, setp_lt_##T, W}, \
        {"setp.le." #T, setp_le_##T, W}, {"setp.gt." #T, setp_gt_##T, W},                              \
    {                                                                                                  \
        "setp.ge." #T, setp_ge_##T, W                                                                  \
    }
#define SETP_FLOAT_ROWS(T, W)                                                                                    \
    SETP_ROWS(T, W), {"setp.equ." #T, setp_equ_##T, W}, {"setp.neu." #T, setp_neu_##T, W},                       \
        {"setp.ltu." #T, setp_ltu_##T, W}, {"setp.leu." #T, setp_leu_##T, W}, {"setp.gtu." #T, setp_gtu_##T, W}, \
        {"setp.geu." #T, setp_geu_##T, W}, {"setp.num." #T, setp_num_##T, W},                                    \
    {                                                                                                            \
        "setp.nan." #T, setp_nan_##T, W                                                                          \
    }

const struct alu_row sim_alu_compare[] = {
    SETP_ROWS(s16, "p33"),
    SETP_ROWS(u16, "p33"),
    SETP_ROWS(s32, "p33"),
    SETP_ROWS(u32, "p33"),
    SETP_ROWS(s64, "p66"),
    SETP_ROWS(u64, "p66"),
    SETP_FLOAT_ROWS(f32, "p33"),
    SETP_FLOAT_ROWS(f64, "p66"),
    {"setp.eq.b16", setp_eq_u16, "p33"},
    {"setp.ne.b16", setp_ne_u16, "p33"},
    {"setp.eq.b32", setp_eq_u32, "p33"},
    {"setp.ne.b32", setp_ne_u32, "p33"},
    {"setp.eq.b64", setp_eq_u64, "p66"},
    {"setp.ne.b64", setp_ne_u64, "p66"},
    {"selp.b16", selp32, "333p"},
    {"selp.u16", selp32, "333p"},
    {"selp.b32", selp32, "333p"},
    {"selp.u32", selp32, "333p"},
    {"selp.s32", selp32, "333p"},
    {"selp.f32", selp32, "333p"},
    {"selp.b64", selp64, "666p"},
    {"selp.u64", selp64, "666p"},
    {"selp.s64", selp64, "666p"},
    {"selp.f64", selp64, "666p"},
    {"mov.pred", mov_pred, "pp"},
    {"not.pred", not_pred, "pp"},
    {"and.pred", and_pred, "ppp"},
    {"or.pred", or_pred, "ppp"},
    {"xor.pred", xor_pred, "ppp"},
    {NULL, NULL, NULL},
};
