// The frame of a page is painted before anything is fetched that fills it, which then comes all at once. A page that nobody sees is not
// painted, and does not wait for that.

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
