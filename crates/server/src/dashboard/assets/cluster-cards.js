// Clusters as cards with tiles of their nodes, and the text of a cluster's size.

import { h, keyed, mark, put, text } from './dom.js';
import { plural, setState } from './components.js';
import { pageOf, partsOf } from './routes.js';
import { tiles } from './node-tiles.js';

/** `2 nodes`, `2 of 4 nodes`, `auto 0–8`: current and target size. */
export function scaleText(cluster) {
  const { currentNodeCount: now, scaleSettings: { manual, autoScale } } = cluster.properties;
  if (autoScale) return `${plural(now, 'node')}, auto ${autoScale.minimumNodeCount}–${autoScale.maximumNodeCount}`;
  const target = manual?.targetNodeCount ?? now;
  return target === now ? plural(now, 'node') : `${now} of ${plural(target, 'node')}`;
}

/** Cards of all clusters with their nodes: `{element, set(clusters, nodes)}`. */
export function clusterCards() {
  const list = h('div', { class: 'clusters' });
  const none = h('div', { class: 'panel empty', hidden: true }, 'No clusters yet. ',
    h('code', {}, 'corro submit'), ' makes one, and so does ', h('code', {}, 'corro batchai cluster create'), '.');
  const make = (cluster) => {
    const nodeTiles = tiles();
    const scale = h('span', { class: 'soft' });
    const allocationLabel = h('span', { class: 'state' });
    const errors = h('div', {});
    const { vmSize, vmPriority } = cluster.properties;
    const card = h('section', { class: 'panel cluster', 'aria-label': `Cluster ${cluster.name}` },
      h('header', {}, h('h2', {}, h('a', { href: pageOf(cluster.id) }, cluster.name)),
        h('span', { class: 'soft' }, partsOf(cluster.id).workspaces), h('span', { class: 'grow' }), allocationLabel, scale),
      h('div', { class: 'body' }, errors, nodeTiles.element,
        h('p', { class: 'soft small size' }, vmSize, vmPriority === 'lowpriority' ? ', low priority' : '')));
    card.corroSet = (now, nodes) => {
      text(scale, scaleText(now));
      const { allocationState, provisioningState } = now.properties;
      const isSteady = allocationState === 'steady' && provisioningState !== 'deleting';
      setState(allocationLabel, provisioningState === 'deleting' ? 'deleting' : allocationState);
      mark(allocationLabel, 'hidden', isSteady ? '' : null);
      put(errors, (now.properties.errors ?? []).map((error) => h('p', { class: 'note bad' }, error.message)));
      nodeTiles.set(nodes);
    };
    return card;
  };
  return {
    element: h('section', { 'aria-label': 'Clusters' }, list, none),
    set(all, nodes) {
      const nodesByCluster = Map.groupBy(nodes, (node) => node.clusterId.toLowerCase());
      keyed(list, all, (cluster) => cluster.id.toLowerCase(), make,
        (card, cluster) => card.corroSet(cluster, nodesByCluster.get(cluster.id.toLowerCase()) ?? []));
      mark(none, 'hidden', all.length ? '' : null);
    },
  };
}
