//! Elastic jobs over passes with simulated agents: they start and end the processes that the goals name, and ask for places.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use corro_model::batchai::BatchAiError;
use corro_model::node::*;
use corro_model::state::{JobState, NodeEvent, NodeState, PreemptionCause};
use corro_model::{AttemptId, NodeId};
use corro_store::{JobRecord, State, Timeline};
use serde_json::json;

use crate::gateway::NodeObservation;
use crate::provider::Provider;
use crate::reconcile::ReconcileConfig;
use crate::reconcile::pass::{decide_scoped, goals};
use crate::reconcile::pass_input::{GangMemory, PassInput, PassScope};
use crate::reconcile::steps::apply;
use crate::testing::*;

/// Provider whose agents are alive. The operator of its machines, such as Slurm, takes one of them back.
#[derive(Default)]
struct TestProvider {
    reclaimed: Option<NodeId>,
}

impl Provider for TestProvider {
    fn start(&self, _: &crate::NewNode, _: corro_model::Secret) {}
    fn is_alive(&self, _: &NodeId) -> Option<bool> {
        Some(true)
    }
    fn ask_to_stop(&self, _: &NodeId) {}
    fn ensure_gone(&self, _: &NodeId, _: bool) -> bool {
        true
    }
    fn pending_reclaim(&self, node: &NodeId, _: Duration) -> Option<PreemptionCause> {
        (self.reclaimed.as_ref() == Some(node)).then_some(PreemptionCause::Walltime)
    }
}

/// A process of a simulated agent.
#[derive(Clone, Debug, Default)]
struct Process {
    slot: usize,
    /// The generation in which it computes.
    generation: u64,
    waits_after: Option<u64>,
    succeeded: Option<bool>,
}

/// A server and its agents.
struct World {
    state: State,
    memory: GangMemory,
    clock: Timeline,
    seconds: u64,
    /// Processes by node and number; a node without an entry runs no part of the attempt.
    agents: BTreeMap<NodeId, BTreeMap<u64, Process>>,
    ended: BTreeSet<NodeId>,
    worlds: HashMap<NodeId, ElasticWorld>,
    /// This node's agent has connected and not reported yet.
    silent: Option<NodeId>,
    provider: TestProvider,
    /// Processes stop computing when they are told of a change.
    obey: bool,
}

impl World {
    fn new(nodes: u32, spec: serde_json::Value) -> World {
        let mut state = state(manual(nodes), nodes);
        submit_spec(&mut state, "e", spec, &[]);
        World {
            state,
            memory: GangMemory::default(),
            clock: Timeline::starting(NOW),
            seconds: 0,
            agents: BTreeMap::new(),
            ended: BTreeSet::new(),
            worlds: HashMap::new(),
            silent: None,
            provider: TestProvider::default(),
            obey: true,
        }
    }

    fn job(&self, name: &str) -> &JobRecord {
        &self.state.jobs[&key(name)]
    }

    fn observations(&self) -> BTreeMap<NodeId, NodeObservation> {
        let of = |(id, record): (&NodeId, &std::sync::Arc<corro_store::NodeRecord>)| {
            let task = self.agents.get(id).map(|processes| {
                let observed = |(process, own): (&u64, &Process)| ObservedProcess {
                    process: *process,
                    slot: own.slot,
                    waits_after: own.waits_after,
                    succeeded: own.succeeded,
                };
                let elastic = ObservedElastic {
                    rendezvous: Some(format!("{id}:1")),
                    processes: processes.iter().map(observed).collect(),
                    world: self.worlds.get(id).cloned(),
                };
                let phase = match self.ended.contains(id) {
                    true => TaskPhase::Ended { failure: None },
                    false => TaskPhase::Running,
                };
                let attempt: AttemptId = self.job("e").attempt();
                ObservedTask { attempt, phase, exits: Vec::new(), elastic: Some(Box::new(elastic)) }
            });
            let observed =
                ObservedNode { ready: true, address: Some("127.0.0.4".to_owned()), task, ..ObservedNode::default() };
            let observed = if self.silent.as_ref() == Some(id) { ObservedNode::default() } else { observed };
            let (epoch, silent_for) = (record.epoch, Duration::ZERO);
            (id.clone(), NodeObservation { epoch, connected: true, silent_for, observed, run_time: None })
        };
        let connected = self
            .state
            .nodes
            .iter()
            .filter(|(_, record)| !matches!(record.state(), NodeState::Leaving | NodeState::Unusable { .. }));
        connected.map(of).collect()
    }

