// Nodes as tiles in five states. Few nodes get labelled tiles; many get small ones with a tooltip and an accessible name. Each colour
// has its own shape.

import { h, keyed, mark, put, text } from './dom.js';
import { pageOf } from './routes.js';
import { setAgo } from './times.js';

export const NODE_STATES = ['running', 'idle', 'preparing', 'leaving', 'unusable'];
/** More nodes than this get small tiles. */
const MAX_LABELLED_TILES = 24;

/** `tvm-676767296_12-20180718t174802z-p` is number 12 of its cluster. */
export const numberOf = (nodeId) => /_(\d+)-/.exec(nodeId)?.[1] ?? nodeId;

/** An allocating node is shown as preparing. */
export const displayState = (node) => (node.state === 'allocating' ? 'preparing' : node.state);

const order = (a, b) => numberOf(a.nodeId) - numberOf(b.nodeId) || a.nodeId.localeCompare(b.nodeId);

/** Tiles of a cluster's nodes: `{element, set(nodes)}`. */
export function tiles() {
  const grid = h('ul', { class: 'tiles', 'aria-label': 'Nodes' });
  const legend = h('ul', { class: 'legend', 'aria-label': 'Nodes by state' });
  const element = h('div', { class: 'nodes' }, grid, legend);
  return {
    element,
    set(nodes) {
      const sorted = [...nodes].sort(order);
      const small = sorted.length > MAX_LABELLED_TILES;
      if (grid.classList.contains('small') !== small) {
        grid.classList.toggle('small', small);
        put(grid);
        grid.corroKeyed = null;
      }
      keyed(grid, sorted, (node) => node.nodeId, small ? makeSmall : makeTile, small ? setSmall : setTile);
      mark(grid, 'hidden', sorted.length ? null : '');
      const counts = NODE_STATES.map((name) => [name, sorted.filter((node) => displayState(node) === name).length]);
      keyed(legend, counts, ([name]) => name,
        ([name]) => h('li', { class: 'state', 'data-state': name }, h('b', {}), ` ${name}`),
        (item, [, count]) => { text(item.firstChild, count); item.classList.toggle('none', !count); });
    },
  };
}

function nodeText(node) {
  const preempted = node.preempted ? ', taken back' : '';
  return `node ${numberOf(node.nodeId)}: ${displayState(node)}${node.job ? `, ${node.job}` : ''}${preempted}`;
}

function makeSmall() {
  return h('li', { class: 'tile' });
}

function setSmall(tile, node) {
  mark(tile, 'data-state', displayState(node));
  mark(tile, 'title', nodeText(node));
  mark(tile, 'aria-label', nodeText(node));
}

function makeTile(node) {
  return h('li', { class: 'tile' },
    h('span', { class: 'node-number', title: node.nodeId }, numberOf(node.nodeId)),
    h('span', { class: 'node-state' }),
    h('span', { class: 'activity' }));
}

function setTile(tile, node) {
  mark(tile, 'data-state', displayState(node));
  mark(tile, 'aria-label', nodeText(node));
  const [, state, activity] = tile.children;
  text(state, node.preempted ? 'taken back' : displayState(node));
  if (!node.job) {
    if (!activity.querySelector('time')) put(activity, h('time', {}));
    setAgo(activity.firstChild, node.since);
    return;
  }
  const [experiment, job] = node.job.split('/');
  const workspace = node.clusterId.replace(/\/clusters\/[^/]*$/, '');
  const href = pageOf(`${workspace}/experiments/${experiment}/jobs/${job}`);
  if (activity.querySelector('a')?.getAttribute('href') !== href) put(activity, h('a', { href, title: node.job }, job));
}
