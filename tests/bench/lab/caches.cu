/*
 * caches.cu - the laboratory of caches: what code costs by its size, when it runs again and after other code; and what
 * it costs to read memory that other SMs have prefetched into L2.
 *
 *     nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a tests/bench/lab/caches.cu -o lab && ./lab
 */
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 132, RUNS = 9, PASSES = 3, PROBE_KB = 16 };

static long long *clocks;
static float *never;

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *v, int n)
{
    qsort(v, n, sizeof(*v), ascending);
    return v[n / 2];
}

/* --- code: a KiB is 64 instructions ----------------------------------------------------------------------------- */

#define FOUR                                                                                                    \
    asm volatile("fma.rn.f32 %0, %0, %4, %5; fma.rn.f32 %1, %1, %4, %5; fma.rn.f32 %2, %2, %4, %5; fma.rn.f32 " \
                 "%3, %3, %4, %5;"                                                                              \
                 : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])                                               \
                 : "f"(x), "f"(y));
#define SIXTEEN FOUR FOUR FOUR FOUR
#define KIB     SIXTEEN SIXTEEN SIXTEEN SIXTEEN

template <int KB> __device__ __forceinline__ void code(float (&s)[4], float x, float y)
{
    if constexpr (KB > 1) {
        code<KB / 2>(s, x, y);
        code<KB - KB / 2>(s, x, y);
    } else {
        KIB
    }
}
/* Executes KB of code once per pass, in one warp of each block. WHICH: selects a separate copy of the code. */
template <int WHICH, int KB> __global__ void run(int passes, float x, float y, long long *out, float *never)
{
    float s[4] = {x, y, x, y};
#pragma unroll 1
    for (int p = 0; p < passes; p++) {
        long long begin = clock64();
        code<KB>(s, x, y);
        out[p * gridDim.x + blockIdx.x] = clock64() - begin;
    }
    if (s[0] + s[1] + s[2] + s[3] == 1.2345f)
        *never = s[0];
}

static double clocks_of(int pass)
{
    long long v[BLOCKS];
    double d[BLOCKS];
    cudaMemcpy(v, clocks + pass * BLOCKS, sizeof(v), cudaMemcpyDeviceToHost);
    for (int i = 0; i < BLOCKS; i++)
        d[i] = (double)v[i];
    return median(d, BLOCKS);
}
template <int KB> static void again(void)
{
    for (int i = 0; i < RUNS; i++)
        run<0, KB><<<BLOCKS, 32>>>(PASSES, 1, 2, clocks, never);
    cudaDeviceSynchronize();
    printf("%4d KB, clocks a KB: at first %.0f, again %.0f, %.0f\n", KB, clocks_of(0) / KB, clocks_of(1) / KB,
           clocks_of(2) / KB);
}
template <int KB> static void behind(void)
{
    double v[RUNS];
    for (int i = 0; i < RUNS; i++) {
        run<1, PROBE_KB><<<BLOCKS, 32>>>(1, 1, 2, clocks, never);
        run<2, KB><<<BLOCKS, 32>>>(1, 1, 2, clocks, never);
        run<1, PROBE_KB><<<BLOCKS, 32>>>(1, 1, 2, clocks, never);
        cudaDeviceSynchronize();
        v[i] = clocks_of(0);
    }
    printf("%d KB behind %3d KB of a kernel between: %.0f clocks\n", PROBE_KB, KB, median(v, RUNS));
}

/* --- memory ----------------------------------------------------------------------------------------------------- */

__global__ void prefetch(const char *p, unsigned kb)
{
    for (unsigned k = blockIdx.x * blockDim.x + threadIdx.x; k < kb; k += gridDim.x * blockDim.x)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], 1024;" ::"l"(p + (size_t)k * 1024) : "memory");
}
__global__ void read(const uint4 *p, unsigned n, float *never)
{
    enum { AT_ONCE = 4 };
    unsigned all = 0, step = gridDim.x * blockDim.x;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step * AT_ONCE) {
        uint4 v[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            v[j] = i + j * step < n ? __ldcg(p + i + j * step) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            all ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
    if (all == 12345)
        *never = all;
}

/* Microseconds of f() after before(), starting with other memory in L2. */
template <class B, class F> static double time_of(const char *memory, B before, F f)
{
    const size_t MB = 1 << 20;
    double v[RUNS];
    cudaEvent_t begin, end;
    cudaEventCreate(&begin), cudaEventCreate(&end);
    for (int i = 0; i < RUNS; i++) {
        float ms;
        read<<<2 * BLOCKS, 1024>>>((const uint4 *)(memory + 512 * MB), 400 * MB / 16, never);
        before();
        cudaDeviceSynchronize();
        cudaEventRecord(begin);
        f();
        cudaEventRecord(end), cudaEventSynchronize(end);
        cudaEventElapsedTime(&ms, begin, end);
        v[i] = ms * 1e3;
    }
    cudaEventDestroy(begin), cudaEventDestroy(end);
    return median(v, RUNS);
}

int main(void)
{
    char *memory;
    if (cudaMalloc(&clocks, PASSES * BLOCKS * sizeof(*clocks)) || cudaMalloc(&never, sizeof(*never)) ||
        cudaMalloc(&memory, 1u << 30) || cudaMemset(memory, 1, 1u << 30)) {
        fprintf(stderr, "no GPU, or no GiB of its memory\n");
        return 1;
    }
    again<16>(), again<24>(), again<32>(), again<48>(), again<96>(), again<128>(), again<144>(), again<256>();
    behind<1>(), behind<16>(), behind<32>(), behind<64>(), behind<128>(), behind<256>(), behind<512>();
    for (unsigned mb = 8; mb <= 32; mb += 8) {
        unsigned n = (mb << 20) / 16;
        auto reads = [&] { read<<<2 * BLOCKS, 1024>>>((const uint4 *)memory, n, never); };
        auto prefetches = [&](int blocks) { prefetch<<<blocks, 1024>>>(memory, mb << 10); };
        printf("%2u MB, us: read %.1f, again %.1f, asked for by others %.1f; to ask by 4, 8, 16, 32 processors", mb,
               time_of(
                   memory, [] {}, reads),
               time_of(memory, reads, reads),
               time_of(
                   memory, [&] { prefetches(BLOCKS); }, reads));
        for (int blocks = 4; blocks <= 32; blocks *= 2)
            printf(" %.1f", time_of(
                                memory, [] {}, [&] { prefetches(blocks); }));
        printf("\n");
    }
    cudaError_t rc = cudaDeviceSynchronize();
    if (rc)
        fprintf(stderr, "%s\n", cudaGetErrorString(rc));
    return rc != cudaSuccess;
}
