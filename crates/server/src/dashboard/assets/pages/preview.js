// File preview: text and images inline, otherwise the size. Content is never executed or parsed as markup.

import { h } from '../dom.js';
import { bytes, panel } from '../components.js';

const TEXT_BYTES = 256 * 1024;
const IMAGE_BYTES = 32 * 1024 * 1024;
const IMAGES = { png: 'image/png', jpg: 'image/jpeg', jpeg: 'image/jpeg', gif: 'image/gif', webp: 'image/webp', bmp: 'image/bmp', svg: 'image/svg+xml' };

/** Returns `{element, end()}`. `share` is an opened share; `download` and `close` are the buttons' actions. */
export async function preview(share, path, name, download, close) {
  const type = IMAGES[name.split('.').pop().toLowerCase()];
  const { bytes: content, length, modified } = await share.read(path, type ? IMAGE_BYTES : TEXT_BYTES);
  let address = null;
  let inside;
  if (type && content.length === length) {
    address = URL.createObjectURL(new Blob([content], { type }));
    inside = h('div', { class: 'picture' }, h('img', { src: address, alt: name }));
  } else if (content.includes(0)) {
    inside = h('p', { class: 'empty' }, 'No preview: the file is neither text nor an image.');
  } else {
    inside = h('pre', { tabindex: '0', 'aria-label': name }, new TextDecoder().decode(content));
  }
  const cut = !type && content.length < length ? `the first ${bytes(content.length)} of ` : '';
  const when = modified ? `, changed ${new Date(modified).toLocaleString()}` : '';
  const element = panel(name, [
    h('span', { class: 'soft small' }, `${cut}${bytes(length)}${when}`), h('span', { class: 'grow' }),
    h('button', { type: 'button', onclick: download }, 'Download'),
    h('button', { type: 'button', onclick: close }, 'Close')], inside);
  element.classList.add('preview');
  return { element, end: () => { if (address) URL.revokeObjectURL(address); } };
}
