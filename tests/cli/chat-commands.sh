#!/bin/sh
# chat-commands.sh - a conversation at a terminal: commands, messages of several lines, pasted text, and what is checked
# before the prompt opens.
. "$top_srcdir/tests/cli/lib.sh"

# A copy of the model whose key of the template has another name: it has none.
python3 - "$top_srcdir/contrib/models/tale-q4_k_m.gguf" "$dir/bare.gguf" "$dir/broken.gguf" <<'P'
import sys
data = open(sys.argv[1], "rb").read()
assert data.count(b"tokenizer.chat_template") == 1
open(sys.argv[2], "wb").write(data.replace(b"tokenizer.chat_template", b"tokenizer.chat_templatE"))
at = data.index(b"{%", data.index(b"tokenizer.chat_template"))  # the template's first statement is none
open(sys.argv[3], "wb").write(data[:at] + b"{%%" + data[at + 3:])
P
echo '{{ messages[0].content }}' >"$dir/own.jinja"
"$hearth" load tale >/dev/null
"$hearth" run -s taken -n 1 "Once" >/dev/null
"$hearth" run -s given -n 1 "Once" >/dev/null

cat >"$dir/talk.py" <<'P'
import os, re, subprocess, sys
from terminal import Terminal, case
hearth, bare, broken, own = sys.argv[1], *os.environ["FILES"].split()
t = Terminal(hearth, "chat", "-s", "lines", "-n", "2")
def say(text):
    t.type(text)
    return t.expect(rb">>> ")
before = t.expect(rb">>> ")
case(b" answers, as no model was named; /help lists commands\r\n" in before, "the model is told before the prompt")
case(b"\x1b[?2004h" in before or b"\x1b[?2004h" in t.all, "the terminal is asked to bracket what is pasted")
t.type(b"\x1b[200~def f(x):\r\n    y = x\r\r    return y\x1b[201~ now\r")
t.expect(rb">>> ")
t.type(b'"""first\r')
t.expect(rb"\.\.\. ")
t.type(b'second\r')
t.expect(rb"\.\.\. ")
say(b'third"""\r')
t.type(b"one \\\r")
t.expect(rb"\.\.\. ")
say(b"two\r")
out = say(b"/help\r")
case(all(w in out for w in (b"/bye", b"/system", b"/set", b"/clear", b"/save")), "/help lists the commands")
case(b"there is no command /nothing; /help lists them" in say(b"/nothing\r"), "a command that is none is said to be none")
say(b"/usr/bin is what?\r")
case(b"/set temp wants a number from 0 to 100, not 'hot'" in say(b"/set temp hot\r"), "/set names what may be set")
case(b"top-k" in say(b"/set\r"), "/set lists what can be set")
case(b'nothing is called "tempo"' in say(b"/set tempo 1\r"), "/set refuses what cannot be")
say(b"/set max-tokens 3\r")
say(b"/system Be brief.\r")
say(b"Hello.\r")
case(b'this conversation is the session "saved one"' in say(b"/save saved one\r"), "/save names the session")
case(b"\x1b[?2004l" in t.all, "brackets are off while the answer comes")
t.type(b"/bye\r")
case(t.end() == 0 and b"`hearth resume 'saved one'` goes on with this" in t.seen, "/bye ends it, and the name is told")

t = Terminal(hearth, "chat", "-n", "1")
t.expect(rb">>> ")
case(b"SESSION_EXISTS" in say(b"/save taken\r"), "/save of a taken name is refused before the first message")
say(b"Hello.\r")
case(b"SESSION_EXISTS" in say(b"/save taken\r"), "and after it")
t.type(b"/bye\r")
t.end()
t = Terminal(hearth, "chat", "-n", "1")
t.expect(rb">>> ")
case(b'session "free"' in say(b"/save free\r"), "one that is free is given before it")
say(b"Hello.\r")
t.type(b"/bye\r")
case(t.end() == 0 and b"`hearth resume free` goes on with this" in t.seen, "and the conversation has it")
for name in "-it's; $HOME", "plain.one/2", "größer":  # the way on is one that a shell takes as it is printed
    t = Terminal(hearth, "chat", "-n", "1", "-s", "x" + name)
    t.expect(rb">>> ")
    say(b"Hello.\r")
    say(b"/save " + name.encode() + b"\r")
    t.type(b"\x04")
    t.end()
    command = re.search(r"`hearth (resume [^`]*)` goes on with this", t.all.decode()).group(1)
    run = subprocess.run(["/bin/sh", "-c", "printf '[%s]' " + command], stdout=subprocess.PIPE)
    case(run.stdout.decode().replace("[--]", "") == "[resume][%s]" % name, "a shell reads how '%s' goes on" % name)
