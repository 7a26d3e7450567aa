//! A thousand jobs and five hundred nodes on one page: all are present, a change updates only the changed rows, and the page
//! stays responsive.

use serde_json::json;

use super::harness::browser::Browser;
use super::harness::{GROUP, IN_WORKSPACE, Site};

const JOBS: usize = 1000;
const NODES: usize = 500;

#[test]
fn a_thousand_jobs_and_five_hundred_nodes() {
    let Some(browser) = Browser::start() else { return };
    // Nodes of a server are machines that join; missing ones are nodes in preparation.
    let mut site = Site::unstarted(&["--no-containers", "--max-cores", "100000"]);
    site.start_server("server", "127.0.0.1:0", "info");
    site.corro(&format!("group create -n {GROUP} -l eastus")).ok();
    site.corro("batchai workspace create -g batchai.horovod --workspace batchaidev").ok();
    site.corro(&format!("batchai experiment create {IN_WORKSPACE} -n cifar")).ok();
    let size = "--vm-size Standard_D1 --user-name me --password not-a-secret";
    site.corro(&format!("batchai cluster create {IN_WORKSPACE} -n large {size} --target {NODES}")).ok();
    let bearer = format!("Bearer {}", site.token());
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let cluster = json!({"id": format!("{}/clusters/large", site.workspace())});
    let submit = |name: &str| {
        let body = json!({"properties": {"cluster": cluster, "nodeCount": 1, "stdOutErrPathPrefix": "logs", "customToolkitSettings": {"commandLine": "true"}}});
        let target = format!("{}/experiments/cifar/jobs/{name}?api-version=2018-05-01", site.workspace());
        site.request("PUT", &target, &headers, body.to_string().as_bytes()).is(202);
    };
    (0..JOBS).for_each(|n| submit(&format!("job-{n:04}")));

    browser.open(&site, "/ui/");
    browser.wait_for_script(&format!("return document.querySelectorAll('.tile').length === {NODES}"));
    // Older jobs are loaded on scrolling.
    browser.wait_for_script(&format!("scrollTo(0, document.body.scrollHeight); return document.querySelectorAll('[aria-label=Jobs] .rows .row').length === {JOBS}"),
    );
    // Existing rows stay the same elements when one is added.
    browser.eval("document.querySelectorAll('[aria-label=Jobs] .rows .row').forEach((row) => { row.known = true; }); document.querySelectorAll('.tile').forEach((tile) => { tile.known = true; }); scrollTo(0, 0); window.slow = 0; new PerformanceObserver((list) => { slow += list.getEntries().length; }).observe({type: 'longtask'});");
    submit("one-more");
    // Rows out of sight are not rendered; their texts are present.
    browser.wait_for_script(
        "return document.querySelector('[aria-label=Jobs] .rows .row')?.textContent.includes('one-more')",
    );
    browser.wait_for_script(
        "return document.querySelector('[aria-label=Queue] .rows .row')?.textContent.includes('job-0000')",
    );
    let kept = browser.eval("return [[...document.querySelectorAll('[aria-label=Jobs] .rows .row')].filter((row) => row.known).length, [...document.querySelectorAll('.tile')].filter((tile) => tile.known).length]");
    assert_eq!(kept, json!([JOBS, NODES]), "rows or tiles were made anew");
    // Frames are painted while the page is scrolled from end to end, whatever the machine's speed.
    let frames = browser.eval("let n = 0; for (let at = 0; at <= 20; at += 1) { scrollTo(0, document.body.scrollHeight * at / 20); await new Promise(requestAnimationFrame); n += 1; } return n");
    assert_eq!(frames, 21);
    browser.eval("document.querySelector('.tabs').scrollIntoView({block: 'center'})");
    browser.click_on(".tabs button", "Queued");
    browser.write("input[type=search]", "job-0007");
    browser.wait_for_script("return document.querySelectorAll('[aria-label=Jobs] .rows .row').length === 1");
    browser.assert_console_clean_except(&[]);
}
