#!/bin/sh
# style.sh - colours are for terminals, and NO_COLOR turns them off; and what a full context of a session leads to.
. "$top_srcdir/tests/cli/lib.sh"
cat >"$dir/style.py" <<'P'
import sys
from terminal import Terminal, case
h = sys.argv[1]
def shown(*words, **env):
    t = Terminal(h, *words, **env)
    t.end()
    return t.all
bold, red, dim, off = b"\x1b[1m", b"\x1b[1;31m", b"\x1b[2m", b"\x1b[0m"
case(shown("list").startswith(bold + b"NAME" + off), "a table's head stands out on a terminal")
case(red + b"hearth: MODEL_NOT_FOUND" + off + b": " in shown("show", "nonesuch"), "so does an error's name")
case(dim + b"hearth: tale answers" in shown("run", "-m", "tale", "-n", "1", "x"), "what is no answer steps back")
plain = shown("list", NO_COLOR="1") + shown("show", "nonesuch", NO_COLOR="1") + shown("list", TERM="dumb")
case(b"\x1b" not in plain, "NO_COLOR and TERM=dumb are obeyed")
case(shown("list", NO_COLOR="").startswith(bold), "an empty NO_COLOR says nothing")
P
terminal 5 "$dir/style.py"
"$hearth" list >"$dir/out"
is "a pipe has no colours" "$(grep -c "$(printf '\033')" "$dir/out")" 0

# The context of the model that comes along has 1024 tokens.
long=$(python3 -c 'print("The king went on. " * 200)')
status 0 "most of a context" "$hearth" run -s story -n 1 "$long"
status 1 "too much for it" "$hearth" run -s story -n 1 "$long"
err_has "is CONTEXT_FULL" "hearth: CONTEXT_FULL: "
err_has "with a next step" "hearth sessions export SESSION --markdown | tail -n 40 | hearth run --chat -s NEW -m MODEL"
status 1 "too much without a session" "$hearth" run -n 1 "$long$long"
is "is no session's affair" "$(grep -c 'sessions export' "$dir/err")" 0
status 0 "to the end of it" "$hearth" run -s story -n -1 --temp 1.5 --top-k 0 --top-p 1 --min-p 0 --seed 3 " And"
"$hearth" sessions export story --markdown | tail -n 4 | "$hearth" run --chat -s next -m tale -n 3 >"$dir/out" 2>"$dir/err"
result $? "the step can be taken as it stands"
done_testing
