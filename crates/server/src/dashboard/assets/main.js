// Application shell: routes addresses to pages, shows the user and the connection state, and redirects to the login. A page is a
// module with `show(root, params, context)`, which returns a function that ends it.

import { api, session, subscription, onUnauthorized } from './api.js';
import { h, put, mark, text } from './dom.js';
import { clearLinks } from './share-client.js';
import { live } from './event-stream.js';
import { failure } from './components.js';
import { resolveWorkspace } from './routes.js';
import { forgetAll, startNotifications } from './notifications.js';
import { search } from './search.js';
import { handleShortcuts, showShortcuts } from './shortcuts.js';

/** Path, title in the navigation bar, module. `:ws` becomes `params.workspace`, the id of the workspace. */
const PAGES = [
  { path: '/ui/', title: 'Overview', load: () => import('./pages/overview.js') },
  { path: '/ui/jobs', title: 'Jobs', load: () => import('./pages/jobs.js') },
  { path: '/ui/experiments', title: 'Experiments', load: () => import('./pages/experiments.js') },
  { path: '/ui/clusters', title: 'Clusters', load: () => import('./pages/clusters.js') },
  { path: '/ui/nodes/:ws/:cluster/:node', load: () => import('./pages/node.js') },
  { path: '/ui/nodes', title: 'Nodes', load: () => import('./pages/nodes.js') },
  { path: '/ui/submit', load: () => import('./pages/submit.js') },
  { path: '/ui/clusters/:ws/:cluster', load: () => import('./pages/cluster.js') },
  { path: '/ui/jobs/:ws/:experiment/:name', load: () => import('./pages/job.js') },
  { path: '/ui/experiments/:ws/:experiment', load: () => import('./pages/experiment.js') },
  { path: '/ui/shares/*', title: 'Shares', load: () => import('./pages/shares.js') },
  { path: '/ui/usage', title: 'Usage', load: () => import('./pages/usage.js') },
  { path: '/ui/login', load: () => import('./pages/login.js'), open: true },
];

const root = document.getElementById('main');
let endPage = () => {};
let navigation = 0;

/** Passed to every page. */
const context = {
  /** Navigates to another page. */
  go(path, { replace = false } = {}) {
    history[replace ? 'replaceState' : 'pushState'](null, '', path);
    return open();
  },
  /** Sets the window title. */
  title(title) { document.title = title ? `${title} · Corro` : 'Corro'; },
  begin(token) { session.begin(token); },
};

function matchPage(path) {
  for (const page of PAGES) {
    const pattern = page.path.split('/').slice(2);
    const segments = path.split('/').slice(2);
    const params = {};
    const matches = pattern.every((part, at) => {
      if (part === '*') { params.path = segments.slice(at).map(decode).join('/'); return true; }
      if (!part.startsWith(':')) return part === (segments[at] ?? '');
      if (!segments[at]) return part.endsWith('?');
      params[part.slice(1).replace('?', '')] = decode(segments[at]);
      return true;
    });
    if (matches && (pattern.at(-1) === '*' || segments.length <= pattern.length)) return { page, params };
  }
  return null;
}

function decode(segment) {
  try { return decodeURIComponent(segment); } catch { return segment; }
}

async function open() {
  const ticket = ++navigation;
  readTokenFromFragment();
  const match = matchPage(location.pathname.replace(/^(\/ui\/.*?)\/+$/, '$1'));
  if (!match?.page.open && !session.token) {
    return context.go(`/ui/login?to=${encodeURIComponent(location.pathname + location.search)}`, { replace: true });
  }
  endCurrentPage();
  drawBar(match?.page);
  if (!match) {
    context.title('Not found');
    return put(root, failure(new Error(`There is no page at ${location.pathname}.`)));
  }
  try {
    if (!match.page.open) { live.begin(); await subscription(); }
    if (match.params.ws) match.params.workspace = await resolveWorkspace(match.params.ws);
    const module = await match.page.load();
    if (ticket !== navigation) return;
    context.title(match.page.title);
    const container = h('div', { class: 'page' });
    put(root, container);
    const end = await module.show(container, match.params, context);
    if (ticket === navigation) endPage = end ?? (() => {});
    else end?.();
  } catch (error) {
    if (ticket !== navigation || error.status === 401) return;
    put(root, failure(error));
    // The server is unreachable: retry.
    if (error.status === 0) setTimeout(() => { if (ticket === navigation) open(); }, 1000);
  }
}

function endCurrentPage() {
  const end = endPage;
  endPage = () => {};
  try { end(); } catch (error) { console.error(error); }
}

/** `corro dashboard` prints a link with a token in the fragment, which is never sent to a server. */
function readTokenFromFragment() {
  const token = new URLSearchParams(location.hash.slice(1)).get('token');
  if (!token) return;
  session.begin(token);
  history.replaceState(null, '', location.pathname + location.search);
}

function logOut() {
  session.end();
  forgetAll();
  clearLinks();
  live.end();
  context.go('/ui/login');
}

// Navigation bar

const navLinks = document.querySelector('.places');
const tools = document.querySelector('.tools');
const linkState = h('span', { class: 'link-state', role: 'status' });
live.watch((state) => {
  mark(linkState, 'data-state', state);
  text(linkState, state === 'reconnecting' ? 'reconnecting' : 'live');
});

/** Pages of the navigation bar, with the addresses that they start at. */
const LISTED_PAGES = PAGES.filter((page) => page.title).map((page) => ({ title: page.title, path: page.path.replace(/\/[:*].*$/, '') }));

function drawBar(page) {
  const isLoggedIn = Boolean(session.token) && !page?.open;
  const isInside = (path) => page && (page.path === path || (path !== '/ui/' && page.path.startsWith(`${path}/`)));
  put(navLinks, isLoggedIn && LISTED_PAGES.map(({ title, path }) => h('a', { href: path, 'aria-current': isInside(path) ? 'page' : null }, title)));
  put(tools, isLoggedIn && [
    linkState,
    h('button', { type: 'button', class: 'searcher', onclick: openSearch, 'aria-keyshortcuts': '/' }, 'Search', h('kbd', {}, '/')),
    h('a', { href: '/docs/' }, 'Docs'),
    h('button', { type: 'button', class: 'quiet', id: 'help', 'aria-label': 'Keyboard shortcuts', title: 'Keyboard shortcuts', 'aria-keyshortcuts': '?',
      onclick: () => showShortcuts(LISTED_PAGES) }, '?'),
    h('button', { type: 'button', class: 'quiet', onclick: cycleTheme, title: 'Theme: light, dark, or as the system' }, themeName()),
    h('span', { class: 'login-id', title: session.appId }, session.name ?? ''),
    h('button', { type: 'button', class: 'quiet', id: 'log-out', onclick: logOut }, 'Log out'),
  ]);
  if (isLoggedIn && session.name === null) showLoginName();
}

/** Asks for the name of the principal once per login. */
async function showLoginName() {
  const { token } = session;
  try {
    const { displayName } = await api.get('~/providers/Corro/caller');
    if (token !== session.token) return;
    session.name = displayName;
    text(tools.querySelector('.login-id') ?? h('span'), displayName);
  } catch { /* the name is shown by the next page */ }
}

const goTo = (path) => context.go(path).then(() => root.focus({ preventScroll: true }));
const openSearch = () => search(goTo, LISTED_PAGES);
startNotifications(goTo);
handleShortcuts({ pages: LISTED_PAGES, go: goTo, openSearch, isActive: () => Boolean(session.token) });

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
  const isPlainClick = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!link || !isPlainClick || event.defaultPrevented || link.target || link.hasAttribute('download')) return;
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
