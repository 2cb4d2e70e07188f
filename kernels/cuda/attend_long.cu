/*
 * attend_long.cu - attention for many rows a sequence: a block takes 128 rows (query heads of a group times
 * tokens) and walks the KV in blocks that pass through shared memory, with a running softmax: FlashAttention-2 over
 * paged KV. Sequences of a few rows in the same step are attend.cu's, which can split a long context over many blocks.
 */
#include "kernels/cuda/attend.cuh"
#include "kernels/cuda/local.cuh"

enum { LONG_ROWS = 128, LONG_THREADS = 256, SHORT_MAX = 16 };

template <int D> struct tiles {
    static constexpr int BN = D > 128 ? 32 : 64; /* tokens of KV a turn */
    static constexpr int ROW = D * 2 + 16;       /* bytes: an odd number of 16, so that ldmatrix meets no bank twice */
    static constexpr int BYTES = BN * ROW;       /* of K, or of V */
    static constexpr int SMEM = 4 * BYTES;       /* two stages of K and V */
};

/* 16 bytes to shared memory; zeros where there is nothing to read. */
__device__ static inline void copy16(void *dst, const void *src, bool in)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_at(dst)), "l"(src), "r"(in ? 16 : 0)
                 : "memory");
#else
    *(uint4 *)dst = in ? *(const uint4 *)src : make_uint4(0, 0, 0, 0);
