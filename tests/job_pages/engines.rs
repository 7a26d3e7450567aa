//! Engine status on the page of a job: one row per rank, the slow rank is marked, and a timeline is recorded, shown and
//! downloaded.

use super::job::browser;
use crate::harness::Site;
use crate::harness::collective::run_rank;

#[test]
#[ignore = "runs as a rank of the job below"]
fn rank_process() {
    run_rank();
}

#[test]
fn ranks_are_watched_and_recorded() {
    let Some(browser) = browser() else { return };
    let site = Site::start();
    site.prepare(2);
    site.submit_collective("ranks", "engines::rank_process");
    site.wait_for_state("ranks", &["running"]);
    browser.open(&site, "/ui/jobs/batchai.horovod:batchaidev/cifar/ranks");

    browser.wait("document.querySelectorAll('#engines .rows .row').length === 4");
    browser.click("#tab-engine");
    let marked = "[...document.querySelectorAll('#engines .rows .row')].filter((row) => !row.querySelector('.straggler').hidden)";
    browser.wait(&format!("{marked}.map((row) => row.querySelector('.rank').textContent).join() === '2'"));
    browser.wait_text("#engines", "the others wait for rank 2");
    browser.wait("/allreduce (gradient|over)/.test(document.querySelector('#engines .rows .mono').textContent)");
    let step = "Number([...document.querySelector('#engines .rows .row').children][1].textContent.replace(/\\D/g, ''))";
    let before = browser.value(step);
    browser.wait(&format!("{step} > {before}"));

    // Recorded by a button, drawn for every rank; hovering shows names and times.
    browser.click("#record");
    browser.wait("document.querySelector('#record').disabled");
    browser.wait("document.querySelectorAll('#engines .lanes g').length === 4");
    browser
        .wait("[...document.querySelectorAll('#engines .works')].every((path) => path.getAttribute('d').length > 20)");
    browser.wait_text("#engines .timeline", "4 ranks · 5 s");
    browser.value("(() => { const svg = document.querySelector('#engines .timeline svg'); const box = svg.getBoundingClientRect(); \
        for (let x = 70; x < box.width && document.querySelector('#engines .timeline .values').hidden; x += 2) svg.dispatchEvent(new \
        PointerEvent('pointermove', { clientX: box.left + x, clientY: box.top + 10, bubbles: true })); return 1; })()");
    browser.wait("/^rank 0, .* ms/.test(document.querySelector('#engines .timeline .values').textContent)");
    browser.wait("document.querySelector('#record').disabled === false");

    // The API returns the trace to every reader of the job.
    site.open_gate("go");
    browser.wait("document.querySelector('.head .state').textContent === 'succeeded'");
    browser.wait(
        "document.querySelector('#record').hidden && document.querySelector('#engines .timeline').offsetHeight > 0",
    );
    browser.end();
}
