// Recorded timeline as SVG: two lanes per rank, one for time spent waiting for the others and one for operations. Hovering shows
// names and times, dragging zooms, and the trace can be downloaded.

import { h, keyed, mark, put, svg, text } from './dom.js';
import { save } from './chart-export.js';
import { scale, ticks, tickText } from './chart-scale.js';
import { plural } from './components.js';
import { clock } from './times.js';

const [LEFT, RIGHT, TOP, LANE, AXIS] = [64, 10, 4, 26, 22];
const [WAIT, WORK] = [9, 12];
/** Spans closer than this in pixels are drawn as one. */
const MERGE_DISTANCE_PX = 0.6;
const MAX_LISTED_SPANS = 8;

export class JobTimeline {
  constructor(name) {
    Object.assign(this, { name, shown: false, started: null, ranks: [], range: null, drag: null });
    this.note = h('span', { class: 'count' });
    this.showAllButton = h('button', { type: 'button', class: 'quiet', hidden: true, onclick: () => this.zoom(null) }, 'Show all');
    this.lanes = svg('g', { class: 'lanes' });
    this.axis = svg('g', { class: 'ticks' });
    this.chosen = svg('rect', { class: 'chosen', y: 0, visibility: 'hidden' });
    this.canvas = svg('svg', { tabindex: 0, role: 'img', 'aria-label': 'Timeline of all ranks: + and - zoom, arrow keys move',
      onpointerdown: (event) => this.beginDrag(event), onpointermove: (event) => this.movePointer(event), onpointerup: (event) => this.finishDrag(event),
      onpointerleave: () => { this.values.hidden = true; }, onkeydown: (event) => this.onKey(event), ondblclick: () => this.zoom(null) },
    this.lanes, this.axis, this.chosen);
    this.values = h('div', { class: 'values', role: 'status', hidden: true });
    this.element = h('figure', { class: 'chart timeline', hidden: true },
      h('figcaption', null, h('h3', null, 'Timeline'), this.note, h('span', { class: 'grow' }), this.showAllButton,
        h('button', { type: 'button', class: 'quiet', title: 'A trace for Perfetto or chrome://tracing', onclick: () => this.save() }, 'JSON')),
      h('div', { class: 'ground' }, this.canvas, this.values));
    this.resizeObserver = new ResizeObserver(() => this.draw());
    this.resizeObserver.observe(this.canvas);
  }

  set(timeline) {
    Object.assign(this, { timeline, shown: true, started: timeline.started, range: null });
    const tensors = new Map();
    const ranks = new Map();
    for (const event of timeline.traceEvents) {
      if (event.name === 'thread_name') tensors.set(`${event.pid} ${event.tid}`, event.args.name);
      if (event.ph !== 'X') continue;
      if (!ranks.has(event.pid)) ranks.set(event.pid, { rank: event.pid, waits: [], works: [] });
      const rank = ranks.get(event.pid);
      const span = { name: event.name, tensor: tensors.get(`${event.pid} ${event.tid}`) ?? '', from: event.ts, to: event.ts + event.dur };
      if (event.name.startsWith('NEGOTIATE_')) rank.waits.push(span);
      // Activities inside an operation are left to other viewers.
      else if (/^(ALL|BROAD|REDUCE|ADASUM)/.test(event.name)) rank.works.push(span);
    }
    this.ranks = [...ranks.values()].sort((a, b) => a.rank - b.rank);
    for (const { waits, works } of this.ranks) for (const spans of [waits, works]) spans.sort((a, b) => a.from - b.from);
    const ends = this.ranks.flatMap(({ waits, works }) => [...waits, ...works]);
    this.bounds = [ends.reduce((min, { from }) => Math.min(min, from), Infinity), ends.reduce((max, { to }) => Math.max(max, to), 0)];
    if (!ends.length) this.bounds = [0, timeline.seconds * 1e6];
    const facts = [plural(timeline.ranks, 'rank'), `${timeline.seconds} s`, clock(timeline.started)];
    if (timeline.dropped) facts.push(`${timeline.dropped.toLocaleString()} events did not fit`);
    if (timeline.silent?.length) facts.push(`no answer from ${timeline.silent.join(', ')}`);
    text(this.note, facts.join(' · '));
    mark(this.element, 'hidden', null);
    this.canvas.style.height = `${TOP + this.ranks.length * LANE + AXIS}px`;
    this.draw();
  }

