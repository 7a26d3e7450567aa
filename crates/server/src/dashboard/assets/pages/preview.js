// File preview: text and images inline, otherwise the size. Content is never executed or parsed as markup.

import { h } from '../dom.js';
import { bytes, panel } from '../components.js';
import { clock } from '../times.js';

const TEXT_BYTES = 256 * 1024;
const IMAGE_BYTES = 32 * 1024 * 1024;
const IMAGES = { png: 'image/png', jpg: 'image/jpeg', jpeg: 'image/jpeg', gif: 'image/gif', webp: 'image/webp', bmp: 'image/bmp', svg: 'image/svg+xml' };

/** Returns `{element, end()}`. `share` is an opened share; `download` and `close` are the buttons' actions. */
export async function preview(share, path, name, download, close) {
  const type = IMAGES[name.split('.').pop().toLowerCase()];
  const { bytes: content, length, modified } = await share.read(path, type ? IMAGE_BYTES : TEXT_BYTES);
  let url = null;
  let view;
  if (type && content.length === length) {
    url = URL.createObjectURL(new Blob([content], { type }));
    view = h('div', { class: 'picture' }, h('img', { src: url, alt: name }));
  } else if (content.includes(0)) {
    view = h('p', { class: 'empty' }, 'No preview: the file is neither text nor an image.');
  } else {
    view = h('pre', { tabindex: '0', 'aria-label': name }, new TextDecoder().decode(content));
  }
  const truncation = !type && content.length < length ? `the first ${bytes(content.length)} of ` : '';
  const changed = modified ? `, changed ${clock(modified)}` : '';
  const element = panel(name, [
    h('span', { class: 'soft small' }, `${truncation}${bytes(length)}${changed}`), h('span', { class: 'grow' }),
    h('button', { type: 'button', onclick: download }, 'Download'),
    h('button', { type: 'button', onclick: close }, 'Close')], view);
  element.classList.add('preview');
  return { element, end: () => { if (url) URL.revokeObjectURL(url); } };
}
