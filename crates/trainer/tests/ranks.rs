//! Several ranks with parts of a batch against one rank with all of it: gradients agree up to rounding, with dropout.
//! Repeated runs of the same ranks give bit-identical weights. Ranks are real processes with the real engine;
//! `CORRO_TRANSPORT=tcp` selects the ring allreduce used between hosts.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use corro_collectives::Engine;
use corro_collectives::coordinator::SetId;
use corro_collectives::optimizer::shm_optimizer::FusedStep;
use corro_collectives::optimizer::{AveragedGradient, Optimizer, ShardedStep, broadcast_parameters};
use corro_trainer::compute::{Compute, Config, Isa, Precision};
use corro_trainer::distributed::RankOptimizer;
use corro_trainer::network::glorot_init::glorot_uniform;
use corro_trainer::network::{Batch, CLASSES, DropoutSeed, GradientSink, IMAGE, PARAMETERS, Score, Weights};
use corro_trainer::random::Random;
use corro_trainer::rmsprop::{self, RmsProp};

/// Images of all ranks per step.
const ALL: usize = 128;
const SEED: u64 = 31;

/// Images and labels of a step, starting at index `first` among those of all ranks.
fn part(step: u64, first: usize, n: usize) -> (Vec<f32>, Vec<u8>) {
    let (mut images, mut labels) = (Vec::new(), Vec::new());
    for image in first..first + n {
        let mut random = Random::from_key(&[SEED, step, image as u64]);
        images.extend((0..IMAGE).map(|_| random.uniform()));
        labels.push(random.below(CLASSES) as u8);
    }
    (images, labels)
}

fn dropout_seed(step: u64, first: usize) -> Option<DropoutSeed> {
    Some(DropoutSeed { seed: SEED, step, first: first as u64 })
}

fn compute(isa: Isa, batch: usize) -> Compute {
    let config = Config { threads: 2, batch, precision: Precision::F32, isa };
    Compute::new(&config).expect("instructions of this processor")
}

/// The largest difference over all parameters, relative to the parameter's largest value.
fn max_relative_difference(one: &Weights, other: &Weights) -> f32 {
    let mut max: f32 = 0.0;
    for (parameter, (one, other)) in PARAMETERS.iter().zip(one.0.iter().zip(&other.0)) {
        let largest = one.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
        let difference = one.iter().zip(other).fold(0.0, |most: f32, (one, other)| most.max((one - other).abs()));
        assert!(largest > 0.0, "{}: nothing to compare", parameter.name());
        println!("    {:16} {:.1e} of {largest:.1e}", parameter.name(), difference / largest);
        max = max.max(difference / largest);
    }
    max
}

#[test]
fn four_batches_of_32_average_to_one_of_128() {
    let weights = glorot_uniform(SEED);
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_supported()) {
        let mut compute = compute(isa, ALL);
        let mut step = |first: usize, n: usize| {
            let (images, labels) = part(0, first, n);
            let mut gradients = Weights::zeros();
            let batch = Batch { images: &images, labels: &labels };
            let score = compute.step(&weights, batch, dropout_seed(0, first), &mut gradients);
            (gradients, score)
        };
        let (whole, whole_score) = step(0, ALL);
        let mut mean = Weights::zeros();
        let mut score = Score::default();
        for first in (0..ALL).step_by(32) {
            let (gradients, part_score) = step(first, 32);
            score += part_score;
            for (mean, value) in mean.0.iter_mut().flatten().zip(gradients.0.iter().flatten()) {
                *mean += value / 4.0;
            }
        }
        println!("{isa:?}: apart by");
        let difference = max_relative_difference(&whole, &mean);
        assert!(difference < 1e-5, "{isa:?}: gradients are {difference:.1e} apart");
        assert!((score.loss / whole_score.loss - 1.0).abs() < 1e-6, "{isa:?}: {score:?}, {whole_score:?}");
        assert_eq!((score.correct, score.images), (whole_score.correct, ALL), "{isa:?}");
        // The agreement is not due to dropout having no effect.
        let (images, labels) = part(0, 0, ALL);
        let batch = Batch { images: &images, labels: &labels };
        let mut other = Weights::zeros();
        compute.step(&weights, batch, dropout_seed(1, 0), &mut other);
        let difference = max_relative_difference(&whole, &other);
        assert!(difference > 1e-2, "{isa:?}: another seed changes the gradients by {difference:.1e} only");
    }
}

