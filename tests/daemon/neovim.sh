#!/bin/sh
# neovim.sh - Neovim's built-in RPC client against hearthd, as contrib/neovim.md promises.
if ! command -v nvim >/dev/null; then
    echo "1..0 # SKIP nvim is not installed"
    exit 0
fi
dir=$(mktemp -d "${TMPDIR:-/tmp}/hearth-nvim.XXXXXX") || exit 1
pid=
trap '[ -z "$pid" ] || kill "$pid"; rm -rf "$dir"' EXIT
mkdir "$dir/models" && : >"$dir/models/fake.gguf"
printf 'model_dir = %s/models\nengine_timeout = 1200\n' "$dir" >"$dir/conf"
mkfifo "$dir/ready"
export HEARTH_SOCKET="$dir/run/hearth.sock" HOME="$dir"
"$top_builddir/hearthd" --foreground --config "$dir/conf" --state "$dir/state" \
    --engine "$top_builddir/tests/daemon/fake-engine" --ready-fd 5 5>"$dir/ready" 2>"$dir/log" &
pid=$!
head -c 1 "$dir/ready" >/dev/null # it listens
nvim --headless --clean -c "luafile $top_srcdir/tests/daemon/neovim.lua" </dev/null 2>"$dir/err"
rc=$?
sed 's/^/# /' "$dir/err" "$dir/log"
exit $rc
