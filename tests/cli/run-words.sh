#!/bin/sh
# run-words.sh - what the words after `hearth run` mean: a model's name, a prompt, an option; on a terminal and off it.
. "$top_srcdir/tests/cli/lib.sh"
mkdir -p "$dir/data/hearth/models"
cp "$top_srcdir/contrib/models/tale-q4_k_m.gguf" "$dir/data/hearth/models/other.gguf"

# Which words are the prompt: a session's transcript tells.
prompt_of() {
    "$hearth" sessions show "$1" --json >"$dir/out" 2>&1
    json "$dir/out" "[d['path'].rsplit('/', 1)[1], d['transcript'][0]['text']]"
}
status 0 "run MODEL PROMPT" "$hearth" run other -s a -n 1 "The king"
is "... runs that model" "$(prompt_of a)" "['other.gguf', 'The king']"
printf 'The queen' >"$dir/prompt"
"$hearth" run -s b -n 1 other <"$dir/prompt" >/dev/null
is "run MODEL: the prompt is on stdin" "$(prompt_of b)" "['other.gguf', 'The queen']"
status 0 "run -- WORD" "$hearth" run -s c -n 1 -- other
is "... is a prompt" "$(prompt_of c)" "['tale-q4_k_m.gguf', 'other']"
status 0 "run -p WORD" "$hearth" run -s d -n 1 -p other
is "... is a prompt" "$(prompt_of d)" "['tale-q4_k_m.gguf', 'other']"
status 0 "run -m MODEL WORD" "$hearth" run -s e -n 1 -m tale other
is "... is a prompt" "$(prompt_of e)" "['tale-q4_k_m.gguf', 'other']"
status 0 "run MODEL -- WORD" "$hearth" run -s f -n 1 other -- -dash
is "... is both" "$(prompt_of f)" "['other.gguf', '-dash']"
status 0 "run MODEL -p WORD" "$hearth" run -s g -n 1 other --prompt tale
is "... is both" "$(prompt_of g)" "['other.gguf', 'tale']"
status 0 "run FILE PROMPT" "$hearth" run -s h -n 1 "$dir/data/hearth/models/other.gguf" "He"
is "... runs that file" "$(prompt_of h)" "['other.gguf', 'He']"
status 0 "run with nearly a model's name" "$hearth" run -s i -n 1 othe
is "... is a prompt" "$(prompt_of i)" "['tale-q4_k_m.gguf', 'othe']"
is "and nothing is said off a terminal" "$(cat "$dir/err")" ""
status 2 "two words of which none is a model" "$hearth" run llama3.2 hello
err_has "... says so" 'there is no model "llama3.2"'
status 2 "a model, and two prompts" "$hearth" run other one two
status 2 "a prompt, and -p" "$hearth" run -p one two

status 0 "--temperature" "$hearth" run -n 1 --temperature 0 x
status 2 "an unknown letter after a good option" "$hearth" run -n 3 -dash
err_has "... is what is named, with a way on" "hearth run: -d: no such option; text that begins with '-' goes after --"
status 2 "an unknown word" "$hearth" run --verbose x
err_has "... is what is named" "hearth run: --verbose: no such option"
status 2 "a value that is missing" "$hearth" run x -n
err_has "... is what is named" "hearth run: -n: its value is missing"
status 2 "a value that is missing, of a long option" "$hearth" run x --top-k
err_has "... is what is named" "hearth run: --top-k: its value is missing"
status 2 "a value too much" "$hearth" run x --json=yes
err_has "... is what is named" "hearth run: --json takes no value"

# Other quantisations of the default model beside it, one of them twice: the name is still that of the one brought along.
for name in tale-q4_0 tale-Q4_K_M; do cp "$dir/data/hearth/models/other.gguf" "$dir/data/hearth/models/$name.gguf"; done
status 0 "the default model beside its like" "$hearth" run -s j -n 1 "The king"
is "... is the one that comes along" "$(prompt_of j)" "['tale-q4_k_m.gguf', 'The king']"
status 0 "its name names it" "$hearth" run -s k -n 1 tale "The king"
is "... and no other" "$(prompt_of k)" "['tale-q4_k_m.gguf', 'The king']"
status 1 "nearly a model's name" "$hearth" run -m otehr x
err_has "... is told the nearest" 'there is no model "otehr"; near it: other; '
status 2 "nor with a prompt behind it" "$hearth" run otehr x
err_has "... is told the nearest" 'there is no model "otehr"; near it: other; '
status 1 "as others write it" "$hearth" run -m other:latest x
err_has "... likewise" 'near it: other; '
status 1 "a name that is like none" "$hearth" show xyzzy
err_has "... is told the folders" 'there is no model "xyzzy"; searched: /'
result "$(grep -c ', and [0-9]* more$' "$dir/err" | sed 's/1/0/;t;s/.*/1/')" "... none of them cut off"
"$hearth" stop --daemon >/dev/null
configure "model = other"
status 0 "a default model in hearth.conf" "$hearth" run -s l -n 1 "The king"
is "... is the default" "$(prompt_of l)" "['other.gguf', 'The king']"
status 0 "HEARTH_MODEL" env HEARTH_MODEL=tale "$hearth" run -s m -n 1 "The king"
is "... comes before it" "$(prompt_of m)" "['tale-q4_k_m.gguf', 'The king']"
configure
"$hearth" stop --daemon >/dev/null

cat >"$dir/talk.py" <<'P'
import sys
from terminal import Terminal, case
t = Terminal(sys.argv[1], "run", "-n", "3", "Once upon")
t.expect(rb"hearth: tale answers, as no model was named \(`hearth run MODEL` picks one\)\r\n")
case(t.end() == 0, "a terminal is told which model answers")
t = Terminal(sys.argv[1], "run", "other", "-n", "3", "Once upon")
t.expect(rb"hearth: other answers\r\n")
case(t.end() == 0, "also the one that was named")
t = Terminal(sys.argv[1], "run", "other", "-n", "3")
t.expect(rb">>> ")
t.type(b"Hello.\r")
t.expect(rb">>> ")
t.type(b"\x04")
case(t.end() == 0 and b"hearth resume chat-" in t.seen, "without a prompt a terminal gets a conversation")
t = Terminal(sys.argv[1], "run", "-n", "3", "-")
t.expect(rb"the prompt is read from the terminal; Ctrl\+D ends it\r\n")
t.type(b"Once\r\x04")
case(t.end() == 0, "with - it is told what is waited for")
P
terminal 4 "$dir/talk.py"
done_testing
