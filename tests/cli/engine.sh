#!/bin/sh
# engine.sh - an engine that cannot start, or does not answer: every verb that only looks answers soon, and says so.
. "$top_srcdir/tests/cli/lib.sh"

printf '#!/bin/sh\nexit 3\n' >"$dir/quitter"
chmod +x "$dir/quitter"
configure "engine = $dir/quitter"
failure="the engine exited with status 3 before it was ready"
status 0 "list with an engine that ends at once" timeout 30 "$hearth" list
is "... has the names" "$(grep -c '^tale .* -$' "$dir/out")" 1
err_has "... and says why nothing else is known" "hearth: headers have not been read: $failure"
status 0 "again" timeout 30 "$hearth" list --json
json_is "... as JSON" "[(m['name'], m['read']) for m in d['models']] == [('tale', False)]"
status 0 "doctor" timeout 30 "$hearth" doctor
is "... says it of the engine" "$(grep -c "^engine  *[a-z]*: $failure\$" "$dir/out")" 1
is "... and of each model" "$(grep -c '^tale  *-  *the engine, which reads its header, fails$' "$dir/out")" 1
is "... and no memory" "$(grep -c '^memory' "$dir/out")" 0
status 0 "status" "$hearth" status
is "... warns of it" "$(grep -cx "  WARNING  the last engine failed: $failure" "$dir/out")" 1
status 0 "status --json" "$hearth" status --json
json_is "... has it, too" "d['engine']['failure'] == '$failure'"
"$hearth" stop --daemon --now >/dev/null 2>&1

configure
status 0 "list with an engine that works" "$hearth" list --json
json_is "... has all" "[(m['name'], m['read']) for m in d['models']] == [('tale', True)]"
status 0 "status --json" "$hearth" status --json
json_is "... and no failure" "d['engine']['failure'] is None"
"$hearth" stop --daemon --now >/dev/null 2>&1

# Half a second is what hearthd waits for the status of an engine, with a timeout that is as short.
printf 'engine_timeout = 30\n' >"$XDG_CONFIG_HOME/hearth/hearth.conf"
status 0 "load" "$hearth" load tale
"$hearth" status --json >"$dir/out"
engine=$(json "$dir/out" "d['engine']['pid']")
kill -STOP "$engine"
status 0 "status of an engine that does not answer" "$hearth" status
is "... says that alone of it" "$(sed -n '/^engine/,$p' "$dir/out")" "engine not answering, process $engine"
status 0 "ps" "$hearth" ps
err_has "... says that its list is not all" "hearth: the engine, process $engine, does not answer: "
status 0 "top" "$hearth" top --once
is "... says it" "$(grep -c '^engine  not answering$' "$dir/out")" 1
is "... and has no memory of it" "$(grep -cE '^(memory|hearth |others)|^KV .*(device|host)' "$dir/out")" 0
status 0 "metrics" "$hearth" metrics
is "... has no counter of it, nor memory" "$(grep -cE '^hearth_(steps_total|step_rows_total|kv_[a-z]*_bytes_total|memory_bytes|device_memory_bytes)' "$dir/out")" 0
is "... and says that it does not answer" "$(grep '^hearth_engine_up' "$dir/out")" "hearth_engine_up 0"
kill -CONT "$engine"
done_testing
