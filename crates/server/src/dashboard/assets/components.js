// UI components shared by pages: states, sizes, tables, messages, dialogs.

import { h, put, text, mark, keyed } from './dom.js';

/** State label with its colour and shape. */
export function state(name, label) {
  return setState(h('span', { class: 'state' }), name, label);
}

export function setState(element, name, label) {
  mark(element, 'data-state', name);
  return text(element, label ?? name);
}

export function bytes(n) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let at = 0;
  while (n >= 1000 && at < units.length - 1) { n /= 1000; at += 1; }
  return `${at && n < 100 ? n.toFixed(1) : Math.round(n)} ${units[at]}`;
}

export const plural = (n, one, many = `${one}s`) => `${n.toLocaleString()} ${n === 1 ? one : many}`;

/** Adds a capital letter and a full stop. */
export function sentence(text) {
  return text[0].toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? '' : '.');
}

// Tables

/** A table. Each column: `title`, `width` (of a grid), `make(row)` or `fill(cell, row)`, and optionally `sort(row)`, `number`,
 * `wrap`, `wide` (a line of its own on a phone), `label` (shown before the value there). `key(row)` identifies rows.
 * Returns `{element, set(rows), sorting()}`; `set` keeps existing rows. */
export function table({ columns, key, label, empty = 'Nothing here.', sorted = null, descending = false }) {
  const titles = h('div', { class: 'row titles', role: 'row' });
  const body = h('div', { class: 'rows', role: 'rowgroup' });
  const emptyNote = h('div', { class: 'empty', hidden: true }, empty);
  const element = h('div', { class: 'table', role: 'table', 'aria-label': label },
    h('div', { role: 'rowgroup' }, titles), body, emptyNote);
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

  const makeRow = (row) => {
    const cells = columns.map((column) => {
      const kind = ['cell', column.number && 'number', column.wrap && 'wrap', column.wide && 'wide'].filter(Boolean);
      const cell = h('div', { class: kind.join(' '), role: 'cell', 'data-title': column.label });
      if (column.make) put(cell, column.make(row));
      return cell;
    });
    return h('div', { class: 'row', role: 'row' }, cells);
  };
  const updateRow = (line, row) => {
    columns.forEach((column, at) => column.fill?.(line.children[at], row));
  };
  const draw = () => {
    const { column } = order;
    let sortedRows = rows;
    if (column) {
      const sign = order.descending ? -1 : 1;
      sortedRows = [...rows].sort((a, b) => compare(column.sort(a), column.sort(b), sign));
    }
    columns.forEach((other) => {
      const direction = other === column ? (order.descending ? 'descending' : 'ascending') : null;
      mark(other.titleElement, 'aria-sort', direction);
    });
    keyed(body, sortedRows, key, makeRow, updateRow);
    mark(emptyNote, 'hidden', rows.length ? '' : null);
    mark(titles, 'hidden', rows.length ? null : '');
  };
  return { element, set(next) { rows = next; draw(); }, sorting: () => ({ title: order.column?.title, descending: order.descending }) };
}

/** Missing values come last in either order. */
function compare(a, b, sign) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  if (typeof a === 'string') return sign * a.localeCompare(b, undefined, { numeric: true });
  return a < b ? -sign : sign;
}

// Messages and dialogs

/** A panel with a title and tools in its header. */
export function panel(title, tools, ...children) {
  const heading = h('h2', {}, title);
  return h('section', { class: 'panel' }, h('header', {}, heading, tools), children);
}

/** An error message in place of the content. */
export function failure(error) {
  return h('div', { class: 'note bad', role: 'alert' }, error?.message ?? String(error));
}

export function toast(message, kind = '') {
  const note = h('div', { class: `toast ${kind}` }, message);
  document.getElementById('toasts').append(note);
  setTimeout(() => note.remove(), kind === 'bad' ? 12000 : 5000);
}

/** Confirmation dialog; resolves to true if confirmed. */
export function confirm(title, explanation, confirmLabel, danger = true) {
  return new Promise((resolve) => {
    const form = h('form', { method: 'dialog' },
      h('h2', { id: 'confirm-title' }, title),
      h('p', {}, explanation),
      h('div', { class: 'actions' },
        h('button', { value: 'no', autofocus: true }, 'Cancel'),
        h('button', { value: 'yes', class: danger ? 'danger' : 'primary' }, confirmLabel)));
    const dialog = h('dialog', { 'aria-labelledby': 'confirm-title' }, form);
    dialog.addEventListener('close', () => { dialog.remove(); resolve(dialog.returnValue === 'yes'); });
    document.body.append(dialog);
    dialog.showModal();
  });
}
