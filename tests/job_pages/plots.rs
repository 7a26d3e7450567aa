//! Curves: they appear by themselves, grow while the job runs, announce their values to keyboard users, and can be downloaded.

use serde_json::json;

use crate::harness::Site;
use crate::harness::browser::{Browser, keys};
use crate::harness::logs::wait_at;
use crate::job::browser as open_browser;

fn lines(from: usize, to: usize) -> String {
    format!("for i in $(seq {from} {to}); do echo \"step $i loss=0.$((900 - i)) accuracy=0.$((100 + i))\"; done")
}

/// Content that the button saves: its type, and its text or first bytes.
fn saved(browser: &Browser, button: &str) -> (String, String) {
    let saved = browser.await_promise(&format!(
        "(async () => {{ const make = URL.createObjectURL; \
         const blob = new Promise((found) => {{ URL.createObjectURL = (one) => {{ \
             if (one.type !== 'image/svg+xml') found(one); return make(one); }}; }}); \
         [...document.querySelectorAll('#plots .chart:first-child figcaption button')].find((b) => b.textContent === {}).click(); \
         const one = await blob; URL.createObjectURL = make; return [one.type, (await one.text()).slice(0, 40)]; }})()",
        json!(button)
    ));
    (saved[0].as_str().expect("a type").to_owned(), saved[1].as_str().expect("text").to_owned())
}

#[test]
fn curves_appear_grow_and_are_saved() {
    let Some(browser) = open_browser() else { return };
    let site = Site::start();
    site.prepare(1);
    let command = format!("{}; {}; {}; {}", lines(1, 20), wait_at("go"), lines(21, 60), wait_at("finish"));
    site.submit_custom("curves", 1, &command);
    browser.open(&site, "/ui/jobs/batchai.horovod:batchaidev/cifar/curves");
    browser.wait_text("#plots .chart:first-child h3", "loss");
    browser.wait_text("#plots .chart:nth-child(2) h3", "accuracy");
    let drawn = "document.querySelector('#plots .chart:first-child path').getAttribute('d').split('L').length";
    browser.wait(&format!("{drawn} === 20"));
    site.open_gate("go");
    browser.wait(&format!("{drawn} === 60"));
    browser.wait_text("#plots .chart:first-child .last", "0.8400");

    // The arrow keys move along the curve.
    browser.value("document.querySelector('#plots .chart:first-child svg').focus()");
    browser.press(keys::END);
    browser.wait_text("#plots .chart:first-child .values", "step 60");
    browser.press(keys::LEFT);
    browser.wait_text("#plots .chart:first-child .values", "step 59");
    browser.wait_text("#plots .chart:first-child .values", "0.8410");
    browser.press(keys::ESCAPE);
    browser.wait("document.querySelector('#plots .chart:first-child .values').hidden");

    let (kind, text) = saved(&browser, "CSV");
    assert_eq!((kind.as_str(), text.starts_with("series,step,value\nloss,1,0.899\n")), ("text/csv", true), "{text}");
    let (kind, bytes) = saved(&browser, "PNG");
    assert!(kind == "image/png" && bytes.contains("PNG"), "{kind} {bytes}");

    // Another axis, another scale, fewer curves.
    browser.click("#plots .tabs button:nth-child(2)");
    browser.wait("document.querySelector('#plots .tabs [aria-pressed=true]').textContent === 'Time'");
    browser.click("#plots .chart:first-child figcaption button");
    browser.write("#plots input[type=search]", "acc");
    browser.wait("document.querySelectorAll('#plots .chart').length === 1");
    site.open_gate("finish");
    browser.wait("document.querySelector('.head .state').textContent === 'succeeded'");
    browser.end();
}
