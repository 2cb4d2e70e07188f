#!/bin/sh
# kvfile.sh: the second reader and writer of KV files agrees with the file in the tree, which tests/unit/kvtier/kvfile.c
# compares with what we write.
py="$top_srcdir/tests/unit/kvtier/kvfile.py" golden="$top_srcdir/tests/fuzz/corpus/kvfile/sound"
if ! /usr/bin/python3 -c 'import ctypes; ctypes.CDLL("libxxhash.so.0")' 2>/dev/null; then
    echo "1..0 # SKIP no /usr/bin/python3, or no libxxhash.so.0 for it"
    exit 0
fi
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
n=0 failed=0
check() {
    n=$((n + 1))
    if "$@" >"$dir/out" 2>&1; then
        echo "ok $n - $name"
    else
        failed=1
        echo "not ok $n - $name"
        sed 's/^/# /' "$dir/out"
    fi
}
same() {
    /usr/bin/python3 "$py" write "$dir/sound" && cmp "$dir/sound" "$golden"
}
name="the independent writer makes the file in the tree" check same
name="the independent reader finds it sound" check /usr/bin/python3 "$py" read "$golden"
echo "1..$n"
exit $failed
