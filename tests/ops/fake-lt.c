/*
 * fake-lt.c - a stand-in for libcublasLt, used by no-algorithm.sh: it has no algorithm for any product.
 */
#include <stddef.h>

/* The library's own names, declared here because its header may be missing. */
int cublasLtCreate(void **handle);
int cublasLtDestroy(void *handle);
int cublasLtMatmulDescCreate(void **desc, int compute, int scale);
int cublasLtMatmulDescDestroy(void *desc);
int cublasLtMatmulDescSetAttribute(void *desc, int attr, const void *buf, size_t bytes);
int cublasLtMatrixLayoutCreate(void **layout, int type, unsigned long rows, unsigned long cols, long ld);
int cublasLtMatrixLayoutDestroy(void *layout);
int cublasLtMatmulPreferenceCreate(void **pref);
int cublasLtMatmulPreferenceDestroy(void *pref);
int cublasLtMatmulPreferenceSetAttribute(void *pref, int attr, const void *buf, size_t bytes);
int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *pref, int most,
                                   void *results, int *n);
int cublasLtMatmul(void);

enum { NOT_SUPPORTED = 15 };

static int made(void **out)
{
    static int something;
    *out = &something;
    return 0;
}

int cublasLtCreate(void **handle)
{
    return made(handle);
}

int cublasLtDestroy(void *handle)
{
    (void)handle;
    return 0;
}

int cublasLtMatmulDescCreate(void **desc, int compute, int scale)
{
    (void)compute, (void)scale;
    return made(desc);
}

int cublasLtMatmulDescDestroy(void *desc)
{
    (void)desc;
    return 0;
}

int cublasLtMatmulDescSetAttribute(void *desc, int attr, const void *buf, size_t bytes)
{
    (void)desc, (void)attr, (void)buf, (void)bytes;
    return 0;
}

int cublasLtMatrixLayoutCreate(void **layout, int type, unsigned long rows, unsigned long cols, long ld)
{
    (void)type, (void)rows, (void)cols, (void)ld;
    return made(layout);
}

int cublasLtMatrixLayoutDestroy(void *layout)
{
    (void)layout;
    return 0;
}

int cublasLtMatmulPreferenceCreate(void **pref)
{
    return made(pref);
}

int cublasLtMatmulPreferenceDestroy(void *pref)
{
    (void)pref;
    return 0;
}

int cublasLtMatmulPreferenceSetAttribute(void *pref, int attr, const void *buf, size_t bytes)
{
    (void)pref, (void)attr, (void)buf, (void)bytes;
    return 0;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *pref, int most,
                                   void *results, int *n)
{
    (void)handle, (void)desc, (void)a, (void)b, (void)c, (void)d, (void)pref, (void)most, (void)results;
    *n = 0;
    return NOT_SUPPORTED;
}

int cublasLtMatmul(void)
{
    return NOT_SUPPORTED;
}
