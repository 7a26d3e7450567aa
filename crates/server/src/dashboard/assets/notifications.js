// Notifications of the browser when a job ends. The chosen jobs are remembered in this browser until they end or the user logs out, and
// every page looks after them: also a hidden one, which has no event stream.

import { api, session } from './api.js';
import { live } from './event-stream.js';
import { pageOf } from './routes.js';

const KEY = 'corro.notify';
const POLL_MS = 15_000;
const MAX_JOBS = 50;
const ENDED = new Set(['succeeded', 'failed']);

const load = () => JSON.parse(localStorage.getItem(KEY) ?? '[]');
const store = (jobs) => (jobs.length ? localStorage.setItem(KEY, JSON.stringify(jobs.slice(-MAX_JOBS))) : localStorage.removeItem(KEY));

export const isNotified = (id) => load().includes(id);

/** Whether the user was asked for permission and gave it. */
export async function allowNotifications() {
  if (!('Notification' in window)) return false;
  return (window.Notification.permission === 'granted' ? 'granted' : await window.Notification.requestPermission()) === 'granted';
}

export function setNotified(id, isWanted) {
  store([...load().filter((one) => one !== id), ...(isWanted ? [id] : [])]);
}

export function forgetAll() { localStorage.removeItem(KEY); }

/** Looks after the chosen jobs for as long as the page is open. `go(path)` navigates when a notification is clicked. */
export function startNotifications(go) {
  let isBusy = false;
  async function check() {
    if (isBusy || !session.token) return;
    isBusy = true;
    try {
      for (const id of load()) {
        const job = await api.get(id).catch((error) => { if (error.status === 404) setNotified(id, false); return null; });
        const { executionState: state, executionInfo: info } = job?.properties ?? {};
        // Another page may have told it meanwhile.
        if (!ENDED.has(state) || !isNotified(id)) continue;
        setNotified(id, false);
        const code = info?.exitCode === undefined || info.exitCode === null ? '' : ` with exit code ${info.exitCode}`;
        const notification = new window.Notification(`${job.name} ${state}`, { body: `The job ${job.name} has ${state}${code}.`, tag: id, icon: '/ui/assets/icon.svg' });
        notification.onclick = () => { window.focus(); go(pageOf(id)); };
      }
    } finally { isBusy = false; }
  }
  live.on((event) => { if (event.kind === 'job' && ENDED.has(event.state) && load().some((id) => id.toLowerCase() === event.resourceId?.toLowerCase())) check(); });
  setInterval(check, POLL_MS);
}
