// Table of jobs, newest first, page by page, with tabs for their states and a filter by name.

import { api } from './api.js';
import { h, mark, text } from './dom.js';
import { panel, setState, table } from './components.js';
import { ago, setAgo, setLasting } from './times.js';
import { nameOf, pageOf } from './routes.js';

const PAGE_SIZE = 100;
/** Maximum number of jobs per request. */
const MAX_JOBS_PER_REQUEST = 1000;

export const jobName = {
  title: 'Job', width: 'minmax(0, 2fr)', sort: (job) => job.name,
  make: (job) => h('a', { class: 'name', href: pageOf(job.id), title: job.name }, job.name),
};
const experimentName = {
  title: 'Experiment', width: 'minmax(0, 1.3fr)', sort: (job) => job.experiment,
  make: (job) => h('a', { class: 'soft', href: pageOf(job.id.replace(/\/jobs\/[^/]*$/, '')) }, job.experiment),
};
export const clusterName = {
  title: 'Cluster', width: 'minmax(0, 1.3fr)', sort: (job) => nameOf(job.clusterId),
  make: (job) => h('a', { class: 'soft', href: pageOf(job.clusterId) }, nameOf(job.clusterId)),
};
export const nodeCount = {
  title: 'Nodes', label: 'nodes', width: '52px', number: true, sort: (job) => job.nodeCount, make: (job) => job.nodeCount,
};

/** All jobs, newest first, page by page; `fixed` adds filters. */
export function jobList(fixed = {}) {
  const TABS = ['all', 'running', 'queued', 'succeeded', 'failed'];
  let chosen = 'all', query = '', loaded = [], next = null, ticket = 0;
  const list = table({
    label: 'Jobs', key: (job) => job.id, empty: 'No job.',
    columns: [
      { title: 'State', width: '108px', sort: (job) => job.state, make: () => h('span', { class: 'state' }),
        fill: (cell, job) => setState(cell.firstChild, job.state) },
      jobName, experimentName, clusterName, nodeCount,
      { title: 'Owner', width: 'minmax(0, 1fr)', sort: (job) => job.owner ?? null, make: (job) => h('span', { class: 'soft', title: job.owner }, job.owner ?? '') },
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
    [h('div', { class: 'tabs', role: 'group', 'aria-label': 'Jobs by state' }, tabs.map((tab) => tab.button)), h('span', { class: 'grow' }), filter,
      h('a', { class: 'button', href: `/ui/submit${fixed.cluster ? `?cluster=${encodeURIComponent(fixed.cluster)}` : ''}` }, 'Submit a job')],
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