one, t = Terminal(hearth, "chat", "-n", "1"), Terminal(hearth, "chat", "-n", "1")
for each in one, t:
    each.expect(rb">>> ")
    each.type(b"/save contended\r")
    each.expect(rb'session "contended"')
    each.expect(rb">>> ")
one.type(b"Hello.\r")
one.expect(rb">>> ")
case(b"SESSION_EXISTS" in say(b"Good bye.\r"), "of two conversations that want a name, the first to begin gets it")
for each in one, t:
    each.type(b"/bye\r")
    each.end()
case(b"`hearth resume contended`" in one.seen and b"`hearth resume chat-" in t.seen, "the other one keeps its own")
t = Terminal(hearth, "chat", "-m", "tale", "-s", "given", "-n", "1")
t.expect(rb">>> ")
say(b"/save moved\r")
t.type(b"/bye\r")
t.end()

t = Terminal(hearth, "chat", "-m", "no-such-model")
case(t.end() == 1 and b">>>" not in t.all and b"MODEL_NOT_FOUND" in t.all and b"resume" not in t.all,
     "a model that is not there: no prompt, no promise, status 1")
t = Terminal(hearth, "chat", "-m", bare)
case(t.end() == 1 and b">>>" not in t.all and b"NO_TEMPLATE" in t.all and b"resume" not in t.all and b"hearth run" in t.all,
     "a model without a template: the same, and a way on")
t = Terminal(hearth, "chat", "-m", broken)
case(t.end() == 1 and b">>>" not in t.all and b"line 1" in t.all and b"--template" in t.all,
     "a model whose template is none: what is wrong with it, and a way on")
t = Terminal(hearth, "chat", "-m", "tale", "--template", "rag")
case(t.end() == 1 and b">>>" not in t.all and b"default" in t.all, "no template of that name: those that there are")
t = Terminal(hearth, "chat", "-m", bare, "--template", own, "-n", "1")
t.expect(rb">>> ")
t.type(b"Hi\r")
t.expect(rb">>> ")
t.type(b"\x04")
case(t.end() == 0 and b"NO_TEMPLATE" not in t.all, "a template that is given makes it talk")
t = Terminal(hearth, "chat", "-s", "bytes", "-n", "1", LC_ALL="C")
t.expect(rb">>> ")
t.type("größer 日本\r".encode())
t.expect(rb">>> ")
t.type(b"caf\xe9 au\r")
t.expect(rb">>> ")
t.type(b"\x04")
t.end()
t = Terminal(hearth, "run", bare)
case(t.end() == 1 and b">>>" not in t.all and b"NO_TEMPLATE" in t.all, "also where run would have opened it")
t = Terminal(hearth, "chat")
t.expect(rb">>> ")
t.type(b"\x04")
case(t.end() == 0 and b"resume" not in t.all, "a conversation that never began is not promised")
P
FILES="$dir/bare.gguf $dir/broken.gguf $dir/own.jinja" terminal 26 "$dir/talk.py"
status 0 "the session" "$hearth" sessions show "saved one" --json
json_is "a pasted function is one message" "d['transcript'][0]['text'] == 'def f(x):\n    y = x\n\n    return y now'"
json_is "so is text between triple quotes" "d['transcript'][2]['text'] == 'first\nsecond\nthird'"
json_is "and a line that a backslash continues" "d['transcript'][4]['text'] == 'one \ntwo'"
json_is "a path is a message" "d['transcript'][6]['text'] == '/usr/bin is what?'"
json_is "/system went before the next message" "[(t['role'], t['text']) for t in d['transcript'][8:10]] == [('system', 'Be brief.'), ('user', 'Hello.')]"
json_is "/set counts from the next answer on" "[d['transcript'][i]['generation']['usage']['completion_tokens'] for i in (7, 10)] == [2, 3]"
status 0 "the session of a terminal without a locale" "$hearth" sessions show bytes --json
json_is "has what was typed, bytes that are no characters by their number" "[t['text'] for t in d['transcript'] if t['role'] == 'user'] == ['größer 日本', 'café au']"
status 0 "the session whose name was taken" "$hearth" sessions show taken --json
json_is "has what it had" "len(d['transcript']) == 2"
status 0 "the name that two wanted" "$hearth" sessions show contended --json
json_is "is that of one conversation" "[t['text'] for t in d['transcript'] if t['role'] == 'user'] == ['Hello.']"
status 0 "one that exists gets the name, where a model was given, too" "$hearth" sessions show moved
printf '/help\n' | "$hearth" chat -s piped -n 1 >/dev/null
status 0 "off a terminal" "$hearth" sessions show piped --json
json_is "a line is a message, whatever it begins with" "d['transcript'][0]['text'] == '/help'"
done_testing
