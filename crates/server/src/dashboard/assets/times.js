// Times on all pages, in one format: `2026-11-19 08:05:32` in the browser's time zone, `5 min ago` where only the age matters, and
// durations of at most two units. Ages and durations up to now stay current.

import { h, mark, text } from './dom.js';

const liveTimes = new Set();

/** Relative time that stays current. */
export function ago(time) {
  return setAgo(h('time', {}), time);
}

export function setAgo(element, time) {
  return keepCurrent(element, time, (ms) => (ms < 5000 ? 'just now' : `${roughDuration(ms)} ago`));
}

/** Duration from `start` to `end`, or to now. */
export function lasting(start, end) {
  return setLasting(h('time', {}), start, end);
}

export function setLasting(element, start, end) {
  if (!start || end) {
    liveTimes.delete(element);
    return text(element, start ? short(new Date(end) - new Date(start)) : '');
  }
  return keepCurrent(element, start, short);
}

function keepCurrent(element, time, format) {
  element.corroTime = time ? { at: Date.parse(time), format } : null;
  if (time) {
    mark(element, 'datetime', time);
    mark(element, 'title', clock(time));
    liveTimes.add(element);
  } else liveTimes.delete(element);
  updateTime(element);
  return element;
}

function updateTime(element) {
  const { at, format } = element.corroTime ?? {};
  text(element, format ? format(Math.max(0, Date.now() - at)) : '');
}

setInterval(() => {
  if (document.hidden) return;
  for (const element of liveTimes) {
    if (element.isConnected) { updateTime(element); element.corroShown = true; }
    else if (element.corroShown) liveTimes.delete(element);
  }
}, 1000);

/** Two units at most: `4.2 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`. */
export function short(ms) {
  const s = ms / 1000;
  if (s < 10) return `${Math.max(0, s).toFixed(1)} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  const pair = (big, one, small, two) => `${Math.floor(big)} ${one}${small >= 1 ? ` ${Math.floor(small)} ${two}` : ''}`;
  if (s < 3600) return pair(s / 60, 'min', s % 60, 's');
  if (s < 86400) return pair(s / 3600, 'h', (s % 3600) / 60, 'min');
  return pair(s / 86400, 'd', (s % 86400) / 3600, 'h');
}

/** One unit: `36 s`, `27 min`, `5 h`, `3 d`. */
function roughDuration(ms) {
  const s = ms / 1000;
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  return s < 86400 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`;
}

/** A time in the browser's time zone: `2026-11-19 08:05:32`. */
export function clock(time) {
  return `${day(time)} ${minute(time)}:${two(new Date(time).getSeconds())}`;
}

/** A time without seconds: `08:05` today, otherwise `11-19 08:05`. For axes and estimates. */
export function shortClock(time) {
  const isToday = day(time) === day(Date.now());
  return isToday ? minute(time) : `${day(time).slice(5)} ${minute(time)}`;
}

const two = (n) => String(n).padStart(2, '0');

function day(time) {
  const at = new Date(time);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

function minute(time) {
  const at = new Date(time);
  return `${two(at.getHours())}:${two(at.getMinutes())}`;
}
