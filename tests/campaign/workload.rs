//! Client load during the campaign: one thread submits jobs, including malicious ones, some follow logs, one resizes and
//! terminates, one polls states.

use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;
use std::time::Duration;

use super::attack::{self, Attack, Target};
use super::client::CampaignClient;
use super::history::History;
use super::{NODES, rng_for};
use corro_test_support::rng::SplitMix64;

/// Limit of waiting jobs: finishing them must not take longer than the campaign.
const MAX_UNFINISHED_JOBS: usize = 12;
const N_FOLLOWERS: u64 = 2;

pub struct Workers {
    threads: Vec<JoinHandle<()>>,
    followers: Followers,
}

/// Each thread ends with the job whose log it follows.
pub struct Followers(Vec<JoinHandle<Vec<StreamedLog>>>);

/// A follower's output for one job's log.
pub struct StreamedLog {
    pub job: String,
    pub output: Output,
}

pub fn start(
    client: &CampaignClient,
    history: &Arc<History>,
    target: &Target,
    stop: &Arc<AtomicBool>,
    seed: u64,
) -> Workers {
    let thread = |work: fn(&CampaignClient, &History, &AtomicBool, SplitMix64), worker: u64| {
        let (client, history, stop) = (client.clone(), history.clone(), stop.clone());
        std::thread::spawn(move || work(&client, &history, &stop, rng_for(worker, seed)))
    };
    let attacker = {
        let (client, history, target, stop) = (client.clone(), history.clone(), target.clone(), stop.clone());
        std::thread::spawn(move || attack(&client, &history, &target, &stop, rng_for(4, seed)))
    };
    let threads = vec![thread(submit, 1), thread(resize_and_terminate, 2), thread(poll, 3), attacker];
    let followers = (0..N_FOLLOWERS).map(|i| {
        let (client, history, stop) = (client.clone(), history.clone(), stop.clone());
        std::thread::spawn(move || follow(&client, &history, &stop, rng_for(10 + i, seed)))
    });
    Workers { threads, followers: Followers(followers.collect()) }
}

impl Workers {
    /// Stops submits and resizes.
    pub fn stop(self) -> Followers {
        self.threads.into_iter().for_each(|thread| thread.join().expect("a worker did not panic"));
        self.followers
    }
}

impl Followers {
    pub fn join(self) -> Vec<StreamedLog> {
        self.0.into_iter().flat_map(|follower| follower.join().expect("a follower did not panic")).collect()
    }
}

fn submit(client: &CampaignClient, history: &History, stop: &AtomicBool, mut rng: SplitMix64) {
    for i in 0.. {
        while history.unfinished().len() >= MAX_UNFINISHED_JOBS && !stop.load(SeqCst) {
            pause(20);
        }
        if stop.load(SeqCst) {
            return;
        }
        let (name, nodes, steps) = (format!("job{i}"), 1 + rng.between(0, 3) as usize, 2 + rng.between(0, 16));
        // Without a response nothing was acknowledged; the name is not reused.
        if client.submit(&name, nodes, steps) {
            history.acknowledge(&name, steps);
        } else {
            pause(50);
        }
    }
}

/// Submits malicious jobs, one at a time.
fn attack(client: &CampaignClient, history: &History, target: &Target, stop: &AtomicBool, mut rng: SplitMix64) {
    let volumes = client.volumes();
    for i in 0.. {
        let has_one = || history.unfinished().iter().any(|name| name.starts_with(attack::PREFIX));
        while has_one() && !stop.load(SeqCst) {
            pause(50);
        }
        if stop.load(SeqCst) {
            return;
        }
        let name = format!("{}{i}", attack::PREFIX);
        match target.choose(&mut rng, &volumes) {
            Attack::Job(more) => {
                if matches!(client.submit_with(&name, &more), Some(200..300)) {
                    history.acknowledge(&name, 0);
                }
            }
            Attack::Refused(more) => {
                if let Some(status @ 200..300) = client.submit_with(&name, &more) {
                    history.report_violation(format!("the server answered {status} to a job with {more}"));
                }
            }
        }
        pause(rng.between(0, 500));
    }
}

/// Resizes, and sometimes terminates a job.
fn resize_and_terminate(client: &CampaignClient, history: &History, stop: &AtomicBool, mut rng: SplitMix64) {
    while !stop.load(SeqCst) {
        pause(300 + rng.between(0, 1_500));
        if rng.between(0, 4) == 0 {
            if let Some(name) = rng.pick(&history.unfinished()) {
                client.terminate(name);
            }
        } else {
            client.resize(NODES - 2 + rng.between(0, 4) as usize);
        }
    }
}

fn poll(client: &CampaignClient, history: &History, stop: &AtomicBool, _: SplitMix64) {
    while !stop.load(SeqCst) {
        history.poll(client);
        pause(50);
    }
}

fn follow(client: &CampaignClient, history: &History, stop: &AtomicBool, mut rng: SplitMix64) -> Vec<StreamedLog> {
    let mut streamed = Vec::new();
    while !stop.load(SeqCst) {
        let unfinished = history.unfinished();
        match rng.pick(unfinished.iter().filter(|name| !name.starts_with(attack::PREFIX))) {
            Some(job) => {
                let output = client.stream(job);
                // While the server is down the command fails at once, and is repeated.
                if !output.stderr.starts_with(b"error: cannot reach the server") {
                    streamed.push(StreamedLog { job: job.clone(), output });
                }
            }
            None => pause(50),
        }
    }
    streamed
}

fn pause(milliseconds: u64) {
    std::thread::park_timeout(Duration::from_millis(milliseconds));
}
