// The collective engine per rank: step, bytes, activity, time spent waiting for the others, and the rank they wait for. Has a button
// that records a timeline.

import { api } from './api.js';
import { h, mark, text } from './dom.js';
import { JobTimeline } from './job-timeline.js';
import { bytes, table, toast } from './components.js';
import { short } from './times.js';

const RECORD_SECONDS = 5;
const POLL_INTERVAL_MS = 500;

export class JobEngines {
  /** `onContent(hasContent)` is called when ranks begin or cease to use Corro's Horovod; a recorded timeline stays. */
  constructor(id, name, onContent) {
    Object.assign(this, { id, onContent, ended: false, recording: false, followedTimeline: null });
    this.note = h('span', { class: 'count', role: 'status' });
    this.button = h('button', { type: 'button', id: 'record', onclick: () => this.record() }, 'Record timeline');
    this.timeline = new JobTimeline(name);
    this.table = table({
      label: 'Engine', key: (row) => row.rank, empty: 'No rank uses collectives.',
      columns: [
        { title: 'Rank', label: 'rank', width: '120px', sort: (row) => row.rank, make: () => [h('span', { class: 'rank' }), h('span',
          { class: 'straggler', title: 'The others wait for this rank' }, 'straggler')],
        fill: (cell, row) => { text(cell.firstChild, row.rank); mark(cell.lastChild, 'hidden', row.straggler ? null : ''); } },
        { title: 'Step', label: 'step', width: '80px', number: true, sort: (row) => row.totals.steps,
          fill: (cell, row) => text(cell, row.totals.steps.toLocaleString()) },
        { title: 'Reduced', width: '90px', number: true, sort: (row) => row.totals.bytes, fill: (cell, row) => text(cell, bytes(row.totals.bytes)) },
        { title: 'Per second', label: 'per second', width: '96px', number: true, sort: rate,
          fill: (cell, row) => text(cell, bytes(rate(row))) },
        { title: 'Waits', label: 'waits', width: '140px', number: true, sort: waitShare, make: () => [h('span', { class: 'meter waits' }, h('i')), h('span')],
          fill: (cell, row) => {
            cell.firstChild.firstChild.style.width = `${waitShare(row) * 100}%`;
            text(cell.lastChild, `${(waitShare(row) * 100).toFixed(0)} %`);
          } },
        { title: 'Collective', width: 'minmax(0, 2fr)', sort: (row) => row.last?.name ?? '', wide: true,
          make: () => h('span', { class: 'mono' }), fill: (cell, row) => {
            text(cell.firstChild, activityText(row));
            mark(cell.firstChild, 'title', activityText(row));
          } },
      ],
    });
    this.element = h('div', { id: 'engines' }, h('div', { class: 'tab-tools' }, this.note, h('span', { class: 'grow' }), this.button),
      this.table.element, this.timeline.element);
  }

  /** Sets the processes that the nodes report; null when nothing runs any more. */
  set(report) {
    const rows = (report?.nodes ?? []).flatMap((node) => node.processes).flatMap((process) => process.engines ?? [])
      .map((engine) => ({ ...engine, straggler: engine.rank === report.straggler }));
    mark(this.button, 'hidden', rows.length ? null : '');
    if (rows.length) this.table.set(rows.sort((a, b) => a.rank - b.rank));
    this.onContent(Boolean(rows.length || this.timeline.shown));
    mark(this.table.element, 'hidden', rows.length ? null : '');
    const note = report?.straggler === undefined ? '' : `the others wait for rank ${report.straggler}`;
    if (!this.recording) text(this.note, note);
    // Another user may have recorded one.
    if (report?.timeline && report.timeline !== this.timeline.started && report.timeline !== this.followedTimeline && !this.recording) {
      this.followedTimeline = report.timeline;
      this.follow();
    }
  }

  async record() {
    try {
      await api.post(`${this.id}/timeline`, { seconds: RECORD_SECONDS });
      await this.follow();
    } catch (error) {
      if (error.name !== 'ApiError') throw error;
      toast(error.message, 'bad');
    }
  }

  // Polls until the recording is complete.
  async follow() {
    if (this.recording) return;
    this.recording = true;
    mark(this.button, 'disabled', '');
    try {
      while (!this.ended) {
        const timeline = await api.get(`${this.id}/timeline`);
        if (timeline.state === 'done') {
          this.timeline.set(timeline);
          this.onContent(true);
          break;
        }
        text(this.note, 'recording …');
        await new Promise((resolve) => { setTimeout(resolve, POLL_INTERVAL_MS); });
      }
    } catch (error) {
      if (error.name !== 'ApiError') throw error;
      toast(error.message, 'bad');
    } finally {
      this.recording = false;
      text(this.note, '');
      mark(this.button, 'disabled', null);
    }
  }

  end() {
    this.ended = true;
    this.timeline.end();
  }
}

const waitShare = (row) => (row.window.ms ? Math.min(1, row.window.waitedMs / row.window.ms) : 0);
const rate = (row) => (row.window.ms ? row.window.bytes / (row.window.ms / 1000) : 0);

// The current long activity, else the last one.
function activityText({ workingOn, waitsFor, last }) {
  const describe = (operation) => `${operation.kind ? `${operation.kind.toLowerCase()} ` : ''}${operation.name}${operation.tensors > 1 ? ` and ${operation.tensors - 1} more` : ''}`;
  if (workingOn?.msAgo >= 1000) return `in ${describe(workingOn)} for ${short(workingOn.msAgo)}`;
  if (waitsFor?.msAgo >= 1000) return `waits for ${describe(waitsFor)} for ${short(waitsFor.msAgo)}`;
  return last ? describe(last) : '';
}
