// Form for a new share, in an existing storage account or in a new one.

import { api } from './api.js';
import { h, mark } from './dom.js';
import { field, formDialog, select } from './forms.js';
import { ensureGroup } from './resources.js';
import { pageOfShare, partsOf } from './routes.js';

const NEW = '';
const DEFAULT_GROUP = 'default';

/** Opens the form. `go(path)` navigates to the new share. */
export async function newShare(go) {
  const [accounts, groups] = await Promise.all([api.all('~/providers/Microsoft.Storage/storageAccounts'), api.all('~/resourceGroups')]);
  const name = field('Name', h('input', { name: 'name', required: true, autofocus: true, autocomplete: 'off', spellcheck: 'false' }), ['share'], 'Lower-case letters, digits and -');
  const account = field('Storage account', select([...accounts.map((one) => [one.id, one.name]), [NEW, 'New account']], { name: 'account', onchange: () => fit() }), ['accountId']);
  const group = field('Resource group', select(groups.length ? groups.map((one) => [one.name, one.name]) : [[DEFAULT_GROUP, `${DEFAULT_GROUP} (new)`]], { name: 'group' }), ['resource group']);
  const accountName = field('Name of the new account', h('input', { name: 'account-name', autocomplete: 'off', spellcheck: 'false' }), ['storage account', 'accountName', 'account'],
    '3 to 24 lower-case letters and digits');

  function fit() {
    const isNew = account.input.value === NEW;
    for (const one of [group, accountName]) mark(one.element, 'hidden', isNew ? null : '');
    accountName.input.required = isNew;
  }
  async function submit() {
    let id = account.input.value;
    if (id === NEW) {
      const location = await ensureGroup(group.input.value);
      id = `/resourceGroups/${encodeURIComponent(group.input.value)}/providers/Microsoft.Storage/storageAccounts/${encodeURIComponent(accountName.input.value.trim())}`;
      const made = await api.put(`~${id}`, { location, sku: { name: 'Standard_LRS' }, kind: 'StorageV2' });
      id = made?.id ?? `~${id}`;
    }
    const share = name.input.value.trim();
    const { account: owner } = await api.put(`${id}/shares/${encodeURIComponent(share)}`);
    go(pageOfShare(owner ?? partsOf(id).storageAccounts, share));
  }
  formDialog({ title: 'New share', label: 'Create', submit, fields: [name, account, group, accountName] });
  fit();
}
