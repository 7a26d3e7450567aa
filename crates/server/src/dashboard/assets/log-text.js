// Formats log output: bytes into lines, ANSI colours into CSS classes, other control codes removed or made visible. Pure. Program
// output stays data: it becomes text nodes and class names from a fixed list.

/** Longer lines are split. */
const MAX_LINE_BYTES = 4000;
const [LF, CR] = [10, 13];
const decoder = new TextDecoder();

/** Lines of `bytes`, which start at `base` in the file: `{lines: [{at, text}], rest}`. `rest` counts the bytes after the last line
 * end; text overwritten with a carriage return is dropped. */
export function linesOf(bytes, base) {
  const lines = [];
  let [start, content] = [0, 0];
  for (let at = 0; at < bytes.length; at++) {
    if (bytes[at] === LF) {
      lines.push({ at: base + start, text: textOf(bytes, content, at) });
      start = content = at + 1;
    } else if (at > content && bytes[at - 1] === CR && bytes[at] !== CR) {
      content = at;
    } else if (at - content >= MAX_LINE_BYTES) {
      lines.push({ at: base + start, text: textOf(bytes, content, at) });
      start = content = at;
    }
  }
  return { lines, rest: bytes.length - start };
}

/** The unfinished last line. */
export function openLine(bytes, base) {
  const { lines, rest } = linesOf(bytes, base);
  const last = linesOf(new Uint8Array([...bytes.subarray(bytes.length - rest), LF]), base + bytes.length - rest).lines;
  return [...lines, ...last];
}

function textOf(bytes, from, to) {
  while (to > from && bytes[to - 1] === CR) to -= 1;
  return decoder.decode(bytes.subarray(from, to));
}

// CSI, OSC and two-byte sequences; bidirectional controls; other control characters.
const CONTROL_CODES = /\x1b\[([0-9;:]*)([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?|[\u202a-\u202e\u2066-\u2069]|[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;

/** `{text, kind}` for each run of equal style; `kind` is a list of classes, or empty. */
export function partsOfLine(line) {
  const parts = [];
  let style = {};
  let from = 0;
  const add = (text) => {
    if (!text) return;
    const kind = Object.values(style).join(' ');
    const last = parts.at(-1);
    if (last && last.kind === kind) last.text += text;
    else parts.push({ text, kind });
  };
  for (const match of line.matchAll(CONTROL_CODES)) {
    add(line.slice(from, match.index));
    from = match.index + match[0].length;
    if (match[2] === 'm') style = applyCodes(style, match[1]);
    else if (!match[0].startsWith('\x1b')) add(controlPicture(match[0].charCodeAt(0)));
  }
  add(line.slice(from));
  return parts;
}

/** The line without control codes, for searching. */
export const plain = (line) => line.replace(CONTROL_CODES, (code) => (code.startsWith('\x1b') ? '' : controlPicture(code.charCodeAt(0))));

function controlPicture(code) {
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  return code === 0x7f ? '\u2421' : '\ufffd';
}

function applyCodes(style, codes) {
  const numbers = codes.split(/[;:]/).map(Number);
  let next = { ...style };
  for (let at = 0; at < numbers.length; at++) {
    const code = numbers[at];
    if (code === 0) next = {};
    else if (code === 1) next.weight = 'bold';
    else if (code === 2) next.weight = 'faint';
    else if (code === 3) next.slant = 'italic';
    else if (code === 4) next.line = 'under';
    else if (code === 22) delete next.weight;
    else if (code === 23) delete next.slant;
    else if (code === 24) delete next.line;
    else if (code === 39) delete next.ink;
    else if (code === 49) delete next.ground;
    else if (code >= 30 && code <= 37) next.ink = `fg${code - 30}`;
    else if (code >= 90 && code <= 97) next.ink = `fg${code - 90}`;
    else if (code >= 40 && code <= 47) next.ground = `bg${code - 40}`;
    else if (code >= 100 && code <= 107) next.ground = `bg${code - 100}`;
    else if (code === 38 || code === 48) {
      const hue = numbers[at + 1] === 5 ? paletteColor(numbers[at + 2]) : rgbColor(numbers.slice(at + 2, at + 5));
      at += numbers[at + 1] === 5 ? 2 : 4;
      next[code === 38 ? 'ink' : 'ground'] = `${code === 38 ? 'fg' : 'bg'}${hue}`;
    }
  }
  return next;
}

// The nearest of the eight colours.
function paletteColor(number) {
  if (!(number >= 0 && number < 256)) return 7;
  if (number < 16) return number % 8;
  if (number >= 232) return number < 244 ? 0 : 7;
  const cube = number - 16;
  return rgbColor([Math.floor(cube / 36), Math.floor(cube / 6) % 6, cube % 6].map((part) => part * 51));
}

function rgbColor([red = 0, green = 0, blue = 0]) {
  const half = Math.max(red, green, blue) / 2 || 1;
  return (red > half ? 1 : 0) + (green > half ? 2 : 0) + (blue > half ? 4 : 0);
}
