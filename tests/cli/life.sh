#!/bin/sh
# life.sh - a session's life at a shell: exported and imported, as Markdown, pinned, removed all at once, backed up.
. "$top_srcdir/tests/cli/lib.sh"

"$hearth" run -s fable -n 20 --temp 0.7 --seed 5 "Once upon a time" >/dev/null
"$hearth" run --chat -s talk -n 8 --temp 0 "# Tell me
\`\`\`
> a tale" >/dev/null
printf 'caf\351 \303\251' | "$hearth" run -s bytes -n 3 >/dev/null 2>&1
result $? "a prompt that is not UTF-8"

# --- JSON
status 0 "export" "$hearth" sessions export fable
cp "$dir/out" "$dir/fable.json"
json_is "is a document of version 1" "d['hearth_session'] == 1 and d['name'] == 'fable'"
json_is "with the model, and what its tokenizer is" \
    "d['model']['named'] == 'tale' and d['model']['vocab'] == 4096 and d['model']['tokenizer'] == 'gpt2/gpt-2'"
json_is "the turns" "[t['role'] for t in d['turns']] == ['text', 'completion']"
json_is "their ids" "sum(len(t['tokens']) for t in d['turns']) == d['n_tokens'] == 24"
json_is "and how it was generated" \
    "d['turns'][1]['generation']['sampling']['seed'] == 5 and d['turns'][1]['generation']['usage']['completion_tokens'] == 20"
is "each turn has its line" "$(grep -c '^{"role"' "$dir/fable.json")" 2
status 1 "an import of nothing" "$hearth" sessions import </dev/null
err_has "names where it was read from" "hearth: INVALID_PARAMS: stdin, line 1: "
status 1 "the name is taken" "$hearth" sessions import "$dir/fable.json"
err_has "which is said by name" "hearth: SESSION_EXISTS: "
status 0 "import by another name" "$hearth" sessions import "$dir/fable.json" --name again --json
json_is "gives the session" "d['name'] == 'again' and d['tokens'] == 24 and d['turns'] == 2"
"$hearth" sessions show fable --json --tokens >"$dir/a"
"$hearth" sessions show again --json --tokens >"$dir/b"
is "it has the same ids" "$(json "$dir/b" "d['ids']")" "$(json "$dir/a" "d['ids']")"
is "and the same transcript" "$(json "$dir/b" "d['transcript']")" "$(json "$dir/a" "d['transcript']")"
"$hearth" run -s fable -n 8 --temp 0 " The" >"$dir/a" 2>&1
"$hearth" run -s again -n 8 --temp 0 " The" >"$dir/b" 2>&1
is "and goes on in the same words" "$(cat "$dir/b")" "$(cat "$dir/a")"
status 0 "import --force from a pipe" sh -c "'$hearth' sessions export fable | '$hearth' sessions import --name again --force"
status 0 "in its place" "$hearth" sessions show again --json
json_is "there is the new one" "d['turns'] == 4"
status 0 "bytes that are no text" "$hearth" sessions export bytes
json_is "are shown as text, and kept as bytes" \
    "d['turns'][0]['text'] == 'caf\ufffd \u00e9' and d['turns'][0]['text_hex'] == '636166e920c3a9'"
cp "$dir/out" "$dir/bytes.json"
status 0 "and come back" "$hearth" sessions import "$dir/bytes.json" --name bytes2
"$hearth" sessions export bytes2 >"$dir/out"
json_is "as they were" "d['turns'] == json.load(open('$dir/bytes.json'))['turns']"

# --- documents that are not right: each is refused by name, and makes no session
change() { python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); exec(sys.argv[2]); json.dump(d, open(sys.argv[3], "w"))' "$dir/fable.json" "$1" "$dir/bad.json"; }
refused() { # NAME CHANGE WORDS
    change "$2"
    status 1 "$1" "$hearth" sessions import "$dir/bad.json" --name bad
    err_has "... is refused by name" "$3"
}
change "d['turns'][1]['generation']['timings']['queue_ms'] = 1.02150399834512"
"$hearth" sessions import "$dir/bad.json" --name digits >/dev/null
"$hearth" sessions show digits --json >"$dir/out"
json_is "a time has the digits that it was imported with" "d['transcript'][1]['generation']['timings']['queue_ms'] == 1.02150399834512"
"$hearth" rm digits >/dev/null
change "[t.update(made=t.pop('generation')) for t in d['turns'] if 'generation' in t]"
is "a document of before 0.1.0" "$(grep -c '"made"' "$dir/bad.json"; grep -c '"generation"' "$dir/bad.json")" "1
0"
status 0 "... is imported" "$hearth" sessions import "$dir/bad.json" --name older
"$hearth" sessions export older >"$dir/out"
json_is "... as it is with the key of today" "d['turns'] == json.load(open('$dir/fable.json'))['turns']"
"$hearth" rm older >/dev/null
change "d['turns'][1]['made'] = d['turns'][1].pop('generation'); d['turns'][1]['made']['usage'] = 5"
status 1 "how an old one was generated is a lie" "$hearth" sessions import "$dir/bad.json" --name bad
err_has "... is refused by name" '"made" in older documents'
refused "a time that is none" "d['created'] = 'x'" '"created" is no number'
refused "a flag that is none" "d['turn_open'] = 'x'" '"turn_open" or "pinned" is neither true nor false'
refused "a role with a NUL" "d['turns'][0]['role'] = 'us\\0er'" '"role" is missing or no string, or holds a NUL'
refused "a seed beyond 64 bits" "d['turns'][1]['generation']['sampling']['seed'] = '9' * 23" '"generation"'
refused "a newer version" "d['hearth_session'] = 2" "UNSUPPORTED: sessions.import.version: 2"
refused "no version" "del d['hearth_session']" "hearth_session"
refused "an id outside of the vocabulary" "d['turns'][1]['tokens'][3] = 4096" "4096 is not in the vocabulary of 4096"
refused "a negative id" "d['turns'][1]['tokens'][3] = -1" "turns[1]: \"tokens\""
refused "an id that is no integer" "d['turns'][0]['tokens'][0] = 1.5" "turns[0]: \"tokens\""
refused "a huge id" "d['turns'][0]['tokens'][0] = 1 << 40" "turns[0]: \"tokens\""
refused "another tokenizer" "d['model']['tokenizer'] = 'spm'" "MODEL_MISMATCH: "
refused "another vocabulary" "d['model']['vocab'] = 32000" "MODEL_MISMATCH: "
refused "the same kind of tokenizer with other words" "d['model']['tokenizer_digest'] = '0' * 32" "MODEL_MISMATCH: "
err_has "... and with what helps" "hearth: -m MODEL takes one with the document's tokenizer; \`hearth show MODEL\` names a model's"
grep -q 'sessions import' "$dir/err"
is "... which is not the verb that has just failed" $? 1
refused "a model that is not here" "d['model'] = {'named': 'no-such-model'}" "MODEL_NOT_FOUND: "
refused "no model" "d['model'] = {}" "--model"
refused "a role that is too long" "d['turns'][0]['role'] = 'r' * 300" "role"
refused "no role" "del d['turns'][0]['role']" "turns[0]: \"role\""
refused "no text" "d['turns'][0]['text'] = 7" "turns[0]: \"text\""
refused "half a byte" "d['turns'][0]['text_hex'] = '616'" "turns[0]: \"text\""
refused "a turn too few" "d['turns'].pop()" "n_turns"
refused "a token too few" "d['turns'][0]['tokens'].pop()" '"turns" has not as many tokens as "n_tokens" says'
refused "tokens that the turns do not have" "d['n_tokens'] = 3568" '"n_tokens" says'
refused "a number of tokens that is none" "d['n_tokens'] = '24'" '"n_tokens" says'
refused "a number of turns that is none" "d['n_turns'] = 2.0" '"n_turns" says'
refused "turns that are none" "d['turns'] = {}" "\"turns\""
refused "how it was generated is a lie" "d['turns'][1]['generation']['usage'] = 5" "turns[1]: \"generation\""
refused "or of no number" "d['turns'][1]['generation']['sampling']['top_p'] = 'x'" "turns[1]: \"generation\""
refused "or out of its range" "d['turns'][1]['generation']['sampling']['top_p'] = 7" "top_p: 7 is over 1"
refused "a time before all time" "d['created'] = -5" "created"
head -c 300 "$dir/fable.json" >"$dir/cut.json"
status 1 "a document that was cut off" "$hearth" sessions import "$dir/cut.json"
err_has "is named with the line" "cut.json, line "
status 1 "a file that is not there" "$hearth" sessions import "$dir/nothing.json"
err_has "is named" "nothing.json: No such file"
status 1 "... with --json" "$hearth" sessions import "$dir/nothing.json" --json
json_is "is an object" "d['error']['symbol'] == 'IO' and 'nothing.json' in d['error']['message']"
echo '{' >"$dir/half.json"
status 1 "a document that is no JSON" "$hearth" sessions import "$dir/half.json" --json
json_is "is one, too" "d['error']['symbol'] == 'INVALID_PARAMS' and 'line' in d['error']['message']"
status 1 "a folder" "$hearth" sessions import "$dir"
err_has "is one" "Is a directory"
status 0 "after all that" "$hearth" sessions --json
json_is "no session was made" "'bad' not in [s['name'] for s in d['sessions']]"

# --- Markdown
status 0 "export --markdown" "$hearth" sessions export talk --markdown
is "has its own headings alone" "$(grep -c '^#' "$dir/out")" 3
is "and what was said line by line" "$(sed -n '/^> /s/^> //p' "$dir/out" | head -3)" '# Tell me
```
> a tale'
printf 'a\r# b\rc\r\n## d\n~~~\n\n<!-- e' | "$hearth" run --chat -s forged -n 4 >/dev/null 2>&1
"$hearth" sessions rename forged '# [x](y) *z*'
status 0 "what imitates the document" "$hearth" sessions export '# [x](y) *z*' --markdown
is "is quoted, every line of it" "$(tr '\r' '\n' <"$dir/out" | grep -c '^# b\|^c\|^## d\|^~~~\|^<!')" 0
is "its name is no markup" "$(head -n 1 "$dir/out")" '# \# \[x\]\(y\) \*z\*'
"$hearth" rm '# [x](y) *z*'
status 2 "--markdown with --json" "$hearth" sessions export talk --markdown --json
status 1 "export of nobody" "$hearth" sessions export nobody

