/*
 * cublaslt.c - the cuBLASLt of the simulated GPU: libcublasLt.so.N is another name of the same library. It does what
 * the backend requests (a product of column-major matrices, each F16 or F32, summed in double precision and rounded
 * once) and refuses everything else.
 */
#include "config.h"
#include "tests/sim/runtime.h"

#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct desc {
    cublasOperation_t a, b;
};
struct layout {
    cudaDataType type;
    uint64_t rows, cols;
    int64_t ld;
};
struct product {
    struct desc op;
    struct layout a, b, c, d;
    const void *pa, *pb, *pc;
    void *pd;
    float alpha, beta;
};

/* Makes one of the library's opaque handles. */
static cublasStatus_t made(void *out, size_t n, const void *as)
{
    void *p = malloc(n);
    if (!p)
        return CUBLAS_STATUS_ALLOC_FAILED;
    memcpy(p, as, n);
    memcpy(out, &p, sizeof(p));
    return CUBLAS_STATUS_SUCCESS;
}

RT_API cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    return made(out, 1, "");
}

RT_API cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    free(h);
    return CUBLAS_STATUS_SUCCESS;
}

RT_API cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                               cudaDataType_t scale)
{
    const struct desc none = {CUBLAS_OP_N, CUBLAS_OP_N};
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return made(out, sizeof(none), &none);
}

RT_API cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

RT_API cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attr,
                                                     const void *buf, size_t n)
{
    struct desc *d = (struct desc *)desc;
    cublasOperation_t op;
    if (n != sizeof(op) || (attr != CUBLASLT_MATMUL_DESC_TRANSA && attr != CUBLASLT_MATMUL_DESC_TRANSB))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memcpy(&op, buf, n);
    if (op != CUBLAS_OP_N && op != CUBLAS_OP_T)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *(attr == CUBLASLT_MATMUL_DESC_TRANSA ? &d->a : &d->b) = op;
    return CUBLAS_STATUS_SUCCESS;
}

RT_API cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                                 uint64_t cols, int64_t ld)
{
    const struct layout l = {type, rows, cols, ld};
    if (type != CUDA_R_16F && type != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (ld < 0 || (uint64_t)ld < rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    return made(out, sizeof(l), &l);
}

RT_API cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

RT_API cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    return made(out, 1, "");
}

RT_API cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref)
{
    free(pref);
    return CUBLAS_STATUS_SUCCESS;
}

