#!/bin/sh
# header.sh: what is installed compiles alone, as C (the oldest we promise) and as C++, without a warning; and
# libhearth.so exports exactly what hearth.h declares and hearth.map lists.
n=0
bad=0
check()
{
    n=$((n + 1))
    if [ "$2" = 0 ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; bad=1; fi
}
skip()
{
    n=$((n + 1))
    echo "ok $n - $1 # SKIP $2"
}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
inc=$top_srcdir/libclient
warn="-Wall -Wextra -Wpedantic -Werror -fsyntax-only -I$inc"

echo '#include <hearth.h>' >"$tmp/h.c"
echo '#include <hearth-libevent.h>' >"$tmp/l.c"
for std in c99 c11 c17; do
    # shellcheck disable=SC2086
    ${CC:-cc} -std=$std $warn "$tmp/h.c"
    check "hearth.h is $std" $?
done
# shellcheck disable=SC2086
${CC:-cc} -std=gnu11 $warn "$tmp/l.c"
check "hearth-libevent.h is C" $?
if command -v "${CXX:-c++}" >/dev/null 2>&1; then
    for std in c++11 c++17; do
        # shellcheck disable=SC2086
        ${CXX:-c++} -x c++ -std=$std $warn "$tmp/h.c"
        check "hearth.h is $std" $?
    done
    # shellcheck disable=SC2086
    ${CXX:-c++} -x c++ -std=gnu++11 $warn "$tmp/l.c"
    check "hearth-libevent.h is C++" $?
else
    skip "hearth.h is C++" "no C++ compiler"
fi

tr '\n' ' ' <"$inc/hearth.h" | tr ';' '\n' | sed -n 's/.*HEARTH_API [^(]*[ *]\(hearth_[a-z_]*\)(.*/\1/p' | sort >"$tmp/declared"
sed -n 's/^ *\(hearth_[a-z_]*\);$/\1/p' "$inc/hearth.map" | sort >"$tmp/mapped"
[ "$(wc -l <"$tmp/declared")" -gt 20 ] && cmp "$tmp/declared" "$tmp/mapped"
check "hearth.map lists what hearth.h declares" $?
so=$top_builddir/libclient/.libs/libhearth.so
if [ -f "$so" ]; then
    nm -D --defined-only "$so" | sed -n 's/.* T \([A-Za-z_]*\).*/\1/p' | sort >"$tmp/exported"
    cmp "$tmp/mapped" "$tmp/exported"
    check "libhearth.so exports what hearth.map lists" $?
else
    skip "libhearth.so exports what hearth.map lists" "no shared library in this build"
fi
echo "1..$n"
exit $bad
