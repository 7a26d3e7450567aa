// Rows of the log viewer: the lines of one rank or of all, wrapped to a number of columns or not. Every row is as high as one line of
// text, so that the viewer knows the place of each without measuring. Pure; no DOM.

import { plain } from './log-text.js';

const RANK = /^\[(\d+)\] ?/;

/** Rank that wrote a line of a job with `prefixOutputWithRank`: `[3] text`. Null without a prefix. */
export function rankOf(line) {
  const match = RANK.exec(line);
  return match ? Number(match[1]) : null;
}

/** Rows `{key, at, text, from, to}` of `lines`, each a part of a line; `to` is null if the row is the whole line. `rank` is null for all
 * ranks, `columns` is null for unwrapped lines. A line without a prefix belongs to the rank of the line before it. */
export function rowsOf(lines, { rank = null, columns = null }) {
  const rows = [];
  let writer = null;
  for (const { at, text } of lines) {
    if (rank !== null) {
      writer = rankOf(text) ?? writer;
      if (writer !== rank) continue;
    }
    const length = columns === null ? 0 : plain(text).length;
    if (columns === null || length <= columns) {
      rows.push({ key: at, at, text, from: 0, to: null });
      continue;
    }
    for (let from = 0; from < length; from += columns) rows.push({ key: from ? `${at}+${from}` : at, at, text, from, to: Math.min(from + columns, length) });
  }
  return rows;
}

/** Index of the first row at or after a place in the file; that of the last row if there is none. */
export function rowIndex(rows, at, from = 0) {
  let [low, high] = [0, Math.max(0, rows.length - 1)];
  while (low < high) {
    const middle = (low + high) >> 1;
    const row = rows[middle];
    if (row.at < at || (row.at === at && row.from < from)) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The runs `[from, to)` of a line's parts, as `partsOfLine` returns them. */
export function sliceParts(parts, from, to) {
  if (to === null) return parts;
  const sliced = [];
  let start = 0;
  for (const { text, kind } of parts) {
    const [a, b] = [Math.max(from - start, 0), Math.min(to - start, text.length)];
    if (a < b) sliced.push({ text: text.slice(a, b), kind });
    start += text.length;
  }
  return sliced;
}
