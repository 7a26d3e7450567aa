// Loads the application after the first paint, so that the empty page appears at once. A hidden page is never painted, so it
// does not wait.

const AT_ONCE = ['api', 'dom', 'files', 'live', 'parts', 'paths', 'search', 'tiles', 'pages/overview'];

function begin() {
  for (const name of AT_ONCE) {
    const link = Object.assign(document.createElement('link'), { rel: 'modulepreload', href: `/ui/assets/${name}.js` });
    document.head.append(link);
  }
  import('./main.js');
}

if (document.hidden) begin();
else requestAnimationFrame(() => setTimeout(begin));
