# AX_HEARTH_CUDA: find nvcc; --with-cuda=auto|no|DIR, --with-cuda-arch=auto|all|LIST. "auto" is the architecture of each
# GPU that the driver of this machine has, and 90 where it has none; "all" is every one that we support. Beside both lies
# the PTX of the oldest, which the driver of any card since compiles for itself: slower to start, and without the kernels
# that newer ones have. A LIST, as "80,90", is exactly that.
# The CUDA runtime is linked statically and opens the driver itself, cuBLASLt is opened with dlopen:
# an engine built here starts on a machine that has neither.
# --enable-sim is for tests on machines without a GPU: the objects have the PTX of 90 as well (nvcc makes it on the way to
# machine code), and some programs are linked a second time with a simulator (tests/sim), which takes the runtime's place
# and runs it on the CPU. "auto" is where there is nvcc and no GPU.
AC_DEFUN([AX_HEARTH_CUDA], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda=auto|no|DIR], [CUDA toolkit to build the GPU backend with (auto)])], [], [with_cuda=auto])
  AC_ARG_WITH([cuda-arch], [AS_HELP_STRING([--with-cuda-arch=LIST], [compute capabilities, "80,90"; "all"; or "auto": of the GPU that is here (auto)])], [], [with_cuda_arch=auto])
  hearth_cuda_summary=no
  NVCC=no
  AS_CASE([$with_cuda],
    [no], [],
    [auto|yes], [AC_PATH_PROG([NVCC], [nvcc], [no], [$PATH$PATH_SEPARATOR/usr/local/cuda/bin])],
    [AC_PATH_PROG([NVCC], [nvcc], [no], [$with_cuda/bin])
     AS_IF([test "x$NVCC" = xno], [AC_MSG_ERROR([no nvcc under $with_cuda/bin])])])
  AS_CASE([$with_cuda:$NVCC], [yes:no], [AC_MSG_ERROR([--with-cuda=yes, but no nvcc was found])])
  AC_ARG_ENABLE([sim], [AS_HELP_STRING([--enable-sim=auto|yes|no], [tests of the GPU backend on a simulated GPU (no); auto: where there is nvcc and no GPU])], [], [enable_sim=no])
  CUDA_ARCH_ALL="75,80,86,89,90,100,120"
  AS_IF([test "x$NVCC" != xno], [
    # nvcc may be a wrapper or a link far from its toolkit (/usr/local/bin/nvcc): it says itself where that is.
    AC_MSG_CHECKING([for the CUDA toolkit of $NVCC])
    cuda_dir=`"$NVCC" --dryrun -c -x cu /dev/null -o /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p' | sed 1q`
    AS_IF([test "x$cuda_dir" = x], [cuda_dir=`dirname "$NVCC"`/..])
    cuda_dir=`cd "$cuda_dir" && pwd -P`
    CUDA_LIBDIR=
    for d in "$cuda_dir/lib64" "$cuda_dir/lib" "$cuda_dir/targets/`uname -m`-linux/lib" "/usr/lib/`uname -m`-linux-gnu"; do
      AS_IF([test "x$CUDA_LIBDIR" = x && test -f "$d/libcudart_static.a"], [CUDA_LIBDIR=$d])
    done
    AC_MSG_RESULT([${CUDA_LIBDIR:-no libcudart_static.a}])
    AS_IF([test "x$CUDA_LIBDIR" = x], [
      AS_IF([test "x$with_cuda" != xauto], [AC_MSG_ERROR([$NVCC is there, but no libcudart_static.a under $cuda_dir])])
      AC_MSG_WARN([$NVCC is there, but no libcudart_static.a under $cuda_dir: building without CUDA])
      NVCC=no])])
  AS_IF([test "x$NVCC" != xno], [
    CUDA_LIBS="-L$CUDA_LIBDIR -lcudart_static -lpthread -ldl -lrt"
    CUDA_CPPFLAGS="-I$cuda_dir/include"
    cuda_arch_list=$with_cuda_arch
    cuda_ptx=
    AS_IF([test "x$with_cuda_arch" = xall], [cuda_arch_list=$CUDA_ARCH_ALL cuda_ptx=75])
    AS_IF([test "x$with_cuda_arch" = xauto], [
      AC_MSG_CHECKING([for the compute capability of the GPU that is here])
      cuda_arch_list=`nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -cd '0-9\n' | sort -un | tr '\n' ',' | sed 's/,$//'`
      AS_IF([test "x$cuda_arch_list" = x],
        [cuda_arch_list=90
         AC_MSG_RESULT([there is none: building for 90; --with-cuda-arch=all is for every card])],
        [cuda_ptx=75
         AC_MSG_RESULT([$cuda_arch_list])])])
    NVCC_GENCODE=
    AS_IF([test "x$cuda_ptx" != x], [NVCC_GENCODE="-gencode arch=compute_$cuda_ptx,code=compute_$cuda_ptx"])
    for a in `echo "$cuda_arch_list" | tr ',' ' '`; do
      NVCC_GENCODE="$NVCC_GENCODE -gencode arch=compute_$a,code=sm_$a"
    done
    NVCC_GENCODE_90A="-gencode arch=compute_90a,code=sm_90a"
    AC_DEFINE([HAVE_CUDA], [1], [the CUDA backend is built])
    hearth_cuda_summary="$NVCC, sm_$cuda_arch_list${cuda_ptx:+ and PTX of $cuda_ptx}"
    AS_IF([test "x$enable_sim" = xauto], [AS_IF([nvidia-smi -L >/dev/null 2>&1], [enable_sim=no], [enable_sim=yes])])
    # LZ4 is what the simulator unpacks; what nvcc takes otherwise differs by its version, and older ones cannot be asked.
    AS_IF([test "x$enable_sim" = xyes], [
      AS_IF([! "$NVCC" -compress-mode=speed --dryrun -c -x cu /dev/null -o /dev/null >/dev/null 2>&1], [
        AC_MSG_WARN([$NVCC knows no -compress-mode: no tests on a simulated GPU])
        enable_sim=no])])
    AS_IF([test "x$enable_sim" = xyes], [
      NVCC_GENCODE="$NVCC_GENCODE -compress-mode=speed -gencode arch=compute_90,code=compute_90"
      NVCC_GENCODE_90A="$NVCC_GENCODE_90A -compress-mode=speed -gencode arch=compute_90a,code=compute_90a"
      hearth_cuda_summary="$hearth_cuda_summary, and a simulated GPU"])
    # No source reads it: objects depend on config.h, and so are compiled again for what another configure asks for.
    AC_DEFINE_UNQUOTED([CUDA_GENCODE], ["$NVCC_GENCODE; $NVCC_GENCODE_90A"], [what the CUDA backend is compiled for])])
  AS_IF([test "x$NVCC" = xno], [
    AS_IF([test "x$enable_sim" = xyes], [AC_MSG_ERROR([--enable-sim, but the build is without CUDA])])
    enable_sim=no])
  # NVTX is a folder of headers in the toolkit: a range costs a call through a null pointer where no profiler listens, and
  # nothing at all without this switch.
  AC_ARG_ENABLE([nvtx], [AS_HELP_STRING([--enable-nvtx], [name steps, captures, uploads and KV transfers to profilers])],
    [], [enable_nvtx=no])
  NVTX_CPPFLAGS=
  AS_IF([test "x$enable_nvtx" = xyes], [
    AS_IF([test "x$NVCC" = xno], [AC_MSG_ERROR([--enable-nvtx, but the build is without CUDA])])
    AS_IF([test ! -f "$cuda_dir/include/nvtx3/nvToolsExt.h"], [AC_MSG_ERROR([--enable-nvtx, but no nvtx3/nvToolsExt.h under $cuda_dir/include])])
    NVTX_CPPFLAGS=-DHEARTH_NVTX
    hearth_cuda_summary="$hearth_cuda_summary, NVTX"])
  AC_SUBST([NVTX_CPPFLAGS])
  AC_SUBST([NVCC]) AC_SUBST([CUDA_LIBS]) AC_SUBST([CUDA_CPPFLAGS]) AC_SUBST([NVCC_GENCODE]) AC_SUBST([NVCC_GENCODE_90A])
  AC_SUBST([CUDA_ARCH_ALL])
  AM_CONDITIONAL([HAVE_CUDA], [test "x$NVCC" != xno])
  AM_CONDITIONAL([HAVE_CUDA_SIM], [test "x$enable_sim" = xyes])
])
