# Backends. The CPU backend always; CUDA where nvcc was found.
noinst_LIBRARIES += kernels/libkernels.a
kernels_libkernels_a_SOURCES = kernels/backend.h kernels/backend.c kernels/kv-page.c kernels/op.h kernels/op.c \
	kernels/staged.h kernels/staged.c kernels/dtype.h kernels/dtype.c kernels/fmath.h kernels/philox.h \
	kernels/quant/list.h kernels/quant/half.h kernels/quant/ints.h kernels/quant/k_scales.h kernels/quant/codebook.h kernels/quant/grids.h \
	kernels/quant/f32.h kernels/quant/f16.h kernels/quant/bf16.h kernels/quant/q4_0.h kernels/quant/q5_0.h kernels/quant/q8_0.h \
	kernels/quant/q4_1.h kernels/quant/q5_1.h kernels/quant/q2_k.h kernels/quant/q3_k.h kernels/quant/q4_k.h kernels/quant/q5_k.h kernels/quant/q6_k.h \
	kernels/quant/iq4_nl.h kernels/quant/iq4_xs.h kernels/quant/iq3_s.h kernels/quant/iq3_xxs.h kernels/quant/iq2_s.h kernels/quant/iq2_xs.h \
	kernels/quant/iq2_xxs.h kernels/quant/mxfp4.h kernels/quant/nvfp4.h \
	kernels/cpu/cpu.h kernels/cpu/cpu.c kernels/cpu/pool.h kernels/cpu/pool.c kernels/cpu/kv.c kernels/cpu/rate.c kernels/cpu/step.c \
	kernels/cpu/inputs.c kernels/cpu/latent.c kernels/cpu/ops.h kernels/cpu/ops.c kernels/cpu/matmul.c kernels/cpu/route.c kernels/cpu/experts.c \
	kernels/cpu/state.h kernels/cpu/state.c kernels/cpu/project.c kernels/cpu/shortconv.c kernels/cpu/delta.c kernels/cpu/mamba2.c kernels/cpu/sample.c kernels/cpu/elem.h kernels/cpu/reference.c kernels/cpu/tuned.h \
	kernels/cpu/tuned-dot.h kernels/cpu/tuned-int.h kernels/cpu/tuned-tile.h kernels/cpu/kblock.h kernels/cpu/tuned-vec.h \
	kernels/cpu/avx2.h kernels/cpu/avx2.c kernels/cpu/avxvnni.c kernels/cpu/avx512.c \
	kernels/cuda/rules.h kernels/cuda/rules.c
kernels_libkernels_a_CFLAGS = $(AM_CFLAGS) -pthread
EXTRA_DIST += kernels/README.md kernels/cuda/README.md kernels/cuda/attend/README.md kernels/cuda/gemm/README.md \
	kernels/cuda/quant/README.md kernels/cuda/experts/README.md kernels/cuda/states/README.md
KERNELS_LIBS = kernels/libkernels.a -lpthread -lm

# CUDA: C with templates. Plain objects in the same archive, linked by CC: nothing of libstdc++ is used, and the runtime
# is static and opens the driver itself.
# The types with kernels: one header each, from which the build makes two objects each (.o and .experts).
cuda_quants = kernels/cuda/quant/f32.cuh kernels/cuda/quant/f16.cuh kernels/cuda/quant/bf16.cuh kernels/cuda/quant/q4_0.cuh kernels/cuda/quant/q4_1.cuh \
	kernels/cuda/quant/q5_0.cuh kernels/cuda/quant/q5_1.cuh kernels/cuda/quant/q8_0.cuh kernels/cuda/quant/q2_k.cuh kernels/cuda/quant/q3_k.cuh \
	kernels/cuda/quant/q4_k.cuh kernels/cuda/quant/q5_k.cuh kernels/cuda/quant/q6_k.cuh kernels/cuda/quant/iq4_nl.cuh kernels/cuda/quant/iq4_xs.cuh \
	kernels/cuda/quant/mxfp4.cuh
# Types that are converted to F16 for the GPU: nothing to compile.
cuda_expanded = kernels/cuda/quant/iq2_xxs.cuh kernels/cuda/quant/iq2_xs.cuh kernels/cuda/quant/iq2_s.cuh kernels/cuda/quant/iq3_xxs.cuh kernels/cuda/quant/iq3_s.cuh \
	kernels/cuda/quant/nvfp4.cuh
