#!/bin/sh
# fork.sh - hearth fork, and hearth sessions adopt.
. "$top_srcdir/tests/cli/lib.sh"

status 0 "a session" "$hearth" run -s fables -m tale -n 20 --temp 0 --json "Once upon a time there was a king"
tokens=$(json "$dir/out" "d['usage']['prompt_tokens'] + d['usage']['completion_tokens']")
status 0 "two forks" "$hearth" fork fables --count 2
is "are called by the session" "$(cat "$dir/out")" "$(printf 'fables.1\nfables.2')"
status 0 "one more, with a name, of half of it" "$hearth" fork fables other --at $((tokens / 2)) --ephemeral --json
json_is "has half of its tokens" "[(s['name'], s['tokens'], s['ephemeral']) for s in d['sessions']] == [('other', $((tokens / 2)), True)]"
status 0 "and two with names" "$hearth" fork fables branch --count 2 --json
json_is "have a number each" "[s['name'] for s in d['sessions']] == ['branch.1', 'branch.2']"
status 0 "sessions --json" "$hearth" sessions --json
json_is "ephemeral ones are not in the list" "sorted(s['name'] for s in d['sessions']) == ['branch.1', 'branch.2', 'fables', 'fables.1', 'fables.2']"
status 0 "sessions --ephemeral --json" "$hearth" sessions --ephemeral --json
json_is "but for who asks" "'other' in [s['name'] for s in d['sessions']] and all((s['parent'] is None) == (s['name'] == 'fables') for s in d['sessions'])"
status 0 "a fork goes on" "$hearth" run -s fables.1 -n 8 --temp 0 --stats " The next day"
err_has "with the KV of the session" "reused $((tokens - 1)) of"
status 0 "sessions show" "$hearth" sessions show fables.1
is "says what it is a fork of" "$(grep -c "^fork of .* $tokens tokens" "$dir/out")" 1
status 0 "adopt" "$hearth" sessions adopt fables.1 --json
json_is "its parent has what it had" "d['name'] == 'fables' and d['tokens'] > $tokens + 8"
status 1 "a fork of what has gone on" "$hearth" sessions adopt fables.2
err_has "is refused" "hearth: CONFLICT: "
err_has "and says how to have it all the same" "--force"
status 0 "unless it is forced" "$hearth" sessions adopt fables.2 --force
status 1 "what is no fork" "$hearth" sessions adopt fables
err_has "is no fork" 'session "fables" is no fork'
err_has "and what tells forks is said" "hearth sessions show SESSION"
status 1 "a cut beyond the end" "$hearth" fork fables --at 100000
err_has "names the length" "session \"fables\" has $tokens tokens"
status 1 "a name that is taken" "$hearth" fork fables branch.1
err_has "is refused by name" 'hearth: SESSION_EXISTS: there is a session "branch.1" already'
err_has "and what to do is said" "hearth sessions"
long=$(printf '%256s' '' | tr ' ' m)
status 1 "a name that is too long with its number" "$hearth" fork fables "$long" --count 2
err_has "is refused with its length" "has 258 bytes, and 256 is the limit"
status 0 "before anything is made" "$hearth" sessions --json
json_is "... and the list has the sessions that it had" "not any(s['name'].startswith('mm') for s in d['sessions'])"
status 2 "no session" "$hearth" fork
status 2 "too many" "$hearth" fork fables --count 65
done_testing
