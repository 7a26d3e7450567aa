// Line chart as SVG: axes, legend, crosshair with the values of all lines. New points update only what changes. A line is
// {key, label, ink, thin, points}: points are [x, y] sorted by x, ink is an index of the palette; thin lines (single ranks) are
// drawn behind the others and share a colour.

import { h, keyed, mark, put, svg, text } from './dom.js';
import { toCsv, toPng, save } from './chart-export.js';
import { covers, duration, logTicks, nearest, path, scale, short, smoothed, tickText, ticks, timeTicks, withUnit } from './chart-scale.js';

const [TOP, RIGHT, BOTTOM] = [8, 12, 22];
export const INKS = 8;

export class Chart {
  constructor(title, { unit = '', xName = 'step', file = title } = {}) {
    Object.assign(this, { title, unit, xName, file, lines: [], hidden: new Set(), isLog: false, weight: 0, at: null, paths: new Map() });
    this.frame = null;
    this.drawn = new Map();
    this.lastText = h('span', { class: 'last' });
    this.logButton = h('button', { class: 'quiet', type: 'button', 'aria-pressed': 'false', title: 'Logarithmic scale',
      onclick: () => this.set({ isLog: !this.isLog }) }, 'log');
    this.grid = svg('g', { class: 'grid' });
    this.texts = svg('g', { class: 'ticks' });
    this.curves = svg('g', { class: 'curves' });
    this.rule = svg('line', { class: 'rule' });
    this.dots = svg('g');
    this.cross = svg('g', { class: 'cross', visibility: 'hidden' }, this.rule, this.dots);
    this.canvas = svg('svg', {
      tabindex: 0, role: 'img', 'aria-label': `${title}: arrow keys move through the values`,
      onpointermove: (event) => this.moveCrosshair(event), onpointerdown: (event) => this.moveCrosshair(event),
      onpointerleave: () => this.look(null), onblur: () => this.look(null), onkeydown: (event) => this.onKey(event),
    }, this.grid, this.texts, this.curves, this.cross);
    this.values = h('div', { class: 'values', role: 'status', hidden: true });
    this.legend = h('ul', { class: 'keys' });
    const tool = (label, description, action) => h('button', { class: 'quiet', type: 'button', title: description, onclick: action }, label);
    this.element = h('figure', { class: 'chart' },
      h('figcaption', null, h('h3', null, title), this.lastText, h('span', { class: 'grow' }), this.logButton,
        tool('CSV', 'Download the points as CSV', () => this.saveCsv()), tool('PNG', 'Download as PNG', () => this.savePng())),
      h('div', { class: 'ground' }, this.canvas, this.values), this.legend);
    this.resizeObserver = new ResizeObserver(() => this.scheduleDraw());
    this.resizeObserver.observe(this.canvas);
  }

  /** Sets lines and options: `lines`, `isLog`, `weight` (of smoothing), `xName` ('time' is in seconds). */
  set(changes) {
    Object.assign(this, changes);
    mark(this.logButton, 'aria-pressed', String(this.isLog));
    this.scheduleDraw();
  }

  end() {
    this.resizeObserver.disconnect();
    cancelAnimationFrame(this.frame);
  }

