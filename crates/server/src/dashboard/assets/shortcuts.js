// Keyboard shortcuts of all pages, and the dialog that lists them. None applies while the user types or a dialog is open.

import { h } from './dom.js';

/** Time in which the second key of a pair such as `g j` must follow. */
const PAIR_MS = 1500;

/** Keys of single parts of a page, which handle them themselves. */
const ELSEWHERE = [
  ['Curves', [['← →', 'next value'], ['PgUp PgDn', 'further'], ['Home End', 'first and last value']]],
  ['Log', [['Home End', 'start and end'], ['n N', 'next, previous hit']]],
  ['Search', [['↑ ↓', 'select'], ['Enter', 'open'], ['Esc', 'close']]],
];

/** Key after `g` that opens a page: the first letter of its title. */
const keyOf = (page) => page.title[0].toLowerCase();

/** Handles the keys. `pages` are those of the navigation bar, `go(path)` navigates, `isActive()` tells whether somebody is logged in. */
export function handleShortcuts({ pages, go, openSearch, isActive }) {
  let pairUntil = 0;
  addEventListener('keydown', (event) => {
    const isTyping = event.target.closest?.('input, textarea, select, [contenteditable]');
    const isSearch = event.key === 'k' && (event.ctrlKey || event.metaKey);
    const hasModifier = event.ctrlKey || event.metaKey || event.altKey;
    if (event.defaultPrevented || !isActive() || document.querySelector('dialog[open]')) return;
    if (!isSearch && (isTyping || hasModifier)) return;
    const isPair = performance.now() < pairUntil;
    pairUntil = 0;
    const page = isPair && pages.find((one) => keyOf(one) === event.key);
    if (page) go(page.path);
    else if (isSearch || event.key === '/') openSearch();
    else if (event.key === '?') showShortcuts(pages);
    else if (event.key === 'g') { pairUntil = performance.now() + PAIR_MS; return; } else return;
    event.preventDefault();
  });
}

/** Opens the list of all shortcuts. */
export function showShortcuts(pages) {
  const everywhere = [['/', 'search'], ['?', 'this list'], ...pages.map((page) => [`g ${keyOf(page)}`, page.title])];
  const rows = (keys) => h('dl', null, keys.map(([key, meaning]) => h('div', null,
    h('dt', null, key.split(' ').map((one) => h('kbd', null, one))), h('dd', null, meaning))));
  const dialog = h('dialog', { class: 'shortcuts', 'aria-label': 'Keyboard shortcuts', onclose: () => dialog.remove(),
    onclick: (event) => { if (event.target === dialog) dialog.close(); } },
  h('form', { method: 'dialog' }, h('h2', null, 'Keyboard shortcuts'), rows(everywhere),
    ELSEWHERE.map(([title, keys]) => [h('h3', null, title), rows(keys)]),
    h('div', { class: 'actions' }, h('a', { class: 'button', href: '/docs/users/watching.html#dashboard' }, 'Documentation'),
      h('button', { autofocus: true }, 'Close'))));
  document.body.append(dialog);
  dialog.showModal();
}
