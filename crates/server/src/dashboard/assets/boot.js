// Loads the application after the first paint, so that the empty page appears at once. A hidden page is never painted, so it
// does not wait.

const SHARED_MODULES = ['api', 'dom', 'share-client', 'event-stream', 'components', 'times', 'routes', 'search', 'shortcuts', 'notifications'];
const OVERVIEW_MODULES = ['cluster-cards', 'job-list', 'next-steps', 'node-tiles', 'pages/overview'];

function begin() {
  for (const name of location.pathname === '/ui/' ? [...SHARED_MODULES, ...OVERVIEW_MODULES] : SHARED_MODULES) {
    const link = Object.assign(document.createElement('link'), { rel: 'modulepreload', href: `/ui/assets/${name}.js` });
    document.head.append(link);
  }
  import('./main.js').then(() => sessionStorage.removeItem(RELOADED), reloadOnce);
}

// A browser drops its requests when the machine's network changes, and never repeats that of a module. So the page is loaded again, once.
const RELOADED = 'corro.reloaded';

function reloadOnce(error) {
  if (sessionStorage.getItem(RELOADED)) {
    sessionStorage.removeItem(RELOADED);
    document.querySelector('main').textContent = `The page could not be loaded: ${error.message}. Reload it to try again.`;
    return;
  }
  sessionStorage.setItem(RELOADED, 'yes');
  location.reload();
}

if (document.hidden) begin();
else requestAnimationFrame(() => setTimeout(begin));
