#!/bin/sh
# memory.sh - what holds memory, and what lets it go: engine_idle, hearth pin, hearth yield.
. "$top_srcdir/tests/cli/lib.sh"
configure "engine_idle = 1" "backend = cpu" "threads = 1"

# until_engine STATE - asks for the status until the engine is in that state, for 30 s at most.
until_engine() {
    end=$(($(date +%s) + 30))
    while [ "$(date +%s)" -lt $end ]; do
        "$hearth" status --json >"$dir/out" 2>"$dir/err" || break
        [ "$(json "$dir/out" "d['engine']['state']")" != "$1" ] || return 0
    done
    return 1
}

status 0 "run" "$hearth" run -n 8 --temp 0 "Once upon a time"
cp "$dir/out" "$dir/first"
"$hearth" status --json >"$dir/out"
json_is "an engine with a model stays" "d['engine']['pid'] > 0 and d['engine']['models'][0]['pinned'] is False"
status 0 "stop MODEL" "$hearth" stop tale
until_engine absent
result $? "an engine without one leaves"
json_is "... and nothing is held" "d['engine']['pid'] == 0 and d['engine']['models'] == []"
status 0 "the next request starts another" "$hearth" run -n 8 --temp 0 "Once upon a time"
is "... with the same text" "$(cat "$dir/out")" "$(cat "$dir/first")"
status 0 "status --json" "$hearth" status --json
json_is "... which is none in the place of one that failed" "d['engine']['restarts'] == 0"

status 0 "pin" "$hearth" pin tale --json
json_is "... says what" "d['model'] == 'tale' and d['pinned'] is True"
status 0 "ps" "$hearth" ps
is "... says so" "$(grep -c ' pinned$' "$dir/out")" 1
"$hearth" status --json >"$dir/out"
kill -KILL "$(json "$dir/out" "d['engine']['pid']")"
until_engine absent || until_engine running
status 0 "after a crash" "$hearth" tokenize --json -m tale </dev/null
until_engine running
end=$(($(date +%s) + 30))
while [ "$(json "$dir/out" "[m['pinned'] for m in d['engine']['models']]")" != "[True]" ] && [ "$(date +%s)" -lt $end ]; do
    "$hearth" status --json >"$dir/out"
done
json_is "the next engine loads it" "[m['pinned'] for m in d['engine']['models']] == [True]"
status 0 "pin --off" "$hearth" pin --off tale
status 0 "ps --json" "$hearth" ps --json
json_is "... and it may go" "d['models'][0]['pinned'] is False"
json_is "as many weights are held as its file has, and RoPE's frequencies" "0 <= d['memory']['weights'] - d['models'][0]['bytes'] < 1000"
status 0 "stop it" "$hearth" stop tale
until_engine absent
result $? "with it the engine"
status 0 "yield without an engine" "$hearth" yield --all --seconds 1
is "... says so" "$(cat "$dir/out")" "no engine runs, which could hold memory"
status 0 "pin --off without an engine" "$hearth" pin --off tale
"$hearth" status --json >"$dir/out"
json_is "... starts none" "d['engine']['state'] == 'absent'"
status 1 "a model that is not there" "$hearth" pin nothing-of-that-name
err_has "... is named" "nothing-of-that-name"