    /// One pass of the server, and what the agents do about it.
    fn pass(&mut self) {
        let observations = self.observations();
        let config = ReconcileConfig {
            lease: Duration::from_secs(10),
            containers_on_host: false,
            strict_isolation: None,
            masks_secrets: true,
            shared_temp: std::path::PathBuf::new(),
            shared_disk_probe: None,
            scheduling: crate::scheduler_view::SchedulingConfig::DEFAULT,
        };
        let is_leaving = |node: &corro_store::NodeRecord| *node.state() == NodeState::Leaving;
        let leaving = self.state.nodes.iter().filter(|(_, node)| is_leaving(node));
        let (gone, emptied) = (leaving.map(|(id, _)| id.clone()).collect(), BTreeSet::new());
        let input = PassInput {
            state: &self.state,
            observations: &observations,
            clock: &self.clock,
            uptime: Duration::from_secs(1),
            gone: &gone,
            emptied: &emptied,
            config: &config,
            provider: &self.provider,
        };
        let (steps, _) = decide_scoped(&input, PassScope::Full, &mut self.memory);
        let now = self.clock.now();
        self.state = self.state.simulate(|txn| apply(txn, steps, now)).0;
        let goals = goals(&self.state, &observations, &self.clock, &mut self.memory);
        let nodes: Vec<NodeId> = self.state.nodes.keys().cloned().collect();
        for node in nodes {
            let goal = match self.state.nodes[&node].state() {
                NodeState::Running { attempt, .. } => goals.get(attempt),
                _ => {
                    // Nothing of an earlier part is left.
                    self.agents.remove(&node);
                    self.worlds.remove(&node);
                    self.ended.remove(&node);
                    continue;
                }
            };
            match goal {
                Some(Goal::Elastic { world }) => self.follow(&node, world),
                Some(Goal::Stop { .. }) => self.stop(&node),
                _ => {}
            }
        }
        self.seconds += 1;
        self.clock.observe(at(self.seconds), Duration::from_secs(self.seconds));
    }

    fn stop(&mut self, node: &NodeId) {
        let processes = self.agents.entry(node.clone()).or_default();
        processes.values_mut().for_each(|process| _ = process.succeeded.get_or_insert(false));
        self.ended.insert(node.clone());
    }

    fn follow(&mut self, node: &NodeId, world: &ElasticWorld) {
        if world.leaving.iter().any(|leaving| leaving.node == *node) {
            return self.stop(node);
        }
        let obey = self.obey;
        let processes = self.agents.entry(node.clone()).or_default();
        for ordered in world.processes.iter().filter(|process| process.node == *node) {
            let first = Process { slot: ordered.slot, waits_after: Some(0), ..Process::default() };
            processes.entry(ordered.process).or_insert(first);
        }
        for (process, own) in processes.iter_mut().filter(|(_, own)| own.succeeded.is_none()) {
            if world.dismissed.contains(process) || world.killed.contains(process) {
                (own.waits_after, own.succeeded) = (None, Some(true));
                continue;
            }
            let is_member = world.members.iter().any(|member| member.process == *process);
            if let Some(after) = own.waits_after.filter(|after| is_member && world.generation > *after) {
                assert!(world.place(*process, after).is_some());
                (own.generation, own.waits_after) = (world.generation, None);
            } else if own.waits_after.is_none() && obey && world.update.is_some() {
                own.waits_after = Some(own.generation);
            }
        }
        self.worlds.insert(node.clone(), world.clone());
    }

    /// Passes until the condition holds.
    fn until(&mut self, what: &str, condition: impl Fn(&World) -> bool) {
        for _ in 0..200 {
            if condition(self) {
                return;
            }
            self.pass();
        }
        panic!("{what}: {:?} {:?} {:?}", self.job("e").state(), self.worlds, self.agents);
    }

    /// Members of the last generation compute: their number.
    fn computing(&self) -> usize {
        let processes = self.agents.values().flatten().filter(|(_, own)| own.succeeded.is_none());
        let latest = self.worlds.values().map(|world| world.generation).max().unwrap_or_default();
        processes.filter(|(_, own)| own.waits_after.is_none() && own.generation == latest && latest > 0).count()
    }

    fn lose(&mut self, index: u32) {
        let node = node_id(index);
        self.agents.remove(&node);
        self.worlds.remove(&node);
        let error = BatchAiError::new("NodeLost", "its agent ended");
        let now = self.clock.now();
        change(&mut self.state, |txn| {
            txn.node_event(&node, NodeEvent::Broken { error, lost: true }, now).expect("it was heard");
        });
        // The survivors notice it and ask again.
        for own in self.agents.values_mut().flat_map(|processes| processes.values_mut()) {
            if own.succeeded.is_none() {
                own.waits_after.get_or_insert(own.generation);
            }
        }
    }

    fn sizes(&self) -> Vec<(i32, String)> {
        let changes = &self.job("e").elastic().expect("it is elastic").changes;
        changes.iter().map(|change| (change.node_count, change.reason.code.clone())).collect()
    }
}

fn spec(min: i32, asked: i32, max: i32) -> serde_json::Value {
    json!({
        "nodeCount": asked, "elastic": {"minNodeCount": min, "maxNodeCount": max},
        "horovodSettings": {"pythonScriptFilePath": "a.py"}
    })
}

