// Shares page: browse, upload by drag and drop, download, preview.

import { h, mark, put, svg, text } from '../dom.js';
import { openShare, shares } from '../share-client.js';
import { bytes, confirm, failure, panel, plural, table, toast } from '../components.js';
import { ago } from '../times.js';
import { pageOfShare } from '../routes.js';
import { newShare } from '../new-share.js';
import { preview } from './preview.js';

export async function show(root, params, context) {
  const [account, share, ...segments] = (params.path ?? '').split('/').filter(Boolean);
  context.title(share ? `${[share, ...segments].join('/')}` : 'Shares');
  return share ? showShare(root, account, share, segments.join('/'), context) : showAll(root, account, context);
}

async function showAll(root, account, context) {
  const all = (await shares()).filter((one) => !account || one.account === account);
  const list = table({
    label: 'Shares', key: (one) => `${one.account}/${one.name}`, sorted: 'Share',
    empty: 'No shares yet.',
    columns: [
      { title: 'Share', width: 'minmax(0, 2fr)', sort: (one) => one.name, make: (one) => h('a', { class: 'name', href: pageOfShare(one.account, one.name) }, one.name) },
      { title: 'Account', width: 'minmax(0, 2fr)', sort: (one) => one.account, make: (one) => one.account },
      { title: 'Changed', width: '140px', sort: (one) => -Date.parse(one.modified), make: (one) => ago(one.modified) },
    ],
  });
  list.set(all);
  put(root, h('div', { class: 'head' }, h('h1', {}, 'Shares'), h('span', { class: 'grow' }),
    h('button', { type: 'button', class: 'primary', id: 'new', onclick: () => newShare(context.go) }, 'New share')), panel(account ?? 'All accounts', h('span', { class: 'count' }, all.length), list.element));
  if (new URLSearchParams(location.search).has('new')) newShare(context.go);
}

