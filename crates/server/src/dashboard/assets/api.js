// Talks to the server: the public API with the token of whoever is logged in, and nothing else. The token lives as long as
// the tab. A token that is refused leads to the login and back.

const TOKEN = 'corro.token';
const SUBSCRIPTION = 'corro.subscription';
const VERSION = '2018-05-01';

/** What the server said no with: `status`, `code`, and a message made for people. */
export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    Object.assign(this, { name: 'ApiError', status, code });
  }
}

export const session = {
  get token() { return sessionStorage.getItem(TOKEN); },
  begin(token) {
    sessionStorage.setItem(TOKEN, token);
    sessionStorage.removeItem(SUBSCRIPTION);
  },
  end() {
    sessionStorage.removeItem(TOKEN);
    sessionStorage.removeItem(SUBSCRIPTION);
  },
  /** Who the token says it is of; the server alone can tell whether that is true. */
  get who() {
    try {
      const claims = JSON.parse(atob(this.token.split('.')[1].replaceAll('-', '+').replaceAll('_', '/')));
      return claims.appid ?? '';
    } catch { return ''; }
  },
};

/** Told when the server refuses the token. */
let onRefused = () => {};
export function whenRefused(tell) { onRefused = tell; }

/** The id of the server's one subscription. */
export async function subscription() {
  const known = sessionStorage.getItem(SUBSCRIPTION);
  if (known) return known;
  const { value } = await ask('GET', '/subscriptions');
  sessionStorage.setItem(SUBSCRIPTION, value[0].subscriptionId);
  return value[0].subscriptionId;
}

/** A request with the token; the response as it came, if it is a good one. Paths that begin with `~` are below the subscription. */
export async function send(method, path, { query = {}, body, headers = {}, signal } = {}) {
  if (path.startsWith('~')) path = `/subscriptions/${await subscription()}${path.slice(1)}`;
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== '') url.searchParams.set(name, value);
  }
  if (!url.searchParams.has('api-version')) url.searchParams.set('api-version', VERSION);
  const token = session.token;
  const request = { method, signal, headers: { Authorization: `Bearer ${token}`, ...headers } };
  if (body !== undefined) {
    request.body = JSON.stringify(body);
    request.headers['Content-Type'] = 'application/json';
  }
  let response;
  try {
    response = await fetch(url.pathname + url.search, request);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, 'Unreachable', 'The server cannot be reached. This page tries again by itself.');
  }
  if (response.ok) return response;
  const refusal = await refusalOf(response);
  if (response.status === 401 && token === session.token) onRefused();
  throw refusal;
}

async function refusalOf(response) {
  let told = {};
  try { told = (await response.json()).error ?? {}; } catch { /* not all refusals have a body */ }
  return new ApiError(response.status, told.code ?? '', told.message ?? `The server answered ${response.status}.`);
}

async function ask(method, path, more) {
  const response = await send(method, path, more);
  const type = response.headers.get('content-type') ?? '';
  return type.includes('json') ? response.json() : null;
}

export const api = {
  get: (path, query, more) => ask('GET', path, { query, ...more }),
  put: (path, body, query) => ask('PUT', path, { body, query }),
  patch: (path, body, query) => ask('PATCH', path, { body, query }),
  post: (path, body, query) => ask('POST', path, { body: body ?? {}, query }),
  del: (path, query) => ask('DELETE', path, { query }),

  /** The page after `page`; null when it was the last. */
  next(page) {
    if (!page.nextLink) return null;
    const url = new URL(page.nextLink, location.origin);
    return ask('GET', url.pathname + url.search);
  },

  /** All pages of a list, in one. */
  async all(path, query) {
    const items = [];
    for (let page = await api.get(path, query); page; page = await api.next(page)) items.push(...page.value);
    return items;
  },
};

/** A token for an app id and its password. */
export async function logIn(id, password) {
  const form = new URLSearchParams({
    grant_type: 'client_credentials', client_id: id.trim(), client_secret: password, resource: location.origin,
  });
  let response;
  try {
    response = await fetch('/common/oauth2/token', { method: 'POST', body: form });
  } catch { throw new ApiError(0, 'Unreachable', 'The server cannot be reached.'); }
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer.access_token;
  const told = (answer.error_description ?? answer.error?.message ?? 'The login was refused').split('\r\n')[0];
  throw new ApiError(response.status, answer.error ?? '', told.replace(/^AADSTS\d+: /, ''));
}
