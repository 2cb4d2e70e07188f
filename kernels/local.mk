# Backends. The CPU backend always; CUDA where nvcc was found.
noinst_LIBRARIES += kernels/libkernels.a
kernels_libkernels_a_SOURCES = kernels/backend.h kernels/backend.c kernels/dtype.h kernels/dtype.c kernels/quant.h \
	kernels/fmath.h kernels/philox.h \
	kernels/cpu/cpu.h kernels/cpu/cpu.c kernels/cpu/pool.h kernels/cpu/pool.c kernels/cpu/kv.c kernels/cpu/rate.c kernels/cpu/step.c \
	kernels/cpu/ops.c kernels/cpu/sample.c kernels/cpu/elem.h kernels/cpu/reference.c kernels/cpu/tuned.h \
	kernels/cpu/tuned-dot.h kernels/cpu/tuned-vec.h \
	kernels/cpu/avx2.c kernels/cpu/avx512.c
kernels_libkernels_a_CFLAGS = $(AM_CFLAGS) -pthread
EXTRA_DIST += kernels/README.md kernels/cuda/README.md
KERNELS_LIBS = kernels/libkernels.a -lpthread -lm

# CUDA: C with templates. Plain objects in the same archive, linked by CC: nothing of libstdc++ is used, the runtime is
# static and opens the driver itself.
cuda_headers = kernels/cuda/cuda.cuh kernels/cuda/local.cuh kernels/cuda/attend.cuh kernels/cuda/attend_plan.cuh kernels/cuda/t16.cuh kernels/cuda/t16_int.cuh kernels/cuda/gemm.cuh kernels/cuda/gemm_few.cuh kernels/cuda/gemm_body.cuh kernels/cuda/dequant.cuh kernels/cuda/unpack.cuh \
	kernels/cuda/sums.cuh kernels/cuda/wgmma.cuh
cuda_sources = kernels/cuda/device.cu kernels/cuda/upload.cu kernels/cuda/move.cu kernels/cuda/step.cu kernels/cuda/embed.cu \
	kernels/cuda/finish.cu kernels/cuda/gemm_ref.cu kernels/cuda/gemm.cu kernels/cuda/gemm_q4_k.cu kernels/cuda/gemm_q6_k.cu \
	kernels/cuda/gemm_q46_k.cu kernels/cuda/gemm_q5_k.cu kernels/cuda/gemm_q_0.cu kernels/cuda/gemm_f.cu kernels/cuda/gemm_wgmma.cu \
	kernels/cuda/pack.cu \
	kernels/cuda/attend.cu kernels/cuda/attend_split.cu kernels/cuda/attend_merge.cu kernels/cuda/attend_long.cu kernels/cuda/sample.cu \
	kernels/cuda/prefill.cu kernels/cuda/kept.cu kernels/cuda/rate.cu
EXTRA_DIST += $(cuda_headers) $(cuda_sources)
NVCCFLAGS = -std=c++17 -O3 -I$(top_srcdir) -I$(top_builddir) -Xcompiler -Wall,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics

SUFFIXES = .cu
.cu.o:
	@$(MKDIR_P) $(@D)
	@echo "  NVCC     $@"; $(NVCC) $(NVCCFLAGS) $(NVCC_GENCODE) -c -o $@ $<

# wgmma is an instruction of sm_90a alone, and asked for where the card has it.
kernels/cuda/gemm_wgmma.o: NVCC_GENCODE = -gencode arch=compute_90a,code=sm_90a

if HAVE_CUDA
cuda_objects = $(cuda_sources:.cu=.o)
$(cuda_objects): $(cuda_headers) kernels/backend.h kernels/philox.h kernels/fmath.h kernels/quant.h
kernels_libkernels_a_LIBADD = $(cuda_objects)
KERNELS_LIBS += $(CUDA_LIBS)
CLEANFILES += $(cuda_objects)
endif