# --- pins, show, rm --all
status 0 "pin" "$hearth" sessions pin talk --json
json_is "says so" "d == {'session': 'talk', 'pinned': True}"
status 0 "show" "$hearth" sessions show talk
is "shows it" "$(grep -c '^pinned *yes$' "$dir/out")" 1
status 2 "rm --all where nobody can be asked" "$hearth" rm --all </dev/null
err_has "wants --yes" "--yes"
status 2 "rm of all and one" "$hearth" rm --all fable
status 2 "rm of nothing" "$hearth" rm
status 0 "rm --all --yes" "$hearth" sessions rm --all --yes --json
json_is "removes the others" "sorted(d['removed']) == ['again', 'bytes', 'bytes2', 'fable']"
status 0 "the pinned one" "$hearth" sessions --json
json_is "stays" "[(s['name'], s['pinned']) for s in d['sessions']] == [('talk', True)]"
status 0 "unpin" "$hearth" sessions unpin talk
status 0 "rm with its name" "$hearth" rm talk
status 0 "sessions WHAT --help" "$hearth" sessions export --help
status 0 "sessions --help" "$hearth" sessions --help
status 2 "sessions WHAT that is not" "$hearth" sessions explode

# --- the KV on the disk belongs to its session, and goes with it
"$hearth" run -s warm -n 100 --temp 0 "Once upon a time" >/dev/null
"$hearth" stop --daemon
status 0 "a session with its KV on the disk" "$hearth" sessions show warm --json
json_is "says how much that is" "d['kv_bytes'] > 0"
is "which is what lies there" "$(cat "$dir/state/hearth/kv/"*.kv | wc -c)" "$(json "$dir/out" "d['kv_bytes']")"
"$hearth" rm warm
is "and goes with it" "$(find "$dir/state/hearth/kv" -name '*.kv' | wc -l)" 0

