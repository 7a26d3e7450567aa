//! Simulated cluster for planner tests, written in a compact notation or generated at random; a test advances its time.
//!
//! Nodes are words: `.` idle, `+` preparing, `*` allocating, `x` unusable, `!` lost, `-` leaving, a job's name for a
//! node that runs it. Jobs are `NAME:NODES@LIMIT`, limits in seconds; `^` before the name is high priority, `_` low. The
//! nodes of an elastic job are `MIN-ASKED-MAX`.

#![allow(dead_code, reason = "each suite uses its part")]

use std::collections::BTreeMap;
use std::time::Duration;

use corro_model::batchai::{DeallocationOption, Priority};
use corro_model::{ClusterKey, GroupKey, JobKey, NodeId, Timestamp};
use corro_sched::*;

pub const POLICY: Policy = Policy::STANDARD;

#[derive(Clone, Debug)]
pub struct World {
    /// Seconds.
    pub now: u64,
    pub target: Target,
    pub initial: usize,
    pub low_priority: bool,
    pub nodes: Vec<Node>,
    pub jobs: Vec<Job>,
    /// Longest recent run time, the same for all jobs, in seconds.
    pub longest_run: Option<u64>,
    /// Seconds that an elastic job takes to free a node, unless the planner's limit is shorter.
    pub release_takes: u64,
    key: ClusterKey,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub id: NodeId,
    pub index: u32,
    pub kind: Kind,
    pub since: u64,
    pub host: Option<String>,
    pub preempted: bool,
    /// Second at which the elastic job frees it, and the latest one.
    pub releasing: Option<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Allocating,
    Preparing,
    Idle,
    Busy(JobKey),
    Leaving,
    Unusable,
    Lost,
}

#[derive(Clone, Debug)]
pub struct Job {
    pub key: JobKey,
    pub priority: Priority,
    pub submitted: u64,
    pub needs: usize,
    /// Minimum and maximum of an elastic job, whose `needs` is the number asked for.
    pub elastic: Option<(usize, usize)>,
    /// Nodes of a running elastic job in rank order, and the second of the last change.
    pub nodes: Vec<NodeId>,
    pub resized: u64,
    pub limit: u64,
    /// Actual run time; never longer than the limit.
    pub takes: u64,
    pub started: Option<u64>,
    pub ended: Option<u64>,
}

pub fn key(name: &str) -> JobKey {
    GroupKey::new("g").workspace("w").experiment("e").job(name)
}

pub fn name(key: &JobKey) -> &str {
    key.as_str().rsplit('/').next().unwrap_or_default()
}

pub fn node_id(index: u32) -> NodeId {
    NodeId::parse(&format!("tvm-1_{index}-20180718t174802z-p")).expect("a node id")
}

pub fn manual(count: usize) -> Target {
    Target::Manual { count, option: DeallocationOption::Requeue }
}

pub fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds as i64 * 1000)
}

impl World {
    pub fn new(target: Target) -> Self {
        let key = GroupKey::new("g").workspace("w").cluster("c");
        // Late enough that any event can lie long in the past.
        let (initial, low_priority) = (0, false);
        Self {
            now: 1_000_000,
            target,
            initial,
            low_priority,
            nodes: Vec::new(),
            jobs: Vec::new(),
            longest_run: None,
            release_takes: 10,
            key,
        }
    }

    /// Cluster with `nodes` in their state for an hour, the jobs that run on them, and the queue in order of
    /// submission.
    pub fn drawn(target: Target, nodes: &str, running: &str, queue: &str) -> Self {
        let mut world = Self::new(target);
        let hour_ago = world.now - 3600;
        for word in nodes.split_whitespace() {
            let kind = match word {
                "." => Kind::Idle,
                "+" => Kind::Preparing,
                "*" => Kind::Allocating,
                "x" => Kind::Unusable,
                "!" => Kind::Lost,
                "-" => Kind::Leaving,
                job => Kind::Busy(key(job)),
            };
            let since = if matches!(word, "+" | "*") { world.now } else { hour_ago };
            world.add_node(kind, since);
        }
        for word in running.split_whitespace() {
            let job = world.read_job(word);
            let (started, resized) = (Some(world.now), hour_ago);
            let nodes = world.nodes.iter().filter(|node| node.kind == Kind::Busy(job.key.clone()));
            let nodes = nodes.map(|node| node.id.clone()).collect();
            world.jobs.push(Job { started, resized, nodes, ..job });
        }
        for word in queue.split_whitespace() {
            let job = world.read_job(word);
            world.jobs.push(job);
        }
        world
    }

    /// The same cluster as a low-priority one; its nodes are numbered from 101.
    pub fn low_priority(mut self) -> Self {
        self.low_priority = true;
        self.key = GroupKey::new("g").workspace("w").cluster("low");
        for node in &mut self.nodes {
            (node.index, node.id) = (node.index + 100, node_id(node.index + 100));
        }
        self
    }

