// Chart of a cluster's nodes over time: how many there were and how many were busy.

import { api } from './api.js';
import { h, mark, put, svg, text } from './dom.js';
import { panel, plural } from './components.js';
import { shortClock } from './times.js';

const SPANS = [[1, '1 h'], [24, '24 h'], [168, '7 d']];
const [HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [168, 34, 12, 10, 24];

/** Returns `{element, refresh(), end()}` for the cluster with this id. */
export function history(id) {
  let hours = 1, response = null;
  const chart = h('div', { class: 'chart' });
  const value = h('p', { class: 'soft small', 'aria-live': 'off' });
  const spans = SPANS.map(([span, label]) => h('button', { type: 'button', 'aria-pressed': String(span === hours), onclick: () => {
    hours = span;
    spans.forEach((button, at) => mark(button, 'aria-pressed', String(SPANS[at][0] === span)));
    refresh();
  } }, label));
  const element = panel('Size and use', [
    h('span', { class: 'key nodes' }, 'nodes'), h('span', { class: 'key busy' }, 'at work'),
    h('span', { class: 'grow' }), value, h('div', { class: 'tabs', role: 'group', 'aria-label': 'How far back' }, spans),
  ], h('div', { class: 'body' }, chart));
  const resizeObserver = new ResizeObserver(() => draw());
  resizeObserver.observe(chart);

  async function refresh() {
    response = await api.get(`${id}/history`, { hours });
    draw();
  }

  function draw() {
    const width = Math.floor(chart.clientWidth);
    if (!response || !width) return;
    const [since, until] = [Date.parse(response.since), Date.parse(response.until)];
    const points = response.points.map((point) => ({ ...point, at: Date.parse(point.time) }));
    const maxNodes = Math.max(1, ...points.map((point) => point.nodes));
    const x = (at) => LEFT + ((width - LEFT - RIGHT) * (at - since)) / (until - since);
    const y = (count) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - count / maxNodes);
    const area = (field) => {
      const steps = points.map((point, at) => `L${x(point.at).toFixed(1)} ${y(at ? points[at - 1][field] : point[field]).toFixed(1)}L${x(point.at).toFixed(1)} ${y(point[field]).toFixed(1)}`);
      const last = points.at(-1)?.[field] ?? 0;
      return `M${x(since).toFixed(1)} ${y(0)}${steps.join('')}L${x(until).toFixed(1)} ${y(last).toFixed(1)}L${x(until).toFixed(1)} ${y(0)}Z`;
    };
    const step = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((size) => maxNodes / size <= 4) ?? 1000;
    const lines = [];
    for (let count = 0; count <= maxNodes; count += step) {
      lines.push(svg('line', { class: 'grid', x1: LEFT, x2: width - RIGHT, y1: y(count), y2: y(count) }),
        svg('text', { class: 'tick', x: LEFT - 8, y: y(count) + 4, 'text-anchor': 'end' }, count));
    }
    const ticks = Math.max(2, Math.min(6, Math.floor(width / 140)));
    for (let n = 0; n <= ticks; n += 1) {
      const at = since + ((until - since) * n) / ticks;
      const anchor = n === 0 ? 'start' : n === ticks ? 'end' : 'middle';
      lines.push(svg('text', { class: 'tick', x: x(at), y: HEIGHT - 6, 'text-anchor': anchor }, shortClock(at)));
    }
    const cursor = svg('line', { class: 'cursor', y1: TOP, y2: HEIGHT - BOTTOM, visibility: 'hidden' });
    const peak = `${plural(maxNodes, 'node')} at most`;
    put(chart, svg('svg', { width, height: HEIGHT, role: 'img', 'aria-label': `Nodes over time, ${peak}`,
      onpointermove: (event) => {
        const at = since + ((event.offsetX - LEFT) / (width - LEFT - RIGHT)) * (until - since);
        const point = points.findLast((one) => one.at <= at) ?? points[0];
        if (!point || at > until) return;
        cursor.setAttribute('x1', event.offsetX);
        cursor.setAttribute('x2', event.offsetX);
        cursor.setAttribute('visibility', 'visible');
        text(value, `${shortClock(at)}: ${plural(point.nodes, 'node')}, ${point.busy} at work`);
      },
      onpointerleave: () => { cursor.setAttribute('visibility', 'hidden'); text(value, ''); },
    }, lines, svg('path', { class: 'nodes', d: area('nodes') }), svg('path', { class: 'busy', d: area('busy') }), cursor));
  }

  return { element, refresh, end: () => resizeObserver.disconnect() };
}
