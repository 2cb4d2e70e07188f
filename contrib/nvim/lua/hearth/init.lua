-- hearth for Neovim: a completion as ghost text while one types, and a chat in a buffer. Neovim 0.7 and later; nothing
-- else is needed, because the editor speaks hearthd's protocol itself (libclient/PROTOCOL.md): every request is a
-- notification, so that typing goes on while a model generates, and a keystroke cancels it.
local M = {}
local api, fn = vim.api, vim.fn

M.config = {
  model = nil, -- nil: the daemon's default
  auto = true, -- ask while one types; else M.suggest() asks
  delay = 150, -- ms without a keystroke before that
  prefix_lines = 256, suffix_lines = 64, -- of the buffer, around the cursor
  extra_buffers = 8, extra_lines = 64, -- of other buffers, around the last cursor there
  max_tokens = 64,
  sampling = { temperature = 0 },
  keys = { accept = '<Tab>', word = '<M-w>', line = '<M-l>', dismiss = '<C-]>' },
}

-- --- the connection -------------------------------------------------------------------------------------------------

local chan, default_model
local handlers = {} -- request id -> function(event, body); the last event is stream.end or stream.error
local stream_of = {} -- stream number -> request id
local count = 0

-- Where a daemon may listen, the first one first (PROTOCOL.md 1). Anybody can make a folder in /tmp: what stands in the
-- buffers goes to the socket in it only where it is the user's own, and closed to all others.
local function socket_paths()
  if vim.env.HEARTH_SOCKET then return { vim.env.HEARTH_SOCKET } end
  local uid, paths = vim.loop.getuid(), { '/run/hearth/hearth.sock' }
  local folder = vim.env.XDG_RUNTIME_DIR and vim.env.XDG_RUNTIME_DIR .. '/hearth'
  if not folder and uid ~= 0 then
    folder = ('/tmp/hearth-%d'):format(uid)
    local stat = vim.loop.fs_lstat(folder)
    if not stat or stat.type ~= 'directory' or stat.uid ~= uid or stat.mode % 64 ~= 0 then folder = nil end
  end
  if folder then table.insert(paths, 1, folder .. '/hearth.sock') end
  return paths
end

-- Called by the daemon's events, through notify_as.
function M._event(event, body)
  local id = body.request or stream_of[body.stream]
  if event == 'stream.begin' and id then stream_of[body.stream] = id end
  local handle = id and handlers[id]
  if event == 'stream.end' or event == 'stream.error' then
    handlers[id] = nil
    for stream, request in pairs(stream_of) do
      if request == id then stream_of[stream] = nil end
    end
  elseif event == 'notice' and not handle then
    vim.notify('hearth: ' .. body.message)
  end
  if handle then handle(event, body) end
end

-- Neovim has no event for the end of a channel, so it is polled for while answers are awaited: those that a connection
-- took with it end with an error, else a chat would wait for its answer for ever.
local poll = vim.loop.new_timer()

local function ended()
  local ok, info = pcall(api.nvim_get_chan_info, chan)
  if ok and info.id then return false end -- of an ended one it has no fields, but Neovim 0.7's table is not empty
  local waiting = handlers
  chan, handlers, stream_of = nil, {}, {}
  for id, handle in pairs(waiting) do
    handle('stream.error', { request = id, error = { 0, 'CONNECT: the connection to hearthd has ended' } })
  end
  return true
end

-- The channel, connected where it is not; nil where no daemon answers.
local function connect()
  if chan and not ended() then return chan end
  local ok, c
  for _, path in ipairs(socket_paths()) do
    ok, c = pcall(fn.sockconnect, 'pipe', path, { rpc = true })
    if ok and c ~= 0 then break end
  end
  if not ok or c == 0 then return nil end
  ok = pcall(vim.rpcrequest, c, 'hello', {
    client = 'hearth.nvim', notify_as = { 'nvim_exec_lua', [[require('hearth')._event(...)]] },
  })
  if not ok then return nil end
  chan = c
  if not M.config.model then
    local got, list = pcall(vim.rpcrequest, chan, 'models.list', {})
    default_model = got and list.default_model or nil
  end
  return chan
