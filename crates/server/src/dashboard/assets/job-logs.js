// Panel of a job's logs: a tab per file, or a list when there are many. Shows and follows the selected file.

import { LOGS, listFiles } from './job-files.js';
import { h, keyed, mark, put, text } from './dom.js';
import { LogView } from './log-view.js';

const MAX_TABS = 6;

export class JobLogs {
  constructor(id) {
    Object.assign(this, { id, chosen: null, names: [], other: null, links: new Map() });
    this.view = new LogView();
    this.tabs = h('div', { class: 'tabs', role: 'group', 'aria-label': 'Log files' });
    this.list = h('select', { 'aria-label': 'Log file', hidden: true, onchange: () => this.pick(this.list.value) });
    this.note = h('p', { class: 'empty' }, 'No log yet.');
    this.element = h('section', { class: 'panel', id: 'logs' }, h('header', null, h('h2', null, 'Log'), this.tabs, this.list),
      this.note, this.view.element);
    mark(this.view.element, 'hidden', '');
  }

  setState(state) {
    const ended = state === 'succeeded' || state === 'failed';
    this.view.setEnded(ended);
    text(this.note, ended ? 'The job wrote no log.' : state === 'queued' ? 'The log appears when the job runs.' : 'No log yet.');
  }

  // Files appear while the job runs; the first non-empty one is shown.
  async refresh() {
    let files;
    try { files = await listFiles(this.id, LOGS); } catch (error) {
      if (error.name !== 'ApiError') throw error;
      const isNotOnShare = error.code === 'OutputDirectoryNotOnMountRoot';
      return text(this.note, isNotOnShare ? 'The log is not written to a share, so it cannot be shown.' : error.message);
    }
    files = files.filter((file) => file.fileType === 'file');
    for (const file of files) this.links.set(file.name, file.downloadUrl);
    const priority = (name) => (/^stdout/.test(name) ? 0 : /^stderr/.test(name) ? 1 : 2);
    this.names = files.map((file) => file.name).sort((a, b) => priority(a) - priority(b) || a.localeCompare(b, undefined, { numeric: true }));
    // Until the user selects one: the job's own output, the first non-empty file.
    const hasContent = (name) => files.some((file) => file.name === name && file.properties?.contentLength > 0);
    if (!this.chosen || (!this.isChosenByUser && (priority(this.chosen) === 2 || !hasContent(this.chosen)))) {
      const best = this.names.find((name) => priority(name) < 2 && hasContent(name)) ?? this.names[0];
      if (best && best !== this.chosen) this.choose(best);
    }
    return this.draw();
  }

  draw() {
    const names = this.other && !this.names.includes(this.other) ? [...this.names, this.other] : this.names;
    const isLong = names.length > MAX_TABS;
    mark(this.tabs, 'hidden', isLong ? '' : null);
    mark(this.list, 'hidden', isLong ? null : '');
    keyed(this.tabs, isLong ? [] : names, (name) => name,
      (name) => h('button', { type: 'button', title: name, onclick: () => this.pick(name) }, shortName(name)),
      (button, name) => mark(button, 'aria-pressed', String(name === this.chosen)));
    if (isLong) {
      keyed(this.list, names, (name) => name, (name) => h('option', { value: name }, name));
      this.list.value = this.chosen;
    }
    mark(this.note, 'hidden', names.length ? '' : null);
    mark(this.view.element, 'hidden', names.length ? null : '');
  }

  pick(name) {
    this.isChosenByUser = true;
    return this.choose(name);
  }

  choose(name) {
    this.chosen = name;
    this.draw();
    const renew = async () => {
      await this.refresh();
      return this.links.get(name);
    };
    return this.view.open(this.links.get(name), this.renewals?.get(name) ?? renew);
  }

  /** Shows another file of the job. */
  show(name, link, renew) {
    this.other = name;
    this.links.set(name, link);
    this.renewals = new Map([[name, renew]]);
    this.element.scrollIntoView({ block: 'start', behavior: 'smooth' });
    return this.pick(name);
  }

  end() {
    this.view.end();
    put(this.tabs);
  }
}

const shortName = (name) => name.replace(/\.(txt|log)$/, '').replace(/tvm-\d+_(\d+)-\w+-[dp]$/, 'node $1');
