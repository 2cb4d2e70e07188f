#!/bin/sh
# vscode.sh - contrib/vscode compiles, and its core, which knows nothing of the editor, works in Node: stream, cancel,
# errors, the end of a connection. It needs `npm install` in contrib/vscode, or its folder in $HEARTH_NODE_MODULES.
modules=${HEARTH_NODE_MODULES:-$top_srcdir/contrib/vscode/node_modules}
if ! [ -x "$modules/.bin/tsc" ]; then
    echo "1..0 # SKIP npm install was not run in contrib/vscode"
    exit 0
fi
editor=node
. "$top_srcdir/tests/editors/lib.sh"
mkdir "$dir/ext"
cp -r "$top_srcdir/contrib/vscode/src" "$top_srcdir/contrib/vscode/tsconfig.json" "$dir/ext"
ln -s "$(cd "$modules" && pwd)" "$dir/ext/node_modules"
(cd "$dir/ext" && node_modules/.bin/tsc -p .) >"$dir/tsc" 2>&1
export COMPILED=$?
cp "$top_srcdir/tests/editors/vscode.mjs" "$dir/ext"
timeout 600 node "$dir/ext/vscode.mjs"
rc=$?
sed 's/^/# /' "$dir/tsc" "$dir/log"
exit $rc
