// What changes, as it changes: one stream of the server's events for all pages. Ends and begins again by itself; after a gap
// everybody is told to look again. Where the server has no stream, everybody is told once a second. A page nobody sees has no
// stream: browsers keep six connections to a server for all tabs together, pages somebody left among them.

import { session } from './api.js';

const listeners = new Set();
const watchers = new Set();
const AGAIN_AFTER = [200, 500, 1000, 2000, 3000];

let wanted = false;
let running = null;
let last = null;
let interrupted = false;
let state = 'connecting';

export const live = {
  /** `tell(event)` for everything that happens, as `model::events` has it: `{kind, change, resource, resourceId, name, state,
   * cluster, …}`; of kind `resync` or `missed` when anything may have changed.
   * Gives back what ends it. */
  on(tell) {
    listeners.add(tell);
    return () => listeners.delete(tell);
  },

  /** `tell('live' | 'reconnecting')` now and whenever that changes. */
  watch(tell) {
    watchers.add(tell);
    tell(state);
    return () => watchers.delete(tell);
  },

  begin() {
    wanted = true;
    goOn();
  },

  end() {
    wanted = false;
    rest();
    [last, interrupted] = [null, false];
  },
};

function goOn() {
  if (running || !wanted) return;
  if (document.hidden) { interrupted = true; return; }
  running = new AbortController();
  stream(running.signal);
}

function rest() {
  running?.abort();
  running = null;
  interrupted = true;
}

document.addEventListener('visibilitychange', () => (document.hidden ? rest() : goOn()));
window.addEventListener('pagehide', rest);
window.addEventListener('pageshow', goOn);

/** Calls `refresh` soon after something happened, never twice at a time, and again if more happened meanwhile. `wanted(event)`
 * says which events count. Gives back what ends it. */
export function refreshOn(wanted, refresh, pause = 150) {
  let timer = null, busy = false, again = false, ended = false;
  const go = async () => {
    timer = null;
    busy = true;
    try { await refresh(); } finally {
      busy = false;
      if (again && !ended) { again = false; timer = setTimeout(go, pause); }
    }
  };
  const off = live.on((event) => {
    if (event.kind !== 'resync' && event.kind !== 'missed' && !wanted(event)) return;
    if (busy) again = true;
    else timer ??= setTimeout(go, pause);
  });
  return () => { ended = true; clearTimeout(timer); off(); };
}

function tell(event) {
  for (const listener of [...listeners]) {
    try { listener(event); } catch (error) { console.error(error); }
  }
}

function become(next) {
  if (state === next) return;
  state = next;
  for (const watcher of [...watchers]) watcher(next);
}

async function stream(signal) {
  let tries = 0;
  while (!signal.aborted && session.token) {
    try {
      const headers = { Authorization: `Bearer ${session.token}`, Accept: 'text/event-stream' };
      if (last !== null) headers['Last-Event-ID'] = last;
      const response = await fetch('/events', { headers, signal, cache: 'no-store' });
      const isStream = response.headers.get('content-type')?.startsWith('text/event-stream');
      if (response.status === 401) { tell({ kind: 'resync' }); return; }
      if (!isStream) { await poll(signal); return; }
      become('live');
      if (interrupted) tell({ kind: 'resync' });
      interrupted = false;
      tries = 0;
      await read(response.body, signal);
    } catch (error) {
      if (signal.aborted) return;
    }
    interrupted = true;
    become('reconnecting');
    await pause(AGAIN_AFTER[Math.min(tries++, AGAIN_AFTER.length - 1)], signal);
  }
}

async function read(body, signal) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done || signal.aborted) return;
    const blocks = (rest + value).replaceAll('\r\n', '\n').split('\n\n');
    rest = blocks.pop();
    for (const block of blocks) take(block);
  }
}

function take(block) {
  const data = [];
  for (const line of block.split('\n')) {
    if (line.startsWith('data:')) data.push(line.slice(5).trimStart());
    if (line.startsWith('id:')) last = line.slice(3).trim();
  }
  if (!data.length) return;
  try { tell(JSON.parse(data.join('\n'))); } catch { /* half a block at the end of a connection */ }
}

/** A server without a stream: everybody looks once a second while the page is in sight. */
async function poll(signal) {
  while (!signal.aborted && session.token) {
    try {
      const answer = await fetch('/ui/assets/icon.svg', { method: 'HEAD', signal, cache: 'no-store' });
      become(answer.ok ? 'live' : 'reconnecting');
      if (!document.hidden) tell({ kind: 'resync' });
    } catch { become('reconnecting'); }
    await pause(1000, signal);
  }
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}
