//! Scripts that all ranks follow in their own order, over streams that are delivered in any order: whatever happens, every
//! operation ends exactly once on every rank, nothing is performed before all have asked, two ranks never see what
//! they share in different orders, and nothing is left waiting.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::simulated_job::{SimulatedJob, config, request};
use crate::Dtype;
use crate::coordinator::*;

/// Small and repeatable; the seed is what proptest prints.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.roll(n) == 0
    }
}

/// What the ranks do together, and then all of them end it: by joining, or by removing the set they made.
#[derive(Clone, Debug)]
struct Epoch {
    /// Ranks of a set that lives as long as the epoch.
    set: Option<Vec<u32>>,
    units: Vec<Unit>,
}

/// Submitted at once.
#[derive(Clone, Debug)]
struct Unit {
    in_set: bool,
    grouped: bool,
    tensors: Vec<Request>,
    /// This rank asks for something else under the first name.
    odd: Option<usize>,
}

fn any_epoch(dice: &mut Dice, size: usize) -> Epoch {
    let set: Vec<u32> = (0..size as u32).filter(|_| !dice.one_in(3)).collect();
    let set = (dice.one_in(2) && !set.is_empty() && set.len() < size).then_some(set);
    let mut units = Vec::new();
    for _round in 0..1 + dice.roll(4) {
        let mut names: Vec<usize> = (0..6).collect();
        for at in (1..names.len()).rev() {
            names.swap(at, dice.roll(at + 1));
        }
        while !names.is_empty() {
            let grouped = dice.one_in(3);
            let n_tensors = if grouped { 1 + dice.roll(names.len()) } else { 1 };
            let tensors = names.drain(..n_tensors).map(|name| any_request(dice, name)).collect();
            let odd = dice.one_in(8).then(|| dice.roll(size));
            units.push(Unit { in_set: set.is_some() && dice.one_in(2), grouped, tensors, odd });
        }
    }
    Epoch { set, units }
}

fn any_request(dice: &mut Dice, name: usize) -> Request {
    // Mostly the same under a name, so that there is something to remember.
    let variety = if dice.one_in(4) { dice.roll(6) } else { name };
    let kind =
        [Kind::Allreduce, Kind::Allreduce, Kind::Allgather, Kind::Broadcast, Kind::Reducescatter, Kind::Alltoall]
            [variety];
    let dtype = [Dtype::F32, Dtype::I64][usize::from(dice.one_in(4))];
    Request { kind, dtype, shape: vec![12 * (1 + variety as u64), 2], ..request(&format!("tensor.{name}")) }
}

/// One rank on its way through the script.
struct Walker {
    epoch: usize,
    stage: Stage,
    /// Of the epoch, not yet submitted, in the order of the script.
    left: Vec<usize>,
    set: Option<ProcessSet>,
    /// Ends its part of the epoch before everything is submitted.
    hasty: bool,
}

