#!/bin/sh
# operations.sh - what somebody who runs a daemon looks at: hearth metrics, and hearth top on terminals of several sizes.
. "$top_srcdir/tests/cli/lib.sh"

status 3 "metrics starts no daemon" "$hearth" metrics
status 3 "nor does top" "$hearth" top --once
status 0 "two generations" sh -c '"$1" run -n 6 -s one "Once upon a time there was" && "$1" run -n 6 -s one " and then"' sh "$hearth"

# A reader of the text format, strict: every sample has a type before it, names and labels are well-formed, histograms
# rise to their count.
cat >"$dir/parse.py" <<'P'
import re, sys
types, values, buckets = {}, {}, {}
for n, line in enumerate(open(sys.argv[1]).read().split("\n")[:-1], 1):
    if line.startswith("# HELP "):
        continue
    m = re.fullmatch(r"# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram)", line)
    if m:
        assert m[1] not in types, "line %d: %s has two types" % (n, m[1])
        types[m[1]] = m[2]
        continue
    m = re.fullmatch(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*",?)*\})? (\S+)', line)
    assert m, "line %d: %s" % (n, line)
    name, labels, value = m[1], m[2] or "", float(m[3])
    base = re.sub("_(bucket|sum|count)$", "", name)
    assert name in types or types.get(base) == "histogram", "line %d: no type" % n
    assert types.get(name) != "counter" or name.endswith("_total"), "line %d: a counter ends in _total" % n
    assert name + labels not in values, "line %d: told twice" % n
    values[name + labels] = value
    if name.endswith("_bucket"):
        buckets.setdefault(base, []).append((float(re.search('le="([^"]*)"', labels)[1]), value))
for base, b in buckets.items():
    assert b == sorted(b) and [v for _, v in b] == sorted(v for _, v in b) and b[-1][0] == float("inf"), base
    count = [v for k, v in values.items() if k.startswith(base + "_count")]
    assert count == [b[-1][1]], base
print(eval(sys.argv[2]))
P
metrics_are() { # NAME FILE EXPRESSION
    got=$(python3 "$dir/parse.py" "$2" "$3" 2>&1)
    is "$1" "$got" True
}
status 0 "metrics" "$hearth" metrics
cp "$dir/out" "$dir/metrics"
metrics_are "two generations ended, in twelve tokens" "$dir/metrics" \
    "values['hearth_requests_total{end=\"length\"}'] == 2 and values['hearth_tokens_total{kind=\"generation\"}'] == 12"
metrics_are "where the prompts' KV came from adds up" "$dir/metrics" \
    "sum(v for k, v in values.items() if k.startswith('hearth_prefix_tokens_total')) == values['hearth_tokens_total{kind=\"prompt\"}'] and values['hearth_prefix_tokens_total{hit=\"memory\"}'] > 0"
metrics_are "two first tokens were timed" "$dir/metrics" "values['hearth_time_to_first_token_seconds_count'] == 2"
metrics_are "the model in memory is named" "$dir/metrics" "values['hearth_model_bytes{model=\"tale\"}'] > 1e6"
status 1 "metrics into a folder that is not there" "$hearth" metrics -o "$dir/none/metrics"
err_has "names the file as it was given" "hearth: $dir/none/metrics: No such file"
mkfifo "$dir/pipe"
status 1 "metrics into a pipe" "$hearth" metrics -o "$dir/pipe"
err_has "is refused" "$dir/pipe is no file"
result "$(test -p "$dir/pipe"; echo $?)" "and the pipe is still one"
metrics_are "nothing of vLLM's unless asked for" "$dir/metrics" "not any(k.startswith('vllm:') for k in types)"
status 0 "metrics --vllm -o FILE" "$hearth" metrics --vllm -o "$dir/hearth.prom"
is "prints nothing" "$(cat "$dir/out")" ""
metrics_are "and vLLM's names are there with the model's" "$dir/hearth.prom" \
    "values['vllm:generation_tokens_total{model_name=\"tale\"}'] == 12 and types['vllm:e2e_request_latency_seconds'] == 'histogram'"
status 1 "a file that cannot be written" "$hearth" metrics -o "$dir/nowhere/hearth.prom"
err_has "is named" "$dir/nowhere/hearth.prom"
status 0 "status --json" "$hearth" status --json
json_is "has the same counters" "d['served']['completion_tokens'] == 12 and d['served']['length'] == 2"

mkdir "$dir/a" "$dir/b"
for folder in a b; do
    cp "$top_srcdir"/contrib/models/tale*.gguf "$dir/$folder/same.gguf"
    "$hearth" load "$dir/$folder/same.gguf" >"$dir/out" 2>&1
done
"$hearth" metrics >"$dir/metrics"
metrics_are "models of the same name are added up" "$dir/metrics" \
    "values['hearth_model_bytes{model=\"same\"}'] == 2 * values['hearth_model_bytes{model=\"tale\"}']"

status 0 "top --once" "$hearth" top --once
is "shows the model in memory" "$(grep -c '^tale .* cpu ' "$dir/out")" 1

cat >"$dir/top.py" <<'P'
import fcntl, json, os, re, signal, struct, subprocess, sys, termios
from terminal import Terminal, case

def size(t, rows, columns):
    fcntl.ioctl(t.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

def frame(t):
    """The lines of the next picture, without their control sequences."""
    t.expect(rb"\x1b\[H")
    return [re.sub(rb"\x1b\[[?0-9]*[A-Za-z]", b"", l).decode() for l in t.expect(rb"\x1b\[J").split(b"\r\n")]

t = Terminal(sys.argv[1], "top", "-n", "0.1")
size(t, 24, 100)
frame(t)
lines = frame(t)
case(any(l.startswith("MODEL") for l in lines) and any(l.startswith("tale") for l in lines), "a picture with the model")
size(t, 4, 20)
for _ in range(200):  # what was on its way when the terminal shrank
    lines = frame(t)
    if len(lines) <= 4:
        break
case(len(lines) == 4 and max(map(len, lines)) <= 20, "a small terminal is not overfilled")
t.type(b"q")
case(t.end() == 0 and b"\x1b[?1049l" in t.all and t.all.endswith(b"\x1b[?25h\x1b[?1049l"), "q leaves, and the terminal is as it was")
t = Terminal("/bin/sh", "-c", 'exec "$0" top -n 0.1 </dev/null', sys.argv[1])
for _ in range(3):
    frame(t)
t.type(b"\x03")
case(t.end() == 0, "it goes on where standard input is no terminal and has ended")
dumb = Terminal("/bin/sh", "-c", 'exec timeout --foreground 20 "$0" top', sys.argv[1], TERM="dumb")
for name, t in ("--once", Terminal(sys.argv[1], "top", "--once")), ("TERM=dumb", dumb):
    case(t.end() == 0 and b"\x1b" not in t.all and t.all.endswith(b"\r\n"), "%s prints it below what is there" % name)

taken, returned = rb"\x1b\[\?1049h", rb"\x1b\[\?25h\x1b\[\?1049l"
t = Terminal("/bin/sh", "-i", PS1="prompt> ")
t.expect(rb"prompt> ")
t.type(b"'%s' top\n" % sys.argv[1].encode())
t.expect(taken + rb".*\x1b\[J")
t.type(b"\x1a")
t.expect(returned + rb".*prompt> ")
case(True, "Ctrl+Z leaves the terminal as it was")
t.type(b"fg\n")
t.expect(taken + rb".*\x1b\[J")
t.type(b"q")
t.expect(returned + rb".*prompt> ")
case(True, "fg goes on with it, keys and all")
t.type(b"exit\n")
t.end()

pid = json.loads(subprocess.check_output([sys.argv[1], "status", "--json"]))["pid"]
t = Terminal(sys.argv[1], "top", "-n", "0.1")
t.expect(rb"\x1b\[J")
os.kill(pid, signal.SIGSTOP)
while t.read(1):
    pass
t.type(b"\x03")
ended = t.read(20) and re.search(returned, t.seen)
os.kill(pid, signal.SIGCONT)
case(t.end() == 0 and ended, "Ctrl+C ends it while the daemon does not answer")
P
terminal 9 "$dir/top.py"
# The doctor, with a driver and a card in a /proc of the test's own.
mkdir -p "$dir/proc/proc/driver/nvidia/gpus/0000:17:00.0" "$dir/data/hearth/models"
echo 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024' >"$dir/proc/proc/driver/nvidia/version"
printf 'Model: \t\t NVIDIA H100\nIRQ:   \t\t 77\n' >"$dir/proc/proc/driver/nvidia/gpus/0000:17:00.0/information"
printf 'GGUF nothing' >"$dir/data/hearth/models/broken.gguf"
status 0 "doctor" env HEARTH_PROC="$dir/proc" "$hearth" doctor
is "names the driver" "$(grep -c '^driver *NVIDIA UNIX x86_64 Kernel Module  550.54.15 ' "$dir/out")" 1
is "and the card" "$(grep -c '^card *NVIDIA H100, 0000:17:00.0' "$dir/out")" 1
is "and the engine's device" "$(grep -c '^engine *cpu: ' "$dir/out")" 1
is "a model in memory runs where it is" "$(grep -cE '^tale +cpu +in memory' "$dir/out")" 1
is "a file that is none runs on nothing, for a reason" "$(grep -cE '^broken +nothing +.*version' "$dir/out")" 1
status 0 "doctor without a driver" env HEARTH_PROC="$dir/none" "$hearth" doctor
is "says so" "$(grep -cE '^(driver|card) +none' "$dir/out")" 2
done_testing
