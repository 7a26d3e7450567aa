// Panel of training curves: reads `GET …/metrics` of one or several jobs and draws a chart per metric. One job shows its ranks as
// thin lines behind the average; several jobs show their averages in one colour each.

import { api } from './api.js';
import { Chart } from './chart.js';
import { h, keyed, mark, put } from './dom.js';

const MAX_POINTS = 2000;
export const PREFERRED_METRICS = ['loss', 'val_loss', 'accuracy', 'acc', 'val_accuracy', 'val_acc'];

/** Curves of one job, updated by `read()`. */
class JobCurves {
  constructor(id, label) {
    Object.assign(this, { id, label, series: new Map(), next: null, ended: false });
  }

  // Returns true if there are new points.
  async read() {
    if (this.ended) return false;
    let changed = false;
    for (let more = true; more;) {
      const response = await api.get(`${this.id}/metrics`, { points: MAX_POINTS, after: this.next });
      if (response.whole) this.series.clear();
      for (const series of response.series) {
        const key = `${series.name}\n${series.rank ?? ''}`;
        const existing = this.series.get(key);
        if (existing) merge(existing.points, series.points);
        else this.series.set(key, series);
        changed ||= series.points.length > 0;
      }
      changed ||= response.whole;
      const longest = Math.max(0, ...[...this.series.values()].map((series) => series.points.length));
      // Curves that have become too long are read again, downsampled by the server.
      this.next = longest > 2 * MAX_POINTS ? null : response.next;
      this.ended = response.ended;
      more = response.more === true;
    }
    return changed;
  }

  names() {
    return [...new Set([...this.series.values()].map((series) => series.name))];
  }

  // The average, else the only rank, else rank 0.
  main(name) {
    return this.series.get(`${name}\n`) ?? [...this.series.values()].find((series) => series.name === name);
  }

  ranks(name) {
    return [...this.series.values()].filter((series) => series.name === name && series.rank !== null);
  }
}

// New values replace old ones: an average changes with every rank that reaches its step.
function merge(points, fresh) {
  for (const point of fresh) {
    let at = points.length;
    while (at > 0 && points[at - 1][0] > point[0]) at -= 1;
    if (at > 0 && points[at - 1][0] === point[0]) points[at - 1] = point;
    else points.splice(at, 0, point);
  }
}

export class CurvePanel {
  /** `file` is the prefix of downloaded files; `empty` is shown when there are no curves. */
  constructor({ file, empty }) {
    Object.assign(this, { file, empty, sources: new Map(), charts: new Map(), xName: 'step', weight: 0, showRanks: true, filter: '' });
    const choice = (name, label) => h('button', { type: 'button', 'aria-pressed': String(name === this.xName), onclick: (event) => {
      this.xName = name;
      for (const other of event.currentTarget.parentNode.children) mark(other, 'aria-pressed', String(other === event.currentTarget));
      this.draw();
    } }, label);
    const set = (field, value) => { this[field] = value; this.draw(); };
    this.ranksBox = h('label', { hidden: true }, h('input',
      { type: 'checkbox', checked: true, onchange: (event) => set('showRanks', event.target.checked) }), 'ranks');
    this.tools = h('div', { class: 'plot-tools', hidden: true },
      h('div', { class: 'tabs', role: 'group', 'aria-label': 'Horizontal axis' }, choice('step', 'Step'), choice('time', 'Time')),
      h('label', null, 'smooth', h('input', { type: 'range', min: 0, max: 99, value: 0,
        oninput: (event) => set('weight', (event.target.value / 100) ** 0.6) })),
      this.ranksBox,
      h('input', { type: 'search', placeholder: 'Filter metrics', 'aria-label': 'Filter metrics',
        oninput: (event) => set('filter', event.target.value.toLowerCase()) }));
    this.grid = h('div', { class: 'plots' });
    this.note = h('p', { class: 'empty' }, empty);
    this.element = h('section', { class: 'panel', id: 'plots' },
      h('header', null, h('h2', null, 'Curves'), h('span', { class: 'grow' }), this.tools), this.note, this.grid);
  }