impl Walker {
    /// The end of a set excuses from what is left in it; a join excuses from everything.
    fn may_end(&self, epoch: &Epoch) -> bool {
        // What is left in a set may wait for a rank that has ended it: everybody can be excused from it.
        let excused = |unit: &usize| if epoch.set.is_some() { epoch.units[*unit].in_set } else { self.hasty };
        self.left.iter().all(excused)
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

struct Play {
    job: SimulatedJob,
    script: Vec<Epoch>,
    walkers: Vec<Walker>,
    dice: Dice,
    request_ids: Vec<Vec<RequestId>>,
    /// How often each rank has asked for a name of an area, or did without by joining.
    asked: Vec<HashMap<(SetGeneration, String), usize>>,
    /// Per rank, how much of what it was told has been looked at, and how often each name was performed or refused.
    looked_at: Vec<usize>,
    answered: Vec<HashMap<(SetGeneration, String), usize>>,
    names_of: Vec<HashMap<RequestId, (SetGeneration, String)>>,
}

impl Play {
    fn new(size: usize, seed: u64, cache_capacity: usize, fusion_threshold: u64) -> Play {
        let mut dice = Dice(seed | 1);
        let script = (0..1 + dice.roll(5)).map(|_| any_epoch(&mut dice, size)).collect();
        let disable_group_fusion = dice.one_in(3);
        let config = Config { cache_capacity, fusion_threshold, disable_group_fusion, ..config(size as u32) };
        let walker = |_| Walker { epoch: 0, stage: Stage::Start, left: Vec::new(), set: None, hasty: false };
        Play {
            job: SimulatedJob::with(config),
            script,
            walkers: (0..size).map(walker).collect(),
            dice,
            request_ids: vec![Vec::new(); size],
            asked: vec![HashMap::new(); size],
            looked_at: vec![0; size],
            answered: vec![HashMap::new(); size],
            names_of: vec![HashMap::new(); size],
        }
    }

    fn play(&mut self) {
        let size = self.job.size();
        // Far more turns than any script takes: who is stuck is found out below.
        for _turn in 0..200_000 {
            let rank = self.dice.roll(size);
            match self.dice.roll(6) {
                0 | 1 => self.walk(rank),
                2 => self.job.flush(rank),
                3 => drop(self.job.deliver_up(rank)),
                4 => self.job.drain(),
                _ => {
                    self.job.deliver_down(rank);
                    self.look(rank);
                }
            }
            if self.walkers.iter().all(|walker| walker.stage == Stage::Done) {
                break;
            }
        }
        self.job.run();
        (0..size).for_each(|rank| self.look(rank));
    }

    fn walk(&mut self, rank: usize) {
        let now = self.job.now;
        let walker = &mut self.walkers[rank];
        let Some(epoch) = self.script.get(walker.epoch) else {
            walker.stage = Stage::Done;
            return;
        };
        match walker.stage {
            Stage::Start => {
                (walker.left, walker.set) = ((0..epoch.units.len()).collect(), None);
                walker.hasty = self.dice.one_in(3);
                walker.stage = Stage::Working;
                if let Some(ranks) = &epoch.set {
                    let request_id = self.job.workers[rank].add_set(ranks.clone(), now).expect("allowed");
                    self.request_ids[rank].push(request_id);
                    walker.stage = Stage::Making(request_id);
                }
            }
            Stage::Making(request_id) => {
                if let Some(super::simulated_job::End::SetsAdded(sets)) = self.job.end(rank, request_id) {
                    walker.set = Some(sets[0].clone());
                    walker.stage = Stage::Working;
                }
            }
            Stage::Working if walker.may_end(epoch) && (walker.left.is_empty() || self.dice.one_in(12)) => {
                self.end_epoch(rank);
            }
            Stage::Working => self.submit_some(rank),
            Stage::Ending(request_id) => {
                if self.job.end(rank, request_id).is_some() {
                    walker.epoch += 1;
                    walker.stage = Stage::Start;
                }
            }
            Stage::Done => {}
        }
    }

    /// One of the next units whose names are free and were submitted as often as the script has them before.
    fn submit_some(&mut self, rank: usize) {
        let walker = &self.walkers[rank];
        let units = &self.script[walker.epoch].units;
        let n_next = if self.dice.one_in(4) { usize::MAX } else { 4 };
        let at = self.dice.roll(walker.left.len().min(n_next));
        let unit = units[walker.left[at]].clone();
        let clashes = |earlier: &usize| {
            let earlier = &units[*earlier];
            let same = |one: &Request| unit.tensors.iter().any(|other| one.name == other.name);
            earlier.in_set == unit.in_set && earlier.tensors.iter().any(same)
        };
        if walker.left[..at].iter().any(clashes) {
            return;
        }
        let (set, generation) = match &walker.set {
            Some(set) if unit.in_set => {
                if !set.ranks.contains(&(rank as u32)) {
                    self.walkers[rank].left.remove(at);
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
        if unit.odd == Some(rank) {
            requests[0].dtype = Dtype::U8;
        }
        let names: Vec<String> = requests.iter().map(|request| request.name.to_string()).collect();
        match self.job.workers[rank].submit(requests, unit.grouped, self.job.now) {
            Ok(request_ids) => {
                for (request_id, name) in request_ids.iter().zip(names) {
                    *self.asked[rank].entry((generation, name.clone())).or_default() += 1;
                    self.names_of[rank].insert(*request_id, (generation, name));
                }
                self.request_ids[rank].extend(request_ids);
                self.walkers[rank].left.remove(at);
            }
            Err(SubmitError::DuplicateName) => {}
            Err(other) => panic!("{other}"),
        }
    }

    fn end_epoch(&mut self, rank: usize) {
        let walker = &mut self.walkers[rank];
        let epoch = &self.script[walker.epoch];
        let worker = &mut self.job.workers[rank];
        let request_id = match &walker.set {
            Some(set) => worker.remove_set(set.id, self.job.now).expect("made by all"),
            None => {
                for unit in walker.left.drain(..) {
                    for request in &epoch.units[unit].tensors {
                        *self.asked[rank].entry((GLOBAL_GENERATION, request.name.to_string())).or_default() += 1;
                    }
                }
                worker.join(SetId::GLOBAL, self.job.now).expect("a member")
            }
        };
        self.request_ids[rank].push(request_id);
        walker.stage = Stage::Ending(request_id);
    }

    /// Nothing is performed or refused before every member has asked as often.
    fn look(&mut self, rank: usize) {
        for at in self.looked_at[rank]..self.job.done[rank].len() {
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
                    _ => self.walkers[rank].set.as_ref().expect("in a set").ranks.clone(),
                };
                for worker in workers {
                    let asked = self.asked[worker as usize].get(&key).copied().unwrap_or(0);
                    assert!(asked >= n, "{key:?} was answered {n} times; rank {worker} asked {asked} times");
                }
            }
        }
        self.looked_at[rank] = self.job.done[rank].len();
    }

    fn check_end(&self) {
        for (rank, walker) in self.walkers.iter().enumerate() {
            let pending: Vec<_> = self.job.workers[rank].pending().collect();
            assert_eq!(walker.stage, Stage::Done, "rank {rank} is stuck in epoch {} with {pending:?}", walker.epoch);
            assert_eq!(self.job.workers[rank].n_pending(), 0);
            for request_id in &self.request_ids[rank] {
                assert!(self.job.end(rank, *request_id).is_some(), "request {request_id} of rank {rank} never ended");
            }
            assert_eq!(self.job.ends[rank].len(), self.request_ids[rank].len());
        }
        for rank in 0..self.job.size() {
            for other in 0..rank {
                assert_eq!(self.shared_by(rank, other), self.shared_by(other, rank));
            }
        }
    }

    /// Everything a rank performed in sets that the other is in too: area, names and shapes, in order.
    fn shared_by(&self, rank: usize, other: usize) -> Vec<(SetGeneration, Vec<String>)> {
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
    fn every_interleaving_ends_well(
        size in 1usize..5,
        seed: u64,
        cache_capacity in prop_oneof![Just(0usize), 1usize..8, Just(1024)],
        fusion_threshold in prop_oneof![Just(0u64), 1u64..2000, Just(1 << 20)],
    ) {
        let mut play = Play::new(size, seed, cache_capacity, fusion_threshold);
        play.play();
        play.check_end();
    }
}
