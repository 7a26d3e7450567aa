// What pages are made of: states, times, sizes, tables, notes, dialogs. Knows nothing of any page.

import { h, put, text, mark, keyed } from './dom.js';

/** A state with its colour and its shape. */
export function state(name, label) {
  return setState(h('span', { class: 'state' }), name, label);
}

export function setState(element, name, label) {
  mark(element, 'data-state', name);
  return text(element, label ?? name);
}

// Times

const ticking = new Set();

/** How long ago `time` was, and goes on being. */
export function ago(time) {
  return setAgo(h('time', {}), time);
}

export function setAgo(element, time) {
  return follow(element, time, (ms) => (ms < 5000 ? 'just now' : `${rough(ms)} ago`));
}

/** How long it lasted from `start` to `end`, or has lasted until now. */
export function lasting(start, end) {
  return setLasting(h('time', {}), start, end);
}

export function setLasting(element, start, end) {
  if (!start || end) {
    ticking.delete(element);
    return text(element, start ? short(new Date(end) - new Date(start)) : '');
  }
  return follow(element, start, short);
}

function follow(element, time, words) {
  element.corroTime = time ? { at: Date.parse(time), words } : null;
  if (time) {
    mark(element, 'datetime', time);
    mark(element, 'title', clock(time));
    ticking.add(element);
  } else ticking.delete(element);
  tick(element);
  return element;
}

function tick(element) {
  const { at, words } = element.corroTime ?? {};
  text(element, words ? words(Math.max(0, Date.now() - at)) : '');
}

setInterval(() => {
  if (document.hidden) return;
  for (const element of ticking) {
    if (element.isConnected) { tick(element); element.corroShown = true; }
    else if (element.corroShown) ticking.delete(element);
  }
}, 1000);

/** Two units at most: `4.2 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`. */
export function short(ms) {
  const s = ms / 1000;
  if (s < 10) return `${Math.max(0, s).toFixed(1)} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  const pair = (big, one, small, two) => `${Math.floor(big)} ${one}${small >= 1 ? ` ${Math.floor(small)} ${two}` : ''}`;
  if (s < 3600) return pair(s / 60, 'min', s % 60, 's');
  if (s < 86400) return pair(s / 3600, 'h', (s % 3600) / 60, 'min');
  return pair(s / 86400, 'd', (s % 86400) / 3600, 'h');
}

/** One unit: `36 s`, `27 min`, `5 h`, `3 d`. */
function rough(ms) {
  const s = ms / 1000;
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  return s < 86400 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`;
}

/** A moment as the reader's own clock has it. */
export function clock(time) {
  return new Date(time).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
}

export function bytes(n) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let at = 0;
  while (n >= 1000 && at < units.length - 1) { n /= 1000; at += 1; }
  return `${at && n < 100 ? n.toFixed(1) : Math.round(n)} ${units[at]}`;
}

export const plural = (n, one, many = `${one}s`) => `${n.toLocaleString()} ${n === 1 ? one : many}`;

/** With a capital letter and a full stop. */
export function sentence(words) {
  return words[0].toUpperCase() + words.slice(1) + (/[.!?]$/.test(words) ? '' : '.');
}

// Tables

/** A table. Each column: `title`, `width` (of a grid), `make(row)` or `fill(cell, row)`, and optionally `sort(row)`, `number`,
 * `wrap`, `wide` (a line of its own on a phone), `label` (told before the value there). `key(row)` tells rows apart.
 * Gives `{element, set(rows)}`: setting keeps rows that are there. */
export function table({ columns, key, label, empty = 'Nothing here.', sorted = null, descending = false }) {
  const titles = h('div', { class: 'row titles', role: 'row' });
  const body = h('div', { class: 'rows', role: 'rowgroup' });
  const none = h('div', { class: 'empty', hidden: true }, empty);
  const element = h('div', { class: 'table', role: 'table', 'aria-label': label },
    h('div', { role: 'rowgroup' }, titles), body, none);
  element.style.setProperty('--cols', columns.map((column) => column.width ?? 'minmax(0, 1fr)').join(' '));
  const order = { column: columns.find((column) => column.title === sorted) ?? null, descending };
  let rows = [];

  columns.forEach((column) => {
    const kind = `cell${column.number ? ' number' : ''}`;
    const title = h('div', { class: kind, role: 'columnheader', title: column.title });
    if (column.sort) {
      title.append(h('button', { type: 'button', onclick: () => {
        if (order.column === column) order.descending = !order.descending;
        else Object.assign(order, { column, descending: Boolean(column.number) });
        draw();
      } }, column.title));
    } else text(title, column.title);
    column.titleElement = title;
    titles.append(title);
  });

  const make = (row) => {
    const cells = columns.map((column) => {
      const kind = ['cell', column.number && 'number', column.wrap && 'wrap', column.wide && 'wide'].filter(Boolean);
      const cell = h('div', { class: kind.join(' '), role: 'cell', 'data-title': column.label });
      if (column.make) put(cell, column.make(row));
      return cell;
    });
    return h('div', { class: 'row', role: 'row' }, cells);
  };
  const update = (line, row) => {
    columns.forEach((column, at) => column.fill?.(line.children[at], row));
  };
  const draw = () => {
    const { column } = order;
    let shown = rows;
    if (column) {
      const sign = order.descending ? -1 : 1;
      shown = [...rows].sort((a, b) => compare(column.sort(a), column.sort(b), sign));
    }
    columns.forEach((one) => {
      const now = one === column ? (order.descending ? 'descending' : 'ascending') : null;
      mark(one.titleElement, 'aria-sort', now);
    });
    keyed(body, shown, key, make, update);
    mark(none, 'hidden', rows.length ? '' : null);
    mark(titles, 'hidden', rows.length ? null : '');
  };
  return { element, set(next) { rows = next; draw(); } };
}

/** What is not known comes last, whichever way it is sorted. */
function compare(a, b, sign) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  if (typeof a === 'string') return sign * a.localeCompare(b, undefined, { numeric: true });
  return a < b ? -sign : sign;
}

// Notes and dialogs

/** A panel with a title, and whatever else belongs into its head. */
export function panel(title, tools, ...children) {
  const heading = h('h2', {}, title);
  return h('section', { class: 'panel' }, h('header', {}, heading, tools), children);
}

/** What went wrong, in the place of what could not be shown. */
export function failure(error) {
  return h('div', { class: 'note bad', role: 'alert' }, error?.message ?? String(error));
}

export function toast(message, kind = '') {
  const note = h('div', { class: `toast ${kind}` }, message);
  document.getElementById('toasts').append(note);
  setTimeout(() => note.remove(), kind === 'bad' ? 12000 : 5000);
}

/** Asks before something is done; true when the answer is yes. */
export function confirm(title, explanation, yes, danger = true) {
  return new Promise((resolve) => {
    const form = h('form', { method: 'dialog' },
      h('h2', { id: 'asked' }, title),
      h('p', {}, explanation),
      h('div', { class: 'actions' },
        h('button', { value: 'no', autofocus: true }, 'Cancel'),
        h('button', { value: 'yes', class: danger ? 'danger' : 'primary' }, yes)));
    const dialog = h('dialog', { 'aria-labelledby': 'asked' }, form);
    dialog.addEventListener('close', () => { dialog.remove(); resolve(dialog.returnValue === 'yes'); });
    document.body.append(dialog);
    dialog.showModal();
  });
}
