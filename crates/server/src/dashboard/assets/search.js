// Search dialog for all resources. Arrow keys select, Enter opens, Escape closes.

import { api } from './api.js';
import { h, keyed, mark, put, text } from './dom.js';
import { state } from './components.js';
import { pageOf, pageOfNode, pageOfShare } from './routes.js';

const KINDS = { job: 'Job', cluster: 'Cluster', experiment: 'Experiment', node: 'Node', share: 'Share', page: 'Page' };

let open = null;

/** Address of a search result. */
function addressOf(result) {
  if (result.kind === 'page') return result.id;
  if (result.kind === 'share') return pageOfShare(result.place, result.name);
  if (result.kind === 'node') return pageOfNode(result.id, result.name);
  return pageOf(result.id);
}

/** Opens the dialog. `go(path)` navigates; `pages` are those of the navigation bar. */
export function search(go, pages) {
  if (open) return;
  let results = [], selected = 0, ticket = 0, timer = null;
  const list = h('ul', { id: 'finds', role: 'listbox', 'aria-label': 'Found' });
  const hint = h('p', { class: 'soft small hint' });
  const field = h('input', {
    type: 'text', role: 'combobox', 'aria-expanded': 'true', 'aria-controls': 'finds', 'aria-autocomplete': 'list',
    'aria-label': 'Search jobs, clusters, experiments, nodes and shares', placeholder: 'Job, cluster, experiment, node or share',
    autocomplete: 'off', spellcheck: 'false', oninput: () => { clearTimeout(timer); timer = setTimeout(runSearch, 60); }, onkeydown: press,
  });
  const dialog = h('dialog', { class: 'search', 'aria-label': 'Search', onclick: (event) => { if (event.target === dialog) dialog.close(); } },
    field, list, hint);
  dialog.addEventListener('close', () => { open = null; dialog.remove(); });
  document.body.append(dialog);
  dialog.showModal();
  open = dialog;
  runSearch();

  async function runSearch() {
    const ownTicket = ++ticket;
    const query = field.value.trim();
    const matchingPages = pages.filter((page) => page.title.toLowerCase().includes(query.toLowerCase()))
      .map((page) => ({ kind: 'page', name: page.title, id: page.path, place: '' }));
    if (!query) { show(matchingPages, 'Type part of a name.'); return; }
    try {
      const { value } = await api.get('~/providers/Corro/search', { text: query, maxresults: 30 });
      if (ownTicket === ticket) show([...value, ...matchingPages], value.length || matchingPages.length ? '' : 'No matches.');
    } catch (error) {
      if (ownTicket === ticket) show([], error.message);
    }
  }

  function show(next, note) {
    results = next;
    selected = 0;
    keyed(list, results, (result) => `${result.kind} ${result.id} ${result.name}`, make);
    text(hint, note);
    mark(hint, 'hidden', note ? null : '');
    choose(0);
  }

  function make(result) {
    const item = h('li', { role: 'option', id: `find-${Math.random().toString(36).slice(2)}`,
      onclick: () => openResult(result), onmousemove: () => choose(results.indexOf(result)) },
      h('span', { class: 'kind' }, KINDS[result.kind]), h('span', { class: 'found' }, result.name),
      h('span', { class: 'soft' }, result.place));
    if (result.state) item.append(state(result.state));
    return item;
  }

  function choose(next) {
    selected = Math.max(0, Math.min(next, results.length - 1));
    [...list.children].forEach((item, index) => mark(item, 'aria-selected', String(index === selected)));
    const chosen = list.children[selected];
    mark(field, 'aria-activedescendant', chosen?.id);
    chosen?.scrollIntoView({ block: 'nearest' });
  }

  function press(event) {
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };
    if (event.key in moves) { event.preventDefault(); choose(selected + moves[event.key]); }
    if (event.key === 'Enter' && results[selected]) { event.preventDefault(); openResult(results[selected]); }
  }

  function openResult(result) {
    dialog.close();
    go(addressOf(result));
  }
}
