// Table of the GPUs of a job or node: utilization, memory, power, temperature and ECC errors. Hidden without GPUs.

import { h, mark, text } from './dom.js';
import { bytes, setState, table } from './components.js';
import { numberOf } from './node-tiles.js';

const value = (number, unit) => (number === undefined ? '–' : `${Math.round(number)}${unit}`);

export class GpuTable {
  constructor() {
    this.table = table({
      label: 'GPUs', key: (gpu) => gpu.key,
      columns: [
        { title: 'GPU', label: 'GPU', width: '120px', sort: (gpu) => gpu.key, make: () => h('span', { class: 'rank' }),
          fill: (cell, gpu) => text(cell.firstChild, gpu.label) },
        { title: 'Model', width: 'minmax(0, 2fr)', sort: (gpu) => gpu.name, wide: true, fill: (cell, gpu) => text(cell, gpu.name) },
        { title: 'State', width: 'minmax(104px, 1fr)', sort: (gpu) => gpu.state, make: () => h('span', { class: 'state' }),
          fill: (cell, gpu) => setState(cell.firstChild, gpu.hue, gpu.state) },
        { title: 'Use', label: 'use', width: '130px', number: true, sort: (gpu) => gpu.utilizationPercent,
          make: () => [h('span', { class: 'meter' }, h('i')), h('span')], fill: (cell, gpu) => {
          mark(cell.firstChild, 'hidden', gpu.utilizationPercent === undefined ? '' : null);
          cell.firstChild.firstChild.style.width = `${Math.min(100, gpu.utilizationPercent ?? 0)}%`;
          text(cell.lastChild, value(gpu.utilizationPercent, ' %'));
        } },
        { title: 'Memory', width: '150px', number: true, sort: (gpu) => gpu.memoryUsedBytes, fill: (cell, gpu) => {
          const [used, total] = [gpu.memoryUsedBytes, gpu.memoryTotalBytes].map((size) => (size === undefined ? '–' : bytes(size)));
          text(cell, `${used} of ${total}`);
        } },
        { title: 'Power', label: 'power', width: '76px', number: true, sort: (gpu) => gpu.powerWatts, fill: (cell, gpu) => text(cell, value(gpu.powerWatts, ' W')) },
        { title: 'Temperature', label: 'temperature', width: '106px', number: true, sort: (gpu) => gpu.temperatureCelsius,
          fill: (cell, gpu) => text(cell, value(gpu.temperatureCelsius, ' °C')) },
        { title: 'ECC errors', label: 'ECC errors', width: '92px', number: true, sort: (gpu) => gpu.eccErrors, fill: (cell, gpu) => text(cell, value(gpu.eccErrors, '')) },
      ],
    });
    this.element = h('div', { id: 'gpus', hidden: true }, this.table.element);
  }

  /** `nodes`: `[{nodeId, gpus}]` as in the API; GPUs of several nodes are named with the number of their node. */
  set(nodes) {
    const rows = nodes.flatMap(({ nodeId, gpus = [] }) => gpus.map((gpu) => ({
      ...gpu, key: `${nodeId} ${gpu.gpu}`, label: nodes.length > 1 ? `${gpu.gpu} of node ${numberOf(nodeId)}` : `${gpu.gpu}`, ...stateOf(gpu),
    })));
    mark(this.element, 'hidden', rows.length ? null : '');
    this.table.set(rows);
  }
}

function stateOf(gpu) {
  if (gpu.lost) return { hue: 'failed', state: gpu.errors?.length ? `lost, Xid ${gpu.errors[0].xid}` : 'lost' };
  if (gpu.silent) return { hue: 'unusable', state: 'no answer' };
  return gpu.utilizationPercent ? { hue: 'running', state: 'busy' } : { hue: 'idle', state: 'idle' };
}
