/*
 * ints.h - a super-block of 256 weights as integers, for the CPU's integer products (kernels/cpu/kblock.h): weight k is
 * d * sc[k / 16] * q[k] - dmin * m[k / 32].
 */
#ifndef HEARTH_QUANT_INTS_H
#define HEARTH_QUANT_INTS_H

#include <stdbool.h>
#include <stdint.h>

enum { INTS_LEN = 256 };

struct quant_ints {
    bool mins; /* whether the type has mins */
    float d, dmin;
    int8_t q[INTS_LEN], sc[INTS_LEN / 16];
    uint8_t m[INTS_LEN / 32];
};

#endif
