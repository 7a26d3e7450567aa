// Difference of two runs: hyperparameters, metrics and job files side by side. Equal values are hidden until asked for.

import { h, mark, put, text } from './dom.js';
import { table } from './components.js';
import { numberOr } from './hyperparameters.js';
import { pageOf } from './routes.js';
import { short } from './chart-scale.js';
import { toJobFile } from './job-clone.js';

/** Values of a JSON document by path. Members of lists go by their name or id. Pure. */
export function flatten(value, path = '', found = new Map()) {
  if (Array.isArray(value)) value.forEach((item, at) => flatten(item?.value !== undefined && item.name ? item.value : item, `${path}[${item?.name ?? item?.id ?? at}]`, found));
  else if (value && typeof value === 'object') Object.entries(value).forEach(([name, member]) => flatten(member, path ? `${path}.${name}` : name, found));
  else if (value !== undefined && value !== null) found.set(path, String(value));
  return found;
}

/** Rows `{kind, name, a, b, change}` of two runs, equal ones included; `change` is b − a of numbers. Pure. */
export function compareRuns(one, other) {
  const metrics = (run) => new Map([...run.metrics].flatMap(([name, { last, best }]) => [[name, last], [`best ${name}`, best]]));
  const source = (run) => flatten(toJobFile(run.job).properties);
  return [['Hyperparameter', (run) => run.parameters], ['Metric', metrics], ['job.json', source]].flatMap(([kind, read]) => {
    const [left, right] = [read(one), read(other)];
    return [...new Set([...left.keys(), ...right.keys()])].map((name) => {
      const [a, b] = [left.get(name), right.get(name)];
      const [from, to] = [numberOr(a), numberOr(b)];
      return { kind, name, a, b, change: typeof from === 'number' && typeof to === 'number' ? to - from : null };
    });
  });
}

export class RunDifference {
  constructor() {
    this.all = h('input', { type: 'checkbox', onchange: () => this.draw() });
    this.title = h('h2');
    const shown = (value) => (typeof value === 'number' ? short(value) : value ?? '–');
    const side = (which) => (cell, row) => { text(cell, shown(row[which])); mark(cell, 'title', row[which] ?? null); };
    this.makeList = (one, other) => table({
      label: 'Difference', key: (row) => `${row.kind} ${row.name}`, empty: 'The runs are equal.',
      columns: [
        { title: 'Of', width: '120px', make: (row) => h('span', { class: 'soft' }, row.kind) },
        { title: 'Name', width: 'minmax(0, 1.4fr)', wide: true, make: (row) => h('span', { class: 'mono', title: row.name }, row.name) },
        { title: one, width: 'minmax(0, 1fr)', wrap: true, fill: side('a') },
        { title: other, width: 'minmax(0, 1fr)', wrap: true, fill: side('b') },
        { title: 'Change', width: '96px', number: true, fill: (cell, row) => text(cell, row.change ? `${row.change > 0 ? '+' : '−'}${short(Math.abs(row.change))}` : '') },
      ],
    });
    this.body = h('div');
    this.element = h('section', { class: 'panel', id: 'difference', hidden: true }, h('header', null, this.title, h('span', { class: 'grow' }),
      h('label', { class: 'choice' }, this.all, 'Equal values, too'),
      h('button', { type: 'button', class: 'quiet', onclick: () => this.close() }, 'Close')), this.body);
  }

  /** Shows the difference of two runs. */
  show(one, other) {
    this.rows = compareRuns(one, other);
    put(this.title, 'Difference of ', h('a', { href: pageOf(one.job.id) }, one.job.name), ' and ', h('a', { href: pageOf(other.job.id) }, other.job.name));
    this.list = this.makeList(one.job.name, other.job.name);
    put(this.body, this.list.element);
    mark(this.element, 'hidden', null);
    this.draw();
  }

  close() { mark(this.element, 'hidden', ''); }

  draw() {
    this.list.set(this.rows.filter((row) => this.all.checked || row.a !== row.b));
  }
}
