// Makes and changes elements. Text goes in as text, always: nothing here or anywhere else reads a string as markup.

const SVG = 'http://www.w3.org/2000/svg';

/** An element. Attributes: `class`, `on…` with a function, `style` and `dataset` with objects, anything else by its name;
 * null, undefined and false leave one out. Children: nodes, texts, numbers, lists of them; null and false are skipped. */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'style') for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
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

/** Puts `children` in the place of whatever is in `element`. */
export function put(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Writes only what is new, so that nothing moves and no selection is lost. */
export function text(element, value) {
  const wanted = value === null || value === undefined ? '' : String(value);
  if (element.textContent !== wanted) element.textContent = wanted;
  return element;
}

/** An attribute that is there or not. */
export function mark(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** Makes the children of `parent` those of `items`, in order. What is there is kept and changed by `update(element, item)`;
 * what is new is made by `make(item)`. A thousand items of which one is new cost one insertion. */
export function keyed(parent, items, key, make, update) {
  const old = parent.corroKeyed ?? new Map();
  const now = new Map();
  let next = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    if (now.has(name)) continue;
    let element = old.get(name);
    if (!element) element = make(item);
    if (update) update(element, item);
    now.set(name, element);
    if (element === next) next = next.nextElementSibling;
    else parent.insertBefore(element, next);
  }
  for (const [name, element] of old) if (!now.has(name)) element.remove();
  parent.corroKeyed = now;
}
