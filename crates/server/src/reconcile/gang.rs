//! Decides the next goal of a running job's nodes, and whether the attempt has ended. A pure function of the nodes' reports:
//! nothing is remembered between calls, so a restarted server decides the same.

use corro_model::NodeId;
use corro_model::batchai::BatchAiError;
use corro_model::explain::GPU_ERROR;
use corro_model::gpu::reading::bounded_errors;
use corro_model::gpu::xid_table;
use corro_model::layout::Role;
use corro_model::node::{AGENT_RESTARTED, GangAddress, Goal, ObservedTask, RankExit, TaskFailure, TaskPhase};
use corro_model::root_cause::{End, find_root_cause};

/// Grace period when another rank failed. The whole gang must be down within two seconds.
const FAILURE_GRACE_MS: u64 = 1_000;
/// Grace period when a user or the wall-clock limit ends the job, so that ranks can save their work.
const TERMINATE_GRACE_MS: u64 = 5_000;
/// Errors of GPUs in the details of a failed job, at most.
const MAX_GPU_ERRORS: usize = 4;

pub struct Gang<'a> {
    /// The job's nodes in rank order; the first is the master.
    pub members: Vec<Member<'a>>,
    pub terminating: bool,
    /// The attempt is evicted, with this grace period in milliseconds.
    pub evicted: Option<u64>,
    /// The wall-clock limit, when it is exceeded; for the message.
    pub overdue: Option<String>,
    /// Rendezvous address, when an earlier pass learned it.
    pub known_address: Option<GangAddress>,
    /// Number of ranks that must exit with 0.
    pub n_ranks: usize,
    /// There are parameter servers, which are stopped when the workers are done.
    pub has_servers: bool,
}

pub struct Member<'a> {
    pub node: &'a NodeId,
    /// Declared lost: its reports no longer count.
    pub lost: bool,
    /// Its record is removed: none of its processes can interfere with another attempt.
    pub gone: bool,
    /// Its agent is connected and not shutting down.
    pub connected: bool,
    /// Its agent has reported since this server started, so a missing report means that it has not begun.
    pub is_known: bool,
    /// Its report about this attempt.
    pub report: Option<&'a ObservedTask>,
}

#[derive(Debug, PartialEq)]
pub enum GangDecision {
    Continue(Goal),
    End(Outcome),
}

#[derive(Debug, PartialEq)]
pub enum Outcome {
    Succeeded,
    Failed {
        exit_code: Option<i32>,
        errors: Vec<BatchAiError>,
    },
    /// A node was lost; the job may be retried.
    NodeLost {
        node: NodeId,
    },
    /// The ranks were stopped before they were done, without a failure of their own.
    Interrupted,
}

/// Rendezvous address, once the master has reported it; with the ports of all nodes once all have reported theirs. An address
/// with ports never changes: some nodes may have received it.
pub fn address(gang: &Gang) -> Option<GangAddress> {
    let known = gang.known_address.as_ref();
    if let Some(known) = known.filter(|known| !known.ports.is_empty()) {
        return Some(known.clone());
    }
    let prepared_address = |member: &Member| match &member.report?.phase {
        TaskPhase::Prepared { gang } => Some(gang.clone()),
        _ => None,
    };
    let mut address = gang.members.first().and_then(prepared_address).flatten().or_else(|| known.cloned())?;
    address.ports.clear();
    let prepared_address: Option<Vec<_>> = gang.members.iter().map(prepared_address).collect();
    let ports = prepared_address
        .into_iter()
        .flatten()
        .map(|prepared_address| prepared_address.and_then(|mut prepared_address| prepared_address.ports.pop()));
    let ports: Vec<_> = ports.collect();
    if ports.iter().any(Option::is_some) {
        address.ports = ports.into_iter().map(Option::unwrap_or_default).collect();
    }
    Some(address)
}

