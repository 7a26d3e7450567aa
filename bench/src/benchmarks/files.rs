//! File service throughput against nginx on the same files: SDK uploads and downloads, a listing of 10,000 entries, small GETs.
//!
//! nginx serves the directory of the share itself, without signatures. It has no ranged uploads, so each range becomes a file
//! of its own. Engines take turns, and ratios are taken within a round.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use corro_model::Timestamp;

use super::{Scale, Verdict};
use crate::api::Api;
use crate::files::round_rates::RoundRates;
use crate::files::sdk::{OperationTime, Sdk};
use crate::files::{load, requests};
use crate::fixture::{ACCOUNT, GROUP, SHARE};
use crate::goal::{Goal, worst_ratio};
use crate::machine::processor_seconds;
use crate::peers::nginx::Nginx;
use crate::site::Site;
use crate::stats::{Samples, print_heading};
use crate::steps::rounds::print_ratio;

pub const PROMISE: &str =
    "the same requests at least 0.5 times as fast as nginx: small gets over 64 connections, ranges read and written";
const MIN_RATIO: f64 = 0.5;
const CONNECTIONS: usize = 64;
const SMALL_FILES: usize = 100;
const SMALL_BYTES: usize = 1024;
const ENTRIES: usize = 10_000;
/// Rate limit above any load of this benchmark: throttling per account is a separate promise.
const RATE: &str = "4000000";

pub fn run(scale: Scale) -> Result<Verdict> {
    let mut site = Site::new()?;
    site.serve_with(&["--rate", RATE])?;
    site.corro(&format!("group create -n {GROUP} -l eastus"))?;
    site.corro(&format!("storage account create -g {GROUP} -n {ACCOUNT} -l eastus --sku Standard_LRS"))?;
    site.corro(&format!("storage share create -n {SHARE} --account-name {ACCOUNT}"))?;
    let key = Api::connect(&site)?.account_key()?;
    let share = site.data().join("shares").join(ACCOUNT).join(SHARE);
    let nginx = Nginx::start(site.path(), &share)?;
    let corro = site.profile()?.server;
    let sdk = Sdk::new(site.path(), &corro, &format!("http://{}", nginx.address), &key)?;
    println!("peer: nginx {}", nginx.version);
    println!("client: azure-storage-file-share {}\n", sdk.version);
    sdk.run("prepare", [SMALL_FILES, SMALL_BYTES])?;
    std::fs::create_dir(share.join("many"))?;
    for number in 0..ENTRIES {
        std::fs::write(share.join(format!("many/entry-{number:05}")), b"x")?;
    }

    let mut goals = vec![small_gets(scale, &site, &nginx, &key)?];
    goals.extend(transfers(scale, &sdk)?);
    listing(scale, &sdk)?;
    Ok(Verdict {
        met: goals.iter().all(|goal| goal.met),
        figures: goals.iter().map(|goal| goal.figures.as_str()).collect::<Vec<_>>().join("; "),
    })
}

