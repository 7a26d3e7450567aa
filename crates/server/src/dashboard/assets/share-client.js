// Client of the file service: lists, reads and writes one share with a SAS URL from the API. The URL expires with the login and is
// renewed in time.

import { ApiError, api } from './api.js';
import { partsOf } from './routes.js';

const VERSION = '2018-03-28';
const WRITE_CHUNK_BYTES = 4 * 1024 * 1024;
const links = new Map();

/** All shares that the user may read, with the ids of their accounts. */
export const shares = () => api.all('~/providers/Corro/shares');

/** Opens a share. */
export async function openShare(account, share) {
  const known = (await shares()).find((one) => one.account === account && one.name === share);
  if (!known) throw new Error(`There is no share '${share}' in an account '${account}' that you may read.`);
  const linkPath = `${known.accountId}/shares/${encodeURIComponent(share)}/link`;

  async function link() {
    const key = `${account}/${share}`;
    const kept = links.get(key);
    if (kept && kept.until > Date.now()) return kept.query;
    const { query, expires } = await api.post(linkPath);
    links.set(key, { query, until: Date.parse(expires) - 10 * 60 * 1000 });
    return query;
  }

  async function url(path, more = {}) {
    const inside = path.split('/').filter(Boolean).map(encodeURIComponent).join('/');
    const query = new URLSearchParams(more).toString();
    return `/${account}/${share}${inside ? `/${inside}` : ''}?${query}${query ? '&' : ''}${await link()}`;
  }

  async function ask(method, path, { query, headers = {}, body, signal } = {}) {
    const response = await fetch(await url(path, query), { method, body, signal, headers: { 'x-ms-version': VERSION, ...headers } });
    if (response.ok) return response;
    if (response.status === 403) links.delete(`${account}/${share}`);
    const told = parse(await response.text());
    const message = told.querySelector('Message')?.textContent.split('\n')[0];
    throw new ApiError(response.status, told.querySelector('Code')?.textContent ?? '', message || `The file service answered ${response.status}.`);
  }

  return {
    group: partsOf(known.accountId).group,

    /** Lists a directory: `{name, isDirectory, size, linkText}`, directories first; `linkText` is that of a symbolic link. */
    async list(path) {
      const entries = [];
      let marker = '';
      do {
        const query = { restype: 'directory', comp: 'list', ...(marker && { marker }) };
        const page = parse(await (await ask('GET', path, { query })).text());
        for (const one of page.querySelectorAll('Entries > Directory, Entries > File')) {
          const isDirectory = one.tagName === 'Directory';
          const size = Number(one.querySelector('Content-Length')?.textContent ?? 0);
          const linkText = one.querySelector('LinkText')?.textContent;
          entries.push({ name: one.querySelector('Name').textContent, isDirectory, size, linkText });
        }
        marker = page.querySelector('NextMarker')?.textContent ?? '';
      } while (marker);
      return entries.sort((a, b) => b.isDirectory - a.isDirectory || a.name.localeCompare(b.name, undefined, { numeric: true }));
    },

    /** The first `most` bytes of a file, its length, and its modification time. */
    async read(path, most) {
      const size = await ask('HEAD', path);
      const length = Number(size.headers.get('content-length') ?? 0);
      const modified = size.headers.get('last-modified');
      if (!length) return { bytes: new Uint8Array(), length, modified };
      const response = await ask('GET', path, { headers: { Range: `bytes=0-${Math.min(most, length) - 1}` } });
      return { bytes: new Uint8Array(await response.arrayBuffer()), length, modified };
    },

    /** URL of a file for the browser. */
    url: (path) => url(path),

    /** Writes a file in chunks; `tell(bytes)` is called with the bytes written. */
    async write(path, file, tell, signal) {
      await ask('PUT', path, { signal, headers: { 'x-ms-type': 'file', 'x-ms-content-length': String(file.size) } });
      for (let at = 0; at < file.size; at += WRITE_CHUNK_BYTES) {
        const end = Math.min(at + WRITE_CHUNK_BYTES, file.size);
        await ask('PUT', path, {
          signal, query: { comp: 'range' }, body: file.slice(at, end),
          headers: { 'x-ms-range': `bytes=${at}-${end - 1}`, 'x-ms-write': 'update' },
        });
        tell(end);
      }
    },

    makeDirectory: (path) => ask('PUT', path, { query: { restype: 'directory' } }),
    remove: (path, isDirectory) => ask('DELETE', path, { query: isDirectory ? { restype: 'directory' } : {} }),
  };
}

/** Drops the cached SAS URLs at logout. */
export function clearLinks() { links.clear(); }

/** Parses an XML response, which may start with a byte order mark. Scripts in it never run. */
function parse(text) {
  return new DOMParser().parseFromString(text.replace(/^\uFEFF/, '') || '<none/>', 'text/xml');
}
