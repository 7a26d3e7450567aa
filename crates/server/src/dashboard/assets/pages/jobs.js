// Jobs page: all jobs, newest first.

import { h, put } from '../dom.js';
import { failure } from '../components.js';
import { refreshOn } from '../event-stream.js';
import { jobList } from '../job-list.js';

export async function show(root) {
  const jobs = jobList();
  const errorNote = h('div');
  put(root, h('h1', { class: 'unseen' }, 'Jobs'), errorNote, jobs.element);

  async function refresh() {
    try {
      await jobs.refresh();
      put(errorNote);
    } catch (error) {
      if (error.status) put(errorNote, failure(error));
    }
  }
  await refresh();
  const end = refreshOn((event) => event.kind === 'job', refresh, 250);
  return () => { end(); jobs.end(); };
}
