// Cluster page: nodes, node history, scaling, and its jobs.

import { api } from '../api.js';
import { h, put, text } from '../dom.js';
import { refreshOn } from '../event-stream.js';
import { clock, confirm, failure, panel, setAgo, setState, table, toast } from '../components.js';
import { nameOf, pageOf, partsOf } from '../routes.js';
import { numberOf, displayState, tiles } from '../node-tiles.js';
import { history } from '../cluster-history.js';
import { jobList, scaleText } from './overview.js';
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
  const nodes = nodeTable(vmPriority === 'lowpriority');
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
      await context.go('/ui/');
    } catch (error) { toast(error.message, 'bad'); }
  } }, 'Delete');
  const facts = [
    ['Size', specifiedText(`${vmSize}${vmPriority === 'lowpriority' ? ', low priority' : ''}`)], ['Scale', scale],
    ['Image', machine?.imageReference && specifiedText(`${machine.imageReference.offer} ${machine.imageReference.sku}`)],
    ['Created', h('time', { datetime: creationTime }, clock(creationTime))],
  ];
  put(root,
    h('nav', { class: 'crumbs', 'aria-label': 'Breadcrumbs' }, h('a', { href: '/ui/' }, 'Overview'), h('span', {}, partsOf(cluster.id).group), h('span', {}, partsOf(cluster.id).workspaces)),
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

function nodeTable(isLow) {
  const columns = [
    { title: 'Node', width: '64px', number: true, sort: (node) => Number(numberOf(node.nodeId)), make: (node) => h('b', {}, numberOf(node.nodeId)) },
    { title: 'State', width: '120px', sort: (node) => node.state, make: () => h('span', { class: 'state' }), fill: (cell, node) => setState(cell.firstChild, displayState(node), node.preempted ? 'taken back' : displayState(node)) },
    { title: 'Job', width: 'minmax(0, 1.4fr)', sort: (node) => node.job ?? null, fill: fillJob },
    { title: 'Since', width: '120px', sort: (node) => -Date.parse(node.since), make: () => h('time', {}), fill: (cell, node) => setAgo(cell.firstChild, node.since) },
    { title: 'Id', width: 'minmax(0, 2fr)', wide: true, make: (node) => h('span', { class: 'mono soft' }, node.nodeId) },
  ];
  if (isLow) columns.push({ title: '', width: '100px', make: (node) => h('button', { type: 'button', class: 'quiet danger', onclick: () => preemptNode(node) }, 'Preempt') });
  const list = table({ label: 'Nodes', key: (node) => node.nodeId, empty: 'The cluster has no nodes now.', sorted: 'Node', columns });
  return { element: panel('Each node', null, list.element), set: list.set };
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

// The specification in the retired service's terms; the actual hardware is listed with the nodes and hosts.
function specifiedText(text) {
  return h('dd', {}, text, ' ', h('span', { class: 'soft small', title: 'As specified. Jobs use the hardware that the nodes really have.' }, '(declared)'));
}
