// Cluster page: nodes, node history, scaling, and its jobs.

import { api } from '../api.js';
import { h, put, text } from '../dom.js';
import { refreshOn } from '../event-stream.js';
import { confirm, failure, panel, setState, toast } from '../components.js';
import { scaleText } from '../cluster-cards.js';
import { history } from '../cluster-history.js';
import { jobList } from '../job-list.js';
import { nodeTable } from '../node-list.js';
import { tiles } from '../node-tiles.js';
import { partsOf } from '../routes.js';
import { clock } from '../times.js';
import { scaleForm } from './scale-form.js';

export async function show(root, params, context) {
  const id = `${params.workspace}/clusters/${encodeURIComponent(params.cluster)}`;
  let cluster = await api.get(id);
  context.title(cluster.name);
  const { vmSize, vmPriority, virtualMachineConfiguration: machine, creationTime } = cluster.properties;
  const errorNote = h('div', {});
  const stateLabel = h('span', { class: 'state' });
  const scale = h('dd', {});
  const nodeTiles = tiles();
  const nodeHistory = history(id);
  const nodes = nodeTable({ title: 'Each node', isInCluster: true, isLowPriority: vmPriority === 'lowpriority', empty: 'The cluster has no nodes now.' });
  const jobs = jobList({ cluster: cluster.id });
  const form = scaleForm(async (settings) => {
    cluster = await api.patch(id, { properties: { scaleSettings: settings } });
    toast(`${cluster.name} is scaled anew.`);
    await refresh();
  });
  const remove = h('button', { type: 'button', class: 'danger', onclick: async () => {
    const explanation = 'Its nodes are released and its jobs fail: running jobs are stopped, queued jobs never run. Files on shares are kept.';
    if (!await confirm(`Delete the cluster ${cluster.name}?`, explanation, 'Delete')) return;
    try {
      await api.del(id);
      toast(`${cluster.name} is being deleted.`);
      await context.go('/ui/clusters');
    } catch (error) { toast(error.message, 'bad'); }
  } }, 'Delete');
  const facts = [
    ['Size', specifiedText(`${vmSize}${vmPriority === 'lowpriority' ? ', low priority' : ''}`)], ['Scale', scale],
    ['Image', machine?.imageReference && specifiedText(`${machine.imageReference.offer} ${machine.imageReference.sku}`)],
    ['Created', h('time', { datetime: creationTime }, clock(creationTime))],
  ];
  put(root,
    h('nav', { class: 'crumbs', 'aria-label': 'Breadcrumbs' }, h('a', { href: '/ui/clusters' }, 'Clusters'), h('span', {}, partsOf(cluster.id).group), h('span', {}, partsOf(cluster.id).workspaces)),
    h('div', { class: 'head' }, h('h1', {}, cluster.name), stateLabel, h('span', { class: 'grow' }), remove),
    errorNote,
    h('div', { class: 'panel' }, h('div', { class: 'body' },
      h('dl', { class: 'facts' }, facts.filter(([, value]) => value).map(([name, value]) =>
        h('div', {}, h('dt', {}, name), value.tagName === 'DD' ? value : h('dd', {}, value)))))),
    h('div', { class: 'halves' },
      panel('Nodes', null, h('div', { class: 'body' }, nodeTiles.element)),
      panel('Scale', null, h('div', { class: 'body' }, form.element))),
    nodeHistory.element,
    nodes.element, jobs.element);
  root.querySelector('.halves').previousElementSibling.classList.add('first');

  async function refresh() {
    try {
      const [now, all] = await Promise.all([api.get(id), api.all('~/providers/Corro/nodes'), jobs.refresh(), nodeHistory.refresh()]);
      cluster = now;
      const clusterNodes = all.filter((node) => node.clusterId.toLowerCase() === cluster.id.toLowerCase());
      const { allocationState, provisioningState, errors = [], scaleSettings } = cluster.properties;
      setState(stateLabel, provisioningState === 'deleting' ? 'deleting' : allocationState);
      text(scale, scaleText(cluster));
      nodeTiles.set(clusterNodes);
      nodes.set(clusterNodes);
      form.set(scaleSettings);
      put(errorNote, errors.map((error) => h('p', { class: 'note bad' }, error.message)));
    } catch (error) {
      if (error.status === 404) put(errorNote, h('p', { class: 'note bad' }, `The cluster ${cluster.name} is gone.`));
      else if (error.status) put(errorNote, failure(error));
    }
  }
  await refresh();
  const end = refreshOn((event) => ['node', 'cluster', 'job'].includes(event.kind), refresh, 250);
  return () => { end(); nodeHistory.end(); jobs.end(); };
}

// The specification in the retired service's terms; the actual hardware is listed with the nodes and hosts.
function specifiedText(text) {
  return h('dd', {}, text, ' ', h('span', { class: 'soft small', title: 'As specified. Jobs use the hardware that the nodes really have.' }, '(declared)'));
}
