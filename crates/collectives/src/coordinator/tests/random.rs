//! Property test: ranks follow a random script in different orders over streams with random delivery. Invariants: every operation completes
//! exactly once on every rank, no operation is executed before all members have requested it, two ranks execute their common operations in
//! the same order, and nothing stays pending.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::simulated_job::{SimulatedJob, config, request};
use crate::Dtype;
use crate::coordinator::*;

/// Xorshift generator; reproducible from the seed that proptest prints.
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Part of the script that all ranks end together: with a join, or by removing the process set they added.
#[derive(Clone, Debug)]
struct Epoch {
    /// Ranks of a process set that exists during the epoch.
    set: Option<Vec<u32>>,
    units: Vec<Unit>,
}

/// One submission.
#[derive(Clone, Debug)]
struct Unit {
    in_set: bool,
    grouped: bool,
    tensors: Vec<Request>,
    /// Rank whose request for the first tensor does not match.
    mismatched_rank: Option<usize>,
}

fn any_epoch(rng: &mut Rng, size: usize) -> Epoch {
    let set: Vec<u32> = (0..size as u32).filter(|_| !rng.one_in(3)).collect();
    let set = (rng.one_in(2) && !set.is_empty() && set.len() < size).then_some(set);
    let mut units = Vec::new();
    for _round in 0..1 + rng.below(4) {
        let mut names: Vec<usize> = (0..6).collect();
        for at in (1..names.len()).rev() {
            names.swap(at, rng.below(at + 1));
        }
        while !names.is_empty() {
            let grouped = rng.one_in(3);
            let n_tensors = if grouped { 1 + rng.below(names.len()) } else { 1 };
            let tensors = names.drain(..n_tensors).map(|name| any_request(rng, name)).collect();
            let mismatched_rank = rng.one_in(8).then(|| rng.below(size));
            units.push(Unit { in_set: set.is_some() && rng.one_in(2), grouped, tensors, mismatched_rank });
        }
    }
    Epoch { set, units }
}

fn any_request(rng: &mut Rng, name: usize) -> Request {
    // Mostly the same request under a name, so that the cache is used.
    let variety = if rng.one_in(4) { rng.below(6) } else { name };
    let kind =
        [Kind::Allreduce, Kind::Allreduce, Kind::Allgather, Kind::Broadcast, Kind::Reducescatter, Kind::Alltoall]
            [variety];
    let dtype = [Dtype::F32, Dtype::I64][usize::from(rng.one_in(4))];
    Request { kind, dtype, shape: vec![12 * (1 + variety as u64), 2], ..request(&format!("tensor.{name}")) }
}

/// Progress of one rank through the script.
struct ScriptState {
    epoch: usize,
    stage: Stage,
    /// Units of the epoch that are not submitted yet, in the order of the script.
    remaining: Vec<usize>,
    set: Option<ProcessSet>,
    /// Joins before everything is submitted.
    joins_early: bool,
}

impl ScriptState {
    /// True if all remaining units may be skipped: those in a set that is removed, or all after a join.
    fn may_end(&self, epoch: &Epoch) -> bool {
        // A unit in the set may wait for a rank that has already requested its removal, so every rank may skip it.
        let can_skip = |unit: &usize| if epoch.set.is_some() { epoch.units[*unit].in_set } else { self.joins_early };
        self.remaining.iter().all(can_skip)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    Start,
    Making(RequestId),
    Working,
    Ending(RequestId),
    Done,
}

/// Simulated job with the script and the bookkeeping of the invariants.
struct Simulation {
    job: SimulatedJob,
    script: Vec<Epoch>,
    states: Vec<ScriptState>,
    rng: Rng,
    request_ids: Vec<Vec<RequestId>>,
    /// Per rank, how often it has requested each tensor (generation and name), or skipped it by joining.
    requested: Vec<HashMap<(SetGeneration, String), usize>>,
    /// Per rank, the number of actions checked, and how often each tensor was executed or failed.
    n_checked: Vec<usize>,
    answered: Vec<HashMap<(SetGeneration, String), usize>>,
    names_of: Vec<HashMap<RequestId, (SetGeneration, String)>>,
}

impl Simulation {
    fn new(size: usize, seed: u64, cache_capacity: usize, fusion_threshold: u64) -> Simulation {
        let mut rng = Rng(seed | 1);
        let script = (0..1 + rng.below(5)).map(|_| any_epoch(&mut rng, size)).collect();
        let disable_group_fusion = rng.one_in(3);
        let config = Config { cache_capacity, fusion_threshold, disable_group_fusion, ..config(size as u32) };
        let state =
            |_| ScriptState { epoch: 0, stage: Stage::Start, remaining: Vec::new(), set: None, joins_early: false };
        Simulation {
            job: SimulatedJob::with(config),
            script,
            states: (0..size).map(state).collect(),
            rng,
            request_ids: vec![Vec::new(); size],
            requested: vec![HashMap::new(); size],
            n_checked: vec![0; size],
            answered: vec![HashMap::new(); size],
            names_of: vec![HashMap::new(); size],
        }
    }