# From here on the engine stays, however long a loaded machine takes from one line to the next.
"$hearth" stop --daemon
configure "engine_idle = 0" "backend = cpu" "threads = 1"
status 0 "load it again" "$hearth" load tale
printf 'x' | "$hearth" tokenize -m tale >/dev/null # its vocabulary may come after its weights
status 0 "yield --all" "$hearth" yield --all --seconds 600 --json
json_is "... gives memory back" "d['freed'] > 4e6 and d['free'] > 0"
status 0 "status" "$hearth" status --json
json_is "... and nothing is held" "d['engine']['memory']['weights'] == 0 == d['engine']['memory']['kv']"
json_is "... which is told" "590 < d['yielded'] < 600"
"$hearth" status >"$dir/out"
is "... and for how long" "$(grep -cE '^  yielded  memory, for (59[0-9]|600) s more; `hearth yield --end` ends that$' "$dir/out")" 1
is "a vocabulary is no model in memory" "$(grep -c '^  models   0 in memory, of 1 the vocabulary alone$' "$dir/out")" 1
status 1 "a model is not loaded meanwhile" "$hearth" load tale
err_has "... and why" "yielded"
"$hearth" run -m tale -n 3 "Once" >"$dir/waits" 2>"$dir/why" &
waits=$!
until grep -qs PARKED "$dir/why" || ! kill -0 "$waits" 2>/dev/null; do sleep 0.05; done
is "a text that waits says for what" "$(grep -c '^hearth: PARKED: memory is yielded to other programs, and the stream waits' "$dir/why")" 1
status 1 "more memory than there is" "$hearth" yield --for 8000000G --seconds 600
err_has "... is told that the yield lasts" "(\`hearth yield --end\` ends that)"
"$hearth" status --json >"$dir/out"
json_is "... which it does" "590 < d['yielded'] < 600"
status 0 "yield --end" "$hearth" yield --end
status 0 "... and comes then" wait "$waits"
is "... which it says, too" "$(grep -c RESUMED "$dir/why")" 1
status 0 "it is loaded again" "$hearth" load tale
"$hearth" status >"$dir/out"
is "nothing is yielded any more" "$(grep -c '^  yielded' "$dir/out")" 0
is "a model is" "$(grep -c '^  models   1 in memory$' "$dir/out")" 1
status 2 "yield what" "$hearth" yield
status 2 "yield so much" "$hearth" yield --for 8X
status 1 "yield what nobody has" "$hearth" yield --for 8000000G
err_has "... says what is free" "are free"
status 0 "yield --end again" "$hearth" yield --end
status 0 "ps --json of one device" "$hearth" ps --json
json_is "... has it once" "d['engines'] == [] and d['memory']['workspace'] > 0"

# Two devices, of which other programs have some; the engines are fakes, as are the models.
"$hearth" stop --daemon
mkdir "$dir/small"
for name in one two; do
    truncate -s 1000 "$dir/small/$name.gguf"
done
# Half a second is what hearthd waits for the status of an engine with that timeout.
printf '%s\n' "engine_timeout = 30" "engine = $(cd "$top_builddir" && pwd)/tests/daemon/fake-engine" "model_dir = $dir/small" \
    >"$XDG_CONFIG_HOME/hearth/hearth.conf"
export FAKE_DEVICES=2 FAKE_OTHERS=100000,250000
status 0 "a model on the first device" "$hearth" load one
status 0 "and one on the second" "$hearth" load two
status 0 "ps --json of two devices" "$hearth" ps --json
json_is "... has the memory of each" \
    "[(e['state'], e['mem_total'], e['mem_free'], e['memory']['others']) for e in d['engines']] == [('running', 1000000, 899000, 100000), ('running', 1000000, 749000, 250000)]"
json_is "... and of all together" "d['memory']['others'] == 350000 and len(d['models']) == 2"
cp "$dir/out" "$dir/ps"
status 0 "status --json" "$hearth" status --json
json_is "... has the same" \
    "(lambda ps: d['engine']['memory'] == ps['memory'] and [{k: e[k] for k in ps['engines'][0]} for e in d['engines']] == ps['engines'])(json.load(open('$dir/ps')))"
status 0 "ps of two devices" "$hearth" ps
is "... has a line for each" "$(grep -c '; others ' "$dir/out")" 2
truncate -s 1500000 "$dir/small/large.gguf"
status 0 "doctor of two devices" "$hearth" doctor
is "... knows that a model has to fit into one" \
    "$(grep -c '^large  *gpu  *its weights alone are more than the memory of the device' "$dir/out")" 1
"$hearth" status --json >"$dir/out"
engine=$(json "$dir/out" "d['engines'][1]['pid']")
kill -STOP "$engine"
status 0 "metrics of two devices" "$hearth" metrics
is "... say which engine does not answer" "$(grep '^hearth_engine_up' "$dir/out" | tr '\n' ' ')" \
    'hearth_engine_up{engine="0"} 1 hearth_engine_up{engine="1"} 0 '
is "... and have the counters of the other" "$(grep '^hearth_steps_total' "$dir/out" | cut -d ' ' -f 1)" \
    'hearth_steps_total{engine="0"}'
kill -CONT "$engine"
done_testing
