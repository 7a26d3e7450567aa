// Experiment page: its jobs with their results, and the curves of the selected ones in common charts.

import { api } from '../api.js';
import { h, mark, put, text } from '../dom.js';
import { refreshOn } from '../event-stream.js';
import { failure, plural, setLasting, setState, table } from '../components.js';
import { pageOf, partsOf } from '../routes.js';
import { PREFERRED_METRICS, CurvePanel } from '../curve-panel.js';
import { short } from '../chart-scale.js';

const MAX_SELECTED_JOBS = 16;
const INITIALLY_SELECTED_JOBS = 6;
const MAX_JOBS_WITH_RESULTS = 200;
const PARALLEL_REQUESTS = 4;
const METRIC_COLUMNS = 3;

export async function show(root, params, context) {
  const id = `${params.workspace}/experiments/${encodeURIComponent(params.experiment)}`;
  context.title(params.experiment);
  const experiment = await api.get(id);
  const parts = partsOf(experiment.id);
  const count = h('span', { class: 'count' });
  const tableContainer = h('div');
  const errorNote = h('div');
  const none = h('button', { type: 'button', class: 'quiet', onclick: () => choose([]) }, 'Clear');
  const some = h('button', { type: 'button', class: 'quiet', onclick: () => choose(newest()) }, 'Newest');
  const plots = new CurvePanel({ file: experiment.name, empty: 'The selected jobs have no curves yet.' });
  const inks = new Map();
  let [jobs, results, names, list] = [[], new Map(), null, null];
  put(root,
    h('nav', { class: 'crumbs', 'aria-label': 'Where' }, h('span', null, parts.workspaces)),
    h('div', { class: 'head' }, h('h1', null, experiment.name), count),
    errorNote, plots.element,
    h('section', { class: 'panel', id: 'results' }, h('header', null, h('h2', null, 'Jobs'),
      h('span', { class: 'soft small' }, 'Select jobs to compare their curves'), h('span', { class: 'grow' }), some, none), tableContainer));

  const newest = () => [...jobs].sort((a, b) => startOf(b) - startOf(a)).slice(0, INITIALLY_SELECTED_JOBS).map((job) => job.id);

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
    list?.set(jobs);
  }

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
    drawTable();
  }

  function drawTable() {
    const all = [...new Set([...results.values()].flatMap((result) => [...result.metrics.keys()]))];
    const rank = (name) => { const at = PREFERRED_METRICS.indexOf(name.toLowerCase()); return at < 0 ? PREFERRED_METRICS.length : at; };
    const columnMetrics = all.sort((a, b) => rank(a) - rank(b) || a.localeCompare(b)).slice(0, METRIC_COLUMNS);
    if (!list || names !== columnMetrics.join('\n')) {
      names = columnMetrics.join('\n');
      list = resultTable(columnMetrics, results, inks, (job, on) => choose(on ? [...inks.keys(),
        job.id] : [...inks.keys()].filter((one) => one !== job.id)));
      put(tableContainer, list.element);
    }
    list.set(jobs);
    text(count, plural(jobs.length, 'job'));
  }

  let first = true;
  async function refresh() {
    try {
      jobs = await api.all(`${experiment.id}/jobs`);
      put(errorNote);
      if (first) choose(newest());
      first = false;
      drawTable();
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

function resultOf(response) {
  const metrics = new Map();
  for (const series of response.series) {
    if (metrics.has(series.name) && series.rank !== null) continue;
    const values = series.points.map((point) => point[2]).filter((value) => value !== null);
    if (!values.length) continue;
    const isLowerBetter = /loss|error|perplexity|time|mse|mae/i.test(series.name);
    metrics.set(series.name, { unit: series.unit, last: values.at(-1), best: isLowerBetter ? Math.min(...values) : Math.max(...values) });
  }
  return { metrics, ended: response.ended };
}

function resultTable(columnMetrics, results, inks, tick) {
  const value = (job, name, which) => results.get(job.id)?.metrics.get(name)?.[which];
  const runTime = ({ properties: { executionInfo: info } }) =>
    (info ? Date.parse(info.endTime ?? Date()) - Date.parse(info.startTime) : null);
  const clock = (time) => new Date(time).toLocaleString(undefined, { dateStyle: 'short', timeStyle: 'short' });
  const metricColumn = (name, which, title) => ({
    title, label: title, width: 'minmax(64px, 1fr)', number: true, sort: (job) => value(job, name, which) ?? null,
    fill: (cell, job) => text(cell, value(job, name, which) === undefined ? '' : short(value(job, name, which))),
  });
  return table({
    label: 'Results', key: (job) => job.id, empty: 'No job yet.', sorted: 'Started', descending: true,
    columns: [
      { title: '', width: '34px', make: (job) => h('input',
        { type: 'checkbox', 'aria-label': `Show the curves of ${job.name}`, onchange: (event) => tick(job, event.target.checked) }),
        fill: (cell, job) => { cell.firstChild.checked = inks.has(job.id); } },
      { title: 'Job', width: 'minmax(120px, 2fr)', sort: (job) => job.name,
        make: (job) => [h('i', { class: 'swatch' }), h('a', { class: 'name', href: pageOf(job.id), title: job.name }, job.name)],
        fill: (cell, job) => mark(cell.firstChild, 'class', inks.has(job.id) ? `swatch ink${inks.get(job.id) % 8}` : 'swatch') },
      { title: 'State', width: '108px', sort: (job) => job.properties.executionState, make: () => h('span', { class: 'state' }),
        fill: (cell, job) => setState(cell.firstChild, job.properties.executionState) },
      { title: 'Nodes', label: 'nodes', width: '56px', number: true, sort: (job) => job.properties.nodeCount,
        make: (job) => job.properties.nodeCount },
      { title: 'Started', width: '132px', sort: startOf,
        fill: (cell, { properties: { executionInfo: info } }) => text(cell, info ? clock(info.startTime) : '') },
      { title: 'Ran', label: 'ran', width: '92px', number: true, sort: runTime, make: () => h('time'),
        fill: (cell, { properties: { executionInfo: info } }) => setLasting(cell.firstChild, info?.startTime, info?.endTime) },
      ...columnMetrics.flatMap((name) => [metricColumn(name, 'last', name), metricColumn(name, 'best', `best ${name}`)]),
    ],
  });
}
