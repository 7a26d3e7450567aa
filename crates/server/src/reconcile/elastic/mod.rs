//! Decides how a running elastic job continues: which nodes it goes on without, what its processes do (`world`), and when it has
//! ended. The loss of any node is survived while the minimum remains; then it ends like the loss of a gang's node.

pub mod world;

use std::sync::Arc;
use std::time::Duration;

use corro_elastic::Outcome as Training;
use corro_model::batchai::BatchAiError;
use corro_model::explain::NODE_LOST;
use corro_model::node::{AGENT_RESTARTED, Goal, LeavingNode, TaskFailure, TaskPhase};
use corro_model::{JobKey, NodeId};
use corro_store::{JobRecord, Release, Timeline};

use self::world::{ElasticGang, ElasticNode, RankLimits};
use super::gang::{self, Gang, GangDecision, Member, Outcome};
use super::steps::Step;

/// Grace of processes that did not leave a node by themselves in time.
const LEAVE_GRACE_MS: u64 = 5_000;
/// Grace of what is left when the training is over.
const END_GRACE_MS: u64 = 1_000;

#[derive(Debug, Default, PartialEq)]
pub struct ElasticDecision {
    /// Nodes that the job goes on without.
    pub steps: Vec<Step>,
    /// `None` while a restarted server does not know enough; the nodes then go on with what they have.
    pub goal: Option<Goal>,
    pub end: Option<Outcome>,
}

/// Decides about one job. `elastic` is what this server knows of its processes, and is made here.
pub fn decide(
    (key, job): (&JobKey, &JobRecord),
    gang: &Gang,
    elastic: &mut Option<ElasticGang>,
    clock: &Timeline,
) -> ElasticDecision {
    if let Some(training) = elastic.as_ref().and_then(ElasticGang::outcome).filter(|_| !gang.terminating) {
        return over(gang, training);
    }
    let limits = rank_limits(job);
    let departures = departures(job, gang);
    let left = gang.members.len() - departures.len();
    let stopping = gang.terminating || gang.evicted.is_some() || gang.overdue.is_some();
    let cannot_go_on = left < limits.min / limits.per_node.max(1);
    if stopping || cannot_go_on {
        return without_survived_failures(gang, |gang| match gang::decide(gang) {
            GangDecision::Continue(Goal::Stop { grace_ms }) => stop(grace_ms),
            GangDecision::End(outcome) => ended(outcome),
            // Nothing stops a gang whose lost members had failed before.
            GangDecision::Continue(_) => stop(LEAVE_GRACE_MS),
        });
    }
    let nodes: Vec<ElasticNode> =
        gang.members.iter().filter(|member| !is_among(member, &departures)).map(node_of(job)).collect();
    if elastic.is_none() {
        // A server that was restarted goes on once it has heard all nodes that it has not given up.
        if !gang.members.iter().all(|member| member.lost || (member.connected && member.is_known)) {
            return ElasticDecision { steps: departure_steps(key, departures), ..ElasticDecision::default() };
        }
        let is_known = nodes.iter().any(|node| node.report.is_some_and(|report| report.world.is_some()));
        *elastic = Some(match is_known {
            true => ElasticGang::from_reports(limits, &nodes, clock.uptime()),
            false => ElasticGang::new(limits, clock.uptime()),
        });
    }
    let Some(elastic) = elastic else { return ElasticDecision::default() };
    elastic.update(&nodes, limits.per_node, clock.uptime());
    if let Some(failure) = failure_before_start(gang, elastic) {
        return failure;
    }
    if let Some(training) = elastic.outcome() {
        return over(gang, training);
    }
    let leaving = gang.members.iter().filter_map(|member| {
        let release = job.elastic()?.release_of(member.node)?;
        let grace_ms = leave_grace(release, elastic.has_process_on(member.node), clock)?;
        Some(LeavingNode { node: member.node.clone(), grace_ms })
    });
    let leaving = leaving.collect();
    elastic.set_leaving(leaving);
    let world = Arc::new(elastic.world().clone());
    ElasticDecision { steps: departure_steps(key, departures), goal: Some(Goal::Elastic { world }), end: None }
}

fn rank_limits(job: &JobRecord) -> RankLimits {
    let per_node = job.spec.ranks_per_node();
    let (min, max) = job.spec.elastic.map_or((1, 1), |elastic| (elastic.min_node_count, elastic.max_node_count));
    let ranks = |nodes: i32| nodes.max(1) as usize * per_node;
    RankLimits { min: ranks(min), max: ranks(max), per_node }
}

fn node_of<'a>(job: &JobRecord) -> impl Fn(&Member<'a>) -> ElasticNode<'a> {
    |member| {
        let report = member.report.and_then(|report| report.elastic.as_deref());
        let is_prepared = member.report.is_some_and(|report| report.phase == TaskPhase::Running);
        let is_released = job.elastic().is_some_and(|elastic| elastic.release_of(member.node).is_some());
        ElasticNode { node: member.node, is_host: is_prepared && !is_released && report.is_some(), report }
    }
}

/// Node that the job goes on without, the reason, and whether it does not get the node again.
type Departure = (NodeId, BatchAiError, bool);