    pub fn add_node(&mut self, kind: Kind, since: u64) {
        let index = self.nodes.last().map_or(1, |node| node.index + 1);
        self.nodes.push(Node { id: node_id(index), index, kind, since, host: None, preempted: false, releasing: None });
    }

    pub fn submit(&mut self, priority: Priority, needs: usize, limit: u64, takes: u64) -> JobKey {
        let key = key(&format!("j{}", self.jobs.len()));
        let (started, ended, submitted) = (None, None, self.now);
        let takes = takes.min(limit);
        let (elastic, nodes, resized) = (None, Vec::new(), 0);
        self.jobs.push(Job {
            key: key.clone(),
            priority,
            submitted,
            needs,
            elastic,
            nodes,
            resized,
            limit,
            takes,
            started,
            ended,
        });
        key
    }

    fn read_job(&self, word: &str) -> Job {
        let (priority, word) = match word.split_at(1) {
            ("^", rest) => (Priority::High, rest),
            ("_", rest) => (Priority::Low, rest),
            _ => (Priority::Normal, word),
        };
        let (name, numbers) = word.split_once(':').expect("NAME:NODES@LIMIT");
        let (needs, limit) = numbers.split_once('@').unwrap_or((numbers, "3600"));
        let mut counts = needs.split('-').map(|count| count.parse().expect("nodes"));
        let (first, limit) = (counts.next().expect("nodes"), limit.parse().expect("seconds"));
        // `MIN-ASKED-MAX`
        let (needs, elastic) = match (counts.next(), counts.next()) {
            (Some(asked), Some(max)) => (asked, Some((first, max))),
            _ => (first, None),
        };
        let (submitted, started, ended) = (self.now, None, None);
        let (nodes, resized) = (Vec::new(), 0);
        Job { key: key(name), priority, submitted, needs, elastic, nodes, resized, limit, takes: limit, started, ended }
    }

    pub fn job(&self, key: &JobKey) -> &Job {
        self.jobs.iter().find(|job| job.key == *key).expect("a job of this world")
    }

    pub fn busy_nodes(&self, key: &JobKey) -> usize {
        self.nodes.iter().filter(|node| node.kind == Kind::Busy(key.clone())).count()
    }

