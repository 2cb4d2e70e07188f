/*
 * chunk.cu - a prompt's rows through a gated delta net in chunks of 64 rows, for steps that are not invariant: matrix
 * products on tensor cores instead of one row after the other (recur.cu).
 *
 * Let G_i be the sum of the logarithms of keep from a chunk's first row to row i, and S the state at the beginning of
 * the chunk. Then
 *
 *     change_i = beta_i (v_i - e^G_i S^T k_i - sum over j < i of e^(G_i - G_j) (k_i . k_j) change_j),
 *
 * a triangular system, whose inverse is the UT transform of Yang and others, 2024 ("Gated Delta Networks"):
 *
 *     U = T (V - e^G K S),   T = (1 + strictly lower of beta_i e^(G_i - G_j) k_i . k_j)^-1 beta,
 *     Y = e^G Q S + P U,     P = lower of e^(G_i - G_j) q_i . k_j,
 *     S' = e^G_end S + K^T (e^(G_end - G) U).
 *
 * T and P do not depend on the state: `chunk_within` computes them for all chunks at once, with one block for each
 * chunk and key head. `chunk_across` goes through a sequence's chunks with S in registers, 16 columns of it in each
 * warp. There everything is transposed, so that S, V and U are the left operand of each product: the accumulators of
 * one product become the left operand of the next in the registers where they are, and no warp waits for another except
 * for copies of K, Q, T and P.
 *
 * Every factor is the sum of two numbers of 11 bits, x = hi + lo with lo = x - hi, and a product is three, with sums in
 * F32: hi hi + lo hi + hi lo. The error is of the size of F32's own rounding, so that the result is as far from the
 * exact one as that of the recurrence (tests/ops/chunks). Products with K and Q are in fp16: their elements are at most
 * 1, and constant factors bring them into its range; each warp scales S and its changes by a power of two, by their
 * largest number. Products with T and P are in TF32, which has F32's range: after a row that forgets, later ones may be
 * smaller by any factor, and each row of Y is normed by itself. What S keeps over a chunk is stored as the loss, as in
 * the recurrence. Sums of G are in double, since a row that forgets everything may be next to rows that forget nothing.
 *
 * A row with a number that is not finite makes everything after it in its head NaN, as in the recurrence, but must not
 * affect the rows before it, with which it shares products: such a row and those that follow it enter the products as
 * zeros, and are marked.
 */
#include "kernels/cuda/states/chunk.cuh"

#include <cuda_pipeline_primitives.h>

enum {
    ACROSS_THREADS = 128,
    ACROSS_COLS = 64,
    VALUES = ACROSS_COLS + 4 /* floats of a row of V; padded so that a fragment's lanes have no bank conflicts */
};

/* --- S, chunk after chunk --------------------------------------------------------------------------------------- */

struct across_stage {
    __half k[2][ROWS * D], q[2][ROWS * D];
    float t[ROWS * ROWS], p[ROWS * ROWS];
    float2 gate[ROWS];
};
struct across_smem {
    across_stage stage[2];
    float v[ROWS][VALUES]; /* each warp has its own columns */
};

/* Copies a chunk's k, q, T, P and gates. All pieces that a thread copies have the same place in their rows. */
__device__ static inline void fetch(const recur_args &a, across_stage &st, uint32_t head, uint32_t of, uint32_t row0,
                                    uint32_t n)
{
    enum { OF_ROW = 4 * D / 8, OF_BELOW = 2 * ROWS / 4 }; /* pieces of a row: of k and q, of T and P */
    uint32_t p = threadIdx.x % (D / 8), which = threadIdx.x % OF_ROW / (D / 8), r = threadIdx.x / OF_ROW;
    const float *row = a.made + (uint64_t)row0 * a.ldmade;
    const __half *from = (const __half *)(row + (which < 2 ? a.at_k : a.at_q) + of * D) + which % 2 * D + p * 8;
    __half *to = which < 2 ? st.k[which] : st.q[which - 2];
#pragma unroll 8
    for (; r < ROWS; r += ACROSS_THREADS / OF_ROW)
        __pipeline_memcpy_async(piece<D / 8>(to, r, p), from + (r < n ? r : 0) * 2 * a.ldmade, 16, r < n ? 0 : 16);
    p = threadIdx.x % (ROWS / 4), which = threadIdx.x % OF_BELOW / (ROWS / 4), r = threadIdx.x / OF_BELOW;
    const float *below = made_of(a, row0, head) + which * ROWS + p * 4;
#pragma unroll 8
    for (; r < ROWS; r += ACROSS_THREADS / OF_BELOW)
        if (p / 4 <= r / 16)
            __pipeline_memcpy_async(four(which ? st.p : st.t, r, p), below + (r < n ? r : 0) * a.ldmade, 16,
                                    r < n ? 0 : 16);
    r = threadIdx.x;
    if (r < ROWS)
        __pipeline_memcpy_async(&st.gate[r], gates_of_row(a, row0 + (r < n ? r : 0), head), 8, r < n ? 0 : 8);
    __pipeline_commit();
}