pub fn decide(gang: &Gang) -> GangDecision {
    let lost = gang.members.iter().find(|member| member.lost);
    let cause = root_cause(gang);
    let stopping = gang.terminating || gang.evicted.is_some() || gang.overdue.is_some();
    if lost.is_none() && cause.is_none() && !stopping {
        return decide_healthy(gang);
    }
    let ended = |member: &Member| if member.lost { member.gone } else { member.report.is_some_and(has_ended) };
    let all_ended = gang.members.iter().all(ended);
    if all_ended && lost.is_none() && cause.is_none() && !gang.terminating && has_succeeded(gang) {
        // All ranks finished before the stop took effect.
        return GangDecision::End(Outcome::Succeeded);
    }
    // A failure next to a silent node is often its consequence. Wait until the node is heard or declared lost, so that the
    // cause is reported and not the consequence.
    let is_cause_uncertain = cause.is_some() && gang.members.iter().any(|member| !member.lost && !member.connected);
    if is_cause_uncertain || !all_ended {
        let failed = lost.is_some() || cause.is_some();
        let grace_ms = match gang.evicted {
            _ if failed && !stopping => FAILURE_GRACE_MS,
            Some(grace_ms) if !gang.terminating && gang.overdue.is_none() => grace_ms,
            _ => TERMINATE_GRACE_MS,
        };
        return GangDecision::Continue(Goal::Stop { grace_ms });
    }
    GangDecision::End(match (lost, cause) {
        // The state machine reports the termination, whatever the ranks' exits.
        _ if gang.terminating => Outcome::Failed { exit_code: None, errors: Vec::new() },
        (Some(member), _) => Outcome::NodeLost { node: member.node.clone() },
        // A restarted agent counts as a lost node: the job is not at fault.
        (None, Some(RootCause::Task(node, failure))) if failure.error.code == AGENT_RESTARTED => {
            Outcome::NodeLost { node: node.clone() }
        }
        _ if gang.evicted.is_some() => Outcome::Interrupted,
        (None, Some(cause)) => cause.outcome(gang),
        (None, None) => overdue_outcome(gang),
    })
}

/// Whether every rank exited with 0 by itself, or the one process that stands for all ranks did (`mpirun`).
fn has_succeeded(gang: &Gang) -> bool {
    let exits = gang.members.iter().filter_map(|member| member.report).flat_map(|report| &report.exits);
    let good = exits.filter(|exit| exit.role.decides() && exit.succeeded() && !exit.stopped);
    good.clone().count() >= gang.n_ranks || good.into_iter().any(|exit| exit.role.is_whole())
}

fn decide_healthy(gang: &Gang) -> GangDecision {
    let phases: Vec<_> = gang.members.iter().map(|member| member.report.map(|report| &report.phase)).collect();
    if phases.iter().all(|phase| matches!(phase, Some(TaskPhase::Ended { .. }))) {
        return GangDecision::End(if has_succeeded(gang) { Outcome::Succeeded } else { Outcome::Interrupted });
    }
    let may_continue = |report: &ObservedTask| report.exits.is_empty() || gang.has_servers;
    let still_runs = |member: &Member| member.report.is_some_and(|report| may_continue(report) && !has_ended(report));
    if has_succeeded(gang) && gang.members.iter().any(still_runs) {
        // All ranks succeeded; nodes without ranks and parameter servers were only kept for them.
        return GangDecision::Continue(Goal::Stop { grace_ms: FAILURE_GRACE_MS });
    }
    if phases.len() == 1 {
        return GangDecision::Continue(Goal::PrepareAndRun);
    }
    let prepared = phases.iter().all(|phase| !matches!(phase, None | Some(TaskPhase::Preparing)));
    match address(gang) {
        Some(address) if prepared => GangDecision::Continue(Goal::Run { gang: address }),
        // Some ranks run, one does not, and a restarted server has lost the rendezvous address: the attempt cannot complete.
        None if prepared && phases.iter().any(|phase| !matches!(phase, Some(TaskPhase::Prepared { .. }))) => {
            match gang.members.iter().find(|m| m.report.is_some_and(|r| matches!(r.phase, TaskPhase::Prepared { .. })))
            {
                Some(_) => GangDecision::Continue(Goal::Stop { grace_ms: FAILURE_GRACE_MS }),
                // All ranks run already, so the address no longer matters.
                None => GangDecision::Continue(Goal::Run { gang: GangAddress::new("", 0, 0) }),
            }
        }
        _ => GangDecision::Continue(Goal::Prepare),
    }
}

/// The outcome by the failure that caused the others; `None` if nothing has failed.
pub fn failure(gang: &Gang) -> Option<Outcome> {
    root_cause(gang).map(|cause| cause.outcome(gang))
}

