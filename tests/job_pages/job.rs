//! The page of a job: it updates by itself, its log grows and is searched, log content stays text, and the actions on a job
//! work by clicking.

use serde_json::json;

use crate::harness::browser::{Browser, keys};
use crate::harness::logs::wait_at;
use crate::harness::{Site, wait_for};

fn page(job: &str) -> String {
    format!("/ui/jobs/batchai.horovod:batchaidev/cifar/{job}")
}

fn submit(site: &Site, name: &str, nodes: usize, command: &str) {
    site.submit_with(name, nodes, json!({"customMpiSettings": {"commandLine": command}}), json!({}));
}

/// A job may end between two polls of its processes; a browser logs every refusal to its console.
pub fn browser() -> Option<Browser> {
    Some(Browser::start()?.allow_console_errors("/processes"))
}

/// The lines of the log that are in the document.
const LINES: &str = "[...document.querySelectorAll('#logs .line')].map((line) => line.textContent)";

#[test]
fn a_job_is_watched_from_the_queue_to_its_end() {
    let Some(browser) = browser() else { return };
    let site = Site::start();
    site.prepare(2);
    submit(&site, "holder", 2, &wait_at("begin"));
    let attack =
        r#"printf '\033[31mred\033[0m <img src=x onerror="document.title=1"><script>document.title=2</script>\n'"#;
    let command = format!(
        "echo rank $RANK begins; {attack}; printf '10 percent\\r99 percent\\n'; {}; echo after the gate; {}; echo the last line",
        wait_at("go"),
        wait_at("finish")
    );
    submit(&site, "watched", 2, &command);
    browser.open(&site, &page("watched"));

    // The reason for waiting, in the words of `job why`.
    browser.wait_text(".why", "The job \"watched\" waits: ");
    browser.wait_text(".why", "Possible fixes");
    assert_eq!(browser.text(".stages [aria-current] .state"), "queued");
    site.open_gate("begin");
    browser.wait("document.querySelector('.head .state').textContent === 'running'");
    browser.wait_text(".why", "runs on 2 nodes of cluster nc6cluster");
    browser.wait("document.querySelectorAll('#ranks .rows .row').length === 2");

    // The log appears, and its content is text.
    browser.wait(&format!("{LINES}.includes('rank 1 begins')"));
    browser.wait(&format!("{LINES}.includes('99 percent')"));
    browser.wait(&format!("{LINES}.some((line) => line.startsWith('red <img src=x onerror='))"));
    assert_eq!(browser.value("document.querySelector('#logs .line .fg1').textContent"), "red");
    assert_eq!(browser.value("document.querySelectorAll('#logs .view img, #logs .view script').length"), 0);
    assert_eq!(browser.value("document.title"), "watched · Corro");
    site.open_gate("go");
    browser.wait(&format!("{LINES}.includes('after the gate')"));

    // It is searched from the keyboard alone.
    browser.write("#logs input[type=search]", &format!("RANK 0{}", keys::ENTER));
    browser.wait("document.querySelector('#logs .line[data-found]')?.textContent === 'rank 0 begins'");
    assert_eq!(browser.value("document.querySelector('#logs .line[data-found] mark').textContent"), "rank 0");
    browser.write("#logs input[type=search]", &format!(" nowhere{}", keys::ENTER));
    browser.wait_text("#logs .log-status", "Not found");

    // The end arrives without a reload, with the last line and the reason.
    site.open_gate("finish");
    browser.wait("document.querySelector('.head .state').textContent === 'succeeded'");
    browser.click("#logs .log-tools button:last-child");
    browser.wait(&format!("{LINES}.at(-1) === 'the last line'"));
    browser.wait_text(".why", "all its processes ended with exit code 0");
    browser.wait("document.querySelectorAll('.steps li').length === 3");
    browser.click("#tab-ranks");
    browser.wait_text("#ranks", "exit code 0");
    assert_eq!(browser.value("document.querySelector('#terminate').hidden"), true);

    // Its files can be downloaded.
    browser.wait_text("#files", "stdout.txt");
    let href = browser
        .value("[...document.querySelectorAll('#files a[download]')].find((a) => a.download === 'stdout.txt').href");
    let content = browser.await_promise(&format!("fetch({href}).then((answer) => answer.text())"));
    assert_eq!(content.as_str().expect("text"), site.log("watched", "stdout.txt"));
    browser.end();
}

#[test]
fn a_job_is_terminated_and_cloned_by_clicking() {
    let Some(browser) = browser() else { return };
    let site = Site::start();
    site.prepare(1);
    let secret = json!({"secrets": [{"name": "TOKEN", "value": "canary-clone"}]});
    let settings = json!({"customToolkitSettings": {"commandLine": format!("echo says $TOKEN-end --dir /tmp/results; {}", wait_at("never"))}});
    site.submit_with("first", 1, settings, secret);
    site.wait_for_state("first", &["running"]);
    browser.open(&site, &page("first"));

    // A confirmation first; declining it changes nothing.
    browser.click("#terminate");
    browser.wait_text("dialog", "Terminate first?");
    browser.press(keys::ESCAPE);
    browser.wait("!document.querySelector('dialog')");
    browser.click("#terminate");
    browser.click("dialog button.danger");
    browser.wait("document.querySelector('.head .state').textContent === 'failed'");
    browser.wait_text(".why", "terminated by the user");

    // The clone is the same job under a new name; secrets are never sent to the page, account keys are looked up.
    browser.click("#clone");
    browser.wait("document.querySelector('dialog textarea')");
    assert!(!browser.value("document.documentElement.outerHTML").to_string().contains("canary-clone"));
    browser.click("dialog button[type=submit]");
    browser.wait_text("dialog .bad", "The secret TOKEN has no value");
    browser.value(
        "(() => { const box = document.querySelector('dialog textarea'); \
         box.value = box.value.replace('\"value\": \"\"', '\"value\": \"again\"'); })()",
    );
    // Both would write to the directory of the first, unless changed.
    browser.wait_text("dialog .shared-directory", "--dir /tmp/results is the directory of first");
    browser.click("dialog .shared-directory button");
    browser.wait_text("dialog .shared-directory", "--dir is now /tmp/results-first-2.");
    browser.click("dialog button[type=submit]");
    browser.wait("location.pathname.endsWith('/first-2')");
    browser.wait("document.querySelector('.head .state')?.textContent === 'running'");
    wait_for("the clone's output", || site.log("first-2", "stdout.txt").contains("says "));
    let command = |job: &str| site.job(job)["customToolkitSettings"]["commandLine"].as_str().expect("text").to_owned();
    assert_eq!(command("first-2"), command("first").replace("/tmp/results", "/tmp/results-first-2"));

    // An existing name and an invalid file are reported in the dialog.
    browser.click("#clone");
    browser.wait("document.querySelector('dialog input')?.value === 'first-3'");
    browser.value("(() => { document.querySelector('dialog textarea').value = '{'; })()");
    browser.click("dialog button[type=submit]");
    browser.wait_text("dialog .bad", "This is not JSON");
    browser.end();
}
