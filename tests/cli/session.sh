#!/bin/sh
# session.sh - sessions: created by a prompt, resumed with their KV, bound to a model, listed, renamed, removed.
. "$top_srcdir/tests/cli/lib.sh"

status 0 "a prompt makes a session" "$hearth" run -s fable -n 20 --temp 0 --json "Once upon a time there was a fox who"
json_is "its id is told" "len(d['session']) == 16"
json_is "nothing was there to reuse" "d['usage']['reused_tokens'] == 0"
id=$(json "$dir/out" "d['session']")
total=$(json "$dir/out" "d['usage']['prompt_tokens'] + d['usage']['completion_tokens']")
status 0 "the next prompt goes on" "$hearth" run -s fable -n 10 --temp 0 --json " The next day"
json_is "its context is the whole timeline" "d['usage']['prompt_tokens'] > $total and d['session'] == '$id'"
json_is "and all that was computed is reused, but for a token" "d['usage']['reused_tokens'] >= $total - 1"
status 0 "by id as by name" "$hearth" run -s "$id" -n 1 --json " He said"
json_is "the same session" "d['session'] == '$id'"
status 0 "a session may be named with its model" "$hearth" run -m tale -s fable -n 1 " So"

status 0 "sessions --json" "$hearth" sessions --json
json_is "one session, with its name" "[(s['id'], s['name']) for s in d['sessions']] == [('$id', 'fable')]"
status 0 "sessions" "$hearth" sessions
status 0 "sessions show --json" "$hearth" sessions show fable --json --tokens
json_is "the transcript has each turn" "[t['role'] for t in d['transcript'][:4]] == ['text', 'completion', 'text', 'completion']"
json_is "and the first prompt's text" "d['transcript'][0]['text'] == 'Once upon a time there was a fox who'"
json_is "the timeline's ids are there" "len(d['ids']) == d['tokens']"
status 0 "sessions show" "$hearth" sessions show fable

status 0 "run without -s" "$hearth" run -n 2 "Once"
status 0 "is not listed" "$hearth" sessions --json
json_is "one session still" "len(d['sessions']) == 1"

status 0 "sessions rename" "$hearth" sessions rename fable tail --json
json_is "says what it did" "d == {'session': 'fable', 'name': 'tail'}"
status 0 "the new name" "$hearth" sessions show tail --json
json_is "is the same session" "d['id'] == '$id'"
status 1 "the old one is gone" "$hearth" sessions show fable
err_has "which the error says" "hearth: SESSION_NOT_FOUND: "
status 0 "another session" "$hearth" run -s other -n 1 "Once"
status 1 "a name that is taken" "$hearth" sessions rename other tail
err_has "is refused by name" "hearth: SESSION_EXISTS: "

cp "$top_srcdir/contrib/models/tale-q4_k_m.gguf" "$dir/second.gguf"
status 1 "another model in a session" "$hearth" run -m "$dir/second.gguf" -s tail -n 1 "x"
err_has "is refused by name" "hearth: MODEL_MISMATCH: "

status 0 "chat turns in a session" "$hearth" run --chat -s talk -n 12 --temp 0 --json "Tell me the tale of the fox."
first=$(json "$dir/out" "d['usage']['prompt_tokens'] + d['usage']['completion_tokens']")
printf 'And then?\n' >"$dir/line"
"$hearth" resume talk -n 6 --temp 0 --json <"$dir/line" >"$dir/out" 2>"$dir/err"
result $? "resume goes on from piped lines"
json_is "with the KV of the first turn" "d['usage']['reused_tokens'] >= $first - 1 and d['usage']['prompt_tokens'] > $first + 4"
status 0 "resume with the session as in run" "$hearth" resume -s talk -n 1 --json </dev/null
status 2 "but not twice" "$hearth" resume -s talk talk
status 1 "resume of a session that is not there" "$hearth" resume nothing
err_has "is refused by name" "hearth: SESSION_NOT_FOUND: "

# A request that was made stays made: the same id again, attach by its number and by its id, and with another prompt.
status 0 "run --request" "$hearth" run -s again -n 6 --request r1 --json "The cat"
cp "$dir/out" "$dir/first"
number=$(json "$dir/first" "d['stream']") text=$(json "$dir/first" "d['text']")
status 0 "once more" "$hearth" run -s again -n 6 --request r1 --json "The cat"
json_is "is the same answer" "d['text'] == json.load(open('$dir/first'))['text'] and d['stream'] == $number"
status 0 "and the session" "$hearth" sessions show again --json
json_is "has it once" "d['tokens'] == $(json "$dir/first" "d['usage']['prompt_tokens'] + 6")"
status 0 "attach" "$hearth" attach "$number"
is "prints it" "$(cat "$dir/out")" "$text"
status 0 "attach --request --json" "$hearth" attach r1 --request --json --from 6
json_is "has all of it" "d['text'] == json.load(open('$dir/first'))['text']"
status 1 "the id with another prompt" "$hearth" run -s again -n 6 --request r1 "The dog"
err_has "is refused by name" "hearth: CONFLICT: "
status 1 "attach to a stream that is not there" "$hearth" attach 99999
err_has "is refused by name" "hearth: STREAM_NOT_FOUND: "
status 2 "attach to no number" "$hearth" attach r1
"$hearth" rm again

# The daemon goes and comes back: the sessions are there, and so are all full pages of their KV.
"$hearth" sessions show talk --json --tokens >"$dir/before"
status 0 "stop --daemon" "$hearth" stop --daemon
status 0 "a new daemon knows the session" "$hearth" sessions show talk --json --tokens
is "token by token" "$(json "$dir/out" "d['ids']")" "$(json "$dir/before" "d['ids']")"
status 0 "and goes on with it" "$hearth" run -s talk -n 2 --json --stats " and"
json_is "with the KV that it had" \
    "d['usage']['restored_tokens'] == d['usage']['reused_tokens'] == ($(json "$dir/before" "len(d['ids'])") - 1) // 16 * 16 > 0"
restored=$(json "$dir/out" "d['usage']['restored_tokens']")
err_has "and --stats says so" "reused $restored of $(json "$dir/out" "d['usage']['prompt_tokens']") prompt tokens, restored $restored; "

status 1 "rm of two, one of which is not there" "$hearth" rm nobody tail --json
json_is "removes the other, and says why not this one" \
    "d['removed'] == ['tail'] and [e['symbol'] for e in d['errors']] == ['SESSION_NOT_FOUND'] and 'nobody' in d['errors'][0]['message']"
err_has "on stderr, too" "hearth: SESSION_NOT_FOUND: "
is "in one object" "$(wc -l <"$dir/out")" 1
status 1 "rm of none that is there" "$hearth" rm nobody no-one --json
json_is "tells each" "d['removed'] == [] and len(d['errors']) == 2 and all('hearth sessions' in e['next'] for e in d['errors'])"
status 0 "rm" "$hearth" rm other --json
json_is "has no errors where there are none" "d == {'removed': ['other']}"
status 1 "a removed session is gone" "$hearth" sessions rm tail
status 0 "sessions list" "$hearth" sessions list --json
json_is "one is left" "[s['name'] for s in d['sessions']] == ['talk']"
done_testing
