// Submit page: a job from a form, with a directory that is sent to a share, or from a job file.

import { api } from '../api.js';
import { droppedFiles, pickedFiles, uploadFiles } from '../directory-upload.js';
import { h, mark, put, text } from '../dom.js';
import { bytes, plural, toast } from '../components.js';
import { field, select, showError } from '../forms.js';
import { addAccountKeys } from '../job-clone.js';
import { LAUNCHES, fieldRange, jobDirectory, jobProperties, parseJobFile, parseVariables } from '../new-job.js';
import { ensureExperiment, ensureWorkspace, workspaceChoices } from '../resources.js';
import { nameOf, pageOf, partsOf } from '../routes.js';
import { openShare, shares } from '../share-client.js';

export async function show(root, params, context) {
  context.title('Submit a job');
  const query = new URLSearchParams(location.search);
  const [clusters, workspaces, allShares] = await Promise.all([api.all('~/providers/Corro/clusters'), workspaceChoices(), shares()]);
  const input = (name, attributes = {}) => h('input', { name, autocomplete: 'off', spellcheck: 'false', ...attributes });
  const workspace = field('Workspace', select(workspaces, { name: 'workspace', onchange: () => loadExperiments() }), ['workspace']);
  const experiment = field('Experiment', input('experiment', { required: true, list: 'experiments', value: query.get('experiment') ?? '', onchange: () => suggestName() }), ['experiment'], 'A new name makes a new experiment');
  const name = field('Name of the job', input('name', { required: true }), ['job']);
  const cluster = field('Cluster', select(clusters.map((one) => [one.id, `${one.name} (${plural(one.properties.currentNodeCount, 'node')})`]), { name: 'cluster', required: true }), ['properties.cluster.id', 'properties.cluster']);
  const share = field('Share', select(allShares.map((one) => [`${one.account}/${one.name}`, `${one.name} in ${one.account}`]), { name: 'share', required: true }), ['properties.mountVolumes', 'properties.stdOutErrPathPrefix'],
    'Receives the directory, the logs and the results');
  const command = field('Command', input('command', { placeholder: 'python3 train.py --epochs 3' }), ['properties.customToolkitSettings.commandLine', 'properties.customMpiSettings.commandLine', 'properties.customToolkitSettings', 'properties.customMpiSettings']);
  const launch = field('Processes', select(LAUNCHES, { name: 'launch' }));
  const nodes = field('Nodes', input('nodes', { type: 'number', min: 1, value: 1 }), ['properties.nodeCount']);
  const processes = field('Number of processes', input('processes', { type: 'number', min: 1, placeholder: 'one per node' }), ['properties.customMpiSettings.processCount']);
  const image = field('Container image', input('image', { placeholder: 'none' }), ['properties.containerSettings']);
  const variables = field('Environment', h('textarea', { name: 'variables', placeholder: 'NAME=value', spellcheck: 'false' }), ['properties.environmentVariables'], 'One variable per line');
  const file = field('job.json', h('textarea', { name: 'file', class: 'mono', spellcheck: 'false', placeholder: '{ "properties": { "nodeCount": 1, ... } }' }), ['file', 'properties'], 'Write, paste, drop or open a job file. Without a cluster it runs on the one above.');
  const elsewhere = h('div');
  const button = h('button', { class: 'primary' }, 'Submit');
  const progress = h('progress', { max: 1, value: 0, hidden: true, 'aria-label': 'Upload' });
  const experimentList = h('datalist', { id: 'experiments' });
  let [isFile, files] = [false, []];
  let [usedNames, experimentIds] = [new Set(), new Map()];

  const chosen = h('span', { class: 'soft' }, 'None');
  const picker = h('input', { type: 'file', webkitdirectory: true, hidden: true, name: 'directory', onchange: () => take(pickedFiles(picker.files)) });
  const filePicker = h('input', { type: 'file', accept: '.json,application/json', hidden: true, name: 'job-file', onchange: () => openFile(filePicker.files[0]) });
  const directory = h('div', { class: 'drop-zone' }, h('b', null, 'Directory'), chosen, h('span', { class: 'grow' }),
    h('span', { class: 'soft small' }, 'Drop it here, or'), h('button', { type: 'button', onclick: () => picker.click() }, 'Choose'), picker);
  const byForm = h('div', { class: 'fields' }, directory, command.element, h('div', { class: 'field-row' }, nodes.element, launch.element, processes.element),
    h('div', { class: 'field-row' }, image.element, variables.element));
  const byFile = h('div', { class: 'fields', hidden: true }, file.element, h('div', null, h('button', { type: 'button', onclick: () => filePicker.click() }, 'Open a file'), filePicker));
  const ways = [['Form', false], ['job.json', true]].map(([label, value]) => h('button', { type: 'button', 'aria-pressed': String(value === isFile), onclick: () => choose(value) }, label));
  const fields = [workspace, experiment, name, cluster, share, command, launch, nodes, processes, image, variables, file];
  // In a job file, every field of the job is in the text.
  const fieldsInSight = () => (isFile ? [workspace, experiment, name, file] : fields.filter((one) => one !== file));
  const form = h('form', { class: 'panel submit', onsubmit: (event) => { event.preventDefault(); send(); } },
    h('div', { class: 'field-row' }, workspace.element, experiment.element, name.element), h('div', { class: 'field-row' }, cluster.element, share.element),
    h('div', { class: 'tabs', role: 'group', 'aria-label': 'How to describe the job' }, ways), byForm, byFile, elsewhere,
    h('div', { class: 'actions' }, progress, button), experimentList);
  put(root, h('nav', { class: 'crumbs', 'aria-label': 'Where' }, h('a', { href: '/ui/jobs' }, 'Jobs')), h('div', { class: 'head' }, h('h1', null, 'Submit a job')),
    !clusters.length && h('p', { class: 'note waiting' }, 'There is no cluster yet. ', h('a', { href: '/ui/clusters?new' }, 'Create one')),
    !allShares.length && h('p', { class: 'note waiting' }, 'There is no share yet. ', h('a', { href: '/ui/shares?new' }, 'Create one')), form);
  acceptDrops(form, async (transfer) => {
    const dropped = await droppedFiles(transfer);
    if (dropped.length === 1 && dropped[0].path.endsWith('.json')) { choose(true); openFile(dropped[0].file); } else { choose(false); take(dropped); }
  });
  const given = (value, choices) => choices.find(([one]) => one.toLowerCase() === value?.toLowerCase())?.[0];
  if (query.has('cluster')) cluster.input.value = clusters.find((one) => one.id.toLowerCase() === query.get('cluster').toLowerCase())?.id ?? cluster.input.value;
  if (query.has('workspace')) workspace.input.value = given(query.get('workspace'), workspaces) ?? workspace.input.value;
  await loadExperiments();
  name.input.focus();

  function choose(value) {
    isFile = value;
    showError(fields, elsewhere, null);
    ways.forEach((way, at) => mark(way, 'aria-pressed', String((at === 1) === isFile)));
    mark(byForm, 'hidden', isFile ? '' : null);
    mark(byFile, 'hidden', isFile ? null : '');
  }
  function take(list) {
    files = list;
    text(chosen, list.length ? `${plural(list.length, 'file')}, ${bytes(list.reduce((sum, one) => sum + one.file.size, 0))}` : 'None');
    const script = list.find((one) => /^[^/]*\.py$/.test(one.path) && /^(train|main|run)/.test(one.path)) ?? list.find((one) => /^[^/]*\.py$/.test(one.path));
    if (!command.input.value && script) command.input.value = `python3 ${script.path}`;
  }
  async function openFile(opened) {
    if (opened) file.input.value = await opened.text();
  }

  // Existing experiments of the workspace, and a free name.
  async function loadExperiments() {
    const all = (await api.all('~/providers/Corro/experiments')).filter((one) => `${one.resourceGroup}/${one.workspace}`.toLowerCase() === workspace.input.value.toLowerCase());
    put(experimentList, all.map((one) => h('option', { value: one.name })));
    if (!experiment.input.value) experiment.input.value = all[0]?.name ?? 'experiments';
    experimentIds = new Map(all.map((one) => [one.name.toLowerCase(), one.id]));
    await suggestName();
  }
  async function suggestName() {
    const id = experimentIds.get(experiment.input.value.trim().toLowerCase());
    usedNames = new Set(id ? (await api.all(`${id}/jobs`)).map((job) => job.name.toLowerCase()) : []);
    if (name.input.value && !usedNames.has(name.input.value.toLowerCase())) return;
    let n = usedNames.size + 1;
    while (usedNames.has(`job-${n}`)) n += 1;
    name.input.value = `job-${n}`;
  }

  async function send() {
    showError(fields, elsewhere, null);
    button.disabled = true;
    try {
      const job = name.input.value.trim();
      const account = share.input.value.split('/')[0];
      if (usedNames.has(job.toLowerCase())) throw Object.assign(new Error(`There is a job ${job} already: choose another name.`), { target: 'job' });
      const typed = isFile ? parseJobFile(file.input.value, { clusterId: cluster.input.value, account }) : { variables: parseVariables(variables.input.value) };
      const workspaceId = await ensureWorkspace(workspace.input.value);
      const experimentId = await ensureExperiment(workspaceId, experiment.input.value.trim());
      const properties = isFile ? typed : await propertiesOfForm(job, nameOf(workspaceId), nameOf(experimentId), typed.variables);
      await addAccountKeys(properties.mountVolumes);
      const id = `${experimentId}/jobs/${encodeURIComponent(job)}`;
      await api.put(id, { properties });
      toast(`${job} is submitted.`);
      await context.go(pageOf(id));
    } catch (error) {
      if (isFile && error.target?.startsWith('properties')) error.message = `${error.target}: ${error.message}`;
      showError(fieldsInSight(), elsewhere, error);
      const range = isFile && error.target && fieldRange(file.input.value, error.target);
      if (range) { file.input.focus(); file.input.setSelectionRange(...range); }
    } finally {
      button.disabled = false;
      progress.hidden = true;
    }
  }

  async function propertiesOfForm(job, workspaceName, experimentName, variableList) {
    const [account, shareName] = share.input.value.split('/');
    const place = { account, share: shareName, path: jobDirectory(workspaceName, experimentName, job) };
    const properties = jobProperties({ clusterId: cluster.input.value, place, hasFiles: files.length > 0, command: command.input.value.trim(), launch: launch.input.value,
      nodes: Number(nodes.input.value), processes: Number(processes.input.value) || null, image: image.input.value.trim(), variables: variableList });
    const sizes = Object.fromEntries(files.map((one) => [one.path, one.file.size]));
    const sentFiles = { path: '.corro/sent-files.json', file: new Blob([JSON.stringify({ files: sizes })]) };
    progress.max = files.reduce((sum, one) => sum + one.file.size, 0) || 1;
    progress.hidden = false;
    await uploadFiles(await openShare(account, shareName), place.path, [...files, sentFiles], (sent) => { progress.value = sent; });
    return properties;
  }
}

function acceptDrops(element, onDrop) {
  const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes('Files');
  let depth = 0;
  const setDepth = (change) => { depth = Math.max(0, depth + change); mark(element, 'data-over', depth ? '' : null); };
  element.addEventListener('dragenter', (event) => { if (hasFiles(event)) { event.preventDefault(); setDepth(1); } });
  element.addEventListener('dragover', (event) => { if (hasFiles(event)) event.preventDefault(); });
  element.addEventListener('dragleave', () => setDepth(-1));
  element.addEventListener('drop', (event) => { event.preventDefault(); setDepth(-depth); onDrop(event.dataTransfer); });
}
