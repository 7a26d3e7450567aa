// Clone dialog: a job's JSON in an editor, submitted under another name.

import { api } from './api.js';
import { h, put } from './dom.js';
import { toast } from './components.js';
import { pageOf } from './routes.js';

// Fields of a job's response that are not part of a submission.
const RESPONSE_ONLY_FIELDS = ['experimentName', 'jobOutputDirectoryPathSegment', 'toolType', 'creationTime', 'provisioningState',
  'provisioningStateTransitionTime',
  'executionState', 'executionStateTransitionTime', 'executionInfo', 'waitingFor', 'waiting', 'givingWay', 'lostAttempts', 'sizeChanges', 'annotations'];

export async function cloneJob(job, context) {
  const usedNames = new Set((await api.all(job.id.replace(/\/[^/]*$/, ''))).map((other) => other.name.toLowerCase()));
  const file = toJobFile(job);
  const name = h('input', { value: nextName(job.name, usedNames), required: true, autofocus: true, spellcheck: 'false', 'aria-label': 'Name' });
  const editor = h('textarea', { spellcheck: 'false', 'aria-label': 'job.json',
    value: JSON.stringify({ properties: file.properties }, null, 2) });
  const errorNote = h('p', { class: 'bad', role: 'alert' });
  const directories = directoriesIn(file.properties).map((directory) => {
    const note = h('p', { class: 'warn small shared-directory' }, `${directory.option} ${directory.path} is the directory of ${job.name}: `
      + 'the copy would go on from what lies there, or overwrite it. ');
    note.append(h('button', { type: 'button', class: 'quiet', onclick: () => {
      const separate = `${directory.path}-${name.value.trim()}`;
      editor.value = editor.value.replaceAll(directory.text, directory.text.replace(directory.path, separate));
      put(note, `${directory.option} is now ${separate}.`);
    } }, 'Use a separate directory'));
    return note;
  });
  const submit = h('button', { type: 'submit', class: 'primary' }, 'Submit');
  const dialog = h('dialog', { class: 'editor', 'aria-label': `Clone ${job.name}`, onclose: () => dialog.remove() },
    h('form', { onsubmit: (event) => {
    event.preventDefault();
    send();
  } },
  h('h2', null, `Clone ${job.name}`),
  h('label', null, 'Name', name),
  h('label', null, 'job.json', editor),
  file.secrets.length > 0 && h('p', { class: 'soft small' },
    `The server does not return secrets: enter the values of ${file.secrets.join(', ')}.`),
  directories,
  errorNote,
  h('div', { class: 'actions' }, h('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel'), submit)));
  document.body.append(dialog);
  dialog.showModal();

  async function send() {
    put(errorNote);
    submit.disabled = true;
    try {
      let body;
      try { body = JSON.parse(editor.value); } catch (error) { throw new Error(`This is not JSON: ${error.message}`); }
      const newName = name.value.trim();
      if (usedNames.has(newName.toLowerCase())) throw new Error(`A job named ${newName} already exists: choose another name.`);
      const missing = (body.properties?.secrets ?? []).find((secret) => secret.value === '');
      if (missing) throw new Error(`The secret ${missing.name} has no value: enter one or remove the secret.`);
      if (body.properties?.notifications?.webhook?.url?.includes('***')) throw new Error('The url of the webhook is shortened: enter all of it, or remove notifications.');
      await addAccountKeys(body.properties?.mountVolumes);
      const id = `${job.id.replace(/\/[^/]*$/, '')}/${encodeURIComponent(newName)}`;
      await api.put(id, body);
      dialog.close();
      toast(`${newName} is submitted.`);
      context.go(pageOf(id));
    } catch (error) { put(errorNote, error.message); } finally { submit.disabled = false; }
  }
}

// Options that name an output path which each run would share, unlike the job's own output directories.
const DIRECTORY = /(--?(?:(?:[a-z]+[-_])?(?:dir|directory|folder|path)|out|output))(?:=|\s+)((?!-)[^\s"';|&]+)/g;
const OWN_DIRECTORY = /\$\{?AZ_BATCHAI_(OUTPUT_\w+|JOB_TEMP\b|STDOUTERR_DIR|SHARED_JOB_TEMP)/;
const INPUT = /^--?(data|input|train|dataset|script|code)/;

/** Output paths in the command lines of a job: `[{option, path, text}]`. */
export function directoriesIn(properties) {
  const lines = Object.values(properties).flatMap((settings) => [settings?.commandLine, settings?.commandLineArgs]);
  const matches = lines.filter((line) => typeof line === 'string').flatMap((line) => [...line.matchAll(DIRECTORY)]);
  return matches.map(([text, option, path]) => ({ text, option, path })).filter(({ option, path }) => !OWN_DIRECTORY.test(path) && !INPUT.test(option));
}

function nextName(name, usedNames) {
  const [, stem, number] = /^(.*?)(?:-(\d+))?$/.exec(name);
  let next = Number(number ?? 1) + 1;
  while (usedNames.has(`${stem}-${next}`.toLowerCase())) next += 1;
  return `${stem}-${next}`;
}

/** The job as a file to submit: `{properties, secrets}`, with the names of secrets whose values are missing. */
export function toJobFile(job) {
  const properties = Object.fromEntries(Object.entries(job.properties).filter(([name, value]) => !RESPONSE_ONLY_FIELDS.includes(name) && value !== null));
  const secrets = (properties.secrets ?? []).filter((secret) => !secret.valueSecretReference).map((secret) => secret.name);
  if (secrets.length) properties.secrets = properties.secrets.map((secret) => (secret.valueSecretReference ? secret : { ...secret,
    value: '' }));
  if (properties.notifications?.webhook) secrets.push('the webhook');
  return { properties, secrets };
}

// Account keys are not in the job either, but a user who may submit may list them, as `corro batchai job create` does.
export async function addAccountKeys(volumes) {
  const all = [...(volumes?.azureFileShares ?? []), ...(volumes?.azureBlobFileSystems ?? [])];
  const withoutKey = all.filter(({ credentials }) => !credentials?.accountKey && !credentials?.accountKeySecretReference);
  if (!withoutKey.length) return;
  const accounts = await api.all('~/providers/Microsoft.Storage/storageAccounts');
  for (const volume of withoutKey) {
    // As the client does: the first label of the URL's host.
    volume.accountName ??= /^[^:]+:\/\/([^./:]+)/.exec(volume.azureFileUrl ?? '')?.[1];
    const account = accounts.find((one) => one.name === volume.accountName);
    if (!account) throw new Error(`There is no storage account ${volume.accountName} that you may read: correct mountVolumes.`);
    const { keys } = await api.post(`${account.id}/listKeys`);
    volume.credentials = { ...volume.credentials, accountKey: keys[0].value };
  }
}
