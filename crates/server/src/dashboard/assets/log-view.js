// Virtualized log viewer: only visible lines are in the document. Follows the end, jumps, searches.

import { h, keyed, mark, put, text } from './dom.js';
import { LogFile } from './log-file.js';
import { partsOfLine, plain } from './log-text.js';
import { bytes } from './components.js';

const LINE_HEIGHT_PX = 18;
const POLL_INTERVAL_MS = 400;

export class LogView {
  constructor() {
    Object.assign(this, { file: null, follow: true, words: '', found: null, ended: false, timer: null, busy: null, top: 0 });
    this.lines = h('div', { class: 'lines' });
    this.space = h('div', { class: 'space' }, this.lines);
    this.view = h('div', { class: 'view', tabindex: 0, role: 'log', 'aria-label': 'Log', onscroll: () => this.scrolled(),
      onkeydown: (event) => this.key(event) }, this.space);
    this.searchBox = h('input', { type: 'search', placeholder: 'Search the log', 'aria-label': 'Search the log', onkeydown: (event) => {
      if (event.key !== 'Enter') return;
      event.preventDefault();
      this.search(event.shiftKey);
    }, oninput: () => { this.words = this.searchBox.value; this.found = null; this.say(''); this.draw(); } });
    this.note = h('span', { class: 'soft small told', role: 'status' });
    this.place = h('span', { class: 'soft small' });
    this.slider = h('input', { type: 'range', min: 0, max: 1000, value: 1000, 'aria-label': 'Position in the file', hidden: true,
      onchange: () => this.jump(Math.floor((this.slider.value / 1000) * this.file.size)) });
    const tool = (label, about, act) => h('button', { type: 'button', class: 'quiet', title: about, 'aria-label': about,
      onclick: act }, label);
    this.followButton = h('button', { type: 'button', 'aria-pressed': 'true',
      onclick: () => (this.follow ? this.setFollow(false) : this.toEnd()) }, 'Follow');
    this.element = h('div', { class: 'log' },
      h('div', { class: 'log-tools' }, this.searchBox, tool('↑', 'Search back', () => this.search(true)),
        tool('↓', 'Search on', () => this.search(false)), this.note,
        h('span', { class: 'grow' }), this.slider, this.place, tool('Start', 'Jump to the start', () => this.jump(0)),
          tool('End', 'Jump to the end', () => this.toEnd()), this.followButton),
      this.view);
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.view);
  }

  /** Shows the file at `link`, from its end. */
  async open(link, renew) {
    this.close();
    const file = new LogFile(link, renew);
    this.file = file;
    this.follow = true;
    this.found = null;
    await this.act(() => file.jumpToEnd());
    if (file !== this.file) return;
    this.setFollow(this.follow);
    this.again();
  }

  /** The file no longer grows, once its end has been read again. */
  setEnded(ended) {
    this.ended = ended;
    if (!ended && this.file) this.again();
  }

  again() {
    clearTimeout(this.timer);
    const file = this.file;
    this.timer = setTimeout(async () => {
      const wasEnded = this.ended;
      if (!document.hidden && file === this.file && file.atEnd) await this.act(() => this.grow());
      if (file === this.file && !wasEnded) this.again();
    }, POLL_INTERVAL_MS);
  }

  // Scrolls to the end when following; else keeps the visible lines in place.
  async grow() {
    const { file } = this;
    let dropped = 0;
    do dropped += await file.more(); while (this.follow && !file.atEnd);
    if (!this.follow && dropped) this.view.scrollTop -= dropped * LINE_HEIGHT_PX;
  }

  // One read at a time; errors are shown and the next read retries. `after` gets the result, if it is still wanted.
  async act(read, after) {
    while (this.busy) await this.busy;
    const work = read().then((result) => {
      if (this.failed) this.say('');
      this.space.style.height = `${(this.file?.lines.length ?? 0) * LINE_HEIGHT_PX}px`;
      after?.(result);
    }, (error) => {
      if (error.name === 'AbortError') return;
      this.say(error.name === 'TypeError' ? 'The server cannot be reached.' : error.message);
      this.failed = true;
    });
    this.busy = work;
    await work;
    this.busy = null;
    if (this.follow) this.view.scrollTop = this.space.offsetHeight;
    // Programmatic scrolling is not the user's.
    this.top = this.view.scrollTop;
    this.draw();
  }

  say(words) {
    this.failed = false;
    text(this.note, words);
  }

  setFollow(follow) {
    this.follow = follow;
    mark(this.followButton, 'aria-pressed', String(follow));
    if (follow) this.view.scrollTop = this.space.offsetHeight;
  }

  async toEnd() {
    if (!this.file) return;
    this.setFollow(true);
    await this.act(() => (this.file.atEnd ? this.grow() : this.file.jumpToEnd()));
  }

  async jump(byte) {
    if (!this.file) return;
    this.setFollow(false);
    const { file } = this;
    const isHere = file.lines.length && byte >= file.from && byte < file.lines.at(-1).at;
    // Loads lines above it too, so that there is something to scroll to.
    if (!isHere) await this.act(() => file.jump(byte).then(() => (file.from > 0 ? file.less() : 0)));
    const at = Math.max(0, file.lines.findIndex((line) => line.at >= byte));
    this.view.scrollTop = Math.max(0, at * LINE_HEIGHT_PX - (byte > 0 ? this.view.clientHeight / 3 : 0));
    this.draw();
  }

  async search(isBack) {
    this.looking?.abort();
    const words = this.words.trim();
    if (!words || !this.file) return;
    const looking = (this.looking = new AbortController());
    const { file } = this;
    const first = file.lines[Math.min(file.lines.length - 1, Math.floor(this.view.scrollTop / LINE_HEIGHT_PX))];
    const start = this.found ?? (this.follow ? null : first?.at) ?? null;
    const next = start === null ? null : file.lines.find((line) => line.at > start)?.at ?? start + 1;
    const from = isBack ? start ?? file.size : this.found === null ? start ?? 0 : next;
    const tell = (share) => this.say(`Searching… ${Math.floor(share * 100)} %`);
    this.setFollow(false);
    try {
      let at = await file.search(words, from, isBack, looking.signal, tell);
      if (looking.signal.aborted) return;
      const around = at === null;
      if (around) at = await file.search(words, isBack ? file.size : 0, isBack, looking.signal, tell);
      if (looking.signal.aborted) return;
      this.found = at;
      this.say(at === null ? 'Not found' : around ? (isBack ? 'Found; continued from the end' : 'Found; continued from the start') : '');
      if (at !== null) await this.jump(at);
    } catch (error) {
      if (error.name !== 'AbortError') this.say(error.message);
    }
    this.draw();
  }

  scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.view;
    if (scrollTop < this.top - 2 && this.follow && !this.busy) this.setFollow(false);
    this.top = scrollTop;
    this.draw();
    const { file } = this;
    if (!file || this.busy) return;
    if (scrollTop < 40 * LINE_HEIGHT_PX && file.from > 0 && !this.follow) {
      this.act(() => file.less(), (n) => { this.view.scrollTop += n * LINE_HEIGHT_PX; });
    } else if (scrollTop + clientHeight > scrollHeight - 40 * LINE_HEIGHT_PX && !file.atEnd) {
      this.act(() => file.more(), (n) => { this.view.scrollTop -= n * LINE_HEIGHT_PX; });
    }
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Home') this.jump(0);
    else if (event.key === 'End') this.toEnd();
    else if (event.key === 'n' || event.key === 'N') this.search(event.key === 'N');
    else return;
    event.preventDefault();
  }

  draw() {
    const { file, view } = this;
    const lines = file?.lines ?? [];
    this.space.style.height = `${lines.length * LINE_HEIGHT_PX}px`;
    const first = Math.max(0, Math.floor(view.scrollTop / LINE_HEIGHT_PX) - 12);
    const shown = lines.slice(first, first + Math.ceil(view.clientHeight / LINE_HEIGHT_PX) + 24);
    this.lines.style.transform = `translateY(${first * LINE_HEIGHT_PX}px)`;
    const words = this.words.trim().toLowerCase();
    keyed(this.lines, shown, (line) => line.at, () => h('div', { class: 'line' }), (row, line) => {
      mark(row, 'data-found', line.at === this.found ? '' : null);
      const wanted = `${words}\n${line.text}`;
      if (row.corroDrawn === wanted) return;
      row.corroDrawn = wanted;
      put(row, highlightLine(line.text, words));
    });
    const isLong = file && (file.from > 0 || !file.atEnd);
    mark(this.slider, 'hidden', isLong ? null : '');
    if (isLong && document.activeElement !== this.slider) {
      const top = lines[Math.min(first + 12, lines.length - 1)]?.at ?? 0;
      this.slider.value = (top / file.size) * 1000;
    }
    text(this.place, file ? bytes(file.size) : '');
  }

  close() {
    clearTimeout(this.timer);
    this.looking?.abort();
    this.file?.end();
    Object.assign(this, { file: null, busy: null, top: 0 });
    this.say('');
    this.draw();
  }

  end() {
    this.close();
    this.watch.disconnect();
  }
}

// Text nodes and spans; search hits are marked.
function highlightLine(line, words) {
  const parts = partsOfLine(line);
  const hits = [];
  if (words) {
    const lower = plain(line).toLowerCase();
    for (let at = lower.indexOf(words); at >= 0; at = lower.indexOf(words, at + words.length)) hits.push([at, at + words.length]);
  }
  let from = 0;
  return parts.flatMap(({ text: part, kind }) => {
    const made = [];
    let at = 0;
    for (const [start, end] of hits) {
      const [a, b] = [Math.max(start - from, at), Math.min(end - from, part.length)];
      if (b <= a) continue;
      made.push(part.slice(at, a), h('mark', null, part.slice(a, b)));
      at = b;
    }
    made.push(part.slice(at));
    from += part.length;
    return kind ? [h('span', { class: kind }, made)] : made;
  });
}
