//! Explains why jobs are queued, from the same scheduler that places them. Computed for the jobs of one response at a
//! time: each cluster's queue is evaluated once, up to the last of these jobs.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use corro_model::batchai::{DEFAULT_WALL_CLOCK_TIME, EstimateBasis, QueueWait, WaitReason};
use corro_model::rbac::Right;
use corro_model::time::Span;
use corro_model::{ClusterKey, JobKey, Timestamp};
use corro_sched::scale::{Scaling, plan_scale};
use corro_sched::wait_explanation::explain_waits;
use corro_sched::{
    Basis, ClusterView, NodeAvailability, RegionCapacity, RunTimes, Target, Unblock, Wait, WaitExplanation, capacity,
};
use corro_store::{ClusterRecord, JobRecord, State, Timeline};

use crate::app::access::caller::{Caller, scope_of_key};
use crate::app::hosts::capacity::host_shortages;
use crate::app::jobs::dependencies::{DependencyWait, dependency_wait};
use crate::app::jobs::expected_ends::ExpectedEnds;
use crate::app::resources::lookup::cluster_cli_args;
use crate::scheduler_view::{self, RECENT_RUNS, SchedulingConfig};

/// Queue status of the queued ones among some jobs.
pub struct QueueStatuses<'a>(HashMap<&'a JobKey, QueueStatus>);

pub struct QueueStatus {
    /// `None` if the job is about to start. Contains no times, so that it does not change while nothing happens.
    pub reason: Option<String>,
    pub waiting: QueueWait,
}

impl<'a> QueueStatuses<'a> {
    /// Computes the statuses as `caller` may see them: jobs that it may not read are counted but not named.
    pub fn compute(
        state: &State,
        expected_ends: &ExpectedEnds,
        caller: &Caller,
        rules: &SchedulingConfig,
        clock: &Timeline,
        jobs: impl IntoIterator<Item = (&'a JobKey, &'a JobRecord)>,
    ) -> Self {
        let mut by_cluster: HashMap<&ClusterKey, HashSet<&'a JobKey>> = HashMap::new();
        let queued = jobs.into_iter().filter(|(_, job)| job.state().name() == "queued");
        let mut waits = Self(HashMap::new());
        for (key, job) in queued {
            match dependency_wait(state, key, job) {
                Some(wait) => _ = waits.0.insert(key, dependent_status(job, wait)),
                None => _ = by_cluster.entry(&job.cluster).or_default().insert(key),
            }
        }
        let (now, history) = (clock.now(), History { state, expected_ends, known: RefCell::default() });
        for (key, wanted) in by_cluster {
            let Some(cluster) = state.clusters.get(key) else { continue };
            let view = scheduler_view::cluster_view(state, key, cluster, clock);
            let mut scaling = plan_scale(&view, now, &rules.policy);
            if scaling.allocate > 0 {
                let granted = granted_nodes(state, key, rules, clock);
                scaling.shortfall = scaling.allocate.saturating_sub(granted);
                scaling.allocate -= scaling.shortfall;
            }
            let found = explain_waits(&view, &scaling, now, &rules.policy, &history, &wanted);
            let cluster_args = cluster_cli_args(state, key, &cluster.name);
            let wording = StatusBuilder {
                state,
                caller,
                cluster,
                rules,
                cluster_args,
                view: &view,
                scaling: &scaling,
                history: &history,
                clock,
            };
            let status = |key: &'a JobKey| Some((key, wording.status(key, found.get(key)?)));
            waits.0.extend(wanted.iter().copied().filter_map(status));
        }
        waits
    }

    /// Removes and returns the status of a job; `None` if it is not queued.
    pub fn remove(&mut self, job: &JobKey) -> Option<QueueStatus> {
        self.0.remove(job)
    }
}

