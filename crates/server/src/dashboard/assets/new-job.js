// What the forms of the submit page send: the file of a job from its fields, and one from a text. The directory of a job on its share and
// the fields of its file are those of `corro submit`, so that `corro fetch` finds the results. Pure.

const MOUNT_ROOT = '$AZ_BATCHAI_JOB_MOUNT_ROOT';
const LOGS = '.corro/logs';

/** Ways to start the processes: value, text, and whether there is more than one process. */
export const LAUNCHES = [['each', 'One process per node (Horovod, PyTorch, ...)'], ['mpi', 'With mpirun'], ['once', 'Once, on the first node']];

/** Directory of a job on its share. */
export const jobDirectory = (workspace, experiment, job) => `${workspace}/${experiment}/${job}`;

/** Properties of a job. `place`: `{account, share, path}` of its directory; `hasFiles`: files were sent there, and it starts there. */
export function jobProperties({ clusterId, place, hasFiles, command, launch, nodes, processes, image, variables }) {
  const directory = `${MOUNT_ROOT}/${place.share}/${place.path}`;
  const environment = launch === 'each' ? [{ name: 'CORRO_MPIRUN', value: 'none' }, ...variables] : variables;
  const count = processes ? { processCount: processes } : {};
  return {
    cluster: { id: clusterId }, nodeCount: nodes,
    ...(launch === 'once' ? { customToolkitSettings: { commandLine: command } } : { customMpiSettings: { commandLine: command, ...count } }),
    mountVolumes: { azureFileShares: [{ accountName: place.account, azureFileUrl: `https${'://'}${place.account}.file.core.windows.net/${place.share}`, relativeMountPath: place.share }] },
    stdOutErrPathPrefix: `${directory}/${LOGS}`,
    ...(hasFiles && { workingDirectory: directory }),
    ...(launch !== 'once' && (processes || nodes) > 1 && { prefixOutputWithRank: true }),
    ...(image && { containerSettings: { imageSourceRegistry: { image } } }),
    ...(environment.length && { environmentVariables: environment }),
  };
}

/** Variables of lines `NAME=value`; an error names the line. */
export function parseVariables(text) {
  return text.split('\n').map((line) => line.trim()).filter(Boolean).map((line) => {
    const at = line.indexOf('=');
    if (at < 1) throw Object.assign(new Error(`'${line}' is not a variable: write NAME=value.`), { target: 'properties.environmentVariables' });
    return { name: line.slice(0, at), value: line.slice(at + 1) };
  });
}

/** Properties of a job file's text, with its cluster if it names none and with the placeholders of the storage account filled in. */
export function parseJobFile(text, { clusterId, account }) {
  let file;
  try { file = JSON.parse(text.replaceAll('<AZURE_BATCHAI_STORAGE_ACCOUNT>', account ?? '<AZURE_BATCHAI_STORAGE_ACCOUNT>')); } catch (error) {
    throw Object.assign(new Error(`This is not JSON: ${error.message}`), { target: 'file' });
  }
  const properties = file.properties ?? file;
  if (!properties.cluster && clusterId) properties.cluster = { id: clusterId };
  for (const volume of [...(properties.mountVolumes?.azureFileShares ?? []), ...(properties.mountVolumes?.azureBlobFileSystems ?? [])]) {
    if (volume.credentials?.accountKey === '<AZURE_BATCHAI_STORAGE_KEY>') delete volume.credentials;
  }
  return properties;
}

/** Range of a field's name in a job file: `[start, end]`, or null. */
export function fieldRange(text, target) {
  const names = target.split('.').map((part) => part.replace(/\[.*$/, '')).filter(Boolean);
  let at = 0;
  let found = null;
  for (const name of names) {
    const next = text.indexOf(`"${name}"`, at);
    if (next < 0) continue;
    found = [next + 1, next + 1 + name.length];
    at = next;
  }
  return found;
}
