-- screen.lua - a program in a terminal of this Neovim, for tests: what it shows, as lines of text; and TAP.
local M = { failed = 0, n = 0 }

function M.check(ok, name, got)
  M.n = M.n + 1
  io.stdout:write((ok and 'ok ' or 'not ok ') .. M.n .. ' - ' .. name .. '\n')
  if not ok then
    M.failed = M.failed + 1
    io.stdout:write('# got: ' .. tostring(got):gsub('\n', '\n# ') .. '\n')
  end
end

function M.skip(name, why)
  M.n = M.n + 1
  io.stdout:write('ok ' .. M.n .. ' - ' .. name .. ' # SKIP ' .. why .. '\n')
end

function M.start(argv, env)
  vim.o.columns, vim.o.lines = 100, 30
  vim.cmd('enew')
  M.buf = vim.api.nvim_get_current_buf()
  M.job = vim.fn.termopen(argv, { env = vim.tbl_extend('force', { TERM = 'xterm-256color' }, env or {}) })
end

function M.type(keys)
  vim.fn.chansend(M.job, keys)
end

-- The screen without empty lines at its end.
function M.text()
  return (table.concat(vim.api.nvim_buf_get_lines(M.buf, 0, -1, false), '\n'):gsub('%s+$', ''))
end

-- Waits until the screen shows the text (a plain one), or does not.
function M.shows(text, not_shown)
  return vim.wait(120000, function() return (M.text():find(text, 1, true) ~= nil) == not not_shown end, 5)
end

-- For people: what the screen shows now.
function M.capture(name)
  if vim.env.HEARTH_CAPTURE then
    local f = assert(io.open(vim.env.HEARTH_CAPTURE, 'a'))
    f:write('--- ' .. name .. '\n' .. M.text() .. '\n')
    f:close()
  end
end

-- The daemon, as another client.
local chan
function M.rpc(method, params)
  chan = chan or vim.fn.sockconnect('pipe', vim.env.HEARTH_SOCKET, { rpc = true })
  return vim.rpcrequest(chan, method, params)
end

-- Lets the fake engine's streams make a token more.
function M.tick() M.rpc('tokenize', { model = 'fake', text = 'tick' }) end

-- Waits until so many streams run.
function M.streams(n)
  return vim.wait(120000, function() return #M.rpc('streams.list', {}).streams == n end, 5)
end

-- Kills the daemon, and starts another one.
function M.restart()
  vim.loop.kill(M.rpc('status', {}).pid, 'sigkill')
  vim.wait(120000, function() return not pcall(vim.fn.sockconnect, 'pipe', vim.env.HEARTH_SOCKET) end, 5)
  chan = nil
  local dir, build = vim.env.DIR, vim.env.top_builddir
  vim.fn.system({ build .. '/hearthd', '--config', dir .. '/conf', '--state', dir .. '/state',
    '--engine', build .. '/tests/daemon/fake-engine' })
  M.started = M.rpc('status', {}).pid
end

function M.done()
  io.stdout:write('1..' .. M.n .. '\n')
  vim.fn.jobstop(M.job)
  if M.started then vim.loop.kill(M.started, 'sigterm') end
  vim.cmd(M.failed == 0 and 'quitall!' or 'cquit 1')
end

return M