/* Copies sixteen columns of v, from `from` on, to the warp's part of shared memory. */
__device__ static inline void fetch_values(float (*to)[VALUES], const float *from, uint32_t ld, uint32_t n)
{
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t r = lane / 4; r < ROWS; r += 8)
        __pipeline_memcpy_async(&to[r][lane % 4 * 4], from + (uint64_t)(r < n ? r : 0) * ld + lane % 4 * 4, 16,
                                r < n ? 0 : 16);
    __pipeline_commit();
}

/* The power of two that scales the largest of a warp's numbers, given as its bits, into [2^12, 2^13), or less if it is
 * below 2^-114; and its inverse. */
struct power {
    float up, down;
    __device__ explicit power(uint32_t most)
    {
        uint32_t e = max(__reduce_max_sync(~0u, most) >> 23, 13u);
        up = __uint_as_float((266 - e) << 23), down = __uint_as_float((e - 12) << 23);
    }
};
template <int N> __device__ static inline uint32_t most_of(const float (&x)[N][4])
{
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            most = max(most, __float_as_uint(x[i][e]) & 0x7fffffff);
    return most;
}

/* A block computes 64 columns of a head for all chunks of a sequence. In accumulators, x[n][e] is for column g + 8 (e /
 * 2) of the warp's, and for row 8 n + 2 t + e % 2 of the chunk or of S. */
