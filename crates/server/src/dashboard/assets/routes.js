// Page addresses and resource ids. A workspace is written GROUP:WORKSPACE in an address; its name alone works if it is unique.

import { api, subscription } from './api.js';

const enc = encodeURIComponent;

/** `/subscriptions/S/resourceGroups/G/providers/P/workspaces/W/experiments/E/jobs/J` as `{group, workspaces: W, experiments: E, jobs: J}`. */
export function partsOf(id) {
  const segments = id.replace(/^\//, '').split('/');
  const parts = { subscription: segments[1], group: segments[3] };
  for (let at = 6; at + 1 < segments.length; at += 2) parts[segments[at]] = segments[at + 1];
  return parts;
}

/** Last segment of an id. */
export const nameOf = (id) => id?.slice(id.lastIndexOf('/') + 1) ?? '';

/** Address of the page of a job, experiment, cluster or workspace. */
export function pageOf(id) {
  const { group, workspaces, experiments, jobs, clusters } = partsOf(id);
  const workspace = `${enc(group)}:${enc(workspaces ?? '')}`;
  if (jobs) return `/ui/jobs/${workspace}/${enc(experiments)}/${enc(jobs)}`;
  if (experiments) return `/ui/experiments/${workspace}/${enc(experiments)}`;
  if (clusters) return `/ui/clusters/${workspace}/${enc(clusters)}`;
  return '/ui/';
}

/** Address of the page of a node of the cluster with this id. */
export const pageOfNode = (clusterId, nodeId) => `${pageOf(clusterId).replace('/clusters/', '/nodes/')}/${enc(nodeId)}`;

/** Address of the page of a path in a share. */
export function pageOfShare(account, share, path = '') {
  const encodedPath = path.split('/').filter(Boolean).map(enc).join('/');
  return `/ui/shares${account ? `/${enc(account)}` : ''}${share ? `/${enc(share)}` : ''}${encodedPath ? `/${encodedPath}` : ''}`;
}

/** Id of the workspace that an address names. */
export async function resolveWorkspace(address) {
  const colon = address.lastIndexOf(':');
  if (colon >= 0) {
    const base = `/subscriptions/${await subscription()}/resourceGroups/${enc(address.slice(0, colon))}`;
    return `${base}/providers/Microsoft.BatchAI/workspaces/${enc(address.slice(colon + 1))}`;
  }
  const all = await api.all('~/providers/Microsoft.BatchAI/workspaces');
  const matches = all.filter((one) => one.name.toLowerCase() === address.toLowerCase());
  if (matches.length === 1) return matches[0].id;
  throw new Error(matches.length
    ? `There are ${matches.length} workspaces named '${address}': write GROUP:${address} in the address.`
    : `There is no workspace '${address}' that you may read.`);
}