    fn run(&mut self) {
        let size = self.job.size();
        // Far more steps than any script needs; `check_end` reports ranks that are stuck.
        for _step in 0..200_000 {
            let rank = self.rng.below(size);
            match self.rng.below(6) {
                0 | 1 => self.advance(rank),
                2 => self.job.flush(rank),
                3 => drop(self.job.deliver_up(rank)),
                4 => self.job.drain(),
                _ => {
                    self.job.deliver_down(rank);
                    self.check_actions(rank);
                }
            }
            if self.states.iter().all(|state| state.stage == Stage::Done) {
                break;
            }
        }
        self.job.run();
        (0..size).for_each(|rank| self.check_actions(rank));
    }

    fn advance(&mut self, rank: usize) {
        let now = self.job.now;
        let state = &mut self.states[rank];
        let Some(epoch) = self.script.get(state.epoch) else {
            state.stage = Stage::Done;
            return;
        };
        match state.stage {
            Stage::Start => {
                (state.remaining, state.set) = ((0..epoch.units.len()).collect(), None);
                state.joins_early = self.rng.one_in(3);
                state.stage = Stage::Working;
                if let Some(ranks) = &epoch.set {
                    let request_id = self.job.workers[rank].add_set(ranks.clone(), now).expect("allowed");
                    self.request_ids[rank].push(request_id);
                    state.stage = Stage::Making(request_id);
                }
            }
            Stage::Making(request_id) => {
                if let Some(super::simulated_job::End::SetsAdded(sets)) = self.job.end(rank, request_id) {
                    state.set = Some(sets[0].clone());
                    state.stage = Stage::Working;
                }
            }
            Stage::Working if state.may_end(epoch) && (state.remaining.is_empty() || self.rng.one_in(12)) => {
                self.end_epoch(rank);
            }
            Stage::Working => self.submit_some(rank),
            Stage::Ending(request_id) => {
                if self.job.end(rank, request_id).is_some() {
                    state.epoch += 1;
                    state.stage = Stage::Start;
                }
            }
            Stage::Done => {}
        }
    }

    /// Submits one of the next units, unless an earlier unit with the same name is not submitted yet.
    fn submit_some(&mut self, rank: usize) {
        let state = &self.states[rank];
        let units = &self.script[state.epoch].units;
        let n_next = if self.rng.one_in(4) { usize::MAX } else { 4 };
        let at = self.rng.below(state.remaining.len().min(n_next));
        let unit = units[state.remaining[at]].clone();
        let clashes = |earlier: &usize| {
            let earlier = &units[*earlier];
            let same = |one: &Request| unit.tensors.iter().any(|other| one.name == other.name);
            earlier.in_set == unit.in_set && earlier.tensors.iter().any(same)
        };
        if state.remaining[..at].iter().any(clashes) {
            return;
        }
        let (set, generation) = match &state.set {
            Some(set) if unit.in_set => {
                if !set.ranks.contains(&(rank as u32)) {
                    self.states[rank].remaining.remove(at);
                    return;
                }
                (set.id, set.generation)
            }
            _ => (SetId::GLOBAL, GLOBAL_GENERATION),
        };
        let mut requests = unit.tensors.clone();
        requests.iter_mut().for_each(|request| {
            request.set = set;
            if request.kind == Kind::Allgather {
                request.shape[0] = 1 + rank as u64;
            }
            let n_members = self.job.workers[rank].ranks_of(set).map_or(1, |ranks| ranks.len() as u64);
            if request.kind == Kind::Alltoall {
                request.shape[0] = 2 * n_members;
            }
            if request.kind == Kind::Broadcast {
                request.root = self.job.workers[rank].ranks_of(set).map_or(0, |ranks| ranks[0]);
            }
        });
        if unit.mismatched_rank == Some(rank) {
            requests[0].dtype = Dtype::U8;
        }
        let names: Vec<String> = requests.iter().map(|request| request.name.to_string()).collect();
        match self.job.workers[rank].submit(requests, unit.grouped, self.job.now) {
            Ok(request_ids) => {
                for (request_id, name) in request_ids.iter().zip(names) {
                    *self.requested[rank].entry((generation, name.clone())).or_default() += 1;
                    self.names_of[rank].insert(*request_id, (generation, name));
                }
                self.request_ids[rank].extend(request_ids);
                self.states[rank].remaining.remove(at);
            }
            Err(SubmitError::DuplicateName) => {}
            Err(other) => panic!("{other}"),
        }
    }

