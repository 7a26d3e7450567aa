// A job's ranks by node: resource use while running, with that of its GPUs, and exit status afterwards.

import { api } from './api.js';
import { h, mark, text } from './dom.js';
import { bytes, setState, table } from './components.js';
import { GpuTable } from './gpu-table.js';
import { short } from './times.js';

const STATES = { R: 'running', S: 'sleeping', I: 'sleeping', D: 'disk', T: 'stopped', t: 'stopped', Z: 'ended', X: 'ended' };

export class JobRanks {
  /** `onProcesses` is called with the processes that the nodes report, or null; `onRows` with the number of listed ranks. */
  constructor(id, onProcesses, onRows) {
    Object.assign(this, { id, onProcesses, onRows, busy: false });
    this.table = table({
      label: 'Ranks', key: (row) => row.key, empty: 'Nothing runs yet.',
      columns: [
        { title: 'Rank', label: 'rank', width: '92px', sort: (row) => row.rank ?? -1, make: () => h('span', { class: 'rank' }),
          fill: (cell, row) => { text(cell.firstChild, row.name); } },
        { title: 'Node', width: 'minmax(0, 2fr)', sort: (row) => row.node, wide: true,
          make: (row) => h('span', { class: 'mono', title: row.node }, row.node) },
        { title: 'State', width: '104px', sort: (row) => row.state, make: () => h('span', { class: 'state' }),
          fill: (cell, row) => setState(cell.firstChild, row.hue, row.state) },
        { title: 'CPU', width: '130px', number: true, sort: (row) => row.cpu,
          make: () => [h('span', { class: 'meter' }, h('i')), h('span')], fill: (cell, row) => {
          mark(cell.firstChild, 'hidden', row.cpu === undefined ? '' : null);
          cell.firstChild.firstChild.style.width = `${Math.min(100, row.cpu ?? 0)}%`;
          text(cell.lastChild, row.cpu === undefined ? '' : `${row.cpu.toFixed(0)} %`);
        } },
        { title: 'Memory', width: '88px', number: true, sort: (row) => row.memory,
          fill: (cell, row) => text(cell, row.memory === undefined ? '' : bytes(row.memory)) },
        { title: 'Threads', label: 'threads', width: '68px', number: true, sort: (row) => row.threads,
          fill: (cell, row) => text(cell, row.threads ?? '') },
        { title: 'Last output', label: 'wrote', width: '104px', number: true, sort: (row) => row.quiet,
          fill: (cell, row) => text(cell, row.quiet === undefined ? '' : `${short(row.quiet)} ago`) },
      ],
    });
    this.gpus = new GpuTable();
    this.element = h('div', { id: 'ranks' }, this.table.element, this.gpus.element);
  }

  /** Sets the job's properties; `steps` name its nodes. */
  set(properties, steps) {
    this.properties = properties;
    const { executionState: state, executionInfo: info } = properties;
    if (state === 'running') return this.refresh();
    this.onProcesses(null);
    this.gpus.set([]);
    if (state === 'terminating') return undefined;
    const placement = steps.findLast((step) => step.what === 'job.placed');
    const nodes = state === 'queued' ? [] : (placement?.detail?.nodes ?? []).map((node) => node.nodeId ?? node);
    const detail = (error, name) => error.details?.find((one) => one.name === name)?.value;
    const errorsByNode = new Map((info?.errors ?? []).map((error) => [detail(error, 'Node'), error]));
    this.draw(nodes.map((node) => {
      const error = errorsByNode.get(node);
      const [rank, code, signal] = error ? ['Rank', 'ExitCode', 'Signal'].map((name) => detail(error, name)) : [];
      const exit = state === 'succeeded' ? 'exit code 0' : signal ? `signal ${signal}` : code ? `exit code ${code}` : error ? error.code : 'stopped';
      return { key: node, name: rank ? `rank ${rank}` : '', node, state: exit,
        hue: state === 'succeeded' ? 'succeeded' : error ? 'failed' : 'terminating' };
    }));
    return undefined;
  }

  async refresh() {
    if (this.busy) return;
    this.busy = true;
    try {
      const report = await api.get(`${this.id}/processes`, { orNone: true });
      if (this.properties.executionState !== 'running' || !report.nodes.length) return;
      this.draw(report.nodes.flatMap((node) => this.makeRows(node)));
      this.gpus.set(report.nodes);
      this.onProcesses(report);
    } catch (error) {
      // The job was just deleted, or its nodes cannot be reached now.
      if (error.name !== 'ApiError') throw error;
    } finally { this.busy = false; }
  }

  makeRows(node) {
    if (!node.answered) return [{ key: node.nodeId, name: '', node: node.nodeId, state: 'no answer', hue: 'unusable' }];
    if (!node.processes.length) return [{ key: node.nodeId, name: '', node: node.nodeId, state: 'nothing runs', hue: 'idle' }];
    return node.processes.map((process) => ({
      key: `${node.nodeId} ${process.rank ?? 'preparation'}`, rank: process.rank,
        name: process.rank === undefined ? 'prepares' : `${process.rank}`, node: node.nodeId,
      state: STATES[process.state] ?? process.state, hue: process.state === 'R' ? 'running' : process.state === 'D' ? 'queued' : 'none',
      cpu: process.cpuPercent, memory: process.memoryBytes, threads: process.threads, quiet: process.quietForMs,
    }));
  }

  draw(rows) {
    this.onRows(rows.length);
    this.table.set(rows);
  }
}