/// Number of additional nodes that the cluster would be granted, competing with all other clusters.
fn granted_nodes(state: &State, key: &ClusterKey, rules: &SchedulingConfig, clock: &Timeline) -> usize {
    let now = clock.now();
    let all = scheduler_view::view(state, clock, RegionCapacity { cores: rules.cores, machines_join: false });
    let mut scalings: Vec<_> = all.clusters.iter().map(|cluster| plan_scale(cluster, now, &rules.policy)).collect();
    capacity::allocate_and_preempt(&all, &mut scalings, &rules.policy);
    let own = all.clusters.iter().zip(&scalings).find(|(cluster, _)| cluster.key == key);
    own.map_or(0, |(_, scaling)| scaling.allocate)
}

/// Run times of an experiment: the median of its recent successful jobs, and the progress of running ones.
struct History<'a> {
    state: &'a State,
    expected_ends: &'a ExpectedEnds,
    known: RefCell<HashMap<String, Option<Duration>>>,
}

impl RunTimes for History<'_> {
    fn typical_run_time(&self, job: &JobKey) -> Option<Duration> {
        let (experiment, _) = job.as_str().rsplit_once('/')?;
        if let Some(known) = self.known.borrow().get(experiment) {
            return *known;
        }
        let mut times: Vec<Duration> = self.state.run_times(&job.experiment()).take(RECENT_RUNS).collect();
        times.sort();
        let median = times.get(times.len() / 2).copied();
        self.known.borrow_mut().insert(experiment.to_owned(), median);
        median
    }

    fn remaining(&self, job: &JobKey) -> Option<Duration> {
        self.expected_ends.remaining(self.state.jobs.get(job)?.state().nodes())
    }
}

struct StatusBuilder<'a> {
    state: &'a State,
    caller: &'a Caller,
    cluster: &'a ClusterRecord,
    rules: &'a SchedulingConfig,
    /// CLI arguments that identify the cluster.
    cluster_args: String,
    view: &'a ClusterView<'a>,
    scaling: &'a Scaling<'a>,
    history: &'a History<'a>,
    clock: &'a Timeline,
}

