// Client of the public API with the access token of the logged-in user, which is stored per tab. A rejected token leads to the login
// page and back.

const TOKEN = 'corro.token';
const SUBSCRIPTION = 'corro.subscription';
const NAME = 'corro.name';
const VERSION = '2018-05-01';

/** Error response of the server: `status`, `code`, and a message for the user. */
export class ApiError extends Error {
  /** `target` names the field of the request that the error is about, or is empty. */
  constructor(status, code, message, target = '') {
    super(message);
    Object.assign(this, { name: 'ApiError', status, code, target });
  }
}

export const session = {
  get token() { return sessionStorage.getItem(TOKEN); },
  begin(token) {
    session.end();
    sessionStorage.setItem(TOKEN, token);
  },
  end() {
    for (const key of [TOKEN, SUBSCRIPTION, NAME]) sessionStorage.removeItem(key);
  },
  /** Display name of the principal; null until it is known. */
  get name() { return sessionStorage.getItem(NAME); },
  set name(name) { sessionStorage.setItem(NAME, name); },
  /** App id in the token's claims; unverified. */
  get appId() {
    try {
      const claims = JSON.parse(atob(this.token.split('.')[1].replaceAll('-', '+').replaceAll('_', '/')));
      return claims.appid ?? '';
    } catch { return ''; }
  },
};

/** Called when the server rejects the token. */
let handleUnauthorized = () => {};
export function onUnauthorized(callback) { handleUnauthorized = callback; }

/** Id of the server's only subscription. */
export async function subscription() {
  const cached = sessionStorage.getItem(SUBSCRIPTION);
  if (cached) return cached;
  const { value } = await request('GET', '/subscriptions');
  sessionStorage.setItem(SUBSCRIPTION, value[0].subscriptionId);
  return value[0].subscriptionId;
}

/** Sends an authenticated request; returns the response if it is successful. Paths that start with `~` are below the subscription. */
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
  const error = await parseError(response);
  if (response.status === 401 && token === session.token) handleUnauthorized();
  throw error;
}

async function parseError(response) {
  let error = {};
  try { error = (await response.json()).error ?? {}; } catch { /* not all error responses have a body */ }
  return new ApiError(response.status, error.code ?? '', error.message ?? `The server answered ${response.status}.`, error.target ?? '');
}

async function request(method, path, options) {
  const response = await send(method, path, options);
  const type = response.headers.get('content-type') ?? '';
  return type.includes('json') ? response.json() : null;
}

export const api = {
  get: (path, query, options) => request('GET', path, { query, ...options }),
  put: (path, body, query) => request('PUT', path, { body, query }),
  patch: (path, body, query) => request('PATCH', path, { body, query }),
  post: (path, body, query) => request('POST', path, { body: body ?? {}, query }),
  del: (path, query) => request('DELETE', path, { query }),

  /** The page after `page`; null if it was the last. */
  next(page) {
    if (!page.nextLink) return null;
    const url = new URL(page.nextLink, location.origin);
    return request('GET', url.pathname + url.search);
  },

  /** All items of a paged list. */
  async all(path, query) {
    const items = [];
    for (let page = await api.get(path, query); page; page = await api.next(page)) items.push(...page.value);
    return items;
  },
};

/** Requests a token for an app id and its password. */
export async function logIn(id, password) {
  const form = new URLSearchParams({
    grant_type: 'client_credentials', client_id: id.trim(), client_secret: password, resource: location.origin,
  });
  let response;
  try {
    response = await fetch('/common/oauth2/token', { method: 'POST', body: form });
  } catch { throw new ApiError(0, 'Unreachable', 'The server cannot be reached.'); }
  const body = await response.json().catch(() => ({}));
  if (response.ok) return body.access_token;
  const message = (body.error_description ?? body.error?.message ?? 'The login was refused').split('\r\n')[0];
  throw new ApiError(response.status, body.error ?? '', message.replace(/^AADSTS\d+: /, ''));
}
