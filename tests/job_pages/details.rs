//! Tabs of a job's page: the log of a failed job, of one rank, with wrapped lines; the produced files with their folder; the job's
//! file.

use serde_json::json;

use crate::harness::browser::{Browser, keys};
use crate::harness::{Site, wait_for};
use crate::job::browser;

/// The lines of the log that are in the document.
const LINES: &str = "[...document.querySelectorAll('#logs .line')].map((line) => line.textContent)";

fn open(browser: &Browser, site: &Site, job: &str) {
    browser.open(site, &format!("/ui/jobs/batchai.horovod:batchaidev/cifar/{job}"));
}

#[test]
fn a_failed_job_opens_with_its_errors() {
    let Some(browser) = browser() else { return };
    let site = Site::start();
    site.prepare(1);
    let secret = json!({
        "secrets": [{"name": "TOKEN", "value": "canary-page"}],
        "environmentVariables": [{"name": "EPOCHS", "value": "3"}],
        "outputDirectories": [{"id": "MODEL", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar", "pathSuffix": "model"}],
    });
    let command =
        "sh -c 'echo loss=0.5; echo weights > $AZ_BATCHAI_OUTPUT_MODEL/weights.txt; echo no such data >&2; exit 3'";
    site.submit_with("broken", 1, json!({"customToolkitSettings": {"commandLine": command}}), secret);
    site.wait_for_end("broken");
    open(&browser, &site, "broken");
    browser.wait(&format!("{LINES}.includes('no such data')"));
    browser.wait_text("#logs [aria-pressed=true]", "stderr");
    // Curves come before the details, and the log is the first of these.
    let order = "document.querySelector('#plots').compareDocumentPosition(document.querySelector('#logs')) & Node.DOCUMENT_POSITION_FOLLOWING";
    assert_ne!(browser.value(order), 0);
    assert_eq!(browser.text(".tabbed [aria-selected=true]"), "Log");

    // What it wrote is listed first, and its folder is on the share.
    browser.wait_text("#files", "weights.txt");
    browser.click("#files header a");
    browser.wait_text("h1", "model");
    browser.wait_text("main", "weights.txt");
    assert!(browser.url().contains("/ui/shares/mystorageaccount/myshare/cifar/"), "{}", browser.url());
    browser.command("back", json!({}));
    browser.wait_text("#files", "weights.txt");
    browser.click("#files .tabs button:nth-child(2)");
    browser.wait_text("#files", "stderr.txt");

    // The job's file, without the value of the secret. The address leads to it.
    browser.click("#tab-source");
    browser.wait_text("#source pre", "EPOCHS");
    assert!(browser.url().ends_with("/broken?tab=source"), "{}", browser.url());
    browser.go(&browser.url());
    browser.wait_text("#source pre", "\"commandLine\"");
    assert!(!browser.value("document.documentElement.outerHTML").to_string().contains("canary-page"));
    browser.value("document.querySelector('#tab-source').focus()");
    browser.press(keys::HOME);
    browser.wait_text(".tabbed [aria-selected=true]", "Log");
    browser.end();
}

#[test]
fn a_log_is_filtered_by_rank_and_wrapped() {
    let Some(browser) = browser() else { return };
    let site = Site::start();
    site.prepare(2);
    let long = "echo $(printf 'word%.0s ' $(seq 120)) end of rank $RANK";
    let command = format!("for i in 1 2 3; do echo step $i of rank $RANK; done; {long}");
    site.submit_with(
        "ranks",
        2,
        json!({"customMpiSettings": {"commandLine": command}}),
        json!({"prefixOutputWithRank": true}),
    );
    site.wait_for_end("ranks");
    wait_for("both ranks' lines", || site.log("ranks", "stdout.txt").matches("end of rank").count() == 2);
    open(&browser, &site, "ranks");
    browser.wait(&format!("{LINES}.length === 8"));

    browser.value(
        "(() => { const list = document.querySelector('#logs [aria-label=Rank]'); list.value = '1'; list.dispatchEvent(new Event('change')); })()",
    );
    browser.wait(&format!("{LINES}.length === 4 && {LINES}.every((line) => line.startsWith('[1] '))"));
    // The search finds only what is shown.
    browser.write("#logs input[type=search]", &format!("of rank 0{}", keys::ENTER));
    browser.wait_text("#logs .log-status", "Not found");

    // A wrapped line takes several rows, none wider than the view.
    browser.eval(
        "[...document.querySelectorAll('#logs .log-tools button')].find((one) => one.textContent === 'Wrap').click()",
    );
    browser.wait(&format!("{LINES}.length > 5 && {LINES}.at(-1).endsWith('end of rank 1')"));
    let text = browser.value(&format!("{LINES}.slice(3).join('')"));
    assert!(text.as_str().is_some_and(|text| text.starts_with("[1] word word") && text.matches("word").count() == 120));
    assert_eq!(
        browser.value(
            "(() => { const v = document.querySelector('#logs .view'); return v.scrollWidth <= v.clientWidth; })()"
        ),
        true
    );
    // The choice is remembered.
    browser.go(&browser.url());
    browser.wait(&format!("{LINES}.length > 9"));
    browser.end();
}
