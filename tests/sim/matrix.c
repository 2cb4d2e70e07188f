/*
 * matrix.c - products of small matrices that one or four warps hold in their registers. The sums of an instruction are
 * computed in double precision and rounded once; a GPU's tensor cores truncate bits of theirs, so the last bits are not
 * a GPU's.
 */
#include "tests/sim/machine.h"

#include <string.h>

#include "tests/sim/half.h"

static uint32_t *lanes(const struct warp *w, operand o)
{
    return (uint32_t *)at(w, o);
}
static void all_lanes(struct warp *w, const struct ins *i)
{
    if (w->exec != (uint32_t)ALL)
        sim_fault(w, i, -1, "executed by some of a warp's threads only (mask 0x%08x)", w->exec);
}

/* --- mma.sync --------------------------------------------------------------------------------------------------- */

/* Elements per register, registers of A and of B; k = 4 lanes x elements x (registers of B). */
static const struct shape {
    uint8_t elements, a, b;
} shapes[] = {
    [MMA_F16_K16] = {2, 4, 2}, [MMA_F16_K8] = {2, 2, 1}, [MMA_TF32_K8] = {1, 4, 2}, [MMA_S8_K32] = {4, 4, 2},
    [MMA_U8_K32] = {4, 4, 2},  [MMA_U8_K16] = {4, 2, 1}, [MMA_S8_K16] = {4, 2, 1},
};

/* Element e of a register. */
static inline __attribute__((always_inline)) double element(uint32_t v, int e, enum mma kind)
{
    float f;
    if (kind != MMA_TF32_K8)
        return half_to((uint16_t)(v >> 16 * e));
    v &= 0xffffe000u;
    memcpy(&f, &v, 4);
    return f;
}
static inline __attribute__((always_inline)) int whole_element(uint32_t v, int e, bool is_signed)
{
    return is_signed ? (int8_t)(v >> 8 * e) : (int)(v >> 8 * e & 0xff);
}
/* A lane's group is its row of A, C and D, and its column of B; rows from 8 on, and k beyond the group's, are further
 * registers. */
#define ROW(L, R)        ((L) / 4 + 8 * ((R)&1))
#define DEPTH(L, R, E)   ((L) % 4 * s.elements + (E) + 4 * s.elements * (R))
#define SUM_ROW(L, R)    ((L) / 4 + 8 * ((R) >> 1))
#define SUM_COLUMN(L, R) ((L) % 4 * 2 + ((R)&1))

static inline __attribute__((always_inline)) void multiply(struct warp *w, const struct ins *i, enum mma kind)
{
    const struct shape s = shapes[kind];
    const int K = 4 * s.elements * s.b;
    const operand *d = i->v, *a = d + 4, *b = a + s.a, *c = b + s.b;
    double A[16][16], B[16][8], sum[16][8];
    for (int r = 0; r < s.a; r++) {
        const uint32_t *v = lanes(w, a[r]);
        for (int l = 0; l < LANES; l++)
            for (int e = 0; e < s.elements; e++)
                A[ROW(l, r)][DEPTH(l, r >> 1, e)] = element(v[l], e, kind);
    }
    for (int r = 0; r < s.b; r++) {
        const uint32_t *v = lanes(w, b[r]);
        for (int l = 0; l < LANES; l++)
            for (int e = 0; e < s.elements; e++)
                B[DEPTH(l, r, e)][l / 4] = element(v[l], e, kind);
    }
    for (int r = 0; r < 4; r++) {
        const float *v = at(w, c[r]);
        for (int l = 0; l < LANES; l++)
            sum[SUM_ROW(l, r)][SUM_COLUMN(l, r)] = v[l];
    }
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < K; k++)
            for (int n = 0; n < 8; n++)
                sum[m][n] += A[m][k] * B[k][n];
    for (int r = 0; r < 4; r++) {
        float *v = at(w, d[r]);
        for (int l = 0; l < LANES; l++)
            v[l] = (float)sum[SUM_ROW(l, r)][SUM_COLUMN(l, r)];
    }
}
static inline __attribute__((always_inline)) void multiply_whole(struct warp *w, const struct ins *i, enum mma kind)
{
    const struct shape s = shapes[kind];
    const int K = 4 * s.elements * s.b;
    const operand *d = i->v, *a = d + 4, *b = a + s.a, *c = b + s.b;
    int32_t A[16][32], B[32][8], sum[16][8];
    for (int r = 0; r < s.a; r++) {
        const uint32_t *v = lanes(w, a[r]);
        for (int l = 0; l < LANES; l++)
            for (int e = 0; e < s.elements; e++)
                A[ROW(l, r)][DEPTH(l, r >> 1, e)] = whole_element(v[l], e, kind == MMA_S8_K32 || kind == MMA_S8_K16);
    }
    for (int r = 0; r < s.b; r++) {
        const uint32_t *v = lanes(w, b[r]);
        for (int l = 0; l < LANES; l++)
            for (int e = 0; e < s.elements; e++)
                B[DEPTH(l, r, e)][l / 4] = whole_element(v[l], e, true);
    }
    for (int r = 0; r < 4; r++) {
        const int32_t *v = at(w, c[r]);
        for (int l = 0; l < LANES; l++)
            sum[SUM_ROW(l, r)][SUM_COLUMN(l, r)] = v[l];
    }
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < K; k++)
            for (int n = 0; n < 8; n++)
                sum[m][n] = (int32_t)((uint32_t)sum[m][n] + (uint32_t)(A[m][k] * B[k][n]));
    for (int r = 0; r < 4; r++) {
        int32_t *v = at(w, d[r]);
        for (int l = 0; l < LANES; l++)
            v[l] = sum[SUM_ROW(l, r)][SUM_COLUMN(l, r)];
    }
}
/* mma.sync.m16n8kK: v has d (4), a, b, c (4). The function is compiled for each kind separately. */
void sim_mma_op(struct warp *w, const struct ins *i)
{
    all_lanes(w, i);
    switch ((enum mma)i->kind) {
#define KIND(K, F)  \
    case K:         \
        F(w, i, K); \
        break;
        KIND(MMA_F16_K16, multiply)
        KIND(MMA_F16_K8, multiply)
        KIND(MMA_TF32_K8, multiply)
        KIND(MMA_S8_K32, multiply_whole)
        KIND(MMA_U8_K32, multiply_whole)
        KIND(MMA_U8_K16, multiply_whole)
        KIND(MMA_S8_K16, multiply_whole)
#undef KIND
    }
}

