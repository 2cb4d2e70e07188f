/*
 * place.h - which matrices of a model stay in host memory where the device's memory has no room for all of them; the
 * device then reads them over its link. Pure.
 *
 * The matrices that are read least in proportion to their size leave the device first: an embedding, of which a step
 * reads one row per token, then experts, then the matrices that every token is multiplied by. Among equals the largest
 * goes first, and of equal sizes the one of the latest layer.
 */
#ifndef HEARTH_MODEL_PLACE_H
#define HEARTH_MODEL_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/err.h"

/* Bytes available to a model's weights. */
struct model_room {
    uint64_t own;  /* of the device's memory */
    uint64_t host; /* of the host's memory */
};

/* Bytes that a model's weights take. */
struct model_place {
    uint64_t own, host;
    uint64_t passing;             /* device memory through which the weights in host memory are staged */
    uint64_t own_read, host_read; /* the bytes of `own` and `host` that a step of one token reads */
};

struct place_item {
    uint64_t bytes;   /* its size, in either memory */
    uint64_t passing; /* as in model_place; the staging memory is shared: the largest need counts */
    uint64_t read;    /* of `bytes`, the part that a step of one token reads */
    bool fixed;       /* it has to stay in the device's memory */
    bool host;        /* set by place_choose: it is placed in host memory */
};

/* Places all items. HEARTH_ENOMEM, with the sizes of both memories, where the items do not fit. */
int place_choose(struct place_item *v, size_t n, const struct model_room *room, struct model_place *out,
                 struct hearth_err *e);

/* Upper bound of the tokens per second that one sequence decodes with a model placed like this, where the device reads
 * its own memory and the host's at these rates, in bytes per second; 0: unknown. */
double place_speed(const struct model_place *p, double own_rate, double host_rate);

#endif
