# lib.sh - sourced by the tests of the editors' plugins: a private hearthd with the fake engine, whose texts are known and
# whose tokens come when they are asked for.
for program in nvim "$editor"; do # Neovim is also the terminal that the others are seen in
    if ! command -v "$program" >/dev/null; then
        echo "1..0 # SKIP $program is not installed"
        exit 0
    fi
done
dir=$(mktemp -d "${TMPDIR:-/tmp}/hearth-editor.XXXXXX") || exit 1
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; rm -rf "$dir"' EXIT
mkdir "$dir/models" && : >"$dir/models/fake.gguf"
printf 'model_dir = %s/models\nmodel = fake\nengine_timeout = 1200\n' "$dir" >"$dir/conf"
mkfifo "$dir/ready"
export HEARTH_SOCKET="$dir/run/hearth.sock" HOME="$dir" XDG_STATE_HOME="$dir/state" XDG_DATA_HOME="$dir/data"
"$top_builddir/hearthd" --foreground --config "$dir/conf" --state "$dir/state" \
    --engine "$top_builddir/tests/daemon/fake-engine" --ready-fd 5 5>"$dir/ready" 2>"$dir/log" &
pid=$!
head -c 1 "$dir/ready" >/dev/null # it listens

# in_terminal SCRIPT - runs the editor's test, a Lua script for the Neovim that has the editor in a terminal.
in_terminal() {
    LUA_PATH="$top_srcdir/tests/editors/?.lua" DIR="$dir" timeout 600 nvim --headless --clean -i NONE \
        -c "luafile $1" </dev/null 2>"$dir/err"
    rc=$?
    sed 's/^/# /' "$dir/err" "$dir/log"
    exit $rc
}
