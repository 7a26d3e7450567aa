//! Kill campaign: jobs are submitted, followed and resized away while server, agents, ranks and guards are killed and frozen at
//! random, the clock is set, the disk fills up, restored copies run beside the server and some jobs are malicious. Afterwards
//! nothing may be lost, duplicated, orphaned or leaked.
//!
//! `CORRO_CAMPAIGN_SECONDS` sets the duration (default 10), `CORRO_CAMPAIGN_SEED` repeats the same random choices. Timing still
//! differs from run to run; the seed is printed with all injected faults.

mod harness;

#[path = "campaign/attack.rs"]
mod attack;
#[path = "campaign/checks.rs"]
mod checks;
#[path = "campaign/client.rs"]
mod client;
#[path = "campaign/control_job.rs"]
mod control_job;
#[path = "campaign/fault_injector.rs"]
mod fault_injector;
#[path = "campaign/history.rs"]
mod history;
#[path = "campaign/restored_copy.rs"]
mod restored_copy;
#[path = "campaign/workload.rs"]
mod workload;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use corro_test_support::rng::SplitMix64;
use harness::fake_clock::FakeClock;
use harness::small_disk::SmallDisk;
use harness::{Site, wait_for};

/// Initial nodes of the cluster; resizes go from two fewer to one more.
const NODES: usize = 4;

#[test]
fn nothing_is_lost_doubled_or_orphaned() {
    let seconds = setting("CORRO_CAMPAIGN_SECONDS").unwrap_or(10);
    let seed = setting("CORRO_CAMPAIGN_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("campaign: seed {seed}, {seconds} s");

    let clock = FakeClock::new();
    let variables = clock.as_ref().map(FakeClock::variables).unwrap_or_default();
    let words = ["--no-containers", "--lease", "3"].into_iter().chain(variables.iter().map(String::as_str));
    let mut site = Site::unstarted(&words.collect::<Vec<_>>());
    site.disk = SmallDisk::mount_over(&site.data());
    site.up();
    site.prepare(NODES);
    let control_job = control_job::ControlJob::start(&site);
    let target = attack::Target::prepare(&site);
    std::fs::create_dir_all(site.share().join("locks")).expect("a directory on the share");
    let client = client::CampaignClient::new(&site);
    let history = Arc::new(history::History::default());
    let stop = Arc::new(AtomicBool::new(false));
    let until = Instant::now() + Duration::from_secs(seconds);

    let workers = workload::start(&client, &history, &target, &stop, seed);
    let faults = fault_injector::FaultInjector::new(&mut site, &client, &history, &control_job, clock.as_ref(), seed)
        .run_until(until);
    stop.store(true, SeqCst);

    // After the faults stop and with capacity for every job, everything acknowledged must end. Followers are joined last:
    // theirs may be a job that waits for this capacity.
    let followers = workers.stop();
    client.resize(NODES).expect("the server is there again");
    let streams = followers.join();
    wait_for("every acknowledged job to end", || {
        history.poll(&client);
        history.unfinished().is_empty()
    });
    let input = checks::CheckInput {
        client: &client,
        history: &history,
        target: &target,
        control_job: &control_job,
        streams: &streams,
    };
    let findings = checks::check_all(&mut site, &input);
    println!("{faults}\n{}", checks::summary(&history, &streams));
    assert!(findings.is_empty(), "seed {seed}:\n{}", findings.join("\n"));
    assert!(faults.total() > 0 && history.n_succeeded() > 0, "seed {seed}: nothing was tried");
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a whole number, not {text:?}")))
}

/// Random generator of one worker; each has its own, so that the timing of one does not change the choices of another.
fn rng_for(worker: u64, seed: u64) -> SplitMix64 {
    SplitMix64::new(seed.rotate_left(16) ^ worker)
}
