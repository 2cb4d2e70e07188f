/*
 * state.h - what the ops of layers with a recurrent state have in common (op.h): where a sequence's state lies, and the
 * convolution in time that they begin with.
 *
 * A state is computed by sequences, rows in order, and divided among the threads by channels or heads, none of which
 * reads another's; every number of it is computed by the same operations in the same order whatever the chunks of rows,
 * so that a row's bits depend on nobody else. The loops of a head's row run over contiguous numbers that do not depend
 * on each other: variants have vectors for them (struct cpu_kernels), and the bits stay.
 *
 * Thread: the device's; cpu_state_take(), cpu_state_give() and cpu_conv_rows() also run on the pool's threads.
 */
#ifndef HEARTH_CPU_STATE_H
#define HEARTH_CPU_STATE_H

#include <math.h>

#include "kernels/cpu/ops.h"

enum { CHANNELS = 64 /* of an item of a convolution, at most; no block of a panel ends within them */ };

/* Whether the op's group is one of states of n numbers a layer, which has that layer, and ACT_MIX has n_mix columns and
 * ACT_ATT room for n_att, which it then has; an error that sticks where not. */
bool cpu_state_begin(struct device *d, const char *what, uint32_t group, uint32_t layer, uint64_t n, uint32_t n_mix,
                     uint32_t n_att);

/* Numbers [first, first + n) of the layer's state of a sequence, as they are before its rows, in their place after
 * them: to be computed on, there. */
float *cpu_state_take(struct device *d, uint32_t seq, uint32_t group, uint32_t layer, size_t first, size_t n);

/* The same numbers, as they are now, also go to the page of the state after batch_seq.n_within rows. */
void cpu_state_give(struct device *d, uint32_t seq, uint32_t group, uint32_t layer, size_t first, size_t n);

/*
 * The convolution of channels [c0, c1) of all rows of a sequence. Inputs and outputs of a row are `ldx` and `ldy`
 * floats after those of the row before; the layer's state begins with [n_tap - 1, n_channel], of which it takes, leaves
 * and gives those channels.
 */
void cpu_conv_rows(struct device *d, uint32_t seq, uint32_t group, uint32_t layer, const struct state_conv *conv,
                   uint32_t n_channel, uint32_t c0, uint32_t c1, const float *x, size_t ldx, float *y, size_t ldy);

/* The same of channels of ACT_MIX from column `at` on, CHANNELS at most, into `convolved`, [n_row, n_channel], then x
 * sigmoid(x); the state is the first part of the layer's. */
void cpu_conv_silu(struct device *d, uint32_t seq, uint32_t group, uint32_t layer, const struct state_conv *conv,
                   uint32_t n_channel, uint32_t c0, uint32_t c1, uint32_t at);

/* log(1 + exp(x)) */
static inline double cpu_softplus(double x)
{
    return x > 20 ? x : log1p(exp(x));
}

#endif
