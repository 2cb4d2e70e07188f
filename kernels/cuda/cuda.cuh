/*
 * cuda.cuh - what the files of the CUDA backend share. Included by kernels/cuda/ alone.
 *
 * The backend is C with templates: no STL, no exceptions. Kernels first in a file, launchers last. Every kernel is
 * launched through cuda_launch_on(), every runtime call is checked with cuda_ok(); the first failure sticks in the
 * device.
 *
 * A step (step.cu) runs a program's ops eagerly, under capture, or not at all where a captured graph of the same
 * program and shape is replayed. So what an op's launcher reads from the host must be the same at every replay, and
 * what changes from step to step (tokens, positions, lengths, block tables, slots) lies in `struct step_dev` in device
 * memory. Grids and template choices follow the bucket of rows, not the row count.
 */
#ifndef HEARTH_CUDA_CUH
#define HEARTH_CUDA_CUH

#include "kernels/cuda/act.cuh"     /* the forms of activations */
#include "kernels/cuda/elem.cuh"    /* functions of numbers */
#include "kernels/cuda/weights.cuh" /* matrices in tiles */
#include "kernels/cuda/device.cuh"  /* the device, its workspace, a step's metadata, KV */
#include "kernels/cuda/launch.cuh"  /* launches */

#endif
