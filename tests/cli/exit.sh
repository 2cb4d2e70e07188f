#!/bin/sh
# exit.sh - exit statuses, and the messages on standard error that go with them.
. "$top_srcdir/tests/cli/lib.sh"

status 2 "no verb" "$hearth"
status 2 "a verb that is none" "$hearth" frobnicate
err_has "is named" "frobnicate"
err_has "with a way to the list" "hearth help"
status 2 "nearly a verb" "$hearth" statsu
err_has "is told the nearest" "did you mean \`hearth status\`?"
for word in hlp helpp; do
    status 2 "nearly help: $word" "$hearth" $word
    err_has "is told so" "did you mean \`hearth help\`?"
done
status 2 "a verb of other tools" "$hearth" pull llama3.2
err_has "is told what there is instead" "put a GGUF file into a folder"
status 0 "help" "$hearth" help
cp "$dir/out" "$dir/help"
"$hearth" --help | cmp -s - "$dir/help"
result $? "is --help"
status 0 "help VERB" "$hearth" help sessions
grep -q "^usage: hearth sessions" "$dir/out"
result $? "is the verb's --help"
status 2 "help of no verb" "$hearth" help statsu
status 0 "version" "$hearth" version
is "is --version" "$(cat "$dir/out")" "$("$hearth" --version)"
status 2 "an unknown option" "$hearth" run --frobnicate x
err_has "is named, with the usage" "usage: hearth run"
status 2 "a value that is no number" "$hearth" run --temp warm x
err_has "is named with its option" "--temp"
status 2 "a number out of range" "$hearth" run --top-p 1.5 x
status 2 "not a number" "$hearth" run --temp nan x
status 2 "a negative seed" "$hearth" run --seed -1 x
status 2 "a seed of more than 64 bits" "$hearth" run --seed 18446744073709551616 x
err_has "is refused with the largest" "--seed wants a whole number from 0 to 18446744073709551615, not '18446744073709551616'"
status 2 "no service class" "$hearth" run --class foo x
err_has "is named with those that there are" "--class wants interactive, normal or background, not 'foo'"
status 2 "an empty stop string" "$hearth" run --stop end --stop "" x
err_has "is named with its option" "--stop wants a text that is not empty"
status 2 "an argument of a verb that takes none" "$hearth" ps tale
err_has "is named" "no argument is expected, not 'tale'"
status 2 "an export in two forms" "$hearth" sessions export S --markdown --json
err_has "is refused with both" "--markdown or --json, not both"
for sizes in 0 1,,2 ,1 1, "" 1x; do
    status 2 "bench --socket --prompt '$sizes'" "$hearth" bench tale --socket --prompt "$sizes"
    err_has "is refused as a whole" "--prompt wants up to 16 numbers from 1 on, as in \"128,512\", or none, not '$sizes'"
    status 2 "bench --batch '$sizes'" "$hearth" bench "$top_srcdir/contrib/models/tale-q4_k_m.gguf" --batch "$sizes"
    err_has "likewise" "--batch: \"$sizes\" is not a list of numbers"
done
# What a command would ignore is refused.
for words in "sessions show S --tokens" "bench tale --clients 2 --seed 3" "yield --end --seconds 5" "run --chat --raw x" \
    "tokenize -d --bos" "tokenize -d --no-bos" "tokenize -d --special" "version foo" "help run foo" "help sessions foo" \
    "help sessions show foo"; do
    status 2 "$words" "$hearth" $words
