#!/bin/sh
# verbs.sh - every verb answers, and its JSON has the members that hearth(1) names.
. "$top_srcdir/tests/cli/lib.sh"

# in_manual VERB - the members of the last JSON are words of hearth(1)'s section on JSON.
sed -n '/^\.Sh JSON/,/^\.Sh ENVIRONMENT/p' "$top_srcdir/client/hearth.1" >"$dir/section"
in_manual() {
    words=$(json "$dir/out" "' '.join(set(d) | {k for v in d.values() if isinstance(v, list) and v and isinstance(v[0], dict) for k in v[0]} - set('$2'.split()))")
    missing=
    for word in $words; do grep -qw "$word" "$dir/section" || missing="$missing $word"; done
    is "hearth(1) has the members of $1 --json" "$missing" ""
}

status 0 "run" "$hearth" run -n 8 --temp 0 "Once upon a time"
is "run prints the text alone" "$(grep -c . "$dir/out") $(wc -c <"$dir/err")" "1 0"
cp "$dir/out" "$dir/text"
status 0 "run --json" "$hearth" run -n 8 --temp 0 --json "Once upon a time"
json_is "run --json: keys" "{'text', 'session', 'usage', 'timings', 'finish_reason'} <= set(d)"
in_manual run
json_is "run --json: no session is kept" "d['session'] is None"
json_is "run --json: usage adds up" \
    "d['usage']['prompt_tokens'] == d['usage']['reused_tokens'] + d['usage']['computed_tokens'] > 0"
json_is "run --json: eight tokens" \
    "d['usage']['completion_tokens'] == 8 == len(d['tokens']) and d['finish_reason'] == 'length'"
json_is "run --json: timings" "all(d['timings'][k] >= 0 for k in ('queue_ms', 'load_ms', 'prefill_ms', 'decode_ms', 'total_ms'))"
is "the streamed text is the result's" "$(json "$dir/out" "d['text']")" "$(cat "$dir/text")"
status 0 "run --logprobs" "$hearth" run -n 3 --logprobs 2 --json "Once upon a time"
json_is "logprobs: one entry per token, two alternatives each" \
    "[len(t['top']) for t in d['logprobs']] == [2, 2, 2] and all(t['logprob'] <= 0 for t in d['logprobs'])"
status 0 "run --seed" "$hearth" run -n 16 --temp 1 --seed 5 "The king"
cp "$dir/out" "$dir/text"
status 0 "run --seed again" "$hearth" run -n 16 --temp 1 --seed 5 "The king"
is "the same seed gives the same text" "$(cat "$dir/out")" "$(cat "$dir/text")"
status 0 "run --stop" "$hearth" run -n 60 --temp 0 --stop " a" --json "Once upon a time there was"
json_is "a stop string ends the text and is not in it" "' a' not in d['text'] and d['finish_reason'] == 'stop'"
status 0 "run --chat" "$hearth" run -n 12 --temp 0 --chat --json "Tell me the tale of the fox."
json_is "a chat answer has text" "len(d['text']) > 0"
status 0 "run --stats" "$hearth" run -n 4 --stats "Once upon a time"
is "--stats is one line on stderr" \
    "$(grep -cE '^reused [0-9]+ of [0-9]+ prompt tokens, restored 0; 4 tokens, [0-9.]+ ms to the first, [0-9]+ tokens/s$' "$dir/err")" 1

status 0 "list --json" "$hearth" list --json
json_is "list names the embedded model" "any('tale' == m['name'] and m['path'].startswith('/') and m['bytes'] > 4e6 for m in d['models'])"
in_manual list
status 0 "list" "$hearth" list
status 0 "show --json" "$hearth" show tale --json
json_is "show knows the shape" \
    "(d['arch'], d['layers'], d['d_model'], d['heads'], d['kv_heads'], d['context'], d['vocab']) == ('llama', 8, 256, 4, 2, 1024, 4096)"
