//! Client load during the campaign: one thread submits jobs, including malicious ones, some follow logs, one resizes and
//! terminates, one polls states.

use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;
use std::time::Duration;

use super::attack::{self, Attack, Target};
use super::desk::Desk;
use super::ledger::Ledger;
use super::{NODES, rng_for};
use corro_test_support::rng::SplitMix64;

/// Limit of waiting jobs: finishing them must not take longer than the campaign.
const BACKLOG: usize = 12;
const FOLLOWERS: u64 = 2;

pub struct Workers {
    hands: Vec<JoinHandle<()>>,
    followers: Followers,
}

/// Each thread ends with the job whose log it follows.
pub struct Followers(Vec<JoinHandle<Vec<Streamed>>>);

/// A follower's output for one job's log.
pub struct Streamed {
    pub job: String,
    pub output: Output,
}

pub fn start(desk: &Desk, ledger: &Arc<Ledger>, target: &Target, over: &Arc<AtomicBool>, seed: u64) -> Workers {
    let hand = |work: fn(&Desk, &Ledger, &AtomicBool, SplitMix64), who: u64| {
        let (desk, ledger, over) = (desk.clone(), ledger.clone(), over.clone());
        std::thread::spawn(move || work(&desk, &ledger, &over, rng_for(who, seed)))
    };
    let attacker = {
        let (desk, ledger, target, over) = (desk.clone(), ledger.clone(), target.clone(), over.clone());
        std::thread::spawn(move || attack(&desk, &ledger, &target, &over, rng_for(4, seed)))
    };
    let hands = vec![hand(submit, 1), hand(meddle, 2), hand(look, 3), attacker];
    let followers = (0..FOLLOWERS).map(|i| {
        let (desk, ledger, over) = (desk.clone(), ledger.clone(), over.clone());
        std::thread::spawn(move || follow(&desk, &ledger, &over, rng_for(10 + i, seed)))
    });
    Workers { hands, followers: Followers(followers.collect()) }
}

impl Workers {
    /// Stops submits and resizes.
    pub fn stop(self) -> Followers {
        self.hands.into_iter().for_each(|hand| hand.join().expect("a worker did not panic"));
        self.followers
    }
}

impl Followers {
    pub fn join(self) -> Vec<Streamed> {
        self.0.into_iter().flat_map(|follower| follower.join().expect("a follower did not panic")).collect()
    }
}

fn submit(desk: &Desk, ledger: &Ledger, over: &AtomicBool, mut rng: SplitMix64) {
    for i in 0.. {
        while ledger.unfinished().len() >= BACKLOG && !over.load(SeqCst) {
            pause(20);
        }
        if over.load(SeqCst) {
            return;
        }
        let (name, nodes, steps) = (format!("job{i}"), 1 + rng.between(0, 3) as usize, 2 + rng.between(0, 16));
        // Without a response nothing was acknowledged; the name is not reused.
        if desk.submit(&name, nodes, steps) {
            ledger.acknowledge(&name, steps);
        } else {
            pause(50);
        }
    }
}

/// Submits malicious jobs, one at a time.
fn attack(desk: &Desk, ledger: &Ledger, target: &Target, over: &AtomicBool, mut rng: SplitMix64) {
    let volumes = desk.volumes();
    for i in 0.. {
        let has_one = || ledger.unfinished().iter().any(|name| name.starts_with(attack::PREFIX));
        while has_one() && !over.load(SeqCst) {
            pause(50);
        }
        if over.load(SeqCst) {
            return;
        }
        let name = format!("{}{i}", attack::PREFIX);
        match target.choose(&mut rng, &volumes) {
            Attack::Job(more) => {
                if matches!(desk.submit_with(&name, &more), Some(200..300)) {
                    ledger.acknowledge(&name, 0);
                }
            }
            Attack::Refused(more) => {
                if let Some(status @ 200..300) = desk.submit_with(&name, &more) {
                    ledger.report(format!("the server answered {status} to a job with {more}"));
                }
            }
        }
        pause(rng.between(0, 500));
    }
}

/// Resizes, and sometimes terminates a job.
fn meddle(desk: &Desk, ledger: &Ledger, over: &AtomicBool, mut rng: SplitMix64) {
    while !over.load(SeqCst) {
        pause(300 + rng.between(0, 1_500));
        if rng.between(0, 4) == 0 {
            if let Some(name) = rng.pick(&ledger.unfinished()) {
                desk.terminate(name);
            }
        } else {
            desk.resize(NODES - 2 + rng.between(0, 4) as usize);
        }
    }
}

fn look(desk: &Desk, ledger: &Ledger, over: &AtomicBool, _: SplitMix64) {
    while !over.load(SeqCst) {
        ledger.look(desk);
        pause(50);
    }
}

fn follow(desk: &Desk, ledger: &Ledger, over: &AtomicBool, mut rng: SplitMix64) -> Vec<Streamed> {
    let mut streamed = Vec::new();
    while !over.load(SeqCst) {
        let unfinished = ledger.unfinished();
        match rng.pick(unfinished.iter().filter(|name| !name.starts_with(attack::PREFIX))) {
            Some(job) => {
                let output = desk.stream(job);
                // While the server is down the command fails at once, and is repeated.
                if !output.stderr.starts_with(b"error: cannot reach the server") {
                    streamed.push(Streamed { job: job.clone(), output });
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
