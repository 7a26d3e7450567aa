// A file read by HTTP ranges, and the window of its lines in memory: a few megabytes at most, however long the file is. No DOM.

import { linesOf, openLine } from './log-text.js';

const CHUNK_BYTES = 128 << 10;
const SEARCH_CHUNK_BYTES = 1 << 20;
const MAX_WINDOW_BYTES = 3 << 20;

export class LogFile {
  /** `renew()` returns a new URL when the old one has expired. */
  constructor(link, renew) {
    Object.assign(this, { link, renew, size: 0, from: 0, to: 0, lines: [], open: new Uint8Array(), openLines: 0, version: 0 });
    this.stop = new AbortController();
  }

  /** Changes with `lines`. */
  touch() { this.version += 1; }

  async request(method, headers = {}) {
    const send = () => {
      const { pathname, search } = new URL(this.link, location.origin);
      return fetch(pathname + search, { method, headers, cache: 'no-store', signal: this.stop.signal });
    };
    let response = await send();
    if (response.status === 403) {
      this.link = await this.renew();
      response = await send();
    }
    if (!response.ok) throw new Error(response.status === 404 ? 'The file is gone.' : `The file cannot be read (${response.status}).`);
    return response;
  }

  // Gets the size first: only a part of a long file is read, and an empty one has no range.
  async measure() {
    this.size = Number((await this.request('HEAD')).headers.get('content-length') ?? 0);
  }

  // Always requests an existing byte too, so that a file without new data is not an error.
  async read(from, to) {
    if (this.size === 0) await this.measure();
    if (this.size === 0) return new Uint8Array();
    const response = await this.request('GET', { Range: `bytes=${from}-${to === undefined ? '' : to - 1}` });
    const bytes = new Uint8Array(await response.arrayBuffer());
    const range = /(\d+)-\d+\/(\d+)/.exec(response.headers.get('content-range') ?? '');
    this.size = range ? Number(range[2]) : bytes.length;
    return range ? bytes : bytes.subarray(from, to);
  }

  /** Loads lines from the first one that starts at or after `byte`. */
  async jump(byte) {
    const from = Math.max(0, Math.min(byte, this.size - 1) - 1);
    let bytes = await this.read(from, from + CHUNK_BYTES);
    let skip = 0;
    if (byte > 0) skip = bytes.indexOf(10) + 1;
    bytes = bytes.subarray(skip);
    Object.assign(this, { from: from + skip, to: from + skip, lines: [], open: new Uint8Array(), openLines: 0 });
    this.touch();
    this.append(bytes);
  }

  async jumpToEnd() {
    if (this.size === 0) await this.measure();
    await this.jump(this.size > CHUNK_BYTES ? this.size - CHUNK_BYTES : 0);
    while (this.to < this.size) await this.loadNext();
  }

  /** Whether reading more drops lines at the other end. */
  get isFull() { return this.to - this.from >= MAX_WINDOW_BYTES; }

  get atEnd() { return this.to >= this.size; }

  // Appends bytes; the unfinished last line is parsed again with them.
  append(bytes) {
    if (!bytes.length) return 0;
    this.touch();
    if (this.openLines) this.lines.length -= this.openLines;
    const all = new Uint8Array(this.open.length + bytes.length);
    all.set(this.open);
    all.set(bytes, this.open.length);
    const base = this.to - this.open.length;
    const { lines, rest } = linesOf(all, base);
    this.lines.push(...lines);
    this.open = all.slice(all.length - rest);
    // For a progress bar without line ends, only the last state is kept.
    const lastReturn = this.open.lastIndexOf(13);
    if (lastReturn > 0 && lastReturn < this.open.length - 1) this.open = this.open.slice(lastReturn + 1);
    this.to += bytes.length;
    const open = this.open.length ? openLine(this.open, this.to - this.open.length) : [];
    this.openLines = open.length;
    this.lines.push(...open);
    return bytes.length;
  }

  /** Loads the next lines, and drops the first ones of a full window. */
  async loadNext() {
    const start = Math.max(0, this.to - 1);
    const to = this.to;
    const bytes = await this.read(start, to + CHUNK_BYTES);
    if (to !== this.to) return;
    if (this.size < to) {
      // The file was truncated.
      await this.jump(0);
      return;
    }
    this.append(bytes.subarray(to - start));
    let dropped = 0;
    while (this.to - this.from > MAX_WINDOW_BYTES && this.lines.length - dropped > 1) {
      dropped += 1;
      this.from = this.lines[dropped].at;
    }
    this.lines.splice(0, dropped);
    if (dropped) this.touch();
  }

  /** Loads the previous lines, and drops the last ones of a full window. */
  async loadPrevious() {
    const to = this.from;
    const from = Math.max(0, to - CHUNK_BYTES);
    const bytes = await this.read(from, to);
    if (to !== this.from) return;
    const skip = from === 0 ? 0 : bytes.indexOf(10) + 1;
    const { lines, rest } = linesOf(bytes.subarray(skip), from + skip);
    // Part of a line that is longer than the window.
    if (rest) lines.push(...openLine(bytes.subarray(bytes.length - rest), to - rest));
    this.touch();
    this.lines = [...lines, ...this.lines];
    this.from = from + skip;
    let nLines = this.lines.length;
    while (this.to - this.from > MAX_WINDOW_BYTES && nLines > 1 && this.to - this.lines[nLines - 1].at < MAX_WINDOW_BYTES) {
      nLines -= 1;
      this.to = this.lines[nLines].at;
      if (this.to - this.from <= MAX_WINDOW_BYTES) break;
    }
    if (nLines < this.lines.length) [this.lines.length, this.open, this.openLines] = [nLines, new Uint8Array(), 0];
  }

  /** Offset of the next line (or, backwards, the previous one) for which `matches(line)` holds; null if there is none. `onProgress(share)` is
   * called with the progress. */
  async search(matches, byte, isBack, signal, onProgress) {
    let at = byte;
    while (isBack ? at > 0 : at < this.size) {
      if (signal.aborted) return null;
      const from = isBack ? Math.max(0, at - SEARCH_CHUNK_BYTES) : at;
      const bytes = await this.read(from, isBack ? at : from + SEARCH_CHUNK_BYTES);
      if (!bytes.length) return null;
      const skip = isBack && from > 0 ? bytes.indexOf(10) + 1 : 0;
      const { lines, rest } = linesOf(bytes.subarray(skip), from + skip);
      const isLast = from + bytes.length >= this.size;
      if (rest && (isBack || isLast || !lines.length)) lines.push(...openLine(bytes.subarray(bytes.length - rest),
        from + bytes.length - rest));
      const found = isBack ? lines.findLast(matches) : lines.find(matches);
      if (found) return found.at;
      if (isBack) at = skip > 0 && skip < bytes.length ? from + skip : from;
      else at = isLast ? this.size : from + bytes.length - (lines.length ? rest : 0);
      onProgress(isBack ? (byte - at) / Math.max(1, byte) : (at - byte) / Math.max(1, this.size - byte));
    }
    return null;
  }

  end() {
    this.stop.abort();
  }
}
