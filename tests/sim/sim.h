/*
 * sim.h - a GPU of compute capability 9.0 on the CPU: what PTX says, done to the letter and slowly, so that the tests
 * of the CUDA backend run where there is no GPU, and read no memory that is not theirs while they do.
 */
#ifndef HEARTH_SIM_H
#define HEARTH_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A module: the text of one PTX file. It must outlive the module. NULL and a line on stderr where it has what the
 * simulator does not know. Parsing of a function's body waits until it is launched first. */
struct sim_module;
struct sim_module *sim_load(const char *ptx, size_t n);

/* A kernel of a module, or NULL. */
struct sim_fn;
struct sim_fn *sim_function(struct sim_module *, const char *name);
/* A __device__ or __constant__ variable of a module: where its bytes are; NULL where there is none. */
void *sim_variable(struct sim_module *, const char *name, size_t *bytes);

struct sim_dims {
    uint32_t x, y, z;
};
struct sim_fn_info {
    uint32_t n_params;
    const uint32_t *param_offset, *param_bytes; /* in the kernel's parameter space */
    uint32_t params_bytes;
    uint32_t static_shared, max_threads, local_bytes;
    struct sim_dims cluster; /* that it is compiled for; 0, 0, 0: none */
};
const struct sim_fn_info *sim_info(struct sim_fn *);

struct sim_launch {
    struct sim_dims grid, block, cluster; /* cluster: 1, 1, 1 for none */
    uint32_t dynamic_shared;              /* bytes */
};
/* Runs a kernel to its end with a copy of its parameter space. false: it did what no kernel may (the line on stderr
 * names the kernel, block, thread, instruction and source line). */
bool sim_run(struct sim_fn *, const struct sim_launch *, const void *params);

/* The memory that kernels may touch: everything else is an illegal address. */
void sim_memory_add(const void *p, size_t n);
void sim_memory_remove(const void *p);

#endif
