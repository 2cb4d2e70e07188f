/* gemv_launch.cuh - which kernel of gemv.cuh takes how many rows of a matrix, and with how much shared memory. */
#ifndef HEARTH_CUDA_GEMM_GEMV_LAUNCH_CUH
#define HEARTH_CUDA_GEMM_GEMV_LAUNCH_CUH

#include "kernels/cuda/gemm/gemv.cuh"

/* Shared memory for a block. A block of two sets has three quarters of an SM's, so that the next kernel's block fits
 * beside it. */
template <int CGROUPS> static uint32_t gemv_smem(const struct device *d, int blocks)
{
    return CGROUPS == 1 ? smem_for(d, blocks) : smem_for(d, 1) - smem_for(d, 4);
}

/* The part of it that a block uses apart from its ring. */
template <int M, int CGROUPS, int EP> static uint32_t gemv_beside_ring(const gemm_args &a)
{
    return gemv_shape<M, CGROUPS, EP>::fixed(a) + (EP == GEMV_QKV_NORMED ? heads_smem(M, a.d_head) : 0);
}

/* Whether M rows of activations fit beside two stages, or, with two sets, beside one record's stages for each set. Sets
 * that share the rows may have all of an SM. */
template <int TA, int TB, int M, int CGROUPS, int EP> static bool gemv_fits(const struct device *d, const gemm_args &a)
{
    using R = gemv_ring<TA, TB>;
    uint32_t least = CGROUPS == 1 ? 2 : CGROUPS * (R::PA > R::PB ? R::PA : R::PB);
    return gemv_beside_ring<M, CGROUPS, EP>(a) + least * R::stage_bytes(a.n_kblk) <=
           (in_sets(EP) ? smem_for(d, 1) : gemv_smem<CGROUPS>(d, 1));
}

/* Whether two blocks of one set fit on an SM. */
template <int TA, int TB, int M, int EP> static bool gemv_fits_twice(const struct device *d, const gemm_args &a)
{
    return gemv_beside_ring<M, 1, EP>(a) + 2 * gemv_ring<TA, TB>::stage_bytes(a.n_kblk) <= smem_for(d, 2);
}

template <int TA, int TB, int M, int CGROUPS, int EP> static void launch_gemv(struct device *d, gemm_args a)
{
    static uint32_t done;
    using R = gemv_ring<TA, TB>;
    constexpr uint32_t per = R::PA > R::PB ? R::PA : R::PB;
    constexpr uint32_t even = CGROUPS == 1 ? 1 : CGROUPS * per; /* the ring holds whole turns of the sets: see pass() */
    uint32_t fixed = gemv_beside_ring<M, CGROUPS, EP>(a), cluster = EP == GEMV_QKV_NORMED ? a.pair : 1,
             units = (a.tile_hi - a.tile_lo) / (a.pair ? 2 : 1), blocks = M == 1 && a.blocks ? a.blocks : 2,
             room = gemv_smem<CGROUPS>(d, blocks);
    if (in_sets(EP))
        blocks = 1, room = smem_for(d, 1);
    a.stage_bytes = R::stage_bytes(a.n_kblk);
    while (CGROUPS == 1 && blocks > 1 && room < fixed + 2 * a.stage_bytes)
        room = gemv_smem<CGROUPS>(d, --blocks);
    uint32_t grid = min_u(units, d->sms * blocks / cluster * cluster),
             tiles = (units + grid - 1) / grid * (a.pair ? 2 : 1),
             need = (tiles * ((a.n_kblk + K_SLICES - 1) / K_SLICES) * per + even - 1) / even * even;
    bool many = grid > (uint32_t)d->sms;
    a.stages = min_u((room - fixed) / a.stage_bytes / even * even, STAGES_MAX);
    if (many || CGROUPS > 1) /* no more than its tiles need: the next kernel's blocks then fit beside these and start */
        a.stages = min_u(a.stages, need);
    /* Where kernels start early (PDL), loads of the row would queue behind further copies; elsewhere a second stage is
     * in flight while the first arrives. */
    a.in_flight = a.bulk ? CGROUPS : min_u(2 * CGROUPS, a.stages);
    if (in_sets(EP)) /* see gemv_consumer() */
        a.in_flight = min_u(a.in_flight, a.stages - 1);
    a.bucket = M;
    smem_once(d, gemv_int8<TA, TB, M, CGROUPS, EP>, &done);
    cuda_launch_clusters(d, cluster, gemv_int8<TA, TB, M, CGROUPS, EP>, dim3(grid), gemv_shape<M, CGROUPS, EP>::THREADS,
                         fixed + a.stages * a.stage_bytes, LAUNCH_PDL, a);
}

/* Whether each tile of a block's pair may have a set of warps of its own: at most one pair per SM, and room for all of
 * the pair's stages. */
template <int TA, int TB, int EP> static bool gemv_by_tile(const struct device *d, const gemm_args &a)
{
    using R = gemv_ring<TA, TB>;
    uint32_t stages = 2 * ((a.n_kblk + K_SLICES - 1) / K_SLICES) * (R::PA > R::PB ? R::PA : R::PB);
    return a.pair && a.tile_hi - a.tile_lo <= 2 * (uint32_t)d->sms && stages <= STAGES_MAX &&
           gemv_beside_ring<1, 2, EP>(a) + stages * R::stage_bytes(a.n_kblk) <= gemv_smem<2>(d, 2);
}

