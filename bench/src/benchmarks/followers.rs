//! Delay of each log line at 1,000 followers, against nginx; and the cost of 100 open event streams.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use corro_client::Client;
use corro_model::storage::sas::{Resource, link_query};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::{Scale, Verdict};
use crate::api::Api;
use crate::fixture::{ACCOUNT, SHARE, make_resources};
use crate::http::Response;
use crate::machine::processor_seconds;
use crate::peers::nginx::Nginx;
use crate::site::Site;
use crate::stats::{Samples, print_heading};

pub const PROMISE: &str = "1,000 followers of one log: p99 delay under 100 ms, no byte lost";
const FOLLOWERS: usize = 1_000;
const LIMIT_MS: f64 = 100.0;
/// Poll interval of one follower at the end of the log.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Interval between two lines of the log.
const LINE_INTERVAL: Duration = Duration::from_millis(100);
const STREAMS: usize = 100;
const LOG: &str = "stdout.txt";

pub fn run(scale: Scale) -> Result<Verdict> {
    let lines = scale.pick(50, 300);
    let mut site = Site::new()?;
    site.up_with(&["--rate", "1000000"])?;
    make_resources(&site, 0)?;
    let api = Api::connect(&site)?;
    let share = site.data().join("shares").join(ACCOUNT).join(SHARE);
    let log = share.join(LOG);
    let key = STANDARD.decode(api.account_key()?).context("the account key is not base64")?;
    let until = SystemTime::UNIX_EPOCH.elapsed()?.as_secs() as i64 + 3600;
    let query = link_query(Resource::File, "rl", &key, (ACCOUNT, SHARE, LOG), until, "")?;
    let server = site.profile()?.server;
    let address = server.trim_start_matches("http://").to_owned();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let nginx = Nginx::start(site.path(), &share)?;

    let pid = site.server_pid()?;
    let server_processor_time = || processor_seconds(pid);
    let (corro_delays, corro_cpu) = measure(&server_processor_time, || {
        runtime.block_on(follow(&address, &format!("/{ACCOUNT}/{SHARE}/{LOG}?{query}"), &log, lines))
    })?;
    let nginx_processor_time = || nginx.processor_seconds();
    let (nginx_delays, nginx_cpu) = measure(&nginx_processor_time, || {
        runtime.block_on(follow(&nginx.address, &format!("/files/{LOG}"), &log, lines))
    })?;
    let client = Client::new(&site.profile()?)?;
    let seconds = scale.pick(5, 20);
    let (event_delays, streams_cpu) =
        measure(&server_processor_time, || runtime.block_on(stream_events(&site, &client, seconds)))?;
    // Baseline: the commands that cause the events load the server, too.
    let (_, alone_cpu) = measure(&server_processor_time, || {
        (0..seconds).try_for_each(|number| update_tag(&site, number)).map(|()| Samples::new("", ""))
    })?;

    print_heading();
    let corro_delays = Samples::from_values("corro, delay of a line", "ms", corro_delays.0);
    let nginx_delays = Samples::from_values(format!("nginx {}, delay of a line", nginx.version), "ms", nginx_delays.0);
    [&corro_delays, &nginx_delays, &event_delays].into_iter().for_each(Samples::print_row);
    let rate = |(cpu, wall): (f64, f64)| 100.0 * cpu / wall;
    println!("\nprocessor for {FOLLOWERS} followers: corro {:.0} %, nginx {:.0} %", rate(corro_cpu), rate(nginx_cpu));
    println!(
        "processor for {STREAMS} open streams of events: {:.1} %; without them {:.1} %",
        rate(streams_cpu),
        rate(alone_cpu)
    );
    let figures = format!(
        "p99 delay {:.1} ms over {FOLLOWERS} followers and {lines} lines, every byte of them (nginx {:.1} ms; goal: under {LIMIT_MS} ms); {STREAMS} event streams {:.1} % of a core, an event in {:.1} ms (p99)",
        corro_delays.p99(),
        nginx_delays.p99(),
        rate(streams_cpu),
        event_delays.p99()
    );
    Ok(Verdict { met: corro_delays.p99() < LIMIT_MS, figures })
}

/// Delays of all lines at all followers, in milliseconds.
struct DelaysMs(Vec<f64>);

/// Calls `run`; returns its result, and the CPU and wall seconds meanwhile.
fn measure<T>(cpu: &dyn Fn() -> Result<f64>, run: impl FnOnce() -> Result<T>) -> Result<(T, (f64, f64))> {
    let (before, began) = (cpu()?, Instant::now());
    let result = run()?;
    Ok((result, (cpu()? - before, began.elapsed().as_secs_f64())))
}