/* --- wgmma ------------------------------------------------------------------------------------------------------ */

enum { K = 16 };

/* A product that has not been waited for. Its result is computed at once here, but its inputs must not change. */
struct product {
    const struct ins *i;
    uint64_t desc;
    uint32_t group;
    uint16_t read[256][K];
};

/* Reads B from a descriptor: N columns of 16 halves. */
static void read_columns(struct warp *w, const struct ins *i, uint64_t desc, uint16_t to[256][K])
{
    const uint32_t start = (uint32_t)(desc & 0x3fff) << 4, lead = (uint32_t)(desc >> 16 & 0x3fff) << 4,
                   stride = (uint32_t)(desc >> 32 & 0x3fff) << 4;
    for (uint32_t n = 0; n < i->kind; n++)
        for (uint32_t k = 0; k < K; k += 8) {
            uint64_t address = start + k / 8 * lead + n / 8 * stride + n % 8 * 16;
            memcpy(to[n] + k, sim_place(w, i, -1, SPACE_SHARED, address, 16), 16);
        }
}
static void remember(struct warp *w, const struct ins *i, uint64_t desc, uint16_t read[256][K])
{
    enum { PRODUCTS_MAX = 256 };
    if (!w->products)
        w->products = malloc(PRODUCTS_MAX * sizeof *w->products);
    if (!w->products || w->n_products == PRODUCTS_MAX)
        sim_fault(w, i, -1, "%u products under way", w->n_products);
    struct product *p = w->products + w->n_products++;
    p->i = i, p->desc = desc, p->group = w->product_group;
    memcpy(p->read, read, i->kind * sizeof *read);
}
/* wgmma.commit_group */
void sim_wgmma_commit_op(struct warp *w, const struct ins *i)
{
    (void)i;
    w->product_group++;
}
/* wgmma.wait_group: at most the `kind` youngest groups may remain in flight. */
void sim_wgmma_wait_op(struct warp *w, const struct ins *i)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < w->n_products; k++) {
        struct product *p = w->products + k;
        uint16_t now[256][K];
        if (p->group + i->kind >= w->product_group) {
            w->products[n++] = *p;
            continue;
        }
        read_columns(w, p->i, p->desc, now);
        if (memcmp(now, p->read, p->i->kind * sizeof *now))
            sim_fault(w, p->i, -1, "shared memory was written that this product, under way, still reads");
    }
    w->n_products = n;
}
/*
 * wgmma.mma_async.m64nNk16 of fp16 with A in registers and B in shared memory without swizzle, K-major: core matrices
 * of 8 rows of 16 bytes each; the next eight of k are `lead` bytes further, and the next eight rows `stride`. A warp
 * has sixteen of the 64 rows of D, so that the four warps need not wait for each other here. v: d (N / 2), a (4); b:
 * the descriptor; c: whether D is accumulated; kind: N.
 */