  scheduleDraw() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.draw();
    });
  }

  visibleLines() {
    return this.lines.filter((line) => !this.hidden.has(line.legend ?? line.label));
  }

  draw() {
    const { width, height } = this.canvas.getBoundingClientRect();
    if (width < 40) return;
    const lines = this.visibleLines();
    const stamp = (line) => `${line.points.length}/${line.points.at(-1)?.join()}/${this.weight}`;
    for (const line of lines) {
      const cached = this.drawn.get(line.key);
      if (cached?.stamp === stamp(line)) continue;
      const drawnPoints = line.thin ? line.points : smoothed(line.points, this.weight);
      this.drawn.set(line.key, { stamp: stamp(line), points: drawnPoints });
    }
    const [xs, ys] = this.bounds(lines.map((line) => this.drawn.get(line.key).points));
    const yTicks = this.isLog ? logTicks(ys[0], ys[1], 4) : ticks(ys[0], ys[1], height < 150 ? 3 : 4);
    const yText = (tick) => tickText(tick, this.isLog ? tick : yTicks[1] - yTicks[0]);
    const left = Math.round(14 + Math.max(3, ...yTicks.map((tick) => yText(tick).length)) * 6.7);
    this.box = { left, right: width - RIGHT, top: TOP, bottom: Math.round(height) - BOTTOM, xs, ys };
    const { right, top, bottom } = this.box;
    this.xOf = scale(xs, [left, right], false);
    this.yOf = scale(ys, [bottom, top], this.isLog);
    const isTime = this.xName === 'time';
    const nTicks = Math.max(2, Math.floor((right - left) / 70));
    const xTicks = isTime ? timeTicks(xs[0], xs[1], nTicks) : ticks(xs[0], xs[1], nTicks);
    const xText = (tick) => (isTime ? duration(tick) : tick >= 1e6 ? short(tick) : tickText(tick, xTicks[1] - xTicks[0]));
    this.drawAxes(xTicks, xText, yTicks, yText);
    this.drawCurves(lines);
    text(this.lastText, this.lastValue(lines));
    this.drawLegend();
    if (this.at !== null) this.look(this.at);
  }

  // Range of all visible points; a constant gets a margin.
  bounds(all) {
    const [xs, ys] = [[Infinity, -Infinity], [Infinity, -Infinity]];
    for (const points of all) {
      for (const [x, y] of points) {
        if (!Number.isFinite(y) || (this.isLog && y <= 0)) continue;
        if (x < xs[0]) xs[0] = x;
        if (x > xs[1]) xs[1] = x;
        if (y < ys[0]) ys[0] = y;
        if (y > ys[1]) ys[1] = y;
      }
    }
    if (xs[0] > xs[1]) return [[0, 1], this.isLog ? [0.1, 1] : [0, 1]];
    if (xs[0] === xs[1]) xs[1] += 1;
    if (this.isLog) return [xs, ys[0] === ys[1] ? [ys[0] / 2, ys[1] * 2] : ys];
    const margin = (ys[1] - ys[0]) * 0.06 || Math.abs(ys[0]) * 0.1 || 1;
    return [xs, [ys[0] >= 0 ? Math.max(0, ys[0] - margin) : ys[0] - margin, ys[1] + margin]];
  }

  drawAxes(xTicks, xText, yTicks, yText) {
    const { left, right, top, bottom } = this.box;
    const crisp = (pixel) => Math.round(pixel) + 0.5;
    const rows = yTicks.map((tick) => ({ key: `y${tick}`, y: crisp(this.yOf(tick)), label: yText(tick) }));
    const columns = xTicks.map((tick) => ({ key: `x${tick}`, x: crisp(this.xOf(tick)), label: xText(tick) }));
    const set = (element, attributes) => Object.entries(attributes).forEach(([name, value]) => mark(element, name, value));
    keyed(this.grid, [...rows, { key: 'base', y: bottom + 0.5 }], (row) => row.key, () => svg('line'), (line, row) => {
      set(line, { x1: left, x2: right, y1: row.y, y2: row.y, class: row.key === 'base' ? 'base' : null });
    });
    keyed(this.texts, [...rows, ...columns], (tick) => tick.key, () => svg('text'), (label, tick) => {
      const isRow = tick.y !== undefined;
      set(label, isRow
        ? { x: left - 8, y: tick.y + 3.5, 'text-anchor': 'end' }
        : { x: tick.x, y: bottom + 16, 'text-anchor': tick.x > right - 14 ? 'end' : 'middle' });
      text(label, tick.label);
    });
    set(this.rule, { y1: top, y2: bottom });
  }

  // A path is rebuilt only if its points or the scales changed.
  drawCurves(lines) {
    const { left, right, top, bottom, xs, ys } = this.box;
    const frame = [left, right, top, bottom, ...xs, ...ys, this.isLog].join();
    const inOrder = [...lines].sort((a, b) => Number(Boolean(b.thin)) - Number(Boolean(a.thin)));
    keyed(this.curves, inOrder, (line) => line.key, () => svg('path', { 'vector-effect': 'non-scaling-stroke' }), (curve, line) => {
      const { stamp, points } = this.drawn.get(line.key);
      mark(curve, 'class', `ink${line.ink % INKS}${line.thin ? ' thin' : ''}${line.ink >= INKS ? ' dashed' : ''}`);
      if (curve.corroStamp === `${frame} ${stamp}`) return;
      curve.corroStamp = `${frame} ${stamp}`;
      curve.setAttribute('d', path(points, this.xOf, this.yOf));
      const only = points.length === 1 && Number.isFinite(points[0][1]);
      mark(curve, 'stroke-linecap', only ? 'round' : null);
      if (only) curve.setAttribute('d', `M${this.xOf(points[0][0])} ${this.yOf(points[0][1])}h.01`);
    });
  }

  lastValue(lines) {
    const thick = lines.filter((line) => !line.thin);
    const only = thick.length === 1 ? thick[0] : lines.length === 1 ? lines[0] : null;
    return only ? withUnit(only.points.at(-1)?.[1], this.unit) : '';
  }

  // All ranks share one legend entry; a click toggles a line.
  drawLegend() {
    const entries = new Map();
    for (const line of this.lines) {
      const name = line.legend ?? line.label;
      if (!entries.has(name)) entries.set(name, { name, line });
    }
    this.legend.hidden = entries.size < 2;
    keyed(this.legend, entries.values(), (entry) => entry.name, ({ name }) => h('li', null, h('button', {
      type: 'button', class: 'quiet', onclick: () => {
        if (!this.hidden.delete(name)) this.hidden.add(name);
        this.scheduleDraw();
      },
    }, h('i'), h('span', null, name))), (item, { name, line }) => {
      mark(item.firstChild, 'aria-pressed', String(!this.hidden.has(name)));
      mark(item.firstChild.firstChild, 'class', `ink${line.ink % INKS}${line.thin ? ' thin' : ''}${line.ink >= INKS ? ' dashed' : ''}`);
    });
  }

  moveCrosshair(event) {
    if (!this.box) return;
    const { left, right, xs } = this.box;
    const pixel = event.clientX - this.canvas.getBoundingClientRect().left;
    this.look(xs[0] + ((pixel - left) / (right - left)) * (xs[1] - xs[0]));
  }

  // The crosshair snaps to the nearest point, so that the values are exact.
  look(x) {
    const lines = x === null || !this.box ? [] : this.visibleLines().filter((line) => line.points.length);
    mark(this.cross, 'visibility', lines.length ? null : 'hidden');
    this.values.hidden = !lines.length;
    this.at = lines.length ? x : null;
    if (!lines.length) return;
    const thick = lines.filter((line) => !line.thin);
    const clamped = Math.min(Math.max(x, this.box.xs[0]), this.box.xs[1]);
    const stops = (thick.length ? thick : lines).map((line) => line.points[nearest(line.points, clamped)][0]);
    const snapped = stops.reduce((best, stop) => (Math.abs(stop - clamped) < Math.abs(best - clamped) ? stop : best));
    this.at = snapped;
    const pixel = Math.round(this.xOf(snapped)) + 0.5;
    for (const side of ['x1', 'x2']) this.rule.setAttribute(side, pixel);
    // Lines that do not cover this x have no value.
    const values = lines.filter((line) => covers(line.points, snapped)).map((line) => ({ line,
      point: this.drawn.get(line.key)?.points[nearest(line.points, snapped)] })).filter(({ point }) => point);
    keyed(this.dots, values.filter(({ line, point }) => !line.thin && Number.isFinite(this.yOf(point[1]))), ({ line }) => line.key,
      () => svg('circle', { r: 3.5 }), (dot, { line, point }) => {
      mark(dot, 'class', `ink${line.ink % INKS}`);
      mark(dot, 'cx', this.xOf(point[0]).toFixed(1));
      mark(dot, 'cy', this.yOf(point[1]).toFixed(1));
    });
    const position = this.xName === 'time' ? duration(snapped) : `${this.xName} ${short(snapped)}`;
    put(this.values, h('b', null, position), values.slice(0, 14).map(({ line, point }) => h('div', null,
      h('i', { class: `ink${line.ink % INKS}${line.thin ? ' thin' : ''}` }), h('span', null, line.label),
        h('em', null, withUnit(point[1], this.unit)))));
    this.values.classList.toggle('left', pixel > (this.box.left + this.box.right) / 2);
  }

  // Moves along the points of the longest line.
  onKey(event) {
    const lines = this.visibleLines().filter((line) => line.points.length);
    const thick = lines.filter((line) => !line.thin);
    const [leading] = (thick.length ? thick : lines).sort((a, b) => b.points.at(-1)[0] - a.points.at(-1)[0]);
    if (!leading) return;
    const { points } = leading;
    const now = this.at === null ? points.length - 1 : nearest(points, this.at);
    const pageStep = Math.max(1, Math.round(points.length / 20));
    const to = { ArrowLeft: now - 1, ArrowRight: now + 1, PageUp: now - pageStep, PageDown: now + pageStep, Home: 0,
      End: points.length - 1 }[event.key];
    if (to === undefined) return event.key === 'Escape' ? this.look(null) : undefined;
    event.preventDefault();
    this.look(points[Math.min(Math.max(to, 0), points.length - 1)][0]);
  }

  saveCsv() {
    save(new Blob([toCsv(this.visibleLines(), ['series', this.xName, 'value'])], { type: 'text/csv' }), `${this.file}.csv`);
  }

  async savePng() {
    const inkOf = (line) => getComputedStyle(this.curves.corroKeyed.get(line.key)).stroke;
    const legend = this.visibleLines().filter((line) => !line.thin).map((line) => ({ label: line.label, ink: inkOf(line) }));
    save(await toPng(this.canvas, this.unit ? `${this.title} (${this.unit})` : this.title, legend), `${this.file}.png`);
  }
}