# Headers that are only included.
cuda_headers = kernels/cuda/cuda.cuh kernels/cuda/act.cuh kernels/cuda/elem.cuh kernels/cuda/fastdiv.cuh kernels/cuda/weights.cuh kernels/cuda/device.cuh kernels/cuda/launch.cuh kernels/cuda/sample.cuh kernels/cuda/ptx.cuh kernels/cuda/bulk.cuh kernels/cuda/cluster.cuh kernels/cuda/local.cuh kernels/cuda/step.cuh kernels/cuda/said.cuh kernels/cuda/nvtx.cuh kernels/cuda/plan.cuh kernels/cuda/kv_q8.cuh kernels/cuda/attend/attend.cuh kernels/cuda/attend/plan.cuh kernels/cuda/attend/pages.cuh kernels/cuda/attend/prefill.cuh kernels/cuda/attend/split_kv.cuh kernels/cuda/attend/tailed.cuh \
	kernels/cuda/gemm/tile16.cuh kernels/cuda/gemm/tile16_int.cuh kernels/cuda/gemm/gemm.cuh kernels/cuda/gemm/items.cuh kernels/cuda/gemm/prepare.cuh kernels/cuda/gemm/epilogue.cuh kernels/cuda/gemm/gemv.cuh kernels/cuda/gemm/four.cuh kernels/cuda/gemm/gemv_block.cuh kernels/cuda/gemm/gemv_ring.cuh kernels/cuda/gemm/gemv_x.cuh kernels/cuda/gemm/gemv_end.cuh kernels/cuda/gemm/gemv_launch.cuh kernels/cuda/gemm/rounds.cuh kernels/cuda/gemm/heads.cuh kernels/cuda/gemm/rownorm.cuh \
	kernels/cuda/gemm/rows.cuh kernels/cuda/gemm/skinny.cuh kernels/cuda/gemm/copied.cuh kernels/cuda/gemm/split_k.cuh kernels/cuda/gemm/tail.cuh kernels/cuda/gemm/wgmma.cuh kernels/cuda/gemm/eight.cuh kernels/cuda/gemm/wgmma_mma.cuh kernels/cuda/gemm/wgmma_multiply.cuh kernels/cuda/gemm/batch.cuh kernels/cuda/gemm/batch_types.cuh kernels/cuda/states/states.cuh kernels/cuda/states/recur.cuh kernels/cuda/states/chunk.cuh kernels/cuda/experts/row.cuh kernels/cuda/experts/route.cuh kernels/cuda/experts/sums.cuh kernels/cuda/experts/told.cuh kernels/cuda/experts/choice.cuh \
	kernels/cuda/quant/quant.cuh kernels/cuda/quant/one_type.cuh kernels/cuda/quant/slice.cuh kernels/cuda/quant/q45_k.cuh kernels/cuda/quant/q48_0.cuh \
	kernels/cuda/quant/q45_01.cuh kernels/cuda/quant/q23_k.cuh kernels/cuda/quant/codebook4.cuh
