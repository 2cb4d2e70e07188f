/*
 * cuda.cuh - what the files of the CUDA backend share. Included only by files in kernels/cuda/.
 *
 * The backend is C with templates: no STL, no exceptions. In a file, kernels come first and launchers last. Every
 * kernel is launched through cuda_launch_on(), every runtime call is checked with cuda_ok(); the first failure sticks
 * in the device.
 *
 * A step (step.cu) runs a program's ops eagerly, under capture, or not at all where a captured graph of the same
 * program and shape is replayed. So what an op's launcher reads on the host must be the same at every replay, and what
 * changes from step to step (tokens, positions, lengths, block tables, slots) is in `struct step_dev` in device memory.
 * Grids and template arguments depend on the bucket of rows, not on the row count.
 */
#ifndef HEARTH_CUDA_CUH
#define HEARTH_CUDA_CUH

#include "kernels/cuda/act.cuh"     /* the layouts of activations */
#include "kernels/cuda/elem.cuh"    /* element functions */
#include "kernels/cuda/weights.cuh" /* matrices in tiles */
#include "kernels/cuda/device.cuh"  /* the device, its workspace, a step's metadata, KV */
#include "kernels/cuda/launch.cuh"  /* launches */

#endif
