// Virtualized log viewer: only visible lines are in the document. Follows the end, jumps, searches.

import { h, keyed, mark, put, text } from './dom.js';
import { LogFile } from './log-file.js';
import { partsOfLine, plain } from './log-text.js';
import { bytes } from './components.js';

const LINE_HEIGHT_PX = 18;
const POLL_INTERVAL_MS = 400;

export class LogView {
  constructor() {
    Object.assign(this, { file: null, follow: true, query: '', found: null, ended: false, timer: null, busy: null, top: 0 });
    this.lines = h('div', { class: 'lines' });
    this.space = h('div', { class: 'space' }, this.lines);
    this.view = h('div', { class: 'view', tabindex: 0, role: 'log', 'aria-label': 'Log', onscroll: () => this.onScroll(),
      onkeydown: (event) => this.onKey(event) }, this.space);
    this.searchBox = h('input', { type: 'search', placeholder: 'Search the log', 'aria-label': 'Search the log', onkeydown: (event) => {
      if (event.key !== 'Enter') return;
      event.preventDefault();
      this.search(event.shiftKey);
    }, oninput: () => { this.query = this.searchBox.value; this.found = null; this.setNote(''); this.draw(); } });
    this.note = h('span', { class: 'soft small log-status', role: 'status' });
    this.sizeLabel = h('span', { class: 'soft small' });
    this.slider = h('input', { type: 'range', min: 0, max: 1000, value: 1000, 'aria-label': 'Position in the file', hidden: true,
      onchange: () => this.jump(Math.floor((this.slider.value / 1000) * this.file.size)) });
    const tool = (label, description, action) => h('button', { type: 'button', class: 'quiet', title: description, 'aria-label': description,
      onclick: action }, label);
    this.followButton = h('button', { type: 'button', 'aria-pressed': 'true',
      onclick: () => (this.follow ? this.setFollow(false) : this.jumpToEnd()) }, 'Follow');
    this.element = h('div', { class: 'log' },
      h('div', { class: 'log-tools' }, this.searchBox, tool('↑', 'Search back', () => this.search(true)),
        tool('↓', 'Search on', () => this.search(false)), this.note,
        h('span', { class: 'grow' }), this.slider, this.sizeLabel, tool('Start', 'Jump to the start', () => this.jump(0)),
          tool('End', 'Jump to the end', () => this.jumpToEnd()), this.followButton),
      this.view);
    this.resizeObserver = new ResizeObserver(() => this.draw());
    this.resizeObserver.observe(this.view);
  }

  /** Shows the file at `link`, from its end. */
  async open(link, renew) {
    this.close();
    const file = new LogFile(link, renew);
    this.file = file;
    this.follow = true;
    this.found = null;
    await this.runRead(() => file.jumpToEnd());
    if (file !== this.file) return;
    this.setFollow(this.follow);
    this.schedulePoll();
  }

  /** The file no longer grows, once its end has been read again. */
  setEnded(ended) {
    this.ended = ended;
    if (!ended && this.file) this.schedulePoll();
  }

  schedulePoll() {
    clearTimeout(this.timer);
    const file = this.file;
    this.timer = setTimeout(async () => {
      const wasEnded = this.ended;
      if (!document.hidden && file === this.file && file.atEnd) await this.runRead(() => this.loadNew());
      if (file === this.file && !wasEnded) this.schedulePoll();
    }, POLL_INTERVAL_MS);
  }

  // Scrolls to the end when following; else keeps the visible lines in place.
  async loadNew() {
    const { file } = this;
    let dropped = 0;
    do dropped += await file.loadNext(); while (this.follow && !file.atEnd);
    if (!this.follow && dropped) this.view.scrollTop -= dropped * LINE_HEIGHT_PX;
  }

  // One read at a time; errors are shown and the next read retries. `after` gets the result of a successful read.
  async runRead(read, after) {
    while (this.busy) await this.busy;
    const task = read().then((result) => {
      if (this.failed) this.setNote('');
      this.space.style.height = `${(this.file?.lines.length ?? 0) * LINE_HEIGHT_PX}px`;
      after?.(result);
    }, (error) => {
      if (error.name === 'AbortError') return;
      this.setNote(error.name === 'TypeError' ? 'The server cannot be reached.' : error.message);
      this.failed = true;
    });
    this.busy = task;
    await task;
    this.busy = null;
    if (this.follow) this.view.scrollTop = this.space.offsetHeight;
    // Programmatic scrolling is not the user's.
    this.top = this.view.scrollTop;
    this.draw();
  }

  setNote(note) {
    this.failed = false;
    text(this.note, note);
  }

  setFollow(follow) {
    this.follow = follow;
    mark(this.followButton, 'aria-pressed', String(follow));
    if (follow) this.view.scrollTop = this.space.offsetHeight;
  }

  async jumpToEnd() {
    if (!this.file) return;
    this.setFollow(true);
    await this.runRead(() => (this.file.atEnd ? this.loadNew() : this.file.jumpToEnd()));
  }