#endif
}
__device__ static inline void copy_commit()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int LEFT> __device__ static inline void copy_wait()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}
__device__ static inline void ldm4t(uint32_t r[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

template <int D>
__device__ static inline void load_block(uint8_t *to, const attend_args &a, const uint32_t *pages, uint32_t head,
                                         uint32_t tok0, uint32_t len)
{
    typedef tiles<D> T;
    constexpr int C = D / 8; /* 16-byte pieces of a row */
    for (int i = threadIdx.x; i < T::BN * C; i += LONG_THREADS) {
        uint32_t r = i / C, c = i % C, tok = tok0 + r;
        bool in = tok < len;
        uint32_t slot = in ? pages[tok / KV_PAGE] * KV_PAGE + tok % KV_PAGE : 0;
        const __half *k = kv_k(a.kv, slot, head) + 8 * c;
        copy16(to + r * T::ROW + 16 * c, k, in);
        copy16(to + T::BYTES + r * T::ROW + 16 * c, k + a.kv.v_off, in);
    }
}

template <int D> __global__ void __launch_bounds__(LONG_THREADS, 1) attend_rows(attend_args a)
{
    typedef tiles<D> T;
    constexpr int KS = D / 16, NT = T::BN / 8, DT = D / 8;
    extern __shared__ __align__(128) uint8_t sm8[];
    pdl_go();
    pdl_wait();
    const step_dev *st = a.s;
    /* the sequence of this tile; later tiles see more tokens and start first */
    uint32_t tile = gridDim.x - 1 - blockIdx.x, head = blockIdx.y, s = 0;
    for (;; s++) {
        uint32_t n = st->n_rows[s];
        if (n <= SHORT_MAX)
            continue;
        uint32_t t = (n * a.group + LONG_ROWS - 1) / LONG_ROWS;
        if (tile < t)
            break;
        tile -= t;
    }
    uint32_t n = st->n_rows[s] * a.group, row0 = st->row0[s], pos0 = st->pos0[s];
    const uint32_t *pages = a.pages + st->pages0[s];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    uint32_t first = tile * LONG_ROWS, rg = first + warp * 16 + g, rh = rg + 8;
    bool live_g = rg < n, live_h = rh < n;
    int pos_g = live_g ? (int)(pos0 + rg / a.group) : -1, pos_h = live_h ? (int)(pos0 + rh / a.group) : -1;
    uint32_t pos_lo = pos0 + first / a.group, pos_hi = pos0 + (min(first + LONG_ROWS, n) - 1) / a.group;
    uint32_t see_lo = a.window && pos_lo + 1 > a.window ? pos_lo + 1 - a.window : 0, len = pos_hi + 1;
    int lo_g = a.window && pos_g + 1 > (int)a.window ? pos_g + 1 - (int)a.window : 0;
    int lo_h = a.window && pos_h + 1 > (int)a.window ? pos_h + 1 - (int)a.window : 0;
    uint32_t b0 = see_lo / T::BN, b1 = (len + T::BN - 1) / T::BN;

    uint32_t q[KS][4];
    const __half *qg = a.q + (uint64_t)(row0 + rg / a.group) * a.ldq + (head * a.group + rg % a.group) * D + 2 * t;
    const __half *qh = a.q + (uint64_t)(row0 + rh / a.group) * a.ldq + (head * a.group + rh % a.group) * D + 2 * t;
#pragma unroll
    for (int k = 0; k < KS; k++) {
        q[k][0] = live_g ? *(const uint32_t *)(qg + 16 * k) : 0,
        q[k][1] = live_h ? *(const uint32_t *)(qh + 16 * k) : 0;
        q[k][2] = live_g ? *(const uint32_t *)(qg + 16 * k + 8) : 0,
        q[k][3] = live_h ? *(const uint32_t *)(qh + 16 * k + 8) : 0;
    }
    float o[DT][4], m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < DT; i++)
        o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0;
    uint32_t k_at = ((lane & 7) + (lane >> 4) * 8) * T::ROW + (lane >> 3 & 1) * 16;
    uint32_t v_at = ((lane & 7) + (lane >> 3 & 1) * 8) * T::ROW + (lane >> 4) * 16;
    const float log2e = 1.4426950408889634f, scale2 = a.scale * log2e;

    load_block<D>(sm8, a, pages, head, b0 * T::BN, len);
    copy_commit();
    for (uint32_t b = b0; b < b1; b++) {
        uint8_t *now = sm8 + ((b - b0) & 1) * 2 * T::BYTES;
        if (b + 1 < b1) {
            load_block<D>(sm8 + ((b + 1 - b0) & 1) * 2 * T::BYTES, a, pages, head, (b + 1) * T::BN, len);
            copy_commit();
            copy_wait<1>();
        } else
            copy_wait<0>();
        __syncthreads();
        uint32_t kb = shared_at(now) + k_at, vb = shared_at(now + T::BYTES) + v_at;
        float c[NT][4];
#pragma unroll
        for (int i = 0; i < NT; i++)
            c[i][0] = c[i][1] = c[i][2] = c[i][3] = 0;
#pragma unroll
        for (int k = 0; k < KS; k++)
#pragma unroll
            for (int i = 0; i < NT; i += 2) {
                uint32_t f[4];
                ldm4(f, kb + i * 8 * T::ROW + k * 32);
                mma16816(c[i], q[k][0], q[k][1], q[k][2], q[k][3], f[0], f[1]);
                mma16816(c[i + 1], q[k][0], q[k][1], q[k][2], q[k][3], f[2], f[3]);
            }
        if (a.softcap != 0) {
#pragma unroll
            for (int i = 0; i < NT; i++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    c[i][e] = act_softcap(c[i][e] * a.scale, a.softcap) * log2e;
        }
        float f = a.softcap != 0 ? 1.f : scale2;
        int tok0 = (int)(b * T::BN) + 2 * t;
        bool edge = (b + 1) * T::BN > pos_lo + 1 || a.window;
        float top[2] = {m[0], m[1]};
#pragma unroll
        for (int i = 0; i < NT; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float v = c[i][e] * f;
                if (edge) {
                    int tok = tok0 + 8 * i + (e & 1);
                    bool see = e < 2 ? tok <= pos_g && tok >= lo_g : tok <= pos_h && tok >= lo_h;
                    v = see ? v : -INFINITY;
                }
                c[i][e] = v;
                top[e / 2] = fmaxf(top[e / 2], v);
            }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 1));
            top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 2));
            float old = m[r] == -INFINITY ? 0.f : exp2f(m[r] - top[r]);
            m[r] = top[r];
            l[r] *= old;
#pragma unroll
            for (int i = 0; i < DT; i++)
                o[i][2 * r] *= old, o[i][2 * r + 1] *= old;
        }
        float base[2] = {m[0] == -INFINITY ? 0.f : m[0], m[1] == -INFINITY ? 0.f : m[1]};
        uint32_t p[NT][2];
#pragma unroll
        for (int i = 0; i < NT; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                __half2 h = __floats2half2_rn(exp2f(c[i][2 * r] - base[r]), exp2f(c[i][2 * r + 1] - base[r]));
                float2 x = __half22float2(h);
                l[r] += x.x + x.y;
                p[i][r] = *(uint32_t *)&h;
            }
#pragma unroll
        for (int k = 0; k < NT; k += 2)
