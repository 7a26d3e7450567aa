//! Processes and generations of one elastic attempt: feeds the nodes' reports to the driver and keeps its decisions as the
//! [`ElasticWorld`] that all nodes get. Can be made again from reports alone, so that a restarted server goes on where it was.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use corro_elastic::{Action, Driver, Host, OnFailure, Outcome, Resumed, Settings};
use corro_model::NodeId;
use corro_model::node::{ElasticMember, ElasticProcess, ElasticWorld, LeavingNode, ObservedElastic, ObservedProcess};

/// Failed processes of one attempt after which the job fails: a program that fails again and again is not started for ever.
const MAX_FAILED_PROCESSES: usize = 10;

/// How long processes wait for the minimum of others.
const START_TIMEOUT: Duration = Duration::from_secs(600);

/// Number of ranks of an elastic job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankLimits {
    pub min: usize,
    pub max: usize,
    pub per_node: usize,
}

/// One node of the attempt as the driver sees it.
pub struct ElasticNode<'a> {
    pub node: &'a NodeId,
    /// It is prepared and is not being given back.
    pub is_host: bool,
    pub report: Option<&'a ObservedElastic>,
}

/// The driver of an attempt with the decisions so far.
#[derive(Clone, Debug)]
pub struct ElasticGang {
    driver: Driver,
    /// Time zero of the driver.
    began: Duration,
    hosts: Vec<Host>,
    world: ElasticWorld,
    /// The last request of each process that the driver knows.
    waits: BTreeMap<u64, u64>,
    ended: BTreeSet<u64>,
    n_failed: usize,
    outcome: Option<Outcome>,
}

impl ElasticGang {
    pub fn new(limits: RankLimits, now: Duration) -> Self {
        Self::with_driver(Driver::new(settings(limits), 0), ElasticWorld::default(), now)
    }

    /// The gang that an earlier server decided about, from the reports of all its nodes.
    pub fn from_reports(limits: RankLimits, nodes: &[ElasticNode], now: Duration) -> Self {
        let reports = || nodes.iter().filter_map(|node| Some((node.node, node.report?)));
        // A generation is sent to all nodes, so the latest one that any node knows is the one that began last.
        let worlds = reports().filter_map(|(_, report)| report.world.as_ref());
        let latest = worlds.max_by_key(|world| (world.generation, world.last_process)).cloned().unwrap_or_default();
        let mut world = ElasticWorld { processes: Vec::new(), leaving: Vec::new(), ..latest };
        let mut resumed = Resumed { generation: world.generation, ..Resumed::default() };
        for (node, report) in reports() {
            let known =
                report.world.iter().flat_map(|world| world.processes.iter()).filter(|known| known.node == *node);
            let started: BTreeSet<u64> = report.processes.iter().map(|process| process.process).collect();
            // Some may not have been started yet: the node does it, for it has the order.
            let ordered = known.filter(|known| !started.contains(&known.process)).cloned();
            // The driver must hear of successes: they complete the training.
            let living = report.processes.iter().filter(|process| process.succeeded != Some(false));
            let living = living.map(|process| ElasticProcess {
                process: process.process,
                node: node.clone(),
                slot: process.slot,
            });
            world.processes.extend(living.chain(ordered));
            let numbers = report.world.iter().map(|world| world.last_process).chain(started);
            world.last_process = numbers.fold(world.last_process, u64::max);
        }
        world.processes.sort_by_key(|process| process.process);
        let lives = |member: &ElasticMember| world.processes.iter().any(|known| known.process == member.process);
        if !world.members.iter().all(lives) {
            // The earlier server may not have told the survivors that a member is gone.
            world.update = Some(world.update.unwrap_or_default() | corro_elastic::REMOVED);
        }
        resumed.last_process = world.last_process;
        resumed.members = world.members.iter().map(|member| member.process).collect();
        resumed.processes =
            world.processes.iter().map(|process| (process.process, process.node.to_string(), process.slot)).collect();
        let driver = Driver::resume(settings(limits), 0, resumed);
        let mut gang = Self::with_driver(driver, world, now);
        // Failures that the earlier server knew of. A success is for the driver: it completes the training.
        for (_, report) in reports() {
            for process in report.processes.iter().filter(|process| process.succeeded == Some(false)) {
                gang.ended.insert(process.process);
                gang.n_failed += 1;
            }
        }
        gang
    }

    fn with_driver(driver: Driver, world: ElasticWorld, now: Duration) -> Self {
        let (waits, ended) = (BTreeMap::new(), BTreeSet::new());
        Self { driver, began: now, hosts: Vec::new(), world, waits, ended, n_failed: 0, outcome: None }
    }

    pub fn world(&self) -> &ElasticWorld {
        &self.world
    }

