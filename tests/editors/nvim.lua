-- nvim.lua - Neovim with contrib/nvim, as somebody who types sees it. Run by nvim.sh with hearthd and the fake engine,
-- which makes "t0 t1 ... " of what the prefix asks for.
local s = require('screen')
local check = s.check
local file = vim.env.DIR .. '/a.txt'
s.start({ 'nvim', '--clean', '-i', 'NONE', '-n', '--cmd', 'set rtp+=' .. vim.env.top_srcdir .. '/contrib/nvim',
  '-c', [[lua require('hearth').setup{ delay = 20 }]], file })
check(s.shows('a.txt'), 'the editor opens', s.text())
vim.fn.writefile({ ('\195\159'):rep(5000000) }, vim.env.DIR .. '/long')
s.type(':set hidden | e $DIR/long | b 1\r')

s.type('i')
s.type('gate n=3 tail: ')
check(s.streams(1), 'a pause in typing asks', s.text())
s.tick()
check(s.shows('tail: t0'), 'ghost text stands at the cursor', s.text())
s.tick()
check(s.shows('tail: t0 t1'), 'and grows as it is made', s.text())
s.capture('ghost text, while it is made')
s.type('t')
check(s.shows('tail: t0 t1') and s.streams(1), 'what is typed as it says goes on', s.text())
s.type('X')
check(s.shows('tail: tX') and s.shows('t0 t1', true), 'another key is typed, and dismisses it', s.text())
check(s.streams(1), 'the keystroke has cancelled it, and asks anew', vim.inspect(s.rpc('streams.list', {})))
s.type('\27')
check(s.streams(0), 'so does leaving insert mode, and asks no more', vim.inspect(s.rpc('streams.list', {})))

s.type('ccn=4 two: ')
check(s.shows('two: t0 t1 t2 t3'), 'a whole suggestion', s.text())
s.type('\27w')
check(s.shows('two: t0 t1'), 'a word of it is taken, the rest stays', s.text())
s.capture('a word taken')
s.type('\t')
s.type('\27:w\r')
check(vim.wait(120000, function() return vim.loop.fs_stat(file) ~= nil end, 5), 'the file is written', s.text())
check(vim.wait(120000, function() return vim.fn.readfile(file)[1] == 'n=4 two: t0 t1 t2 t3 ' end, 5),
  'with all that was accepted, and no more', vim.fn.readfile(file)[1])

s.type('on=2 three: ')
check(s.shows('three: t0 t1'), 'on another line', s.text())
s.type('\29') -- Ctrl+]
check(s.shows('three: t0', true), 'it can be dismissed', s.text())
s.type('\27:HearthChat talk\r')
check(s.shows('## You'), 'a chat opens in a buffer', s.text())
s.type('ihello n=2\27\r')
check(s.shows('## fake') and s.shows('t0 t1'), 'the answer streams in under the model\'s name', s.text())
check(vim.wait(120000, function() return select(2, s.text():gsub('## You', '')) == 2 end, 5), 'and the next turn begins', s.text())
s.capture('a chat in a buffer')
check(vim.wait(120000, function() return #s.rpc('sessions.list', {}).sessions == 1 end, 5)
  and s.rpc('sessions.show', { session = 'talk' }).turns[1].text == 'hello n=2', 'it is a session', s.text())
s.type('Gothink=2 n=4\27\r')
check(vim.wait(120000, function() return s.text():match('think=2.*## fake\n%s*t0 t1 *\n *\n *t2 t3.*## You') end, 5),
  'what is thought stands above the answer', s.text())
s.type('Gohang\27\r')
check(s.streams(1) and vim.wait(120000, function() return s.text():match('hang.*## fake') end, 5), 'another message', s.text())
s.type('\3') -- Ctrl+C
check(s.streams(0) and vim.wait(120000, function() return s.text():match('hang.*## You') end, 5),
  'an answer can be stopped', s.text())
s.type('Gohang again\27\r')
check(s.streams(1) and vim.wait(120000, function() return s.text():match('hang again.*## fake') end, 5), 'and one more', s.text())
s.restart()
check(vim.wait(120000, function() return s.text():match('has ended.*## You') end, 5),
  'the end of the connection ends the answer', s.text())
s.type('\27:bdelete\r:HearthChat other\r')
s.type('ihello n=6\27\r')
check(s.shows('t4 t5'), 'and the next daemon is asked', s.text())
s.done()
