#!/bin/sh
# streams.sh - a terminal that is lost: its generation is found again without a number that nobody told.
. "$top_srcdir/tests/cli/lib.sh"

# The end token is made unlikely, so that it runs for a thousand tokens; its client is killed at the first of them.
cat >"$dir/lose.py" <<'P'
import os, subprocess, sys
p = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)
os.read(p.stdout.fileno(), 1)
p.kill()
p.wait()
P
status 1 "nothing to attach to" "$hearth" attach
err_has "is said" "there is no stream of yours to go on with"
status 1 "... with --json" "$hearth" attach --json
json_is "as an object" "d['error']['symbol'] == 'STREAM_NOT_FOUND'"
status 1 "one that there is not" "$hearth" attach 99999
err_has "is said with a way to those that there are" "hearth streams --all"
status 0 "no streams" "$hearth" streams --json
json_is "is an empty list" "d['streams'] == []"
status 0 "a client is killed" python3 "$dir/lose.py" "$hearth" run -s story -n 900 --temp 1.5 --top-k 0 --top-p 1 --min-p 0 --seed 3 "Once"
status 0 "streams --all --json" "$hearth" streams --all --json
json_is "the stream is told with its session and model" \
    "[(s['name'], s['model'], s['stream']) for s in d['streams']] == [('story', 'tale', 1)]"
status 0 "attach without a number" "$hearth" attach
cp "$dir/out" "$dir/text"
status 0 "attach with it" "$hearth" attach 1 --json
json_is "goes on to the end of that stream" "d['finish_reason'] in ('length', 'stop') and d['stream'] == 1"
is "and is all of its text" "$(cat "$dir/text")" "$(json "$dir/out" "d['text']")"
status 0 "streams" "$hearth" streams
is "nothing runs any more" "$(wc -l <"$dir/out")" 1
status 0 "streams -a" "$hearth" streams -a
is "what has ended is shown with the time since" \
    "$(grep -cE '^1 +story +tale +[0-9]+ +ended +[0-9]+ s$' "$dir/out")" 1
status 2 "attach to what is no number" "$hearth" attach story

# Several choices of one prompt, over the library's one request with many streams.
status 0 "two alone" "$hearth" run -m tale -n 8 --seed 6 "Once upon a time"
six=$(cat "$dir/out")
status 0 "choices" "$hearth" run -m tale -n 8 --seed 5 --choices 3 --request three "Once upon a time"
is "come one after the other" "$(grep -c '^--- choice [012], seed [567], length$' "$dir/out")" 3
is "each as it is alone" "$(sed -n '/^--- choice 1/,/^--- choice 2/p' "$dir/out" | sed '1d;$d')" "$six"
cp "$dir/out" "$dir/choices"
status 0 "they can be attached to" "$hearth" attach --request three
is "all of them" "$(cat "$dir/out")" "$(cat "$dir/choices")"
status 0 "... from a token on" "$hearth" attach --request three --from 2
is "... whole, as they are printed" "$(cat "$dir/out")" "$(cat "$dir/choices")"
err_has "... which is said" "--from is for one generation"
status 0 "as JSON" "$hearth" run -m tale -n 8 --seed 5 --choices 3 --json "Once upon a time"
json_is "they are an array" "[(c['index'], c['seed'], len(c['tokens'])) for c in d['choices']] == [(0, 5, 8), (1, 6, 8), (2, 7, 8)]"
status 0 "in the list" "$hearth" streams --all --json
json_is "they are told apart" \
    "sorted(s['choice'] for s in d['streams'] if s['request'] == 'three') == [0, 1, 2] and 'choice' not in d['streams'][-1]"
status 2 "none" "$hearth" run --choices 0 x
status 2 "too many" "$hearth" run --choices 17 x
status 2 "in a session" "$hearth" run -s s --choices 2 x
err_has "which has a verb of its own" "hearth fork"

