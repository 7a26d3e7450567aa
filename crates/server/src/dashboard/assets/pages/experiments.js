// Experiments page: all experiments with the states of their jobs.

import { api } from '../api.js';
import { h, put, text } from '../dom.js';
import { failure, panel, plural, table } from '../components.js';
import { refreshOn } from '../event-stream.js';
import { pageOf } from '../routes.js';
import { ago, setAgo } from '../times.js';

const KINDS = new Set(['job', 'experiment', 'workspace', 'group']);
const STATES = ['running', 'queued', 'succeeded', 'failed'];

export async function show(root) {
  const count = h('span', { class: 'count' });
  const errorNote = h('div');
  const countOf = ({ counts }, state) => (state === 'running' ? counts.running + counts.terminating : counts[state]);
  const list = table({
    label: 'Experiments', key: (one) => one.id.toLowerCase(), sorted: 'Last job',
    empty: h('span', null, 'No experiments yet. ', h('code', null, 'corro submit'), ' makes one.'),
    columns: [
      { title: 'Experiment', width: 'minmax(0, 2fr)', wide: true, sort: (one) => one.name, make: (one) => h('a', { class: 'name', href: pageOf(one.id) }, one.name) },
      { title: 'Workspace', width: 'minmax(0, 1fr)', sort: (one) => one.workspace, make: (one) => h('span', { class: 'soft' }, one.workspace) },
      { title: 'Group', width: 'minmax(0, 1fr)', sort: (one) => one.resourceGroup, make: (one) => h('span', { class: 'soft' }, one.resourceGroup) },
      ...STATES.map((state) => ({ title: state[0].toUpperCase() + state.slice(1), label: state, width: '84px', number: true,
        sort: (one) => countOf(one, state), fill: (cell, one) => text(cell, countOf(one, state) || '') })),
      { title: 'Last job', width: '120px', sort: (one) => (one.lastSubmission ? -Date.parse(one.lastSubmission) : null), make: () => h('time'),
        fill: (cell, one) => setAgo(cell.firstChild, one.lastSubmission) },
      { title: 'Created', width: '120px', sort: (one) => -Date.parse(one.creationTime), make: (one) => ago(one.creationTime) },
    ],
  });
  put(root, h('h1', { class: 'unseen' }, 'Experiments'), errorNote, panel('Experiments', count, list.element));

  async function refresh() {
    try {
      const all = await api.all('~/providers/Corro/experiments');
      put(errorNote);
      list.set(all);
      text(count, all.length ? plural(all.length, 'experiment') : '');
    } catch (error) {
      if (error.status) put(errorNote, failure(error));
    }
  }
  await refresh();
  return refreshOn((event) => KINDS.has(event.kind), refresh, 250);
}
