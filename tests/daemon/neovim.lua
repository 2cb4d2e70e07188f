-- neovim.lua - the real editor as a client: no library, no plugin, only its own sockconnect(). Prints TAP.
-- Run by neovim.sh with hearthd and the fake engine, whose texts are known.
local failed, n = 0, 0
local function check(ok, name, got)
  n = n + 1
  io.stdout:write((ok and 'ok ' or 'not ok ') .. n .. ' - ' .. name .. '\n')
  if not ok then
    failed = failed + 1
    io.stdout:write('# got: ' .. vim.inspect(got):gsub('\n', '\n# ') .. '\n')
  end
end

local events = {}
package.loaded.hearth_events = { on = function(event, body) table.insert(events, { event, body }) end }

local chan = vim.fn.sockconnect('pipe', vim.env.HEARTH_SOCKET, { rpc = true })
check(chan > 0, 'the editor connects', chan)
local hello = vim.rpcrequest(chan, 'hello', {
  client = 'neovim',
  notify_as = { 'nvim_exec_lua', [[require('hearth_events').on(...)]] },
})
check(hello.version == 1, 'hello is answered with a map', hello)

local result = vim.rpcrequest(chan, 'generate', { model = 'fake', text = 'n=3 tail', request = 'from nvim' })
check(result.text == 't0 t1 t2 !', 'the result is the whole text', result)
check(result.usage.completion_tokens == 3, 'numbers arrive as numbers', result.usage)

-- Events are handled while rpcrequest waits, or right after it.
vim.wait(120000, function()
  local last = events[#events]
  return last ~= nil and last[1] == 'stream.tokens' and last[2].index + last[2].count == 3 and last[2].text:sub(-1) == '!'
end, 1)
check(#events > 1 and events[1][1] == 'stream.begin' and events[1][2].request == 'from nvim', 'stream.begin comes first', events)
local text, index = '', 0
for i = 2, #events do
  local body = events[i][2]
  if events[i][1] ~= 'stream.tokens' or body.index ~= index then text = text .. '<out of order>' end
  index = index + body.count
  text = text .. body.text
end
check(text == result.text and index == 3, 'the frames are the text', events)

-- A Lua table without elements is an array on the wire: that is an empty map here.
local status = vim.rpcrequest(chan, 'status', {})
check(status.pid ~= nil, 'an empty table does for params', status)
status = vim.rpcrequest(chan, 'status', vim.empty_dict())
check(status.engine.backend == 'fake', 'and so does an empty dictionary', status)

local ok, err = pcall(vim.rpcrequest, chan, 'generate', { model = 'nonesuch', text = 'x' })
check(not ok and tostring(err):find('MODEL_NOT_FOUND: there is no model "nonesuch"', 1, true) ~= nil,
  'an error is shown with its name and its reason', err)

-- A notification of another method has no answer, but a notice.
events = {}
vim.rpcnotify(chan, 'status', {})
vim.wait(120000, function() return #events > 0 end, 1)
check(#events == 1 and events[1][1] == 'notice', 'rpcnotify of a request is told that it was in vain', events)

-- generate as a notification: the editor goes on, and what comes is handled between keystrokes.
local function ended(request)
  for _, e in ipairs(events) do
    if (e[1] == 'stream.end' or e[1] == 'stream.error') and e[2].request == request then return e end
  end
end
events = {}
vim.rpcnotify(chan, 'generate', { request = 'async', model = 'fake', text = 'n=3 tail' })
check(#events == 0, 'rpcnotify does not wait', events)
vim.wait(120000, function() return ended('async') ~= nil end, 1)
local last = events[#events]
check(last[1] == 'stream.end' and last[2].text == 't0 t1 t2 !' and last[2].finish_reason == 'stop'
  and last[2].usage.completion_tokens == 3, 'stream.end is last, with the result', last)
text = ''
for _, e in ipairs(events) do if e[1] == 'stream.tokens' then text = text .. e[2].text end end
check(text == 't0 t1 t2 !', 'and the tokens came before it', events)

-- Typing goes on while it generates, and a keystroke cancels it. "gate" makes a token for each tick.
local function tick() vim.rpcrequest(chan, 'tokenize', { model = 'fake', text = 'tick' }) end
events = {}
vim.rpcnotify(chan, 'generate', { request = 'typed', model = 'fake', text = 'gate n=1000' })
vim.wait(120000, function() return #events > 0 end, 1)
tick()
vim.wait(120000, function() return events[#events][1] == 'stream.tokens' end, 1)
vim.api.nvim_create_autocmd('TextChangedI', { once = true, callback = function()
  vim.rpcnotify(chan, 'cancel', { request = 'typed' })
end })
vim.api.nvim_feedkeys(vim.api.nvim_replace_termcodes('ihello<Esc>', true, false, true), 'tx!', false)
vim.api.nvim_exec_autocmds('TextChangedI', {}) -- headless, no screen redraws, and nothing else fires it
check(vim.api.nvim_get_current_line() == 'hello', 'what is typed arrives at once', vim.api.nvim_get_current_line())
vim.wait(120000, function() return ended('typed') ~= nil end, 1)
last = ended('typed')
check(last ~= nil and last[2].finish_reason == 'cancelled' and last[2].text == 't0 ', 'a keystroke cancels it', events)

events = {}
vim.rpcnotify(chan, 'generate', { request = 'bad', model = 'fake', text = 'x', max_tokns = 4 })
vim.wait(120000, function() return ended('bad') ~= nil end, 1)
last = ended('bad')
check(last ~= nil and last[1] == 'stream.error' and last[2].error[1] == 1
  and last[2].error[2]:find('INVALID_PARAMS: generate: "max_tokns" is not known; is max_tokens meant?', 1, true) ~= nil,
  'an error names its request', events)

io.stdout:write('1..' .. n .. '\n')
vim.cmd(failed == 0 and 'quitall!' or 'cquit 1')
