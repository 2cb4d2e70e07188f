#!/bin/sh
# chat-terminal.sh - hearth chat on a pseudo-terminal: line editing, Ctrl+C during an answer and at the prompt.
. "$top_srcdir/tests/cli/lib.sh"

cat >"$dir/chat.py" <<'P'
"""A person at a terminal: waits for a text, then types. Fails where the text does not come within 60 s."""
import os, pty, re, select, signal, sys, time
signal.alarm(900)  # whatever goes wrong, it ends
pid, fd = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm"
    os.execv(sys.argv[1], sys.argv[1:])
seen = b""
def expect(pattern, within=60):
    global seen
    end = time.monotonic() + within
    while not re.search(pattern, seen, re.S):
        if time.monotonic() > end or not select.select([fd], [], [], end - time.monotonic())[0]:
            sys.exit("# no %r in %r" % (pattern, seen))
        try:
            data = os.read(fd, 4096)
        except OSError:
            data = b""
        if not data:
            sys.exit("# the end before %r, after %r" % (pattern, seen))
        seen += data
    seen = seen[re.search(pattern, seen, re.S).end():]
def type(text):
    os.write(fd, text)
expect(rb">>> ")
type(b"dropped\x03")  # Ctrl+C at the prompt: the line is gone, the chat is not
expect(rb">>> ")
print("ok 1 - Ctrl+C at the prompt gives a new one")
type(b"Tell me\x7f\x7f\x7f\x7f\x7f\x7f\x7fTell me a story.\r")
expect(rb"story\.\r\n.*?[a-z]{2}.*?")
type(b"\x03")  # in the answer
expect(rb">>> ")
print("ok 2 - Ctrl+C in an answer gives the prompt back")
type(b"\x10")  # Ctrl+P: the last line again
expect(rb"Tell me a story\.")
print("ok 3 - the history has the last line")
type(b"\x15\x04")  # Ctrl+U, Ctrl+D
while True:
    try:
        if not os.read(fd, 4096):
            break
    except OSError:
        break
print("%s 4 - Ctrl+D ends the chat well" % ("ok" if os.waitpid(pid, 0)[1] == 0 else "not ok"))
P
# No bar on the terminal: the letters that are waited for are the answer's. An engine that knows its speed reads the prompt
# in one step.
"$hearth" run -m tale -n 1 "Once upon a time there was a king." >/dev/null
python3 "$dir/chat.py" "$hearth" chat -s talk --temp 1.5 --top-k 0 --top-p 1 --min-p 0 --seed 3 || echo "not ok - the terminal"
n=4
status 0 "the session" "$hearth" sessions show talk --json
json_is "has what was typed, edited" "d['transcript'][0]['text'] == 'Tell me a story.' and d['transcript'][1]['role'] == 'assistant'"

# A message that is cancelled before its first token: the engine stands still until the cancel is on its way.
cat >"$dir/early.py" <<'P'
import json, os, signal, subprocess, sys, time
from terminal import Terminal, case
hearth = sys.argv[1]
def ask(verb):
    return json.loads(subprocess.run([hearth, verb, "--json"], stdout=subprocess.PIPE, check=True).stdout)
def until(*states):
    end = time.monotonic() + 60
    while not set(s["state"] for s in ask("streams")["streams"]) & set(states) and time.monotonic() < end:
        time.sleep(0.01)
def cancelled(t):
    engine = ask("status")["engine"]["pid"]
    os.kill(engine, signal.SIGSTOP)
    t.type(b"word " * 150 + b"\r")
    until("queued", "running")  # the engine cannot say that it has begun
    t.type(b"\x03")
    until("cancelling")
    os.kill(engine, signal.SIGCONT)
    t.expect(rb">>> ")