cuda_experts = kernels/cuda/experts/experts.cuh kernels/cuda/experts/pairs.cuh kernels/cuda/experts/beside.cuh kernels/cuda/experts/few.cuh kernels/cuda/experts/few_list.cuh kernels/cuda/experts/few_one.cuh kernels/cuda/experts/few_up.cuh kernels/cuda/experts/few_down.cuh kernels/cuda/experts/fp4.cuh kernels/cuda/experts/grouped.cuh kernels/cuda/experts/shares.cuh kernels/cuda/experts/sort.cuh kernels/cuda/experts/wgmma.cuh kernels/cuda/experts/one_type.cu
cuda_sources = kernels/cuda/device.cu kernels/cuda/memory.cu kernels/cuda/pool.cu kernels/cuda/upload.cu kernels/cuda/spill.cu kernels/cuda/transfer.cu kernels/cuda/pinned.cu kernels/cuda/step.cu kernels/cuda/metadata.cu kernels/cuda/acts.cu kernels/cuda/plan.cu kernels/cuda/embed.cu kernels/cuda/inputs.cu \
	kernels/cuda/gemm/epilogue.cu kernels/cuda/gemm/rows.cu kernels/cuda/gemm/ref.cu kernels/cuda/gemm/gemm.cu kernels/cuda/gemm/q46_k.cu kernels/cuda/gemm/wgmma.cu kernels/cuda/gemm/norm.cu kernels/cuda/gemm/batch.cu \
	kernels/cuda/quant/pack.cu \
	kernels/cuda/attend/attend.cu kernels/cuda/attend/split_kv.cu kernels/cuda/attend/stream.cu kernels/cuda/attend/decode.cu kernels/cuda/attend/trunk.cu kernels/cuda/attend/wide.cu kernels/cuda/attend/latent.cu kernels/cuda/attend/reduce.cu kernels/cuda/attend/prefill.cu kernels/cuda/sample.cu kernels/cuda/slots.cu \
	kernels/cuda/gemm/cublaslt.cu kernels/cuda/gemm/dequant.cu kernels/cuda/gemm/wcache.cu kernels/cuda/rate.cu kernels/cuda/lacks.cu \
	kernels/cuda/experts/route.cu kernels/cuda/experts/route_gemm.cu kernels/cuda/experts/shares.cu kernels/cuda/experts/experts.cu kernels/cuda/experts/pairs.cu kernels/cuda/experts/wgmma.cu \
	kernels/cuda/states/states.cu kernels/cuda/states/project.cu kernels/cuda/states/shortconv.cu kernels/cuda/states/recur.cu kernels/cuda/states/chunk.cu kernels/cuda/states/chunk_within.cu kernels/cuda/states/decode.cu
EXTRA_DIST += $(cuda_headers) $(cuda_quants) $(cuda_expanded) $(cuda_experts) $(cuda_sources) kernels/cuda/gemm/one_type.cu
# -lineinfo lets profilers and compute-sanitizer show source lines; it does not change the machine code. NVCC_DEFS is for
# builds such as sanitize-gpu's.
NVCC_DEFS =
NVCCFLAGS = -std=c++17 -O3 -lineinfo $(NVCC_DEFS) $(NVTX_CPPFLAGS) -I$(top_srcdir) -I$(top_builddir) -Xcompiler -Wall,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics

SUFFIXES = .cu .cuh .experts
.cu.o:
	@$(MKDIR_P) $(@D)
	@echo "  NVCC     $@"; $(NVCC) $(NVCCFLAGS) $(NVCC_GENCODE) -c -o $@ $<

# The GEMM kernels of a type: one source, compiled once per type.
.cuh.o:
	@$(MKDIR_P) $(@D)
	@echo "  NVCC     $@"; $(NVCC) $(NVCCFLAGS) $(NVCC_GENCODE) -DQUANT=$(*F) -c -o $@ $(top_srcdir)/kernels/cuda/gemm/one_type.cu

# The experts' kernels of a type, likewise.
.cuh.experts:
	@$(MKDIR_P) $(@D)
	@echo "  NVCC     $@"; $(NVCC) $(NVCCFLAGS) $(NVCC_GENCODE) -DQUANT=$(*F) -c -o $@ $(top_srcdir)/kernels/cuda/experts/one_type.cu

# wgmma exists only on sm_90a; these kernels are launched only on cards that have it.
kernels/cuda/gemm/wgmma.o kernels/cuda/gemm/norm.o kernels/cuda/gemm/batch.o kernels/cuda/experts/wgmma.o: NVCC_GENCODE = $(NVCC_GENCODE_90A)

if HAVE_CUDA
cuda_objects = $(cuda_quants:.cuh=.o) $(cuda_quants:.cuh=.experts) $(cuda_sources:.cu=.o)
$(cuda_quants:.cuh=.experts) kernels/cuda/experts/experts.o kernels/cuda/experts/pairs.o kernels/cuda/experts/shares.o kernels/cuda/experts/wgmma.o: $(cuda_experts)
$(cuda_objects): config.h $(cuda_headers) $(cuda_quants) $(cuda_expanded) kernels/cuda/gemm/one_type.cu kernels/backend.h kernels/op.h kernels/staged.h kernels/cuda/rules.h kernels/philox.h kernels/fmath.h kernels/dtype.h kernels/quant/list.h kernels/quant/half.h kernels/quant/codebook.h kernels/quant/ints.h kernels/quant/k_scales.h
kernels_libkernels_a_LIBADD = $(cuda_objects)
KERNELS_LIBS += $(CUDA_LIBS)
CLEANFILES += $(cuda_objects)
endif
