// Filter of a run table: words that all must hold. `lr<0.01` compares a field, `state=failed` too, any other word is searched for in
// names, notes and tags. Pure.

import { numberOr } from './hyperparameters.js';

const COMPARISON = /^([^<>=!]+)(<=|>=|!=|=|<|>)(.*)$/;

/** Returns `matches({field(name), text})`: `field` returns a value or undefined, `text` is searched for words. */
export function parseFilter(query) {
  const conditions = query.trim().split(/\s+/).filter(Boolean).map(parseWord);
  return (run) => conditions.every((holds) => holds(run));
}

function parseWord(word) {
  const [, name, operator, wanted] = COMPARISON.exec(word) ?? [];
  if (!name) return (run) => run.text.toLowerCase().includes(word.toLowerCase());
  return (run) => {
    const values = [run.field(name)].flat().filter((value) => value !== undefined && value !== null);
    if (!values.length) return operator === '!=' && wanted !== '';
    return operator === '!=' ? values.every((value) => compare(value, operator, wanted)) : values.some((value) => compare(value, operator, wanted));
  };
}

function compare(value, operator, wanted) {
  const [a, b] = [numberOr(value), numberOr(wanted)];
  const isNumeric = typeof a === 'number' && typeof b === 'number';
  const [left, right] = isNumeric ? [a, b] : [String(value).toLowerCase(), wanted.toLowerCase()];
  switch (operator) {
    case '=': return left === right;
    case '!=': return left !== right;
    case '<': return left < right;
    case '<=': return left <= right;
    case '>': return left > right;
    default: return left >= right;
  }
}
