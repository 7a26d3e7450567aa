// Nodes page: the nodes of all clusters, by state.

import { api } from '../api.js';
import { h, mark, put, text } from '../dom.js';
import { failure } from '../components.js';
import { refreshOn } from '../event-stream.js';
import { nodeTable } from '../node-list.js';
import { NODE_STATES, displayState } from '../node-tiles.js';

const KINDS = new Set(['node', 'cluster', 'job', 'workspace', 'group']);

export async function show(root) {
  let nodes = [];
  let chosen = 'all';
  const errorNote = h('div');
  const list = nodeTable({ title: 'Nodes', isLowPriority: true, empty: 'No nodes.' });
  const tabs = ['all', ...NODE_STATES].map((name) => {
    const count = h('span', { class: 'count' });
    const button = h('button', { type: 'button', 'aria-pressed': String(name === chosen), onclick: () => { chosen = name; draw(); } },
      name[0].toUpperCase() + name.slice(1), ' ', count);
    return { name, count, button };
  });
  list.element.querySelector('header').append(h('div', { class: 'tabs', role: 'group', 'aria-label': 'Nodes by state' }, tabs.map((tab) => tab.button)));
  put(root, h('h1', { class: 'unseen' }, 'Nodes'), errorNote, list.element);

  const inState = (name) => nodes.filter((node) => name === 'all' || displayState(node) === name);
  function draw() {
    for (const { name, count, button } of tabs) {
      mark(button, 'aria-pressed', String(name === chosen));
      text(count, inState(name).length.toLocaleString());
    }
    list.set(inState(chosen));
  }
  async function refresh() {
    try {
      nodes = await api.all('~/providers/Corro/nodes');
      put(errorNote);
      draw();
    } catch (error) {
      if (error.status) put(errorNote, failure(error));
    }
  }
  await refresh();
  return refreshOn((event) => KINDS.has(event.kind), refresh, 250);
}
