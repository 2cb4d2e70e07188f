#!/bin/sh
# interrupt.sh - Ctrl+C cancels the generation, not the daemon, and the tokens so far stay in the session.
. "$top_srcdir/tests/cli/lib.sh"

# -n -1 with the end token made unlikely would go on for a thousand tokens; the interrupt comes with the first of them.
# A background job of sh ignores SIGINT, so Python starts the command as a terminal would.
cat >"$dir/interrupt.py" <<'P'
import os, signal, subprocess, sys
p = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
first = os.read(p.stdout.fileno(), 65536)
p.send_signal(signal.SIGINT)
rest = p.stdout.read()
sys.stdout.buffer.write(first + rest)
sys.exit(p.wait())
P
# ... and here as sh does. The end is near enough.
sed 's/signal.default_int_handler/signal.SIG_IGN/' "$dir/interrupt.py" >"$dir/ignore.py"
status 0 "a session" "$hearth" run -s story -n 1 "Once"
status 130 "Ctrl+C ends the command with 130" python3 "$dir/interrupt.py" "$hearth" run -s story --temp 1.5 --top-k 0 --top-p 1 --min-p 0 --seed 3 " there"
printed=$(cat "$dir/out"; echo .)
status 0 "the daemon lives" "$hearth" sessions show story --json
json_is "the session is free" "d['busy'] is False"
is "and holds what was printed" "$(json "$dir/out" "d['transcript'][-1]['text'] + '.'")" "$printed"
status 0 "it goes on" "$hearth" run -s story -n 2 --json " and"
json_is "from there" "d['usage']['reused_tokens'] > 1 and d['finish_reason'] == 'length'"
status 0 "status" "$hearth" status --json
json_is "nothing is left running" "d['streams'] == 0 and d['engine']['running'] == 0"

status 0 "a signal that was ignored from the start is ignored" python3 "$dir/ignore.py" "$hearth" run -n 300 --temp 1.5 --top-k 0 --top-p 1 --min-p 0 --seed 3 --stats " there"
err_has "... to the end" "; 300 tokens, "

# A request that waits in hearthd for another one to end, which takes minutes on this device. A terminal is told that it
# waits.
"$hearth" stop --daemon --now
printf '#!/bin/sh\nexec "%s" --paced 100 "$@"\n' "$top_builddir/tests/fault/hearth-engine" >"$dir/engine"
chmod 700 "$dir/engine"
configure "streams_per_uid = 1" "engine = $dir/engine"
cat >"$dir/waiting.py" <<'P'
import os, signal, subprocess, sys
def run(stderr=None):
    return subprocess.Popen([sys.argv[1], "run", "-n", "-1", "Once"], stdout=subprocess.PIPE, stderr=stderr,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
first = run()
os.read(first.stdout.fileno(), 1)
terminal, other = os.openpty()
second, seen = run(other), b""
while b"1 in line" not in seen:
    seen += os.read(terminal, 1024)
second.send_signal(signal.SIGINT)
code = second.wait(60)
first.send_signal(signal.SIGINT)
first.stdout.read()
first.wait()
os.close(other)
try:
    while True:
        seen += os.read(terminal, 1024)
except OSError:  # nobody has it open any more
    pass
sys.exit(code if b"CANCELLED" not in seen else 99)
P
status 130 "Ctrl+C while it waits ends the command with 130, which is no error" python3 "$dir/waiting.py" "$hearth"
"$hearth" stop --daemon --now
configure

cat >"$dir/elsewhere.py" <<'P'
import os, subprocess, sys
p = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)
os.read(p.stdout.fileno(), 1)
subprocess.check_call([sys.argv[1], "stop", "--daemon", "--now"])
p.stdout.read()
sys.exit(p.wait())
P
status 130 "what somebody else cancels" python3 "$dir/elsewhere.py" "$hearth" run --temp 1.5 --top-k 0 --top-p 1 --min-p 0 --seed 3 "Once"
err_has "says so" "hearth: the generation was cancelled, and not from here"
cat >"$dir/attached.py" <<'P'
import sys
from terminal import Terminal, case
t = Terminal(sys.argv[1], "attach", "1")
case(t.end() == 0 and t.all.endswith(b"\n"), "attach leaves a terminal's prompt a line of its own")
P
terminal 1 "$dir/attached.py"
done_testing
