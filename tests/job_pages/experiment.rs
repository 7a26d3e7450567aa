//! The page of an experiment: jobs side by side, sorted by clicking, updated live.

use crate::harness::Site;
use crate::job::browser;

#[test]
fn jobs_stand_side_by_side() {
    let Some(browser) = browser() else { return };
    let site = Site::start();
    site.prepare(1);
    for (name, command) in [
        ("a-good", "for i in 1 2 3; do echo step $i loss=0.$((9 - i)); done"),
        ("b-bad", "for i in 5 3 7; do n=$((n + 1)); echo step $n loss=0.$i; done; exit 3"),
    ] {
        site.submit_custom(name, 1, command);
        site.wait_for_end(name);
    }
    browser.open(&site, "/ui/experiments/batchai.horovod:batchaidev/cifar");
    browser.wait_text("h1", "cifar");
    let names = "[...document.querySelectorAll('#results .name')].map((name) => name.textContent).join()";
    // The newest is first; a click on a title sorts.
    browser.wait(&format!("{names} === 'b-bad,a-good'"));
    // The last and the best of each metric; the curves are overlaid.
    let figures = "[...document.querySelectorAll('#results .rows .row')].map((row) => \
        [...row.children].slice(4, 6).map((cell) => cell.textContent)).join()";
    browser.wait(&format!("{figures} === '0.7000,0.3000,0.6000,0.6000'"));
    browser.wait("document.querySelectorAll('#plots .chart:first-child path').length === 2");
    browser.click("#results .titles [role=columnheader]:nth-child(3) button");
    browser.wait(&format!("{names} === 'a-good,b-bad'"));
    assert_eq!(browser.value("document.querySelectorAll('#results .rows input:checked').length"), 2);
    browser.click("#results .rows input");
    browser.wait("document.querySelectorAll('#results .rows input:checked').length === 1");

    // A new job appears by itself, and its name links to its page.
    site.submit_custom("c-new", 1, "true");
    browser.wait(&format!("{names} === 'a-good,b-bad,c-new'"));
    browser.wait("document.querySelectorAll('#results .state')[2].textContent === 'succeeded'");
    browser.click("#results .name");
    browser.wait("location.pathname.endsWith('/jobs/batchai.horovod:batchaidev/cifar/a-good')");
    browser.wait_text(".why", "is done");
    browser.end();
}