__global__ void __launch_bounds__(ACROSS_THREADS, 1) chunk_across(const __grid_constant__ recur_args a)
{
    extern __shared__ __align__(128) uint8_t dynamic[];
    across_smem &m = *(across_smem *)dynamic;
    uint32_t head = blockIdx.x / (D / ACROSS_COLS), seq = blockIdx.y, lane = threadIdx.x % 32, g = lane / 4,
             t = lane % 4;
    uint32_t first = blockIdx.x % (D / ACROSS_COLS) * ACROSS_COLS + threadIdx.x / 32 * 16, col = first + g,
             of = a.tiled ? head % a.n_k : head / (a.n_v / a.n_k);
    const step_dev *meta = a.state.s;
    uint32_t row0 = meta->row0[seq], n_row = meta->n_rows[seq];
    pdl_trigger();
    if (seq >= meta->n_seq || n_row < CHUNK_LEAST) {
        pdl_wait();
        return;
    }
    uint64_t at = (uint64_t)(a.conv.n_tap - 1) * a.n_channel + (uint64_t)head * D * D;
    const float *from = state_from(a.state, seq);
    float s[D / 8][4];
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[n][e] = from ? __ldcg(from + at + (8 * n + 2 * t + e % 2) * D + col + e / 2 * 8) : 0.f;
    pdl_wait();
    float *values = a.made + (uint64_t)row0 * a.ldmade + a.at_v + head * D + first; /* the warp's */
    float(*v_of)[VALUES] = (float(*)[VALUES])(m.v[0] + threadIdx.x / 32 * 16);
    fetch(a, m.stage[0], head, of, row0, min((uint32_t)ROWS, n_row));
    fetch_values(v_of, values, a.ldmade, min((uint32_t)ROWS, n_row));
    for (uint32_t r0 = 0, turn = 0; r0 < n_row; r0 += ROWS, turn ^= 1) {
        uint32_t n_here = min((uint32_t)ROWS, n_row - r0), next = r0 + ROWS, n_next = min((uint32_t)ROWS, n_row - next);
        float x[8][4] = {}, y[8][4] = {};
        __pipeline_wait_prior(0);
        __syncthreads();
        if (next < n_row) /* all warps have read the previous chunk by now */
            fetch(a, m.stage[turn ^ 1], head, of, row0 + next, n_next);
        across_stage &st = m.stage[turn];
        uint32_t most = __reduce_max_sync(~0u, most_of(s));
        bool dead = no_number(most); /* an earlier row was not finite */
        uint32_t none[2] = {__ballot_sync(~0u, isnan(st.gate[lane].x)),
                            __ballot_sync(~0u, isnan(st.gate[lane + 32].x))};
        uint32_t bad = dead ? 0 : none[0] ? __ffs(none[0]) - 1 : none[1] ? 31 + __ffs(none[1]) : ROWS;

        const uint32_t r_of = lane / 16 * 8 + lane % 8,
                       p_of = lane / 8 % 2; /* the lane's piece of a tile of 16 rows by 16 */
        const power by(dead ? 0 : most);
#pragma unroll
        for (uint32_t ks = 0; ks < D / 16; ks++) {
            left l;
            l.of_sums(s[2 * ks], s[2 * ks + 1], by.up);
            add16<4, false>(x, l, ROWS * D, [&](int n) { return piece<D / 8>(st.k[0], 16 * n + r_of, 2 * ks + p_of); });
            add16<4, false>(y, l, ROWS * D, [&](int n) { return piece<D / 8>(st.q[0], 16 * n + r_of, 2 * ks + p_of); });
        }
        /* x = V - e^G K S, y = e^G Q S */
        uint32_t first_bad = bad;
#pragma unroll
        for (int n = 7; n >= 0; n--) {
            const keeps keep[2] = {keeps(st.gate[8 * n + 2 * t].x), keeps(st.gate[8 * n + 2 * t + 1].x)};
#pragma unroll
            for (int e = 3; e >= 0; e--) {
                uint32_t r = 8 * n + 2 * t + e % 2;
                float v = v_of[r][g + e / 2 * 8];
                x[n][e] = v - keep[e % 2].of(x[n][e] * (by.down / CHUNK_K));
                y[n][e] = keep[e % 2].of(y[n][e] * (by.down / CHUNK_Q));
                first_bad = no_number(__float_as_uint(v)) ? min(first_bad, r) : first_bad;
            }
        }
        __syncwarp();
        if (next < n_row)
            fetch_values(v_of, values + ROWS * a.ldmade, a.ldmade, n_next);
        bad = __reduce_min_sync(~0u, first_bad);
        if (bad < ROWS)
#pragma unroll
            for (int n = 0; n < 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    x[n][e] = 8 * n + 2 * t + e % 2 < bad ? x[n][e] : 0.f;
        /* u = T x; y += P u */
        float u[8][4] = {};
        add_triangle(u, x, st.t);
        add_triangle(y, u, st.p);
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                uint32_t r = 8 * n + 2 * t + e % 2;
                if (r < n_here)
                    values[r * a.ldmade + g + e / 2 * 8] = r < bad ? y[n][e] : __int_as_float(0x7fffffff);
                u[n][e] *= st.gate[r].y;
            }
        /* S' = S - lost S + K^T u */
        left l[4];
        const keeps keep(st.gate[n_here - 1].x);
        const power by_u(most_of(u));
#pragma unroll
        for (uint32_t ks = 0; ks < 4; ks++)
            l[ks].of_sums(u[2 * ks], u[2 * ks + 1], by_u.up);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum[8][4] = {};
#pragma unroll
            for (uint32_t ks = 0; ks < 4; ks++)
                add16<4, true>(sum, l[ks], ROWS * D, [&](int n) {
                    return piece<D / 8>(st.k[0], 16 * ks + p_of * 8 + lane % 8, 8 * half + 2 * n + lane / 16);
                });
#pragma unroll
            for (int n = 0; n < 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    float &now = s[8 * half + n][e];
                    now = bad < ROWS ? __int_as_float(0x7fffffff) : fmaf(sum[n][e], by_u.down / CHUNK_K, keep.of(now));
                }
        }
        values += ROWS * a.ldmade;
    }
    float *to = state_to(a.state, seq);
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            to[at + (8 * n + 2 * t + e % 2) * D + col + e / 2 * 8] = s[n][e];
    leave_inputs(a, state_from(a.state, seq), to, row0, n_row, blockIdx.x, gridDim.x);
}

/* --- launchers -------------------------------------------------------------------------------------------------- */

uint32_t delta_chunks(const struct device *d, const recur_args &a, uint32_t *others)
{
    uint32_t chunks = 0;
    *others = state_seqs(d);
    if (!a.delta || d->invariant != INVARIANT_OFF || d->decode || d->cc < 90 || a.d_k != D || a.d_v != D ||
        a.conv.n_tap != 4 || (uintptr_t)a.conv.w & 15 || (uintptr_t)a.conv.bias & 15 ||
        a.n_channel + a.n_v * (D + 2) > a.ldmade || sizeof(across_smem) > d->smem_max)
        return 0;
    for (uint32_t i = 0; i < d->n_seq; i++)
        if (d->host->n_rows[i] >= CHUNK_LEAST)
            chunks += (d->host->n_rows[i] + ROWS - 1) / ROWS, --*others;
    return chunks;
}

void delta_chunks_run(struct device *d, const recur_args &a)
{
    static uint32_t done;
    if (!(done >> d->index & 1)) {
        cuda_smem(d, chunk_across, sizeof(across_smem));
        done |= 1u << d->index;
    }
    delta_chunks_within(d, a);
    cuda_launch(d, chunk_across, dim3(a.n_v * (D / ACROSS_COLS), d->n_seq), ACROSS_THREADS, sizeof(across_smem),
                LAUNCH_PDL, a);
}
