//! The dashboard: bytes of a first visit, first paint in a real browser, and the server's cost of 100 open pages.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use corro_client::Client;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Scale, Verdict};
use crate::api::Api;
use crate::fixture::{ACCOUNT, CLUSTER, EXPERIMENT, GROUP, IN_WORKSPACE, WORKSPACE, job_json, make_resources};
use crate::machine::processor_seconds;
use crate::page_client::{Page, PageClient};
use crate::site::{DEADLINE, Site};
use crate::stats::{Samples, print_heading};
use crate::webdriver::{self, Driver};

pub const PROMISE: &str = "a page weighs under 200 kB and is first painted within 200 ms (p99) on loopback";
const LIMIT_KB: f64 = 200.0;
const LIMIT_MS: f64 = 200.0;
const PAGES: usize = 100;
/// A job that keeps running and prints a metric per second.
const JOB: &str = "stays";
/// Ended jobs, for the table of runs.
const RUNS: usize = 8;

pub fn run(scale: Scale) -> Result<Verdict> {
    ensure!(
        webdriver::is_there(),
        "chromium and chromedriver are needed (Debian's packages chromium and chromium-driver)"
    );
    let mut site = Site::new()?;
    site.up_with(&["--rate", "1000000", "--no-containers"])?;
    make_resources(&site, 2)?;
    let api = Api::connect(&site)?;
    api.wait_for_idle_nodes(2)?;
    submit(&site, &api)?;
    let id = format!(
        "/subscriptions/{}/resourceGroups/{GROUP}/providers/Microsoft.BatchAI/workspaces/{WORKSPACE}/experiments/{EXPERIMENT}/jobs/{JOB}",
        api.subscription()
    );
    let visits = measure_visits(&site, scale.pick(4, 40))?;
    let seconds = scale.pick(6, 30);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let client = Client::new(&site.profile()?)?;
    let overview = Page::Overview { subscription: api.subscription().to_owned() };
    let idle = server_cpu_percent(&site, seconds)?;
    let (quiet, quiet_requests) = runtime.block_on(open_pages(&site, &client, &overview, seconds))?;
    let (busy, busy_requests) = runtime.block_on(open_pages(&site, &client, &Page::Job { id }, seconds))?;

    print_heading();
    for page in &visits {
        [&page.paint, &page.content].into_iter().for_each(Samples::print_row);
        println!("{:<44}{:>35.1}  kB", format!("{}, first visit", page.name), page.kilobytes);
    }
    println!("\nprocessor of the server, in % of a core: {idle:.1} without pages");
    println!("  {PAGES} overviews {quiet:.1} ({quiet_requests:.0} requests/s, two events a second)");
    println!("  {PAGES} pages of a running job {busy:.1} ({busy_requests:.0} requests/s)");
    let heaviest = visits.iter().map(|page| page.kilobytes).fold(0.0, f64::max);
    let slowest = visits.iter().map(|page| page.paint.p99()).fold(0.0, f64::max);
    let p50 = visits.iter().map(|page| page.paint.p50()).fold(0.0, f64::max);
    let figures = format!(
        "the heaviest page {heaviest:.0} kB (goal: under {LIMIT_KB:.0}); first paint p50 {p50:.0} ms, p99 {slowest:.0} ms of the slowest page (goal: under {LIMIT_MS:.0}); server for {PAGES} open overviews {quiet:.1} % of a core, for {PAGES} pages of a running job {busy:.1} %, idle {idle:.1} %"
    );
    Ok(Verdict { met: heaviest < LIMIT_KB && slowest < LIMIT_MS, figures })
}

/// Submits the runs, one after another on one node, and the job that stays on the other.
fn submit(site: &Site, api: &Api) -> Result<()> {
    let submit = |name: &str, line: &str| {
        let mut job = job_json(json!({"customToolkitSettings": {"commandLine": line}}));
        job["properties"]["nodeCount"] = json!(1);
        std::fs::write(site.path().join("job.json"), job.to_string())?;
        site.corro(&format!(
            "batchai job create {IN_WORKSPACE} -e {EXPERIMENT} -c {CLUSTER} -n {name} -f job.json --storage-account-name {ACCOUNT}"
        ))
    };
    submit(JOB, "i=0; while :; do i=$((i+1)); echo step=$i loss=0.$i; sleep 1; done")?;
    let runs: Vec<String> = (1..=RUNS).map(|n| format!("run-{n}")).collect();
    for (n, name) in runs.iter().enumerate() {
        submit(name, &format!("for i in 1 2 3; do echo step=$i loss=0.$i accuracy=0.{n}$i; done # --lr 0.{n}"))?;
    }
    runs.iter().try_for_each(|name| api.wait_for_success(name))
}

/// Measurements of one page.
struct PageVisits {
    name: &'static str,
    paint: Samples,
    content: Samples,
    kilobytes: f64,
}

