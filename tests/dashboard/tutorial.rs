//! The tutorial in the dashboard: the cluster appears, the job runs and ends, the queue shows the reason for waiting, the
//! cluster is scaled and deleted. No page is reloaded, also not when the server restarts.

use super::harness::browser::{Browser, keys};
use super::harness::{IN_WORKSPACE, Site};

#[test]
fn pages_update_live() {
    let Some(browser) = Browser::start() else { return };
    let mut site = Site::start();
    browser.open(&site, "/ui/");
    browser.wait_for_text("main", "No clusters yet");
    browser.eval("window.same = 'page'");

    site.prepare(2);
    browser.wait_for_text(".cluster h2", "nc6cluster");
    browser.wait_for_script("return document.querySelectorAll('.tile[data-state=idle]').length === 2");

    site.submit_custom("first", 1, "sleep 600");
    browser.wait_for_script("return document.querySelectorAll('.tile[data-state=running]').length === 1");
    browser.wait_for_text(".tile", "first");
    browser.wait_for_text("[aria-label=Jobs] .row", "first");

    site.submit_custom("large", 2, "true");
    browser.wait_for_text("[aria-label=Queue] .row", "needs 2 nodes");
    site.corro(&format!("batchai job terminate {IN_WORKSPACE} -e cifar -n first -y")).ok();
    browser.wait_for_script("return document.querySelectorAll('[aria-label=Jobs] [data-state=succeeded], [aria-label=Jobs] [data-state=failed]').length === 2",
    );
    browser.wait_for_text("main", "The queue is empty");

    // The server restarts at the same address; the page reports it and recovers.
    let address = site.address();
    site.kill_server();
    browser.wait_for_text(".link-state", "reconnecting");
    site.up_at(&address);
    browser.wait_for_script("return document.querySelector('.link-state').dataset.state === 'live'");
    site.wait_for_nodes(2);
    site.submit_custom("after", 1, "true");
    browser.wait_for_script("return [...document.querySelectorAll('[aria-label=Jobs] .row')].some((row) => row.innerText.includes('after') && row.innerText.includes('succeeded'))",
    );
    assert_eq!(browser.eval("return window.same"), "page", "the page was loaded anew");
    // Requests without a server are errors to the browser.
    browser.assert_console_clean_except(&["ERR_CONNECTION", "ERR_INCOMPLETE", "ERR_EMPTY", "ERR_NETWORK"]);

    browser.click_on(".cluster h2 a", "nc6cluster");
    browser.wait_for_text("h1", "nc6cluster");
    browser.wait_for_script("return document.querySelector('.chart path.nodes')?.getAttribute('d').length > 20");
    browser.eval("document.querySelector('[name=target]').value = ''");
    browser.write("[name=target]", "1");
    browser.click_on(".scale button", "Scale");
    browser.wait_for_script("return document.querySelectorAll('.tile').length === 1");
    assert_eq!(site.cluster()["scaleSettings"]["manual"]["targetNodeCount"], 1);
    browser.click_on("button.danger", "Delete");
    browser.wait_for_text("dialog", "Delete the cluster nc6cluster?");
    browser.click_on("dialog button", "Delete");
    browser.wait_for_text("main", "No clusters yet");
    browser.assert_console_clean_except(&[]);
}

#[test]
fn everything_is_reached_with_the_keyboard_alone() {
    let Some(browser) = Browser::start() else { return };
    let site = Site::start();
    site.prepare(1);
    site.submit_custom("needle-in-the-haystack", 1, "true");
    site.wait_for_end("needle-in-the-haystack");
    browser.open(&site, "/ui/");
    browser.wait_for_text(".cluster h2", "nc6cluster");
    // One key, a part of a name, Enter.
    browser.press("/");
    browser.wait_for_script("return document.querySelector('dialog.search[open]') !== null");
    browser.press("nc6");
    browser.wait_for_text("[role=option][aria-selected=true]", "nc6cluster");
    browser.press(keys::ENTER);
    browser.wait_for_text("h1", "nc6cluster");
    assert!(browser.url().contains("/ui/clusters/batchai.horovod:batchaidev/nc6cluster"), "{}", browser.url());
    browser.press("/");
    browser.press("needle");
    browser.wait_for_text("[role=option]", "needle-in-the-haystack");
    browser.press(keys::ESCAPE);
    browser.wait_for_script("return document.querySelector('dialog.search') === null");
    browser.press("/");
    browser.press("mysha");
    browser.wait_for_text("[role=option][aria-selected=true]", "myshare");
    browser.press(keys::ENTER);
    browser.wait_for_text("h1", "myshare");
    // The Tab key reaches every control, with a visible focus.
    // Once the page is complete, it takes the focus.
    browser.wait("document.activeElement.id === 'main'");
    browser.eval("document.activeElement.blur()");
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..40 {
        browser.press(keys::TAB);
        let focused = browser.eval(
            "const e = document.activeElement; const s = getComputedStyle(e); return [e.innerText || e.getAttribute('aria-label') || e.tagName, e === document.body || s.outlineStyle !== 'none']",
        );
        assert_eq!(focused[1], true, "the focus on {} cannot be seen", focused[0]);
        seen.insert(focused[0].as_str().unwrap_or_default().trim().replace('\n', " "));
    }
    for wanted in ["Overview", "Shares", "Log out", "Upload", "cifar"] {
        assert!(seen.iter().any(|name| name.contains(wanted)), "{wanted} is not among {seen:?}");
    }
    browser.assert_console_clean_except(&[]);
}