#pragma unroll
            for (int i = 0; i < DT; i += 2) {
                uint32_t w[4];
                ldm4t(w, vb + k * 8 * T::ROW + i * 16);
                mma16816(o[i], p[k][0], p[k][1], p[k + 1][0], p[k + 1][1], w[0], w[1]);
                mma16816(o[i + 1], p[k][0], p[k][1], p[k + 1][0], p[k + 1][1], w[2], w[3]);
            }
        __syncthreads();
    }
    /* results pass through shared memory (every warp is done with it), so that rows leave in whole sub-blocks */
    constexpr int OLD = D + 8;
    __half *out = (__half *)sm8;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        l[r] += __shfl_xor_sync(~0u, l[r], 1);
        l[r] += __shfl_xor_sync(~0u, l[r], 2);
        float inv = (r ? live_h : live_g) ? 1.f / l[r] : 0.f;
#pragma unroll
        for (int i = 0; i < DT; i++)
            *(__half2 *)(out + (warp * 16 + g + 8 * r) * OLD + 8 * i + 2 * t) =
                __halves2half2(half_sat(o[i][2 * r] * inv), half_sat(o[i][2 * r + 1] * inv));
    }
    __syncthreads();
    for (int i = threadIdx.x; i < LONG_ROWS * D / 4; i += LONG_THREADS) { /* whole warps: four neighbours a lane */
        uint32_t r = i / (D / 4), dim = i % (D / 4) * 4, p = first + r;
        uint32_t k = (head * a.group + p % a.group) * D + dim;
        union {
            uint2 u;
            __half h[4];
        } v, w;
        v.u = *(const uint2 *)(out + r * OLD + dim);
        float sum = (__half2float(v.h[0]) + __half2float(v.h[1])) + (__half2float(v.h[2]) + __half2float(v.h[3]));
        for (int d = 1; d < 8; d *= 2)
            sum += __shfl_xor_sync(~0u, sum, d);
        if (p >= n)
            continue;
        __half *to = a.out.p + (uint64_t)(row0 + p / a.group) * a.out.ld;
        if (a.out.plain) {
            *(uint2 *)(to + k) = v.u;
            continue;
        }
        w.h[0] = v.h[0], w.h[1] = v.h[2], w.h[2] = v.h[1], w.h[3] = v.h[3];
        *(uint2 *)(to + prep_at(k)) = w.u;
        if (D % 32 == 0 && k % 32 == 0) {
            __half hi = half_sat(sum);
            to[prep_sum_at(k)] = hi, to[prep_sum_at(k) + 8] = half_sat(sum - __half2float(hi));
        }
    }
}

/* --- launchers ------------------------------------------------------------------------------------------------ */

void attend_long_init(struct device *d)
{
    cuda_smem(d, attend_rows<64>, tiles<64>::SMEM);
    cuda_smem(d, attend_rows<80>, tiles<80>::SMEM);
    cuda_smem(d, attend_rows<96>, tiles<96>::SMEM);
    cuda_smem(d, attend_rows<128>, tiles<128>::SMEM);
    cuda_smem(d, attend_rows<256>, tiles<256>::SMEM);
}

bool attend_long(struct device *d, const struct op_attend *op, attend_args a, uint32_t *rows_max)
{
    uint32_t n_tile = 0, n_short = 0;
    for (uint32_t s = 0; s < d->n_seq; s++) {
        uint32_t n = d->host->n_rows[s];
        if (n <= SHORT_MAX)
            n_short += n;
        else
            n_tile += (n * a.group + LONG_ROWS - 1) / LONG_ROWS;
    }
    dim3 grid(n_tile, op->n_kv);
    *rows_max = SHORT_MAX;
    switch (op->d_head) {
    case 64:
        cuda_launch(d, attend_rows<64>, grid, LONG_THREADS, tiles<64>::SMEM, LAUNCH_PDL, a);
        break;
    case 80:
        cuda_launch(d, attend_rows<80>, grid, LONG_THREADS, tiles<80>::SMEM, LAUNCH_PDL, a);
        break;
    case 96:
        cuda_launch(d, attend_rows<96>, grid, LONG_THREADS, tiles<96>::SMEM, LAUNCH_PDL, a);
        break;
    case 128:
        cuda_launch(d, attend_rows<128>, grid, LONG_THREADS, tiles<128>::SMEM, LAUNCH_PDL, a);
        break;
    case 256:
        cuda_launch(d, attend_rows<256>, grid, LONG_THREADS, tiles<256>::SMEM, LAUNCH_PDL, a);
        break;
    default:
        return false;
    }
    return n_short == 0;
}
