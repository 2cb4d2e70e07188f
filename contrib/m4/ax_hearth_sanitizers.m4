# AX_HEARTH_SANITIZERS: --enable-asan, --enable-ubsan, --enable-tsan.
AC_DEFUN([AX_HEARTH_SANITIZERS], [
  hearth_sanitizers=
  AC_ARG_ENABLE([asan], [AS_HELP_STRING([--enable-asan], [AddressSanitizer])], [], [enable_asan=no])
  AC_ARG_ENABLE([ubsan], [AS_HELP_STRING([--enable-ubsan], [UndefinedBehaviorSanitizer])], [], [enable_ubsan=no])
  AC_ARG_ENABLE([tsan], [AS_HELP_STRING([--enable-tsan], [ThreadSanitizer])], [], [enable_tsan=no])
  AS_IF([test "x$enable_asan" = xyes && test "x$enable_tsan" = xyes], [AC_MSG_ERROR([--enable-asan and --enable-tsan exclude each other])])
  AS_IF([test "x$enable_asan" = xyes], [hearth_sanitizers="$hearth_sanitizers -fsanitize=address"])
  AS_IF([test "x$enable_ubsan" = xyes], [hearth_sanitizers="$hearth_sanitizers -fsanitize=undefined -fno-sanitize-recover=undefined"])
  AS_IF([test "x$enable_tsan" = xyes], [hearth_sanitizers="$hearth_sanitizers -fsanitize=thread"])
  AS_IF([test -n "$hearth_sanitizers"], [
    HEARTH_CFLAGS="$HEARTH_CFLAGS $hearth_sanitizers -fno-omit-frame-pointer"
    HEARTH_LDFLAGS="$hearth_sanitizers"])
  AC_SUBST([HEARTH_LDFLAGS])
])
