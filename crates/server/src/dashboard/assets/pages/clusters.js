// Clusters page: all clusters with their nodes.

import { api } from '../api.js';
import { clusterCards } from '../cluster-cards.js';
import { h, put } from '../dom.js';
import { failure } from '../components.js';
import { newCluster } from '../new-cluster.js';
import { refreshOn } from '../event-stream.js';

const KINDS = new Set(['node', 'cluster', 'job', 'workspace', 'group']);

export async function show(root, params, context) {
  const clusters = clusterCards();
  const errorNote = h('div');
  put(root, h('div', { class: 'head' }, h('h1', null, 'Clusters'), h('span', { class: 'grow' }),
    h('button', { type: 'button', class: 'primary', id: 'new', onclick: () => newCluster(context.go) }, 'New cluster')), errorNote, clusters.element);

  async function refresh() {
    try {
      const [all, nodes] = await Promise.all([api.all('~/providers/Corro/clusters'), api.all('~/providers/Corro/nodes')]);
      put(errorNote);
      clusters.set(all, nodes);
    } catch (error) {
      if (error.status) put(errorNote, failure(error));
    }
  }
  await refresh();
  if (new URLSearchParams(location.search).has('new')) newCluster(context.go);
  return refreshOn((event) => KINDS.has(event.kind), refresh, 250);
}
