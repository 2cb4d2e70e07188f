/* core.ts - a client of hearthd for an editor: MessagePack-RPC over its socket (libclient/PROTOCOL.md). It knows nothing
 * of the editor, so that a Node program can test it (tests/editors/vscode.mjs). Requests for text are notifications,
 * which stream.end or stream.error answers; a signal that aborts cancels one at once. */
import { decodeMultiStream, encode } from '@msgpack/msgpack';
import { lstatSync } from 'node:fs';
import { Socket, connect } from 'node:net';

export interface File { name: string; text: string }
export interface Fill {
  model?: string; prefix: string; suffix: string; extra?: File[]; file?: string; max_tokens?: number;
  sampling?: Record<string, number>;
}
export interface Result { text: string; finish_reason: string; usage: Record<string, number> }
type Body = Record<string, any>;
interface Waiting { tokens?: (text: string) => void; done: (r: Result) => void; failed: (e: Error) => void }

/** Where a daemon may listen, the first one first (PROTOCOL.md 1). Anybody can make a folder in /tmp: what stands in the
 * editor goes to the socket in it only where it is the user's own, and closed to all others. */
export function socketPaths(env = process.env, uid = process.getuid?.() ?? 0): string[] {
  if (env.HEARTH_SOCKET) return [env.HEARTH_SOCKET];
  const system = '/run/hearth/hearth.sock', tmp = `/tmp/hearth-${uid}`;
  if (env.XDG_RUNTIME_DIR) return [`${env.XDG_RUNTIME_DIR}/hearth/hearth.sock`, system];
  const folder = uid ? lstatSync(tmp, { throwIfNoEntry: false }) : undefined;
  return folder?.isDirectory() && folder.uid === uid && !(folder.mode & 0o77) ? [`${tmp}/hearth.sock`, system] : [system];
}

/* The end, or the beginning, of a text, of at most as many characters as so many lines may have on average. Without a
 * bound a file of one long line, as a program writes it, would not fit into the model's context, nor into a frame. */
const LINE = 128;
export const tail = (text: string, lines: number): string => text.slice(-LINE * (lines + 1)).replace(/^[\udc00-\udfff]/, '');
export const head = (text: string, lines: number): string => text.slice(0, LINE * (lines + 1)).replace(/[\ud800-\udbff]$/, '');

export class Hearth {
  private id = 0;
  private calls = new Map<number, { done: (r: any) => void; failed: (e: Error) => void }>();
  private fills = new Map<string, Waiting>();
  private requestOf = new Map<number, string>(); // of a stream's number
  /** Settles when the connection has ended. */
  readonly closed: Promise<void>;

  private constructor(private socket: Socket) {
    this.closed = this.read().catch(() => undefined).then(() => this.end(new Error('the connection to hearthd has ended')));
  }

  static open(...paths: string[]): Promise<Hearth> {
    const [path, ...others] = paths.length ? paths : socketPaths();
    const opened = Hearth.connect(path);
    return others.length ? opened.catch(() => Hearth.open(...others)) : opened;
  }

  private static connect(path: string): Promise<Hearth> {
    return new Promise((done, failed) => {
      const socket = connect(path);
      socket.once('error', failed);
      socket.once('connect', () => {
        socket.off('error', failed);
        socket.on('error', () => undefined); // the end of the stream says it
        const h = new Hearth(socket);
        h.call('hello', { client: 'hearth for VS Code' }).then(() => done(h), failed);
      });
    });
  }

  close(): void { this.socket.end(); }

  /** A method with an answer; an error's message is "NAME: text". */
  call(method: string, params: Body = {}): Promise<any> {
    const id = ++this.id;
    return new Promise((done, failed) => {
      this.calls.set(id, { done, failed });
      this.socket.write(encode([0, id, method, [params]], { ignoreUndefined: true }));
    });
  }

  /** What stands between prefix and suffix. `tokens` gets the pieces of its text; aborting cancels it, and what there is
   * by then is the result. */
  fill(f: Fill, signal?: AbortSignal, tokens?: (text: string) => void): Promise<Result> {
    /* No event comes for what was aborted before: while the caller waited for the connection, say. */
    if (signal?.aborted) return Promise.resolve({ text: '', finish_reason: 'cancelled', usage: {} });
    const request = `vscode-${process.pid}-${Date.now()}-${++this.id}`;
    return new Promise((done, failed) => {
      this.fills.set(request, { tokens, done, failed });
      this.notify('generate', { ...f, request });
      signal?.addEventListener('abort', () => this.fills.has(request) && this.notify('cancel', { request }), { once: true });
    });
  }

  private notify(method: string, params: Body): void {
    this.socket.write(encode([2, method, [params]], { ignoreUndefined: true }));
  }

  private async read(): Promise<void> {
    for await (const message of decodeMultiStream(this.socket)) this.take(message as any[]);
  }

  private take(m: any[]): void {
    if (m[0] === 1) {
      const call = this.calls.get(m[1]);
      this.calls.delete(m[1]);
      if (m[2]) call?.failed(new Error(m[2][1]));
      else call?.done(m[3]);
    } else if (m[0] === 2) {
      this.event(m[1], m[2][0]);
    }
  }

  private event(name: string, body: Body): void {
    const request: string | undefined = body.request ?? this.requestOf.get(body.stream);
    const fill = request !== undefined ? this.fills.get(request) : undefined;
    if (request === undefined || !fill) return;
    if (name === 'stream.begin') this.requestOf.set(body.stream, request);
    if (name === 'stream.tokens') fill.tokens?.(body.text);
    if (name !== 'stream.end' && name !== 'stream.error') return;
    this.fills.delete(request);
    for (const [stream, of] of this.requestOf) if (of === request) this.requestOf.delete(stream);
    if (name === 'stream.end') fill.done(body as Result);
    else fill.failed(new Error(body.error[1]));
  }

  private end(why: Error): void {
    for (const waiting of [...this.calls.values(), ...this.fills.values()]) waiting.failed(why);
    this.calls.clear();
    this.fills.clear();
  }
}