json_is "show knows the chat template" "d['chat'] == 'default'"
path=$(json "$dir/out" "d['path']")
status 0 "show" "$hearth" show tale
is "show alone has no ops" "$(grep -c embed "$dir/out")" 0
status 0 "show --ops --json" "$hearth" show tale --ops --json
json_is "ops are the whole forward pass" \
    "[o['op'] for o in d['ops']] == ['embed'] + ['qkv', 'attend', 'proj', 'ffn_up', 'proj'] * 8 + ['head']"
json_is "and each op the path that it takes" "all(o[k] == 'cpu' for o in d['ops'] for k in ('one', 'few', 'many', 'invariant'))"
json_is "an op tells types and columns" \
    "d['ops'][1]['text'].startswith('qkv (') and d['ops'][1]['text'].endswith('; 256 to 512)')"
status 0 "show --ops" "$hearth" show tale --ops
"$hearth" show tale --ops --json >"$dir/ops"
is "layers that are equal are folded, and none is lost" "$(python3 - "$dir/ops" "$dir/out" <<'EOF'
import json, re, sys
whole = [o['text'] for o in json.load(open(sys.argv[1]))['ops']]
rows = [re.match(r' *(\d+)  (.*?\)) *(?:(?:cpu +){4})?(?:(\d+) ops x (\d+)|\|)? *$', line).groups()
        for line in open(sys.argv[2]).read().split(' ops\n', 1)[1].splitlines() if 'path at' not in line]
ops = []
while rows:
    n, times = int(rows[0][2] or 1), int(rows[0][3] or 1)
    assert int(rows[0][0]) == len(ops)
    ops += [text for _, text, _, _ in rows[:n]] * times
    rows = rows[n:]
print(ops == whole, len(open(sys.argv[2]).readlines()) < len(whole))
EOF
)" "True True"
status 0 "run --json" "$hearth" run -n 4 --temp 0 --json "Once upon"
stream=$(json "$dir/out" "d['stream']")
status 0 "trace --json" "$hearth" trace "$stream" --json
json_is "trace has the stages of both processes" \
    "{(e['where'], e['stage']) for e in d['events']} >= {('hearthd', 'created'), ('engine', 'admitted'), ('hearthd', 'ended')}"
json_is "and their numbers" "[e['fields']['completion'] for e in d['events'] if e['stage'] == 'ended'] == ['4']"
status 0 "trace" "$hearth" trace "$stream"
is "trace is a line for each stage" "$(grep -cE '^ +[0-9.]+ ms  (hearthd|engine [0-9]+) +[a-z-]+ ' "$dir/out")" \
    "$(($(wc -l <"$dir/out") - 1))"
for seed in 9223372036854775807 9223372036854775808; do
    status 0 "run --seed $seed" "$hearth" run -n 1 --seed $seed --json "Once upon"
    json_is "a seed is a number below 2^63, and a string from there on" "d['seed'] == ($seed if $seed < 1 << 63 else '$seed')"
done
status 1 "trace of nothing" "$hearth" trace 999999
err_has "says which there are" "hearth: the last 64 generations of each user have a trace"
status 2 "trace of what is no number" "$hearth" trace one
status 0 "load --json" "$hearth" load tale --json
in_manual load
json_is "load says that it was there" "d['was_loaded'] is True and d['load_ms'] >= 0 and d['where'] in ('cpu', 'cuda:0')"
status 0 "ps --json" "$hearth" ps --json
json_is "ps has the model with its weights" "len(d['models']) == 1 and d['models'][0]['path'] == '$path' and d['models'][0]['bytes'] > 4e6"
json_is "and says until when" "d['models'][0]['expires'] > 1.7e9"
status 0 "ps" "$hearth" ps
is "ps says so, too" "$(grep -cE ' UNTIL$| (30|29) min$' "$dir/out")" 2
(cd "$(dirname "$path")" && "$hearth" run -n 2 -m "./$(basename "$path")" x) >/dev/null 2>"$dir/err"
result $? "a relative path names a model"
(cd "$(dirname "$path")" && "$hearth" run -n 2 -m "$(basename "$path")" x) >/dev/null 2>"$dir/err"
result $? "so does the name of a model file that lies here"
status 0 "ps again" "$hearth" ps --json
json_is "... and it is the same model, held once" "len(d['models']) == 1"

