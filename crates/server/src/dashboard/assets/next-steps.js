// Panel with the next three steps on an empty server, each with a command to copy.

import { h } from './dom.js';
import { copyText } from './clipboard.js';

const STEPS = [
  ['Run a script', 'Sends the directory of the script and runs it on two nodes. Makes a cluster, a share and an experiment where there are none.',
    'corro submit train.py --nodes 2'],
  ['Watch it', 'Its page shows curves, log and ranks while it runs. In a terminal:', 'corro job list'],
  ['Get its results', 'Downloads the files that the job wrote.', 'corro fetch JOB'],
];

export function nextSteps() {
  return h('section', { class: 'panel next-steps', hidden: true, 'aria-label': 'Next steps' },
    h('header', null, h('h2', null, 'This server is empty. The next three steps:')),
    h('ol', { class: 'body' }, STEPS.map(([title, explanation, line]) => h('li', null, h('h3', null, title), h('p', null, explanation), command(line)))),
    h('p', { class: 'body soft' }, 'No script at hand? ', h('code', null, 'corro tutorial'), ' runs an example. The ',
      h('a', { href: '/docs/users/quickstart.html' }, 'quickstart'), ' explains every step, and ', h('code', null, 'corro login'),
      ' connects another machine to this server.'));
}

/** A command line with a button that copies it. */
export function command(line) {
  const code = h('code', { tabindex: 0 }, line);
  return h('p', { class: 'command' }, code, h('button', { type: 'button', class: 'quiet', 'aria-label': `Copy ${line}`, onclick: () => copyText(code) }, 'Copy'));
}
