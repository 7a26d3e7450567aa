// A job's logs: a button per file, or a list when there are many. Shows and follows the selected file; of a failed job stderr.

import { LOGS, listFiles } from './job-files.js';
import { h, keyed, mark, put, text } from './dom.js';
import { LogView } from './log-view.js';

const MAX_TABS = 6;

export class JobLogs {
  /** `onOpen()` is called when another part of the page opens a file here. */
  constructor(id, onOpen) {
    Object.assign(this, { id, onOpen, chosen: null, names: [], other: null, links: new Map(), failedRank: null });
    this.view = new LogView();
    this.tabs = h('div', { class: 'tabs', role: 'group', 'aria-label': 'Log files' });
    this.list = h('select', { 'aria-label': 'Log file', hidden: true, onchange: () => this.pick(this.list.value) });
    this.note = h('p', { class: 'empty' }, 'No log yet.');
    this.element = h('div', { id: 'logs' }, h('div', { class: 'tab-tools' }, this.tabs, this.list), this.note, this.view.element);
    mark(this.view.element, 'hidden', '');
  }

  setProperties(properties) {
    const { executionState: state, executionInfo: info } = properties;
    this.hasFailed = state === 'failed';
    const rank = info?.errors?.flatMap((error) => error.details ?? []).find((detail) => detail.name === 'Rank')?.value;
    this.failedRank = rank ?? null;
    this.view.setRankCount(properties.prefixOutputWithRank ? rankCount(properties) : 0);
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
    this.names = files.map((file) => file.name).sort((a, b) => kindOf(a) - kindOf(b) || a.localeCompare(b, undefined, { numeric: true }));
    if (!this.isChosenByUser) {
      const best = this.bestOf(files.filter((file) => file.properties?.contentLength > 0).map((file) => file.name));
      if (best && best !== this.chosen) this.choose(best);
    }
    return this.draw();
  }

  // Of a failed job: stderr of the rank that failed, else any stderr. Otherwise the job's own output. A log that is shown stays while it
  // is of the right kind.
  bestOf(withContent) {
    const ofKind = (kind) => this.names.filter((name) => kindOf(name) === kind && withContent.includes(name));
    const [output, errors] = [ofKind(STDOUT), ofKind(STDERR)];
    const wanted = this.hasFailed && errors.length ? errors : output.length ? output : errors;
    const ofRank = wanted.find((name) => this.failedRank !== null && new RegExp(`-${this.failedRank}\\.txt$`).test(name));
    if (this.hasFailed && ofRank) return ofRank;
    return wanted.includes(this.chosen) ? this.chosen : wanted[0] ?? this.chosen ?? this.names[0];
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
    this.onOpen();
    this.element.scrollIntoView({ block: 'nearest', behavior: 'smooth' });
    return this.pick(name);
  }

  end() {
    this.view.end();
    put(this.tabs);
  }
}

const [STDOUT, STDERR, OTHER] = [0, 1, 2];
const kindOf = (name) => (/^stdout/.test(name) ? STDOUT : /^stderr/.test(name) ? STDERR : OTHER);

/** Number of ranks that a job asks for. */
export function rankCount(properties) {
  const settings = Object.entries(properties).find(([name, value]) => name.endsWith('Settings') && (value?.processCount ?? value?.workerCount));
  return settings?.[1].processCount ?? settings?.[1].workerCount ?? properties.nodeCount;
}

const shortName = (name) => name.replace(/\.(txt|log)$/, '').replace(/tvm-\d+_(\d+)-\w+-[dp]$/, 'node $1');
