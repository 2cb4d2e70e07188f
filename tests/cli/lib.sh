# lib.sh - sourced by the tests of the command: a private daemon's environment, and TAP.
#
# Nothing is started here: the first command starts the daemon, as it would for a person. It, its socket, its state and
# its log lie in $dir, which goes away at the end.
hearth=$top_builddir/hearth
dir=$(mktemp -d "${TMPDIR:-/tmp}/hearth-cli.XXXXXX") || exit 1
export HEARTH_SOCKET="$dir/hearth.sock" HOME="$dir" TMPDIR="$dir" XDG_RUNTIME_DIR="$dir/run"
export XDG_STATE_HOME="$dir/state" XDG_CONFIG_HOME="$dir/config" XDG_DATA_HOME="$dir/data"
unset HEARTH_MODEL HEARTH_NO_START NO_COLOR
n=0

# configure LINE... - the configuration of the daemon that is started next. An engine that is interrupted for a while, as
# on a loaded machine, is not one that does not answer.
configure() {
    mkdir -p "$XDG_CONFIG_HOME/hearth"
    printf '%s\n' "engine_timeout = 1200" "$@" >"$XDG_CONFIG_HOME/hearth/hearth.conf"
}
configure

finish() {
    "$hearth" --no-start stop --daemon --now >/dev/null 2>&1
    rm -rf "$dir"
}
trap finish EXIT
trap 'exit 1' INT TERM

# result WHETHER NAME - one test case; WHETHER is an exit status.
result() {
    n=$((n + 1))
    if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi
}
# status WANTED NAME COMMAND... - the command's exit status; its output stays in $dir/out and $dir/err.
status() {
    wanted=$1 name=$2
    shift 2
    "$@" >"$dir/out" 2>"$dir/err"
    got=$?
    if [ "$got" = "$wanted" ]; then result 0 "$name"; else
        result 1 "$name"
        echo "# exit status $got, not $wanted; stdout and stderr:"
        sed 's/^/# /' "$dir/out" "$dir/err"
    fi
}
# is NAME GOT WANTED
is() {
    if [ "$2" = "$3" ]; then result 0 "$1"; else
        result 1 "$1"
        printf '%s\n' "got: $2" "wanted: $3" | sed 's/^/# /'
    fi
}
# err_has NAME TEXT - what the last `status` said on stderr.
err_has() {
    if grep -qF -- "$2" "$dir/err"; then result 0 "$1"; else
        result 1 "$1"
        sed 's/^/# stderr: /' "$dir/err"
    fi
}
# json FILE EXPRESSION - prints a Python expression over the document, which is `d`.
json() {
    python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" "$2"
}
# json_is NAME EXPRESSION - the expression over the last `status` output is true.
json_is() {
    got=$(json "$dir/out" "$2" 2>&1)
    if [ "$got" = True ]; then result 0 "$1"; else
        result 1 "$1"
        printf '%s\n' "$2: $got" | sed 's/^/# /'
        head -c 2000 "$dir/out" | sed 's/^/# /'
        echo
    fi
}
# terminal COUNT SCRIPT - the cases of a Python script that sits at a pseudo-terminal (terminal.py); there must be COUNT.
terminal() {
    PYTHONPATH=$top_srcdir/tests/cli PYTHONDONTWRITEBYTECODE=1 python3 "$2" "$hearth" >"$dir/tap" 2>"$dir/tap.err"
    while read -r line; do
        case $line in
        ok*) result 0 "${line#* - }" ;;
        *) result 1 "${line#* - }" ;;
        esac
    done <"$dir/tap"
    is "the terminal's cases all came" "$(grep -c . "$dir/tap")" "$1"
    sed 's/^/# /' "$dir/tap.err"
}
done_testing() { echo "1..$n"; }
