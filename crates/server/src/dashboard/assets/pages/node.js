// Node page: its state and job, its GPUs, and CPU, memory and GPUs of its tasks over time.

import { api } from '../api.js';
import { h, mark, put, text } from '../dom.js';
import { failure, panel, setState } from '../components.js';
import { refreshOn } from '../event-stream.js';
import { GpuTable } from '../gpu-table.js';
import { displayState, numberOf } from '../node-tiles.js';
import { ResourceCharts } from '../resource-charts.js';
import { nameOf, pageOf } from '../routes.js';
import { setAgo } from '../times.js';

const REFRESH_MS = 10_000;

export async function show(root, params, context) {
  const clusterId = `${params.workspace}/clusters/${encodeURIComponent(params.cluster)}`;
  const number = numberOf(params.node);
  context.title(`Node ${number} of ${params.cluster}`);
  const stateLabel = h('span', { class: 'state' });
  const since = h('time');
  const job = h('dd');
  const errorNote = h('div');
  const charts = new ResourceCharts(params.node, 'resources');
  const gpus = new GpuTable();
  const gpuPanel = panel('GPUs', h('span', { class: 'soft small' }, 'of its job'), gpus.element);
  const none = h('p', { class: 'empty' }, 'No measurements. They are taken every few seconds while the node runs a job, since the start of the server.');
  const facts = [['Cluster', h('dd', null, h('a', { href: pageOf(clusterId) }, params.cluster))], ['Job', job], ['Since', h('dd', null, since)], ['Id', h('dd', { class: 'mono' }, params.node)]];
  put(root, h('nav', { class: 'crumbs', 'aria-label': 'Where' }, h('a', { href: '/ui/nodes' }, 'Nodes'), h('a', { href: pageOf(clusterId) }, params.cluster)),
    h('div', { class: 'head' }, h('h1', null, `Node ${number}`), stateLabel), errorNote,
    h('dl', { class: 'panel facts' }, facts.map(([name, value]) => h('div', null, h('dt', null, name), value))),
    gpuPanel, panel('CPU, memory and GPUs', h('span', { class: 'soft small' }, 'before now'), none, charts.element));

  async function refresh() {
    try {
      const nodes = await api.all('~/providers/Corro/nodes');
      const node = nodes.find((one) => one.nodeId === params.node);
      if (!node) throw Object.assign(new Error(`The node ${params.node} is gone.`), { status: 404 });
      setState(stateLabel, displayState(node), node.preempted ? 'taken back' : displayState(node));
      setAgo(since, node.since);
      const [experiment, name] = (node.job ?? '').split('/');
      put(job, name ? h('a', { href: pageOf(`${params.workspace}/experiments/${experiment}/jobs/${name}`) }, node.job) : text(h('span', { class: 'soft' }), 'none'));
      const { points, gpus: readings = [] } = await api.get(`${clusterId}/nodes/${encodeURIComponent(params.node)}/resources`);
      charts.set([{ label: 'all processes', points }], Date.now());
      gpus.set([{ nodeId: params.node, gpus: readings }]);
      mark(gpuPanel, 'hidden', readings.length ? null : '');
      mark(none, 'hidden', points.length ? '' : null);
      mark(charts.element, 'hidden', points.length ? null : '');
      put(errorNote);
    } catch (error) {
      if (error.status) put(errorNote, failure(error));
    }
  }
  await refresh();
  const unsubscribe = refreshOn((event) => event.kind === 'node' && nameOf(event.resourceId ?? '').toLowerCase() === params.node.toLowerCase(), refresh, 250);
  const timer = setInterval(() => { if (!document.hidden) refresh(); }, REFRESH_MS);
  return () => {
    unsubscribe();
    clearInterval(timer);
    charts.end();
  };
}
