-- emacs.lua - Emacs with contrib/emacs, as somebody who types sees it. Run by emacs.sh with hearthd and the fake engine,
-- which makes "t0 t1 ... " of what the prefix asks for.
local s = require('screen')
local check = s.check
local source, file = vim.env.top_srcdir .. '/contrib/emacs/hearth.el', vim.env.DIR .. '/a.txt'
local compiled = vim.fn.system({ 'emacs', '--batch', '-Q', '--eval', ([[(setq byte-compile-error-on-warn t
  byte-compile-dest-file-function (lambda (_) "%s/hearth.elc"))]]):format(vim.env.DIR), '-f', 'batch-byte-compile', source })
check(vim.v.shell_error == 0, 'it compiles without a warning', compiled)

-- Numbers and texts there and back, by the file's own codec and by Neovim's.
local values = [=[[0 127 128 -1 -32 -33 65536 4294967296 1.5 -0.25 0.0 "Gr\u00fc\u00dfe" "" ["a" t :false nil] (("k" . 1) ("l" . ["x"]))]]=]
local packed = vim.fn.system({ 'emacs', '--batch', '-Q', '-l', source, '--eval', ([[
  (let* ((v %s) (packed (hearth--pack v)) (hearth--in packed) (hearth--at 0) (again (hearth--unpack)))
    (unless (equal (hearth--pack again) packed) (error "not the same: %%S" again))
    (princ (base64-encode-string packed t)))]]):format(values) })
check(vim.v.shell_error == 0, 'its MessagePack reads what it writes', packed)
local by_python = vim.fn.system({ 'python3', '-c', [[
import base64, sys
try:
    import msgpack
except ImportError:
    print("absent"); sys.exit()
v = msgpack.unpackb(base64.b64decode(sys.argv[1]), raw=False)
want = [0, 127, 128, -1, -32, -33, 65536, 4294967296, 1.5, -0.25, 0.0, "Gr\u00fc\u00dfe", "", ["a", True, False, None], {"k": 1, "l": ["x"]}]
print("same" if v == want else v)]], (packed:gsub('%s', '')) })
if by_python:find('^absent') then
  s.skip('and so does another reader', 'python3 has no msgpack')
else
  check(by_python:find('^same'), 'and so does another reader', by_python)
end

vim.fn.writefile({ ('\195\159'):rep(5000000) }, vim.env.DIR .. '/long')
s.start({ 'emacs', '-nw', '-Q', '-l', source, '--eval',
  [[(progn (setq hearth-delay 0.02 make-backup-files nil inhibit-startup-screen t) (global-set-key (kbd "<f5>") #'hearth-chat))]],
  '--eval', ('(find-file-noselect "%s/long" t)'):format(vim.env.DIR), file, '-f', 'hearth-mode' })
check(s.shows('a.txt'), 'the editor opens', s.text())

s.type('gate n=3 tail: ')
check(s.shows('tail:') and s.streams(1), 'a pause in typing asks', s.text())
s.tick()
check(s.shows('tail: t0'), 'ghost text stands at the cursor', s.text())
s.tick()
check(s.shows('tail: t0 t1'), 'and grows as it is made', s.text())
s.capture('ghost text in Emacs, while it is made')
s.type('t')
check(s.shows('tail: t0 t1') and s.streams(1), 'what is typed as it says goes on', s.text())
s.type('X')
check(s.shows('tail: tX') and s.shows('t0 t1', true), 'another key is typed, and dismisses it', s.text())
check(s.streams(1), 'the keystroke has cancelled it, and asks anew', vim.inspect(s.rpc('streams.list', {})))
s.type('\1\11') -- C-a C-k
check(s.shows('tail: tX', true), 'the line is taken away', s.text())
s.type('n=4 two: ')
check(s.shows('two: t0 t1 t2 t3'), 'a whole suggestion', s.text())
s.type('\27f')
check(s.shows('two: t0 t1'), 'a word of it is taken, the rest stays', s.text())
s.capture('a word taken')
s.type('\t')
s.type('\24\19') -- C-x C-s
check(vim.wait(120000, function() return vim.loop.fs_stat(file) ~= nil and vim.fn.readfile(file)[1] == 'n=4 two: t0 t1 t2 t3 ' end, 5),
  'the file has all that was accepted, and no more', vim.loop.fs_stat(file) and vim.fn.readfile(file)[1] or s.text())

s.type('\24bnotes\r') -- another buffer, which is no file's
s.type('\27:(hearth-mode)\r')
s.type('n=2 three: ')
check(s.shows('three: t0 t1'), 'in another buffer', s.text())
s.type('\7') -- C-g
check(s.shows('three: t0', true), 'it can be dismissed', s.text())

s.type('\27xhearth-chat\rtalk\r')
check(s.shows('## You'), 'a chat opens in a buffer', s.text())
s.type('hello n=2')
check(s.shows('hello n=2'), 'a message is written', s.text())
s.type('\3\3') -- C-c C-c
check(s.shows('## fake') and s.shows('t0 t1'), 'the answer streams in under the model\'s name', s.text())
check(vim.wait(120000, function() return s.text():match('t0 t1.*## You') end, 5), 'and the next turn begins', s.text())
s.capture('a chat in a buffer')
check(vim.wait(120000, function() return #s.rpc('sessions.list', {}).sessions == 1 end, 5)
  and s.rpc('sessions.show', { session = 'talk' }).turns[1].text == 'hello n=2', 'it is a session', s.text())
s.type('think=2 n=4')
check(s.shows('think=2 n=4'), 'a message to think about', s.text())
s.type('\3\3')
check(vim.wait(120000, function() return s.text():match('## fake\n%s*t0 t1 *\n *\n *t2 t3.*## You') end, 5),
  'what is thought stands above the answer', s.text())
s.type('hang')
check(s.shows('hang'), 'another message', s.text())
s.type('\3\3')
check(s.streams(1), 'is sent', s.text())
s.type('\3\11') -- C-c C-k
check(s.streams(0) and vim.wait(120000, function() return s.text():match('hang.*## You') end, 5),
  'an answer can be stopped', s.text())
s.type('hang again')
check(s.shows('hang again'), 'one more message', s.text())
s.type('\3\3')
check(s.streams(1) and vim.wait(120000, function() return s.text():match('hang again.*## fake') end, 5), 'is sent', s.text())
s.restart()
check(vim.wait(120000, function() return s.text():match('has ended.*## You') end, 5),
  'the end of the connection ends the answer', s.text())
s.type('\27xhearth-chat\rother\r')
s.type('hello n=6')
check(s.shows('hello n=6'), 'another chat', s.text())
s.type('\3\3')
check(s.shows('t4 t5'), 'and the next daemon is asked', s.text())
s.done()