/* The largest round for M rows that fits; 0: none fits, or only one with which records would be converted again for
 * many tiles. */
template <int TA, int TB, int M, int EP> static uint32_t gemv_round(const struct device *d, gemm_args a)
{
    uint32_t steps = (a.n_kblk + K_SLICES - 1) / K_SLICES;
    for (a.round = steps; a.round && !gemv_fits<TA, TB, M, 1, EP>(d, a);)
        a.round--;
    return a.round == steps || a.tile_hi - a.tile_lo <= 2 * FLUSH * (uint32_t)d->sms ? a.round : 0;
}

/*
 * Runs all rows in launches of four, two and one. CGROUPS: sets of warps that share a tile, one or two, which depends
 * on the matrix alone, as the order of the sums follows from it. A single row whose tiles are finished in pairs, at
 * most one pair per SM, has a set for each tile of a pair. Four rows, and two of which one block would have an SM to
 * itself, have two sets, each with tiles of its own, so that a row is converted once for sixteen warps; on cards
 * before Hopper that is slower, as it is for logits.
 */
template <int TA, int TB, int CGROUPS, int EP> static void gemv_rows(struct device *d, gemm_args a)
{
    [[maybe_unused]] constexpr int ROUNDS = EP == GEMV_QKV ? GEMV_QKV_ROUNDS : GEMV_REST_ROUNDS;
    constexpr bool may = CGROUPS == 1 && (EP == GEMV_QKV || EP == GEMV_REST);
    uint32_t rows = a.bucket, m;
    auto rounds = [&](auto number) {
        [[maybe_unused]] constexpr int M = decltype(number)::value;
        if constexpr (may)
            if (rows >= M && (a.round = gemv_round<TA, TB, M, ROUNDS>(d, a))) {
                launch_gemv<TA, TB, M, 1, ROUNDS>(d, a);
                return true;
            }
        return false;
    };
    [[maybe_unused]] auto sets = [&](auto number) {
        [[maybe_unused]] constexpr int M = decltype(number)::value;
        if constexpr (may && rows_of<TA>::TAKES && rows_of<TB>::TAKES) {
            constexpr int TWICE = EP == GEMV_QKV ? GEMV_QKV_SETS : GEMV_REST_SETS;
            bool some = a.bulk && (a.ep == EP_QKV || a.ep == EP_PROJ || a.ep == EP_GLU);
            if (some && rows >= M && (M == 4 || !gemv_fits_twice<TA, TB, M, EP>(d, a)) &&
                gemv_fits<TA, TB, M, 2, TWICE>(d, a)) {
                launch_gemv<TA, TB, M, 2, TWICE>(d, a);
                return true;
            }
        }
        return false;
    };
    for (; rows; rows -= m, a.row0 += m)
        if (sets(gemv_number<4>()))
            m = 4;
        else if (rows >= 4 && gemv_fits<TA, TB, 4, CGROUPS, EP>(d, a))
            m = 4, launch_gemv<TA, TB, 4, CGROUPS, EP>(d, a);
        else if (rounds(gemv_number<4>()))
            m = 4;
        else if (sets(gemv_number<2>()))
            m = 2;
        else if (rows >= 2 && gemv_fits<TA, TB, 2, CGROUPS, EP>(d, a))
            m = 2, launch_gemv<TA, TB, 2, CGROUPS, EP>(d, a);
        else if (rounds(gemv_number<2>()))
            m = 2;
        else if (is_qkv(EP) && gemv_by_tile<TA, TB, EP>(d, a))
            m = 1, launch_gemv < TA, TB, 1, 2, is_qkv(EP) ? EP : GEMV_QKV > (d, a);
        else {
            m = 1;
            if constexpr (EP == GEMV_REST && CGROUPS == 1 && TA == TB)
                if (a.pairs) {
                    a.pair = 1; /* pairs of adjacent tiles */
                    launch_gemv<TA, TA, 1, 2, GEMV_PAIRS>(d, a);
                    continue;
                }
            launch_gemv<TA, TB, 1, CGROUPS, EP>(d, a);
        }
}

template <int TA, int TB> static void run_gemv(struct device *d, const gemm_args &a)
{
    if (a.ep == EP_QKV && (a.head_norm[0].w || a.head_norm[1].w || a.head_norm[2].w)) {
        gemv_rows<TA, TB, 1, GEMV_QKV_NORMED>(d, a);
        return;
    }
    if (a.ep == EP_QKV) {
        gemv_rows<TA, TB, 1, GEMV_QKV>(d, a);
        return;
    }
    if constexpr (TA == TB)
        if (a.ep != EP_GLU && !a.xf && a.tile_hi - a.tile_lo <= (uint32_t)d->sms && a.n_kblk > 2 * K_SLICES &&
            gemv_fits<TA, TB, 1, 2, GEMV_REST>(d, a)) {
            gemv_rows<TA, TB, 2, GEMV_REST>(d, a);
            return;
        }
    gemv_rows<TA, TB, 1, GEMV_REST>(d, a);
}

#endif