  draw() {
    const { width } = this.canvas.getBoundingClientRect();
    if (!this.shown || width < 100) return;
    const [low, high] = this.range ?? this.bounds;
    this.xOf = scale([low, high], [LEFT, width - RIGHT], false);
    mark(this.showAllButton, 'hidden', this.range ? null : '');
    keyed(this.lanes, this.ranks, (rank) => rank.rank, (rank) => svg('g', null, svg('text', { x: LEFT - 8, 'text-anchor': 'end' }, `rank ${rank.rank}`),
      svg('path', { class: 'waits' }), svg('path', { class: 'works' })), (lane, rank) => {
      const top = TOP + this.ranks.indexOf(rank) * LANE;
      mark(lane.firstChild, 'y', top + 16);
      lane.children[1].setAttribute('d', this.spansPath(rank.waits, top, WAIT, low, high));
      lane.children[2].setAttribute('d', this.spansPath(rank.works, top + WAIT + 1, WORK, low, high));
    });
    const marks = ticks(0, (high - low) / 1000, Math.max(2, Math.floor((width - LEFT) / 90)));
    const bottom = TOP + this.ranks.length * LANE;
    keyed(this.axis, marks, (tick) => tick, () => svg('g', null, svg('line', { y1: TOP }), svg('text', { 'text-anchor': 'middle' })), (one, tick) => {
      const x = Math.round(this.xOf(low + tick * 1000)) + 0.5;
      for (const side of ['x1', 'x2']) mark(one.firstChild, side, x);
      mark(one.firstChild, 'y2', bottom);
      mark(one.lastChild, 'x', x);
      mark(one.lastChild, 'y', bottom + 15);
      text(one.lastChild, `${tickText(tick, marks[1] - marks[0])} ms`);
    });
    mark(this.chosen, 'height', bottom);
  }

  // One SVG path per lane, however many spans it has.
  spansPath(spans, top, height, low, high) {
    let path = '';
    let open = null;
    const close = () => { if (open) path += `M${open[0].toFixed(1)} ${top}H${Math.max(open[1], open[0] + 0.7).toFixed(1)}v${height}H${open[0].toFixed(1)}z`; };
    for (const { from, to } of spans) {
      if (to < low || from > high) continue;
      const [left, right] = [this.xOf(Math.max(from, low)), this.xOf(Math.min(to, high))];
      if (open && left - open[1] < MERGE_DISTANCE_PX) open[1] = Math.max(open[1], right);
      else { close(); open = [left, right]; }
    }
    close();
    return path;
  }

  locate(event) {
    const box = this.canvas.getBoundingClientRect();
    const [low, high] = this.range ?? this.bounds;
    const x = Math.min(Math.max(event.clientX - box.left, LEFT), box.width - RIGHT);
    const time = low + ((x - LEFT) / (box.width - RIGHT - LEFT)) * (high - low);
    return { x, time, near: ((high - low) / (box.width - RIGHT - LEFT)) * 2, rank: this.ranks[Math.floor((event.clientY - box.top - TOP) / LANE)], left: x > box.width / 2 };
  }

  beginDrag(event) {
    this.drag = this.locate(event);
    this.canvas.setPointerCapture(event.pointerId);
  }

  movePointer(event) {
    const { x, time, near, rank, left } = this.locate(event);
    if (this.drag) {
      mark(this.chosen, 'visibility', Math.abs(x - this.drag.x) > 4 ? null : 'hidden');
      mark(this.chosen, 'x', Math.min(x, this.drag.x));
      mark(this.chosen, 'width', Math.abs(x - this.drag.x));
    }
    const isNear = ({ from, to }) => from - near <= time && time <= to + near;
    const spans = rank ? [...rank.works.filter(isNear), ...rank.waits.filter(isNear)] : [];
    this.values.hidden = !spans.length;
    if (!spans.length) return;
    this.values.classList.toggle('left', left);
    const row = (span) => h('div', null, h('i', { class: span.name.startsWith('NEGOTIATE_') ? 'ink4' : 'ink0' }),
      h('span', null, `${span.name.startsWith('NEGOTIATE_') ? 'waits for ' : `${span.name.toLowerCase()} `}${span.tensor}`),
      h('em', null, `${((span.to - span.from) / 1000).toFixed(2)} ms`));
    put(this.values, h('b', null, `rank ${rank.rank}, ${((time - this.bounds[0]) / 1000).toFixed(1)} ms`), spans.slice(0, MAX_LISTED_SPANS).map(row),
      spans.length > MAX_LISTED_SPANS ? `and ${spans.length - MAX_LISTED_SPANS} more` : null);
  }

  finishDrag(event) {
    const [from, to] = [this.drag, this.locate(event)];
    this.drag = null;
    mark(this.chosen, 'visibility', 'hidden');
    if (from && Math.abs(to.x - from.x) > 4) this.zoom([Math.min(from.time, to.time), Math.max(from.time, to.time)]);
  }

  zoom(range) {
    this.range = range;
    this.draw();
  }

  onKey(event) {
    const [low, high] = this.range ?? this.bounds;
    const [middle, half, quarter] = [(low + high) / 2, (high - low) / 2, (high - low) / 4];
    const to = { '+': [middle - half / 2, middle + half / 2], '-': [middle - half * 2, middle + half * 2], ArrowLeft: [low - quarter, high - quarter],
      ArrowRight: [low + quarter, high + quarter], Home: this.bounds, Escape: this.bounds }[event.key];
    if (!to) return;
    event.preventDefault();
    const [from, until] = [Math.max(this.bounds[0], to[0]), Math.min(this.bounds[1], to[1])];
    this.zoom(from <= this.bounds[0] && until >= this.bounds[1] ? null : [from, Math.max(until, from + 1)]);
  }

  save() {
    save(new Blob([JSON.stringify(this.timeline)], { type: 'application/json' }), `${this.name}-timeline.json`);
  }

  end() {
    this.resizeObserver.disconnect();
  }
}
