#!/bin/sh
# render.sh - hearth render: a conversation through a chat template, without a daemon.
. "$top_srcdir/tests/cli/lib.sh"

# chat STATUS NAME OBJECT OPTION... - renders $dir/t.jinja with the object on stdin.
chat() {
    printf '%s' "$3" >"$dir/in"
    wanted=$1 name=$2
    shift 3
    status "$wanted" "$name" "$hearth" render --template "$dir/t.jinja" "$@" <"$dir/in"
}

cat >"$dir/t.jinja" <<'EOF'
{{ bos_token }}{% for m in messages %}
<|{{ m.role }}|>{{ m.content | trim }}
{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}
EOF
chat 0 "a conversation" '{"messages": [{"role": "user", "content": " caf\u00e9 \ud83d\ude00 "}], "bos_token": "<s>",
    "add_generation_prompt": true}' --json
json_is "its text" "d == {'text': '<s><|user|>caf\u00e9 \U0001f600\n<|assistant|>'}"
is "on one line, with UTF-8 as it is" "$(cat "$dir/out")" "{\"text\":\"<s><|user|>café 😀\\n<|assistant|>\"}"
chat 0 "without --json" '{"messages": [{"role": "user", "content": "x"}]}'
is "the text alone" "$(cat "$dir/out")" "<|user|>x"

echo '{{ tools is none }} {{ documents is none }} {{ tools is defined }} {{ bos_token is defined }} {{ eos_token is defined }} {{ add_generation_prompt }}' >"$dir/t.jinja"
chat 0 "what is absent" '{"messages": [], "eos_token": null}' --json
json_is "is none, not defined or false" "d['text'] == 'True True True False False False'"
echo '{{ x | tojson }}{{ add_generation_prompt }}' >"$dir/t.jinja"
chat 0 "kwargs are variables and count last" '{"messages": [], "kwargs": {"x": {"z": 1.50, "a": [true, 1e400]},
    "add_generation_prompt": "mine"}}' --json
json_is "in their order" "d['text'] == '{\"z\": 1.5, \"a\": [true, Infinity]}mine'"
deep=$(python3 -c "print('[' * 64 + ']' * 64)")
for in in '' '[]' '"messages"'; do
    chat 1 "a conversation that is '$in'" "$in"
    err_has "... is no object" 'hearth: INVALID_PARAMS: not a JSON object, as in {"messages": [...]}'
done
chat 0 "64 levels" "{\"kwargs\": {\"x\": $deep}}" --json
json_is "come through" "d['text'] == '$deep' + 'False'"

echo "{{ strftime_now('%A %d %b %Y %H:%M:%S %j') }}" >"$dir/t.jinja"
chat 0 "--now" '{}' --json --now 2026-11-22T10:00
json_is "sets the clock" "d['text'] == 'Sunday 22 Nov 2026 10:00:00 326'"
chat 2 "--now without a time" '{}' --json --now 2026-11-22
chat 2 "--now on no day" '{}' --json --now 2026-02-30T10:00
chat 0 "and without --now" '{}' --json
json_is "it is today" "__import__('time').strftime('%Y') in d['text']"

echo "{{ raise_exception('roles must \"alternate\"\\né') }}" >"$dir/t.jinja"
chat 1 "raise_exception()" '{"messages": []}' --json
json_is "is the template's own words" "d == {'error': 'roles must \"alternate\"\\n\u00e9'}"
is "on one line" "$(wc -l <"$dir/out")" 1
is "and nothing on stderr" "$(cat "$dir/err")" ""
chat 1 "without --json" '{}'
err_has "on stderr" 'roles must "alternate"'
is "and nothing on stdout" "$(cat "$dir/out")" ""

printf 'a\n{{ x.y }}' >"$dir/t.jinja"
chat 1 "an error at run time" '{}' --json
json_is "has its line" "d['error'].startswith('line 2: ')"
printf '{%% if %%}' >"$dir/t.jinja"
chat 1 "a template that is none" '{}' --json
json_is "is an error too" "d['error'].startswith('line 1: ')"
printf '{%% for i in range(99999) %%}{%% for j in range(99999) %%}x{%% endfor %%}{%% endfor %%}' >"$dir/t.jinja"
chat 1 "a template without end" '{}' --json
json_is "ends" "'steps' in d['error']"
printf 'x' >"$dir/t.jinja"
for in in '' '[]' '{"messages": 1}' '{"tools": "x"}' '{"kwargs": []}' '{"bos_token": 1}' '{"message": []}' '{} x' '{"kwargs": {"a": 01}}'; do
    chat 1 "refused: $in" "$in" --json
    json_is "... with a reason" "list(d) == ['error'] and d['error']['symbol'] == 'INVALID_PARAMS' and bool(d['error']['message'])"
    err_has "... on stderr, too" "hearth: INVALID_PARAMS: "
