// Export of charts: points as CSV, picture as PNG.

const INLINED_STYLES = ['fill', 'stroke', 'stroke-width', 'stroke-dasharray', 'stroke-linejoin', 'opacity', 'font-size', 'font-family',
  'font-weight', 'text-anchor'];

// One line per point. Values that a spreadsheet would run as a formula are escaped: names come from a job's output.
export function toCsv(lines, titles) {
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
export async function toPng(svg, title, lines) {
  const chartStyle = getComputedStyle(svg.closest('.chart'));
  const { width, height } = svg.getBoundingClientRect();
  const [top, perRow, rowHeight] = [30, Math.max(1, Math.floor(width / 180)), 18];
  const legendHeight = Math.ceil(lines.length / perRow) * rowHeight + 12;
  const copy = svg.cloneNode(true);
  copy.querySelectorAll('.cross').forEach((cross) => cross.remove());
  const [originals, copies] = [[...svg.querySelectorAll('*:not(.cross, .cross *)')], [...copy.querySelectorAll('*')]];
  originals.forEach((original, idx) => {
    const styles = getComputedStyle(original);
    for (const name of INLINED_STYLES) copies[idx]?.setAttribute(name, styles.getPropertyValue(name));
  });
  const createElement = (tag, attributes, text) => {
    const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text) element.textContent = text;
    return element;
  };
  const textStyle = { 'font-family': chartStyle.fontFamily, fill: chartStyle.color };
  const picture = createElement('svg', { xmlns: 'http://www.w3.org/2000/svg', width, height: height + top + legendHeight });
  picture.append(createElement('rect', { width: '100%', height: '100%', fill: chartStyle.backgroundColor }));
  picture.append(createElement('text', { x: 12, y: 20, 'font-size': 14, 'font-weight': 600, ...textStyle }, title));
  const plot = createElement('g', { transform: `translate(0 ${top})` });
  plot.append(...copy.childNodes);
  picture.append(plot);
  lines.forEach(({ label, ink }, idx) => {
    const [x, y] = [12 + (idx % perRow) * 180, height + top + 14 + Math.floor(idx / perRow) * rowHeight];
    picture.append(createElement('rect', { x, y: y - 5, width: 14, height: 3, fill: ink }));
    picture.append(createElement('text', { x: x + 20, y, 'font-size': 12, ...textStyle }, label));
  });
  const text = new XMLSerializer().serializeToString(picture);
  const url = URL.createObjectURL(new Blob([text], { type: 'image/svg+xml' }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = document.createElement('canvas');
    const pixelRatio = Math.max(2, window.devicePixelRatio || 1);
    [canvas.width, canvas.height] = [width * pixelRatio, (height + top + legendHeight) * pixelRatio];
    const canvasContext = canvas.getContext('2d');
    canvasContext.scale(pixelRatio, pixelRatio);
    canvasContext.drawImage(image, 0, 0);
    return await new Promise((resolve) => canvas.toBlob(resolve, 'image/png'));
  } finally {
    URL.revokeObjectURL(url);
  }
}