fn codes(sizes: &[(i32, &str)]) -> Vec<(i32, String)> {
    sizes.iter().map(|(count, code)| (*count, (*code).to_owned())).collect()
}

#[test]
fn an_elastic_job_survives_the_loss_of_nodes_down_to_its_minimum() {
    let mut world = World::new(3, spec(2, 3, 4));
    world.until("starts", |world| world.computing() == 3);
    world.lose(1);
    world.until("shrinks", |world| world.computing() == 2);
    assert_eq!(world.job("e").attempts, 1);
    assert_eq!(world.sizes(), codes(&[(3, "Started"), (2, "NodeLost")]));
    world.lose(2);
    world.until("is requeued", |world| world.job("e").attempts != 1 || *world.job("e").state() == JobState::Queued);
    assert_eq!(world.job("e").lost_attempts.len(), 1);
}

#[test]
fn an_elastic_job_takes_idle_nodes_and_gives_them_back() {
    let mut world = World::new(2, spec(1, 1, 4));
    world.until("starts", |world| world.computing() == 2);
    submit(&mut world.state, "a", 1, "PT1H");
    world.until("gives back", |world| matches!(world.job("a").state(), JobState::Running { .. }));
    assert!(world.seconds < 30, "its processes left by themselves, not at the limit: {}", world.seconds);
    world.until("computes", |world| world.computing() == 1);
    let now = world.clock.now();
    end(&mut world.state, "a", now);
    world.until("grows", |world| world.computing() == 2);
    let reasons = codes(&[(2, "Started"), (1, "GaveWay"), (2, "NodesIdle")]);
    assert_eq!(world.sizes(), reasons);
    assert_eq!(world.job("e").attempts, 1);
}

#[test]
fn a_job_that_does_not_let_go_loses_the_node_at_the_limit() {
    let mut world = World::new(2, spec(1, 2, 2));
    world.obey = false;
    world.until("starts", |world| world.computing() == 2);
    submit(&mut world.state, "a", 1, "PT1H");
    let asked = world.seconds;
    world.until("lets go", |world| matches!(world.job("a").state(), JobState::Running { .. }));
    let waited = world.seconds - asked;
    assert!((50..=62).contains(&waited), "{waited} s");
}

#[test]
fn a_restarted_server_goes_on_with_the_same_generation() {
    let mut world = World::new(3, spec(2, 2, 3));
    world.until("starts", |world| world.computing() == 3);
    let before: Vec<_> = world.worlds.values().cloned().collect();
    world.memory = GangMemory::default();
    // An agent has connected and not reported yet.
    world.silent = Some(node_id(2));
    world.pass();
    world.silent = None;
    world.pass();
    let after: Vec<_> = world.worlds.values().cloned().collect();
    assert_eq!(before.len(), after.len());
    for world in after {
        assert_eq!((world.generation, &world.members), (before[0].generation, &before[0].members));
        assert_eq!((&world.processes, world.last_process), (&before[0].processes, before[0].last_process));
    }
    // It is restarted while processes wait for the next generation.
    world.lose(3);
    world.memory = GangMemory::default();
    world.until("goes on", |world| world.computing() == 2);
    let latest = world.worlds.values().map(|world| world.generation).max();
    assert_eq!(latest, Some(before[0].generation + 1));
    assert_eq!(world.job("e").attempts, 1);
}

#[test]
fn an_elastic_job_succeeds_when_its_processes_have() {
    let mut world = World::new(2, spec(1, 2, 2));
    world.until("starts", |world| world.computing() == 2);
    for own in world.agents.values_mut().flat_map(|processes| processes.values_mut()) {
        own.succeeded = Some(true);
    }
    world.until("ends", |world| world.job("e").state().is_terminal());
    assert!(matches!(world.job("e").state(), JobState::Succeeded { .. }), "{:?}", world.job("e").state());
}

fn check_preemption(take: impl FnOnce(&mut World)) {
    let mut world = World::new(3, spec(2, 3, 3));
    world.until("starts", |world| world.computing() == 3);
    take(&mut world);
    world.until("shrinks", |world| world.computing() == 2 && world.sizes().len() > 1);
    assert_eq!(world.sizes()[1], (2, "NodePreempted".to_owned()));
    assert_eq!(world.job("e").attempts, 1);
    let node = world.state.nodes.get(&node_id(2));
    assert!(node.is_none_or(|node| !matches!(node.state(), NodeState::Running { .. })));
}

#[test]
fn preempted_nodes_are_changes_of_size() {
    check_preemption(|world| {
        let rules = crate::scheduler_view::SchedulingConfig::DEFAULT;
        let preemption = rules.preemption(PreemptionCause::Dedicated, world.clock.now());
        change(&mut world.state, |txn| assert!(txn.preempt(&node_id(2), preemption)));
    });
}

/// As Slurm and Kubernetes take machines back.
#[test]
fn nodes_that_their_provider_takes_back_are_changes_of_size() {
    check_preemption(|world| world.provider.reclaimed = Some(node_id(2)));
}
