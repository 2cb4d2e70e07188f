#!/bin/sh
# bench-clients.sh - hearth bench --clients: the load is the one that was asked for, and the figures agree with each other.
. "$top_srcdir/tests/cli/lib.sh"

status 0 "8 clients, 12 requests" "$hearth" bench tale --clients 8 --requests 12 --prompt 40 --output 12 --shared 32 --goodput ttft:100000,tpot:100000 --json
json_is "all of them are answered in full" \
    "(d['completed'], d['failed'], d['total_input_tokens'], d['total_output_tokens'], d['num_prompts'], d['max_concurrency']) == (12, 0, 480, 144, 12, 8)"
json_is "a prompt is the prefix and the input after it, as in vLLM" "(d['random_prefix_len'], d['random_input_len'], d['random_output_len']) == (32, 8, 12)"
json_is "8 at once, and no more" "d['max_concurrent_requests'] == 8"
json_is "prompt tokens are reused or computed, the common beginning the least often" \
    "d['total_computed_tokens'] + d['total_reused_tokens'] == 480 and d['total_computed_tokens'] < 480 - 4 * 32"
json_is "rates are counts by the duration" \
    "all(abs(d[k] * d['duration'] / v - 1) < 1e-9 for k, v in (('request_throughput', 12), ('request_goodput', 12), ('output_throughput', 144), ('total_token_throughput', 624)))"
json_is "a request's time is its first token's and that of 11 more" \
    "abs(d['mean_ttft_ms'] + 11 * d['mean_tpot_ms'] - d['mean_e2el_ms']) < 1e-6 * d['mean_e2el_ms'] and abs(d['mean_itl_ms'] - d['mean_tpot_ms']) < 1e-6 * d['mean_tpot_ms']"
json_is "medians are under the 99th percentiles, within the duration" \
    "all(0 <= d['median_%s_ms' % m] <= d['p99_%s_ms' % m] <= 1000 * d['duration'] for m in ('ttft', 'tpot', 'itl', 'e2el'))"
json_is "every text is what it is alone" "d['where'] == 'cpu' and (d['texts_checked'], d['texts_different']) == (12, 0)"

# Tokens that a model's file suppresses are never chosen, also where they have the best logits.
cp -r "$top_srcdir/tests/golden/data/hf/olmoe" "$dir/mute"
chmod u+w "$dir/mute"
python3 -c 'import json; json.dump({"suppress_tokens": list(range(0, 260, 2))}, open("'"$dir"'/mute/generation_config.json", "w"))'
status 0 "a model that suppresses every other token" "$hearth" bench "$dir/mute" --clients 2 --prompt 8 --output 12 --json
json_is "has the texts that it has alone, too" "(d['texts_checked'], d['texts_different']) == (2, 0)"

status 0 "arrivals at random" "$hearth" bench tale --clients 2 --requests 6 --rate 50 --seed 7 --prompt 20 --output 4 --goodput tpot:0.000001 --json
json_is "have a rate and no bound on how many run" "(d['request_rate'], d['max_concurrency'], d['completed']) == (50, None, 6)"
json_is "nothing keeps a bound that nothing can keep" "d['request_goodput'] == 0"

# They are sent while all clients decode, so there is time enough for that, also where this is slow.
status 0 "a late prompt" "$hearth" bench tale --clients 2 --prompt 20 --output 800 --late 600 --json
# Tokens of short steps come together, and on a loaded machine most do: the median time between two may be none at all.
json_is "its first token is told, the keystroke's, and the others' gap" \
    "d['late_ttft_ms'] > 0 and d['keystroke_ttft_ms'] > 0 and d['others_longest_gap_ms'] > 0 and d['mean_itl_ms'] > 0"
json_is "both are checked and in no sum" "(d['texts_checked'], d['completed'], d['total_input_tokens']) == (4, 2, 40)"
status 1 "no moment for it" "$hearth" bench tale --clients 2 --prompt 20 --output 1 --late 20
err_has "... is said, with what makes one" "a larger --output or --requests makes some"
status 0 "three late prompts" "$hearth" bench tale --clients 2 --requests 16 --prompt 20 --output 500 --late 100 --arrivals 3 --json
json_is "of which the medians are told" \
    "d['late_prompts'] == 3 and d['late_ttft_ms'] > 0 and d['keystroke_ttft_ms'] > 0 and d['others_longest_gap_ms'] > 0"
