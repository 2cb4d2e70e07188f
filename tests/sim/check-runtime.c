/*
 * check-runtime.c - the simulated runtime does and refuses what CUDA does: memory, copies, mapping, captures, launches,
 * sticky errors, and the product of its cuBLASLt.
 */
#include "tests/sim/check.h"

#include <cublasLt.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { N = 64 };

static void ok(cudaError_t rc)
{
    if (rc)
        fail_msg("%s", cudaGetErrorString(rc));
}

/* Checks that the call failed with that error, and that the device still works. */
static void refused(cudaError_t rc, cudaError_t as)
{
    assert_int_equal(rc, as);
    assert_int_equal(cudaGetLastError(), as);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
}

static uint32_t *numbers(uint32_t first)
{
    uint32_t v[N], *p = NULL;
    for (uint32_t i = 0; i < N; i++)
        v[i] = first + i;
    ok(cudaMalloc((void **)&p, sizeof(v)));
    ok(cudaMemcpy(p, v, sizeof(v), cudaMemcpyHostToDevice));
    return p;
}

static void expect(const uint32_t *p, uint32_t first)
{
    uint32_t v[N];
    ok(cudaMemcpy(v, p, sizeof(v), cudaMemcpyDeviceToHost));
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(v[i], first + i);
}

static cudaError_t add(cudaStream_t s, uint32_t *at, uint32_t by, dim3 grid, dim3 block, size_t shared,
                       uint32_t cluster)
{
    void *args[] = {&at, &by};
    cudaLaunchAttribute attr = {.id = cudaLaunchAttributeClusterDimension, .val.clusterDim = {cluster, 1, 1}};
    cudaLaunchConfig_t c = {grid, block, shared, s, &attr, cluster > 1};
    return cudaLaunchKernelExC(&c, check_kernel(CHECK_ADD), args);
}

