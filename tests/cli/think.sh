#!/bin/sh
# think.sh - --think: what a model thinks is shown dim on terminals, between tags where it was asked for elsewhere, or not.
. "$top_srcdir/tests/cli/lib.sh"

# A model that says what it was made to say, asked to think or not.
python3 - "$dir/script.gguf" <<'P'
import os, sys
sys.path.insert(0, os.environ["top_srcdir"] + "/tests/tools")
import script_model
script_model.write(sys.argv[1], {"@think": ["<think>", "\n", "Hm", ".\n", "</think>", "\n\n", "Yes", "!"], "@plain": ["No"]},
                   user=["<think>", "</think>"])
P
cat >"$dir/knows.jinja" <<'P'
{# <think> #}{{ messages[-1].content }}{% if enable_thinking is defined and not enable_thinking %}@plain{% else %}@think{% endif %}
P
printf '{# <think> #}{{ messages[-1].content }}@think' >"$dir/cannot.jinja"
printf '%s' "$(cat "$dir/knows.jinja")" >"$dir/knows.jinja"
ask() {
    template=$1
    shift
    "$hearth" run -m "$dir/script.gguf" --chat --temp 0 --template "$dir/$template.jinja" "$@" -- "So?"
}
tagged='<think>
Hm.
</think>

Yes!'
is "a pipe gets the answer" "$(ask knows 2>"$dir/err")" "Yes!"
is "and with --think on thoughts in tags" "$(ask knows --think on)" "$tagged"
is "none with hide" "$(ask knows --think hide)" "Yes!"
is "with off the model does not think" "$(ask knows --think off)" "No"
status 0 "a template without a switch" ask cannot --think off
err_has "is told of" "THINK_UNKNOWN"
is "and thinks" "$(cat "$dir/out")" "$tagged"
status 2 "another word" ask knows --think maybe
err_has "is refused by name" "--think wants on, off or hide, not 'maybe'"
status 2 "raw text has no reasoning" "$hearth" run -m "$dir/script.gguf" --think on x
err_has "which is said" "--think go with --chat"
status 0 "as JSON" ask knows --json --think hide -s kept
json_is "both are members" "(d['reasoning'], d['text'], d['usage']['reasoning_tokens']) == ('Hm.', 'Yes!', 5)"
status 0 "a session" "$hearth" sessions show kept --json
json_is "has both" "(d['transcript'][1]['reasoning'], d['transcript'][1]['text']) == ('Hm.', 'Yes!')"
"$hearth" sessions export kept >"$dir/kept.json"
status 0 "its document" "$hearth" sessions import --name again "$dir/kept.json"
status 0 "another session" "$hearth" sessions show again --json
json_is "that has both" "(d['transcript'][1]['reasoning'], d['transcript'][1]['text']) == ('Hm.', 'Yes!')"
# Turns of more than a page, whose thoughts are most of one: parts of a page each, and the thoughts once.
long() { python3 -c "
import json, sys
d = json.load(open('$dir/kept.json'))
t = d['turns'][1]
t['reasoning'], t['text'] = 'Hm. ' * 250000, 'Yes! ' * 500000
d['turns'] += [d['turns'][0], t] * 4
d['n_turns'], d['n_tokens'] = len(d['turns']), sum(len(t['tokens']) for t in d['turns'])
json.dump(d, open('$dir/long.json', 'w'))"; }
long
status 0 "a document with long thoughts" "$hearth" sessions import --name long "$dir/long.json"
"$hearth" sessions export long >"$dir/out"
json_is "comes back" "d['turns'] == json.load(open('$dir/long.json'))['turns']"
status 0 "for people" "$hearth" sessions show again
is "they are one after the other" "$(tail -n 4 "$dir/out")" "--- assistant, 8 tokens
Hm.
---
Yes!"

cat >"$dir/terminal-think.py" <<'P'
import os, sys
from terminal import Terminal, case
h, d = sys.argv[1], os.environ["dir"]
words = ("-m", d + "/script.gguf", "--temp", "0", "--template", d + "/knows.jinja")
def shown(*more, **env):
    t = Terminal(h, "run", *words, "--chat", *more, "--", "So?", **env)
    t.end()
    return t.all.replace(b"\r\n", b"\n")
dim, off = b"\x1b[2m", b"\x1b[0m"
out = shown()
case(dim + b"Hm" + off + dim + b"." + off + b"\n\nYes!" in out, "a terminal shows thoughts dim, and then the answer")
case(b"<think>\nHm.\n</think>\n\nYes!" in shown(NO_COLOR="1"), "without styles between tags")
case(b"Hm" not in shown("--think", "hide"), "and none with hide")
t = Terminal(h, "chat", *words, "-s", "talk")
t.expect(rb">>> ")
t.type(b"So?\r")
out = t.expect(rb">>> ")
case(dim + b"Hm" in out and b"Yes!" in out, "so does a conversation")
t.type(b"\x04")
case(t.end() == 0, "which ends")
P
export dir
terminal 5 "$dir/terminal-think.py"
done_testing