    fn end_epoch(&mut self, rank: usize) {
        let state = &mut self.states[rank];
        let epoch = &self.script[state.epoch];
        let worker = &mut self.job.workers[rank];
        let request_id = match &state.set {
            Some(set) => worker.remove_set(set.id, self.job.now).expect("made by all"),
            None => {
                for unit in state.remaining.drain(..) {
                    for request in &epoch.units[unit].tensors {
                        *self.requested[rank].entry((GLOBAL_GENERATION, request.name.to_string())).or_default() += 1;
                    }
                }
                worker.join(SetId::GLOBAL, self.job.now).expect("a member")
            }
        };
        self.request_ids[rank].push(request_id);
        state.stage = Stage::Ending(request_id);
    }

    /// Checks that nothing was executed or failed before every member had requested it as often.
    fn check_actions(&mut self, rank: usize) {
        for at in self.n_checked[rank]..self.job.done[rank].len() {
            let mut answered: Vec<(SetGeneration, String)> = Vec::new();
            match &self.job.done[rank][at] {
                Action::Execute { tensors, key, .. } => {
                    assert!(tensors.iter().all(|tensor| tensor.response.key == *key), "fused with different keys");
                    answered.extend(tensors.iter().map(|tensor| (key.generation, tensor.response.name.to_string())));
                }
                Action::Fail { request_ids, text } if !text.contains("does not exist") => {
                    answered.extend(
                        request_ids.iter().filter_map(|request_id| self.names_of[rank].get(request_id).cloned()),
                    );
                }
                _ => {}
            }
            for key in answered {
                let n = self.answered[rank].entry(key.clone()).or_default();
                *n += 1;
                let n = *n;
                let workers = match key.0 {
                    GLOBAL_GENERATION => (0..self.job.size() as u32).collect(),
                    _ => self.states[rank].set.as_ref().expect("in a set").ranks.clone(),
                };
                for worker in workers {
                    let n_requests = self.requested[worker as usize].get(&key).copied().unwrap_or(0);
                    assert!(
                        n_requests >= n,
                        "{key:?} was answered {n} times; rank {worker} requested it {n_requests} times"
                    );
                }
            }
        }
        self.n_checked[rank] = self.job.done[rank].len();
    }

    fn check_end(&self) {
        for (rank, state) in self.states.iter().enumerate() {
            let pending: Vec<_> = self.job.workers[rank].pending().collect();
            assert_eq!(state.stage, Stage::Done, "rank {rank} is stuck in epoch {} with {pending:?}", state.epoch);
            assert_eq!(self.job.workers[rank].n_pending(), 0);
            for request_id in &self.request_ids[rank] {
                assert!(self.job.end(rank, *request_id).is_some(), "request {request_id} of rank {rank} never ended");
            }
            assert_eq!(self.job.ends[rank].len(), self.request_ids[rank].len());
        }
        for rank in 0..self.job.size() {
            for other in 0..rank {
                assert_eq!(self.common_operations(rank, other), self.common_operations(other, rank));
            }
        }
    }

    /// Operations that a rank executed in sets that `other` is also a member of, in order: generation and names.
    fn common_operations(&self, rank: usize, other: usize) -> Vec<(SetGeneration, Vec<String>)> {
        let mut workers = BTreeMap::from([(GLOBAL_GENERATION, (0..self.job.size() as u32).collect::<Vec<u32>>())]);
        let mut shared = Vec::new();
        for action in &self.job.done[rank] {
            match action {
                Action::SetsAdded { sets, .. } => {
                    workers.extend(sets.iter().map(|set| (set.generation, set.ranks.clone())));
                }
                Action::Execute { key, tensors, .. } if workers[&key.generation].contains(&(other as u32)) => {
                    shared.push((
                        key.generation,
                        tensors.iter().map(|tensor| tensor.response.name.to_string()).collect(),
                    ));
                }
                _ => {}
            }
        }
        shared
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold_for_every_interleaving(
        size in 1usize..5,
        seed: u64,
        cache_capacity in prop_oneof![Just(0usize), 1usize..8, Just(1024)],
        fusion_threshold in prop_oneof![Just(0u64), 1u64..2000, Just(1 << 20)],
    ) {
        let mut simulation = Simulation::new(size, seed, cache_capacity, fusion_threshold);
        simulation.run();
        simulation.check_end();
    }
}
