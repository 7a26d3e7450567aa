// Places of a job on file shares, from the paths in its file. The rules are those of `model::mount`. Pure; no requests.

const ROOTS = [['AZ_BATCHAI_JOB_MOUNT_ROOT', 'job'], ['AZ_BATCHAI_MOUNT_ROOT', 'cluster']];
/** Directory below a submitted job's directory where its logs are. */
const SUBMITTED_LOGS = '/.corro/logs';

const components = (path) => path.split('/').filter((part) => part && part !== '.');

/** `{account, share, path}` of a path in a job file; null if it is not on a share. `volumes` are the `mountVolumes` of `job` and
 * `cluster`. */
export function locate(path, volumes) {
  for (const [variable, owner] of ROOTS) {
    const match = new RegExp(`^\\$(?:${variable}|\\{${variable}\\})(/.*)?$`).exec(path ?? '');
    if (!match) continue;
    const wanted = components(match[1] ?? '');
    for (const { azureFileUrl, accountName, relativeMountPath } of volumes[owner]?.azureFileShares ?? []) {
      const mount = components(relativeMountPath);
      const [, host, share] = /^(?:[^:/]+:\/\/)?([^/]+)\/([^/]+)\/?$/.exec(azureFileUrl) ?? [];
      if (!share || !mount.every((part, at) => wanted[at] === part)) continue;
      return { account: accountName || host.split(/[.:]/)[0], share, path: wanted.slice(mount.length).join('/') };
    }
  }
  return null;
}

/** Directory of a job that `corro submit` made: it holds the files that were sent and what the job wrote. Null for other jobs. */
export function submittedFolder({ stdOutErrPathPrefix: prefix, mountVolumes }) {
  return prefix?.endsWith(SUBMITTED_LOGS) ? locate(prefix.slice(0, -SUBMITTED_LOGS.length), { job: mountVolumes }) : null;
}

/** Directory of a job's logs; null if they are on no share. */
export function logFolder(properties, clusterVolumes) {
  const place = locate(properties.stdOutErrPathPrefix, { job: properties.mountVolumes, cluster: clusterVolumes });
  return place && { ...place, path: [...components(place.path), properties.jobOutputDirectoryPathSegment, 'stdouterr'].join('/') };
}

/** Directory of an output directory of the job; null if it is on no share. */
export function outputFolder(properties, id, clusterVolumes) {
  const { pathPrefix, pathSuffix } = (properties.outputDirectories ?? []).find((one) => one.id === id) ?? {};
  const place = locate(pathPrefix, { job: properties.mountVolumes, cluster: clusterVolumes });
  return place && { ...place, path: [...components(place.path), properties.jobOutputDirectoryPathSegment, 'outputs', ...components(pathSuffix ?? '')].join('/') };
}
