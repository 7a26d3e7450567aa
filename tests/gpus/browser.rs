//! GPUs on the page of a job and on that of its node.

use crate::harness::browser::Browser;
use crate::harness::logs::wait_at;
use crate::{Readings, gpu, start_with_two_gpus, submit, without};

/// Names of the charts that are drawn, with the number of lines of each.
const CHARTS: &str = "[...document.querySelectorAll('#resources .chart:not([hidden])')].map((chart) => `${chart.querySelector('h3').textContent} \
                      ${chart.querySelectorAll('.curves path').length}`).join()";
/// Text of the table of GPUs, a line for each.
const GPUS: &str = "[...document.querySelectorAll('#gpus .rows .row')].map((row) => [...row.children].map((cell) => cell.textContent).join('|'))";

#[test]
fn gpus_are_shown_on_the_pages_of_a_job_and_its_node() {
    // A job may end between two polls of its processes.
    let Some(browser) = Browser::start().map(|browser| browser.allow_console_errors("/processes")) else { return };
    let readings = Readings::new(&[gpu(0), without(gpu(1), "powerWatts"), gpu(2)]);
    let site = start_with_two_gpus(&readings);
    submit(&site, "trains", &wait_at("go"));
    site.wait_for_state("trains", &["running"]);
    browser.open(&site, "/ui/jobs/batchai.horovod:batchaidev/cifar/trains");
    browser.wait("!document.querySelector('#tab-ranks').hidden");
    browser.click("#tab-ranks");
    browser.wait(&format!("{GPUS}.length === 2"));
    assert_eq!(browser.value(&format!("{GPUS}[0]")), "0|NVIDIA H200|busy|90 %|12.9 GB of 150 GB|612 W|61 °C|0");
    assert_eq!(browser.value(&format!("{GPUS}[1]")), "1|NVIDIA H200|busy|91 %|12.9 GB of 150 GB|–|61 °C|0");
    browser.wait("!document.querySelector('#tab-resources').hidden");
    browser.click("#tab-resources");
    // The power of one GPU is not known.
    browser.wait(&format!("{CHARTS} === 'CPU 1,Memory 1,GPU use 2,GPU memory 2,GPU power 1,GPU temperature 2'"));

    readings.set(&[gpu(0), gpu(2)], &["NVRM: Xid (PCI:0000:11:00): 79, pid=1, name=x, GPU has fallen off the bus."]);
    browser.open(&site, "/ui/nodes");
    browser.click("[aria-label=Nodes] .rows a.mono");
    browser.wait_text("h1", "Node 1");
    browser.wait(&format!("{GPUS}.length === 2 && {GPUS}[1] === '1|NVIDIA H200|lost, Xid 79|–|– of 150 GB|–|–|–'"));
    browser.wait(&format!("{CHARTS} === 'CPU 1,Memory 1,GPU use 2,GPU memory 2,GPU power 1,GPU temperature 2'"));
    site.open_gate("go");
    browser.wait("document.querySelector('.head .state').textContent === 'idle'");
    browser.end();
}
