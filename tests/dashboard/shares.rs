//! Files in the browser: browsing, upload by drag and drop, display, and the stored bytes equal the dropped ones.

use super::harness::browser::Browser;
use super::harness::{Site, wait_for};

#[test]
fn files_are_dropped_shown_and_taken_away() {
    let Some(browser) = Browser::start() else { return };
    let site = Site::start();
    site.prepare(0);
    std::fs::write(site.share().join("cifar/notes.txt"), "one\ntwo <b>three</b>\n").expect("a file");
    browser.open(&site, "/ui/shares");
    browser.click_on("main a", "myshare");
    browser.click_on(".entry a", "cifar");
    browser.wait_for_text(".entry", "notes.txt");

    // As a desktop does it: a file is dragged over the list and dropped.
    browser.eval(
        "const data = new DataTransfer();
         data.items.add(new File([new Uint8Array(5 * 1024 * 1024).fill(65)], 'large.bin'));
         data.items.add(new File(['gru\\u00df'], 'b\\u00e4r & co.txt', {type: 'text/plain'}));
         const box = document.querySelector('.drop');
         for (const type of ['dragenter', 'dragover', 'drop']) box.dispatchEvent(new DragEvent(type, {dataTransfer: data, bubbles: true, cancelable: true}));",
    );
    browser.wait_for_text(".entry", "large.bin");
    browser.wait_for_text(".entry", "bär & co.txt");
    let large = site.share().join("cifar/large.bin");
    wait_for("all of the large file", || {
        std::fs::read(&large).is_ok_and(|bytes| bytes.len() == 5 << 20 && bytes.iter().all(|byte| *byte == 65))
    });
    assert_eq!(std::fs::read_to_string(site.share().join("cifar/bär & co.txt")).expect("it is there"), "gruß");

    browser.click_on(".entry a", "notes.txt");
    browser.wait_for_text(".preview pre", "two <b>three</b>");
    assert_eq!(browser.eval("return document.querySelectorAll('.preview b').length"), 0);
    assert!(browser.url().ends_with("/ui/shares/mystorageaccount/myshare/cifar?view=notes.txt"), "{}", browser.url());
    browser.go(&browser.url());
    browser.wait_for_text(".preview pre", "one");

    // An image that the page itself has painted.
    browser.eval(
        "const canvas = document.createElement('canvas'); canvas.width = canvas.height = 8;
         canvas.toBlob((blob) => { const data = new DataTransfer(); data.items.add(new File([blob], 'dot.png'));
           document.querySelector('.drop').dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true})); });",
    );
    browser.click_on(".entry a", "dot.png");
    browser.wait_for_script("return document.querySelector('.preview img')?.naturalWidth === 8");

    // A link is shown as one, and deleting it keeps its target.
    std::os::unix::fs::symlink("../cifar", site.share().join("cifar/latest")).expect("a link");
    browser.go(&browser.url());
    browser.wait_for_text(".entry", "→ ../cifar");
    browser.click("[aria-label='Delete latest']");
    browser.wait_for_text("dialog", "The link is deleted, not its target.");
    browser.click_on("dialog button", "Delete");
    wait_for("the link to be gone", || !site.share().join("cifar/latest").is_symlink());
    assert!(site.share().join("cifar/notes.txt").exists());

    browser.click("[aria-label='Delete large.bin']");
    browser.click_on("dialog button", "Delete");
    wait_for("the file to be gone", || !large.exists());
    browser.wait_for_script(
        "return ![...document.querySelectorAll('.entry')].some((e) => e.innerText.includes('large.bin'))",
    );
    browser.assert_console_clean_except(&[]);
}
