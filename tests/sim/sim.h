/*
 * sim.h - a GPU of compute capability 9.0 on the CPU: it executes PTX exactly and slowly, so that the tests of the CUDA
 * backend run without a GPU, and so that accesses to memory that is not theirs are detected.
 */
#ifndef HEARTH_SIM_H
#define HEARTH_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Loads a module, the text of one PTX file, which must outlive the module. NULL, after a line on stderr, if it has
 * something that the simulator does not support. A function's body is parsed when it is first launched. */
struct sim_module;
struct sim_module *sim_load(const char *ptx, size_t n);

/* A kernel of a module; NULL if there is none of that name. */
struct sim_fn;
struct sim_fn *sim_function(struct sim_module *, const char *name);
/* The bytes of a __device__ or __constant__ variable of a module; NULL if there is none of that name. */
void *sim_variable(struct sim_module *, const char *name, size_t *bytes);

struct sim_dims {
    uint32_t x, y, z;
};
struct sim_fn_info {
    uint32_t n_params;
    const uint32_t *param_offset, *param_bytes; /* in the kernel's parameter space */
    uint32_t params_bytes;
    uint32_t static_shared, max_threads, local_bytes;
    struct sim_dims cluster; /* the cluster size for which it is compiled; 0, 0, 0: none */
};
const struct sim_fn_info *sim_info(struct sim_fn *);

struct sim_launch {
    struct sim_dims grid, block, cluster; /* cluster: 1, 1, 1 for none */
    uint32_t dynamic_shared;              /* bytes */
};
/* Runs a kernel to its end with a copy of its parameter space. False: it did something illegal (the line on stderr
 * names the kernel, block, thread, instruction and source line). */
bool sim_run(struct sim_fn *, const struct sim_launch *, const void *params);

/* Adds memory that kernels may access; any other address is illegal. */
void sim_memory_add(const void *p, size_t n);
void sim_memory_remove(const void *p);

#endif