    /// The end of the training, once it is decided.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// Whether a process of the node may still run.
    pub fn has_process_on(&self, node: &NodeId) -> bool {
        self.world.processes.iter().any(|process| process.node == *node)
    }

    /// Takes over the reports, and decides what follows.
    pub fn update(&mut self, nodes: &[ElasticNode], per_node: usize, now: Duration) {
        let time = now.saturating_sub(self.began);
        let mut hosts: Vec<Host> = nodes
            .iter()
            .filter(|node| node.is_host)
            .map(|node| Host { name: node.node.to_string(), slots: per_node })
            .collect();
        hosts.sort_by(|one, other| one.name.cmp(&other.name));
        if hosts != self.hosts {
            self.hosts.clone_from(&hosts);
            let actions = self.driver.on_hosts(time, &hosts);
            self.apply(actions, nodes);
        }
        self.end_processes_of_other_nodes(nodes, time);
        for node in nodes {
            for process in node.report.iter().flat_map(|report| &report.processes) {
                self.take_report(process, nodes, time);
            }
        }
        let actions = self.driver.on_time(time);
        self.apply(actions, nodes);
        if self.n_failed >= MAX_FAILED_PROCESSES && self.outcome.is_none() {
            let reason = format!("{} processes of the attempt failed: it is not continued", self.n_failed);
            self.outcome = Some(Outcome::Failed { reason });
        }
    }

    /// Processes of nodes that the attempt has lost are dead.
    fn end_processes_of_other_nodes(&mut self, nodes: &[ElasticNode], time: Duration) {
        let is_gone = |process: &&ElasticProcess| !nodes.iter().any(|node| *node.node == process.node);
        let gone: Vec<u64> = self.world.processes.iter().filter(is_gone).map(|process| process.process).collect();
        for process in gone {
            self.forget(process);
            let actions = self.driver.on_exit(time, process, false);
            self.apply(actions, nodes);
        }
    }

    fn take_report(&mut self, report: &ObservedProcess, nodes: &[ElasticNode], time: Duration) {
        let process = report.process;
        if let Some(success) = report.succeeded {
            if self.ended.insert(process) {
                let was_told = self.world.killed.contains(&process) || self.world.dismissed.contains(&process);
                self.n_failed += usize::from(!success && !was_told);
                self.forget(process);
                let actions = self.driver.on_exit(time, process, success);
                self.apply(actions, nodes);
            }
        } else if let Some(after) = report.waits_after
            && self.waits.insert(process, after) != Some(after)
        {
            let actions = self.driver.on_waiting(time, process, after);
            self.apply(actions, nodes);
        }
    }

    fn forget(&mut self, process: u64) {
        self.ended.insert(process);
        self.waits.remove(&process);
        self.world.processes.retain(|known| known.process != process);
        self.world.dismissed.retain(|known| *known != process);
        self.world.killed.retain(|known| *known != process);
    }

    fn apply(&mut self, actions: Vec<Action>, nodes: &[ElasticNode]) {
        for action in actions {
            match action {
                Action::Start { process, host, slot } => {
                    self.world.last_process = self.world.last_process.max(process);
                    if let Some(node) = nodes.iter().find(|node| node.node.as_str() == host) {
                        self.world.processes.push(ElasticProcess { process, node: node.node.clone(), slot });
                    }
                }
                Action::Begin { generation, members } => {
                    let first =
                        members.first().and_then(|first| nodes.iter().find(|node| node.node.as_str() == first.host));
                    self.world.rendezvous = first.and_then(|node| node.report?.rendezvous.clone());
                    (self.world.generation, self.world.update) = (generation, None);
                    self.world.members = members
                        .into_iter()
                        .map(|member| ElasticMember {
                            process: member.process,
                            rank: member.rank,
                            local_rank: member.local_rank,
                            local_size: member.local_size,
                            cross_rank: member.cross_rank,
                            cross_size: member.cross_size,
                        })
                        .collect();
                }
                Action::Dismiss { process } => self.world.dismissed.push(process),
                Action::Kill { process } => self.world.killed.push(process),
                Action::Notify { change, .. } => self.world.update = Some(change as u8),
                Action::Report { text } => tracing::info!(text, "elastic job"),
                Action::Finish(outcome) => _ = self.outcome.get_or_insert(outcome),
            }
        }
    }

    /// Sets the nodes whose part of the attempt ends.
    pub fn set_leaving(&mut self, leaving: Vec<LeavingNode>) {
        self.world.leaving = leaving;
    }
}

fn settings(limits: RankLimits) -> Settings {
    Settings {
        min: limits.min,
        max: Some(limits.max),
        elastic_timeout: START_TIMEOUT,
        reset_limit: None,
        cooldown: None,
        on_failure: OnFailure::RestartOnHost,
    }
}
