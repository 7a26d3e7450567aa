//! Duration of one scheduler pass over 5,000 nodes and 100,000 queued jobs, and the number of gangs it places.
//!
//! `--jobs N` measures another number of jobs; the promise is for the default.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use corro_model::batchai::{AllocationState, JobSpec, Priority, Provisioning, ProvisioningState};
use corro_model::state::{JobEvent, NodeEvent};
use corro_model::time::Span;
use corro_model::{ClusterKey, GroupKey, JobKey, NodeId, Timestamp};
use corro_sched::{Plan, Policy, RegionCapacity, RunTimes, scale, wait_explanation};
use corro_server::scheduler_view;
use corro_store::{ClusterRecord, JobRecord, NewJob, NodeRecord, State, Timeline, Txn};
use serde_json::json;

use super::{Scale, Verdict};
use crate::stats::{Samples, print_heading};

pub const PROMISE: &str =
    "5,000 nodes and 100,000 queued jobs: under 50 ms a pass, at least 1,000 gangs placed a second";
const NODES: usize = 5_000;
const QUEUED_JOBS: usize = 100_000;
const LIMIT_MS: f64 = 50.0;
const MIN_GANGS_PER_SECOND: f64 = 1_000.0;

/// The pure planner with the server's own view of its state, as in every pass; no disk and no nodes. Between passes some jobs
/// end and as many are submitted, so the queue length stays constant.
pub fn run(scale: Scale, arguments: &[String]) -> Result<Verdict> {
    let queue = super::parse_jobs_option(arguments, QUEUED_JOBS)?;
    let passes = scale.pick(150, 1_000);
    let mut slowest: f64 = 0.0;
    let mut fewest = f64::INFINITY;
    print_heading();
    for (name, clusters) in [("one cluster", 1), ("1,000 clusters", 1_000)] {
        let mut scenario = Scenario::new(clusters, queue)?;
        let mut first = Samples::new(format!("{name}: a pass with all nodes idle"), "ms");
        let mut busy = Samples::new(format!("{name}: a pass, few nodes idle"), "ms");
        let mut alone = Samples::new(format!("{name}: of that the planner alone"), "ms");
        let mut gangs = Samples::new(format!("{name}: gangs placed in a pass"), "gangs");
        let (whole, _, plan) = scenario.pass();
        first.add(whole);
        scenario.apply(&plan)?;
        let (mut placed, mut planning) = (0, 0.0);
        let began = Instant::now();
        for _ in 0..passes {
            scenario.end_some_jobs()?;
            let (whole, planner, plan) = scenario.pass();
            busy.add(whole);
            alone.add(planner);
            gangs.add(plan.placements.len() as f64);
            planning += whole / 1e3;
            placed += plan.placements.len();
            scenario.apply(&plan)?;
        }
        let elapsed = began.elapsed().as_secs_f64();
        [&first, &busy, &alone, &gangs].into_iter().for_each(Samples::print_row);
        scenario.measure_explanations(name).print_row();
        println!(
            "{name}: {placed} gangs placed; {:.0} a second of planning, {:.0} a second with all changes of the state",
            f64::from(placed as u32) / planning,
            f64::from(placed as u32) / elapsed,
        );
        slowest = slowest.max(first.max()).max(busy.p99());
        fewest = fewest.min(f64::from(placed as u32) / elapsed);
    }
    Ok(Verdict {
        met: slowest < LIMIT_MS && fewest >= MIN_GANGS_PER_SECOND,
        figures: format!(
            "p99 of a pass {slowest:.1} ms (promised: under {LIMIT_MS:.0}), {fewest:.0} gangs/s (promised: {MIN_GANGS_PER_SECOND:.0})"
        ),
    })
}

/// A server's state in memory: clusters of idle nodes, and a queue for each.
struct Scenario {
    state: State,
    clusters: Vec<ClusterKey>,
    running: Vec<JobKey>,
    spec: JobSpec,
    now: Timestamp,
    random: Lcg,
}

impl Scenario {
    fn new(clusters: usize, queue: usize) -> Result<Self> {
        let workspace = GroupKey::new("bench").workspace("plan");
        let clusters: Vec<_> = (0..clusters).map(|i| workspace.cluster(&format!("c{i}"))).collect();
        let spec =
            json!({"nodeCount": 1, "stdOutErrPathPrefix": "x", "customToolkitSettings": {"commandLine": "true"}});
        let now = Timestamp::from_millis(1_542_000_000_000);
        let mut scenario = Self {
            state: State::default(),
            clusters,
            running: Vec::new(),
            spec: serde_json::from_value(spec)?,
            now,
            random: Lcg(7),
        };
        let per_cluster = NODES / scenario.clusters.len();
        for (pool, key) in scenario.clusters.clone().into_iter().enumerate() {
            scenario.state.put(key.clone(), Arc::new(cluster(pool as u32, per_cluster, now)?));
            for index in 1..=per_cluster as u32 {
                let id = NodeId::new(pool as u32, index, now);
                scenario.state.put(id, Arc::new(NodeRecord::allocating(key.clone(), index, String::new(), now)));
            }
        }
        let ids: Vec<_> = scenario.state.nodes.keys().cloned().collect();
        scenario.change(|txn, now| {
            for id in &ids {
                txn.node_event(id, NodeEvent::Joined, now)?;
                txn.node_event(id, NodeEvent::Ready, now)?;
            }
            Ok(())
        })?;
        (0..queue).for_each(|_| scenario.submit());
        Ok(scenario)
    }

