// Files of a directory that was dropped or picked, and their upload to a share. Directories that tools make again are left out.

const LEFT_OUT = new Set(['.git', '__pycache__', '.corro', '.venv', 'node_modules', '.ipynb_checkpoints']);
const PARALLEL_FILES = 4;

/** `[{path, file}]` of dropped items. One dropped directory is the root of the paths. */
export async function droppedFiles(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files].map((file) => ({ path: file.name, file }));
  const found = [];
  const isOnlyDirectory = entries.length === 1 && entries[0].isDirectory;
  for (const entry of entries) await walk(entry, isOnlyDirectory ? '' : entry.name, found);
  return found;
}

async function walk(entry, path, found) {
  if (entry.isFile) {
    found.push({ path, file: await new Promise((resolve, reject) => { entry.file(resolve, reject); }) });
    return;
  }
  const reader = entry.createReader();
  for (;;) {
    // A reader returns a part of a directory at a time.
    const entries = await new Promise((resolve, reject) => { reader.readEntries(resolve, reject); });
    if (!entries.length) return;
    for (const one of entries) if (!LEFT_OUT.has(one.name)) await walk(one, path ? `${path}/${one.name}` : one.name, found);
  }
}

/** `[{path, file}]` of a picked directory: paths are below it. */
export function pickedFiles(files) {
  return [...files].map((file) => ({ path: file.webkitRelativePath.split('/').slice(1).join('/') || file.name, file }))
    .filter(({ path }) => !path.split('/').some((part) => LEFT_OUT.has(part)));
}

/** Sends the files below the directory `root` of an opened share. `onProgress(bytes)` is called with the sum so far. */
export async function uploadFiles(share, root, files, onProgress, signal) {
  const known = new Set();
  const existing = new Map();
  // Directories above the job's may exist; those that this upload makes need not be looked for.
  async function ensureDirectory(path) {
    if (!path || known.has(path)) return;
    const cut = path.lastIndexOf('/');
    const parent = cut < 0 ? '' : path.slice(0, cut);
    const isNew = known.has(`new:${parent}`);
    await ensureDirectory(parent);
    if (!isNew && !existing.has(parent)) existing.set(parent, new Set((await share.list(parent)).filter((one) => one.isDirectory).map((one) => one.name)));
    if (isNew || !existing.get(parent).has(path.slice(cut + 1))) {
      await share.makeDirectory(path);
      known.add(`new:${path}`);
    }
    known.add(path);
  }
  const places = files.map(({ path, file }) => ({ path: `${root}/${path}`, file }));
  await ensureDirectory(root);
  for (const { path } of places) await ensureDirectory(path.slice(0, path.lastIndexOf('/')));
  const sent = new Map();
  const queue = [...places];
  const next = async () => {
    for (let one = queue.shift(); one; one = queue.shift()) {
      const { path, file } = one;
      await share.write(path, file, (bytes) => { sent.set(path, bytes); onProgress([...sent.values()].reduce((sum, n) => sum + n, 0)); }, signal);
    }
  };
  await Promise.all(Array.from({ length: PARALLEL_FILES }, next));
}
