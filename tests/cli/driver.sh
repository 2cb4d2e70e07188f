#!/bin/sh
# driver.sh - without a GPU, without a driver, or with one that is too old or broken (fake-driver.c) the CPU serves, and
# hearth says why.
. "$top_srcdir/tests/cli/lib.sh"
model=$(ls "$top_srcdir"/contrib/models/*.gguf)

if "$hearth" bench "$model" --backend cuda --prompt 1 --depth none 2>&1 | grep -q 'this build has no backend'; then
    echo "1..0 # SKIP built without CUDA"
    exit 0
fi
mkdir "$dir/none" "$dir/fake"
ln -s "$top_builddir/tests/cli/.libs/fake-driver.so" "$dir/fake/libcuda.so.1"

# without WHAT WORDS VARIABLE=VALUE... - what is said, and who serves then.
without() {
    what=$1 words=$2
    shift 2
    status 1 "$what: no CUDA" env LD_LIBRARY_PATH="$dir/fake" "$@" \
        "$hearth" bench "$model" --backend cuda --prompt 1 --depth none
    err_has "... and why" "DEVICE: no usable GPU: $words"
    status 0 "$what: the CPU" env LD_LIBRARY_PATH="$dir/fake" "$@" \
        "$hearth" bench "$model" --prompt 1 --depth none --json
    err_has "... because" "hearth-bench: no cuda: no usable GPU: $words"
    json_is "... which the result says" "d['backend'] == 'cpu'"
}
without "an old driver" "the driver is too old, for CUDA 11.4; this engine needs 1" FAKE_DRIVER=11040
without "no driver" "there is no driver (libcuda.so.1)" FAKE_DRIVER=0
without "no device" "no CUDA-capable device is detected" FAKE_INIT=100
without "a broken driver" "unknown error" FAKE_INIT=999

export LD_LIBRARY_PATH="$dir/fake" FAKE_DRIVER=11040
status 0 "the daemon serves all the same" "$hearth" run -m "$model" -n 2 --json x
status 0 "... which load says" "$hearth" load "$model"
is "... as a warning" "$(grep -c '^  WARNING  .* runs on the CPU: no usable GPU: the driver is too old' "$dir/out")" 1
status 0 "... and where it is" "$hearth" load "$model" --json
json_is "... with the reason" "d['where'] == 'cpu' and 'the driver is too old' in d['no_gpu']"
status 0 "... on the CPU" "$hearth" status --json
json_is "... which status says, and why" \
    "d['engine']['backend'] == 'cpu' and d['engine']['restarts'] == 0 and 'the driver is too old' in d['engine']['no_gpu']"
status 0 "... to people, too" "$hearth" status
is "... as a warning" "$(grep -c 'WARNING  no GPU is used: no usable GPU: the driver is too old' "$dir/out")" 1
is "... and the log says why" "$(cat "$dir"/state/hearth/hearthd.log | grep -c 'no cuda: no usable GPU: the driver is too old')" 1
done_testing
