# AX_HEARTH_CUDA: find nvcc; --with-cuda=auto|no|DIR, --with-cuda-arch=LIST (default 90; "all" is every architecture we support).
# The CUDA runtime is linked statically and opens the driver itself, cuBLASLt is opened with dlopen:
# an engine built here starts on a machine that has neither.
AC_DEFUN([AX_HEARTH_CUDA], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda=auto|no|DIR], [CUDA toolkit to build the GPU backend with (auto)])], [], [with_cuda=auto])
  AC_ARG_WITH([cuda-arch], [AS_HELP_STRING([--with-cuda-arch=LIST], [comma-separated compute capabilities, or "all" (90)])], [], [with_cuda_arch=90])
  hearth_cuda_summary=no
  NVCC=no
  AS_CASE([$with_cuda],
    [no], [],
    [auto|yes], [AC_PATH_PROG([NVCC], [nvcc], [no], [$PATH$PATH_SEPARATOR/usr/local/cuda/bin])],
    [AC_PATH_PROG([NVCC], [nvcc], [no], [$with_cuda/bin])
     AS_IF([test "x$NVCC" = xno], [AC_MSG_ERROR([no nvcc under $with_cuda/bin])])])
  AS_IF([test "x$with_cuda" = xyes && test "x$NVCC" = xno], [AC_MSG_ERROR([--with-cuda=yes, but no nvcc was found])])
  CUDA_ARCH_ALL="75,80,86,89,90,100,120"
  AS_IF([test "x$NVCC" != xno], [
    cuda_dir=`dirname "$NVCC"`; cuda_dir=`cd "$cuda_dir/.." && pwd -P`
    CUDA_LIBDIR="$cuda_dir/lib64"
    AS_IF([test -d "$CUDA_LIBDIR"], [], [CUDA_LIBDIR="$cuda_dir/lib"])
    CUDA_LIBS="-L$CUDA_LIBDIR -lcudart_static -lpthread -ldl -lrt"
    CUDA_CPPFLAGS="-I$cuda_dir/include"
    cuda_arch_list=$with_cuda_arch
    AS_IF([test "x$with_cuda_arch" = xall], [cuda_arch_list=$CUDA_ARCH_ALL])
    NVCC_GENCODE=
    for a in `echo "$cuda_arch_list" | tr ',' ' '`; do
      NVCC_GENCODE="$NVCC_GENCODE -gencode arch=compute_$a,code=sm_$a"
    done
    AC_DEFINE([HAVE_CUDA], [1], [the CUDA backend is built])
    hearth_cuda_summary="$NVCC, sm_$cuda_arch_list"])
  AC_SUBST([NVCC]) AC_SUBST([CUDA_LIBS]) AC_SUBST([CUDA_CPPFLAGS]) AC_SUBST([NVCC_GENCODE]) AC_SUBST([CUDA_ARCH_ALL])
  AM_CONDITIONAL([HAVE_CUDA], [test "x$NVCC" != xno])
])
