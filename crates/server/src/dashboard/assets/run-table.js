// Run table of an experiment: a column per hyperparameter and metric, with sorting, a filter, and a menu of the columns. Columns of
// hyperparameters that are the same in all runs are hidden until they are chosen.

import { h, mark, put, text } from './dom.js';
import { plural, setState, table } from './components.js';
import { numberOr } from './hyperparameters.js';
import { pinButton, setPinned } from './job-notes.js';
import { pageOf } from './routes.js';
import { parseFilter } from './run-filter.js';
import { metricNames, parameterNames, winningValue } from './runs.js';
import { short } from './chart-scale.js';
import { setAgo, setLasting } from './times.js';

/** Metrics that are shown until others are chosen. */
const DEFAULT_METRICS = 3;

export class RunTable {
  /** `key` is where the choice of columns is remembered; `tick(job, on)` selects a job; `inks` are the colours of selected jobs by id. */
  constructor({ key, tick, inks, tools }) {
    Object.assign(this, { key: `corro.columns.${key.toLowerCase()}`, tick, inks, runs: [], columnStamp: null, list: null, query: '' });
    this.chosen = new Map(Object.entries(JSON.parse(localStorage.getItem(this.key) ?? '{}')));
    this.count = h('span', { class: 'count' });
    this.menuList = h('div', { class: 'column-list' });
    this.menu = h('details', { class: 'column-menu' }, h('summary', { class: 'button' }, 'Columns'), this.menuList);
    this.filterBox = h('input', { type: 'search', class: 'filter', placeholder: 'Filter: lr<0.01 state=failed name', 'aria-label': 'Filter runs',
      oninput: () => { this.query = this.filterBox.value; this.draw(); } });
    this.body = h('div', { class: 'wide-table' });
    this.element = h('section', { class: 'panel', id: 'results' }, h('header', null, h('h2', null, 'Runs'), this.count, h('span', { class: 'grow' }),
      this.filterBox, this.menu, tools), this.body);
  }

  set(runs) {
    this.runs = runs;
    this.draw();
  }

  draw() {
    const matches = parseFilter(this.query);
    const shown = this.runs.filter(matches);
    const columns = this.offeredColumns();
    const visible = columns.filter((column) => column.isShown);
    const stamp = visible.map((column) => column.id).join('\n');
    if (stamp !== this.columnStamp) {
      this.columnStamp = stamp;
      this.list = this.makeTable(visible, this.list?.sorting());
      put(this.body, this.list.element);
      this.list.element.style.setProperty('--min-width', `${560 + 92 * visible.length}px`);
    }
    const stampOfMenu = JSON.stringify(columns.map((column) => [column.id, column.isShown]));
    if (stampOfMenu !== this.menuStamp) { this.menuStamp = stampOfMenu; this.drawMenu(columns); }
    this.winners = new Map(metricNames(shown).map((name) => [name, winningValue(shown, name)]));
    this.list.set(shown);
    text(this.count, shown.length === this.runs.length ? plural(shown.length, 'run') : `${shown.length} of ${plural(this.runs.length, 'run')}`);
  }

  // All columns of hyperparameters and metrics, each with whether it is shown: as the user chose, else by default.
  offeredColumns() {
    const { all, differing } = parameterNames(this.runs);
    const isShown = (id, otherwise) => this.chosen.get(id) ?? otherwise;
    const parameters = all.map((name) => ({ id: `p:${name}`, name, group: 'Hyperparameters', isShown: isShown(`p:${name}`, differing.includes(name)) }));
    const metrics = metricNames(this.runs).flatMap((name, at) => ['last', 'best'].map((which) => ({
      id: `${which}:${name}`, name, which, group: 'Metrics', isShown: isShown(`${which}:${name}`, at < DEFAULT_METRICS) })));
    const notes = [['note:tags', 'Tags', (run) => run.tags.join(', ')], ['note:note', 'Note', (run) => run.note]].map(([id, name, read]) => ({
      id, name, read, group: 'Notes', isShown: isShown(id, this.runs.some(read)) }));
    return [...notes, ...parameters, ...metrics];
  }

