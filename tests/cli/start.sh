#!/bin/sh
# start.sh - a command that finds no daemon starts one; many at once start one between them; a dead socket is no obstacle.
. "$top_srcdir/tests/cli/lib.sh"

for i in 1 2 3 4; do
    "$hearth" status --json >"$dir/status.$i" 2>"$dir/err.$i" &
done
wait
pids=$(for i in 1 2 3 4; do json "$dir/status.$i" "d['pid']"; done 2>"$dir/err" | sort -u | wc -l)
cat "$dir"/err.? | sed 's/^/# /'
is "four commands at once start one daemon" "$pids" 1
pid=$(json "$dir/status.1" "d['pid']")
status 0 "the next command finds it" "$hearth" status --json
json_is "the same" "d['pid'] == $pid"
tr '\0' '\n' <"/proc/$pid/environ" >/dev/null && [ "$(readlink "/proc/$pid/fd/0")" = /dev/null ]
result $? "the daemon does not hold the terminal's stdin"
! readlink "/proc/$pid/fd/1" "/proc/$pid/fd/2" | grep -q "$dir/status\|$dir/err"
result $? "nor the command's output"

python3 -c '
import os, select, signal, sys
pid = int(sys.argv[1])
ended = os.pidfd_open(pid)
os.kill(pid, signal.SIGKILL)
select.select([ended], [], [])' "$pid"
[ -S "$HEARTH_SOCKET" ]
result $? "a killed daemon leaves its socket"
status 0 "and the next command starts another all the same" "$hearth" status --json
json_is "which is another" "d['pid'] != $pid"

status 0 "stop --daemon" "$hearth" stop --daemon
! [ -S "$HEARTH_SOCKET" ]
result $? "takes the socket with it"

# The daemon does not keep the signals that its caller blocks or ignores, whether the command or a program starts it.
cat >"$dir/signals.py" <<'P'
import os, signal, subprocess, sys
ours = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}
def set_up():
    for s in ours:
        signal.signal(s, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, ours)
subprocess.run(sys.argv[1:], preexec_fn=set_up)
P
for caller in "$hearth status" "$top_builddir/hearthd"; do
    # shellcheck disable=SC2086
    python3 "$dir/signals.py" $caller >/dev/null 2>"$dir/err"
    "$hearth" --no-start status --json >"$dir/status"
    pid=$(json "$dir/status" "d['pid']")
    is "no signal stays blocked: ${caller##*/}" "$(sed -n 's/^SigBlk:.//p' "/proc/$pid/status")" 0000000000000000
    "$hearth" stop --daemon --now >/dev/null
done

# Descriptors that are closed are not those of files and sockets, into which lines of the log would go.
"$top_builddir/hearthd" <&- >&- 2>&-
result $? "a daemon starts whose caller has closed its standard descriptors"
"$hearth" --no-start status --json >"$dir/status"
pid=$(json "$dir/status" "d['pid']")
is "and lets go of the caller" "$(readlink "/proc/$pid/fd/0" "/proc/$pid/fd/2" | tr '\n' ' ')" "/dev/null $dir/state/hearth/hearthd.log "
"$hearth" stop --daemon
mkfifo "$dir/ready"
"$top_builddir/hearthd" --foreground --ready-fd 3 <&- >&- 2>&- 3>"$dir/ready" &
head -c 1 "$dir/ready" >/dev/null
status 0 "and one in the foreground" "$hearth" --no-start run -n 1 x
is "has nothing of its own there" "$(readlink "/proc/$!/fd/0" "/proc/$!/fd/1" "/proc/$!/fd/2" | sort -u)" /dev/null
"$hearth" stop --daemon

mkdir -m 700 "$dir/run"
(
    HEARTH_SOCKET=
    status 0 "an empty HEARTH_SOCKET is none" "$hearth" status --json
    json_is "the socket lies in XDG_RUNTIME_DIR" "d['socket'] == '$dir/run/hearth/hearth.sock'"
    "$hearth" stop --daemon
)
n=$((n + 2))
done_testing
