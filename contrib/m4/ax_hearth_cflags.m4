# AX_HEARTH_CFLAGS: the warnings of the house, kept in HEARTH_CFLAGS so that the user's CFLAGS stay theirs.
AC_DEFUN([AX_HEARTH_CFLAGS], [
  HEARTH_CFLAGS="-std=gnu11 -fvisibility=hidden -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wformat=2 -Wvla"
  HEARTH_CFLAGS="$HEARTH_CFLAGS -Wno-missing-field-initializers"
  # No compiler of C that is kept up takes these for warnings any more; older ones build what dies at run time.
  HEARTH_CFLAGS="$HEARTH_CFLAGS -Werror=incompatible-pointer-types -Werror=int-conversion -Werror=implicit-function-declaration"
  # The order and rounding of every float operation is part of the CPU backend's specification.
  HEARTH_CFLAGS="$HEARTH_CFLAGS -ffp-contract=off"
  AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror], [treat warnings as errors (CI)])], [], [enable_werror=no])
  AS_IF([test "x$enable_werror" = xyes], [HEARTH_CFLAGS="$HEARTH_CFLAGS -Werror"])
  AC_SUBST([HEARTH_CFLAGS])
])