/// Writes a log of so many lines while all followers read it; fails when one of them lacks a byte.
async fn follow(address: &str, target: &str, log: &Path, lines: usize) -> Result<DelaysMs> {
    std::fs::write(log, "")?;
    let (ready, mut all_ready) = watch::channel(0);
    let followers: Vec<_> = (0..FOLLOWERS)
        .map(|_| {
            let (address, target, ready) = (address.to_owned(), target.to_owned(), ready.clone());
            tokio::spawn(async move { follower(&address, &target, lines, &ready).await })
        })
        .collect();
    all_ready.wait_for(|ready| *ready == FOLLOWERS).await?;
    let mut file = OpenOptions::new().append(true).open(log)?;
    let mut interval = tokio::time::interval(LINE_INTERVAL);
    for number in 0..lines {
        interval.tick().await;
        let line = format!("{number} {} {}\n", unix_nanos(), "x".repeat(80));
        file.write_all(line.as_bytes())?;
    }
    let mut delays = Vec::with_capacity(FOLLOWERS * lines);
    for follower in followers {
        delays.extend(follower.await??);
    }
    let length = std::fs::metadata(log)?.len();
    ensure!(delays.len() == FOLLOWERS * lines && length > 0, "a follower has not read every line");
    Ok(DelaysMs(delays))
}

/// Follows the log: reads from its offset to the end, again and again, until it has every line.
async fn follower(address: &str, target: &str, lines: usize, ready: &watch::Sender<usize>) -> Result<Vec<f64>> {
    let mut stream = BufReader::new(TcpStream::connect(address).await.context("cannot connect")?);
    stream.get_ref().set_nodelay(true)?;
    ready.send_modify(|ready| *ready += 1);
    let (mut offset, mut text, mut delays) = (0, Vec::new(), Vec::with_capacity(lines));
    while delays.len() < lines {
        let chunk = read_from(&mut stream, address, target, offset).await?;
        let now = unix_nanos();
        offset += chunk.len() as u64;
        text.extend_from_slice(&chunk);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            let line = String::from_utf8(line)?;
            let mut words = line.split(' ');
            let number: usize = words.next().context("a line without a number")?.parse()?;
            ensure!(number == delays.len(), "read line {number} instead of {}", delays.len());
            let written: u128 = words.next().context("a line without a time")?.parse()?;
            ensure!(words.next() == Some(&*("x".repeat(80) + "\n")), "a line was changed: {line:?}");
            delays.push(now.saturating_sub(written) as f64 / 1e6);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(delays)
}

/// Reads from an offset to the end of the file; empty at the end.
async fn read_from(stream: &mut BufReader<TcpStream>, host: &str, target: &str, offset: u64) -> Result<Vec<u8>> {
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nRange: bytes={offset}-\r\n\r\n");
    stream.get_mut().write_all(request.as_bytes()).await?;
    let Response { status, body } = Response::read(stream).await?;
    match status {
        206 => Ok(body),
        // An empty file is sent whole; beyond the end there is nothing.
        200 if offset == 0 => Ok(body),
        416 => Ok(Vec::new()),
        other => bail!("status {other}: {}", String::from_utf8_lossy(&body)),
    }
}

/// Delay of an event at each of the open streams.
async fn stream_events(site: &Site, client: &Client, seconds: u64) -> Result<Samples> {
    let (ready, mut all_ready) = watch::channel(0);
    let streams: Vec<_> = (0..STREAMS)
        .map(|_| {
            let (mut events, ready) = (client.events(None, true), ready.clone());
            tokio::spawn(async move {
                events.next().await?;
                ready.send_modify(|ready| *ready += 1);
                let mut delays = Vec::new();
                while delays.len() < seconds as usize {
                    let event = events.next().await?.context("the stream ended")?;
                    delays.push(unix_nanos() as f64 / 1e6 - event.time.millis() as f64);
                }
                anyhow::Ok(delays)
            })
        })
        .collect();
    all_ready.wait_for(|ready| *ready == STREAMS).await?;
    for number in 0..seconds {
        tokio::task::block_in_place(|| update_tag(site, number))?;
    }
    let mut delays = Vec::new();
    for stream in streams {
        delays.extend(stream.await??);
    }
    Ok(Samples::from_values("corro, delay of an event", "ms", delays))
}

/// Causes one event: changes a tag of the group, about once a second.
fn update_tag(site: &Site, number: u64) -> Result<()> {
    let began = Instant::now();
    let tag = SystemTime::UNIX_EPOCH.elapsed()?.as_millis();
    site.corro(&format!("group update -n {} --set tags.beat={tag}-{number}", crate::fixture::GROUP))?;
    std::thread::park_timeout(Duration::from_secs(1).saturating_sub(began.elapsed()));
    Ok(())
}

fn unix_nanos() -> u128 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos())
}