impl StatusBuilder<'_> {
    fn status(&self, job: &JobKey, explanation: &WaitExplanation) -> QueueStatus {
        let resize_to = explanation.unblock.iter().find_map(|way| match way {
            Unblock::Resize { to } | Unblock::RaiseMaximum { to } => i32::try_from(*to).ok(),
            _ => None,
        });
        let waiting = QueueWait {
            reason: reason(explanation.wait),
            position: i32::try_from(explanation.position).unwrap_or(i32::MAX),
            nodes_needed: i32::try_from(explanation.needs).unwrap_or(i32::MAX),
            estimated_start: explanation.estimate.map(|estimate| estimate.start),
            estimate_basis: explanation.estimate.map(|estimate| basis(estimate.basis)),
            unblocked_by: explanation.unblock.iter().filter_map(|way| self.unblock_text(job, way)).collect(),
            resize_to,
        };
        QueueStatus { reason: explanation.wait.map(|wait| self.wait_reason(job, wait, explanation)), waiting }
    }

    fn wait_reason(&self, job: &JobKey, wait: Wait, explanation: &WaitExplanation) -> String {
        let (cluster, needs) = (&self.cluster.name, pluralize(explanation.needs, "node"));
        match wait {
            Wait::ClusterTooSmall { most } => {
                let grow = self.resize_command(explanation.needs);
                format!("the job needs {needs} and cluster {cluster} has at most {most}: {grow}, or delete the job")
            }
            Wait::NodesBusy { idle } => {
                format!(
                    "the job is next and needs {needs}: {idle} of cluster {cluster} are idle now{}",
                    self.pending_nodes()
                )
            }
            Wait::NodesReturn { nodes, .. } => format!(
                "the job needs {needs} of cluster {cluster}, and elastic jobs give {} back for it",
                pluralize(nodes, "node")
            ),
            Wait::Behind { first } => {
                let ahead = match explanation.position.saturating_sub(1) {
                    1 => format!("1 job of cluster {cluster} comes first:"),
                    n => format!("{n} jobs of cluster {cluster} come first, and the first that waits is"),
                };
                format!("{ahead} {}", self.name(first, job))
            }
            Wait::WouldDelay { first, .. } => format!(
                "cluster {cluster} has idle nodes, but the job could run until its limit of {} and delay {}, which comes first",
                Span(self.limit(job)),
                self.name(first, job)
            ),
        }
    }

    fn unblock_text(&self, job: &JobKey, way: &Unblock) -> Option<String> {
        let cluster = &self.cluster.name;
        Some(match way {
            Unblock::NodesCome { nodes } => {
                let come = format!("{} of cluster {cluster} being ready", pluralize(*nodes, "more node"));
                match host_shortages(self.state, self.view.key).pop() {
                    Some(lack) => format!(
                        "{come}: {lack}; let a larger machine join with 'corro agent join', or create a cluster with a smaller VM size"
                    ),
                    None => come,
                }
            }
            Unblock::JobsEnd { nodes, jobs, more } => {
                let named = jobs.iter().map(|(ends, by)| {
                    format!("{} ends by {}{}", self.name(ends, job), format_time(*by), self.likely_end(ends))
                });
                let mut named: Vec<_> = named.collect();
                if *more > 0 {
                    named.push(format!("{} must end too", pluralize(*more, "more job")));
                }
                format!("{}: {}", pluralize(*nodes, "more idle node"), named.join(", "))
            }
            Unblock::NodesReturn { nodes, jobs, more, by } => {
                let mut named: Vec<_> = jobs.iter().map(|giver| self.name(giver, job)).collect();
                if *more > 0 {
                    named.push(pluralize(*more, "more job"));
                }
                let (nodes, named) = (pluralize(*nodes, "node"), named.join(", "));
                format!("{nodes} that {named} gives back, by {} at the latest", format_time(*by))
            }
            Unblock::FirstStarts { first, by } => {
                let by = by.map_or_else(String::new, |by| format!(", by {} at the latest", format_time(by)));
                format!("{} having started{by}", self.name(first, job))
            }
            Unblock::ShorterLimit { at_most } => {
                let limit = Span(round_limit(*at_most)?);
                format!(
                    "a wall-clock limit that fits: submit the job again with constraints.maxWallClockTime set to what it needs, {limit} or less"
                )
            }
            Unblock::NodesMended { nodes } => {
                let see = format!("see 'corro batchai cluster show {}'", self.cluster_args);
                format!("{} of cluster {cluster} being repaired: {see}", pluralize(*nodes, "unusable node"))
            }
            Unblock::CoresFree { nodes } => self.cores_free(*nodes),
            Unblock::Resize { to } | Unblock::RaiseMaximum { to } => {
                format!("{} for cluster {cluster}: {}", pluralize(*to, "node"), self.resize_command(*to))
            }
        })
    }

    fn limit(&self, job: &JobKey) -> Duration {
        self.state.jobs.get(job).map_or(DEFAULT_WALL_CLOCK_TIME, |job| job.spec.constraints.max_wall_clock_time.0)
    }

    /// Expected end of a running job from its own progress, or a note that it has exceeded the usual run time of its
    /// experiment.
    fn likely_end(&self, job: &JobKey) -> String {
        if let Some(remaining) = self.history.remaining(job) {
            return format!(" (by its epochs at about {})", format_time(self.clock.now().plus(remaining)));
        }
        let started = self.state.jobs.get(job).and_then(|job| job.state().started());
        let ran = started.map(|started| self.clock.now().since(self.clock.rebase(started)));
        match ran.zip(self.history.typical_run_time(job)) {
            // Jobs shorter than a second say nothing about others.
            Some((ran, usual)) if ran >= usual && usual >= Duration::from_secs(1) => {
                format!(" (it has run longer than jobs of its experiment usually do: {})", Span(usual).in_words())
            }
            _ => String::new(),
        }
    }

    fn resize_command(&self, to: usize) -> String {
        let cluster_args = &self.cluster_args;
        match self.view.target {
            Target::Auto { min, .. } => {
                format!(
                    "raise its maximum with 'corro batchai cluster auto-scale {cluster_args} --min {min} --max {to}'"
                )
            }
            Target::Manual { .. } | Target::Deleting => {
                format!("resize it with 'corro batchai cluster resize {cluster_args} -t {to}'")
            }
        }
    }

    /// Reasons other than jobs why nodes are not idle.
    fn pending_nodes(&self) -> String {
        let is = |wanted: fn(&NodeAvailability) -> bool| {
            self.view.nodes.iter().filter(|node| wanted(&node.availability)).count()
        };
        let preparing = is(|availability| matches!(availability, NodeAvailability::Preparing));
        let unusable = is(|availability| matches!(availability, NodeAvailability::Unusable));
        let coming = is(|availability| matches!(availability, NodeAvailability::Allocating)) + self.scaling.allocate;
        let taken = self.view.nodes.iter().filter(|node| node.preempted).count();
        let parts = [
            (coming, "requested and not running yet"),
            (preparing, "being prepared"),
            (unusable, "unusable"),
            (taken, "being preempted"),
            (self.scaling.shortfall, "without free cores"),
        ];
        let parts = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
        let parts: Vec<String> = parts.chain(host_shortages(self.state, self.view.key)).collect();
        if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
    }

    fn cores_free(&self, nodes: usize) -> String {
        let (cores, region) = (self.rules.cores, self.view.region);
        let first = if self.view.low_priority { ", and dedicated clusters come first" } else { "" };
        format!(
            "cores for {} in {region}: the {cores} that the server may allocate are in use{first}; shrink another cluster, or start the server with a higher --max-cores",
            pluralize(nodes, "more node")
        )
    }

    /// Name of a job, with its experiment if that is not the one of `beside`.
    fn name(&self, job: &JobKey, beside: &JobKey) -> String {
        if !self.caller.may(Right::Read, &scope_of_key(job.as_str())) {
            return "a job of another workspace".to_owned();
        }
        let name = self.state.jobs.get(job).map_or_else(|| job.to_string(), |job| job.name.clone());
        let experiment = job.experiment();
        match self.state.experiments.get(&experiment) {
            Some(record) if experiment != beside.experiment() => format!("{name} of experiment {}", record.name),
            _ => name,
        }
    }
}

