// Experiment page: its runs with hyperparameters and results, the curves of the selected ones in common charts, and the difference of two.

import { api } from '../api.js';
import { h, mark, put } from '../dom.js';
import { refreshOn } from '../event-stream.js';
import { failure } from '../components.js';
import { partsOf } from '../routes.js';
import { CurvePanel } from '../curve-panel.js';
import { RunDifference } from '../run-difference.js';
import { RunTable } from '../run-table.js';
import { resultOf, runOf } from '../runs.js';

const MAX_SELECTED_JOBS = 16;
const INITIALLY_SELECTED_JOBS = 6;
const MAX_JOBS_WITH_RESULTS = 200;
const PARALLEL_REQUESTS = 4;

export async function show(root, params, context) {
  const id = `${params.workspace}/experiments/${encodeURIComponent(params.experiment)}`;
  context.title(params.experiment);
  const experiment = await api.get(id);
  const parts = partsOf(experiment.id);
  const errorNote = h('div');
  const none = h('button', { type: 'button', class: 'quiet', onclick: () => choose([]) }, 'Clear');
  const some = h('button', { type: 'button', class: 'quiet', onclick: () => choose(newest()) }, 'Newest');
  const compare = h('button', { type: 'button', id: 'compare', title: 'Select two runs to compare them', onclick: () => {
    const [one, other] = selectedRuns();
    difference.show(one, other);
    difference.element.scrollIntoView({ block: 'nearest' });
  } }, 'Compare');
  const plots = new CurvePanel({ file: experiment.name, empty: 'The selected runs have no curves yet.' });
  const inks = new Map();
  const runs = new RunTable({ key: experiment.id, inks, tools: [compare, some, none],
    tick: (job, on) => choose(on ? [...inks.keys(), job.id] : [...inks.keys()].filter((one) => one !== job.id)) });
  const difference = new RunDifference();
  let [jobs, results] = [[], new Map()];
  put(root,
    h('nav', { class: 'crumbs', 'aria-label': 'Where' }, h('a', { href: '/ui/experiments' }, 'Experiments'), h('span', null, parts.workspaces)),
    h('div', { class: 'head' }, h('h1', null, experiment.name), h('span', { class: 'grow' }),
      h('a', { class: 'button', href: `/ui/submit?workspace=${encodeURIComponent(`${parts.group}/${parts.workspaces}`)}&experiment=${encodeURIComponent(experiment.name)}` }, 'Submit a job')),
    errorNote, runs.element, difference.element, plots.element);

  const newest = () => [...jobs].sort((a, b) => startOf(b) - startOf(a)).slice(0, INITIALLY_SELECTED_JOBS).map((job) => job.id);
  const selectedRuns = () => jobs.filter((job) => inks.has(job.id)).map((job) => runOf(job, results.get(job.id)));

  // A job keeps its colour while it is selected.
  function choose(ids) {
    for (const id of [...inks.keys()]) if (!ids.includes(id)) inks.delete(id);
    for (const one of ids) {
      if (inks.has(one) || inks.size >= MAX_SELECTED_JOBS) continue;
      const used = new Set(inks.values());
      let ink = 0;
      while (used.has(ink)) ink += 1;
      inks.set(one, ink);
    }
    plots.choose(jobs.filter((job) => inks.has(job.id)).map((job) => ({ id: job.id, label: job.name, ink: inks.get(job.id) })));
    plots.refresh();
    mark(compare, 'disabled', inks.size === 2 ? null : '');
    draw();
  }

  const draw = () => runs.set(jobs.map((job) => runOf(job, results.get(job.id))));

  // Results per job: last and extreme values are enough; an ended job is read once.
  async function readResults() {
    const unread = [...jobs].sort((a, b) => startOf(b) - startOf(a)).slice(0,
      MAX_JOBS_WITH_RESULTS).filter((job) => job.properties.executionInfo && !results.get(job.id)?.ended);
    const next = async () => {
      for (let job = unread.shift(); job; job = unread.shift()) {
        try { results.set(job.id, resultOf(await api.get(`${job.id}/metrics`,
          { points: 4 }))); } catch (error) { if (error.name !== 'ApiError') throw error; }
      }
    };
    await Promise.all(Array.from({ length: PARALLEL_REQUESTS }, next));
    draw();
  }

  let first = true;
  async function refresh() {
    try {
      jobs = await api.all(`${experiment.id}/jobs`);
      put(errorNote);
      if (first) choose(newest());
      else draw();
      first = false;
      await Promise.all([readResults(), plots.refresh()]);
    } catch (error) {
      if (error.name !== 'ApiError') throw error;
      put(errorNote, failure(error));
    }
  }
  await refresh();
  const jobPrefix = `${[parts.group, parts.workspaces, parts.experiments].join('/').toLowerCase()}/`;
  const unsubscribe = refreshOn((event) => event.kind === 'job' && (event.resource ?? '').toLowerCase().startsWith(jobPrefix), refresh, 400);
  const timer = setInterval(() => {
    const isRunning = jobs.some((job) => job.properties.executionState === 'running');
    if (isRunning && !document.hidden && !plots.ended) plots.refresh();
  }, 1500);
  return () => {
    unsubscribe();
    clearInterval(timer);
    plots.end();
  };
}

const startOf = (job) => Date.parse(job.properties.executionInfo?.startTime ?? job.properties.creationTime);
