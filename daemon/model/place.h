/*
 * place.h - where the matrices of a model lie that a device's memory has no room for: some stay in the host's, from
 * where the device reads them over its link. Pure.
 *
 * What is read least for its bytes goes first: an embedding of which a step reads a row a token, then experts, then
 * what every token is multiplied by, the largest first and of the last layer first.
 */
#ifndef HEARTH_MODEL_PLACE_H
#define HEARTH_MODEL_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/err.h"

/* Bytes that the weights of a model may have. */
struct model_room {
    uint64_t own;  /* of the device's memory */
    uint64_t host; /* of the host's */
};

/* Bytes that they have. */
struct model_place {
    uint64_t own, host;
    uint64_t passing;             /* of the device's memory, for what it reads of the host's to pass through */
    uint64_t own_read, host_read; /* of them, what a step of one token reads */
};

struct place_item {
    uint64_t bytes;   /* wherever it lies */
    uint64_t passing; /* as of model_place: not of all matrices together, but of the one that wants most */
    uint64_t read;    /* of its bytes, what a step of one token reads */
    bool fixed;       /* it has to lie in the device's memory */
    bool host;        /* set by place_choose: it lies in the host's */
};

/* Places all items. HEARTH_ENOMEM, with the sizes of both memories, where they have no room for them. */
int place_choose(struct place_item *v, size_t n, const struct model_room *room, struct model_place *out,
                 struct hearth_err *e);

/* Tokens per second of one sequence that such a model decodes at most, where the device reads its memory and the
 * host's at these rates, in bytes per second; 0: not known. */
double place_speed(const struct model_place *p, double own_rate, double host_rate);

#endif
