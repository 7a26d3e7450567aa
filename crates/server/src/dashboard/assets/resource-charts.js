// Charts of CPU, memory and GPUs over time, with a line per node, or per GPU of the only node.

import { Chart } from './chart.js';
import { h, mark } from './dom.js';

/** Longer times without a point are gaps: nothing ran, or the server did not. */
const MAX_GAP_MS = 45_000;
const MAX_AVERAGE_GAP_MS = 330_000;
const RECENT_MS = 1_800_000;
const MEGABYTE = 1e6;
const GIGABYTE = 1e9;

// Title, unit, file and value of the charts of GPUs.
const GPU_CHARTS = [
  ['GPU use', '%', 'gpu', (gpu) => gpu.utilizationPercent],
  ['GPU memory', 'GB', 'gpu-memory', (gpu) => gpu.memoryBytes / GIGABYTE],
  ['GPU power', 'W', 'gpu-power', (gpu) => gpu.powerWatts],
  ['GPU temperature', '°C', 'gpu-temperature', (gpu) => gpu.temperatureCelsius],
];

export class ResourceCharts {
  /** `file` is the prefix of downloads, `id` that of the element. */
  constructor(file, id) {
    const chart = (title, unit, name) => new Chart(title, { unit, xName: 'time', file: `${file}-${name}` });
    this.cpu = chart('CPU', '% of a core', 'cpu');
    this.memory = chart('Memory', 'MB', 'memory');
    this.gpus = GPU_CHARTS.map(([title, unit, name, read]) => ({ chart: chart(title, unit, name), read }));
    this.hasPoints = false;
    this.element = h('div', { class: 'plots', id }, this.cpu.element, this.memory.element, this.gpus.map(({ chart: { element } }) => element));
  }

  /** `lines`: `[{label, points}]` with the points of the API; `origin` is the time that counts as zero. */
  set(lines, origin) {
    this.hasPoints = lines.some((line) => line.points.length > 0);
    const withPoints = lines.filter((line) => line.points.length);
    const drawn = (read) => withPoints.map(({ label, points }, ink) => ({ key: label, label, ink, points: withGaps(points, read, origin) }));
    this.cpu.set({ lines: drawn((point) => point.cpuPercent) });
    this.memory.set({ lines: drawn((point) => point.memoryBytes / MEGABYTE) });
    const gpuLines = linesOfGpus(withPoints);
    for (const { chart, read } of this.gpus) {
      const shown = gpuLines.map(({ label, points, choose }, ink) => (
        { key: label, label, ink, points: withGaps(points, (point) => mean(choose(point).map(read)), origin) }));
      const known = shown.filter((line) => line.points.some(([, y]) => Number.isFinite(y)));
      mark(chart.element, 'hidden', known.length ? null : '');
      chart.set({ lines: known });
    }
  }

  end() {
    for (const chart of [this.cpu, this.memory, ...this.gpus.map((gpu) => gpu.chart)]) chart.end();
  }
}

// A line for each GPU of the only node, or the mean of each node's.
function linesOfGpus(lines) {
  if (lines.length !== 1) {
    const withGpus = lines.filter(({ points }) => points.some((point) => point.gpus?.length));
    return withGpus.map((line) => ({ ...line, choose: (point) => point.gpus ?? [] }));
  }
  const { points } = lines[0];
  const numbers = [...new Set(points.flatMap((point) => (point.gpus ?? []).map(({ gpu }) => gpu)))].sort((a, b) => a - b);
  return numbers.map((number) => ({ label: `GPU ${number}`, points, choose: (point) => (point.gpus ?? []).filter(({ gpu }) => gpu === number) }));
}

// NaN without any number.
function mean(values) {
  const known = values.filter(Number.isFinite);
  return known.reduce((sum, value) => sum + value, 0) / known.length;
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
