// Charts of CPU and memory over time, with a line per node.

import { Chart } from './chart.js';
import { h } from './dom.js';

/** Longer times without a point are gaps: nothing ran, or the server did not. */
const MAX_GAP_MS = 45_000;
const MAX_AVERAGE_GAP_MS = 330_000;
const RECENT_MS = 1_800_000;
const MEGABYTE = 1e6;

export class ResourceCharts {
  /** `file` is the prefix of downloads, `id` that of the element. */
  constructor(file, id) {
    this.cpu = new Chart('CPU', { unit: '% of a core', xName: 'time', file: `${file}-cpu` });
    this.memory = new Chart('Memory', { unit: 'MB', xName: 'time', file: `${file}-memory` });
    this.hasPoints = false;
    this.element = h('div', { class: 'plots', id }, this.cpu.element, this.memory.element);
  }

  /** `lines`: `[{label, points}]` with the points of the API; `origin` is the time that counts as zero. */
  set(lines, origin) {
    this.hasPoints = lines.some((line) => line.points.length > 0);
    const drawn = (read) => lines.filter((line) => line.points.length).map(({ label, points }, ink) => ({ key: label, label, ink, points: withGaps(points, read, origin) }));
    this.cpu.set({ lines: drawn((point) => point.cpuPercent) });
    this.memory.set({ lines: drawn((point) => point.memoryBytes / MEGABYTE) });
  }

  end() {
    this.cpu.end();
    this.memory.end();
  }
}

// Points [seconds, value]; a gap is a value that is no number.
function withGaps(points, read, origin) {
  const drawn = [];
  const newest = Date.parse(points.at(-1)?.time);
  let last = null;
  for (const point of points) {
    const at = Date.parse(point.time);
    const most = newest - at > RECENT_MS ? MAX_AVERAGE_GAP_MS : MAX_GAP_MS;
    if (last !== null && at - last > most) drawn.push([(last - origin) / 1000 + 1, NaN]);
    drawn.push([(at - origin) / 1000, read(point)]);
    last = at;
  }
  return drawn;
}