RT_API cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                           cublasLtMatmulPreferenceAttributes_t attr, const void *buf,
                                                           size_t n)
{
    (void)pref, (void)buf, (void)n;
    return attr == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

RT_API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t desc,
                                                     cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                     cublasLtMatmulPreference_t pref, int most,
                                                     cublasLtMatmulHeuristicResult_t *got, int *n)
{
    (void)h, (void)desc, (void)a, (void)b, (void)c, (void)d, (void)pref;
    *n = most < 1 ? 0 : 1;
    if (*n)
        got[0] = (cublasLtMatmulHeuristicResult_t){.state = CUBLAS_STATUS_SUCCESS};
    return *n ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/* --- the product ---------------------------------------------------------------------------------------------- */

static float get(const void *p, cudaDataType type, uint64_t i)
{
    return type == CUDA_R_16F ? (float)((const _Float16 *)p)[i] : ((const float *)p)[i];
}

/* The matrix as rows of k floats each, one for each row or column of the product. */
static float *gather(const void *p, const struct layout *l, bool by_columns, uint64_t n, uint64_t k)
{
    float *v = malloc((n * k + 1) * sizeof(*v));
    for (uint64_t i = 0; v && i < n; i++)
        for (uint64_t j = 0; j < k; j++)
            v[i * k + j] = get(p, l->type, by_columns ? i * (uint64_t)l->ld + j : j * (uint64_t)l->ld + i);
    return v;
}

static double dot(const float *a, const float *b, uint64_t k)
{
    double s[8] = {0}, sum = 0;
    uint64_t j = 0;
    for (; j + 8 <= k; j += 8)
        for (int i = 0; i < 8; i++)
            s[i] += (double)a[j + i] * b[j + i];
    for (; j < k; j++)
        sum += (double)a[j] * b[j];
    for (int i = 0; i < 8; i++)
        sum += s[i];
    return sum;
}

static bool readable(const void *p, const struct layout *l)
{
    size_t size = l->type == CUDA_R_16F ? 2 : 4;
    return !l->cols || !l->rows || rt_may_touch(p, ((l->cols - 1) * (uint64_t)l->ld + l->rows) * size);
}

static void multiply(void *data)
{
    const struct product *p = data;
    uint64_t m = p->d.rows, n = p->d.cols, k = p->op.a == CUBLAS_OP_T ? p->a.rows : p->a.cols;
    if (!readable(p->pa, &p->a) || !readable(p->pb, &p->b) || !readable(p->pd, &p->d) ||
        (p->beta != 0 && !readable(p->pc, &p->c))) {
        fprintf(stderr, "sim: cublasLtMatmul(): a matrix of %llu x %llu x %llu is not the GPU's\n",
                (unsigned long long)m, (unsigned long long)n, (unsigned long long)k);
        rt_fail(cudaErrorIllegalAddress);
        return;
    }
    float *a = gather(p->pa, &p->a, p->op.a == CUBLAS_OP_T, m, k),
          *b = gather(p->pb, &p->b, p->op.b != CUBLAS_OP_T, n, k);
    if (!a || !b) {
        rt_fail(cudaErrorMemoryAllocation);
        goto out;
    }
    for (uint64_t j = 0; j < n; j++)
        for (uint64_t i = 0; i < m; i++) {
            double v = p->alpha * dot(a + i * k, b + j * k, k);
            if (p->beta != 0)
                v += (double)p->beta * get(p->pc, p->c.type, j * (uint64_t)p->c.ld + i);
            if (p->d.type == CUDA_R_16F)
                ((_Float16 *)p->pd)[j * (uint64_t)p->d.ld + i] = (_Float16)v;
            else
                ((float *)p->pd)[j * (uint64_t)p->d.ld + i] = (float)v;
        }
out:
    free(a);
    free(b);
}

RT_API cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                                     cublasLtMatrixLayout_t la, const void *b, cublasLtMatrixLayout_t lb,
                                     const void *beta, const void *c, cublasLtMatrixLayout_t lc, void *d,
                                     cublasLtMatrixLayout_t ld, const cublasLtMatmulAlgo_t *algo, void *workspace,
                                     size_t workspace_bytes, cudaStream_t stream)
{
    (void)h, (void)algo, (void)workspace, (void)workspace_bytes;
    struct product p = {*(const struct desc *)desc,
                        *(const struct layout *)la,
                        *(const struct layout *)lb,
                        *(const struct layout *)lc,
                        *(const struct layout *)ld,
                        a,
                        b,
                        c,
                        d,
                        *(const float *)alpha,
                        *(const float *)beta};
    uint64_t ka = p.op.a == CUBLAS_OP_T ? p.a.rows : p.a.cols, kb = p.op.b == CUBLAS_OP_T ? p.b.cols : p.b.rows;
    uint64_t m = p.op.a == CUBLAS_OP_T ? p.a.cols : p.a.rows, n = p.op.b == CUBLAS_OP_T ? p.b.rows : p.b.cols;
    if (ka != kb || p.d.rows != m || p.d.cols != n || p.c.rows != m || p.c.cols != n)
        return CUBLAS_STATUS_INVALID_VALUE;
    struct rt_work w = {.kind = RT_CALL, .call = multiply, .data = &p, .data_bytes = sizeof(p)};
    cudaError_t rc = rt_enter();
    rc = rc ? rc : rt_work(stream, &w);
    return rt_leave(rc) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
