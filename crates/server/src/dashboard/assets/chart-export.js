// Export of charts: points as CSV, picture as PNG.

const INLINED_STYLES = ['fill', 'stroke', 'stroke-width', 'stroke-dasharray', 'stroke-linejoin', 'opacity', 'font-size', 'font-family',
  'font-weight', 'text-anchor'];

// One line per point. Values that a spreadsheet would run as a formula are escaped: names come from a job's output.
export function csvOf(lines, titles) {
  const field = (text) => {
    const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const rows = [titles.join()];
  for (const { label, points } of lines) {
    for (const [x, y] of points) rows.push(`${field(label)},${x},${Number.isFinite(y) ? y : ''}`);
  }
  return `${rows.join('\n')}\n`;
}

export function save(blob, name) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name.replace(/[^\w.-]+/g, '-');
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// The SVG is made self-contained: computed styles are inlined and a legend is added below.
export async function pngOf(svg, title, lines) {
  const around = getComputedStyle(svg.closest('.chart'));
  const { width, height } = svg.getBoundingClientRect();
  const [top, perRow, rowHeight] = [30, Math.max(1, Math.floor(width / 180)), 18];
  const below = Math.ceil(lines.length / perRow) * rowHeight + 12;
  const copy = svg.cloneNode(true);
  copy.querySelectorAll('.cross').forEach((cross) => cross.remove());
  const [originals, copies] = [[...svg.querySelectorAll('*:not(.cross, .cross *)')], [...copy.querySelectorAll('*')]];
  originals.forEach((original, idx) => {
    const looks = getComputedStyle(original);
    for (const look of INLINED_STYLES) copies[idx]?.setAttribute(look, looks.getPropertyValue(look));
  });
  const make = (tag, attributes, text) => {
    const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text) made.textContent = text;
    return made;
  };
  const letters = { 'font-family': around.fontFamily, fill: around.color };
  const whole = make('svg', { xmlns: 'http://www.w3.org/2000/svg', width, height: height + top + below });
  whole.append(make('rect', { width: '100%', height: '100%', fill: around.backgroundColor }));
  whole.append(make('text', { x: 12, y: 20, 'font-size': 14, 'font-weight': 600, ...letters }, title));
  const moved = make('g', { transform: `translate(0 ${top})` });
  moved.append(...copy.childNodes);
  whole.append(moved);
  lines.forEach(({ label, ink }, idx) => {
    const [x, y] = [12 + (idx % perRow) * 180, height + top + 14 + Math.floor(idx / perRow) * rowHeight];
    whole.append(make('rect', { x, y: y - 5, width: 14, height: 3, fill: ink }));
    whole.append(make('text', { x: x + 20, y, 'font-size': 12, ...letters }, label));
  });
  const text = new XMLSerializer().serializeToString(whole);
  const address = URL.createObjectURL(new Blob([text], { type: 'image/svg+xml' }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = document.createElement('canvas');
    const sharp = Math.max(2, window.devicePixelRatio || 1);
    [canvas.width, canvas.height] = [width * sharp, (height + top + below) * sharp];
    const pen = canvas.getContext('2d');
    pen.scale(sharp, sharp);
    pen.drawImage(image, 0, 0);
    return await new Promise((done) => canvas.toBlob(done, 'image/png'));
  } finally {
    URL.revokeObjectURL(address);
  }
}
