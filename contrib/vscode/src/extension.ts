/* extension.ts - VS Code's inline completions by hearthd. The editor draws the ghost text and takes it by word, line or
 * whole (its own commands); it cancels what is not wanted any more, and so does this. */
import { spawn } from 'node:child_process';
import * as vscode from 'vscode';
import { File, Hearth, head, tail } from './core';

let hearth: Promise<Hearth> | undefined;
let said = '';

/* The `hearth` command starts a daemon where none answers. */
function start(): Promise<void> {
  return new Promise((done, failed) => {
    const child = spawn('hearth', ['status'], { stdio: 'ignore' });
    child.once('error', failed);
    child.once('exit', code => code === 0 ? done() : failed(new Error('no daemon answers, and `hearth status` starts none')));
  });
}

function connection(): Promise<Hearth> {
  hearth ??= Hearth.open().catch(() => start().then(() => Hearth.open())).then(h => {
    h.closed.then(() => { hearth = undefined; });
    return h;
  });
  hearth.catch(() => { hearth = undefined; });
  return hearth;
}

/* Once for each thing that is wrong, and not at each keystroke. */
function say(why: string): void {
  if (why !== said) vscode.window.showWarningMessage(`hearth: ${why}`);
  said = why;
}

function around(d: vscode.TextDocument, at: vscode.Position, before: number, after: number): [string, string] {
  const from = new vscode.Position(Math.max(at.line - before, 0), 0);
  const to = d.lineAt(Math.min(at.line + after, d.lineCount - 1)).range.end;
  return [tail(d.getText(new vscode.Range(from, at)), before), head(d.getText(new vscode.Range(at, to)), after)];
}

/* Parts of other open files, ordered by name: a list that stays is KV that stays. */
function otherFiles(d: vscode.TextDocument, files: number, lines: number): File[] {
  return vscode.workspace.textDocuments
    .filter(o => o !== d && o.uri.scheme === 'file')
    .sort((a, b) => a.fileName < b.fileName ? -1 : 1)
    .slice(0, files)
    .map(o => ({ name: vscode.workspace.asRelativePath(o.uri), text: around(o, new vscode.Position(0, 0), 0, lines)[1] + '\n' }));
}

async function provide(d: vscode.TextDocument, at: vscode.Position, _context: vscode.InlineCompletionContext,
                       token: vscode.CancellationToken): Promise<vscode.InlineCompletionItem[]> {
  const c = vscode.workspace.getConfiguration('hearth');
  await new Promise(done => setTimeout(done, c.get<number>('delay')));
  if (token.isCancellationRequested) return [];
  const abort = new AbortController();
  const unwanted = token.onCancellationRequested(() => abort.abort());
  try {
    const h = await connection();
    if (token.isCancellationRequested) return [];
    const model = c.get<string>('model') || (await h.call('models.list')).default_model;
    const [prefix, suffix] = around(d, at, c.get<number>('prefixLines')!, c.get<number>('suffixLines')!);
    const extra = otherFiles(d, c.get<number>('extraFiles')!, c.get<number>('extraLines')!);
    const r = await h.fill({
      model, prefix, suffix, max_tokens: c.get<number>('maxTokens'), sampling: { temperature: 0 },
      ...(extra.length ? { extra, file: vscode.workspace.asRelativePath(d.uri) } : {}),
    }, abort.signal);
    said = '';
    return r.text ? [new vscode.InlineCompletionItem(r.text, new vscode.Range(at, at))] : [];
  } catch (e) {
    say((e as Error).message);
    return [];
  } finally {
    unwanted.dispose();
  }
}

export function activate(context: vscode.ExtensionContext): void {
  context.subscriptions.push(
    vscode.languages.registerInlineCompletionItemProvider({ pattern: '**' }, { provideInlineCompletionItems: provide }));
}

export function deactivate(): void {
  hearth?.then(h => h.close(), () => undefined);
}