# A prompt that is read for longer has a bar, which is gone when the text comes. The engine tells of it ten times a second,
# the first time after the first of its steps. This one obeys its prompt.
"$hearth" stop --daemon >/dev/null 2>&1
configure "engine = $(cd "$top_builddir" && pwd)/tests/daemon/fake-engine"
cat >"$dir/bar.py" <<'P'
import re, sys
from terminal import Terminal, case
def bars(told):
    t = Terminal(sys.argv[1], "run", "-m", "tale", "-p", "n=2 prompt=%d" % told)
    case(t.end() == 0 and b"t0 t1" in t.all, "told %d times" % told)
    case(re.search(rb"\r[^\r\n]*tokens[^\r\n]*$", t.all) is None, "... no bar is left")
    return re.findall(rb"reading the prompt \[#* *\] +(\d+) % of (\d+) tokens", t.all)
case(bars(1) == [], "a short prompt has none")
case(bars(3) == [(b"33", b"3"), (b"67", b"3")], "a long one has one")
t = Terminal("/bin/sh", "-c", "stty columns 30; exec \"$0\" run -m tale -p 'n=2 prompt=3'", sys.argv[1])
t.end()
drawn = re.findall(rb"\r(reading[^\r\x1b]*)", t.all)
case(len(drawn) == 2 and max(map(len, drawn)) < 30, "a narrow terminal does not wrap it")
P
terminal 7 "$dir/bar.py"

# Of two choices, one is cancelled from elsewhere.
cat >"$dir/one.py" <<'P'
import json, os, socket, subprocess, sys
def ask(*verb):
    return json.loads(subprocess.run([sys.argv[1], *verb, "--json"], input=b"tick", check=True,
                                     stdout=subprocess.PIPE).stdout)
p = subprocess.Popen([sys.argv[1], "run", "-m", "tale", "--choices", "2", "-p", "gate"])
streams = []
while len(streams) < 2:
    streams = [s for s in ask("streams")["streams"] if "choice" in s and s["state"] == "running"]
number = [s["stream"] for s in streams if s["choice"] == 1][0]
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ["HEARTH_SOCKET"])
s.sendall(b"\x93\x02\xa6cancel\x91\x81\xa6stream\xcd" + number.to_bytes(2, "big"))  # [2, "cancel", [{"stream": number}]]
while p.poll() is None:
    ask("tokenize", "-m", "tale")
sys.exit(p.returncode)
P
status 130 "one of two choices is cancelled" python3 "$dir/one.py" "$hearth"
is "... it is told which" "$(sed -n 's/^--- choice \(.\), seed [0-9]*, /\1 /p' "$dir/out" | tr '\n' ' ')" "0 stop 1 cancelled "
err_has "... and that it was not from here" "hearth: the generation was cancelled, and not from here"

# With --json no event has told a stream's number when the daemon dies; there is a way to it all the same.
cat >"$dir/die.py" <<'P'
import json, os, signal, subprocess, sys
def ask(verb):
    return json.loads(subprocess.run([sys.argv[1], verb, "--json"], stdout=subprocess.PIPE, check=True).stdout)
p = subprocess.Popen([sys.argv[1], "run", "-m", "tale", "--json", "-p", "hang"], stderr=subprocess.PIPE)
while not ask("streams")["streams"]:
    pass
os.kill(ask("status")["pid"], signal.SIGKILL)
sys.stderr.buffer.write(p.communicate()[1])
sys.exit(p.returncode)
P
status 3 "the daemon dies" python3 "$dir/die.py" "$hearth"
err_has "and how the text is to be had is said" "\`hearth attach\` goes on with it"

# It dies when the first tokens of two choices have come: both are had by the request's id.
cat >"$dir/choices.py" <<'P'
import json, os, signal, subprocess, sys
def ask(*verb):
    return json.loads(subprocess.run([sys.argv[1], *verb, "--json"], input=b"tick", check=True,
                                     stdout=subprocess.PIPE).stdout)
p = subprocess.Popen([sys.argv[1], "run", "-m", "tale", "--choices", "2", "-p", "gate"], stderr=subprocess.PIPE)
while True:
    streams = [s for s in ask("streams")["streams"] if "choice" in s]
    if any(s["tokens"] for s in streams):
        break
    if len(streams) == 2:
        ask("tokenize", "-m", "tale")
os.kill(ask("status")["pid"], signal.SIGKILL)
said = p.communicate()[1]
sys.exit(0 if b"`hearth attach --request %s` goes on" % streams[0]["request"].encode() in said else said)
P
status 0 "how several choices are to be had is said" python3 "$dir/choices.py" "$hearth"
done_testing
