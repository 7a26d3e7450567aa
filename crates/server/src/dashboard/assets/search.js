// Search dialog for all resources. Arrow keys select, Enter opens, Escape closes.

import { api } from './api.js';
import { h, keyed, mark, put, text } from './dom.js';
import { state } from './components.js';
import { pageOf, pageOfShare } from './routes.js';

const KINDS = { job: 'Job', cluster: 'Cluster', experiment: 'Experiment', node: 'Node', share: 'Share', page: 'Page' };

let open = null;

/** Address of a search result. */
function target(found) {
  if (found.kind === 'page') return found.id;
  if (found.kind === 'share') return pageOfShare(found.place, found.name);
  return pageOf(found.id);
}

/** Opens the dialog. `go(path)` navigates; `pages` are those of the navigation bar. */
export function search(go, pages) {
  if (open) return;
  let finds = [], at = 0, ticket = 0, timer = null;
  const list = h('ul', { id: 'finds', role: 'listbox', 'aria-label': 'Found' });
  const hint = h('p', { class: 'soft small hint' });
  const field = h('input', {
    type: 'text', role: 'combobox', 'aria-expanded': 'true', 'aria-controls': 'finds', 'aria-autocomplete': 'list',
    'aria-label': 'Search jobs, clusters, experiments, nodes and shares', placeholder: 'Job, cluster, experiment, node or share',
    autocomplete: 'off', spellcheck: 'false', oninput: () => { clearTimeout(timer); timer = setTimeout(look, 60); }, onkeydown: press,
  });
  const dialog = h('dialog', { class: 'search', 'aria-label': 'Search', onclick: (event) => { if (event.target === dialog) dialog.close(); } },
    field, list, hint);
  dialog.addEventListener('close', () => { open = null; dialog.remove(); });
  document.body.append(dialog);
  dialog.showModal();
  open = dialog;
  look();

  async function look() {
    const mine = ++ticket;
    const words = field.value.trim();
    const ours = pages.filter((page) => page.title.toLowerCase().includes(words.toLowerCase()))
      .map((page) => ({ kind: 'page', name: page.title, id: page.path, place: '' }));
    if (!words) { show(ours, 'Type part of a name.'); return; }
    try {
      const { value } = await api.get('~/providers/Corro/search', { text: words, maxresults: 30 });
      if (mine === ticket) show([...value, ...ours], value.length || ours.length ? '' : 'No matches.');
    } catch (error) {
      if (mine === ticket) show([], error.message);
    }
  }

  function show(next, words) {
    finds = next;
    at = 0;
    keyed(list, finds, (found) => `${found.kind} ${found.id} ${found.name}`, make);
    text(hint, words);
    mark(hint, 'hidden', words ? null : '');
    choose(0);
  }

  function make(found) {
    const item = h('li', { role: 'option', id: `find-${Math.random().toString(36).slice(2)}`,
      onclick: () => leave(found), onmousemove: () => choose(finds.indexOf(found)) },
      h('span', { class: 'kind' }, KINDS[found.kind]), h('span', { class: 'found' }, found.name),
      h('span', { class: 'soft' }, found.place));
    if (found.state) item.append(state(found.state));
    return item;
  }

  function choose(next) {
    at = Math.max(0, Math.min(next, finds.length - 1));
    [...list.children].forEach((item, index) => mark(item, 'aria-selected', String(index === at)));
    const chosen = list.children[at];
    mark(field, 'aria-activedescendant', chosen?.id);
    chosen?.scrollIntoView({ block: 'nearest' });
  }

  function press(event) {
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };
    if (event.key in moves) { event.preventDefault(); choose(at + moves[event.key]); }
    if (event.key === 'Enter' && finds[at]) { event.preventDefault(); leave(finds[at]); }
  }

  function leave(found) {
    dialog.close();
    go(target(found));
  }
}
