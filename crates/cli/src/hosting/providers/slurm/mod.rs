//! The `slurm` provider: nodes are Slurm allocations that run `corro agent --once`, submitted by `sbatch` as the user who
//! runs the server. Their names carry the server's mark and the node, so that whatever happened to the server, `squeue`
//! tells what is there. One thread looks, a few submit; nobody who asks waits for Slurm.
//!
//! Reading order: [`submission`] (what is asked for), [`queue`] (what Slurm knows), [`commands`] (its programs), this file.

mod args;
mod commands;
mod queue;
mod submission;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use corro_model::state::PreemptionCause;
use corro_model::{NodeId, Secret};
use corro_server::{NewNode, Provider};

pub use args::SlurmArgs;
use commands::CommandError;
use queue::Queue;
use submission::{Mark, options, script};
pub use submission::{WayIn, Wishes};

/// Between two looks while something changes, and while nothing does.
const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(5);
/// For so long after it changed, something counts as changing.
const LIVELY: Duration = Duration::from_secs(20);
/// What was seen longer ago says nothing of now.
const STALE: Duration = Duration::from_secs(60);
/// An agent that was told to end is left to it for this long.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two tries to cancel the same allocation.
const CANCEL_AGAIN: Duration = Duration::from_secs(10);
/// So many submissions at a time.
const SUBMITTERS: usize = 4;

pub struct SlurmNodes {
    site: Arc<Site>,
}

struct Site {
    wishes: Wishes,
    way_in: WayIn,
    mark: Mark,
    desk: Mutex<Desk>,
    /// Rung when there is something to submit, to look at, or the end.
    bell: Condvar,
}

/// All that is remembered, and nothing that a restart would miss.
#[derive(Default)]
struct Desk {
    queue: Queue,
    /// When the look began that found it; never before the first.
    looked: Option<Instant>,
    changed: Option<Instant>,
    failing: bool,
    to_submit: VecDeque<(NodeId, Vec<String>, String)>,
    submissions: HashMap<NodeId, Submission>,
    /// Since when nodes are to be gone, and when they were last cancelled.
    leaving: HashMap<NodeId, (Instant, Option<Instant>)>,
    stop: bool,
}

enum Submission {
    /// `sbatch` has not answered yet.
    Waits,
    /// Whoever looks later finds it.
    Done(Instant),
    Refused(String),
}

impl SlurmNodes {
    pub fn new(wishes: Wishes, way_in: WayIn, instance: &str) -> Self {
        let (mark, desk) = (Mark::of(instance), Mutex::new(Desk::default()));
        let site = Arc::new(Site { wishes, way_in, mark, desk, bell: Condvar::new() });
        let looker = site.clone();
        std::thread::spawn(move || looker.keep_looking());
        for _ in 0..SUBMITTERS {
            let submitter = site.clone();
            std::thread::spawn(move || submitter.keep_submitting());
        }
        Self { site }
    }
}

impl Drop for SlurmNodes {
    fn drop(&mut self) {
        self.site.lock().stop = true;
        self.site.bell.notify_all();
    }
}

impl Provider for SlurmNodes {
    fn start(&self, node: &NewNode, token: Secret) {
        let Site { wishes, way_in, mark, .. } = &*self.site;
        let (options, script) = (options(wishes, mark, node), script(wishes, mark, way_in, &node.id, &token));
        let mut desk = self.site.lock();
        desk.submissions.insert(node.id.clone(), Submission::Waits);
        desk.to_submit.push_back((node.id.clone(), options, script));
        self.site.bell.notify_all();
    }

    fn is_alive(&self, node: &NodeId) -> Option<bool> {
        let mut desk = self.site.lock();
        match desk.submissions.get(node) {
            Some(Submission::Waits) => return Some(true),
            Some(Submission::Done(at)) if desk.looked.is_none_or(|looked| looked <= *at) => return Some(true),
            _ => {}
        }
        let lives = desk.queue.lives(node);
        if lives && !desk.queue.waits(node) {
            // Its agent is missed: whether it has ended should be known soon.
            desk.stir();
            self.site.bell.notify_all();
        }
        desk.looked.filter(|looked| looked.elapsed() < STALE).map(|_| lives)
    }

    /// Slurm cannot end what runs on a node that it does not reach either.
    fn can_end_silent_nodes(&self) -> bool {
        false
    }

    fn ask_to_stop(&self, node: &NodeId) {
        self.site.cancel(node);
    }

