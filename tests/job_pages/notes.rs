//! Notes, tags and pins of jobs: edited on the job's page, shown in the run table, and fields of the job for the command line.

use serde_json::json;

use crate::harness::{IN_WORKSPACE, Site, wait_for};
use crate::job::browser;

#[test]
fn a_job_is_noted_tagged_and_pinned() {
    let Some(browser) = browser() else { return };
    let mut site = Site::start();
    site.prepare(1);
    for name in ["a-first", "b-second"] {
        site.submit_custom(name, 1, "echo loss=0.5");
        site.wait_for_end(name);
    }
    browser.open(&site, "/ui/jobs/batchai.horovod:batchaidev/cifar/a-first");
    browser.click("#edit-notes");
    browser.write("[name=tags]", "baseline, <b>paper</b>");
    browser.write("[name=note]", "best so far\nwith dropout");
    browser.click(".notes .primary");
    browser.wait("document.querySelector('.notes form').hidden");
    browser.wait_text(".tags", "<b>paper</b>");
    browser.wait_text(".notes .text", "best so far\nwith dropout");
    browser.click(".head .pin");
    browser.wait("document.querySelector('.head .pin').getAttribute('aria-pressed') === 'true'");
    browser.wait_text(".columns .steps", "Notes changed");

    // Fields of the job for every client, also after a restart.
    let annotations =
        json!({"note": "best so far\nwith dropout", "tags": ["baseline", "<b>paper</b>"], "pinned": true});
    wait_for("the annotations", || site.job("a-first")["annotations"] == annotations);
    assert!(site.job("b-second").get("annotations").is_none());
    let address = site.address();
    site.kill_server();
    site.up_at(&address);
    assert_eq!(site.job("a-first")["annotations"], annotations);

    // A mistake is shown at its field.
    browser.go("about:blank");
    browser.open(&site, "/ui/jobs/batchai.horovod:batchaidev/cifar/b-second");
    browser.click("#edit-notes");
    browser.write("[name=tags]", &"x".repeat(65));
    browser.click(".notes .primary");
    browser.wait("document.querySelector('[name=tags]').getAttribute('aria-invalid') === 'true'");
    browser.wait_text("label:has([name=tags]) .field-error", "longer than 64 characters");

    // The run table shows, sorts and finds them.
    browser.go("about:blank");
    browser.open(&site, "/ui/experiments/batchai.horovod:batchaidev/cifar");
    let names = "[...document.querySelectorAll('#results .name')].map((name) => name.textContent).join()";
    browser.wait(&format!("{names} === 'b-second,a-first'"));
    browser.wait_text("#results", "baseline, <b>paper</b>");
    browser.click("#results .titles [role=columnheader]:nth-child(2) button");
    browser.wait(&format!("{names} === 'a-first,b-second'"));
    browser.write("#results input[type=search]", "tag=baseline");
    browser.wait(&format!("{names} === 'a-first'"));
    browser.click("#results .pin");
    wait_for("the pin to be taken away", || site.job("a-first")["annotations"].get("pinned").is_none());
    let history = site.corro(&format!("batchai job show {IN_WORKSPACE} -e cifar -n a-first")).ok().stdout;
    assert!(history.contains("best so far"), "{history}");
    let errors = browser.console_errors();
    assert!(errors.iter().all(|error| error.contains("400") || error.contains("ERR_")), "{errors:#?}");
}
