// DOM helpers. Text is always inserted as text; no string is ever parsed as markup.

const SVG = 'http://www.w3.org/2000/svg';

/** Creates an element. Attributes: `class`, `on…` with a function, `style` and `dataset` with objects, others by name; null,
 * undefined and false are omitted. Children: nodes, texts, numbers, lists of them; null and false are skipped. */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Like `h` for SVG. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'style') for (const [property, setting] of Object.entries(value)) element.style.setProperty(property, setting);
    else if (name === 'dataset') Object.assign(element.dataset, value);
    else if (name === 'value' || name === 'checked' || name === 'selected') element[name] = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : String(child));
  }
}

/** Replaces the children of `element`. */
export function put(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Sets the text only if it changed, so that selections are kept. */
export function text(element, value) {
  const content = value === null || value === undefined ? '' : String(value);
  if (element.textContent !== content) element.textContent = content;
  return element;
}

/** Sets an attribute, or removes it for null and false. */
export function mark(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** Makes the children of `parent` match `items`, in order. Existing ones are kept and updated with `update(element, item)`; new ones
 * are created with `make(item)`. One new item among a thousand costs one insertion. */
export function keyed(parent, items, key, make, update) {
  const old = parent.corroKeyed ?? new Map();
  const current = new Map();
  let next = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    if (current.has(name)) continue;
    let element = old.get(name);
    if (!element) element = make(item);
    if (update) update(element, item);
    current.set(name, element);
    if (element === next) next = next.nextElementSibling;
    else parent.insertBefore(element, next);
  }
  for (const [name, element] of old) if (!current.has(name)) element.remove();
  parent.corroKeyed = current;
}
