// Overview page: clusters with their nodes, the queue with reasons, and all jobs, newest first.

import { api } from '../api.js';
import { clusterCards } from '../cluster-cards.js';
import { h, mark, put, text } from '../dom.js';
import { refreshOn } from '../event-stream.js';
import { failure, panel, sentence, table } from '../components.js';
import { clusterName, jobList, jobName, nodeCount } from '../job-list.js';
import { nextSteps } from '../next-steps.js';
import { setLasting, shortClock } from '../times.js';

const MAX_LISTED_WAITING_JOBS = 100;
const KINDS = new Set(['job', 'node', 'cluster', 'experiment', 'workspace', 'group']);

export async function show(root, params, context) {
  const figures = summary();
  const clusters = clusterCards();
  const queue = queueTable();
  const jobs = jobList();
  const steps = nextSteps();
  const errorNote = h('div', {});
  put(root, h('h1', { class: 'unseen' }, 'Overview'), errorNote, steps, figures.element, clusters.element, queue.element, jobs.element);

  async function refresh() {
    try {
      const [nodes, all, waiting] = await Promise.all([
        api.all('~/providers/Corro/nodes'),
        api.all('~/providers/Corro/clusters'),
        api.get('~/providers/Corro/jobs', { state: 'queued', order: 'queue', maxresults: MAX_LISTED_WAITING_JOBS }),
        jobs.refresh(),
      ]);
      put(errorNote);
      figures.set(nodes, waiting.counts);
      clusters.set(all, nodes);
      queue.set(waiting);
      // An empty server: nothing but what to do next.
      const isEmpty = !all.length && !Object.values(waiting.counts).some((count) => count > 0);
      mark(steps, 'hidden', isEmpty ? null : '');
      for (const part of [figures, queue, jobs]) mark(part.element, 'hidden', isEmpty ? '' : null);
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

function waitText(job) {
  const why = sentence(job.waitingFor ?? 'it is about to start');
  const at = new Date(job.estimatedStart ?? NaN);
  // A past estimate is dropped; nodes being allocated may arrive at any moment.
  if (!(at > Date.now()) || job.estimateBasis === 'nodes') return why;
  return job.estimateBasis === 'limits' ? `${why} At the latest it starts ${shortClock(at)}.` : `${why} Likely start: ${shortClock(at)}.`;
}
