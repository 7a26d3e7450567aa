// A job's file: the JSON that was submitted, with defaults filled in and without the values of secrets, to read, copy and download.

import { save } from './chart-export.js';
import { h, text } from './dom.js';
import { copyText } from './clipboard.js';
import { toJobFile } from './job-clone.js';

export class JobSource {
  constructor(name) {
    this.code = h('pre', { tabindex: 0, 'aria-label': 'job.json' });
    const source = () => this.code.textContent;
    this.element = h('div', { id: 'source' }, h('div', { class: 'tab-tools' },
      h('span', { class: 'soft small' }, 'As submitted, with defaults. Values of secrets are not returned by the server.'), h('span', { class: 'grow' }),
      h('button', { type: 'button', class: 'quiet', onclick: () => copyText(this.code) }, 'Copy'),
      h('button', { type: 'button', class: 'quiet', onclick: () => save(new Blob([`${source()}\n`], { type: 'application/json' }), `${name}.json`) }, 'Download')),
    this.code);
  }

  set(job) {
    text(this.code, JSON.stringify({ properties: toJobFile(job).properties }, null, 2));
  }
}