async function showShare(root, account, share, path, context) {
  const openedShare = await openShare(account, share);
  const join = (name) => (path ? `${path}/${name}` : name);
  const pageHere = pageOfShare(account, share, path);
  let entries = [];

  const list = table({
    label: 'Files', key: (entry) => entry.name, empty: 'Nothing here yet. Drop files to upload them.',
    columns: [
      { title: 'Name', width: 'minmax(0, 3fr)', sort: (entry) => entry.name, make: (entry) => h('div', { class: 'entry' }, icon(entry.isDirectory),
        h('a', { class: 'name', title: entry.name, href: entry.isDirectory ? pageOfShare(account, share, join(entry.name)) : `${pageHere}?view=${encodeURIComponent(entry.name)}` }, entry.name), entry.linkText && h('span', { class: 'soft small' }, `→ ${entry.linkText}`)) },
      { title: 'Size', width: '96px', number: true, sort: (entry) => (entry.isDirectory ? -1 : entry.size), fill: (cell, entry) => text(cell, entry.isDirectory ? '' : bytes(entry.size)) },
      { title: '', width: '170px', number: true, make: (entry) => [
        !entry.isDirectory && h('button', { type: 'button', class: 'quiet', onclick: () => download(entry) }, 'Download'),
        h('button', { type: 'button', class: 'quiet', 'aria-label': `Delete ${entry.name}`, onclick: () => remove(entry) }, 'Delete')] },
    ],
  });
  const count = h('span', { class: 'count' });
  const picker = h('input', { type: 'file', multiple: true, hidden: true, onchange: () => { upload([...picker.files]); picker.value = ''; } });
  const uploads = h('div', { class: 'uploads', hidden: true, role: 'status' });
  const errorNote = h('div', {});
  const previewArea = h('div', {});
  const box = panel('Files', [count, h('span', { class: 'grow' }),
    h('button', { type: 'button', onclick: makeDirectory }, 'New directory'),
    h('button', { type: 'button', class: 'primary', onclick: () => picker.click() }, 'Upload'), picker], list.element, uploads);
  box.classList.add('drop');
  enableDrop(box, upload);
  put(root, crumbs(account, share, path), h('div', { class: 'head' }, h('h1', {}, path ? path.split('/').at(-1) : share)), errorNote, box, previewArea);

  async function refresh() {
    entries = await openedShare.list(path);
    list.set(entries);
    text(count, plural(entries.length, 'entry', 'entries'));
  }
  async function withErrorToast(task) {
    try { await task(); } catch (error) { toast(error.message, 'bad'); }
  }

  async function upload(files) {
    if (!files.length) return;
    const existing = files.filter((file) => entries.some((entry) => entry.name === file.name));
    if (existing.length && !await confirm(`Replace ${existing.length === 1 ? existing[0].name : plural(existing.length, 'file')}?`,
      'The existing content is overwritten.', 'Replace')) return;
    for (const file of files) await send(file);
    await withErrorToast(refresh);
  }
  async function send(file) {
    const bar = h('progress', { max: file.size || 1, value: 0, 'aria-label': file.name });
    const sizeLabel = h('span', { class: 'number soft small' }, bytes(file.size));
    const line = h('div', { class: 'upload' }, h('span', { class: 'name' }, file.name), bar, sizeLabel);
    uploads.append(line);
    mark(uploads, 'hidden', null);
    try {
      await openedShare.write(join(file.name), file, (done) => { bar.value = done; });
      bar.value = bar.max;
    } catch (error) { toast(`${file.name}: ${error.message}`, 'bad'); }
    line.remove();
    mark(uploads, 'hidden', uploads.children.length ? null : '');
  }
  async function download(entry) {
    await withErrorToast(async () => {
      const link = h('a', { href: await openedShare.url(join(entry.name)), download: entry.name });
      document.body.append(link);
      link.click();
      link.remove();
    });
  }
  async function remove(entry) {
    const explanation = entry.isDirectory ? 'The directory must be empty.' : entry.linkText ? 'The link is deleted, not its target.' : `${bytes(entry.size)}. Deleted files cannot be restored.`;
    if (!await confirm(`Delete ${entry.name}?`, explanation, 'Delete')) return;
    await withErrorToast(async () => { await openedShare.remove(join(entry.name), entry.isDirectory); await refresh(); });
  }
  async function makeDirectory() {
    const name = h('input', { name: 'name', required: true, autofocus: true, autocomplete: 'off' });
    const dialog = h('dialog', { 'aria-label': 'New directory' }, h('form', { method: 'dialog', onsubmit: () => {
      withErrorToast(async () => { await openedShare.makeDirectory(join(name.value.trim())); await refresh(); });
    } }, h('h2', {}, 'New directory'), h('label', {}, 'Name', name), h('div', { class: 'actions' },
      h('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel'), h('button', { class: 'primary' }, 'Make'))));
    dialog.addEventListener('close', () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  try {
    await refresh();
    const name = new URLSearchParams(location.search).get('view');
    if (name) {
      const open = await preview(openedShare, join(name), name, () => download({ name }), () => context.go(pageHere));
      put(previewArea, open.element);
      return open.end;
    }
  } catch (error) { put(errorNote, failure(error)); }
  return () => {};
}

function crumbs(account, share, path) {
  const segments = path.split('/').filter(Boolean);
  const link = (label, href, last) => (last ? h('span', { 'aria-current': 'page' }, label) : h('a', { href }, label));
  return h('nav', { class: 'crumbs', 'aria-label': 'Breadcrumbs' },
    h('a', { href: '/ui/shares' }, 'Shares'), h('a', { href: pageOfShare(account) }, account), link(share, pageOfShare(account, share), !segments.length),
    segments.map((segment, at) => link(segment, pageOfShare(account, share, segments.slice(0, at + 1).join('/')), at === segments.length - 1)));
}

function enableDrop(box, upload) {
  let depth = 0;
  const setDepth = (change) => { depth = Math.max(0, depth + change); mark(box, 'data-over', depth ? '' : null); };
  const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes('Files');
  box.addEventListener('dragenter', (event) => { if (hasFiles(event)) { event.preventDefault(); setDepth(1); } });
  box.addEventListener('dragover', (event) => { if (hasFiles(event)) event.preventDefault(); });
  box.addEventListener('dragleave', () => setDepth(-1));
  box.addEventListener('drop', (event) => {
    event.preventDefault();
    depth = 0;
    setDepth(0);
    upload([...event.dataTransfer.files]);
  });
}

function icon(isDirectory) {
  const shape = isDirectory ? 'M1.5 4.5v8h13v-7h-6l-1.5-2h-5.5z' : 'M3.5 1.5h6l3 3v10h-9zM9.5 1.5v3h3';
  return svg('svg', { width: 16, height: 16, viewBox: '0 0 16 16', 'aria-hidden': 'true' },
    svg('path', { d: shape, fill: 'none', stroke: 'currentColor', 'stroke-linejoin': 'round' }));
}