fn departures(job: &JobRecord, gang: &Gang) -> Vec<Departure> {
    gang.members.iter().filter_map(|member| departure(job, member)).collect()
}

fn departure(job: &JobRecord, member: &Member) -> Option<Departure> {
    let node = member.node;
    let release = job.elastic().and_then(|elastic| elastic.release_of(node));
    if member.lost {
        let released = release.map(|release| release.reason.clone());
        let lost = || {
            let message = job.cause_of_loss(node).map_or_else(|| format!("Node {node} was lost"), str::to_owned);
            BatchAiError::new(NODE_LOST, message).with("Node", node.as_str())
        };
        return Some((node.clone(), released.unwrap_or_else(lost), false));
    }
    let TaskPhase::Ended { failure } = &member.report?.phase else { return None };
    if let Some(release) = release {
        return Some((node.clone(), release.reason.clone(), false));
    }
    match failure {
        Some(failure) if failure.error.code == AGENT_RESTARTED => {
            Some((node.clone(), failure.error.clone().with("Node", node.as_str()), false))
        }
        Some(failure) if has_begun(member) => Some((node.clone(), node_failed(node, failure), true)),
        _ => None,
    }
}

/// Whether the node has taken part in a generation.
fn has_begun(member: &Member) -> bool {
    let world = member.report.and_then(|report| report.elastic.as_ref()?.world.as_ref());
    world.is_some_and(|world| world.generation > 0)
}

fn node_failed(node: &NodeId, failure: &TaskFailure) -> BatchAiError {
    let message = format!("Node {node} cannot run the job: {}", failure.error.message);
    BatchAiError::new(&failure.error.code, message).with("Node", node.as_str())
}

fn is_among(member: &Member, departures: &[Departure]) -> bool {
    departures.iter().any(|(node, ..)| node == member.node)
}

fn departure_steps(key: &JobKey, departures: Vec<Departure>) -> Vec<Step> {
    let step = |(node, reason, refused)| Step::RemoveFromJob(key.clone(), node, reason, refused);
    departures.into_iter().map(step).collect()
}

/// Grace with which the rest of a node's part ends now; `None` while its processes may leave by themselves.
fn leave_grace(release: &Release, has_process: bool, clock: &Timeline) -> Option<u64> {
    let grace = Duration::from_millis(LEAVE_GRACE_MS);
    match has_process {
        false => Some(0),
        true => (clock.now().plus(grace) >= clock.rebase(release.by)).then_some(LEAVE_GRACE_MS),
    }
}

/// The failure of a node of the start, before anything was computed: it is that of the job.
fn failure_before_start(gang: &Gang, elastic: &ElasticGang) -> Option<ElasticDecision> {
    let failed = |member: &Member| {
        member.report.is_some_and(|report| matches!(report.phase, TaskPhase::Ended { failure: Some(_) }))
    };
    if elastic.world().generation > 0 || !gang.members.iter().any(failed) {
        return None;
    }
    Some(match gang::decide(gang) {
        GangDecision::Continue(Goal::Stop { grace_ms }) => stop(grace_ms),
        GangDecision::Continue(_) => stop(END_GRACE_MS),
        GangDecision::End(outcome) => ended(outcome),
    })
}

/// The training is over: the nodes end, then the job.
fn over(gang: &Gang, training: &Training) -> ElasticDecision {
    let has_ended = |member: &Member| {
        member.lost || member.report.is_some_and(|report| matches!(report.phase, TaskPhase::Ended { .. }))
    };
    if !gang.members.iter().all(has_ended) {
        return stop(END_GRACE_MS);
    }
    match training {
        Training::Succeeded => ended(Outcome::Succeeded),
        Training::Failed { reason } => ended(match gang::failure(gang) {
            Some(Outcome::Failed { exit_code, errors }) => {
                let errors = errors.into_iter().map(|error| error.with("Elastic", reason)).collect();
                Outcome::Failed { exit_code, errors }
            }
            _ => Outcome::Failed { exit_code: None, errors: vec![BatchAiError::new("JobFailed", reason)] },
        }),
    }
}

/// Decides with the reports as if no process had failed: the others went on without those.
fn without_survived_failures(gang: &Gang, decide: impl FnOnce(&Gang) -> ElasticDecision) -> ElasticDecision {
    let mut reports: Vec<_> = gang.members.iter().map(|member| member.report.cloned()).collect();
    for report in reports.iter_mut().flatten() {
        report.exits.retain(|exit| exit.succeeded() || exit.stopped);
    }
    let members = gang.members.iter().zip(&reports);
    let members = members.map(|(member, report)| Member { report: report.as_ref(), ..*member }).collect();
    decide(&Gang {
        members,
        overdue: gang.overdue.clone(),
        known_address: None,
        // No number of ranks is a success by itself.
        n_ranks: usize::MAX,
        ..*gang
    })
}

fn stop(grace_ms: u64) -> ElasticDecision {
    ElasticDecision { goal: Some(Goal::Stop { grace_ms }), ..ElasticDecision::default() }
}

fn ended(outcome: Outcome) -> ElasticDecision {
    ElasticDecision { end: Some(outcome), ..ElasticDecision::default() }
}

#[cfg(test)]
mod tests;
