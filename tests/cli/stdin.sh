#!/bin/sh
# stdin.sh - standard input: read only where the prompt is absent or "-", and byte for byte.
. "$top_srcdir/tests/cli/lib.sh"

status 0 "a prompt" "$hearth" run -n 4 --temp 0 "The king said"
cp "$dir/out" "$dir/text"
printf 'The king said' | "$hearth" run -n 4 --temp 0 >"$dir/out"
is "no prompt: stdin" "$(cat "$dir/out")" "$(cat "$dir/text")"
printf 'The king said' | "$hearth" run -n 4 --temp 0 - >"$dir/out"
is "a dash: stdin" "$(cat "$dir/out")" "$(cat "$dir/text")"
left=$(printf 'left alone' | { "$hearth" run -n 1 x >/dev/null; cat; })
is "with a prompt stdin is not read" "$left" "left alone"
left=$(printf 'left alone' | { "$hearth" list >/dev/null; "$hearth" status >/dev/null; cat; })
is "nor by other verbs, nor by a daemon they start" "$left" "left alone"

# All bytes, NUL and what is not UTF-8 included, through the tokenizer and back.
python3 -c 'import sys; sys.stdout.buffer.write(bytes(range(256)) + b"\xff\xfe\x00\x80 caf\xc3\xa9 \xf0\x9f\x98")' >"$dir/bytes"
"$hearth" tokenize -m tale <"$dir/bytes" >"$dir/ids"
result $? "tokenize takes any bytes"
"$hearth" tokenize -m tale --decode <"$dir/ids" | cmp -s - "$dir/bytes"
result $? "and --decode gives exactly these back"
printf '' | "$hearth" tokenize --json >"$dir/out"
json_is "no bytes, no ids" "d == {'ids': []}"
printf '<|im_start|>' >"$dir/special"
is "--special makes one token of a special token's text" "$("$hearth" tokenize --special <"$dir/special" | wc -w)" 1
is "without it, it is text" "$(($("$hearth" tokenize <"$dir/special" | wc -w) > 1))" 1
printf 'a b\n' >"$dir/line"
"$hearth" tokenize <"$dir/line" >"$dir/ids"
"$hearth" tokenize -d <"$dir/ids" | cmp -s - "$dir/line"
result $? "the last newline is not cut off"
printf '1 2 x' | "$hearth" tokenize -d >/dev/null 2>"$dir/err"
is "--decode wants ids" "$?" 2
printf '1 2\0 3 4' | "$hearth" tokenize -d >/dev/null 2>"$dir/err"
is "... and no NUL among them" "$?" 2
printf '1 2\0 3 4' | "$hearth" eval >/dev/null 2>"$dir/err"
is "nor does eval take one" "$?" 2
printf '65 66 67' | "$hearth" eval --top 1 --json >"$dir/out"
json_is "eval takes ids from stdin" "len(d['top']) == 3"

# Chat: each line is a message; the answers end in newlines of their own.
printf 'Tell me a story about a fox.\n\nGo on.\n' | "$hearth" chat -s talk -n 5 --temp 0 --json >"$dir/lines" 2>"$dir/err"
is "chat answers each line that is not empty" "$? $(wc -l <"$dir/lines")" "0 2"
sed -n 2p "$dir/lines" >"$dir/out"
json_is "in one session" "d['usage']['reused_tokens'] > 0"
status 0 "whose transcript" "$hearth" sessions show talk --json
json_is "is the conversation" "[t['role'] for t in d['transcript']] == ['user', 'assistant'] * 2"
printf 'Hello' | "$hearth" chat -n 3 >"$dir/out" 2>"$dir/err"
result $? "a last line without a newline counts"
status 0 "a chat without a name" "$hearth" sessions --json
json_is "gets one" "any(s['name'].startswith('chat-') for s in d['sessions'])"

# What cannot be read is not taken for nothing.
for verb in run chat tokenize eval "sessions import" "render -m tale"; do
    "$hearth" $verb <"$dir" >"$dir/out" 2>"$dir/err"
    is "$verb from a folder" "$?" 1
    err_has "... says why" "hearth: IO: stdin: Is a directory"
done
done_testing