  drawMenu(columns) {
    const box = (column) => h('label', { class: 'choice' }, h('input', { type: 'checkbox', checked: column.isShown, onchange: (event) => {
      this.chosen.set(column.id, event.target.checked);
      localStorage.setItem(this.key, JSON.stringify(Object.fromEntries(this.chosen)));
      this.draw();
    } }), column.which ? `${column.name}, ${column.which}` : column.name);
    const groups = Map.groupBy(columns, (column) => column.group);
    put(this.menuList, columns.length ? [...groups].map(([title, own]) => h('fieldset', null, h('legend', null, title), own.map(box)))
      : h('p', { class: 'soft' }, 'The runs have neither hyperparameters nor metrics.'));
  }

  makeTable(columns, sorting) {
    const value = (run, name, which) => run.metrics.get(name)?.[which];
    const runTime = ({ job: { properties: { executionInfo: info } } }) => (info ? Date.parse(info.endTime ?? Date()) - Date.parse(info.startTime) : null);
    const startOf = (run) => { const start = run.job.properties.executionInfo?.startTime; return start ? -Date.parse(start) : null; };
    const column = ({ name, which, read }) => (read ? {
      title: name, label: name, width: 'minmax(96px, 1.2fr)', sort: (run) => read(run) || null,
      fill: (cell, run) => { text(cell, read(run)); mark(cell, 'title', read(run) || null); },
    } : which ? {
      title: which === 'last' ? name : `best ${name}`, label: which === 'last' ? name : `best ${name}`, width: 'minmax(72px, 1fr)', number: true,
      sort: (run) => value(run, name, which) ?? null,
      fill: (cell, run) => {
        text(cell, value(run, name, which) === undefined ? '' : short(value(run, name, which)));
        const isWinner = which === 'best' && this.winners.get(name) !== undefined && value(run, name, which) === this.winners.get(name);
        cell.classList.toggle('winner', isWinner);
        mark(cell, 'title', isWinner ? `The best ${name}` : null);
      },
    } : {
      title: name, label: name, width: 'minmax(72px, 1fr)', sort: (run) => numberOr(run.parameters.get(name)) ?? null,
      fill: (cell, run) => { text(cell, run.parameters.get(name) ?? ''); mark(cell, 'title', run.parameters.get(name)); },
    });
    return table({
      label: 'Results', key: (run) => run.job.id, empty: 'No run.', sorted: sorting?.title ?? 'Started', descending: sorting?.descending ?? false,
      columns: [
        { title: '', width: '20px', make: (run) => h('input',
          { type: 'checkbox', 'aria-label': `Select ${run.job.name}`, onchange: (event) => this.tick(run.job, event.target.checked) }),
          fill: (cell, run) => { cell.firstChild.checked = this.inks.has(run.job.id); } },
        { title: '★', width: '24px', sort: (run) => (run.pinned ? 0 : null), make: (run) => pinButton(run.job.id), fill: (cell, run) => setPinned(cell.firstChild, run.pinned, run.job.name) },
        { title: 'Job', width: 'minmax(140px, 2fr)', sort: (run) => run.job.name,
          make: (run) => [h('i', { class: 'swatch' }), h('a', { class: 'name', href: pageOf(run.job.id), title: run.job.name }, run.job.name)],
          fill: (cell, run) => mark(cell.firstChild, 'class', this.inks.has(run.job.id) ? `swatch ink${this.inks.get(run.job.id) % 8}` : 'swatch') },
        { title: 'State', width: '96px', sort: (run) => run.job.properties.executionState, make: () => h('span', { class: 'state' }),
          fill: (cell, run) => setState(cell.firstChild, run.job.properties.executionState) },
        ...columns.map(column),
        { title: 'Nodes', label: 'nodes', width: '48px', number: true, sort: (run) => run.job.properties.nodeCount, make: (run) => run.job.properties.nodeCount },
        { title: 'Started', width: '96px', sort: startOf, make: () => h('time'), fill: (cell, run) => setAgo(cell.firstChild, run.job.properties.executionInfo?.startTime) },
        { title: 'Ran', label: 'ran', width: '84px', number: true, sort: runTime, make: () => h('time'),
          fill: (cell, { job: { properties: { executionInfo: info } } }) => setLasting(cell.firstChild, info?.startTime, info?.endTime) },
      ],
    });
  }
}
