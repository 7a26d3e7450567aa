// Client of the server's event stream, shared by all pages. Reconnects by itself; after a gap listeners get a `resync` event. If the
// server has no stream, listeners get `resync` once a second. A hidden page closes its stream: browsers allow six connections per
// server for all tabs, including pages in the back-forward cache.

import { session } from './api.js';

const listeners = new Set();
const watchers = new Set();
const RETRY_DELAYS_MS = [200, 500, 1000, 2000, 3000];

let enabled = false;
let connection = null;
let lastEventId = null;
let interrupted = false;
let state = 'connecting';

export const live = {
  /** Calls `listener(event)` for every event of `model::events`: `{kind, change, resource, resourceId, name, state,
   * cluster, …}`, or kind `resync` or `missed` when anything may have changed.
   * Returns a function that unsubscribes. */
  on(listener) {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },

  /** Calls `watcher('live' | 'reconnecting')` now and on every change. */
  watch(watcher) {
    watchers.add(watcher);
    watcher(state);
    return () => watchers.delete(watcher);
  },

  begin() {
    enabled = true;
    resume();
  },

  end() {
    enabled = false;
    suspend();
    [lastEventId, interrupted] = [null, false];
  },
};

function resume() {
  if (connection || !enabled) return;
  if (document.hidden) { interrupted = true; return; }
  connection = new AbortController();
  stream(connection.signal);
}

function suspend() {
  connection?.abort();
  connection = null;
  interrupted = true;
}

document.addEventListener('visibilitychange', () => (document.hidden ? suspend() : resume()));
window.addEventListener('pagehide', suspend);
window.addEventListener('pageshow', resume);

/** Calls `refresh` soon after an event, never concurrently, and again if more events arrived meanwhile. `isRelevant(event)` filters
 * events. Returns a function that unsubscribes. */
export function refreshOn(isRelevant, refresh, delayMs = 150) {
  let timer = null, busy = false, again = false, ended = false;
  const run = async () => {
    timer = null;
    busy = true;
    try { await refresh(); } finally {
      busy = false;
      if (again && !ended) { again = false; timer = setTimeout(run, delayMs); }
    }
  };
  const unsubscribe = live.on((event) => {
    if (event.kind !== 'resync' && event.kind !== 'missed' && !isRelevant(event)) return;
    if (busy) again = true;
    else timer ??= setTimeout(run, delayMs);
  });
  return () => { ended = true; clearTimeout(timer); unsubscribe(); };
}

function dispatch(event) {
  for (const listener of [...listeners]) {
    try { listener(event); } catch (error) { console.error(error); }
  }
}

function setState(next) {
  if (state === next) return;
  state = next;
  for (const watcher of [...watchers]) watcher(next);
}

async function stream(signal) {
  let attempts = 0;
  while (!signal.aborted && session.token) {
    try {
      const headers = { Authorization: `Bearer ${session.token}`, Accept: 'text/event-stream' };
      if (lastEventId !== null) headers['Last-Event-ID'] = lastEventId;
      const response = await fetch('/events', { headers, signal, cache: 'no-store' });
      const isStream = response.headers.get('content-type')?.startsWith('text/event-stream');
      if (response.status === 401) { dispatch({ kind: 'resync' }); return; }
      if (!isStream) { await poll(signal); return; }
      setState('live');
      if (interrupted) dispatch({ kind: 'resync' });
      interrupted = false;
      attempts = 0;
      await read(response.body, signal);
    } catch (error) {
      if (signal.aborted) return;
    }
    interrupted = true;
    setState('reconnecting');
    await sleep(RETRY_DELAYS_MS[Math.min(attempts++, RETRY_DELAYS_MS.length - 1)], signal);
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
    for (const block of blocks) parseBlock(block);
  }
}

function parseBlock(block) {
  const data = [];
  for (const line of block.split('\n')) {
    if (line.startsWith('data:')) data.push(line.slice(5).trimStart());
    if (line.startsWith('id:')) lastEventId = line.slice(3).trim();
  }
  if (!data.length) return;
  try { dispatch(JSON.parse(data.join('\n'))); } catch { /* truncated block at the end of a connection */ }
}

/** Fallback for servers without a stream: `resync` once a second while the page is visible. */
async function poll(signal) {
  while (!signal.aborted && session.token) {
    try {
      const response = await fetch('/ui/assets/icon.svg', { method: 'HEAD', signal, cache: 'no-store' });
      setState(response.ok ? 'live' : 'reconnecting');
      if (!document.hidden) dispatch({ kind: 'resync' });
    } catch { setState('reconnecting'); }
    await sleep(1000, signal);
  }
}

function sleep(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}
