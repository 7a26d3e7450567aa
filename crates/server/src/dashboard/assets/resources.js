// Groups, workspaces and experiments: listed, and made when a form needs them. The names and the place of new ones are those of
// `corro submit`.

import { api } from './api.js';
import { partsOf } from './routes.js';

const DEFAULT_NAME = 'default';
const LOCATION = 'eastus';

/** Workspaces as `[value, text]` for a choice; a server without any offers to make one. Values are for `ensureWorkspace`. */
export async function workspaceChoices() {
  const all = await api.all('~/providers/Microsoft.BatchAI/workspaces');
  if (!all.length) return [[`${DEFAULT_NAME}/${DEFAULT_NAME}`, `${DEFAULT_NAME} (new)`]];
  return all.map((one) => { const { group } = partsOf(one.id); return [`${group}/${one.name}`, `${one.name} in ${group}`]; });
}

/** Id of a workspace, which is made with its group if it does not exist. */
export async function ensureWorkspace(choice) {
  const [group, workspace] = choice.split('/');
  const id = `/resourceGroups/${encodeURIComponent(group)}/providers/Microsoft.BatchAI/workspaces/${encodeURIComponent(workspace)}`;
  const all = await api.all('~/providers/Microsoft.BatchAI/workspaces');
  const found = all.find((one) => one.id.toLowerCase().endsWith(decodeURIComponent(id).toLowerCase()));
  if (found) return found.id;
  const location = await ensureGroup(group);
  return (await api.put(`~${id}`, { location })).id;
}

/** Location of a group, which is made if it does not exist. */
export async function ensureGroup(name) {
  const groups = await api.all('~/resourceGroups');
  const found = groups.find((one) => one.name.toLowerCase() === name.toLowerCase());
  return (found ?? await api.put(`~/resourceGroups/${encodeURIComponent(name)}`, { location: LOCATION })).location;
}

/** Id of an experiment, which is made if it does not exist. */
export async function ensureExperiment(workspaceId, name) {
  return (await api.put(`${workspaceId}/experiments/${encodeURIComponent(name)}`)).id;
}
