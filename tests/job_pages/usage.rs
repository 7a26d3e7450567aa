//! The page of node-hours: usage per user over a period.

use crate::harness::Site;
use crate::job::browser;

#[test]
fn node_hours_are_summed() {
    let Some(browser) = browser() else { return };
    let site = Site::start();
    site.prepare(1);
    for name in ["one", "two"] {
        site.submit_custom(name, 1, "true");
        site.wait_for_end(name);
    }
    browser.open(&site, "/ui/usage");
    browser.wait("document.querySelectorAll('#by-user .rows .row').length === 1");
    browser.wait_text("#by-experiment .rows", "cifar");
    browser.wait_text("#by-cluster .rows", "nc6cluster");
    // Two short jobs, and nothing runs now.
    let jobs = "document.querySelector('#by-user .rows .row .cell:nth-child(4)').textContent";
    assert_eq!(browser.value(jobs), "2");
    browser.click(".head .tabs button:nth-child(3)");
    browser.wait_text(".figures", "since");
    browser.click("#by-experiment .rows a");
    browser.wait_text("h1", "cifar");
    browser.end();
}
