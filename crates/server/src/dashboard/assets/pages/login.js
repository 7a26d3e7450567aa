// Login page: an app id with its password, or a token; then redirects to the requested page.

import { api, logIn, session } from '../api.js';
import { h, mark, put, text } from '../dom.js';

export async function show(root, params, context) {
  const query = new URLSearchParams(location.search);
  const requested = query.get('to') ?? '';
  const to = requested.startsWith('/ui/') && !requested.startsWith('/ui/login') ? requested : '/ui/';
  context.title('Log in');

  const id = h('input', { name: 'id', autocomplete: 'username', spellcheck: 'false', autocapitalize: 'none', required: true });
  const password = h('input', { name: 'password', type: 'password', autocomplete: 'current-password', required: true });
  const token = h('input', { name: 'token', type: 'password', autocomplete: 'off', spellcheck: 'false' });
  const byPassword = h('div', { class: 'fields' }, h('label', {}, 'App id', id), h('label', {}, 'Password', password));
  const byToken = h('div', { class: 'fields', hidden: true }, h('label', {}, 'Access token', token));
  const problem = h('div', { class: 'note bad', role: 'alert', hidden: true });
  const submit = h('button', { class: 'primary' }, 'Log in');
  let method = 'password';

  const methodButtons = [['password', 'App id and password'], ['token', 'Token']].map(([name, label]) =>
    h('button', { type: 'button', 'aria-pressed': String(name === method), onclick: () => choose(name) }, label));
  function choose(name) {
    method = name;
    methodButtons.forEach((button, at) => mark(button, 'aria-pressed', String((at === 0) === (name === 'password'))));
    mark(byPassword, 'hidden', name === 'token' ? '' : null);
    mark(byToken, 'hidden', name === 'token' ? null : '');
    for (const field of [id, password]) field.required = name === 'password';
    token.required = name === 'token';
    (name === 'token' ? token : id).focus();
  }

  const form = h('form', { class: 'panel login', onsubmit: async (event) => {
    event.preventDefault();
    submit.disabled = true;
    mark(problem, 'hidden', '');
    try {
      session.begin(method === 'token' ? token.value.trim() : await logIn(id.value, password.value));
      await api.get('/subscriptions');
      await context.go(to, { replace: true });
    } catch (error) {
      session.end();
      const isInvalidToken = method === 'token' && error.status === 401;
      text(problem, isInvalidToken ? 'The token is not valid or has expired.' : error.message);
      mark(problem, 'hidden', null);
      submit.disabled = false;
      (method === 'token' ? token : password).focus();
    }
  } },
    h('h1', {}, 'Log in'),
    query.has('expired') && h('p', { class: 'note waiting', role: 'status' }, 'Your login has expired. Log in again to continue.'),
    h('div', { class: 'tabs', role: 'group', 'aria-label': 'How to log in' }, methodButtons),
    byPassword, byToken, problem, submit,
    h('p', { class: 'soft small' }, 'On a machine that is logged in, ', h('code', {}, 'corro dashboard --open'),
      ' opens this page without asking. ', h('code', {}, 'corro ad sp create-for-rbac'), ' creates an app id for another user.'));
  put(root, form);
  id.focus();
}
