// Chart of an elastic job's nodes over time, with the reason of each change.

import { h, keyed, put, svg } from './dom.js';
import { panel, plural } from './components.js';
import { clock, shortClock } from './times.js';

const [HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [120, 34, 12, 10, 24];

/** Panel with the size of a job. `set(properties)` draws it; it is hidden for jobs of a fixed size. */
export class JobSize {
  constructor() {
    this.chart = h('div', { class: 'chart' });
    this.changes = h('ol', { class: 'steps size-changes' });
    this.element = panel('Size', [h('span', { class: 'key busy' }, 'nodes')],
      h('div', { class: 'body' }, this.chart, this.changes));
    this.element.hidden = true;
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.chart);
  }

  set(properties) {
    this.properties = properties;
    this.element.hidden = !properties.elastic || !properties.sizeChanges?.length;
    if (this.element.hidden) return;
    const last = properties.sizeChanges.slice(-20).reverse();
    keyed(this.changes, last, (change) => `${change.time} ${change.nodeCount} ${change.reason.message}`, (change) => h('li', null,
      h('time', { datetime: change.time, title: change.time }, clock(change.time)),
      h('span', null, plural(change.nodeCount, 'node'), h('span', { class: 'detail' }, ` ${change.reason.message}`))));
    this.draw();
  }

  draw() {
    const width = Math.floor(this.chart.clientWidth);
    if (this.element.hidden || !width) return;
    const { sizeChanges, elastic, executionInfo: info } = this.properties;
    const points = sizeChanges.map((change) => ({ at: Date.parse(change.time), nodes: change.nodeCount }));
    const [since, until] = [points[0].at, Math.max(Date.parse(info?.endTime ?? '') || Date.now(), points.at(-1).at + 1)];
    const most = Math.max(elastic.maxNodeCount, ...points.map((point) => point.nodes));
    const x = (at) => LEFT + ((width - LEFT - RIGHT) * (at - since)) / (until - since);
    const y = (count) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - count / most);
    const counts = [...new Set([0, elastic.minNodeCount, most])];
    const lines = counts.flatMap((count) => [
      svg('line', { class: 'grid', x1: LEFT, x2: width - RIGHT, y1: y(count), y2: y(count) }),
      svg('text', { class: 'tick', x: LEFT - 8, y: y(count) + 4, 'text-anchor': 'end' }, count),
    ]);
    const steps = points.map((point, at) => `L${x(point.at).toFixed(1)} ${y(at ? points[at - 1].nodes : 0).toFixed(1)}L${x(point.at).toFixed(1)} ${y(point.nodes).toFixed(1)}`);
    const area = `M${x(since).toFixed(1)} ${y(0)}${steps.join('')}L${x(until).toFixed(1)} ${y(points.at(-1).nodes).toFixed(1)}L${x(until).toFixed(1)} ${y(0)}Z`;
    const times = [[since, 'start'], [until, 'end']].map(([at, anchor]) => svg('text', { class: 'tick', x: x(at), y: HEIGHT - 6, 'text-anchor': anchor }, shortClock(at)));
    const label = `Nodes over time, ${plural(points.at(-1).nodes, 'node')} now`;
    put(this.chart, svg('svg', { width, height: HEIGHT, role: 'img', 'aria-label': label }, lines, times, svg('path', { class: 'busy', d: area })));
  }

  end() {
    this.observer.disconnect();
  }
}
