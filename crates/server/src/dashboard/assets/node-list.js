// Table of nodes: of one cluster, or of all.

import { api } from './api.js';
import { h, put } from './dom.js';
import { confirm, panel, setState, table, toast } from './components.js';
import { displayState, numberOf } from './node-tiles.js';
import { nameOf, pageOf, pageOfNode } from './routes.js';
import { setAgo } from './times.js';

/** `{element, set(nodes)}`. Nodes of low priority get a button that preempts them. */
export function nodeTable({ title, isInCluster, isLowPriority, empty }) {
  const columns = [
    { title: 'Node', width: '64px', number: true, sort: (node) => Number(numberOf(node.nodeId)), make: (node) => h('b', {}, numberOf(node.nodeId)) },
    !isInCluster && { title: 'Cluster', width: 'minmax(0, 1fr)', sort: (node) => node.cluster, make: (node) => h('a', { class: 'soft', href: pageOf(node.clusterId) }, node.cluster) },
    { title: 'State', width: '120px', sort: (node) => node.state, make: () => h('span', { class: 'state' }), fill: (cell, node) => setState(cell.firstChild, displayState(node), node.preempted ? 'taken back' : displayState(node)) },
    { title: 'Job', width: 'minmax(0, 1.4fr)', sort: (node) => node.job ?? null, fill: fillJob },
    { title: 'Since', width: '120px', sort: (node) => -Date.parse(node.since), make: () => h('time', {}), fill: (cell, node) => setAgo(cell.firstChild, node.since) },
    { title: 'Id', width: 'minmax(0, 2fr)', wide: true, make: (node) => h('a', { class: 'mono', href: pageOfNode(node.clusterId, node.nodeId) }, node.nodeId) },
    isLowPriority && { title: '', width: '100px', make: (node) => node.vmPriority === 'lowpriority' && h('button', { type: 'button', class: 'quiet danger', onclick: () => preemptNode(node) }, 'Preempt') },
  ];
  const list = table({ label: 'Nodes', key: (node) => node.nodeId, empty, sorted: isInCluster ? 'Node' : 'Cluster', columns: columns.filter(Boolean) });
  return { element: panel(title, null, list.element), set: list.set };
}

function fillJob(cell, node) {
  const link = cell.firstChild;
  if (!node.job) { if (link) put(cell); return; }
  const [experiment, job] = node.job.split('/');
  const href = pageOf(`${node.clusterId.replace(/\/clusters\/[^/]*$/, '')}/experiments/${experiment}/jobs/${job}`);
  if (link?.getAttribute('href') !== href) put(cell, h('a', { class: 'name', href }, node.job));
}

async function preemptNode(node) {
  const explanation = 'The job on it gets a termination signal and a grace period, then it is queued again. The node is removed, and replaced if there is capacity.';
  if (!await confirm(`Preempt node ${numberOf(node.nodeId)} of ${nameOf(node.clusterId)}?`, explanation, 'Preempt')) return;
  try { await api.post(`${node.clusterId}/nodes/${node.nodeId}/preempt`); } catch (error) { toast(error.message, 'bad'); }
}
