// Forms whose mistakes the server finds: each field has a place for the message of an error that names it. `api.js` has the field of an
// error as `target`.

import { h, mark, put } from './dom.js';

/** A field: `{element, input, targets, error}`. `targets` are the names by which the server's errors call it. */
export function field(label, input, targets = [], hint = '') {
  const error = h('span', { class: 'field-error', role: 'alert' });
  return { element: h('label', null, label, input, hint && h('span', { class: 'soft small' }, hint), error), input, targets, error };
}

/** Shows an error at the field that it is about, otherwise in `elsewhere`; null takes all messages away. */
export function showError(fields, elsewhere, error) {
  const target = error?.target ?? '';
  const isAbout = (name) => target === name || target.startsWith(`${name}.`) || target.startsWith(`${name}[`);
  const found = target && fields.find((one) => one.targets.some(isAbout));
  for (const one of fields) {
    put(one.error, one === found ? error.message : '');
    mark(one.input, 'aria-invalid', one === found ? 'true' : null);
  }
  put(elsewhere, error && !found ? h('div', { class: 'note bad', role: 'alert' }, target ? `${target}: ${error.message}` : error.message) : null);
  if (found) found.input.focus();
}

/** Choice among `[value, text]`. */
export function select(options, attributes = {}) {
  return h('select', attributes, options.map(([value, text]) => h('option', { value }, text)));
}

/** Opens a dialog with a form. `submit()` sends it and returns where to go on; the dialog stays open with the error otherwise. */
export function formDialog({ title, fields, label, submit }) {
  const elsewhere = h('div');
  const button = h('button', { class: 'primary' }, label);
  const dialog = h('dialog', { class: 'form', 'aria-label': title, onclose: () => dialog.remove() }, h('form', { onsubmit: async (event) => {
    event.preventDefault();
    showError(fields, elsewhere, null);
    button.disabled = true;
    try {
      await submit();
      dialog.close();
    } catch (error) { showError(fields, elsewhere, error); } finally { button.disabled = false; }
  } }, h('h2', null, title), h('div', { class: 'field-row' }, fields.map((one) => one.element)), elsewhere,
  h('div', { class: 'actions' }, h('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel'), button)));
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
