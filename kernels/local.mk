# Backends. The CPU backend always; CUDA where nvcc was found.
noinst_LIBRARIES += kernels/libkernels.a
kernels_libkernels_a_SOURCES = kernels/backend.h kernels/dtype.h
kernels_libkernels_a_CFLAGS = $(AM_CFLAGS)