done
status 0 "help of a verb of sessions" "$hearth" help sessions show
is "is its own" "$(head -1 "$dir/out")" "usage: hearth sessions show SESSION [--tokens] [--json]"
[ ! -e "$HEARTH_SOCKET" ]
result $? "for all that no daemon was asked"
status 2 "a wrong command line with --json" "$hearth" run --think maybe --chat --json x
json_is "is an object, too" "d['error']['symbol'] == 'INVALID_PARAMS' and d['error']['message'].startswith('--think wants ')"
status 2 "... before --json" "$hearth" run --class foo --json x
json_is "is one as well" "d['error']['message'].startswith('--class wants ')"
# ... and that of any, whether or not the verb has the option, or is one.
for words in "nonesuch --json" "--json list" "--nonesuch list --json" "help nonesuch --json" "help run list --json" \
    "version --json" "sessions nonesuch --json" "top --json" "purge --json" "doctor --json" "metrics --json" \
    "list --json=1" "list --js --nonesuch"; do
    status 2 "$words" "$hearth" $words
    json_is "... is an object" "d['error']['symbol'] == 'INVALID_PARAMS' and d['error']['message'] != ''"
done
status 2 "--json after --" "$hearth" trace --nonesuch -- --json
is "is no option" "$(cat "$dir/out")" ""
status 2 "an option without its value" "$hearth" run -m
status 2 "two prompts" "$hearth" run -m tale one two
status 2 "stop without a model" "$hearth" stop
status 2 "show without a model" "$hearth" show
status 2 "sessions with a word that is none" "$hearth" sessions shuffle
status 2 "eval with letters for ids" "$hearth" eval --tokens "1 b"
for words in "help help" "help --help" "help -h" "help version" "version --help"; do
    status 0 "$words" "$hearth" $words
    is "... lists the verbs" "$(head -1 "$dir/out")" "usage: hearth [--no-start] VERB [OPTION...] [ARGUMENT...]"
done
status 2 "help of no verb" "$hearth" help nonesuch
err_has "says so" "no verb 'nonesuch'"
status 2 "help of two verbs" "$hearth" help help help
status 0 "--version" "$hearth" --version
status 0 "--help" "$hearth" --help
for verb in serve run chat list ps show load stop sessions resume rm tokenize eval bench status top metrics; do
    grep -q "^  $verb " "$dir/out"
    result $? "--help lists $verb"
    grep -q "^\.It Cm $verb\b" "$top_srcdir/client/hearth.1"
    result $? "hearth.1 describes $verb"
done
for verb in run chat resume sessions list show load ps stop status tokenize eval bench top metrics; do
    missing=
    for option in $("$hearth" $verb --help | sed -n 's/^  .*--\([a-z-]*\).*/\1/p' | grep -vxE 'help|no-start'); do
        grep -q -- "Fl -$option\b" "$top_srcdir/client/hearth.1" || grep -q -- ", -$option\b" "$top_srcdir/client/hearth.1" ||
            missing="$missing --$option"
    done
    is "hearth.1 has every option of $verb" "$missing" ""
done