status 0 "status --json" "$hearth" status --json
in_manual status
json_is "status has what scripts count" \
    "d['pid'] > 1 and d['engine']['pid'] > 1 and d['pid'] != d['engine']['pid'] and all(d['engine'][k] > 0 for k in ('steps', 'rows', 'rows_max', 'tokens_computed'))"
json_is "... and the device's memory" "0 < d['engine']['mem_free'] <= d['engine']['mem_total'] and d['engine']['mem_cached'] == 0"
json_is "... and what it is held for" \
    "all(d['engine']['memory'][k] > 0 for k in ('weights', 'kv', 'workspace')) and d['engine']['memory']['limit'] == 0 == d['engine']['memory']['others'] and d['engine']['memory']['others_unknown'] and d['engine']['memory']['programs'] == []"
status 0 "status" "$hearth" status
is "status tells the memory" "$(grep -cE '^  memory   [0-9.]+ [A-Za-z]+ free of [0-9.]+ [A-Za-z]+$' "$dir/out")" 1
cp "$dir/out" "$dir/text"

printf 'Once upon a time' >"$dir/prompt"
"$hearth" tokenize --json <"$dir/prompt" >"$dir/out"
json_is "tokenize --json is ids and nothing else" "set(d) == {'ids'} and len(d['ids']) > 2 and all(type(i) is int for i in d['ids'])"
ids=$(json "$dir/out" "' '.join(map(str, d['ids']))")
is "tokenize without --json" "$("$hearth" tokenize -m tale <"$dir/prompt")" "$ids"
status 0 "eval --json" "$hearth" eval -m tale --tokens "$ids" --top 8 --greedy 4 --json
in_manual eval
json_is "eval: one row of 8 per position" \
    "set(d) == {'top', 'greedy'} and [len(r) for r in d['top']] == [8] * len('$ids'.split())"
json_is "eval: best first, and greedy takes the best" \
    "all(r == sorted(r, key=lambda x: -x[1]) for r in d['top']) and d['greedy'][0] == d['top'][-1][0][0] and len(d['greedy']) == 4"
greedy=$(json "$dir/out" "d['greedy']")
status 0 "run -n 4 --temp 0 --json" "$hearth" run -n 4 --temp 0 --json "Once upon a time"
is "eval's greedy ids are run's" "$(json "$dir/out" "d['tokens']")" "$greedy"
status 0 "eval" "$hearth" eval --tokens "$ids" --top 2

status 0 "bench --json" "$hearth" bench tale --prompt 16 --depth 0 --json
is "bench: its object is one line" "$(wc -l <"$dir/out")" 1
json_is "bench: two tests with their rates" "[(r['test'], r['tok_per_s'] > 0) for r in d['results']] == [('pp16', True), ('tg@0', True)]"
status 0 "bench --kv" "$hearth" bench tale --prompt none --depth none --kv 128 --json
json_is "bench: KV out and back, alone and beside a decode" \
    "[r['test'] for r in d['results'] if r['ms'] > 0] == ['kv_pin@128', 'kv_save@128', 'kv_restore@128', 'tg@0_saving', 'kv_save@128_busy', 'tg@0_restoring', 'kv_restore@128_busy', 'tg@0_still']"
missing=
for row in $(json "$dir/out" "' '.join(r['test'] for r in d['results'])"); do
    written=$(echo "$row" | sed 's/@128/@ Ns Ar N/; s/ N_/ N Ns _/')
    grep -qxF ".Cm $written" "$top_srcdir/client/hearth.1" || missing="$missing $row"
