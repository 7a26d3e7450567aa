// Usage page: node-hours in a time window by user, experiment and cluster, with CSV download.

import { api } from '../api.js';
import { toCsv, save } from '../chart-export.js';
import { h, mark, put, text } from '../dom.js';
import { failure, plural, table } from '../components.js';
import { clock } from '../times.js';

const DAY_MS = 86_400_000;
const WINDOWS = [['24 hours', 1], ['7 days', 7], ['30 days', 30], ['90 days', 90]];
const GROUPINGS = [['user', 'User'], ['experiment', 'Experiment'], ['cluster', 'Cluster']];

export async function show(root, params, context) {
  let days = 7;
  let ticket = 0;
  const panels = GROUPINGS.map(([by, title]) => ({ by, ...usagePanel(by, title) }));
  const total = h('span');
  const note = h('small');
  const errorNote = h('div');
  const tabs = WINDOWS.map(([label, length]) => h('button', { type: 'button', 'aria-pressed': String(length === days), onclick: (event) => {
    days = length;
    for (const tab of tabs) mark(tab, 'aria-pressed', String(tab === event.currentTarget));
    refresh();
  } }, label));
  put(root, h('div', { class: 'head' }, h('h1', null, 'Usage'), h('span', { class: 'grow' }),
    h('div', { class: 'tabs', role: 'group', 'aria-label': 'Window' }, tabs)),
    errorNote, h('dl', { class: 'panel figures' }, h('div', null, h('dt', null, 'Node-hours'), h('dd', null, total, ' ', note))),
    h('div', { class: 'columns' }, panels.slice(0, 2).map((one) => one.element)), panels.slice(2).map((one) => one.element));

  async function refresh() {
    const ownTicket = ++ticket;
    const until = new Date();
    const since = new Date(until - days * DAY_MS).toISOString();
    try {
      const reports = await Promise.all(panels.map(({ by }) => api.get('~/providers/Corro/usage',
        { by, since, until: until.toISOString() })));
      if (ownTicket !== ticket) return;
      put(errorNote);
      panels.forEach((one, at) => one.set(reports[at]));
      const { totalNodeHours: hours, knownSince: countedSince } = reports[0];
      text(total, formatHours(hours));
      const isCut = countedSince && Date.parse(countedSince) > Date.parse(since) + 1000;
      text(note, isCut ? `counted since ${clock(countedSince)}` : `in the last ${WINDOWS.find(([, length]) => length === days)[0]}`);
    } catch (error) {
      if (error.name !== 'ApiError') throw error;
      if (ownTicket === ticket) put(errorNote, failure(error));
    }
  }
  await refresh();
  const timer = setInterval(() => { if (!document.hidden) refresh(); }, 30_000);
  return () => clearInterval(timer);
}

function formatHours(hours) {
  if (hours >= 100) return Math.round(hours).toLocaleString();
  return hours.toFixed(hours >= 0.1 || hours === 0 ? 1 : 3);
}

// Bar lengths are relative to the largest row.
function usagePanel(by, title) {
  let rows = [];
  const count = h('span', { class: 'count' });
  const list = table({
    label: `Node-hours by ${by}`, key: (row) => row.userId ?? row.name, empty: 'No usage.', sorted: 'Node-hours', descending: true,
    columns: [
      { title, width: 'minmax(0, 2fr)', wide: true, sort: (row) => row.name, make: (row) => makeName(by, row) },
      { title: '', width: 'minmax(40px, 1fr)', make: () => h('span', { class: 'meter long' }, h('i')), fill: (cell, row) => {
        cell.firstChild.firstChild.style.width = `${(100 * row.nodeHours) / Math.max(1e-9, ...rows.map((one) => one.nodeHours))}%`;
      } },
      { title: 'Node-hours', width: '92px', number: true, sort: (row) => row.nodeHours,
        fill: (cell, row) => text(cell, formatHours(row.nodeHours)) },
      { title: 'Jobs', label: 'jobs', width: '56px', number: true, sort: (row) => row.jobs,
        fill: (cell, row) => text(cell, row.jobs.toLocaleString()) },
      { title: 'Running', label: 'running', width: '68px', number: true, sort: (row) => row.running,
        fill: (cell, row) => text(cell, row.running || '') },
    ],
  });
  const saveCsv = () => {
    const lines = rows.map((row) => ({ label: row.name, points: [[row.jobs, row.nodeHours]] }));
    save(new Blob([toCsv(lines, [by, 'jobs', 'nodeHours'])], { type: 'text/csv' }), `usage-by-${by}.csv`);
  };
  const element = h('section', { class: 'panel', id: `by-${by}` },
    h('header', null, h('h2', null, `By ${by}`), count, h('span', { class: 'grow' }),
    h('button', { type: 'button', class: 'quiet', title: 'Download CSV', onclick: saveCsv }, 'CSV')), list.element);
  return {
    element,
    set(report) {
      rows = report.rows;
      text(count, rows.length ? plural(rows.length, by) : '');
      list.set(rows);
    },
  };
}

function makeName(by, row) {
  if (by === 'user') return h('span', { class: 'name', title: row.userId ?? row.name }, row.name);
  const [group, workspace, name] = row.name.split('/').map(encodeURIComponent);
  if (!name) return row.name;
  return [h('span', { class: 'soft' }, `${decodeURIComponent(workspace)} / `),
    h('a', { class: 'name', href: `/ui/${by}s/${group}:${workspace}/${name}` }, decodeURIComponent(name))];
}