  async jump(byte) {
    if (!this.file) return;
    this.setFollow(false);
    const { file } = this;
    const isLoaded = file.lines.length && byte >= file.from && byte < file.lines.at(-1).at;
    // Loads lines above it too, so that there is something to scroll to.
    if (!isLoaded) await this.runRead(() => file.jump(byte).then(() => (file.from > 0 ? file.loadPrevious() : 0)));
    const at = Math.max(0, file.lines.findIndex((line) => line.at >= byte));
    this.view.scrollTop = Math.max(0, at * LINE_HEIGHT_PX - (byte > 0 ? this.view.clientHeight / 3 : 0));
    this.draw();
  }

  async search(isBack) {
    this.searchAbort?.abort();
    const query = this.query.trim();
    if (!query || !this.file) return;
    const abort = (this.searchAbort = new AbortController());
    const { file } = this;
    const first = file.lines[Math.min(file.lines.length - 1, Math.floor(this.view.scrollTop / LINE_HEIGHT_PX))];
    const start = this.found ?? (this.follow ? null : first?.at) ?? null;
    const next = start === null ? null : file.lines.find((line) => line.at > start)?.at ?? start + 1;
    const from = isBack ? start ?? file.size : this.found === null ? start ?? 0 : next;
    const onProgress = (share) => this.setNote(`Searching… ${Math.floor(share * 100)} %`);
    this.setFollow(false);
    try {
      let at = await file.search(query, from, isBack, abort.signal, onProgress);
      if (abort.signal.aborted) return;
      const isWrapped = at === null;
      if (isWrapped) at = await file.search(query, isBack ? file.size : 0, isBack, abort.signal, onProgress);
      if (abort.signal.aborted) return;
      this.found = at;
      this.setNote(at === null ? 'Not found' : isWrapped ? (isBack ? 'Found; continued from the end' : 'Found; continued from the start') : '');
      if (at !== null) await this.jump(at);
    } catch (error) {
      if (error.name !== 'AbortError') this.setNote(error.message);
    }
    this.draw();
  }

  onScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.view;
    if (scrollTop < this.top - 2 && this.follow && !this.busy) this.setFollow(false);
    this.top = scrollTop;
    this.draw();
    const { file } = this;
    if (!file || this.busy) return;
    if (scrollTop < 40 * LINE_HEIGHT_PX && file.from > 0 && !this.follow) {
      this.runRead(() => file.loadPrevious(), (n) => { this.view.scrollTop += n * LINE_HEIGHT_PX; });
    } else if (scrollTop + clientHeight > scrollHeight - 40 * LINE_HEIGHT_PX && !file.atEnd) {
      this.runRead(() => file.loadNext(), (n) => { this.view.scrollTop -= n * LINE_HEIGHT_PX; });
    }
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Home') this.jump(0);
    else if (event.key === 'End') this.jumpToEnd();
    else if (event.key === 'n' || event.key === 'N') this.search(event.key === 'N');
    else return;
    event.preventDefault();
  }

  draw() {
    const { file, view } = this;
    const lines = file?.lines ?? [];
    this.space.style.height = `${lines.length * LINE_HEIGHT_PX}px`;
    const first = Math.max(0, Math.floor(view.scrollTop / LINE_HEIGHT_PX) - 12);
    const visible = lines.slice(first, first + Math.ceil(view.clientHeight / LINE_HEIGHT_PX) + 24);
    this.lines.style.transform = `translateY(${first * LINE_HEIGHT_PX}px)`;
    const query = this.query.trim().toLowerCase();
    keyed(this.lines, visible, (line) => line.at, () => h('div', { class: 'line' }), (row, line) => {
      mark(row, 'data-found', line.at === this.found ? '' : null);
      const content = `${query}\n${line.text}`;
      if (row.corroDrawn === content) return;
      row.corroDrawn = content;
      put(row, highlightLine(line.text, query));
    });
    const isLong = file && (file.from > 0 || !file.atEnd);
    mark(this.slider, 'hidden', isLong ? null : '');
    if (isLong && document.activeElement !== this.slider) {
      const top = lines[Math.min(first + 12, lines.length - 1)]?.at ?? 0;
      this.slider.value = (top / file.size) * 1000;
    }
    text(this.sizeLabel, file ? bytes(file.size) : '');
  }

  close() {
    clearTimeout(this.timer);
    this.searchAbort?.abort();
    this.file?.end();
    Object.assign(this, { file: null, busy: null, top: 0 });
    this.setNote('');
    this.draw();
  }

  end() {
    this.close();
    this.resizeObserver.disconnect();
  }
}

// Text nodes and spans; search hits are marked.
function highlightLine(line, query) {
  const parts = partsOfLine(line);
  const hits = [];
  if (query) {
    const lower = plain(line).toLowerCase();
    for (let at = lower.indexOf(query); at >= 0; at = lower.indexOf(query, at + query.length)) hits.push([at, at + query.length]);
  }
  let from = 0;
  return parts.flatMap(({ text: part, kind }) => {
    const nodes = [];
    let at = 0;
    for (const [start, end] of hits) {
      const [a, b] = [Math.max(start - from, at), Math.min(end - from, part.length)];
      if (b <= a) continue;
      nodes.push(part.slice(at, a), h('mark', null, part.slice(a, b)));
      at = b;
    }
    nodes.push(part.slice(at));
    from += part.length;
    return kind ? [h('span', { class: kind }, nodes)] : nodes;
  });
}
