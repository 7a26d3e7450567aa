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
  const found = (await shares()).find((one) => one.account === account && one.name === share);
  if (!found) throw new Error(`There is no share '${share}' in an account '${account}' that you may read.`);
  const linkPath = `${found.accountId}/shares/${encodeURIComponent(share)}/link`;

  async function link() {
    const key = `${account}/${share}`;
    const cached = links.get(key);
    if (cached && cached.until > Date.now()) return cached.query;
    const { query, expires } = await api.post(linkPath);
    links.set(key, { query, until: Date.parse(expires) - 10 * 60 * 1000 });
    return query;
  }

  async function url(path, parameters = {}) {
    const encodedPath = path.split('/').filter(Boolean).map(encodeURIComponent).join('/');
    const query = new URLSearchParams(parameters).toString();
    return `/${account}/${share}${encodedPath ? `/${encodedPath}` : ''}?${query}${query ? '&' : ''}${await link()}`;
  }

  async function request(method, path, { query, headers = {}, body, signal } = {}) {
    const response = await fetch(await url(path, query), { method, body, signal, headers: { 'x-ms-version': VERSION, ...headers } });
    if (response.ok) return response;
    if (response.status === 403) links.delete(`${account}/${share}`);
    const error = parse(await response.text());
    const message = error.querySelector('Message')?.textContent.split('\n')[0];
    throw new ApiError(response.status, error.querySelector('Code')?.textContent ?? '', message || `The file service answered ${response.status}.`);
  }

  return {
    group: partsOf(found.accountId).group,

    /** Lists a directory: `{name, isDirectory, size, linkText}`, directories first; `linkText` is that of a symbolic link. */
    async list(path) {
      const entries = [];
      let marker = '';
      do {
        const query = { restype: 'directory', comp: 'list', ...(marker && { marker }) };
        const page = parse(await (await request('GET', path, { query })).text());
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

    /** The first `maxBytes` bytes of a file, its length, and its modification time. */
    async read(path, maxBytes) {
      const head = await request('HEAD', path);
      const length = Number(head.headers.get('content-length') ?? 0);
      const modified = head.headers.get('last-modified');
      if (!length) return { bytes: new Uint8Array(), length, modified };
      const response = await request('GET', path, { headers: { Range: `bytes=0-${Math.min(maxBytes, length) - 1}` } });
      return { bytes: new Uint8Array(await response.arrayBuffer()), length, modified };
    },

    /** URL of a file for the browser. */
    url: (path) => url(path),

    /** Writes a file in chunks; `onProgress(bytes)` is called with the bytes written. */
    async write(path, file, onProgress, signal) {
      await request('PUT', path, { signal, headers: { 'x-ms-type': 'file', 'x-ms-content-length': String(file.size) } });
      for (let at = 0; at < file.size; at += WRITE_CHUNK_BYTES) {
        const end = Math.min(at + WRITE_CHUNK_BYTES, file.size);
        await request('PUT', path, {
          signal, query: { comp: 'range' }, body: file.slice(at, end),
          headers: { 'x-ms-range': `bytes=${at}-${end - 1}`, 'x-ms-write': 'update' },
        });
        onProgress(end);
      }
    },

    makeDirectory: (path) => request('PUT', path, { query: { restype: 'directory' } }),
    remove: (path, isDirectory) => request('DELETE', path, { query: isDirectory ? { restype: 'directory' } : {} }),
  };
}

/** Drops the cached SAS URLs at logout. */
export function clearLinks() { links.clear(); }

/** Parses an XML response, which may start with a byte order mark. Scripts in it never run. */
function parse(text) {
  return new DOMParser().parseFromString(text.replace(/^\uFEFF/, '') || '<none/>', 'text/xml');
}
