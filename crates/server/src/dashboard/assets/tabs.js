// Tabs: a row of buttons, one panel in sight. The chosen tab is in the address (`?tab=ranks`), so that a link leads to it. Arrow keys
// move between tabs.

import { h, mark, text } from './dom.js';

export class Tabs {
  /** `panels`: `[{name, title, element, isAvailable, onShow}]`. The first is shown unless the address names another one. */
  constructor(label, panels) {
    this.panels = panels.map((panel) => ({ isAvailable: true, ...panel }));
    this.wanted = new URLSearchParams(location.search).get('tab') ?? panels[0].name;
    this.list = h('div', { class: 'tabs', role: 'tablist', 'aria-label': label, onkeydown: (event) => this.onKey(event) });
    for (const panel of this.panels) {
      panel.count = h('span', { class: 'count' });
      panel.button = h('button', { type: 'button', role: 'tab', id: `tab-${panel.name}`, 'aria-controls': panel.element.id, onclick: () => this.choose(panel.name) },
        panel.title, panel.count);
      this.list.append(panel.button);
      mark(panel.element, 'role', 'tabpanel');
      mark(panel.element, 'aria-labelledby', `tab-${panel.name}`);
    }
    this.element = h('section', { class: 'panel tabbed' }, h('header', null, this.list), this.panels.map((panel) => panel.element));
    this.draw();
  }

  /** Shows the tab and puts it into the address. */
  choose(name) {
    this.wanted = name;
    const query = new URLSearchParams(location.search);
    query.set('tab', name);
    history.replaceState(null, '', `${location.pathname}?${query}`);
    this.draw();
    this.shown.onShow?.();
  }

  /** Tabs without content are not offered. */
  setAvailable(name, isAvailable) {
    const panel = this.find(name);
    if (panel.isAvailable === isAvailable) return;
    panel.isAvailable = isAvailable;
    this.draw();
  }

  setCount(name, count) {
    text(this.find(name).count, count ? ` ${count}` : '');
  }

  isShown(name) {
    return this.shown.name === name;
  }

  find(name) {
    return this.panels.find((panel) => panel.name === name);
  }

  draw() {
    const wanted = this.find(this.wanted);
    this.shown = wanted?.isAvailable ? wanted : this.panels.find((panel) => panel.isAvailable);
    for (const panel of this.panels) {
      const isShown = panel === this.shown;
      mark(panel.button, 'hidden', panel.isAvailable ? null : '');
      mark(panel.button, 'aria-selected', String(isShown));
      mark(panel.button, 'tabindex', isShown ? null : -1);
      mark(panel.element, 'hidden', isShown ? null : '');
    }
  }

  onKey(event) {
    const offered = this.panels.filter((panel) => panel.isAvailable);
    const at = offered.indexOf(this.shown);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: offered.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = offered[(to + offered.length) % offered.length];
    this.choose(next.name);
    next.button.focus();
  }
}
