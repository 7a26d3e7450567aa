// Form that scales a cluster: fixed size or autoscale.

import { h, mark, text } from '../dom.js';

const OPTIONS = [
  ['requeue', 'go back to the queue'], ['terminate', 'end'], ['waitforjobcompletion', 'run to their end'],
];

/** Returns `{element, set(scaleSettings)}`. Unsaved input is not overwritten. `apply(settings)` submits. */
export function scaleForm(apply) {
  let touched = false;
  const number = (name, label) => h('label', {}, label,
    h('input', { type: 'number', name, min: '0', max: '1000', step: '1', required: true, inputmode: 'numeric' }));
  const way = (value, label) => h('label', { class: 'choice' }, h('input', { type: 'radio', name: 'way', value }), label);
  const manual = h('div', { class: 'fields' }, number('target', 'Nodes'),
    h('label', {}, 'Jobs on removed nodes',
      h('select', { name: 'option' }, OPTIONS.map(([value, label]) => h('option', { value }, label)))));
  const auto = h('div', { class: 'fields' }, number('least', 'At least'), number('most', 'At most'));
  const problem = h('p', { class: 'note bad', role: 'alert', hidden: true });
  const submit = h('button', { class: 'primary' }, 'Scale');
  const form = h('form', { class: 'scale', oninput: () => { touched = true; fit(); }, onsubmit: async (event) => {
    event.preventDefault();
    mark(problem, 'hidden', '');
    submit.disabled = true;
    try {
      await apply(settings());
      touched = false;
    } catch (error) {
      text(problem, error.message);
      mark(problem, 'hidden', null);
    } finally { submit.disabled = false; }
  } },
    h('div', { class: 'ways', role: 'radiogroup', 'aria-label': 'Scaling' }, way('manual', 'Fixed size'), way('auto', 'Autoscale')),
    manual, auto, problem, submit);
  const { way: chosen, target, option, least, most } = form.elements;

  function fit() {
    const isAuto = chosen.value === 'auto';
    mark(manual, 'hidden', isAuto ? '' : null);
    mark(auto, 'hidden', isAuto ? null : '');
    for (const field of [target, option]) field.disabled = isAuto;
    for (const field of [least, most]) field.disabled = !isAuto;
    most.min = least.value || '0';
  }
  function settings() {
    if (chosen.value === 'auto') return { autoScale: { minimumNodeCount: Number(least.value), maximumNodeCount: Number(most.value) } };
    return { manual: { targetNodeCount: Number(target.value), nodeDeallocationOption: option.value } };
  }
  return {
    element: form,
    set({ manual: byHand, autoScale }) {
      if (touched) return;
      chosen.value = autoScale ? 'auto' : 'manual';
      target.value = byHand?.targetNodeCount ?? autoScale?.minimumNodeCount ?? 0;
      option.value = byHand?.nodeDeallocationOption ?? 'requeue';
      least.value = autoScale?.minimumNodeCount ?? 0;
      most.value = autoScale?.maximumNodeCount ?? Math.max(1, byHand?.targetNodeCount ?? 1);
      fit();
    },
  };
}
