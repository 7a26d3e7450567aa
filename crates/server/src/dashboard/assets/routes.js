// Page addresses and resource ids. A workspace is written GROUP:WORKSPACE in an address; its name alone works if it is unique.

import { api, subscription } from './api.js';

const enc = encodeURIComponent;

/** `/subscriptions/S/resourceGroups/G/providers/P/workspaces/W/experiments/E/jobs/J` as `{group, workspaces: W, experiments: E, jobs: J}`. */
export function partsOf(id) {
  const words = id.replace(/^\//, '').split('/');
  const parts = { subscription: words[1], group: words[3] };
  for (let at = 6; at + 1 < words.length; at += 2) parts[words[at]] = words[at + 1];
  return parts;
}

/** Last segment of an id. */
export const nameOf = (id) => id?.slice(id.lastIndexOf('/') + 1) ?? '';

/** Address of the page of a job, experiment, cluster or workspace. */
export function pageOf(id) {
  const { group, workspaces, experiments, jobs, clusters } = partsOf(id);
  const place = `${enc(group)}:${enc(workspaces ?? '')}`;
  if (jobs) return `/ui/jobs/${place}/${enc(experiments)}/${enc(jobs)}`;
  if (experiments) return `/ui/experiments/${place}/${enc(experiments)}`;
  if (clusters) return `/ui/clusters/${place}/${enc(clusters)}`;
  return '/ui/';
}

/** Address of the page of a path in a share. */
export function pageOfShare(account, share, path = '') {
  const inside = path.split('/').filter(Boolean).map(enc).join('/');
  return `/ui/shares${account ? `/${enc(account)}` : ''}${share ? `/${enc(share)}` : ''}${inside ? `/${inside}` : ''}`;
}

/** Id of the workspace that an address names. */
export async function resolveWorkspace(word) {
  const colon = word.lastIndexOf(':');
  if (colon >= 0) {
    const base = `/subscriptions/${await subscription()}/resourceGroups/${enc(word.slice(0, colon))}`;
    return `${base}/providers/Microsoft.BatchAI/workspaces/${enc(word.slice(colon + 1))}`;
  }
  const all = await api.all('~/providers/Microsoft.BatchAI/workspaces');
  const found = all.filter((one) => one.name.toLowerCase() === word.toLowerCase());
  if (found.length === 1) return found[0].id;
  throw new Error(found.length
    ? `There are ${found.length} workspaces named '${word}': write GROUP:${word} in the address.`
    : `There is no workspace '${word}' that you may read.`);
}
