#!/bin/sh
# no-algorithm.sh - with a cuBLASLt that has no algorithm for any shape (fake-lt.c) long prompts stay as exact, also with
# two models loaded, and each device warns once.
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT || exit 1
for version in 11 12 13 14; do
    ln -s "$top_builddir/tests/ops/.libs/fake-lt.so" "$dir/libcublasLt.so.$version"
done
run() { LD_LIBRARY_PATH="$dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$top_builddir/tests/ops/$@" >"$dir/out" 2>"$dir/err"; }
said() { grep -c 'cuBLASLt has no algorithm for [0-9]* x [0-9]* x [0-9]*; ' "$dir/err"; }

run ops cuda auto fast
status=$?
if [ $status = 77 ]; then
    echo "1..0 # SKIP no GPU, or built without CUDA"
    exit 0
fi
[ $status = 0 ] || sed 's/^/# /' "$dir/out" "$dir/err"
[ $status = 0 ] && echo "ok 1 - every op" || echo "not ok 1 - every op"
[ "$(said)" -gt 0 ] && echo "ok 2 - which says so" || echo "not ok 2 - which says so"
run beside cuda
status=$?
[ $status = 0 ] || sed 's/^/# /' "$dir/out" "$dir/err"
[ $status = 0 ] && echo "ok 3 - two models" || echo "not ok 3 - two models"
# One of its tests has prompts that go to the library, of several shapes.
[ "$(said)" = 1 ] && echo "ok 4 - once a device" || echo "not ok 4 - $(said) times a device, not once"
echo "1..4"
