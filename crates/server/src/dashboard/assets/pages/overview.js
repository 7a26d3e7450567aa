// Overview page: clusters with their nodes, the queue with reasons, and all jobs, newest first.

import { api } from '../api.js';
import { h, keyed, mark, put, text } from '../dom.js';
import { refreshOn } from '../event-stream.js';
import { ago, failure, panel, plural, sentence, setAgo, setLasting, setState, table } from '../components.js';
import { nameOf, pageOf, partsOf } from '../routes.js';
import { tiles } from '../node-tiles.js';

const PAGE_SIZE = 100;
/** Maximum number of jobs per request. */
const MAX_JOBS_PER_REQUEST = 1000;
const KINDS = new Set(['job', 'node', 'cluster', 'experiment', 'workspace', 'group']);

export async function show(root, params, context) {
  const figures = summary();
  const clusters = clusterCards();
  const queue = queueTable();
  const jobs = jobList();
  const errorNote = h('div', {});
  put(root, h('h1', { class: 'unseen' }, 'Overview'), errorNote, figures.element, clusters.element, queue.element, jobs.element);

  async function refresh() {
    try {
      const [nodes, all, waiting] = await Promise.all([
        api.all('~/providers/Corro/nodes'),
        api.all('~/providers/Corro/clusters'),
        api.get('~/providers/Corro/jobs', { state: 'queued', order: 'queue', maxresults: PAGE_SIZE }),
        jobs.refresh(),
      ]);
      put(errorNote);
      figures.set(nodes, waiting.counts);
      clusters.set(all, nodes);
      queue.set(waiting);
    } catch (error) {
      if (error.status) put(errorNote, failure(error));
    }
  }
  await refresh();
  const end = refreshOn((event) => KINDS.has(event.kind), refresh, 250);
  return () => { end(); jobs.end(); };
}

function summary() {
  const cells = ['Nodes', 'Running jobs', 'Waiting jobs', 'Succeeded', 'Failed'].map((title) => {
    const [value, more] = [h('span', {}), h('small', {})];
    return { value, more, element: h('div', {}, h('dt', {}, title), h('dd', {}, value, ' ', more)) };
  });
  const element = h('dl', { class: 'panel figures' }, cells.map((cell) => cell.element));
  return {
    element,
    set(nodes, counts) {
      const busy = nodes.filter((node) => node.state === 'running').length;
      const values = [
        [nodes.length, nodes.length ? `${Math.round((100 * busy) / nodes.length)} % busy` : ''],
        [counts.running, counts.terminating ? `${counts.terminating} ending` : ''],
        [counts.queued, ''], [counts.succeeded, ''], [counts.failed, ''],
      ];
      values.forEach(([value, more], at) => {
        text(cells[at].value, value.toLocaleString());
        text(cells[at].more, more);
      });
    },
  };
}

/** `2 nodes`, `2 of 4 nodes`, `auto 0–8`: current and target size. */
export function scaleText(cluster) {
  const { currentNodeCount: now, scaleSettings: { manual, autoScale } } = cluster.properties;
  if (autoScale) return `${plural(now, 'node')}, auto ${autoScale.minimumNodeCount}–${autoScale.maximumNodeCount}`;
  const target = manual?.targetNodeCount ?? now;
  return target === now ? plural(now, 'node') : `${now} of ${plural(target, 'node')}`;
}

