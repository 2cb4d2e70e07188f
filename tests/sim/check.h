/*
 * check.h - shared by check-runtime.c and its kernels.
 */
#ifndef HEARTH_SIM_CHECK_H
#define HEARTH_SIM_CHECK_H

#include <stdint.h>

struct check_params {
    uint64_t a;
    uint8_t b[3];
};
/* More than the 4 KiB to which launches were limited before CUDA 12.1. */
struct check_many {
    uint32_t v[6000];
};
enum check_kernel { CHECK_ADD, CHECK_MIXED, CHECK_MANY, CHECK_PAIR, CHECK_WILD, CHECK_ROOM };

#ifdef __cplusplus
extern "C" {
#endif
const void *check_kernel(enum check_kernel);
void check_add_plainly(uint32_t *at, uint32_t by, unsigned blocks, unsigned threads);
#ifdef __cplusplus
}
#endif

#endif