/// The failure that caused the others.
enum RootCause<'a> {
    Task(&'a NodeId, &'a TaskFailure),
    Rank(&'a NodeId, &'a RankExit),
}

/// Finds the failure that caused the others, see [`find_root_cause`].
fn root_cause<'a>(gang: &Gang<'a>) -> Option<RootCause<'a>> {
    let mut ends = Vec::new();
    let mut causes = Vec::new();
    for (node, report) in gang.members.iter().filter_map(|member| Some((member.node, member.report?))) {
        let failure = match &report.phase {
            TaskPhase::Ended { failure } => failure.as_ref(),
            _ => None,
        };
        // Ranks that were stopped because their node failed are no cause.
        for exit in report.exits.iter().filter(|exit| !(exit.stopped && failure.is_some())) {
            let rank = matches!(exit.role, Role::Rank).then_some(exit.rank);
            let (at, succeeded, stopped) = (exit.at.millis(), exit.succeeded(), exit.stopped);
            ends.push(End { rank, at, succeeded, stopped, stderr: &exit.stderr_tail });
            causes.push(RootCause::Rank(node, exit));
        }
        if let Some(failure) = failure {
            ends.push(End { rank: None, at: failure.at.millis(), succeeded: false, stopped: false, stderr: "" });
            causes.push(RootCause::Task(node, failure));
        }
    }
    find_root_cause(&ends).map(|index| causes.swap_remove(index))
}

impl RootCause<'_> {
    fn outcome(self, gang: &Gang) -> Outcome {
        match self {
            RootCause::Task(node, failure) => {
                let mut error = failure.error.clone();
                if !error.details.iter().any(|detail| detail.name == "Node") {
                    error = error.with("Node", node.as_str());
                }
                Outcome::Failed { exit_code: failure.exit_code, errors: vec![error] }
            }
            RootCause::Rank(node, exit) => {
                let error = BatchAiError::new("JobFailed", "Job failed with non-zero exit code");
                let error = match exit.role {
                    Role::Rank | Role::Command => error.with("Rank", exit.rank.to_string()),
                    role => error.with("Process", role.name(exit.index)),
                };
                let mut error = error.with("Node", node.as_str());
                error = match (exit.signal, exit.exit_code) {
                    (Some(signal), _) => error.with("Signal", signal.to_string()),
                    (None, code) => error.with("ExitCode", code.unwrap_or(-1).to_string()),
                };
                if let Some(limit) = &exit.out_of_memory {
                    error = error.with("OutOfMemory", limit);
                }
                if let Some(limit) = &exit.out_of_processes {
                    error = error.with("OutOfProcesses", limit);
                }
                for gpu_error in gpu_errors(gang, node, exit) {
                    error = error.with(GPU_ERROR, gpu_error);
                }
                if !exit.stderr_tail.trim().is_empty() {
                    error = error.with("StdErr", exit.stderr_tail.trim_end());
                }
                Outcome::Failed { exit_code: Some(exit.shell_code()), errors: vec![error] }
            }
        }
    }
}

/// Errors of GPUs that explain a failed rank: those on its node, then failed GPUs of other nodes, for which it may have
/// waited.
fn gpu_errors(gang: &Gang, failed: &NodeId, exit: &RankExit) -> Vec<String> {
    let own = bounded_errors(exit.gpu_errors.clone()).into_iter().map(|error| error.describe());
    let others = gang.members.iter().filter(|member| member.node != failed).filter_map(|member| {
        let mut errors = member.report?.exits.iter().flat_map(|exit| &exit.gpu_errors);
        let error = errors.find(|error| xid_table::is_hardware(error.xid))?.clone().bounded();
        Some(format!("{} On node {}", error.describe(), member.node))
    });
    own.chain(others).take(MAX_GPU_ERRORS).collect()
}

fn overdue_outcome(gang: &Gang) -> Outcome {
    let limit = gang.overdue.clone().unwrap_or_default();
    let message = format!("The job ran longer than its constraints.maxWallClockTime of {limit} and was stopped");
    Outcome::Failed { exit_code: None, errors: vec![BatchAiError::new("JobWallClockTimeExceeded", message)] }
}

fn has_ended(report: &ObservedTask) -> bool {
    matches!(report.phase, TaskPhase::Ended { .. })
}

#[cfg(test)]
mod tests;