static void test_memory(void **state)
{
    (void)state;
    size_t before, during, after, total, most = (size_t)1 << 40;
    uint8_t *p, *q, v[100];
    void *too_much;
    ok(cudaMemGetInfo(&before, &total));
    ok(cudaMalloc((void **)&p, sizeof(v)));
    assert_int_equal((uintptr_t)p % 256, 0);
    ok(cudaMemGetInfo(&during, &total));
    assert_true(before > during);
    ok(cudaMemcpy(v, p, sizeof(v), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < sizeof(v); i++)
        assert_int_equal(v[i], 0xff);
    refused(cudaMalloc(&too_much, most), cudaErrorMemoryAllocation);
    refused(cudaFree(p + 1), cudaErrorInvalidValue);
    refused(cudaMemcpy(p, v, sizeof(v) + 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    refused(cudaMemcpy(p, v, sizeof(v), cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    refused(cudaMemset(p + 1, 0, sizeof(v)), cudaErrorInvalidValue);
    ok(cudaHostAlloc((void **)&q, 64, cudaHostAllocDefault));
    refused(cudaFree(q), cudaErrorInvalidValue);
    ok(cudaFreeHost(q));
    ok(cudaHostRegister(v, sizeof(v), cudaHostRegisterDefault));
    refused(cudaHostRegister(v + 99, 1, cudaHostRegisterDefault), cudaErrorHostMemoryAlreadyRegistered);
    ok(cudaHostUnregister(v));
    refused(cudaHostUnregister(v), cudaErrorHostMemoryNotRegistered);
    ok(cudaFree(p));
    ok(cudaFree(NULL));
    ok(cudaMemGetInfo(&after, &total));
    assert_int_equal(after, before);
}

static void test_rows(void **state)
{
    (void)state;
    uint8_t in[4][10], out[4][16], *p;
    for (int i = 0; i < 40; i++)
        in[i / 10][i % 10] = (uint8_t)i;
    memset(out, 0xaa, sizeof(out));
    ok(cudaMalloc((void **)&p, 4 * 32));
    ok(cudaMemcpy2D(p, 32, in, 10, 7, 4, cudaMemcpyHostToDevice));
    ok(cudaMemcpy2D(out, 16, p, 32, 8, 4, cudaMemcpyDeviceToHost));
    for (int y = 0; y < 4; y++)
        for (int x = 0; x < 16; x++)
            assert_int_equal(out[y][x], x < 7 ? 10 * y + x : x == 7 ? 0xff : 0xaa);
    refused(cudaMemcpy2D(p, 32, in, 10, 11, 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    ok(cudaFree(p));
}

static void test_mapping(void **state)
{
    (void)state;
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    assert_non_null(lib);
#define CALL(name) __typeof__(&name) name##_ = (__typeof__(&name))dlsym(lib, #name)
    CALL(cuMemGetAllocationGranularity);
    CALL(cuMemAddressReserve);
    CALL(cuMemAddressFree);
    CALL(cuMemCreate);
    CALL(cuMemRelease);
    CALL(cuMemMap);
    CALL(cuMemUnmap);
    CALL(cuMemSetAccess);
    CUmemAllocationProp what = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAccessDesc who = {what.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle memory[2], none;
    CUdeviceptr at;
    size_t g, before, during, after, total;
    uint8_t *v, *far;
    ok(cudaMemGetInfo(&before, &total));
    assert_int_equal(cuMemGetAllocationGranularity_(&g, &what, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressReserve_(&at, 4 * g, 0, 0, 0), CUDA_SUCCESS);
    v = calloc(2, g);
    far = (uint8_t *)(uintptr_t)at;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cuMemCreate_(&memory[i], g, &what, 0), CUDA_SUCCESS);
        assert_int_equal(cuMemMap_(at + (size_t)(i + 1) * g, g, 0, memory[i], 0), CUDA_SUCCESS);
        refused(cudaMemset(far + (size_t)(i + 1) * g, 0, g),
                cudaErrorInvalidValue); /* no access has been granted yet */
        assert_int_equal(cuMemSetAccess_(at + (size_t)(i + 1) * g, g, &who, 1), CUDA_SUCCESS);
    }
    assert_int_equal(cuMemMap_(at + g, g, 0, memory[1], 0), CUDA_ERROR_INVALID_VALUE); /* the addresses are taken */
    assert_int_equal(cuMemCreate_(&none, (size_t)1 << 40, &what, 0), CUDA_ERROR_OUT_OF_MEMORY);
    ok(cudaMemGetInfo(&during, &total));
    assert_int_equal(before - during, 2 * g);
    ok(cudaMemcpy(v, far + g, 2 * g, cudaMemcpyDeviceToHost)); /* across the boundary */
    assert_int_equal(v[0], 0xff);
    ok(cudaMemset(far + g, 7, 2 * g));
    ok(cudaMemcpy(v, far + g, 2 * g, cudaMemcpyDeviceToHost));
    assert_int_equal(v[0] + v[2 * g - 1], 14);
    refused(cudaMemset(far + 2 * g, 0, g + 1), cudaErrorInvalidValue);
    refused(cudaMemset(far, 0, 1), cudaErrorInvalidValue);
    assert_int_equal(cuMemUnmap_(at + g, g), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressFree_(at, 4 * g), CUDA_ERROR_INVALID_VALUE); /* half of the range is mapped */
    refused(cudaMemset(far + g, 0, 1), cudaErrorInvalidValue);
    /* the memory outlives its mapping, and has the same contents when it is mapped elsewhere */
    assert_int_equal(cuMemMap_(at, g, 0, memory[0], 0), CUDA_SUCCESS);
    assert_int_equal(cuMemSetAccess_(at, g, &who, 1), CUDA_SUCCESS);
    ok(cudaMemcpy(v, far, g, cudaMemcpyDeviceToHost));
    assert_int_equal(v[g - 1], 7);
    assert_int_equal(cuMemUnmap_(at, g), CUDA_SUCCESS);
    assert_int_equal(cuMemUnmap_(at + 2 * g, g), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease_(memory[0]), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease_(memory[1]), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressFree_(at, 4 * g), CUDA_SUCCESS);
    ok(cudaMemGetInfo(&after, &total));
    assert_int_equal(after, before);
    free(v);
    dlclose(lib);
}

static void test_launch(void **state)
{
    (void)state;
    uint32_t *p = numbers(5);
    struct cudaFuncAttributes a;
    struct cudaDeviceProp prop;
    ok(add(NULL, p, 10, (dim3){2, 1, 1}, (dim3){32, 1, 1}, 0, 2));
    check_add_plainly(p, 100, 1, 64);
    ok(cudaGetLastError());
    expect(p, 115);
    refused(add(NULL, p, 1, (dim3){1, 1, 1}, (dim3){1025, 1, 1}, 0, 1), cudaErrorInvalidConfiguration);
    refused(add(NULL, p, 1, (dim3){0, 1, 1}, (dim3){32, 1, 1}, 0, 1), cudaErrorInvalidConfiguration);
    refused(add(NULL, p, 1, (dim3){1, 1, 1}, (dim3){65, 1, 1}, 0, 1),
            cudaErrorInvalidValue); /* exceeds its launch bounds */
    refused(add(NULL, p, 1, (dim3){3, 1, 1}, (dim3){16, 1, 1}, 0, 2), cudaErrorInvalidConfiguration);
    refused(add(NULL, p, 1, (dim3){16, 1, 1}, (dim3){4, 1, 1}, 0, 16), cudaErrorInvalidClusterSize);
    refused(add(NULL, p, 1, (dim3){2, 1, 1}, (dim3){32, 1, 1}, (48 << 10) + 1, 1), cudaErrorInvalidValue);
    refused(cudaFuncSetAttribute(check_kernel(CHECK_ADD), cudaFuncAttributeMaxDynamicSharedMemorySize, (227 << 10) + 1),
            cudaErrorInvalidValue);
    refused(
        cudaFuncSetAttribute(check_kernel(CHECK_ROOM), cudaFuncAttributeMaxDynamicSharedMemorySize, (226 << 10) + 1),
        cudaErrorInvalidValue); /* plus its static shared memory */
    ok(cudaFuncSetAttribute(check_kernel(CHECK_ROOM), cudaFuncAttributeMaxDynamicSharedMemorySize, 226 << 10));
    ok(cudaFuncSetAttribute(check_kernel(CHECK_ADD), cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10));
    refused(add(NULL, p, 1, (dim3){2, 1, 1}, (dim3){32, 1, 1}, (100 << 10) + 1, 1), cudaErrorInvalidValue);
    ok(add(NULL, p, 1, (dim3){2, 1, 1}, (dim3){32, 1, 1}, 100 << 10, 1));
    expect(p, 116);
    refused(cudaFuncGetAttributes(&a, state), cudaErrorInvalidDeviceFunction);
    ok(cudaFuncGetAttributes(&a, check_kernel(CHECK_ADD)));
    assert_int_equal(a.maxThreadsPerBlock, 64);
    assert_int_equal(a.ptxVersion, 90);
    ok(cudaGetDeviceProperties(&prop, 0));
    assert_int_equal(10 * prop.major + prop.minor, 90);
    refused(cudaGetDeviceProperties(&prop, 1), cudaErrorInvalidDevice);
    ok(cudaFree(p));
}

/* Kernels that are compiled for a cluster size need no launch attribute, and no other size is accepted. */
static void test_pairs(void **state)
{
    (void)state;
    uint32_t *out, got[4];
    ok(cudaMalloc((void **)&out, sizeof(got)));
    void *args[] = {&out};
    cudaLaunchAttribute four = {.id = cudaLaunchAttributeClusterDimension, .val.clusterDim = {4, 1, 1}};
    cudaLaunchConfig_t c = {{4, 1, 1}, {1, 1, 1}, 0, NULL, &four, 1};
    ok(cudaLaunchKernel(check_kernel(CHECK_PAIR), (dim3){4, 1, 1}, (dim3){1, 1, 1}, args, 0, NULL));
    ok(cudaMemcpy(got, out, sizeof(got), cudaMemcpyDeviceToHost));
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(got[i], 20 + i % 2);
    refused(cudaLaunchKernel(check_kernel(CHECK_PAIR), (dim3){3, 1, 1}, (dim3){1, 1, 1}, args, 0, NULL),
            cudaErrorInvalidConfiguration);
    refused(cudaLaunchKernelExC(&c, check_kernel(CHECK_PAIR), args), cudaErrorInvalidClusterSize);
    ok(cudaFree(out));
}

static void test_params(void **state)
{
    (void)state;
    uint8_t first = 1;
    uint16_t last = 60000;
    struct check_params params = {1ull << 40, {2, 3, 4}};
    uint64_t *out, got;
    ok(cudaMalloc((void **)&out, sizeof(got)));
    void *args[] = {&first, &params, &last, &out};
    ok(cudaLaunchKernel(check_kernel(CHECK_MIXED), (dim3){1, 1, 1}, (dim3){1, 1, 1}, args, 8, NULL));
    ok(cudaMemcpy(&got, out, sizeof(got), cudaMemcpyDeviceToHost));
    assert_true(got == (1ull << 40) + 60010);

    struct check_many many;
    uint32_t at = 5999;
    for (uint32_t i = 0; i < 6000; i++)
        many.v[i] = i + 1;
    void *more[] = {&many, &at, &out};
    ok(cudaMemset(out, 0, sizeof(got)));
    ok(cudaLaunchKernel(check_kernel(CHECK_MANY), (dim3){1, 1, 1}, (dim3){1, 1, 1}, more, 0, NULL));
    ok(cudaMemcpy(&got, out, sizeof(got), cudaMemcpyDeviceToHost));
    assert_int_equal(got, 6000);
    ok(cudaFree(out));
}

static void test_capture(void **state)
{
    (void)state;
    uint32_t *p = numbers(0), *q = numbers(1000), *pin;
    cudaStream_t s, side;
    cudaEvent_t fork, join;
    cudaGraph_t g;
    cudaGraphExec_t x;
    ok(cudaHostAlloc((void **)&pin, N * 4, cudaHostAllocDefault));
    ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    ok(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    ok(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    ok(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    ok(add(s, p, 1, (dim3){2, 1, 1}, (dim3){32, 1, 1}, 0, 1));
    ok(cudaEventRecord(fork, s));
    ok(cudaStreamWaitEvent(side, fork, 0));
    ok(cudaMemcpyAsync(q, p, N * 4, cudaMemcpyDeviceToDevice, side));
    ok(cudaEventRecord(join, side));
    refused(cudaEventQuery(join), cudaErrorCapturedEvent);
    ok(cudaStreamWaitEvent(s, join, 0));
    ok(add(s, q, 100, (dim3){2, 1, 1}, (dim3){32, 1, 1}, 0, 1));
    ok(cudaMemsetAsync(pin, 0, 4, s));
    ok(cudaMemcpyAsync(pin + 1, q + 1, (N - 1) * 4, cudaMemcpyDeviceToHost, s));
    ok(cudaStreamEndCapture(s, &g));
    expect(p, 0); /* nothing was executed */
    expect(q, 1000);
    ok(cudaGraphInstantiate(&x, g, 0));
    ok(cudaGraphDestroy(g));
    for (uint32_t i = 1; i < 4; i++) {
        ok(cudaGraphLaunch(x, s));
        ok(cudaStreamSynchronize(s));
        expect(p, i);
        expect(q, 100 + i);
        assert_int_equal(pin[0], 0);
        assert_int_equal(pin[N - 1], 100 + i + N - 1);
    }
    ok(cudaGraphExecDestroy(x));

    /* A call that is forbidden during a capture ends it. */
    ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    refused(cudaMalloc((void **)&x, 1), cudaErrorStreamCaptureUnsupported);
    refused(cudaStreamEndCapture(s, &g), cudaErrorStreamCaptureInvalidated);
    assert_null(g);
    /* A stream that was drawn into the capture and never joined. */
    ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    ok(cudaEventRecord(fork, s));
    ok(cudaStreamWaitEvent(side, fork, 0));
    ok(cudaMemsetAsync(q, 0, 4, side));
    refused(cudaStreamEndCapture(s, &g), cudaErrorStreamCaptureUnjoined);
    /* An event from outside of the capture. */
    ok(cudaEventRecord(join, side));
    ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    refused(cudaStreamWaitEvent(s, join, 0), cudaErrorStreamCaptureIsolation);
    refused(cudaStreamEndCapture(s, &g), cudaErrorStreamCaptureInvalidated);
    ok(cudaEventDestroy(fork));
    ok(cudaEventDestroy(join));
    ok(cudaStreamDestroy(s));
    ok(cudaStreamDestroy(side));
    ok(cudaFreeHost(pin));
    ok(cudaFree(p));
    ok(cudaFree(q));
}

static void test_events(void **state)
{
    (void)state;
    cudaEvent_t from, to, untimed;
    float ms = -1;
    ok(cudaEventCreate(&from));
    ok(cudaEventCreate(&to));
    ok(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    ok(cudaEventRecord(from, NULL));
    refused(cudaEventElapsedTime(&ms, from, to), cudaErrorInvalidResourceHandle);
    ok(cudaEventRecord(to, NULL));
    ok(cudaEventRecord(untimed, NULL));
    ok(cudaEventQuery(to));
    ok(cudaEventElapsedTime(&ms, from, to));
    assert_true(ms >= 0);
    refused(cudaEventElapsedTime(&ms, from, untimed), cudaErrorInvalidResourceHandle);
    ok(cudaEventDestroy(from));
    ok(cudaEventDestroy(to));
    ok(cudaEventDestroy(untimed));
}

/* y[rows][n] = x[rows][k] w[n][k]^T as the backend requests it, then once more added to the result; captured. */
static void test_product(void **state)
{
    (void)state;
    enum { ROWS = 5, OUT = 7, K = 19, LDW = 24, LDX = 20, LDY = 8 };
    _Float16 w[OUT * LDW], x[ROWS * LDX];
    float y[ROWS * LDY], one = 1;
    void *dw, *dx, *dy;
    for (int i = 0; i < OUT * LDW; i++)
        w[i] = (_Float16)(i % 13 - 6);
    for (int i = 0; i < ROWS * LDX; i++)
        x[i] = (_Float16)(0.25f * (float)(i % 11 - 5));
    ok(cudaMalloc(&dw, sizeof(w)));
    ok(cudaMalloc(&dx, sizeof(x)));
    ok(cudaMalloc(&dy, sizeof(y)));
    ok(cudaMemcpy(dw, w, sizeof(w), cudaMemcpyHostToDevice));
    ok(cudaMemcpy(dx, x, sizeof(x), cudaMemcpyHostToDevice));

    void *lib = dlopen("libcublasLt.so.13", RTLD_NOW);
    assert_non_null(lib);
    CALL(cublasLtCreate);
    CALL(cublasLtMatmulDescCreate);
    CALL(cublasLtMatmulDescSetAttribute);
    CALL(cublasLtMatrixLayoutCreate);
    CALL(cublasLtMatmul);
    cublasLtHandle_t h;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t lw, lx, ly;
    cublasOperation_t t = CUBLAS_OP_T;
    assert_int_equal(cublasLtCreate_(&h), 0);
    assert_int_equal(cublasLtMatmulDescCreate_(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), 0);
    assert_int_equal(cublasLtMatmulDescSetAttribute_(desc, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof(t)), 0);
    assert_int_equal(cublasLtMatrixLayoutCreate_(&lw, CUDA_R_16F, K, OUT, LDW), 0);
    assert_int_equal(cublasLtMatrixLayoutCreate_(&lx, CUDA_R_16F, K, ROWS, LDX), 0);
    assert_int_equal(cublasLtMatrixLayoutCreate_(&ly, CUDA_R_32F, OUT, ROWS, LDY), 0);
    cudaStream_t s;
    cudaGraph_t g;
    cudaGraphExec_t exec;
    ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    for (float beta = 0; beta <= 1; beta++)
        assert_int_equal(cublasLtMatmul_(h, desc, &one, dw, lw, dx, lx, &beta, dy, ly, dy, ly, NULL, NULL, 0, s), 0);
    ok(cudaStreamEndCapture(s, &g));
    ok(cudaGraphInstantiate(&exec, g, 0));
    ok(cudaGraphLaunch(exec, s));
    ok(cudaMemcpy(y, dy, sizeof(y), cudaMemcpyDeviceToHost));
    for (int r = 0; r < ROWS; r++)
        for (int o = 0; o < OUT; o++) {
            float sum = 0;
            for (int k = 0; k < K; k++)
                sum += (float)w[o * LDW + k] * (float)x[r * LDX + k]; /* all of it is exact */
            assert_float_equal(y[r * LDY + o], 2 * sum, 0);
        }
    assert_true(isnan(y[OUT])); /* the padding is unchanged */
    assert_int_equal(cublasLtMatmul_(h, desc, &one, dw, lx, dx, lx, &one, dy, ly, dy, ly, NULL, NULL, 0, s),
                     CUBLAS_STATUS_INVALID_VALUE);
    ok(cudaGraphExecDestroy(exec));
    ok(cudaGraphDestroy(g));
    ok(cudaStreamDestroy(s));
    ok(cudaFree(dw));
    ok(cudaFree(dx));
    ok(cudaFree(dy));
    dlclose(lib);
}

/* A fault in a kernel is returned by every later call, until the device is reset. */
static void test_sticks(void **state)
{
    (void)state;
    void *nowhere = (void *)(uintptr_t)0x1000, *args[] = {&nowhere};
    void *p;
    ok(cudaLaunchKernel(check_kernel(CHECK_WILD), (dim3){1, 1, 1}, (dim3){1, 1, 1}, args, 0, NULL));
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_int_equal(cudaMalloc(&p, 1), cudaErrorIllegalAddress);
    ok(cudaDeviceReset());
    ok(cudaMalloc(&p, 1));
    ok(cudaFree(p));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),  cmocka_unit_test(test_rows),   cmocka_unit_test(test_mapping),
        cmocka_unit_test(test_launch),  cmocka_unit_test(test_pairs),  cmocka_unit_test(test_params),
        cmocka_unit_test(test_capture), cmocka_unit_test(test_events), cmocka_unit_test(test_product),
        cmocka_unit_test(test_sticks),
    };
    return cmocka_run_group_tests_name("simulated runtime", tests, NULL, NULL);
}
