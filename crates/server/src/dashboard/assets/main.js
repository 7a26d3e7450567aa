// Application shell: routes addresses to pages, shows the user and the connection state, and redirects to the login. A page is a
// module with `show(root, params, context)`, which returns a function that ends it.

import { session, subscription, onUnauthorized } from './api.js';
import { h, put, mark, text } from './dom.js';
import { clearLinks } from './share-client.js';
import { live } from './event-stream.js';
import { failure } from './components.js';
import { resolveWorkspace } from './routes.js';
import { search } from './search.js';

/** Path, title in the navigation bar, module. `:ws` becomes `params.workspace`, the id of the workspace. */
const PAGES = [
  { path: '/ui/', title: 'Overview', load: () => import('./pages/overview.js') },
  { path: '/ui/clusters/:ws/:cluster', load: () => import('./pages/cluster.js') },
  { path: '/ui/jobs/:ws/:experiment/:name', load: () => import('./pages/job.js') },
  { path: '/ui/experiments/:ws/:experiment', load: () => import('./pages/experiment.js') },
  { path: '/ui/shares/*', title: 'Shares', load: () => import('./pages/shares.js') },
  { path: '/ui/usage', title: 'Usage', load: () => import('./pages/usage.js') },
  { path: '/ui/login', load: () => import('./pages/login.js'), open: true },
];

const root = document.getElementById('main');
let leave = () => {};
let turn = 0;

/** Passed to every page. */
const context = {
  /** Navigates to another page. */
  go(path, { replace = false } = {}) {
    history[replace ? 'replaceState' : 'pushState'](null, '', path);
    return open();
  },
  /** Sets the window title. */
  title(words) { document.title = words ? `${words} · Corro` : 'Corro'; },
  begin(token) { session.begin(token); },
};

function find(path) {
  for (const page of PAGES) {
    const wanted = page.path.split('/').slice(2);
    const given = path.split('/').slice(2);
    const params = {};
    const fits = wanted.every((word, at) => {
      if (word === '*') { params.path = given.slice(at).map(decode).join('/'); return true; }
      if (!word.startsWith(':')) return word === (given[at] ?? '');
      if (!given[at]) return word.endsWith('?');
      params[word.slice(1).replace('?', '')] = decode(given[at]);
      return true;
    });
    if (fits && (wanted.at(-1) === '*' || given.length <= wanted.length)) return { page, params };
  }
  return null;
}

function decode(word) {
  try { return decodeURIComponent(word); } catch { return word; }
}

async function open() {
  const mine = ++turn;
  readTokenFromFragment();
  const found = find(location.pathname.replace(/^(\/ui\/.*?)\/+$/, '$1'));
  if (!found?.page.open && !session.token) {
    return context.go(`/ui/login?to=${encodeURIComponent(location.pathname + location.search)}`, { replace: true });
  }
  end();
  drawBar(found?.page);
  if (!found) {
    context.title('Not found');
    return put(root, failure(new Error(`There is no page at ${location.pathname}.`)));
  }
  try {
    if (!found.page.open) { live.begin(); await subscription(); }
    if (found.params.ws) found.params.workspace = await resolveWorkspace(found.params.ws);
    const module = await found.page.load();
    if (mine !== turn) return;
    context.title(found.page.title);
    const place = h('div', { class: 'page' });
    put(root, place);
    const ends = await module.show(place, found.params, context);
    if (mine === turn) leave = ends ?? (() => {});
    else ends?.();
  } catch (error) {
    if (mine !== turn || error.status === 401) return;
    put(root, failure(error));
    // The server is unreachable: retry.
    if (error.status === 0) setTimeout(() => { if (mine === turn) open(); }, 1000);
  }
}

function end() {
  const ends = leave;
  leave = () => {};
  try { ends(); } catch (error) { console.error(error); }
}

/** `corro dashboard` prints a link with a token in the fragment, which is never sent to a server. */
function readTokenFromFragment() {
  const found = new URLSearchParams(location.hash.slice(1)).get('token');
  if (!found) return;
  session.begin(found);
  history.replaceState(null, '', location.pathname + location.search);
}

function logOut() {
  session.end();
  clearLinks();
  live.end();
  context.go('/ui/login');
}

// Navigation bar

const places = document.querySelector('.places');
const tools = document.querySelector('.tools');
const linkState = h('span', { class: 'link-state', role: 'status' });
live.watch((state) => {
  mark(linkState, 'data-state', state);
  text(linkState, state === 'reconnecting' ? 'reconnecting' : 'live');
});

function drawBar(page) {
  const inside = Boolean(session.token) && !page?.open;
  const shown = PAGES.filter((one) => one.title);
  put(places, inside && shown.map((one) => h('a', {
    href: one.path.replace(/\/[:*].*$/, ''), 'aria-current': one === page ? 'page' : null,
  }, one.title)));
  put(tools, inside && [
    linkState,
    h('button', { type: 'button', class: 'searcher', onclick: openSearch, 'aria-keyshortcuts': '/' }, 'Search', h('kbd', {}, '/')),
    h('a', { href: '/docs/' }, 'Docs'),
    h('button', { type: 'button', class: 'quiet', onclick: cycleTheme, title: 'Theme: light, dark, or as the system' }, themeName()),
    h('span', { class: 'who', title: session.who }, session.who),
    h('button', { type: 'button', class: 'quiet', id: 'log-out', onclick: logOut }, 'Log out'),
  ]);
}

function openSearch() {
  const pages = PAGES.filter((page) => page.title).map(({ title, path }) => ({ title, path: path.replace(/\/[:*].*$/, '') }));
  search((path) => context.go(path).then(() => root.focus({ preventScroll: true })), pages);
}

/** Shortcut for the search, unless the user is typing. */
addEventListener('keydown', (event) => {
  const writes = event.target.closest?.('input, textarea, select, [contenteditable]');
  const asked = (event.key === '/' && !writes) || (event.key === 'k' && (event.ctrlKey || event.metaKey));
  if (!asked || event.altKey || !session.token || document.querySelector('dialog[open]')) return;
  event.preventDefault();
  openSearch();
});

const THEMES = ['auto', 'light', 'dark'];
const theme = () => localStorage.getItem('corro.theme') ?? 'auto';
const themeName = () => ({ auto: 'Auto', light: 'Light', dark: 'Dark' })[theme()] ?? 'Auto';

function applyTheme() {
  mark(document.documentElement, 'data-theme', theme() === 'auto' ? null : theme());
}

function cycleTheme(event) {
  localStorage.setItem('corro.theme', THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);
  applyTheme();
  text(event.currentTarget, themeName());
}

// Links between pages navigate without reloading.
document.addEventListener('click', (event) => {
  const link = event.target.closest?.('a[href^="/ui/"]');
  const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!link || !plain || event.defaultPrevented || link.target || link.hasAttribute('download')) return;
  event.preventDefault();
  context.go(link.getAttribute('href')).then(() => { root.focus({ preventScroll: true }); scrollTo(0, 0); });
});
addEventListener('popstate', open);
addEventListener('hashchange', open);
onUnauthorized(() => {
  if (!session.token || location.pathname === '/ui/login') return;
  session.end();
  clearLinks();
  live.end();
  context.go(`/ui/login?expired&to=${encodeURIComponent(location.pathname + location.search)}`, { replace: true });
});
applyTheme();
open();