done
head -c 300000 /dev/zero | tr '\0' x >"$dir/t.jinja"
chat 1 "a template of 300 KB" '{}' --json
json_is "is over the limit" "'KiB' in d['error']"
status 1 "no such file" "$hearth" render --template "$dir/none" --json </dev/null
json_is "is an error" "d['error']['symbol'] == 'IO' and 'No such file' in d['error']['message']"
err_has "as everywhere" "hearth: IO: "
status 2 "no template" "$hearth" render --json </dev/null
status 2 "an argument" "$hearth" render --template "$dir/t.jinja" x </dev/null
is "no daemon was started" "$(find "$dir" -name '*.sock')" ""

# With a model: its own template and tokens, asked of a daemon.
cat >"$dir/in" <<'EOF'
{"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": true, "kwargs": {"b": 1, "a": [1.0]}, "tools": null}
EOF
status 0 "-m" "$hearth" render -m tale --json <"$dir/in"
json_is "the model's own template" "d['text'] == '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n'"
ids=$(printf '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n' | "$hearth" tokenize -m tale --special)
json_is "and the ids" "' '.join(map(str, d['ids'])) == '$ids'"
status 0 "-m without --json" "$hearth" render -m tale <"$dir/in"
is "the text alone" "$(head -1 "$dir/out")" "<|im_start|>user"
echo '{{ eos_token }}{{ b }}{{ a }}{{ strftime_now("%H") }}{{ tools is none }}' >"$dir/t.jinja"
status 0 "-m with a template" "$hearth" render -m tale --template "$dir/t.jinja" --now 2026-11-22T10:00 --json <"$dir/in"
json_is "has the model's tokens" "d['text'] == '<|endoftext|>1[1.0]10True'"
status 0 "-m with a name" "$hearth" render -m tale --template default --json <"$dir/in"
status 1 "-m with no such name" "$hearth" render -m tale --template tool_use --json <"$dir/in"
json_is "tells the names" "d['error']['symbol'] == 'NO_TEMPLATE' and 'default' in d['error']['message']"
status 1 "-m with no such model" "$hearth" render -m no-such-model --json <"$dir/in"
json_is "is an object, as everywhere" "d['error']['symbol'] == 'MODEL_NOT_FOUND' and 'hearth list' in d['error']['next']"
err_has "and on stderr" "hearth: MODEL_NOT_FOUND: "
echo '{{ raise_exception("no") }}' >"$dir/t.jinja"
status 1 "-m and a refusal" "$hearth" render -m tale --template "$dir/t.jinja" --json <"$dir/in"
json_is "has its words alone" "d == {'error': 'no'}"
is "on stdout alone" "$(cat "$dir/err")" ""
echo '{"message": []}' >"$dir/in"
status 1 "-m and an unknown key" "$hearth" render -m tale --json <"$dir/in"
json_is "names it" "d['error']['symbol'] == 'INVALID_PARAMS' and '\'message\' is not known' in d['error']['message']"
echo '[]' >"$dir/in"
status 1 "-m and a list" "$hearth" render -m tale <"$dir/in"
err_has "shows what is read" 'stdin holds no conversation as {"messages": [{"role":'

# What a generation gives its template.
echo '{{ raise_exception(x | tojson) }}' >"$dir/t.jinja"
status 1 "run --set" "$hearth" run -m tale --chat --template "$dir/t.jinja" --set x=1 --set 'x={"b": 1, "a": [true, 2.0]}' Hi
err_has "reaches the template, in its order" 'TEMPLATE: {"b": 1, "a": [true, 2.0]}'
status 2 "a value that is no JSON" "$hearth" run -m tale --chat --set effort=high Hi
err_has "says how" "KEY=JSON"
status 2 "--set without messages" "$hearth" run -m tale --set x=1 Hi
status 2 "a template that cannot be read" "$hearth" run -m tale --chat --template "$dir/no/such" Hi
status 1 "a template that is not there" "$hearth" run -m tale --chat --template rag Hi
err_has "is named, with those that are" "NO_TEMPLATE: the model has no chat template \"rag\"; there are default"
done_testing
