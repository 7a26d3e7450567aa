// Arithmetic of charts: ticks, number formats, scales, smoothing. Pure; no DOM.

const ROUND_FACTORS = [1, 2, 2.5, 5, 10];

// Round numbers that divide [low, high] into about `count` intervals.
export function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const raw = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ROUND_FACTORS.find((part) => part * power >= raw * 0.75);
  const values = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) values.push(n * step || 0);
  return values;
}

// Powers of ten, and values in between when there are few of them.
export function logTicks(low, high, count) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const every = Math.max(1, Math.ceil((last - first) / Math.max(2, count)));
  const parts = last - first <= 1 ? [1, 2, 3, 5, 7] : last - first <= 3 ? [1, 2, 5] : [1];
  const values = [];
  for (let power = first; power <= last; power += every) {
    for (const part of parts) values.push(part * 10 ** power);
  }
  return values.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
}

const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

// Ticks in seconds at round minutes and hours.
export function timeTicks(low, high, count) {
  const raw = (high - low) / Math.max(1, count);
  if (raw < 1) return ticks(low, high, count);
  const step = TIME_STEPS.find((step) => step >= raw) ?? Math.ceil(raw / 86400) * 86400;
  const values = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high; n++) values.push(n * step);
  return values;
}

// As many digits as `step` needs.
export function tickText(value, step) {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-4)) return short(value);
  const digits = step > 0 ? Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) : 0;
  const needed = step > 0 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6 ? digits + 1 : digits;
  return value.toFixed(Math.min(8, needed));
}

// Five significant digits: 0.43210, 1532.6, 2.35M, 1.2e-5.
export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return '–';
  const size = Math.abs(value);
  if (size === 0) return '0';
  if (size < 1e-4) return value.toExponential(2).replace('e-', 'e−');
  if (size >= 1e9) return `${(value / 1e9).toFixed(2)}G`;
  if (size >= 1e6) return `${(value / 1e6).toFixed(2)}M`;
  if (Number.isInteger(value)) return String(value);
  if (size >= 1e5) return value.toFixed(0);
  return value.toFixed(Math.max(0, 4 - Math.max(0, Math.floor(Math.log10(size)) + 0)));
}

export function withUnit(value, unit) {
  const text = short(value);
  return unit && text !== '–' ? `${text} ${unit}` : text;
}

// 45 s, 3:05, 2:03:05, 3 d 2 h.
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return '–';
  const sign = seconds < 0 ? '−' : '';
  const whole = Math.floor(Math.abs(seconds));
  const two = (n) => String(n).padStart(2, '0');
  if (whole < 60) return `${sign}${Math.abs(seconds) < 10 && !Number.isInteger(seconds) ? Math.abs(seconds).toFixed(1) : whole} s`;
  if (whole < 3600) return `${sign}${Math.floor(whole / 60)}:${two(whole % 60)}`;
  if (whole < 172800) return `${sign}${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  return `${sign}${Math.floor(whole / 86400)} d ${Math.floor(whole / 3600) % 24} h`;
}

// Maps values to pixels; on a logarithmic scale, values that are not positive have no position.
export function scale([low, high], [from, to], isLog) {
  const transform = isLog ? Math.log10 : (value) => value;
  const [start, span] = [transform(low), transform(high) - transform(low) || 1];
  return (value) => from + ((transform(value) - start) / span) * (to - from);
}

// Bias-corrected exponential moving average; gaps are kept.
export function smoothed(points, weight) {
  if (!weight) return points;
  let [mean, share] = [0, 0];
  return points.map(([x, y]) => {
    if (!Number.isFinite(y)) return [x, y];
    mean = mean * weight + y * (1 - weight);
    share = share * weight + (1 - weight);
    return [x, mean / share];
  });
}

// SVG path of a line. Of many points in one pixel column, the first, lowest, highest and last are drawn.
export function path(points, xOf, yOf) {
  let text = '';
  let command = 'M';
  let column = null;
  const lineTo = (x, y) => {
    text += `${command}${x.toFixed(1)} ${y.toFixed(1)}`;
    command = 'L';
  };
  const flush = () => {
    if (!column) return;
    const { x, ys, low, high, last } = column;
    lineTo(x, ys);
    if (low !== ys && low !== last) lineTo(x, low);
    if (high !== ys && high !== last) lineTo(x, high);
    if (last !== ys) lineTo(x, last);
    column = null;
  };
  for (const [valueX, valueY] of points) {
    const [x, y] = [xOf(valueX), yOf(valueY)];
    if (!Number.isFinite(x) || !Number.isFinite(y)) {
      flush();
      command = 'M';
      continue;
    }
    if (column && Math.abs(x - column.x) < 0.5) {
      column.low = Math.min(column.low, y);
      column.high = Math.max(column.high, y);
      column.last = y;
      continue;
    }
    flush();
    column = { x, ys: y, low: y, high: y, last: y };
  }
  flush();
  return text;
}

// Whether `x` lies between the first and last of the sorted points.
export function covers(points, x) {
  return points.length > 0 && points[0][0] <= x && x <= points.at(-1)[0];
}

// Index of the point nearest to `x`; points are sorted.
export function nearest(points, x) {
  let [low, high] = [0, points.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < x) low = middle;
    else high = middle;
  }
  return high > low && Math.abs(points[high][0] - x) < Math.abs(points[low][0] - x) ? high : low;
}