done
is "hearth(1) has the rows" "$missing" ""
status 0 "bench --socket --json" "$hearth" bench "$path" --prompt 16 --depth 0 --socket --json
json_is "the same tests through the socket" "[(r['test'], r['tok_per_s'] > 0) for r in d['results']] == [('pp16', True), ('tg@0', True)]"
computed() { "$hearth" status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["engine"]["tokens_computed"])'; }
before=$(computed)
status 0 "bench --socket once more" "$hearth" bench "$path" --prompt 64 --depth none --socket --csv --name 'a "b", c'
status 0 "... and more" "$hearth" bench "$path" --prompt 64 --depth none --socket --csv --name 'a "b", c'
new=$(($(computed) - before))
# Drawn at random, one in a few hundred begins with a token that an earlier one began with, and has that from it.
[ "$new" -gt $((2 * 6 * 62)) ] && [ "$new" -le $((2 * 6 * 64)) ]
result $? "its prompts are new ones each time"
is "bench --csv: a name with a comma is one field" \
    "$(python3 -c 'import csv, sys; print([r[1:4] + [len(r)] for r in csv.reader(open(sys.argv[1]))][1:])' "$dir/out")" \
    "[['socket', 'a \"b\", c', 'pp64', 8]]"
odd=$dir/$(printf 'b\377,').gguf
ln -s "$path" "$odd"
status 0 "bench of a file whose name is not UTF-8" "$hearth" bench "$odd" --prompt 1 --depth none --json
json_is "... has a name all the same" "d['model'] == 'b?,'"
status 1 "bench into a full disk" sh -c '"$1" bench "$2" --prompt 1 --depth none >/dev/full' sh "$hearth" "$path"
err_has "... says so" "hearth-bench: IO: the output could not be written"
status 1 "bench of what is no model" "$hearth" bench /etc/passwd --json
json_is "... is an object with the error's name" "d['error']['symbol'] == 'MODEL_INVALID' and set(d['error']) == {'symbol', 'message'}"
is "... on one line" "$(wc -l <"$dir/out")" 1
err_has "... which standard error has as well" "hearth-bench: MODEL_INVALID: "
for wrong in "--prompt 0" "--depth 1 2" "--batch 1" "--resume x" "--kv 32" "--backend gpu" "--backend cpu,cuda" "--variant fast" "--threads 9999" "--threads two"; do
    status 2 "bench $wrong" "$hearth" bench "$path" "${wrong%% *}" "${wrong#* }" --json
    json_is "... is an error that names the option" "d['error']['symbol'] == 'INVALID_PARAMS' and d['error']['message'].startswith('${wrong%% *}')"
    ! grep -q 'usage: hearth-bench' "$dir/err"
    result $? "... without the usage of another program"
done
status 2 "bench --clients with a wrong prompt" "$hearth" bench tale --clients 1 --prompt 1,2 --json
json_is "... is an error that names it, too" "d['error']['message'].startswith('--prompt wants a whole number ')"
status 2 "hearth-bench without a model" "$top_builddir/hearth-bench" --prompt 1
err_has "... names what is missing" "hearth-bench: name one model"
status 2 "hearth-bench on too many threads" "$top_builddir/hearth-bench" --threads 257 "$path"
err_has "... says how many there may be" 'hearth-bench: --threads: "257" is not a number within 0..256'
status 2 "hearth-engine --bench is refused" "$top_builddir/hearth-engine" --bench "$path"
err_has "... and names the program that measures" "hearth-bench MODEL, or hearth bench MODEL"
status 0 "stop MODEL" "$hearth" stop tale --json
in_manual stop
json_is "says what it stopped" "d == {'stopped': 'tale'}"
status 0 "ps when it was stopped" "$hearth" ps --json
json_is "its weights are gone" "all(m['vocab_only'] and m['bytes'] == 0 for m in d['models'])"
for verb in serve run chat list ps show load stop sessions resume rm tokenize render eval bench status trace; do
    [ $verb = serve ] || status 0 "$verb --help" "$hearth" $verb --help
done
status 0 "stop --daemon" "$hearth" stop --daemon
status 3 "then no daemon answers" "$hearth" --no-start status
err_has "... which the error says by name" "hearth: CONNECT: "
err_has "... and what starts one" "hearth: \`hearth status\` starts a daemon"
done_testing