/// Visits each page `times` times with an empty browser cache.
fn measure_visits(site: &Site, times: usize) -> Result<Vec<PageVisits>> {
    let output = site.command().arg("dashboard").output()?;
    let link = String::from_utf8(output.stdout)?.trim().to_owned();
    let (root, token) = link.split_once('#').context("corro dashboard prints a link with a token")?;
    let dir = tempfile::Builder::new().prefix("corro-bench-browser-").tempdir()?;
    let driver =
        Driver::start(dir.path(), 1280, 1000).map_err(|error| anyhow!("the browser does not start: {error}"))?;
    let send = |command: &str, body: Value| {
        driver.ask("POST", command, &body).map_err(|error| anyhow!("{command}: {}", error["message"]))
    };
    let evaluate = |script: &str| send("execute/sync", json!({"script": script, "args": []}));
    send("goog/cdp/execute", json!({"cmd": "Network.enable", "params": {}}))?;
    send("goog/cdp/execute", json!({"cmd": "Network.setCacheDisabled", "params": {"cacheDisabled": true}}))?;
    // The first page after the browser's start is not counted.
    send("url", json!({"url": format!("{root}#{token}")}))?;
    wait_for_value(|| evaluate(TRANSFERRED_BYTES))?;
    send("url", json!({"url": "about:blank"}))?;
    let workspace = format!("{GROUP}:{WORKSPACE}");
    let job = format!("jobs/{workspace}/{EXPERIMENT}/{JOB}");
    let (node, _) = site.agents().into_iter().next().context("there is no node")?;
    let pages = [
        ("overview", String::new()),
        ("cluster", format!("clusters/{workspace}/{CLUSTER}")),
        ("jobs", "jobs".to_owned()),
        ("job", job.clone()),
        ("job, ranks", format!("{job}?tab=ranks")),
        ("job, resources", format!("{job}?tab=resources")),
        ("job, job.json", format!("{job}?tab=source")),
        ("runs of an experiment", format!("experiments/{workspace}/{EXPERIMENT}")),
        ("submit", "submit".to_owned()),
        ("nodes", "nodes".to_owned()),
        ("node", format!("nodes/{workspace}/{CLUSTER}/{node}")),
        ("shares", "shares".to_owned()),
        ("usage", "usage".to_owned()),
    ];
    let mut visits = Vec::new();
    for (name, path) in pages {
        let mut paint = Samples::new(format!("{name}, first paint"), "ms");
        let mut content = Samples::new(format!("{name}, first content"), "ms");
        let mut bytes = 0.0_f64;
        for _ in 0..times {
            send("url", json!({"url": format!("{root}{path}#{token}")}))?;
            let times = wait_for_value(|| evaluate(PAINT_TIMES))?;
            let time = |at: usize| times[at].as_f64().context("a paint time is not a number");
            paint.add(time(0)?);
            content.add(time(1)?);
            bytes = bytes.max(
                wait_for_value(|| evaluate(TRANSFERRED_BYTES))?.as_f64().context("the byte count is not a number")?,
            );
            send("url", json!({"url": "about:blank"}))?;
        }
        visits.push(PageVisits { name, paint, content, kilobytes: bytes / 1000.0 });
    }
    Ok(visits)
}

/// Time of the first paint and of the first content; empty before that.
const PAINT_TIMES: &str = "const at = (name) => performance.getEntriesByName(name)[0]?.startTime;
    const times = [at('first-paint'), at('first-contentful-paint')];
    return times.every((time) => time !== undefined) ? times : null";

/// Bytes transferred, headers included, once the page is complete and idle.
const TRANSFERRED_BYTES: &str =
    "const all = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
    const last = Math.max(...all.map((one) => one.responseEnd));
    const shown = document.querySelector('main')?.innerText.trim();
    return shown && performance.now() - last > 300 ? all.reduce((sum, one) => sum + one.transferSize, 0) : null";

fn wait_for_value(evaluate: impl Fn() -> Result<Value>) -> Result<Value> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let value = evaluate()?;
        if !value.is_null() {
            return Ok(value);
        }
        if Instant::now() > deadline {
            bail!("a page was not loaded within {} s", DEADLINE.as_secs());
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// CPU use of the server, over so many seconds, in percent of a core.
fn server_cpu_percent(site: &Site, seconds: u64) -> Result<f64> {
    let (pid, began) = (site.server_pid()?, Instant::now());
    let before = processor_seconds(pid)?;
    std::thread::park_timeout(Duration::from_secs(seconds));
    Ok(100.0 * (processor_seconds(pid)? - before) / began.elapsed().as_secs_f64())
}

/// CPU use of the server with [`PAGES`] open pages and two events per second, and the requests per second of the pages.
async fn open_pages(site: &Site, client: &Client, page: &Page, seconds: u64) -> Result<(f64, f64)> {
    let ((ready, mut all_ready), (stop, stopped)) = (watch::channel(0), watch::channel(false));
    let clients: Vec<_> = (0..PAGES)
        .map(|_| tokio::spawn(PageClient::run(client.clone(), page.clone(), ready.clone(), stopped.clone())))
        .collect();
    let opened = tokio::time::timeout(DEADLINE, all_ready.wait_for(|ready| *ready == PAGES)).await;
    opened.context("not all pages opened")??;
    let (pid, began) = (site.server_pid()?, Instant::now());
    let before = processor_seconds(pid)?;
    while began.elapsed() < Duration::from_secs(seconds) {
        let tag = began.elapsed().as_millis();
        tokio::task::block_in_place(|| site.corro(&format!("group update -n {GROUP} --set tags.beat=b{tag}")))?;
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    let used = 100.0 * (processor_seconds(pid)? - before) / began.elapsed().as_secs_f64();
    stop.send_replace(true);
    let mut requests = 0;
    for client in clients {
        requests += client.await??;
    }
    Ok((used, requests as f64 / began.elapsed().as_secs_f64()))
}
