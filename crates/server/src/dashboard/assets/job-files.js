// Panel of a job's files: what it wrote, its output directories and logs, with preview and download, and a link to the directory on its
// share.

import { api } from './api.js';
import { logFolder, outputFolder, submittedFolder } from './job-folder.js';
import { pageOfShare } from './routes.js';
import { SubmittedFiles } from './submitted-files.js';
import { h, mark, put, text } from './dom.js';
import { bytes, failure, table } from './components.js';
import { ago, setAgo } from './times.js';

export const LOGS = 'stdouterr';
/** Tab with the files that a submitted job wrote. */
const RESULTS = 'results';
const IMAGE = /\.(png|jpe?g|gif|webp|bmp|svg)$/i;
const TEXT = /\.(txt|log|out|err|json|jsonl|csv|tsv|ya?ml|toml|ini|md|py|sh|rs|xml|html?|cfg|conf)$|^[^.]*$/i;
const LINK_MINUTES = 60;

/** Path of a file-service URL on this server, whatever host name it contains. */
export function serverPath(link) {
  const { pathname, search } = new URL(link, location.origin);
  return pathname + search;
}

/** Lists a directory of a job's output. */
export async function listFiles(id, directory, path = '') {
  const files = [];
  const query = { outputdirectoryid: directory, directory: path || '.', linkexpiryinminutes: LINK_MINUTES };
  let page = await api.post(`${id}/listOutputFiles`, {}, query);
  for (;;) {
    files.push(...page.value);
    if (!page.nextLink) return files;
    const { searchParams } = new URL(page.nextLink, location.origin);
    page = await api.post(`${id}/listOutputFiles`, {}, { ...query, marker: searchParams.get('marker') });
  }
}

export class JobFiles {
  /** `read(name, link, renew)` opens a text file in the log panel. */
  constructor(job, read) {
    const results = submittedFolder(job.properties);
    const ids = [results && RESULTS, ...(job.properties.outputDirectories ?? []).map((directory) => directory.id), LOGS].filter(Boolean);
    Object.assign(this, { id: job.id, job, read, directory: ids[0], path: '', ticket: 0, results: results && new SubmittedFiles(results) });
    this.tabs = h('div', { class: 'tabs', role: 'group', 'aria-label': 'Output directories' }, ids.map((id) => h('button', {
      type: 'button', 'aria-pressed': String(id === this.directory), onclick: () => this.go(id, ''),
    }, id)));
    this.folderLink = h('a', { class: 'small', hidden: true }, 'Open the folder');
    this.crumbs = h('div', { class: 'body small', hidden: true });
    this.errorNote = h('div');
    this.table = table({
      label: 'Files', key: (file) => `${file.name} ${file.fileType}`, empty: 'No files yet.', sorted: 'Name',
      columns: [
        { title: 'Name', width: 'minmax(0, 2fr)', sort: (file) => file.name, make: (file) => this.makeName(file) },
        { title: 'Size', width: '76px', number: true, sort: (file) => file.properties?.contentLength ?? -1,
          fill: (cell, file) => text(cell, file.properties ? bytes(file.properties.contentLength) : '') },
        { title: 'Changed', width: '124px', sort: (file) => file.properties?.lastModified,
          make: (file) => (file.properties?.lastModified ? ago(file.properties.lastModified) : ''),
          fill: (cell, file) => file.properties?.lastModified && setAgo(cell.firstChild, file.properties.lastModified) },
        { title: '', width: '76px', number: true, make: () => h('a', { download: '' }, 'Download'), fill: (cell, file) => {
          mark(cell.firstChild, 'hidden', file.downloadUrl ? null : '');
          if (file.downloadUrl) cell.firstChild.href = serverPath(file.downloadUrl);
          mark(cell.firstChild, 'download', file.name);
          mark(cell.firstChild, 'aria-label', `Download ${file.name}`);
        } },
      ],
    });
    this.element = h('section', { class: 'panel', id: 'files' },
      h('header', null, h('h2', null, 'Files'), ids.length > 1 ? this.tabs : null, h('span', { class: 'grow' }), this.folderLink), this.crumbs, this.errorNote, this.table.element);
  }

  go(directory, path) {
    Object.assign(this, { directory, path });
    for (const tab of this.tabs.children) mark(tab, 'aria-pressed', String(tab.textContent === directory));
    const segments = path.split('/').filter(Boolean);
    mark(this.crumbs, 'hidden', segments.length ? null : '');
    put(this.crumbs, h('button', { type: 'button', class: 'quiet', onclick: () => this.go(directory, segments.slice(0, -1).join('/')) },
      '↑ up'), ` ${path}`);
    this.table.set([]);
    this.refresh();
  }

  makeName(file) {
    const path = this.path ? `${this.path}/${file.name}` : file.name;
    if (file.fileType === 'directory') return h('button',
      { type: 'button', class: 'link', onclick: () => this.go(this.directory, path) }, `${file.name}/`);
    if (!IMAGE.test(file.name) && !TEXT.test(file.name)) return h('span', { title: file.name }, file.name);
    const open = () => (IMAGE.test(file.name) ? this.showImage(file) : this.read(path, file.downloadUrl,
      async () => (await this.find(file.name))?.downloadUrl));
    return h('button', { type: 'button', class: 'link', title: file.name, onclick: open }, file.name);
  }

  async find(name) {
    return (await this.list()).find((file) => file.name === name);
  }

  list() {
    return this.directory === RESULTS && this.results ? this.results.list(this.path) : listFiles(this.id, this.directory, this.path);
  }

  /** Links to the directory on its share. Volumes of the cluster count, too. */
  showFolder() {
    const { properties } = this.job;
    const place = this.directory === RESULTS && this.results ? this.results.folder
      : this.directory === LOGS ? logFolder(properties, this.clusterVolumes) : outputFolder(properties, this.directory, this.clusterVolumes);
    mark(this.folderLink, 'hidden', place ? null : '');
    if (place) mark(this.folderLink, 'href', pageOfShare(place.account, place.share, `${place.path}/${this.path}`));
  }

  async readClusterVolumes() {
    try {
      const cluster = this.job.properties.cluster && await api.get(this.job.properties.cluster.id);
      this.clusterVolumes = cluster?.properties.nodeSetup?.mountVolumes ?? {};
    } catch (error) {
      if (error.name !== 'ApiError') throw error;
      // The cluster was deleted.
      this.clusterVolumes = {};
    }
  }

  showImage(file) {
    const dialog = h('dialog', { class: 'editor', 'aria-label': file.name, onclose: () => dialog.remove() }, h('form', { method: 'dialog' },
      h('h2', null, file.name), h('img', { class: 'picture', src: serverPath(file.downloadUrl), alt: file.name }),
        h('div', { class: 'actions' }, h('button', null, 'Close'))));
    document.body.append(dialog);
    dialog.showModal();
  }

  async refresh() {
    const ticket = ++this.ticket;
    try {
      if (!this.clusterVolumes) await this.readClusterVolumes();
      this.showFolder();
      const files = await this.list();
      if (ticket !== this.ticket) return;
      put(this.errorNote);
      this.table.set(files);
    } catch (error) {
      if (error.name !== 'ApiError') throw error;
      if (ticket === this.ticket) put(this.errorNote, error.code === 'OutputDirectoryNotOnMountRoot' ? h('p', { class: 'empty' },
        'This directory is not on a share, so its files cannot be listed.') : failure(error));
    }
  }
}
