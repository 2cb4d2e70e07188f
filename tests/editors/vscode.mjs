// vscode.mjs - the core of contrib/vscode against hearthd with the fake engine, which makes "t0 t1 ... " of what the
// prefix asks for. Run by vscode.sh, which has compiled it.
import fs from 'node:fs';
import { Hearth, head, socketPaths, tail } from './out/core.js';

let n = 0, failed = 0;
function check(ok, name, got) {
  console.log(`${ok ? 'ok' : 'not ok'} ${++n} - ${name}`);
  if (!ok) { failed++; console.log('# got: ' + JSON.stringify(got)); }
}
const error = p => p.then(r => r, e => e.message);

check(process.env.COMPILED === '0', 'it compiles', process.env.COMPILED);
const system = '/run/hearth/hearth.sock', folder = fs.mkdtempSync('/tmp/hearth-'), name = folder.slice(12);
check(`${socketPaths({ HEARTH_SOCKET: '/x' })}` === '/x' &&
  `${socketPaths({ XDG_RUNTIME_DIR: '/run/none' }, 7)}` === `/run/none/hearth/hearth.sock,${system}`, 'the socket is where the protocol says');
check(`${socketPaths({}, name)}` === system, 'a folder in /tmp of another user is not the user\'s');
fs.rmdirSync(folder);
(await Hearth.open('/nonesuch/hearth.sock', process.env.HEARTH_SOCKET)).close();
check(true, 'where no daemon answers, the next one is asked');
const h = await Hearth.open();
const list = await h.call('models.list');
check(list.default_model === 'fake', 'a call is answered', list);

let text = '';
let r = await h.fill({ model: 'fake', prefix: 'n=4 tail', suffix: '' }, undefined, t => { text += t; });
check(r.text === 't0 t1 t2 t3 !' && text === r.text && r.usage.completion_tokens === 4, 'text streams, and is the result\'s', [text, r]);
const both = await Promise.all([h.fill({ model: 'fake', prefix: 'n=1', suffix: '' }), h.fill({ model: 'fake', prefix: 'n=2', suffix: '' })]);
check(both[0].text === 't0 ' && both[1].text === 't0 t1 ', 'two at once are told apart', both);

const abort = new AbortController();
const hanging = h.fill({ model: 'fake', prefix: 'hang', suffix: '' }, abort.signal);
while ((await h.call('streams.list')).streams.length === 0) continue;
abort.abort();
r = await hanging;
check(r.finish_reason === 'cancelled' && r.text === '', 'what is aborted is cancelled', r);
while ((await h.call('streams.list')).streams.length > 0) continue;
check(true, 'and runs no more');

check((await error(h.fill({ model: 'nonesuch', prefix: 'x', suffix: '' }))).startsWith('MODEL_NOT_FOUND: '), 'an error is its text');
check((await error(h.call('nonesuch'))).startsWith('UNKNOWN_METHOD: '), 'of a call, too');
check((await error(h.fill({ model: 'fake', prefix: 'x', suffix: '', max_tokns: 3 }))).includes('is max_tokens meant?'), 'and of a field');

const before = new AbortController();
before.abort();
const unwanted = h.fill({ model: 'fake', prefix: 'hang', suffix: '' }, before.signal);
r = await Promise.race([unwanted, new Promise(done => setTimeout(done, 3000, { finish_reason: 'none' }))]);
check(r.finish_reason === 'cancelled', 'so is what was aborted before it was asked for', r);

const long = 'a' + '\u{1f600}'.repeat(2500000);
r = await h.fill({ model: 'fake', prefix: tail(long + ' n=2', 9), suffix: head(long, 9), extra: [{ name: 'x', text: head(long, 9) }] });
check(r.text === 't0 t1 ' && [...tail(long, 9)].length === 640 && head(long, 9).length === 1279 && tail('ab', 1) === 'ab',
  'of a long line, what is near', r);

const lost = h.fill({ model: 'fake', prefix: 'hang', suffix: '' });
while ((await h.call('streams.list')).streams.length === 0) continue;
h.close();
check((await error(lost)) === 'the connection to hearthd has ended', 'who waits is told of the end', await error(lost));
await h.closed;
check((await error(Hearth.open('/nonesuch/hearth.sock'))).includes('ENOENT'), 'no daemon is an error');
console.log(`1..${n}`);
process.exit(failed ? 1 : 0);