    pub fn view(&self) -> ClusterView<'_> {
        let node = |node: &'_ Node| -> (u32, Timestamp) { (node.index, at(node.since)) };
        let nodes = self.nodes.iter().map(|n| {
            let (index, since) = node(n);
            let availability = match &n.kind {
                Kind::Allocating => NodeAvailability::Allocating,
                Kind::Preparing => NodeAvailability::Preparing,
                Kind::Idle => NodeAvailability::Idle,
                Kind::Busy(job) => NodeAvailability::Busy(job),
                Kind::Leaving => NodeAvailability::Leaving,
                Kind::Unusable => NodeAvailability::Unusable,
                Kind::Lost => NodeAvailability::Lost,
            };
            NodeView {
                id: &n.id,
                index,
                availability,
                since,
                host: n.host.as_deref(),
                preempted: n.preempted,
                releasing: n.releasing.map(|(_, by)| at(by)),
            }
        });
        ClusterView {
            key: &self.key,
            target: self.target,
            initial: self.initial,
            region: "eastus",
            low_priority: self.low_priority,
            cores: 1,
            nodes: nodes.collect(),
            jobs: Box::new(JobList(&self.jobs, self.longest_run)),
        }
    }

    pub fn plan(&self, policy: &Policy) -> Plan {
        plan(&Snapshot { now: at(self.now), clusters: vec![self.view()], capacity: RegionCapacity::UNLIMITED }, policy)
    }

    /// Names of the jobs that start, in the order of the plan.
    pub fn starts(&self, policy: &Policy) -> String {
        let plan = self.plan(policy);
        plan.placements.iter().map(|placement| name(&placement.job)).collect::<Vec<_>>().join(" ")
    }

    /// Makes a plan and applies it; new nodes are ready at once.
    pub fn follow_plan(&mut self, policy: &Policy) -> Plan {
        let plan = self.plan(policy);
        let now = self.now;
        for placement in &plan.placements {
            let job = self.jobs.iter_mut().find(|job| job.key == placement.job).expect("a job of this world");
            assert_eq!(job.started.replace(now), None, "a job starts once");
            match job.elastic {
                None => assert_eq!(placement.nodes.len(), job.needs, "a gang starts whole"),
                Some((min, max)) => {
                    assert!((min..=max).contains(&placement.nodes.len()), "an elastic job in its range")
                }
            }
            (job.nodes, job.resized) = (placement.nodes.clone(), now);
            for id in &placement.nodes {
                let node = self.nodes.iter_mut().find(|node| node.id == *id).expect("a node of this world");
                assert_eq!(node.kind, Kind::Idle, "a node runs one job");
                (node.kind, node.since) = (Kind::Busy(placement.job.clone()), now);
            }
        }
        for resize in &plan.resize {
            let job = self.jobs.iter_mut().find(|job| job.key == resize.job).expect("a job of this world");
            assert!(job.started.is_some() && job.ended.is_none(), "a running job changes");
            job.resized = now;
            job.nodes.extend(resize.add.iter().cloned());
            for node in &mut self.nodes {
                if resize.add.contains(&node.id) {
                    assert_eq!(node.kind, Kind::Idle, "a node runs one job");
                    (node.kind, node.since) = (Kind::Busy(resize.job.clone()), now);
                }
                if resize.remove.contains(&node.id) {
                    assert_eq!(node.kind, Kind::Busy(resize.job.clone()), "a job gives what it has");
                    let by = now + policy.release_timeout.as_secs();
                    let (first, latest) = node.releasing.unwrap_or((now + self.release_takes.min(by - now), by));
                    node.releasing = Some((first, latest));
                }
            }
        }
        self.nodes.retain(|node| !plan.retire.contains(&node.id));
        for _ in 0..plan.allocate.first().map_or(0, |(_, count)| *count) {
            self.add_node(Kind::Idle, now);
        }
        plan
    }

    /// Advances time by one second and ends jobs that are done.
    pub fn pass_second(&mut self) {
        self.now += 1;
        let now = self.now;
        for node in &mut self.nodes {
            if node.releasing.is_some_and(|(at, _)| at <= now) {
                (node.kind, node.since, node.releasing) = (Kind::Idle, now, None);
                self.jobs.iter_mut().for_each(|job| job.nodes.retain(|id| *id != node.id));
            }
        }
        for job in self.jobs.iter_mut().filter(|job| job.ended.is_none()) {
            if job.started.is_some_and(|started| started + job.takes <= now) {
                job.ended = Some(now);
                for node in self.nodes.iter_mut().filter(|node| node.kind == Kind::Busy(job.key.clone())) {
                    (node.kind, node.since, node.releasing) = (Kind::Idle, now, None);
                }
            }
        }
    }

    /// Explanations of all queued jobs, by name, reduced with `extract`.
    pub fn explain_waits<T>(
        &self,
        policy: &Policy,
        times: &dyn RunTimes,
        extract: impl Fn(&WaitExplanation) -> T,
    ) -> BTreeMap<String, T> {
        let view = self.view();
        let scaling = scale::plan_scale(&view, at(self.now), policy);
        let wanted = self.jobs.iter().map(|job| &job.key).collect();
        let explain_waits = wait_explanation::explain_waits(&view, &scaling, at(self.now), policy, times, &wanted);
        explain_waits.into_iter().map(|(key, explanation)| (name(key).to_owned(), extract(&explanation))).collect()
    }
}

/// Jobs in order of submission; those without a start time are the queue.
struct JobList<'a>(&'a [Job], Option<u64>);

impl Jobs for JobList<'_> {
    fn waiting(&self, priority: Priority) -> WaitingIter<'_> {
        let queued =
            self.0.iter().enumerate().filter(move |(_, job)| job.priority == priority && job.started.is_none());
        Box::new(queued.map(|(i, job)| WaitingView {
            key: &job.key,
            priority: job.priority,
            sequence: i as u64,
            submitted: at(job.submitted),
            node_count: job.elastic.map_or(job.needs, |(min, _)| min),
            elastic: range(job),
            limit: Duration::from_secs(job.limit),
        }))
    }

    fn running(&self) -> RunningIter<'_> {
        Box::new(self.0.iter().enumerate().filter(|(_, job)| job.ended.is_none()).filter_map(|(i, job)| {
            let started = job.started?;
            let elastic = range(job).map(|range| RunningElastic {
                range,
                priority: job.priority,
                sequence: i as u64,
                nodes: &job.nodes,
                resized: at(job.resized),
                refused: &[],
            });
            Some(RunningView { key: &job.key, started: at(started), ends_by: at(started + job.limit), elastic })
        }))
    }

    fn longest_run(&self, _: &JobKey) -> Option<Duration> {
        self.1.map(Duration::from_secs)
    }
}

fn range(job: &Job) -> Option<ElasticRange> {
    job.elastic.map(|(min, max)| ElasticRange { min, max, asked: job.needs })
}

/// No history: no job has ever ended.
pub struct NoHistory;

impl RunTimes for NoHistory {
    fn typical_run_time(&self, _: &JobKey) -> Option<Duration> {
        None
    }

    fn remaining(&self, _: &JobKey) -> Option<Duration> {
        None
    }
}