/// Status of a job that waits for other jobs and is not in the queue yet.
fn dependent_status(job: &JobRecord, wait: DependencyWait) -> QueueStatus {
    let waiting = QueueWait {
        reason: WaitReason::Dependencies,
        position: 0,
        nodes_needed: job.spec.node_count,
        estimated_start: None,
        estimate_basis: None,
        unblocked_by: vec![wait.unblocked_by],
        resize_to: None,
    };
    QueueStatus { reason: Some(wait.reason), waiting }
}

fn reason(wait: Option<Wait>) -> WaitReason {
    match wait {
        None => WaitReason::Starting,
        Some(Wait::ClusterTooSmall { .. }) => WaitReason::ClusterTooSmall,
        // Clients of earlier versions know no further reason.
        Some(Wait::NodesBusy { .. } | Wait::NodesReturn { .. }) => WaitReason::NodesBusy,
        Some(Wait::Behind { .. }) => WaitReason::Behind,
        Some(Wait::WouldDelay { .. }) => WaitReason::WouldDelay,
    }
}

fn basis(basis: Basis) -> EstimateBasis {
    match basis {
        Basis::Nodes => EstimateBasis::Nodes,
        Basis::History => EstimateBasis::History,
        Basis::Limits => EstimateBasis::Limits,
        Basis::HistoryAndLimits => EstimateBasis::HistoryAndLimits,
    }
}

/// Rounds a limit down to whole days, hours or minutes. `None` if it is too short to be useful.
fn round_limit(at_most: Duration) -> Option<Duration> {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    let seconds = at_most.as_secs();
    let unit = match seconds {
        0..MINUTE => return None,
        MINUTE..HOUR => MINUTE,
        HOUR..DAY => HOUR,
        DAY.. => DAY,
    };
    Some(Duration::from_secs(seconds / unit * unit))
}

fn pluralize(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn format_time(time: Timestamp) -> String {
    time.whole_seconds()
}

#[cfg(test)]
mod tests;