void sim_wgmma_op(struct warp *w, const struct ins *i)
{
    const int N = (int)i->kind;
    const operand *d = i->v, *a = d + N / 2;
    double A[16][K];
    double B[K][256], sum[256];
    all_lanes(w, i);
    uint64_t desc = *(const uint64_t *)at(w, i->b);
    for (int l = 1; l < LANES; l++)
        if (((const uint64_t *)at(w, i->b))[l] != desc)
            sim_fault(w, i, l, "another descriptor than the warp's first thread has");
    if (desc >> 49 & 7 || desc >> 62)
        sim_fault(w, i, -1, "descriptor 0x%llx: only matrices without swizzle are simulated", (unsigned long long)desc);
    uint16_t halves[256][K];
    read_columns(w, i, desc, halves);
    for (int n = 0; n < N; n++)
        for (int k = 0; k < K; k++)
            B[k][n] = half_to(halves[n][k]);
    if (sim_late())
        remember(w, i, desc, halves);
    for (int r = 0; r < 4; r++) {
        const uint32_t *v = lanes(w, a[r]);
        for (int l = 0; l < LANES; l++)
            for (int e = 0; e < 2; e++)
                A[l / 4 + 8 * (r & 1)][l % 4 * 2 + e + 8 * (r >> 1)] = half_to((uint16_t)(v[l] >> 16 * e));
    }
    const bool add = pred_of(w, i->c) & 1;
    for (int m = 0; m < 16; m++) {
        /* Register 4 q + 2 (m / 8) + e of lane 4 (m % 8) + t is column 8 q + 2 t + e. */
        for (int n = 0; n < N; n++) {
            float f = 0;
            if (add)
                memcpy(&f, lanes(w, d[n / 8 * 4 + m / 8 * 2 + n % 2]) + m % 8 * 4 + n % 8 / 2, 4);
            sum[n] = f;
        }
        for (int k = 0; k < K; k++)
            for (int n = 0; n < N; n++)
                sum[n] += A[m][k] * B[k][n];
        for (int n = 0; n < N; n++) {
            float f = (float)sum[n];
            memcpy(lanes(w, d[n / 8 * 4 + m / 8 * 2 + n % 2]) + m % 8 * 4 + n % 8 / 2, &f, 4);
        }
    }
}

/* --- matrices of 8 x 8 ------------------------------------------------------------------------------------------ */

/* ldmatrix.x4[.trans] {v}, [a]: lane 8 m + r has the address of row r of matrix m. kind 1: transposed; n: the number of
 * matrices. */
void sim_ldmatrix_op(struct warp *w, const struct ins *i)
{
    all_lanes(w, i);
    uint32_t t[4][LANES];
    for (int m = 0; m < i->n; m++) {
        uint16_t matrix[8][8];
        for (int r = 0; r < 8; r++) {
            int l = 8 * m + r;
            memcpy(matrix[r], sim_place(w, i, l, SPACE_SHARED, sim_address(w, i, l), 16), 16);
        }
        for (int l = 0; l < LANES; l++) {
            int r = l / 4, c = l % 4 * 2;
            t[m][l] = i->kind ? matrix[c][r] | (uint32_t)matrix[c + 1][r] << 16
                              : matrix[r][c] | (uint32_t)matrix[r][c + 1] << 16;
        }
    }
    for (int m = 0; m < i->n; m++)
        put32(w, i->v[m], t[m]);
}
/* movmatrix.trans d, a */
void sim_movmatrix_op(struct warp *w, const struct ins *i)
{
    all_lanes(w, i);
    const uint32_t *a = lanes(w, i->a);
    uint16_t matrix[8][8];
    uint32_t t[LANES];
    for (int l = 0; l < LANES; l++)
        matrix[l / 4][l % 4 * 2] = (uint16_t)a[l], matrix[l / 4][l % 4 * 2 + 1] = (uint16_t)(a[l] >> 16);
    for (int l = 0; l < LANES; l++)
        t[l] = matrix[l % 4 * 2][l / 4] | (uint32_t)matrix[l % 4 * 2 + 1][l / 4] << 16;
    put32(w, i->d, t);
}
