// Copying to the clipboard.

import { toast } from './components.js';

/** Selects the text of an element and copies it. Browsers offer `navigator.clipboard` only on HTTPS and on this machine; elsewhere the
 * selection is copied. */
export async function copyText(element) {
  getSelection().selectAllChildren(element);
  let isCopied = true;
  try { await navigator.clipboard.writeText(element.textContent); } catch { isCopied = document.execCommand('copy'); }
  toast(isCopied ? 'Copied.' : 'The browser does not allow copying. The text is selected.', isCopied ? '' : 'bad');
}
