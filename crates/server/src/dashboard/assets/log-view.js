// Virtualized log viewer: only visible rows are in the document. Follows the end, jumps, searches, wraps long lines, and shows the lines
// of one rank or of all.

import { h, keyed, mark, put, text } from './dom.js';
import { LogFile } from './log-file.js';
import { rankOf, rowIndex, rowsOf, sliceParts } from './log-rows.js';
import { partsOfLine, plain } from './log-text.js';
import { bytes } from './components.js';

const LINE_HEIGHT_PX = 18;
const POLL_INTERVAL_MS = 400;
const MIN_COLUMNS = 20;
/** Left and right padding of a line. */
const PADDING_PX = 24;
const WRAP_SETTING = 'corro.wrap';

export class LogView {
  constructor() {
    Object.assign(this, { file: null, follow: true, query: '', found: null, ended: false, timer: null, busy: null, top: 0, rows: [], stamp: null, rank: null,
      isWrapped: localStorage.getItem(WRAP_SETTING) === 'true' });
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
    this.rankList = h('select', { 'aria-label': 'Rank', hidden: true, onchange: () => this.setRank(this.rankList.value === '' ? null : Number(this.rankList.value)) });
    this.wrapButton = h('button', { type: 'button', onclick: () => this.setWrapped(!this.isWrapped) }, 'Wrap');
    this.followButton = h('button', { type: 'button', 'aria-pressed': 'true',
      onclick: () => (this.follow ? this.setFollow(false) : this.jumpToEnd()) }, 'Follow');
    this.element = h('div', { class: 'log' },
      h('div', { class: 'log-tools' }, this.rankList, this.searchBox, tool('↑', 'Search back', () => this.search(true)),
        tool('↓', 'Search on', () => this.search(false)), this.note,
        h('span', { class: 'grow' }), this.slider, this.sizeLabel, tool('Start', 'Jump to the start', () => this.jump(0)),
          tool('End', 'Jump to the end', () => this.jumpToEnd()), this.wrapButton, this.followButton),
      this.view);
    this.resizeObserver = new ResizeObserver(() => this.draw());
    this.resizeObserver.observe(this.view);
    mark(this.wrapButton, 'aria-pressed', String(this.isWrapped));
  }

  /** Offers the lines of single ranks, for logs whose lines begin with the rank. */
  setRankCount(count) {
    mark(this.rankList, 'hidden', count > 1 ? null : '');
    if (this.rankList.options.length !== count + 1) {
      put(this.rankList, h('option', { value: '' }, 'All ranks'), Array.from({ length: count }, (_, rank) => h('option', { value: rank }, `Rank ${rank}`)));
    }
  }

  setRank(rank) {
    this.rank = rank;
    this.draw();
    return this.fillView();
  }

