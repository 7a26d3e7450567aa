//! Notifications of the browser about the end of a job, which are asked for on its page.

use crate::harness::Site;
use crate::harness::logs::wait_at;
use crate::job::browser;

#[test]
fn the_end_of_a_job_is_notified_once() {
    let Some(browser) = browser() else { return };
    let site = Site::start();
    site.prepare(1);
    site.submit_custom("watched", 1, &format!("{}; exit 3", wait_at("go")));
    site.wait_for_state("watched", &["running"]);
    browser.open(&site, "/ui/jobs/batchai.horovod:batchaidev/cifar/watched");
    browser.wait("document.querySelector('#notify')?.hidden === false");
    // In place of the desktop's notifications.
    browser.value(
        "(() => { window.told = []; window.Notification = class { static permission = 'default'; \
         static async requestPermission() { return window.answer; } constructor(title, { body }) { window.told.push(`${title}: ${body}`); } }; })()",
    );
    browser.value("(() => { window.answer = 'denied'; })()");
    browser.click("#notify");
    browser.wait_text("#toasts", "does not allow notifications");
    assert_eq!(browser.value("document.querySelector('#notify').getAttribute('aria-pressed')"), "false");
    browser.value("(() => { window.answer = 'granted'; })()");
    browser.click("#notify");
    browser.wait("document.querySelector('#notify').getAttribute('aria-pressed') === 'true'");

    // The page is left, and another one of the application tells it.
    browser.click(".places a:nth-child(4)");
    browser.wait_text("h1", "Clusters");
    site.open_gate("go");
    browser.wait("window.told.length > 0");
    assert_eq!(browser.value("window.told.join()"), "watched failed: The job watched has failed with exit code 3.");
    assert_eq!(browser.value("localStorage.getItem('corro.notify')"), serde_json::Value::Null);
    browser.end();
}