    /// Submits a job to some cluster: mostly small ones, some gangs that take a good part of it.
    fn submit(&mut self) {
        self.now = self.now.plus(Duration::from_millis(100));
        let cluster = self.clusters[self.random.below(self.clusters.len())].clone();
        let cluster_nodes = NODES / self.clusters.len();
        let needs = match self.random.below(100) {
            0..60 => 1,
            60..85 => 2 + self.random.below(7),
            85..97 => 16,
            97..99 => 64,
            _ => cluster_nodes / 2,
        };
        self.state.last_sequence += 1;
        let sequence = self.state.last_sequence;
        let mut spec = self.spec.clone();
        spec.node_count = needs.min(cluster_nodes).max(1) as i32;
        spec.scheduling_priority = [Priority::Low, Priority::Normal, Priority::High][self.random.below(3)];
        spec.constraints.max_wall_clock_time = Span(Duration::from_secs(60 + 60 * self.random.below(600) as u64));
        let job = NewJob {
            name: format!("j{sequence}"),
            guid: format!("guid-{sequence}"),
            sequence,
            cluster,
            spec,
            secrets: None,
            fingerprint: String::new(),
            segment: String::new(),
            provisioning: Provisioning::new(ProvisioningState::Succeeded, self.now),
        };
        let experiment = GroupKey::new("bench").workspace("plan").experiment(&format!("e{}", sequence % 50));
        self.state.put(experiment.job(&job.name), Arc::new(JobRecord::queued(job, self.now)));
    }

    /// One pass: milliseconds for view and plan, milliseconds of the planner in it, the plan.
    fn pass(&mut self) -> (f64, f64, Plan) {
        self.now = self.now.plus(Duration::from_millis(500));
        let began = Instant::now();
        let clock = Timeline::starting(self.now);
        let view = scheduler_view::view(&self.state, &clock, RegionCapacity::UNLIMITED);
        let viewed = Instant::now();
        let plan = corro_sched::plan(&view, &Policy::STANDARD);
        let (planner, whole) = (viewed.elapsed(), began.elapsed());
        (whole.as_secs_f64() * 1e3, planner.as_secs_f64() * 1e3, plan)
    }

    fn apply(&mut self, plan: &Plan) -> Result<()> {
        self.running.extend(plan.placements.iter().map(|placement| placement.job.clone()));
        self.change(|txn, now| {
            let mut placements = plan.placements.iter();
            placements.try_for_each(|placement| Ok(txn.place(&placement.job, placement.nodes.clone(), now)?))
        })
    }

    /// Every fiftieth running job ends and is deleted, and another is submitted.
    fn end_some_jobs(&mut self) -> Result<()> {
        let ending: Vec<JobKey> = (0..(self.running.len() / 50).max(1))
            .map(|_| self.running.swap_remove(self.random.below(self.running.len())))
            .collect();
        self.change(|txn, now| {
            for key in &ending {
                txn.end_attempt(key, JobEvent::Succeeded { at: now }, now)?;
                txn.remove::<JobRecord>(key);
            }
            Ok(())
        })?;
        ending.iter().for_each(|_| self.submit());
        Ok(())
    }

    fn change(&mut self, change: impl FnOnce(&mut Txn, Timestamp) -> Result<()>) -> Result<()> {
        let now = self.now;
        let (state, result) = self.state.simulate(|txn| change(txn, now));
        self.state = state;
        result
    }

    /// Time to explain why the last job in a queue waits: the upper bound for one job.
    fn measure_explanations(&self, name: &str) -> Samples {
        let mut samples = Samples::new(format!("{name}: why the last in a queue waits"), "ms");
        for key in self.clusters.iter().take(20) {
            let Some((last, _)) = self.state.queued_jobs(key).last() else { continue };
            let began = Instant::now();
            let clock = Timeline::starting(self.now);
            let view = scheduler_view::cluster_view(&self.state, key, &self.state.clusters[key], &clock);
            let scaling = scale::plan_scale(&view, self.now, &Policy::STANDARD);
            let jobs = HashSet::from([last]);
            let explanations: HashMap<_, _> =
                wait_explanation::explain_waits(&view, &scaling, self.now, &Policy::STANDARD, &NoHistory, &jobs);
            samples.add(began.elapsed().as_secs_f64() * 1e3);
            assert!(explanations.contains_key(last), "a queued job has an explanation");
        }
        samples
    }
}

/// No run times of earlier jobs are known.
struct NoHistory;

impl RunTimes for NoHistory {
    fn typical_run_time(&self, _: &JobKey) -> Option<Duration> {
        None
    }

    fn remaining(&self, _: &JobKey) -> Option<Duration> {
        None
    }
}

fn cluster(pool: u32, nodes: usize, now: Timestamp) -> Result<ClusterRecord> {
    let scale = json!({"manual": {"targetNodeCount": nodes}});
    let spec = json!({"vmSize": "D1", "userAccountSettings": {"adminUserName": "a"}, "scaleSettings": scale});
    Ok(ClusterRecord {
        name: format!("c{pool}"),
        guid: String::new(),
        pool,
        next_index: nodes as u32 + 1,
        spec: serde_json::from_value(spec).map_err(|error| anyhow!("a cluster: {error}"))?,
        secrets: None,
        fingerprint: String::new(),
        provisioning: Provisioning::new(ProvisioningState::Succeeded, now),
        allocation: AllocationState::Steady,
        allocation_since: now,
    })
}

/// Linear congruential generator, with the same sequence in every run.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n.max(1)
    }
}