  setWrapped(isWrapped) {
    this.isWrapped = isWrapped;
    localStorage.setItem(WRAP_SETTING, String(isWrapped));
    mark(this.wrapButton, 'aria-pressed', String(isWrapped));
    this.draw();
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
    await this.fillView();
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

  async loadNew() {
    const { file } = this;
    do await file.loadNext(); while (this.follow && !file.atEnd);
  }

  // One read at a time; errors are shown and the next read retries.
  async runRead(read) {
    while (this.busy) await this.busy;
    const task = read().then(() => { if (this.failed) this.setNote(''); }, (error) => {
      if (error.name === 'AbortError') return;
      this.setNote(error.name === 'TypeError' ? 'The server cannot be reached.' : error.message);
      this.failed = true;
    });
    this.busy = task;
    await task;
    this.busy = null;
    this.draw();
  }

  // The lines of one rank may be far apart: older ones are read until the view is full.
  async fillView() {
    const { file } = this;
    const isShort = () => this.rows.length * LINE_HEIGHT_PX < this.view.clientHeight;
    while (file && file === this.file && this.rank !== null && isShort() && file.from > 0 && !file.isFull) {
      const { from } = file;
      await this.runRead(() => file.loadPrevious());
      if (file.from === from) return;
    }
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
    this.syncRows();
    this.view.scrollTop = Math.max(0, rowIndex(this.rows, byte) * LINE_HEIGHT_PX - (byte > 0 ? this.view.clientHeight / 3 : 0));
    this.top = this.view.scrollTop;
    this.draw();
  }

  async search(isBack) {
    this.searchAbort?.abort();
    const query = this.query.trim();
    if (!query || !this.file) return;
    const abort = (this.searchAbort = new AbortController());
    const { file } = this;
    const lowerQuery = query.toLowerCase();
    const matches = (line) => (this.rank === null || rankOf(line.text) === this.rank) && plain(line.text).toLowerCase().includes(lowerQuery);
    const first = this.rows[Math.min(this.rows.length - 1, Math.floor(this.view.scrollTop / LINE_HEIGHT_PX))];
    const start = this.found ?? (this.follow ? null : first?.at) ?? null;
    const next = start === null ? null : file.lines.find((line) => line.at > start)?.at ?? start + 1;
    const from = isBack ? start ?? file.size : this.found === null ? start ?? 0 : next;
    const onProgress = (share) => this.setNote(`Searching… ${Math.floor(share * 100)} %`);
    this.setFollow(false);
    try {
      let at = await file.search(matches, from, isBack, abort.signal, onProgress);
      if (abort.signal.aborted) return;
      const isWrapped = at === null;
      if (isWrapped) at = await file.search(matches, isBack ? file.size : 0, isBack, abort.signal, onProgress);
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
    if (scrollTop < this.top - 2 && this.follow) this.setFollow(false);
    this.top = scrollTop;
    this.draw();
    const { file } = this;
    if (!file || this.busy) return;
    if (scrollTop < 40 * LINE_HEIGHT_PX && file.from > 0 && !this.follow) {
      this.runRead(() => file.loadPrevious());
    } else if (scrollTop + clientHeight > scrollHeight - 40 * LINE_HEIGHT_PX && !file.atEnd) {
      this.runRead(() => file.loadNext());
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

  // Columns of a wrapped line; null if lines are not wrapped or nothing is in sight yet.
  columns() {
    if (!this.isWrapped || !this.view.clientWidth) return null;
    if (!this.columnWidth) {
      const ruler = h('span', { class: 'ruler' }, 'm'.repeat(100));
      this.space.append(ruler);
      this.columnWidth = ruler.getBoundingClientRect().width / 100;
      ruler.remove();
    }
    return Math.max(MIN_COLUMNS, Math.floor((this.view.clientWidth - PADDING_PX) / this.columnWidth));
  }

  // Makes the rows anew if the lines, the filter or the width changed. Stays at the end when following; otherwise the first visible line
  // stays where it is.
  syncRows() {
    const { file, view } = this;
    const columns = this.columns();
    const stamp = file ? `${file.version}/${this.rank}/${columns}` : '';
    if (stamp !== this.stamp) {
      this.stamp = stamp;
      const at = Math.floor(view.scrollTop / LINE_HEIGHT_PX);
      const [anchor, offset] = [this.rows[at], view.scrollTop - at * LINE_HEIGHT_PX];
      this.rows = rowsOf(file?.lines ?? [], { rank: this.rank, columns });
      this.element.classList.toggle('wrapped', columns !== null);
      this.space.style.height = `${this.rows.length * LINE_HEIGHT_PX}px`;
      if (!this.follow && anchor) view.scrollTop = rowIndex(this.rows, anchor.at, anchor.from) * LINE_HEIGHT_PX + offset;
    }
    if (this.follow) view.scrollTop = this.space.offsetHeight;
    // Programmatic scrolling is not the user's.
    this.top = view.scrollTop;
  }

  draw() {
    // Another tab is in sight.
    if (this.file && !this.view.clientWidth) return;
    this.syncRows();
    const { file, view, rows } = this;
    const first = Math.max(0, Math.floor(view.scrollTop / LINE_HEIGHT_PX) - 12);
    const visible = rows.slice(first, first + Math.ceil(view.clientHeight / LINE_HEIGHT_PX) + 24);
    this.lines.style.transform = `translateY(${first * LINE_HEIGHT_PX}px)`;
    const query = this.query.trim().toLowerCase();
    keyed(this.lines, visible, (row) => row.key, () => h('div', { class: 'line' }), (element, row) => {
      mark(element, 'data-found', row.at === this.found ? '' : null);
      const content = `${query}\n${row.to}\n${row.text}`;
      if (element.corroDrawn === content) return;
      element.corroDrawn = content;
      put(element, highlightRow(row, query));
    });
    const isLong = file && (file.from > 0 || !file.atEnd);
    mark(this.slider, 'hidden', isLong ? null : '');
    if (isLong && document.activeElement !== this.slider) {
      const top = rows[Math.min(first + 12, rows.length - 1)]?.at ?? 0;
      this.slider.value = (top / file.size) * 1000;
    }
    text(this.sizeLabel, file ? bytes(file.size) : '');
  }

  close() {
    clearTimeout(this.timer);
    this.searchAbort?.abort();
    this.file?.end();
    Object.assign(this, { file: null, busy: null, top: 0, rows: [], stamp: null });
    this.setNote('');
    this.draw();
  }

  end() {
    this.close();
    this.resizeObserver.disconnect();
  }
}

// Text nodes and spans; search hits are marked. A hit that continues in the next row is not.
function highlightRow({ text: line, from, to }, query) {
  const parts = sliceParts(partsOfLine(line), from, to);
  const hits = [];
  if (query) {
    const lower = parts.map((part) => part.text).join('').toLowerCase();
    for (let at = lower.indexOf(query); at >= 0; at = lower.indexOf(query, at + query.length)) hits.push([at, at + query.length]);
  }
  let start = 0;
  return parts.flatMap(({ text: part, kind }) => {
    const nodes = [];
    let at = 0;
    for (const [begin, end] of hits) {
      const [a, b] = [Math.max(begin - start, at), Math.min(end - start, part.length)];
      if (b <= a) continue;
      nodes.push(part.slice(at, a), h('mark', null, part.slice(a, b)));
      at = b;
    }
    nodes.push(part.slice(at));
    start += part.length;
    return kind ? [h('span', { class: kind }, nodes)] : nodes;
  });
}