  /** Sets the jobs to draw: `[{id, label, ink}]`. */
  choose(jobs) {
    const chosen = new Map(jobs.map((job) => [job.id, job]));
    for (const id of this.sources.keys()) if (!chosen.has(id)) this.sources.delete(id);
    for (const { id, label, ink } of jobs) {
      if (!this.sources.has(id)) this.sources.set(id, new JobCurves(id, label));
      this.sources.get(id).ink = ink;
    }
    this.draw();
  }

  /** Reads new points of all drawn jobs. Servers and jobs without metrics have none. */
  async refresh() {
    const reads = [...this.sources.values()].map((source) => source.read().catch((error) => {
      if (error.name !== 'ApiError') throw error;
      // A deleted job has no further points.
      if (error.status === 404) source.ended = true;
      this.errorMessage = error.status === 404 ? null : error.message;
      return true;
    }));
    if ((await Promise.all(reads)).some(Boolean)) this.draw();
  }

  /** Whether all points of the drawn jobs have been read. */
  get ended() {
    return [...this.sources.values()].every((source) => source.ended);
  }

  source(id) {
    return this.sources.get(id);
  }

  draw() {
    const sources = [...this.sources.values()];
    const all = [...new Set(sources.flatMap((source) => source.names()))];
    const rank = (name) => { const at = PREFERRED_METRICS.indexOf(name.toLowerCase()); return at < 0 ? PREFERRED_METRICS.length : at; };
    all.sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
    const names = all.filter((name) => name.toLowerCase().includes(this.filter));
    this.tools.hidden = !all.length;
    this.note.hidden = names.length > 0;
    put(this.note, all.length ? 'No metric matches.' : this.errorMessage ?? this.empty);
    this.ranksBox.hidden = sources.length > 1 || !all.some((name) => sources[0].ranks(name).length > 1);
    keyed(this.grid, names, (name) => name, (name) => this.chart(name).element, (_, name) => this.chart(name).set({
      lines: this.makeLines(name, sources), weight: this.weight, xName: this.axisName(name, sources),
    }));
    for (const [name, chart] of this.charts) {
      if (names.includes(name)) continue;
      chart.end();
      this.charts.delete(name);
    }
  }

  chart(name) {
    if (!this.charts.has(name)) {
      const unit = [...this.sources.values()].map((source) => source.main(name)?.unit).find(Boolean);
      this.charts.set(name, new Chart(name, { unit, file: `${this.file}-${name}` }));
    }
    return this.charts.get(name);
  }

  axisName(name, sources) {
    if (this.xName === 'time') return 'time';
    const axis = sources.map((source) => source.main(name)?.axis).find(Boolean);
    return axis === 'count' ? 'point' : axis ?? 'step';
  }

  makeLines(name, sources) {
    if (sources.length !== 1) {
      return sources.filter((source) => source.main(name)).map((source) => ({
        key: source.id, label: source.label, ink: source.ink ?? 0, points: this.makePoints(source.main(name), source),
      }));
    }
    const [source] = sources;
    const main = source.main(name);
    const ranks = source.ranks(name);
    const lines = ranks.length > 1 && this.showRanks ? ranks.map((series) => ({
      key: `rank ${series.rank}`, label: `rank ${series.rank}`, legend: 'ranks', ink: 7, thin: true, points: this.makePoints(series, source),
    })) : [];
    const label = main.rank === null ? (ranks.length > 1 ? 'average' : name) : `rank ${main.rank}`;
    return [{ key: 'main', label, ink: 0, points: this.makePoints(main, source) }, ...lines];
  }

  // Seconds since the job's first point, or steps.
  makePoints(series, source) {
    if (this.xName !== 'time') return series.points.map(([step, , value]) => [step, value ?? NaN]);
    let start = Infinity;
    for (const other of source.series.values()) start = Math.min(start, other.points.find(([, time]) => time !== null)?.[1] ?? Infinity);
    return series.points.filter(([, time]) => time !== null).map(([, time, value]) => [(time - start) / 1000, value ?? NaN]);
  }

  end() {
    for (const chart of this.charts.values()) chart.end();
  }
}
