#!/bin/sh
# examples.sh - libhearth's example programs against a daemon, and a real editor with no client library at all.
. "$top_srcdir/tests/cli/lib.sh"

status 0 "a daemon" "$hearth" run -n 32 --temp 0 "Once upon a time"
cp "$dir/out" "$dir/text"
status 0 "the blocking example" "$top_builddir/libclient/examples/blocking" tale "Once upon a time"
is "streams the same text" "$(sed '$d' "$dir/out")" "$(cat "$dir/text")"
is "and says what it cost" "$(tail -n 1 "$dir/out" | grep -cE '^\[length after 32 tokens, [0-9]+ of [0-9]+ prompt tokens reused\]$')" 1
status 0 "the libevent example" "$top_builddir/libclient/examples/libevent" tale "Once upon a time" "There was a king" "In the wood"
is "answers each of its prompts" "$(grep -cE '^[012]: ' "$dir/out")" 3
status 0 "the reconnecting example" "$top_builddir/libclient/examples/reconnect" tale "Once upon a time"
cp "$dir/out" "$dir/whole"
# Its daemon is killed when 20 bytes of the text have come; the installed hearthd is not this one, so PATH has it.
cat >"$dir/kill.py" <<'P'
import json, os, signal, subprocess, sys
daemon = json.loads(subprocess.check_output([sys.argv[1], "status", "--json"]))["pid"]
p = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE)
out = b""
while len(out) < 20:
    out += os.read(p.stdout.fileno(), 20 - len(out))
os.kill(daemon, signal.SIGKILL)
out += p.stdout.read()
sys.stdout.buffer.write(out)
sys.exit(p.wait())
P
status 0 "goes on when its daemon is killed" env PATH="$(cd "$top_builddir" && pwd):$PATH" \
    python3 "$dir/kill.py" "$hearth" "$top_builddir/libclient/examples/reconnect" tale "Once upon a time"
is "and prints the same text" "$(cat "$dir/out")" "$(cat "$dir/whole")"
status 1 "the blocking example with a model that is not there" "$top_builddir/libclient/examples/blocking" nothing x

# An example that had all of its text before the kill has started no other daemon.
status 0 "a daemon is there again" "$hearth" run -n 1 "Once"

if ! command -v nvim >/dev/null 2>&1; then
    n=$((n + 1))
    echo "ok $n # SKIP no nvim"
    done_testing
    exit 0
fi
cat >"$dir/client.lua" <<'L'
-- Neovim's own msgpack-rpc: events arrive as nvim_exec_lua requests that carry our code and (event, body).
events = {}
local chan = vim.fn.sockconnect('pipe', vim.env.HEARTH_SOCKET, { rpc = true })
local code = 'local event, body = ...; table.insert(events, { event, body })'
local hello = vim.rpcrequest(chan, 'hello', { version_min = 1, version_max = 1, client = 'nvim', notify_as = { 'nvim_exec_lua', code } })
local ask = { model = 'tale', text = 'Once upon a time', max_tokens = 32, stream = true, sampling = { temperature = 0 } }
local done = vim.rpcrequest(chan, 'generate', ask)
-- Every frame came before the response, but the editor may still have to run what it received.
local text, index = '', 0
vim.wait(120000, function()
    text, index = '', 0
    for _, e in ipairs(events) do
        if e[1] == 'stream.tokens' then
            assert(e[2].index == index, 'a frame is missing')
            index = index + e[2].count
            text = text .. e[2].text
        end
    end
    return index >= done.usage.completion_tokens
end)
local refused, why = pcall(vim.rpcrequest, chan, 'generate', { model = 'no-such-model', text = 'x' })
vim.fn.writefile({
    'version ' .. hello.version, 'first ' .. events[1][1], 'tokens ' .. index,
    'same ' .. tostring(text == done.text), 'refused ' .. tostring(not refused), 'why ' .. tostring(why),
}, vim.env.dir .. '/nvim')
vim.fn.writefile(vim.split(text, '\n', true), vim.env.dir .. '/nvim.text', 'b')
vim.cmd('qall!')
L
dir=$dir timeout 600 nvim --headless -u NONE -c "luafile $dir/client.lua" -c 'cquit 9' >"$dir/out" 2>&1
got=$?
[ $got = 0 ] || sed 's/^/# nvim: /' "$dir/out"
is "neovim runs to its end" $got 0
is "it shook hands" "$(grep -c '^version 1$' "$dir/nvim")" 1
is "it saw the stream begin" "$(grep -c '^first stream.begin$' "$dir/nvim")" 1
is "it counted every token" "$(sed -n 's/^tokens //p' "$dir/nvim")" 32
is "its frames concatenate to the result" "$(sed -n 's/^same //p' "$dir/nvim")" true
is "which is the command's text" "$(cat "$dir/nvim.text")" "$(cat "$dir/text")"
is "an error is an error in the editor" "$(sed -n 's/^refused //p' "$dir/nvim")" true
is "and shows its name" "$(grep -c '^why .*MODEL_NOT_FOUND: ' "$dir/nvim")" 1
done_testing
