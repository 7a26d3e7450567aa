// Loads the application after the first paint, so that the empty page appears at once. A hidden page is never painted, so it
// does not wait.

const PRELOADED_MODULES = ['api', 'dom', 'share-client', 'event-stream', 'components', 'routes', 'search', 'node-tiles', 'pages/overview'];

function begin() {
  for (const name of PRELOADED_MODULES) {
    const link = Object.assign(document.createElement('link'), { rel: 'modulepreload', href: `/ui/assets/${name}.js` });
    document.head.append(link);
  }
  import('./main.js');
}

if (document.hidden) begin();
else requestAnimationFrame(() => setTimeout(begin));
