// Files that a job of `corro submit` wrote to its directory: all but those that were sent with it, as `corro fetch` downloads them.

import { openShare } from './share-client.js';

const OWN_DIRECTORY = '.corro';
const MAX_LIST_BYTES = 8 << 20;

export class SubmittedFiles {
  /** `folder` is the job's directory: `{account, share, path}`. */
  constructor(folder) {
    Object.assign(this, { folder, share: null, sent: null });
  }

  /** Files in the form of `listFiles`, in the directory `path` below the job's. */
  async list(path) {
    this.share ??= openShare(this.folder.account, this.folder.share);
    const share = await this.share;
    this.sent ??= this.readSentFiles(share);
    const sent = await this.sent;
    const entries = await share.list(`${this.folder.path}/${path}`);
    const isWritten = ({ name, isDirectory, size }) => (isDirectory ? path || name !== OWN_DIRECTORY : sent[path ? `${path}/${name}` : name] !== size);
    return Promise.all(entries.filter(isWritten).map(async ({ name, isDirectory, size }) => (isDirectory ? { name, fileType: 'directory' } : {
      name, fileType: 'file', properties: { contentLength: size }, downloadUrl: await share.url(`${this.folder.path}/${path}/${name}`),
    })));
  }

  // Sizes of the sent files by path.
  async readSentFiles(share) {
    try {
      const { bytes } = await share.read(`${this.folder.path}/${OWN_DIRECTORY}/sent-files.json`, MAX_LIST_BYTES);
      return JSON.parse(new TextDecoder().decode(bytes)).files ?? {};
    } catch { return {}; }
  }
}