/// Many connections, files of 1 KiB; ours with the account key and with SAS links.
fn small_gets(scale: Scale, site: &Site, nginx: &Nginx, key: &str) -> Result<Goal> {
    let address = site.profile()?.server;
    let address = address.strip_prefix("http://").context("the server does not speak plain HTTP")?;
    let now = SystemTime::now();
    let (date, seconds) = (httpdate::fmt_http_date(now), Timestamp::from(now).seconds());
    let key = STANDARD.decode(key).context("the account's key is not base64")?;
    let paths: Vec<String> = (0..SMALL_FILES).map(|number| format!("small/f{number}")).collect();
    let signed: Vec<_> = paths.iter().map(|path| requests::signed_with_key(address, path, &key, &date)).collect();
    let links =
        paths.iter().map(|path| requests::with_sas_link(address, path, &key, seconds)).collect::<Result<_>>()?;
    let plain = paths.iter().map(|path| requests::unsigned(&nginx.address, &format!("/files/{path}"))).collect();

    let corro_processor_time = || processor_seconds(site.server_pid()?);
    let nginx_processor_time = || nginx.processor_seconds();
    type EngineLoad<'a> = (&'a str, &'a str, &'a Vec<Vec<u8>>, &'a dyn Fn() -> Result<f64>);
    let engines: [EngineLoad<'_>; 3] = [
        ("Corro, signed with the key", address, &signed, &corro_processor_time),
        ("Corro, with a link", address, &links, &corro_processor_time),
        ("nginx", &nginx.address, &plain, &nginx_processor_time),
    ];
    let mut rates = RoundRates::new("requests/s");
    let mut latencies = engines.map(|_| Vec::new());
    let mut processor = engines.map(|(name, ..)| Samples::new(format!("{name}: processor time"), "us a request"));
    let span = scale.pick(Duration::from_millis(800), Duration::from_secs(2));
    // The first round is a warm-up.
    for round in 0..=scale.pick(6, 20) {
        for (idx, (name, address, requests, processor_time)) in engines.iter().enumerate() {
            let before = processor_time()?;
            let load = load::run(address, requests, CONNECTIONS, SMALL_BYTES, span)?;
            let used = processor_time()? - before;
            if round > 0 {
                rates.add(name, load.per_second());
                processor[idx].add(used * 1e6 / load.latencies.len() as f64);
                latencies[idx].extend(load.latencies);
            }
        }
    }
    println!("files of 1 KiB over {CONNECTIONS} connections");
    print_heading();
    rates.print();
    processor.iter().for_each(Samples::print_row);
    for ((name, ..), latencies) in engines.iter().zip(latencies) {
        Samples::from_values(format!("{name}: latency"), "ms", latencies).print_row();
    }
    let [signed, link, peer] = engines.map(|(name, ..)| name);
    print_ratio("Corro, signed, by nginx", &rates.ratios(signed, peer));
    print_ratio("Corro, with a link, by nginx", &rates.ratios(link, peer));
    println!();
    let ours = [signed, link].into_iter();
    let ratios = ours.map(|engine| (rates.ratios(engine, peer).p50(), format!("{engine}, {:.0}/s", rates.p50(engine))));
    Ok(worst_ratio(ratios, MIN_RATIO, "times nginx's small gets"))
}

/// Transfers by the SDK, and the same requests by hand.
fn transfers(scale: Scale, sdk: &Sdk) -> Result<[Goal; 2]> {
    let mebibytes = scale.pick(64, 256);
    let times = sdk.run("transfers", [scale.pick(5, 15), mebibytes])?;
    println!("one file of {mebibytes} MiB, one connection of Python's requests, or of the SDK");
    print_heading();
    let goal = |operation: &str, peer_requests: &str| {
        let rates = rates_of(&times, operation, "MB/s", |seconds| (mebibytes << 20) as f64 / 1e6 / seconds);
        rates.print();
        let ratios =
            |one: &str, other: &str| rates.ratios(&format!("{operation}, {one}"), &format!("{operation}, {other}"));
        print_ratio(&format!("{operation}: the SDK by nginx, whole file"), &ratios("sdk", "nginx-whole"));
        let same_requests = ratios("corro", "nginx");
        print_ratio(&format!("{operation}: Corro by nginx, same requests"), &same_requests);
        let rate = format!("{:.0} MB/s", rates.p50(&format!("{operation}, corro")));
        worst_ratio([(same_requests.p50(), rate)].into_iter(), MIN_RATIO, &format!("times nginx's {peer_requests}"))
    };
    let goals = [goal("upload", "uploads by 4 MiB"), goal("download", "downloads by ranges")];
    println!();
    Ok(goals)
}

/// Pages of 5,000, which the SDK reads one after another. nginx makes one page.
fn listing(scale: Scale, sdk: &Sdk) -> Result<()> {
    let times = sdk.run("listing", [scale.pick(5, 20), ENTRIES])?;
    println!("a directory of {ENTRIES} entries, in pages of 5,000 (nginx: one list)");
    print_heading();
    rates_of(&times, "listing", "ms", |seconds| seconds * 1e3).print();
    Ok(())
}

fn rates_of(times: &[OperationTime], operation: &str, unit: &'static str, convert: impl Fn(f64) -> f64) -> RoundRates {
    let mut rates = RoundRates::new(unit);
    for time in times.iter().filter(|time| time.operation == operation) {
        rates.add(&format!("{operation}, {}", time.engine), convert(time.seconds));
    }
    rates
}