status 3 "no daemon and none may be started" "$hearth" --no-start list
status 3 "the same by the environment" env HEARTH_NO_START=1 "$hearth" list
status 1 "a model that is not there" "$hearth" run -m no-such-model -n 1 x
err_has "is named" "hearth: MODEL_NOT_FOUND: "
err_has "by its name" "no-such-model"
status 1 "a path that is not there" "$hearth" run -m "$dir/no.gguf" -n 1 x
err_has "is named in full" "$dir/no.gguf"
printf 'GGUF\3\0\0\0 and then nothing' >"$dir/bad.gguf"
status 0 "ls" "$hearth" ls --json
json_is "is list" "any(m['name'] == 'tale' for m in d['models'])"
status 0 "serve beside a running daemon" "$hearth" serve
err_has "says so, with its pid" "hearth: a daemon is running already, pid "
status 1 "a damaged model" "$hearth" run -m "$dir/bad.gguf" -n 1 x
err_has "is said to be" "hearth: MODEL_INVALID: bad.gguf: "
(cd "$dir" && "$hearth" run -m bad.gguf -n 1 x 2>err)
err_has "and that it is the one which lies here" "hearth: MODEL_INVALID: bad.gguf: "
status 1 "an empty prompt" "$hearth" run -n 1 ""
status 1 "a session nobody knows" "$hearth" rm nobody
status 0 "and after all this a request works" "$hearth" run -n 1 "Once"
status 1 "an error with --json" "$hearth" run -m no-such-model --json x
json_is "is an object with the error's name" "d['error']['symbol'] == 'MODEL_NOT_FOUND' and 'no-such-model' in d['error']['message']"
status 1 "an error with a way on" "$hearth" resume nobody --json
json_is "tells it, too" "d['error']['symbol'] == 'SESSION_NOT_FOUND' and 'hearth sessions' in d['error']['next']"
status 0 "a session" "$hearth" run -s bound -n 1 x
cp "$top_srcdir/contrib/models/tale-q4_k_m.gguf" "$dir/second.gguf"
status 1 "of another model" "$hearth" run -m "$dir/second.gguf" -s bound x
err_has "is told how it goes on" "hearth sessions export SESSION | hearth sessions import --name NEW -m MODEL"
printf '{"hearth_session": 1, "name": "a\\u0000b", "model": {"named": "tale"}, "turns": [], "n_turns": 0, "n_tokens": 0}' >"$dir/nul.json"
status 1 "a name with a NUL in a document" "$hearth" sessions import "$dir/nul.json"
err_has "is refused" "name: holds a NUL"
status 1 "and nothing is imported" "$hearth" sessions show a
"$hearth" run -n 2 --temp 0 --stats x >"$dir/both" 2>&1
is "stats follow the text on a line of their own" "$(tail -n 1 "$dir/both" | cut -c 1-7)" "reused "
"$hearth" run -n 2 --temp 0 --stats x 2>/dev/null | tail -c 1 >"$dir/last"
is "a pipe of its own gets the text alone" "$(wc -l <"$dir/last")" 0
cat >"$dir/talk.py" <<'P'
import sys
from terminal import Terminal, case
t = Terminal(sys.argv[1], "show", "\x1b[2Jx\xc2\x9b")
case(t.end() == 1 and b"\x1b[2J" not in t.all and b"?[2Jx" in t.all, "an error shows no control characters to a terminal")
t = Terminal(sys.argv[1], "rm", "bound")
t.expect(rb"Remove 1 session, and what was said in it\? \[y/N\] ")
t.type(b"\r")
case(t.end() == 1 and b"nothing was removed" in t.all, "rm asks on a terminal")
t = Terminal(sys.argv[1], "sessions", "show", "forged")
case(t.end() == 0 and b"\x1b" not in t.all and b"--- ?]0;x?" in t.all, "nor does a turn's role")
t = Terminal(sys.argv[1], "load", sys.path[0] + "/odd\x1b[7m.gguf")
case(t.end() == 0 and b"\x1b[7m" not in t.all and b"odd?[7m.gguf loaded in" in t.all, "nor does the name of a file")
P
printf '{"hearth_session": 1, "name": "forged", "model": {"named": "tale"}, "turns": [{"role": "\\u001b]0;x\\u0007", "text": "hi", "tokens": [5]}], "n_turns": 1, "n_tokens": 1}' >"$dir/forged.json"
status 0 "a session with a role of control characters" "$hearth" sessions import "$dir/forged.json"
cp "$dir/second.gguf" "$(printf '%s/odd\033[7m.gguf' "$dir")"
terminal 4 "$dir/talk.py"
status 0 "off a terminal it does not ask" "$hearth" rm bound
"$hearth" run -n 1 x >/dev/full 2>"$dir/err"
is "output that cannot be written is an error" "$?" 1
"$hearth" run -n 1 x >&- 2>"$dir/err"
is "so is one that is closed" "$?" 1
err_has "which no socket takes the place of" "hearth: the output could not be written"
"$hearth" --help >/dev/full 2>"$dir/err"
is "help that cannot be written is one, too" "$?" 1
for verb in run fork "sessions list"; do
    "$hearth" $verb --help >/dev/full 2>"$dir/err"
    is "so is that of $verb" "$?" 1
    err_has "... which is said" "hearth: the output could not be written"
done
for option in --help --version --check; do
    "$top_builddir/hearthd" $option >/dev/full 2>"$dir/err"
    is "so is that of hearthd $option" "$?" 1
    err_has "... which is said" "hearthd: the output could not be written"
done
done_testing