#[test]
fn four_ranks_of_32_match_one_rank_of_128() {
    let alone = train(1, 1, &[]).remove(0);
    for transport in ["shm", "tcp"] {
        for (rank, found) in train(4, 1, &[("CORRO_TRANSPORT", transport)]).iter().enumerate() {
            println!("rank {rank}, {transport}: apart by");
            let difference = max_relative_difference(&alone.gradients, &found.gradients);
            assert!(difference < 1e-5, "{transport}: rank {rank}'s gradients are {difference:.1e} apart");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_weights() {
    // Within a host, gradients are added in the order of ranks. In a ring, the order of additions depends on an
    // element's offset in the fusion buffer, and that on timing: fusion is disabled there.
    let ring = [("CORRO_TRANSPORT", "tcp"), ("HOROVOD_FUSION_THRESHOLD", "0")];
    for variables in [&[("CORRO_TRANSPORT", "shm")], ring.as_slice()] {
        let (once, again) = (train(4, 5, variables), train(4, 5, variables));
        for (rank, found) in once.iter().chain(&again).enumerate() {
            assert!(found.weights == once[0].weights, "{variables:?}: rank {} has others", rank % 4);
        }
        assert!(once[0].weights != glorot_uniform(SEED), "{variables:?}: nothing was learned");
    }
}

/// One rank blocks in its pass until another one has stolen a task from it.
#[test]
fn work_stealing_does_not_change_results() {
    let (alone, stolen_marker) =
        (train(2, 3, &[("CORRO_TRANSPORT", "shm")]), train(2, 3, &[("CORRO_TRANSPORT", "shm"), ("LATE", "1")]));
    for (rank, (alone, stolen_marker)) in alone.iter().zip(&stolen_marker).enumerate() {
        assert!(
            alone.gradients == stolen_marker.gradients && alone.weights == stolen_marker.weights,
            "rank {rank} has others"
        );
    }
}

/// Results of a rank.
struct RankResult {
    /// Averaged over all ranks, in the first step.
    gradients: Weights,
    weights: Weights,
}

/// Runs `size` ranks as processes, each with an equal part of every step's images.
fn train(size: usize, steps: u64, variables: &[(&str, &str)]) -> Vec<RankResult> {
    let folder = tempfile::tempdir().expect("a folder");
    let ranks: Vec<Rank> = (0..size).map(|rank| Rank::start(rank, size, steps, folder.path(), variables)).collect();
    ranks.into_iter().for_each(Rank::wait);
    let read = |rank: usize| {
        let bytes = std::fs::read(folder.path().join(rank.to_string())).expect("what the rank found");
        let mut values = bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().expect("four bytes")));
        let mut weights = || {
            let mut weights = Weights::zeros();
            weights.0.iter_mut().flatten().for_each(|value| *value = values.next().expect("as many as were written"));
            weights
        };
        RankResult { gradients: weights(), weights: weights() }
    };
    (0..size).map(read).collect()
}

/// A rank process; killed when dropped.
struct Rank(Child);

impl Rank {
    fn start(rank: usize, size: usize, steps: u64, folder: &Path, variables: &[(&str, &str)]) -> Rank {
        let mut command = Command::new(std::env::current_exe().expect("a test has a file"));
        command.args(["--ignored", "--exact", "a_rank"]).stdout(Stdio::null()).env_clear();
        command.env("FOLDER", folder).env("STEPS", steps.to_string()).envs(variables.iter().copied());
        if size > 1 {
            // Variables as set by torchrun. The port is never opened; it only identifies the job.
            let [rank, size] = [rank, size].map(|number| number.to_string());
            command.envs([("RANK", &rank), ("LOCAL_RANK", &rank), ("WORLD_SIZE", &size), ("LOCAL_WORLD_SIZE", &size)]);
            command.env("MASTER_PORT", folder);
        }
        Rank(command.spawn().expect("it starts"))
    }

    fn wait(mut self) {
        assert!(self.0.wait().expect("it can be waited for").success(), "a rank failed");
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// RMSprop that records the gradients of the first step.
struct RecordingOptimizer {
    optimizer: RmsProp,
    first: Weights,
}

impl RecordingOptimizer {
    fn recorded_range(&mut self, index: usize, first: usize, n: usize) -> Option<&mut [f32]> {
        (self.optimizer.state().iterations == 0).then(|| &mut self.first.0[index][first..first + n])
    }
}

impl Optimizer for RecordingOptimizer {
    fn step(&mut self, index: usize, parameter: &mut [f32], gradient: &[f32]) {
        self.step_shard(index, 0, parameter, gradient);
    }
}

impl ShardedStep for RecordingOptimizer {
    fn step_shard(&mut self, index: usize, first: usize, values: &mut [f32], gradient: &[f32]) {
        if let Some(recorded) = self.recorded_range(index, first, values.len()) {
            recorded.copy_from_slice(gradient);
        }
        self.optimizer.step_shard(index, first, values, gradient);
    }
}

impl FusedStep for RecordingOptimizer {
    fn step_averaged(&mut self, index: usize, first: usize, values: &mut [f32], sum: &AveragedGradient<'_>) {
        if let Some(recorded) = self.recorded_range(index, first, values.len()) {
            sum.average_into(0, recorded);
        }
        self.optimizer.step_averaged(index, first, values, sum);
    }
}

/// Gradient sink that blocks in the middle of the pass, with tasks left, until a file exists.
struct BlockingSink<'a, G> {
    sender: &'a mut G,
    until: &'a Path,
    yield_points: usize,
}

impl<G: GradientSink> GradientSink for BlockingSink<'_, G> {
    fn buffer(&mut self, parameter: usize) -> &mut [f32] {
        self.sender.buffer(parameter)
    }

    fn ready(&mut self, parameter: usize) {
        self.sender.ready(parameter);
    }

    fn yield_point(&mut self) {
        self.sender.yield_point();
        self.yield_points += 1;
        let began = Instant::now();
        while self.yield_points == 2 && !self.until.exists() {
            assert!(began.elapsed() < Duration::from_secs(60), "no task was stolen");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
#[ignore = "started by the other tests as a process"]
fn a_rank() {
    let variable = |name: &str| std::env::var(name).expect("the test sets it");
    let engine = Engine::start().expect("the ranks find each other");
    let (rank, size) = (engine.rank_info().rank, engine.rank_info().size);
    let batch = ALL / size;
    let mut compute = compute(Isa::best(), batch);
    let config = rmsprop::Config { rate: 1e-4 * size as f32, decay: 1e-6 };
    let recording =
        RecordingOptimizer { optimizer: RmsProp::new(&config, compute.pool().clone()), first: Weights::zeros() };
    let mut optimizer = RankOptimizer::new(&engine, recording).expect("good parameters");
    let in_memory = size > 1 && variable("CORRO_TRANSPORT") == "shm";
    assert_eq!(matches!(optimizer, RankOptimizer::Shm(_)), in_memory);
    let mut weights = glorot_uniform(SEED + rank as u64);
    broadcast_parameters(&engine, &mut weights.slices_mut(), 0).expect("a broadcast");
    optimizer.set_weights(&mut weights).expect("all take them");
    optimizer.enable_stealing(&mut compute);
    let is_blocking = std::env::var_os("LATE").is_some();
    let stolen_marker = |step: u64| Path::new(&variable("FOLDER")).join(format!("helped-{step}"));
    for step in 0..variable("STEPS").parse().expect("a number") {
        let first = rank * batch;
        let (images, labels) = part(step, first, batch);
        let batch = Batch { images: &images, labels: &labels };
        let mut sender = optimizer.gradient_sender();
        if is_blocking && rank == 1 {
            let mut blocking = BlockingSink { sender: &mut sender, until: &stolen_marker(step), yield_points: 0 };
            compute.step(&weights, batch, dropout_seed(step, first), &mut blocking);
        } else {
            compute.step(&weights, batch, dropout_seed(step, first), &mut sender);
        }
        sender.end().expect("all are sent");
        if let (true, 0, RankOptimizer::Shm(together)) = (is_blocking, rank, &mut optimizer) {
            let before = compute.n_stolen();
            let help = || {
                let has_stolen = compute.steal_tasks();
                if compute.n_stolen() > before {
                    std::fs::write(stolen_marker(step), "").expect("written");
                }
                has_stolen
            };
            together.step_with_stealing(&mut weights.0, help).expect("a step of all ranks");
        } else {
            optimizer.step(&mut weights, &mut compute).expect("a step of all ranks");
        }
    }
    optimizer.gather(|recording| &mut recording.first).expect("gathered");
    let found = optimizer.inner().first.0.iter().chain(&weights.0).flatten();
    let bytes: Vec<u8> = found.flat_map(|value| value.to_le_bytes()).collect();
    std::fs::write(Path::new(&variable("FOLDER")).join(rank.to_string()), bytes).expect("written");
    // No rank may leave while others still communicate.
    engine.barrier(SetId::GLOBAL).expect("all come to the end");
}
