/*
 * bench.h - hearth-engine --bench: how fast a model runs here, without daemon, link or scheduler around it.
 *
 * It checks before it times: the same prompt cut into other chunks, with a stranger in the batch, and decoded row by
 * row must give the same logits, to the bit. A fast wrong engine reports nothing.
 */
#ifndef HEARTH_ENGINE_BENCH_H
#define HEARTH_ENGINE_BENCH_H

#include <stdbool.h>

struct engine_params;

struct bench_params {
    const char *model;  /* path */
    const char *prompt; /* "128,512": pp128, pp512: that many tokens to the last one's logits */
    const char *depth;  /* "0,4096": tg@0, tg@4096: 32 tokens from that depth */
    bool json;
    const struct engine_params *engine; /* backend, variant, threads */
};

/* Prints the results (medians of 5) to stdout; returns an exit status. */
int bench_main(const struct bench_params *p);

#endif