    fn ensure_gone(&self, node: &NodeId, polite: bool) -> bool {
        let alive = self.is_alive(node);
        let mut desk = self.site.lock();
        if alive == Some(false) {
            desk.submissions.remove(node);
            desk.leaving.remove(node);
            return true;
        }
        if let Some(unsent) = desk.to_submit.iter().position(|(waiting, ..)| waiting == node) {
            desk.to_submit.remove(unsent);
            desk.submissions.remove(node);
        }
        let (since, cancelled) = *desk.leaving.entry(node.clone()).or_insert((Instant::now(), None));
        let idle = desk.queue.waits(node) || (!polite && since.elapsed() >= PATIENCE);
        let due = alive == Some(true) && idle && cancelled.is_none_or(|at| at.elapsed() >= CANCEL_AGAIN);
        desk.stir();
        self.site.bell.notify_all();
        drop(desk);
        if due {
            self.site.cancel(node);
        }
        false
    }

    fn provisioning_issue(&self, node: &NodeId) -> Option<String> {
        let desk = self.site.lock();
        match desk.submissions.get(node) {
            Some(Submission::Refused(said)) => Some(said.clone()),
            _ => desk.queue.says(node),
        }
    }

    fn pending_reclaim(&self, node: &NodeId, within: Duration) -> Option<PreemptionCause> {
        let desk = self.site.lock();
        let seen = desk.looked?.elapsed();
        desk.queue.takes_back(node, within + seen)
    }

    fn remove_orphans(&self, known: &dyn Fn() -> BTreeSet<NodeId>) {
        let found: Vec<(NodeId, Vec<u64>)> =
            self.site.lock().queue.living().map(|(node, jobs)| (node.clone(), jobs)).collect();
        if found.is_empty() {
            return;
        }
        let known = known();
        let strays: Vec<_> = found.into_iter().filter(|(node, _)| !known.contains(node)).collect();
        let jobs: Vec<u64> = strays.iter().flat_map(|(_, jobs)| jobs.iter().copied()).collect();
        if !jobs.is_empty() {
            tracing::warn!(?jobs, "Slurm jobs of nodes that are no more are cancelled");
            self.site.told(commands::scancel(&jobs));
        }
    }
}

impl Site {
    fn keep_looking(&self) {
        loop {
            let began = Instant::now();
            let found = commands::squeue();
            let mut desk = self.lock();
            match found {
                Ok(text) => {
                    let queue = Queue::read(&text, &self.mark);
                    if desk.failing {
                        tracing::info!("squeue answers again");
                    }
                    if desk.queue != queue {
                        desk.stir();
                    }
                    (desk.queue, desk.looked, desk.failing) = (queue, Some(began), false);
                    desk.settle(began);
                }
                Err(error) => {
                    if !std::mem::replace(&mut desk.failing, true) {
                        let error = &error as &dyn std::error::Error;
                        tracing::error!(error, "Slurm cannot be asked about nodes; it is tried again");
                    }
                }
            }
            while !desk.stop && began.elapsed() < desk.pause() {
                let rest = desk.pause().saturating_sub(began.elapsed());
                desk = self.bell.wait_timeout(desk, rest).expect("no one panics at the desk").0;
            }
            if desk.stop {
                return;
            }
        }
    }

    fn keep_submitting(&self) {
        let mut desk = self.lock();
        loop {
            if desk.stop {
                return;
            }
            let Some((node, options, script)) = desk.to_submit.pop_front() else {
                desk = self.bell.wait(desk).expect("no one panics at the desk");
                continue;
            };
            drop(desk);
            let submitted = commands::sbatch(&options, &script);
            desk = self.lock();
            desk.stir();
            match submitted {
                Ok(job) => {
                    tracing::info!(%node, job, "the node is asked of Slurm");
                    desk.submissions.insert(node, Submission::Done(Instant::now()));
                }
                Err(error) => {
                    tracing::error!(%node, error = &error as &dyn std::error::Error, "Slurm does not take the node; it is tried again");
                    desk.submissions.insert(node, Submission::Refused(error.to_string()));
                }
            }
            self.bell.notify_all();
        }
    }

    /// By name: whatever there is of the node.
    fn cancel(&self, node: &NodeId) {
        {
            let mut desk = self.lock();
            let entry = desk.leaving.entry(node.clone()).or_insert((Instant::now(), None));
            entry.1 = Some(Instant::now());
        }
        self.told(commands::scancel_named(&self.mark.name(node)));
    }

    fn told(&self, cancelled: Result<(), CommandError>) {
        if let Err(error) = cancelled {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "Slurm does not cancel what is to be gone; it is tried again");
        }
        self.lock().stir();
        self.bell.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().expect("no one panics at the desk")
    }
}

impl Desk {
    fn stir(&mut self) {
        self.changed = Some(Instant::now());
    }

    fn pause(&self) -> Duration {
        let lively = self.changed.is_some_and(|changed| changed.elapsed() < LIVELY);
        if lively { SOON } else { LATER }
    }

    /// What the look that began then has found need not be remembered.
    fn settle(&mut self, began: Instant) {
        self.submissions.retain(|_, submission| !matches!(submission, Submission::Done(at) if *at < began));
    }
}
