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
use crate::files::sdk::{Sdk, Timed};
use crate::files::turns::Turns;
use crate::files::{load, requests};
use crate::fixture::{ACCOUNT, GROUP, SHARE};
use crate::goal::{Goal, worst};
use crate::machine::processor_seconds;
use crate::peers::nginx::Nginx;
use crate::site::Site;
use crate::stats::{Samples, heading};
use crate::steps::rounds::print_ratio;

pub const PROMISE: &str =
    "the same requests at least 0.5 times as fast as nginx: small gets over 64 connections, ranges read and written";
const LEAST: f64 = 0.5;
const CONNECTIONS: usize = 64;
const SMALL_FILES: usize = 100;
const SMALL: usize = 1024;
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
    sdk.run("prepare", [SMALL_FILES, SMALL])?;
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
    let address = address.strip_prefix("http://").context("plain HTTP")?;
    let now = SystemTime::now();
    let (date, seconds) = (httpdate::fmt_http_date(now), Timestamp::from(now).seconds());
    let key = STANDARD.decode(key).context("the account's key is not base64")?;
    let paths: Vec<String> = (0..SMALL_FILES).map(|number| format!("small/f{number}")).collect();
    let signed: Vec<_> = paths.iter().map(|path| requests::with_key(address, path, &key, &date)).collect();
    let links = paths.iter().map(|path| requests::with_link(address, path, &key, seconds)).collect::<Result<_>>()?;
    let plain = paths.iter().map(|path| requests::plain(&nginx.address, &format!("/files/{path}"))).collect();

    let of_corro = || processor_seconds(site.server_pid()?);
    let of_nginx = || nginx.processor_seconds();
    type Player<'a> = (&'a str, &'a str, &'a Vec<Vec<u8>>, &'a dyn Fn() -> Result<f64>);
    let players: [Player<'_>; 3] = [
        ("Corro, signed with the key", address, &signed, &of_corro),
        ("Corro, with a link", address, &links, &of_corro),
        ("nginx", &nginx.address, &plain, &of_nginx),
    ];
    let mut turns = Turns::new("requests/s");
    let mut latencies = players.map(|_| Vec::new());
    let mut processor = players.map(|(name, ..)| Samples::new(format!("{name}: processor time"), "us a request"));
    let span = scale.pick(Duration::from_millis(800), Duration::from_secs(2));
    // The first round is a warm-up.
    for round in 0..=scale.pick(6, 20) {
        for (idx, (name, address, requests, processor_time)) in players.iter().enumerate() {
            let before = processor_time()?;
            let load = load::run(address, requests, CONNECTIONS, SMALL, span)?;
            let used = processor_time()? - before;
            if round > 0 {
                turns.add(name, load.per_second());
                processor[idx].add(used * 1e6 / load.latencies.len() as f64);
                latencies[idx].extend(load.latencies);
            }
        }
    }
    println!("files of 1 KiB over {CONNECTIONS} connections");
    heading();
    turns.print();
    processor.iter().for_each(Samples::row);
    for ((name, ..), latencies) in players.iter().zip(latencies) {
        Samples::of(format!("{name}: latency"), "ms", latencies).row();
    }
    let [signed, link, peer] = players.map(|(name, ..)| name);
    print_ratio("Corro, signed, by nginx", &turns.ratios(signed, peer));
    print_ratio("Corro, with a link, by nginx", &turns.ratios(link, peer));
    println!();
    let both = [signed, link].into_iter();
    let ratios = both.map(|player| (turns.ratios(player, peer).p50(), format!("{player}, {:.0}/s", turns.p50(player))));
    Ok(worst(ratios, LEAST, "times nginx's small gets"))
}

/// Transfers by the SDK, and the same requests by hand.
fn transfers(scale: Scale, sdk: &Sdk) -> Result<[Goal; 2]> {
    let mebibytes = scale.pick(64, 256);
    let timed = sdk.run("transfers", [scale.pick(5, 15), mebibytes])?;
    println!("one file of {mebibytes} MiB, one connection of Python's requests, or of the SDK");
    heading();
    let goal = |work: &str, peer_takes: &str| {
        let turns = turns_of(&timed, work, "MB/s", |seconds| (mebibytes << 20) as f64 / 1e6 / seconds);
        turns.print();
        let by = |one: &str, other: &str| turns.ratios(&format!("{work}, {one}"), &format!("{work}, {other}"));
        print_ratio(&format!("{work}: the SDK by nginx, whole file"), &by("sdk", "nginx-whole"));
        let same = by("corro", "nginx");
        print_ratio(&format!("{work}: Corro by nginx, same requests"), &same);
        let at = format!("{:.0} MB/s", turns.p50(&format!("{work}, corro")));
        worst([(same.p50(), at)].into_iter(), LEAST, &format!("times nginx's {peer_takes}"))
    };
    let goals = [goal("upload", "uploads by 4 MiB"), goal("download", "downloads by ranges")];
    println!();
    Ok(goals)
}

/// Pages of 5,000, which the SDK reads one after another. nginx makes one page.
fn listing(scale: Scale, sdk: &Sdk) -> Result<()> {
    let timed = sdk.run("listing", [scale.pick(5, 20), ENTRIES])?;
    println!("a directory of {ENTRIES} entries, in pages of 5,000 (nginx: one list)");
    heading();
    turns_of(&timed, "listing", "ms", |seconds| seconds * 1e3).print();
    Ok(())
}

fn turns_of(timed: &[Timed], work: &str, unit: &'static str, figure: impl Fn(f64) -> f64) -> Turns {
    let mut turns = Turns::new(unit);
    for timed in timed.iter().filter(|timed| timed.work == work) {
        turns.add(&format!("{work}, {}", timed.player), figure(timed.seconds));
    }
    turns
}
