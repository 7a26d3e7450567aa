// Note, tags and pin of a job: shown to all who read the job, changed by those who may write.

import { api } from './api.js';
import { h, keyed, mark, put, text } from './dom.js';
import { toast } from './components.js';

/** Button that pins a job or takes the pin away. */
export function pinButton(id) {
  const button = h('button', { type: 'button', class: 'pin', onclick: async () => {
    const pinned = button.getAttribute('aria-pressed') !== 'true';
    try {
      await api.patch(`${id}/annotations`, { pinned });
      setPinned(button, pinned);
    } catch (error) { toast(error.message, 'bad'); }
  } });
  return button;
}

export function setPinned(button, isPinned, name) {
  text(button, isPinned ? '★' : '☆');
  mark(button, 'aria-pressed', String(isPinned));
  if (name) mark(button, 'aria-label', `Pin ${name}`);
}

export class JobNotes {
  constructor(id) {
    Object.assign(this, { id, annotations: {} });
    this.pin = pinButton(id);
    mark(this.pin, 'aria-label', 'Pin');
    this.edit = h('button', { type: 'button', id: 'edit-notes', onclick: () => this.open() }, 'Notes');
    this.tags = h('ul', { class: 'tags', 'aria-label': 'Tags' });
    this.text = h('p', { class: 'text' });
    this.tagsField = h('input', { name: 'tags', autocomplete: 'off', placeholder: 'baseline, paper' });
    this.noteField = h('textarea', { name: 'note' });
    this.errors = { tags: h('p', { class: 'field-error', role: 'alert' }), note: h('p', { class: 'field-error', role: 'alert' }) };
    this.form = h('form', { hidden: true, onsubmit: (event) => { event.preventDefault(); this.save(); } },
      h('label', null, 'Tags, separated by commas', this.tagsField, this.errors.tags), h('label', null, 'Note', this.noteField, this.errors.note),
      h('div', { class: 'actions' }, h('button', { class: 'primary' }, 'Save'), h('button', { type: 'button', onclick: () => this.close() }, 'Cancel')));
    this.element = h('div', { class: 'notes', hidden: true }, this.text, this.form);
  }

  set({ note = '', tags = [], pinned = false } = {}) {
    this.annotations = { note, tags };
    setPinned(this.pin, pinned);
    keyed(this.tags, tags, (tag) => tag, (tag) => h('li', null, tag));
    text(this.text, note);
    this.draw();
  }

  draw() {
    const isOpen = !this.form.hidden;
    mark(this.text, 'hidden', isOpen || !this.annotations.note ? '' : null);
    mark(this.element, 'hidden', isOpen || this.annotations.note ? null : '');
  }

  open() {
    this.noteField.value = this.annotations.note;
    this.tagsField.value = this.annotations.tags.join(', ');
    this.showError({});
    this.form.hidden = false;
    this.draw();
    this.noteField.focus();
  }

  close() {
    this.form.hidden = true;
    this.draw();
    this.edit.focus();
  }

  async save() {
    try {
      const tags = this.tagsField.value.split(',').map((tag) => tag.trim()).filter(Boolean);
      const saved = await api.patch(`${this.id}/annotations`, { note: this.noteField.value, tags });
      this.set(saved);
      this.close();
    } catch (error) { this.showError(error); }
  }

  // At the field that the server names, otherwise below the note.
  showError({ target, message = '' }) {
    const field = target === 'tags' ? 'tags' : 'note';
    for (const [name, element] of Object.entries(this.errors)) {
      put(element, name === field ? message : '');
      mark(name === 'tags' ? this.tagsField : this.noteField, 'aria-invalid', message && name === field ? 'true' : null);
    }
  }
}
