// Form for a new cluster.

import { api } from './api.js';
import { h, mark } from './dom.js';
import { field, formDialog, select } from './forms.js';
import { ensureWorkspace, workspaceChoices } from './resources.js';
import { pageOf } from './routes.js';

const SIZES = ['STANDARD_D1', 'STANDARD_D2_V2', 'STANDARD_D3_V2', 'STANDARD_D4_V2', 'STANDARD_NC6', 'STANDARD_NC12', 'STANDARD_NC24'];
const SCALE = 'properties.scaleSettings';
const ACCOUNT = 'properties.userAccountSettings';

/** Opens the form. `go(path)` navigates to the new cluster. */
export async function newCluster(go) {
  const number = (value) => h('input', { type: 'number', min: 0, step: 1, value, required: true });
  const workspace = field('Workspace', select(await workspaceChoices()), ['workspace']);
  const name = field('Name', h('input', { name: 'name', required: true, autofocus: true, autocomplete: 'off', spellcheck: 'false' }), ['cluster']);
  const size = field('VM size', h('input', { name: 'size', required: true, value: SIZES[1], list: 'vm-sizes', autocomplete: 'off', spellcheck: 'false' }), ['properties.vmSize'],
    'Cores, memory and GPUs of a node');
  const scaling = field('Scaling', select([['auto', 'Follows its jobs'], ['manual', 'Fixed size']], { name: 'scaling', onchange: () => fit() }));
  const least = field('At least', number(0), [`${SCALE}.autoScale.minimumNodeCount`]);
  const most = field('At most', number(2), [`${SCALE}.autoScale`, `${SCALE}.manual`, SCALE], 'Nodes');
  const priority = field('Priority', select([['dedicated', 'Dedicated'], ['lowpriority', 'Low priority: may be preempted']]), ['properties.vmPriority']);
  const user = field('User on the nodes', h('input', { name: 'user', required: true, value: 'corro', autocomplete: 'off', spellcheck: 'false' }), [`${ACCOUNT}.adminUserName`]);
  const key = field('SSH public key', h('input', { name: 'key', autocomplete: 'off', spellcheck: 'false', placeholder: 'ssh-ed25519 AAAA…' }),
    [`${ACCOUNT}.adminUserSshPublicKey`, ACCOUNT], 'Or a password');
  const password = field('Password', h('input', { name: 'password', type: 'password', autocomplete: 'new-password' }), [`${ACCOUNT}.adminUserPassword`]);

  function fit() {
    const isAuto = scaling.input.value === 'auto';
    mark(least.element, 'hidden', isAuto ? null : '');
    most.element.firstChild.textContent = isAuto ? 'At most' : 'Number of nodes';
  }
  async function submit() {
    const workspaceId = await ensureWorkspace(workspace.input.value);
    const count = Number(most.input.value);
    const id = `${workspaceId}/clusters/${encodeURIComponent(name.input.value.trim())}`;
    await api.put(id, { properties: {
      vmSize: size.input.value.trim(), vmPriority: priority.input.value,
      scaleSettings: scaling.input.value === 'auto' ? { autoScale: { minimumNodeCount: Number(least.input.value), maximumNodeCount: count } } : { manual: { targetNodeCount: count } },
      userAccountSettings: { adminUserName: user.input.value.trim(),
        ...(key.input.value.trim() && { adminUserSshPublicKey: key.input.value.trim() }), ...(password.input.value && { adminUserPassword: password.input.value }) },
    } });
    go(pageOf(id));
  }
  formDialog({ title: 'New cluster', label: 'Create', submit, fields: [workspace, name, size, scaling, least, most, priority, user, key, password] })
    .append(h('datalist', { id: 'vm-sizes' }, SIZES.map((one) => h('option', { value: one }))));
  fit();
}
