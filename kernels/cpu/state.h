/*
 * state.h - what the ops of layers with a recurrent state have in common (op.h): access to a sequence's state, and the
 * convolution over time that they begin with.
 *
 * A state is computed per sequence, rows in order, and divided among the threads by channels or heads, which are
 * independent of each other. Every number is computed by the same operations in the same order, however a prompt is cut
 * into chunks, so that a row's bits do not depend on other sequences. The inner loops run over contiguous, independent
 * numbers: the tuned variants vectorise them (struct cpu_kernels) without changing a bit.
 *
 * Thread: the device's; cpu_state_take(), cpu_state_give() and cpu_conv_rows() also run on the pool's threads.
 */
#ifndef HEARTH_CPU_STATE_H
#define HEARTH_CPU_STATE_H

#include <math.h>

#include "kernels/cpu/ops.h"

enum { CHANNELS = 64 /* at most, in an item of a convolution; divides KB, so that an item is in one panel block */ };

/* Checks that the op's group has states of n floats per layer and has that layer, that ACT_MIX has n_mix columns, and
 * that ACT_ATT has room for n_att columns, which becomes its width. Returns false and sets the step's error if not. */
bool cpu_state_begin(struct device *d, const char *what, uint32_t group, uint32_t layer, uint64_t n, uint32_t n_mix,
                     uint32_t n_att);

/* Copies elements [first, first + n) of a sequence's layer state from the page before its rows to the page after them
 * (zeros at position 0), and returns their address there, to be updated in place. */
float *cpu_state_take(struct device *d, uint32_t seq, uint32_t group, uint32_t layer, size_t first, size_t n);

/* Copies the same elements, as they are at the call, to the third page, of the state after n_within rows. */
void cpu_state_give(struct device *d, uint32_t seq, uint32_t group, uint32_t layer, size_t first, size_t n);

/*
 * The convolution of channels [c0, c1) of all rows of a sequence. Rows of inputs and outputs are `ldx` and `ldy` floats
 * apart. The layer's state begins with [n_tap - 1, n_channel]; those channels of it are read, updated and, for
 * n_within, copied.
 */
void cpu_conv_rows(struct device *d, uint32_t seq, uint32_t group, uint32_t layer, const struct state_conv *conv,
                   uint32_t n_channel, uint32_t c0, uint32_t c1, const float *x, size_t ldx, float *y, size_t ldy);

/* The same for at most CHANNELS channels, with channel 0 at column `at` of ACT_MIX, followed by x sigmoid(x), into
 * `convolved`, [n_row, n_channel]. */
void cpu_conv_silu(struct device *d, uint32_t seq, uint32_t group, uint32_t layer, const struct state_conv *conv,
                   uint32_t n_channel, uint32_t c0, uint32_t c1, uint32_t at);

/* log(1 + exp(x)) */
static inline double cpu_softplus(double x)
{
    return x > 20 ? x : log1p(exp(x));
}

#endif
