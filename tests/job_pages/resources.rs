//! CPU and memory over time, on the page of a job and on that of its node.

use crate::harness::Site;
use crate::harness::logs::wait_at;
use crate::job::browser;

/// Points of a line: the commands of its path.
const DRAWN: &str =
    "[...document.querySelectorAll('#resources .curves path')].map((path) => path.getAttribute('d').length)";

#[test]
fn cpu_and_memory_are_drawn_for_jobs_and_nodes() {
    let Some(browser) = browser() else { return };
    let site = Site::start();
    site.prepare(1);
    // Busy, however little of a core the machine has left for it; a job that sleeps shows less than 1 %.
    let busy = "python3 -c 'import time; text = b\"x\" * 50000000\nwhile True: pass' &";
    site.submit_custom("busy", 1, &format!("{busy} {}; kill %1", wait_at("go")));
    site.wait_for_state("busy", &["running"]);
    browser.open(&site, "/ui/jobs/batchai.horovod:batchaidev/cifar/busy");
    browser.wait("!document.querySelector('#tab-resources').hidden");
    browser.click("#tab-resources");
    browser.wait(&format!("{DRAWN}.length === 2 && {DRAWN}.every((length) => length > 10)"));
    let cpu = "Number(document.querySelector('#resources .last').textContent.split(' ')[0])";
    browser.wait(&format!("{cpu} > 3"));
    browser.wait("Number(document.querySelectorAll('#resources .last')[1].textContent.split(' ')[0]) >= 50");

    // The node's page is reached by its id.
    browser.wait("document.querySelector('#ranks .mono')");
    let node = browser.value("document.querySelector('#ranks .mono').textContent");
    let node = node.as_str().expect("a node").to_owned();
    browser.open(&site, "/ui/nodes");
    browser.click("[aria-label=Nodes] .rows a.mono");
    browser.wait_text("h1", "Node 1");
    browser.wait_text(".facts", "cifar/busy");
    browser.wait_text(".facts", &node);
    browser.wait(&format!("{DRAWN}.length === 2 && {DRAWN}.every((length) => length > 10)"));
    site.open_gate("go");
    browser.wait("document.querySelector('.head .state').textContent === 'idle'");
    // What was measured stays.
    assert_eq!(browser.value(&format!("{DRAWN}.length")), 2);
    browser.end();
}
