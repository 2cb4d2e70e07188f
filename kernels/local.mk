# Backends. The CPU backend always; CUDA where nvcc was found.
noinst_LIBRARIES += kernels/libkernels.a
kernels_libkernels_a_SOURCES = kernels/backend.h kernels/backend.c kernels/dtype.h kernels/dtype.c kernels/quant.h \
	kernels/fmath.h kernels/philox.h \
	kernels/cpu/cpu.h kernels/cpu/cpu.c kernels/cpu/pool.h kernels/cpu/pool.c kernels/cpu/kv.c kernels/cpu/step.c \
	kernels/cpu/ops.c kernels/cpu/sample.c kernels/cpu/elem.h kernels/cpu/reference.c
kernels_libkernels_a_CFLAGS = $(AM_CFLAGS) -pthread
KERNELS_LIBS = kernels/libkernels.a -lpthread -lm

if HAVE_CUDA
# The cuda engineers' objects go here.
endif