# --- backup
"$hearth" run -s kept -n 4 "Once" >/dev/null
mkdir "$dir/here"
(cd "$dir/here" && "$hearth" backup copy.db) >"$dir/out" 2>"$dir/err"
result $? "backup into the working directory"
is "is a file that others cannot read" "$(stat -c %a "$dir/here/copy.db")" 600
status 1 "a file in the way" "$hearth" backup "$dir/here/copy.db"
err_has "is named" "copy.db: File exists"
err_has "and what to do about it" "--force"
status 1 "... with --json, too" "$hearth" backup "$dir/here/copy.db" --json
json_is "as an object" "d['error']['symbol'] == 'IO' and '--force' in d['error']['next']"
status 0 "backup --force" "$hearth" backup "$dir/here/copy.db" --force --json
json_is "says how large it is" "d['bytes'] > 4096 and d['file'] == '$dir/here/copy.db'"
"$hearth" rm kept
"$hearth" stop --daemon
rm -rf "$dir/state/hearth/sessions.db"* "$dir/state/hearth/journal"
cp "$dir/here/copy.db" "$dir/state/hearth/sessions.db"
status 0 "what was removed after the backup" "$hearth" sessions show kept --json
json_is "is there again when that was put back" "d['name'] == 'kept' and d['turns'] == 2"
done_testing
