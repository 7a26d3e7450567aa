// Nodes as tiles, in the five states. Few nodes have a tile with words on it; many have a small one each, whose words come
// with the pointer, the keyboard or a reader. A shape goes with every colour.

import { h, keyed, mark, put, text } from './dom.js';
import { pageOf } from './paths.js';
import { setAgo } from './parts.js';

export const NODE_STATES = ['running', 'idle', 'preparing', 'leaving', 'unusable'];
/** Beyond so many the tiles are small. */
const WORDS_FOR = 24;

/** `tvm-676767296_12-20180718t174802z-p` is number 12 of its cluster. */
export const numberOf = (nodeId) => /_(\d+)-/.exec(nodeId)?.[1] ?? nodeId;

/** One that is being allocated is as good as in preparation. */
export const shownState = (node) => (node.state === 'allocating' ? 'preparing' : node.state);

const order = (a, b) => numberOf(a.nodeId) - numberOf(b.nodeId) || a.nodeId.localeCompare(b.nodeId);

/** The tiles of one cluster's nodes: `{element, set(nodes)}`. */
export function tiles() {
  const grid = h('ul', { class: 'tiles', 'aria-label': 'Nodes' });
  const legend = h('ul', { class: 'legend', 'aria-label': 'Nodes by state' });
  const element = h('div', { class: 'nodes' }, grid, legend);
  return {
    element,
    set(nodes) {
      const sorted = [...nodes].sort(order);
      const small = sorted.length > WORDS_FOR;
      if (grid.classList.contains('small') !== small) {
        grid.classList.toggle('small', small);
        put(grid);
        grid.corroKeyed = null;
      }
      keyed(grid, sorted, (node) => node.nodeId, small ? makeSmall : makeTile, small ? setSmall : setTile);
      mark(grid, 'hidden', sorted.length ? null : '');
      const counts = NODE_STATES.map((name) => [name, sorted.filter((node) => shownState(node) === name).length]);
      keyed(legend, counts, ([name]) => name,
        ([name]) => h('li', { class: 'state', 'data-state': name }, h('b', {}), ` ${name}`),
        (item, [, count]) => { text(item.firstChild, count); item.classList.toggle('none', !count); });
    },
  };
}

function words(node) {
  const preempted = node.preempted ? ', taken back' : '';
  return `node ${numberOf(node.nodeId)}: ${shownState(node)}${node.job ? `, ${node.job}` : ''}${preempted}`;
}

function makeSmall() {
  return h('li', { class: 'tile' });
}

function setSmall(tile, node) {
  mark(tile, 'data-state', shownState(node));
  mark(tile, 'title', words(node));
  mark(tile, 'aria-label', words(node));
}

function makeTile(node) {
  return h('li', { class: 'tile' },
    h('span', { class: 'which', title: node.nodeId }, numberOf(node.nodeId)),
    h('span', { class: 'how' }),
    h('span', { class: 'what' }));
}

function setTile(tile, node) {
  mark(tile, 'data-state', shownState(node));
  mark(tile, 'aria-label', words(node));
  const [, how, what] = tile.children;
  text(how, node.preempted ? 'taken back' : shownState(node));
  if (!node.job) {
    if (!what.querySelector('time')) put(what, h('time', {}));
    setAgo(what.firstChild, node.since);
    return;
  }
  const [experiment, job] = node.job.split('/');
  const workspace = node.clusterId.replace(/\/clusters\/[^/]*$/, '');
  const href = pageOf(`${workspace}/experiments/${experiment}/jobs/${job}`);
  if (what.querySelector('a')?.getAttribute('href') !== href) put(what, h('a', { href, title: node.job }, job));
}
