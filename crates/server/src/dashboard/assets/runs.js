// Runs of an experiment: its jobs with their hyperparameters and results. Pure.

import { parametersOf } from './hyperparameters.js';
import { PREFERRED_METRICS } from './curve-panel.js';

/** A job with what the run table shows of it. `result` is that of `resultOf`, or undefined. */
export function runOf(job, result) {
  const parameters = parametersOf(job.properties);
  const metrics = result?.metrics ?? new Map();
  const find = (map, name) => map.get(name) ?? [...map].find(([key]) => key.toLowerCase() === name.toLowerCase())?.[1];
  const { note = '', tags = [], pinned = false } = job.properties.annotations ?? {};
  const own = { tag: tags, note, pinned: String(pinned), job: job.name, state: job.properties.executionState, nodes: job.properties.nodeCount };
  return {
    job, parameters, metrics, note, tags, pinned,
    text: [job.name, note, ...tags, ...parameters.values()].join(' '),
    /** Value of a column for the filter: `best.loss` is the best loss, `loss` the last one. */
    field(name) {
      const best = /^best[. ](.+)$/i.exec(name);
      if (best) return find(metrics, best[1])?.best;
      return find(parameters, name) ?? find(metrics, name)?.last ?? own[name.toLowerCase()];
    },
  };
}

/** Last and best value of each metric of a response of `GET …/metrics`. */
export function resultOf(response) {
  const metrics = new Map();
  for (const series of response.series) {
    if (metrics.has(series.name) && series.rank !== null) continue;
    const values = series.points.map((point) => point[2]).filter((value) => value !== null);
    if (!values.length) continue;
    const best = isLowerBetter(series.name) ? Math.min(...values) : Math.max(...values);
    metrics.set(series.name, { unit: series.unit, last: values.at(-1), best });
  }
  return { metrics, ended: response.ended };
}

export const isLowerBetter = (name) => /loss|error|perplexity|time|mse|mae/i.test(name);

/** Names of all hyperparameters, and of those that differ between the runs. */
export function parameterNames(runs) {
  const all = [...new Set(runs.flatMap((run) => [...run.parameters.keys()]))];
  const differing = all.filter((name) => new Set(runs.map((run) => run.parameters.get(name))).size > 1);
  return { all, differing };
}

/** Names of all metrics, the usual ones first. */
export function metricNames(runs) {
  const place = (name) => { const at = PREFERRED_METRICS.indexOf(name.toLowerCase()); return at < 0 ? PREFERRED_METRICS.length : at; };
  return [...new Set(runs.flatMap((run) => [...run.metrics.keys()]))].sort((a, b) => place(a) - place(b) || a.localeCompare(b));
}

/** The best of the best values of a metric; undefined without at least two runs that have one. */
export function winningValue(runs, name) {
  const values = runs.map((run) => run.metrics.get(name)?.best).filter((value) => value !== undefined);
  if (values.length < 2) return undefined;
  return values.reduce((a, b) => (isLowerBetter(name) ? Math.min(a, b) : Math.max(a, b)));
}