end

-- Calls back with a channel; the `hearth` command starts a daemon where none answers.
local function with_daemon(back)
  if connect() then return back() end
  fn.jobstart({ 'hearth', 'status' }, { on_exit = vim.schedule_wrap(function(_, code)
    if code == 0 and connect() then back() else vim.notify('hearth: no daemon answers', vim.log.levels.WARN) end
  end) })
end

-- Begins a generation; `handle` gets its events. Returns its id.
local function generate(params, handle)
  count = count + 1
  params.request = ('nvim-%d-%d-%d'):format(fn.getpid(), vim.loop.hrtime() % 2 ^ 31, count)
  handlers[params.request] = handle
  vim.rpcnotify(chan, 'generate', params)
  poll:start(500, 500, vim.schedule_wrap(function()
    if not next(handlers) or not chan or ended() then poll:stop() end
  end))
  return params.request
end

local function cancel(id)
  if chan and handlers[id] then pcall(vim.rpcnotify, chan, 'cancel', { request = id }) end -- pcall: it may have ended
end

-- --- ghost text -------------------------------------------------------------------------------------------------------

local ns = api.nvim_create_namespace('hearth')
local ghost = { text = '' } -- buf, row, col: where its text would stand; request: the one that makes it
local timer = vim.loop.new_timer()