t = Terminal(hearth, "chat", "-n", "4")
t.expect(rb">>> ")
cancelled(t)
t.type(b"\x04")
t.end()
case(b"resume" not in t.all, "where nothing is kept, no session is named")
t = Terminal(hearth, "chat", "-s", "early", "-n", "4", "--system", "Be brief.")
t.expect(rb">>> ")
cancelled(t)
t.type(b"Hello.\r")
t.expect(rb">>> ")
t.type(b"\x04")
t.end()
P
terminal 1 "$dir/early.py"
status 0 "the session" "$hearth" sessions show early --json
json_is "has the system message, which came with the first" "[t['role'] for t in d['transcript']] == ['system', 'user', 'assistant']"
# Ctrl+Z at the prompt, and a terminal that gets another size.
cat >"$dir/stop.py" <<'P'
import fcntl, struct, sys, termios
from terminal import Terminal, case
t = Terminal("/bin/sh", "-i", PS1="prompt> ")
t.expect(rb"prompt> ")
t.type(b"'%s' chat -s stopped -n 1\n" % sys.argv[1].encode())
t.expect(rb">>> ")
t.type(b"half")
t.expect(rb"half")
t.type(b"\x1a")
t.expect(rb"\x1b\[\?2004l.*prompt> ")
case(termios.tcgetattr(t.fd)[3] & termios.ICANON, "Ctrl+Z leaves the terminal as it was")
t.type(b"fg\n")
t.expect(rb"\x1b\[\?2004h.*>>> half")
case(not termios.tcgetattr(t.fd)[3] & termios.ICANON, "fg shows the line, which is edited on")
fcntl.ioctl(t.fd, termios.TIOCSWINSZ, struct.pack("4H", 24, 12, 0, 0))
t.expect(rb">>> half")
t.type(b"way to there\r")
t.expect(rb"ther\r?\n?e.*>>> ")
case(True, "it is drawn again for another width")
t.type(b"\x04")
t.expect(rb"prompt> ")
t.type(b"exit\n")
t.end()
P
terminal 3 "$dir/stop.py"
status 0 "the session" "$hearth" sessions show stopped --json
json_is "has the whole line" "[t['text'] for t in d['transcript'] if t['role'] == 'user'] == ['halfway to there']"

# Several conversations at once, of which one is killed, keep what was typed into each; in a folder that their daemon,
# which has another one, has not made.
cat >"$dir/several.py" <<'P'
import os, sys
from terminal import Terminal, case
def chat():
    t = Terminal(sys.argv[1], "chat", "-n", "1", XDG_STATE_HOME=sys.path[0] + "/a/b")
    t.expect(rb">>> ")
    return t
def say(t, text):
    t.type(text + b"\r")
    t.expect(rb">>> ")
one, two, three = chat(), chat(), chat()
say(one, b"/first of one")
say(two, b"/first of two")
say(three, b"/first of three")
say(one, b"/second of one \xe2\x82\xac")
os.kill(three.pid, 9)
for t in one, two:
    t.type(b"\x04")
    t.end()
t = chat()
for line in rb"/second of one \xe2\x82\xac", rb"/first of three", rb"/first of two", rb"/first of one":
    t.type(b"\x10\x0c")  # Ctrl+P; Ctrl+L draws it again as a whole
    t.expect(line)
case(True, "all of them, in their order")
t.type(b"\x15\x04")
t.end()
P
terminal 1 "$dir/several.py"
is "the file is its owner's" "$(stat -c %a "$dir/a/b/hearth/chat_history")" 600
python3 -c 'print("_HiStOrY_V2_", *("/line%d" % i for i in range(2500)), sep="\n")' >"$dir/a/b/hearth/chat_history"
sed '/^say(/d; /^os.kill/d; s/^for line in .*:/for line in rb"\/line2499", rb"\/line2498":/; s/^one.*/one, two = chat(), chat()/' "$dir/several.py" >"$dir/long.py"
terminal 1 "$dir/long.py"
is "a file that has become long keeps the last lines" "$(wc -l <"$dir/a/b/hearth/chat_history")" 1001
done_testing