json_is "all are checked" "(d['texts_checked'], d['completed'], d['texts_different']) == (22, 16, 0)"

status 0 "for people" "$hearth" bench tale --clients 2 --prompt 20 --output 4
is "the block has vLLM's lines" "$(grep -cE '^(============ Serving Benchmark Result ============|Successful requests:                     2         |Failed requests:                         0         |Maximum request concurrency:             2         |Total input tokens:                      40        |Total generated tokens:                  8         |---------------Time to First Token----------------|-----Time per Output Token \(excl\. 1st token\)------|---------------Inter-token Latency----------------|P99 ITL \(ms\): +[0-9.]+ *)$' "$dir/out")" 10

# Ctrl+C leaves nothing behind that would disturb the next one: without it streams go on whose client has gone.
cat >"$dir/interrupt.py" <<'P'
import json, signal, subprocess, sys
hearth = sys.argv[1]
p = subprocess.Popen([hearth, "bench", "tale", "--clients", "2", "--requests", "1000", "--prompt", "20", "--output", "900"],
                     preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
running = lambda: json.loads(subprocess.run([hearth, "status", "--json"], stdout=subprocess.PIPE).stdout)["engine"]["running"]
while running() < 2:  # one is of the model that is warmed
    pass
p.send_signal(signal.SIGINT)
status = p.wait()
print(status, running())
P
status 0 "bench, interrupted" python3 "$dir/interrupt.py" "$hearth"
is "ends, and with it what it asked for" "$(tail -n 1 "$dir/out")" "130 0"

# The daemon is killed while a late prompt is read, after some requests have been answered.
cat >"$dir/killed.py" <<'P'
import json, os, re, signal, subprocess, sys
hearth = sys.argv[1]
status = lambda: json.loads(subprocess.run([hearth, "status", "--json"], stdout=subprocess.PIPE).stdout)
before = status()["served"]["length"]
p = subprocess.Popen([hearth, "bench", "tale", "--clients", "2", "--requests", "400", "--prompt", "20", "--output", "50",
                      "--late", "800", "--arrivals", "100", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
s = status()
while p.poll() is None and (s["served"]["length"] < before + 30 or s["engine"]["running"] < 3):
    s = status()
os.kill(s["pid"], signal.SIGKILL)
out, err = p.communicate()
d = json.loads(out)
failed, all = map(int, re.search(rb"(\d+) of (\d+) requests failed", err).groups())
print(p.returncode, d["completed"] > 0, d["failed"] > 0, d["completed"] + d["failed"] == 400, failed > d["failed"], all > 400)
P
status 0 "bench, whose daemon dies" python3 "$dir/killed.py" "$hearth"
is "reports what it has measured, and counts what failed, late prompts too" "$(cat "$dir/out")" "1 True True True True True"

status 2 "a context that is too small" "$hearth" bench tale --clients 1 --prompt 1000 --output 100
err_has "... is named" "tale has a context of 1024 tokens, and a request of 1100 is asked for"
status 2 "... with --json" "$hearth" bench tale --clients 1 --prompt 1000 --output 100 --json
json_is "... in an object, too" "d['error']['message'].startswith('tale has a context of 1024 tokens')"
status 1 "more connections than a user may have" "$hearth" bench tale --clients 64 --prompt 1 --output 1
err_has "... names the key" "connections_per_uid in hearth.conf is the limit"
status 2 "more tokens than can be kept" "$hearth" bench tale --clients 1 --requests 1048576 --prompt 1 --output 1048576
err_has "... names the most" "67108864 in all are the most"
status 2 "more in common than there is" "$hearth" bench tale --clients 1 --prompt 4 --shared 5
status 2 "fewer requests than clients" "$hearth" bench tale --clients 4 --requests 3
status 2 "arrivals of nothing" "$hearth" bench tale --clients 2 --arrivals 3
status 2 "bounds of nothing" "$hearth" bench tale --clients 1 --goodput ttfb:3
status 2 "a bound twice" "$hearth" bench tale --clients 1 --goodput ttft:5,ttft:6
status 2 "--rate without --clients" "$hearth" bench tale --rate 3
status 2 "--output without --clients" "$hearth" bench tale --prompt 16 --depth none --output 3
err_has "... says what it goes with" "go with --clients"
status 2 "--clients with what measures the engine alone" "$hearth" bench tale --clients 2 --depth 0
done_testing