local function draw()
  api.nvim_buf_clear_namespace(ghost.buf, ns, 0, -1)
  if ghost.text == '' then return end
  local lines = vim.split(ghost.text, '\n', { plain = true })
  local rest = api.nvim_buf_get_lines(ghost.buf, ghost.row, ghost.row + 1, true)[1]:sub(ghost.col + 1)
  local virt = {}
  for i, line in ipairs(lines) do
    virt[i] = { { line, 'Comment' } }
  end
  if rest ~= '' then table.insert(virt[#virt], { rest, 'Normal' }) end -- the overlay hides what stands there
  api.nvim_buf_set_extmark(ghost.buf, ns, ghost.row, ghost.col, {
    virt_text = table.remove(virt, 1), virt_text_pos = 'overlay',
    virt_lines = #virt > 0 and virt or nil, hl_mode = 'combine',
  })
end

function M.dismiss()
  timer:stop()
  if ghost.request then
    cancel(ghost.request)
    handlers[ghost.request] = nil -- what still comes is nobody's
  end
  if ghost.buf and api.nvim_buf_is_valid(ghost.buf) then api.nvim_buf_clear_namespace(ghost.buf, ns, 0, -1) end
  ghost = { text = '' }
end

function M.visible() return ghost.text ~= '' end

-- The end, or the beginning, of a text, of at most as many bytes as so many lines may have on average. Without a bound a
-- file of one long line, as a program writes it, would not fit into the model's context, nor into a frame.
local LINE = 128

local function tail(text, lines)
  return #text <= lines * LINE and text or (text:sub(-lines * LINE):gsub('^[\128-\191]+', ''))
end

local function head(text, lines)
  return #text <= lines * LINE and text or (text:sub(1, lines * LINE):gsub('[\192-\255][\128-\191]*$', ''))
end

-- Other buffers, in the order of their numbers: a list that stays is KV that stays.
local function other_files(buf)
  local files = {}
  for _, other in ipairs(api.nvim_list_bufs()) do
    local name = api.nvim_buf_get_name(other)
    if #files < M.config.extra_buffers and other ~= buf and name ~= '' and api.nvim_buf_is_loaded(other)
      and vim.bo[other].buflisted and vim.bo[other].buftype == '' then
      local at = api.nvim_buf_get_mark(other, '"')[1]
      local from = math.max(at - math.floor(M.config.extra_lines / 2), 0)
      local lines = api.nvim_buf_get_lines(other, from, from + M.config.extra_lines, false)
      table.insert(files, { name = fn.fnamemodify(name, ':.'), text = head(table.concat(lines, '\n'), M.config.extra_lines) .. '\n' })
    end
  end
  return files
end

local function ask(buf, row, col)
  local c = M.config
  local before = api.nvim_buf_get_lines(buf, math.max(row - c.prefix_lines, 0), row + 1, true)
  local line = before[#before]
  before[#before] = line:sub(1, col)
  local after = api.nvim_buf_get_lines(buf, row + 1, row + 1 + c.suffix_lines, false)
  table.insert(after, 1, line:sub(col + 1))
  local params = {
    model = c.model or default_model, prefix = tail(table.concat(before, '\n'), c.prefix_lines),
    suffix = head(table.concat(after, '\n'), c.suffix_lines), max_tokens = c.max_tokens, sampling = c.sampling,
  }
  local files = other_files(buf)
  if #files > 0 then
    params.extra = files
    local name = api.nvim_buf_get_name(buf)
    params.file = name ~= '' and fn.fnamemodify(name, ':.') or nil
  end
  ghost = { text = '', buf = buf, row = row, col = col }
  local mine = ghost
  mine.request = generate(params, function(event, body)
    if mine ~= ghost then return end
    if event == 'stream.tokens' then
      mine.text = mine.text .. body.text
      draw()
    elseif event == 'stream.error' then
      vim.notify('hearth: ' .. body.error[2], vim.log.levels.WARN)
    end
  end)
end

-- Asks for a completion at the cursor.
function M.suggest()
  M.dismiss()
  local buf, at = api.nvim_get_current_buf(), api.nvim_win_get_cursor(0)
  with_daemon(function()
    if api.nvim_get_current_buf() == buf and vim.deep_equal(at, api.nvim_win_get_cursor(0)) then
      ask(buf, at[1] - 1, at[2])
    end
  end)
end

-- What was typed may be what the ghost text says: then it goes on.
local function typed_on(buf, row, col)
  if ghost.text == '' or ghost.buf ~= buf or ghost.row ~= row or col < ghost.col then return false end
  local typed = api.nvim_get_current_line():sub(ghost.col + 1, col)
  if ghost.text:sub(1, #typed) ~= typed then return false end
  ghost.text, ghost.col = ghost.text:sub(#typed + 1), col
  draw()
  return true
end

local function on_change()
  local buf, at = api.nvim_get_current_buf(), api.nvim_win_get_cursor(0)
  if vim.bo[buf].buftype ~= '' or typed_on(buf, at[1] - 1, at[2]) then return end
  M.dismiss()
  if M.config.auto then timer:start(M.config.delay, 0, vim.schedule_wrap(function()
    if api.nvim_get_mode().mode:sub(1, 1) == 'i' then M.suggest() end
  end)) end
end

-- Takes `part` of the ghost text into the buffer: 'word', 'line' or 'all'.
function M.accept(part)
  if ghost.text == '' then return end
  local text, rest = ghost.text, ''
  if part == 'word' then
    text = ghost.text:match('^%s*[%w_]+') or ghost.text:match('^%s*[^%w_%s]+') or ghost.text
  elseif part == 'line' then
    text = ghost.text:match('^\n*[^\n]*')
  end
  rest = ghost.text:sub(#text + 1)
  local lines = vim.split(text, '\n', { plain = true })
  local g = ghost
  api.nvim_buf_set_text(g.buf, g.row, g.col, g.row, g.col, lines)
  local row, col = g.row + #lines - 1, #lines[#lines] + (#lines == 1 and g.col or 0)
  if rest == '' then M.dismiss() else g.text, g.row, g.col = rest, row, col end
  api.nvim_win_set_cursor(0, { row + 1, col })
  if rest ~= '' then draw() end
end

-- --- a chat in a buffer -------------------------------------------------------------------------------------------------

local YOU = '## You'

local function append(buf, text, group)
  local last = api.nvim_buf_line_count(buf) - 1
  local col = #api.nvim_buf_get_lines(buf, last, last + 1, true)[1]
  api.nvim_buf_set_text(buf, last, col, last, col, vim.split(text, '\n', { plain = true }))
  if group then
    local to = api.nvim_buf_line_count(buf) - 1
    api.nvim_buf_set_extmark(buf, ns, last, col,
      { hl_group = group, end_row = to, end_col = #api.nvim_buf_get_lines(buf, to, to + 1, true)[1] })
  end
  for _, win in ipairs(fn.win_findbuf(buf)) do -- the end stays in view
    api.nvim_win_set_cursor(win, { api.nvim_buf_line_count(buf), 0 })
  end
end

-- Sends what stands under the last "## You"; the answer streams in under the model's name.
function M.send(buf)
  buf = buf or api.nvim_get_current_buf()
  if vim.b[buf].hearth_request then return end -- it answers still
  local lines = api.nvim_buf_get_lines(buf, 0, -1, true)
  local from = #lines
  while from > 0 and lines[from] ~= YOU do from = from - 1 end
  local message = vim.trim(table.concat(lines, '\n', from + 1))
  if message == '' then return end
  with_daemon(function()
    local model, thinks = M.config.model or default_model, false
    vim.b[buf].hearth_request = generate({
      model = model, session = vim.b[buf].hearth_session, messages = { { role = 'user', content = message } },
    }, function(event, body)
      if not api.nvim_buf_is_valid(buf) then return end
      if event == 'stream.begin' then
        append(buf, '\n\n## ' .. body.model .. '\n')
      elseif event == 'stream.tokens' then
        if body.reasoning then append(buf, body.reasoning, 'Comment') end -- thoughts step back
        if thinks and body.text ~= '' then append(buf, '\n\n') end
        thinks = (thinks or body.reasoning ~= nil) and body.text == ''
        append(buf, body.text)
      elseif event == 'stream.end' or event == 'stream.error' then
        local why = event == 'stream.error' and body.error[2] or body.error
        append(buf, (why and '\n\n> ' .. why or '') .. '\n\n' .. YOU .. '\n')
        vim.b[buf].hearth_request = nil
      end
    end)
  end)
end

function M.stop(buf)
  local id = vim.b[buf or 0].hearth_request
  if id then cancel(id) end -- its end still comes, and is wanted
end

-- A chat in a new buffer, or in the session of that name.
function M.chat(session)
  vim.cmd('new')
  local buf = api.nvim_get_current_buf()
  vim.bo[buf].buftype, vim.bo[buf].filetype = 'nofile', 'markdown'
  vim.b[buf].hearth_session = session and session ~= '' and session or os.date('nvim-%Y%m%d-%H%M%S')
  api.nvim_buf_set_lines(buf, 0, -1, true, { YOU, '' })
  api.nvim_win_set_cursor(0, { 2, 0 })
  vim.keymap.set('n', '<CR>', function() M.send(buf) end, { buffer = buf, desc = 'hearth: send the message' })
  vim.keymap.set('n', '<C-c>', function() M.stop(buf) end, { buffer = buf, desc = 'hearth: stop the answer' })
  return buf
end

-- --- setup ----------------------------------------------------------------------------------------------------------------

local function map(key, part)
  if not key then return end
  vim.keymap.set('i', key, function()
    if not M.visible() then return api.nvim_feedkeys(api.nvim_replace_termcodes(key, true, false, true), 'n', false) end
    if part then M.accept(part) else M.dismiss() end
  end, { desc = 'hearth: ' .. (part and 'accept ' .. part or 'dismiss') })
end

function M.setup(config)
  M.config = vim.tbl_deep_extend('force', M.config, config or {})
  local keys, group = M.config.keys, api.nvim_create_augroup('hearth', {})
  map(keys.accept, 'all')
  map(keys.word, 'word')
  map(keys.line, 'line')
  map(keys.dismiss, nil)
  api.nvim_create_autocmd('TextChangedI', { group = group, callback = on_change })
  api.nvim_create_autocmd('CursorMovedI', { group = group, callback = function()
    local at = api.nvim_win_get_cursor(0)
    if ghost.buf and (at[1] - 1 ~= ghost.row or at[2] ~= ghost.col)
      and not typed_on(api.nvim_get_current_buf(), at[1] - 1, at[2]) then M.dismiss() end
  end })
  api.nvim_create_autocmd({ 'InsertLeave', 'BufLeave' }, { group = group, callback = M.dismiss })
end

return M