function clusterCards() {
  const list = h('div', { class: 'clusters' });
  const none = h('div', { class: 'panel empty', hidden: true }, 'No clusters yet. ',
    h('code', {}, 'corro batchai cluster create'), ' makes one.');
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

const jobName = {
  title: 'Job', width: 'minmax(0, 2fr)', sort: (job) => job.name,
  make: (job) => h('a', { class: 'name', href: pageOf(job.id), title: job.name }, job.name),
};
const experimentName = {
  title: 'Experiment', width: 'minmax(0, 1.3fr)', sort: (job) => job.experiment,
  make: (job) => h('a', { class: 'soft', href: pageOf(job.id.replace(/\/jobs\/[^/]*$/, '')) }, job.experiment),
};
const clusterName = {
  title: 'Cluster', width: 'minmax(0, 1.3fr)', sort: (job) => nameOf(job.clusterId),
  make: (job) => h('a', { class: 'soft', href: pageOf(job.clusterId) }, nameOf(job.clusterId)),
};
const nodeCount = {
  title: 'Nodes', label: 'nodes', width: '52px', number: true, sort: (job) => job.nodeCount, make: (job) => job.nodeCount,
};

function queueTable() {
  const count = h('span', { class: 'count' });
  const list = table({
    label: 'Queue', key: (job) => job.id, empty: 'The queue is empty.',
    columns: [
      { title: 'Place', label: 'place', width: '48px', number: true, fill: (cell, job) => text(cell, job.position ?? '') },
      jobName, { ...clusterName, width: 'minmax(0, 1fr)' }, nodeCount,
      { title: 'Waits', width: '96px', label: 'waits', make: () => h('time', {}), fill: (cell, job) => setLasting(cell.firstChild, job.since) },
      { title: 'Why', width: 'minmax(0, 4fr)', wrap: true, wide: true, fill: (cell, job) => text(cell, waitText(job)) },
    ],
  });
  const more = h('p', { class: 'more soft small', hidden: true });
  const element = panel('Queue', count, list.element, more);
  return {
    element,
    set(page) {
      const first = [...page.value].sort((a, b) => (a.position ?? 1e9) - (b.position ?? 1e9));
      text(count, page.counts.queued || '');
      list.set(first);
      const hidden = page.counts.queued - first.length;
      mark(more, 'hidden', hidden > 0 ? null : '');
      text(more, `and ${hidden} more`);
    },
  };
}

export function waitText(job) {
  const why = sentence(job.waitingFor ?? 'it is about to start');
  const at = new Date(job.estimatedStart ?? NaN);
  // A past estimate is dropped; nodes being allocated may arrive at any moment.
  if (!(at > Date.now()) || job.estimateBasis === 'nodes') return why;
  return job.estimateBasis === 'limits' ? `${why} At the latest it starts ${formatTime(at)}.` : `${why} Likely start: ${formatTime(at)}.`;
}

// Time of day, with the date unless it is today.
function formatTime(at) {
  const time = { hour: '2-digit', minute: '2-digit' };
  const isToday = at.toDateString() === new Date().toDateString();
  return at.toLocaleString(undefined, isToday ? time : { ...time, day: 'numeric', month: 'short' });
}

/** All jobs, newest first, page by page; `fixed` adds filters. */
export function jobList(fixed = {}) {
  const TABS = ['all', 'running', 'queued', 'succeeded', 'failed'];
  let chosen = 'all', query = '', loaded = [], next = null, ticket = 0;
  const list = table({
    label: 'Jobs', key: (job) => job.id, empty: 'No such job.',
    columns: [
      { title: 'State', width: '108px', sort: (job) => job.state, make: () => h('span', { class: 'state' }),
        fill: (cell, job) => setState(cell.firstChild, job.state) },
      jobName, experimentName, clusterName, nodeCount,
      { title: 'Kind', width: '88px', sort: (job) => job.toolType, make: (job) => h('span', { class: 'soft' }, job.toolType) },
      { title: 'Submitted', width: '120px', sort: (job) => -Date.parse(job.creationTime), make: (job) => ago(job.creationTime), fill: (cell, job) => setAgo(cell.firstChild, job.creationTime) },
      { title: 'Ran', label: 'ran', width: '92px', number: true, sort: (job) => runTime(job),
        make: () => h('time', {}), fill: (cell, job) => setLasting(cell.firstChild, job.startTime, job.endTime) },
    ],
  });
  const tabs = TABS.map((name) => {
    const count = h('span', { class: 'count' });
    const button = h('button', { type: 'button', 'aria-pressed': String(name === chosen), onclick: () => choose(name) },
      name[0].toUpperCase() + name.slice(1), ' ', count);
    return { name, count, button };
  });
  const filter = h('input', { type: 'search', class: 'filter', placeholder: 'Filter by name', 'aria-label': 'Filter jobs by name',
    oninput: () => { query = filter.value.trim(); reload(); } });
  const more = h('div', { class: 'more', hidden: true }, h('button', { type: 'button', onclick: () => loadOlder() }, 'Older jobs'));
  const element = panel('Jobs',
    [h('div', { class: 'tabs', role: 'group', 'aria-label': 'Jobs by state' }, tabs.map((tab) => tab.button)), h('span', { class: 'grow' }), filter],
    list.element, more);
  const endObserver = new IntersectionObserver((entries) => { if (entries.some((entry) => entry.isIntersecting)) loadOlder(); }, { rootMargin: '400px' });
  endObserver.observe(more);

  function choose(name) {
    chosen = name;
    for (const tab of tabs) mark(tab.button, 'aria-pressed', String(tab.name === name));
    reload();
  }
  async function reload() {
    loaded = [];
    next = null;
    await refresh().catch(() => {});
  }
  const parameters = () => {
    const state = chosen === 'all' ? '' : chosen === 'running' ? 'running,terminating' : chosen;
    return { ...fixed, state, text: query, maxresults: PAGE_SIZE };
  };

  // Sequential: each load depends on what the previous one returned.
  let queue = Promise.resolve();
  const enqueue = (task) => { queue = queue.then(task, task); return queue; };

  /** Reloads the listed jobs; of very many, the oldest are not refreshed. */
  function refresh() {
    const ownTicket = ++ticket;
    return enqueue(async () => {
      if (ownTicket !== ticket) return;
      const page = await api.get('~/providers/Corro/jobs', { ...parameters(), maxresults: Math.min(Math.max(loaded.length, PAGE_SIZE), MAX_JOBS_PER_REQUEST) });
      if (ownTicket !== ticket) return;
      const fresh = new Set(page.value.map((job) => job.id));
      const oldest = Date.parse(page.value.at(-1)?.creationTime);
      const rest = page.nextLink ? loaded.filter((job) => !fresh.has(job.id) && Date.parse(job.creationTime) <= oldest) : [];
      if (!rest.length) next = page.nextLink ? page : null;
      loaded = [...page.value, ...rest];
      draw(page.counts);
    });
  }
  let busy = false;
  async function loadOlder() {
    if (busy || !next) return;
    busy = true;
    try {
      await enqueue(async () => {
        const from = next;
        const page = from && await api.next(from);
        // The filter may have changed meanwhile.
        if (!page || from !== next) return;
        const listed = new Set(loaded.map((job) => job.id));
        loaded = [...loaded, ...page.value.filter((job) => !listed.has(job.id))];
        next = page.nextLink ? page : null;
        draw(page.counts);
      });
      // Observed again, since the end of the list may still be visible.
      endObserver.unobserve(more);
      endObserver.observe(more);
    } catch { /* the button is still there */ } finally { busy = false; }
  }
  function draw(counts) {
    list.set(loaded);
    const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
    const totals = { ...counts, all: total, running: counts.running + counts.terminating };
    for (const tab of tabs) text(tab.count, totals[tab.name].toLocaleString());
    mark(more, 'hidden', next ? null : '');
  }
  return { element, refresh, end: () => endObserver.disconnect() };
}

function runTime(job) {
  return job.startTime ? (job.endTime ? Date.parse(job.endTime) : Date.now()) - Date.parse(job.startTime) : null;
}
