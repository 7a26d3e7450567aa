//! Tests of the shared-memory optimizer: its steps, also those overlapped with the backward pass, equal those of `DistributedOptimizer`.

mod ranks;

use corro_collectives::coordinator::SetId;
use corro_collectives::optimizer::shm_optimizer::{FusedStep, ShmOptimizer};
use corro_collectives::optimizer::{
    AveragedGradient, Config, DistributedOptimizer, OptimizerError, ParamStorage, ShardedStep,
};
use corro_collectives::settings::Settings;
use corro_collectives::{Engine, Options, Transport};
use ranks::on_ranks;
use ranks::training::{Momentum, each};

const LARGE: usize = 70_001;
const PARAMETERS: [(&str, usize); 3] = [("small", 10), ("large", LARGE), ("unused", 2)];
/// Parameters of at least this many elements are sharded.
const MIN_SHARDED: usize = 11;

fn momentum() -> Momentum<3> {
    Momentum(PARAMETERS.map(|(_, size)| vec![0.0; size]))
}

impl FusedStep for Momentum<3> {
    fn step_averaged(&mut self, index: usize, first: usize, values: &mut [f32], average: &AveragedGradient<'_>) {
        assert_eq!((average.len(), average.is_empty()), (values.len(), values.is_empty()));
        for (number, values) in values.chunks_mut(1000).enumerate() {
            let mut gradient = vec![f32::NAN; values.len()];
            average.average_into(1000 * number, &mut gradient);
            self.step_shard(index, first + 1000 * number, values, &gradient);
        }
    }
}

fn shm_optimizer(engine: &Engine) -> ShmOptimizer<'_, Momentum<3>> {
    ShmOptimizer::new(engine, momentum(), &PARAMETERS, MIN_SHARDED).expect("the ranks share memory")
}

fn values() -> Vec<ParamStorage> {
    PARAMETERS.iter().map(|(_, size)| vec![1.0; *size].into()).collect()
}

/// Integers, so that the order of additions does not matter; multiples of 12, which every number of ranks here divides.
fn gradient(engine: &Engine, index: usize, step: usize) -> impl Iterator<Item = f32> {
    let rank = engine.rank_info().rank;
    (0..PARAMETERS[index].1).map(move |i| (12 * ((i + step + rank) % 50)) as f32)
}

fn submit(engine: &Engine, optimizer: &mut ShmOptimizer<'_, Momentum<3>>, index: usize, step: usize) {
    optimizer
        .gradient_buffer(index)
        .iter_mut()
        .zip(gradient(engine, index, step))
        .for_each(|(element, value)| *element = value);
    optimizer.ready(index);
}

#[test]
fn shared_memory_steps_equal_steps_over_the_engine() {
    each(&[2, 3, 4], |engine| {
        let me = engine.rank_info().rank;
        let mut plain = DistributedOptimizer::new(engine, momentum(), &PARAMETERS, Config::DEFAULT).expect("good");
        let mut expected = values();
        let (mut optimizer, mut shared) = (shm_optimizer(engine), values());
        assert!(!optimizer.is_sharded(0) && optimizer.is_sharded(1) && !optimizer.is_sharded(2));
        optimizer.share_parameters(&mut shared).expect("all ranks share them");
        for step in 0..20 {
            for index in [0, 1] {
                plain.submit(index, &gradient(engine, index, step).collect::<Vec<_>>()).expect("started");
            }
            let mut parts: Vec<&mut [f32]> = expected.iter_mut().map(|values| &mut **values).collect();
            plain.step(&mut parts).expect("a step");
            // The number of overlapped-step attempts differs by rank and step.
            let attempts = (step + me) % 3;
            submit(engine, &mut optimizer, 1, step);
            for _ in 0..attempts {
                // SAFETY: this thread is the only one of the rank and holds no slice of the values.
                unsafe { optimizer.try_overlapped_step() };
                std::thread::yield_now();
            }
            submit(engine, &mut optimizer, 0, step);
            optimizer.step(&mut shared).expect("a step");
            assert_eq!(expected, shared, "step {step}");
        }
        for index in 0..PARAMETERS.len() {
            optimizer.gather_state(index, |momentum| &mut momentum.0[index]).expect("gathered");
        }
        assert_eq!(optimizer.optimizer_mut(), plain.optimizer_mut());
    });
}

#[test]
fn large_parameters_are_stepped_during_the_backward_pass() {
    each(&[2, 3], |engine| {
        let (mut optimizer, mut values) = (shm_optimizer(engine), values());
        optimizer.share_parameters(&mut values).expect("all ranks share them");
        for step in 0..3 {
            let before = optimizer.optimizer_mut().0[1].clone();
            // SAFETY: this thread is the only one of the rank and holds no slice of the values. The same holds for the calls below.
            unsafe { optimizer.try_overlapped_step() };
            engine.barrier(SetId::GLOBAL).expect("all come");
            unsafe { optimizer.try_overlapped_step() };
            assert_eq!(optimizer.optimizer_mut().0[1], before, "no rank has published its gradients");
            submit(engine, &mut optimizer, 1, step);
            unsafe { optimizer.try_overlapped_step() };
            engine.barrier(SetId::GLOBAL).expect("all ranks have published");
            unsafe { optimizer.try_overlapped_step() };
            let now = optimizer.optimizer_mut().0[1].clone();
            let own = engine.shard(LARGE);
            assert!(now.iter().zip(&before).enumerate().all(|(i, (now, before))| own.contains(&i) || now == before));
            assert_ne!(now[own.clone()], before[own], "it has stepped");
            // A second attempt does not step again.
            unsafe { optimizer.try_overlapped_step() };
            submit(engine, &mut optimizer, 0, step);
            optimizer.step(&mut values).expect("the rest");
            assert_eq!(optimizer.optimizer_mut().0[1], now);
        }
    });
}

#[test]
fn a_missing_gradient_counts_as_zeros() {
    each(&[2], |engine| {
        let (mut optimizer, mut values) = (shm_optimizer(engine), values());
        optimizer.share_parameters(&mut values).expect("all ranks share them");
        submit(engine, &mut optimizer, 1, 0);
        optimizer.step(&mut values).expect("a step");
        let after = values.clone();
        assert_eq!((&*after[0], &*after[2]), (&[1.0; 10][..], &[1.0; 2][..]));
        // Only momentum changes the values; the old content of the gradient buffer does not count again.
        optimizer.step(&mut values).expect("a step");
        assert!(values[1].iter().zip(&after[1]).all(|(now, before)| (before - now) * 2.0 == 1.0 - before));
    });
}

#[test]
fn invalid_parameters_are_rejected_before_any_rank_waits() {
    each(&[2], |engine| {
        let (mut optimizer, mut values) = (shm_optimizer(engine), values());
        let error = optimizer.step(&mut values).expect_err("not in shared memory");
        assert_eq!(error, OptimizerError::NotShared { name: "large".into() });
        optimizer.share_parameters(&mut values).expect("all ranks share them");
        assert_eq!(optimizer.step(&mut values.clone()).expect_err("a clone is in private memory"), error);
        let error = optimizer.step(&mut values[..2]).expect_err("one is missing");
        assert_eq!(error, OptimizerError::ParameterCount { given: 2, n_parameters: 3 });
        let small = std::mem::replace(&mut values[0], vec![0.0; 3].into());
        let error = optimizer.step(&mut values).expect_err("too short");
        assert_eq!(error, OptimizerError::LengthMismatch { name: "small".into(), given: 3, size: 10 });
        values[0] = small;
        submit(engine, &mut optimizer, 1, 0);
        optimizer.step(&mut values).expect("a step");
    });
}

#[test]
fn all_begin_with_the_values_of_rank_0() {
    each(&[3], |engine| {
        let mut values = values();
        values[1].fill(engine.rank_info().rank as f32 + 7.0);
        shm_optimizer(engine).share_parameters(&mut values).expect("all ranks share them");
        assert!(values[1].iter().all(|value| *value == 7.0));
    });
}

#[test]
fn without_shared_memory_new_returns_the_optimizer() {
    each(&[1], |engine| assert!(ShmOptimizer::new(engine, momentum(), &PARAMETERS, MIN_SHARDED).is_err()));
    let options = Options { transport: Transport::Tcp, ..Options::DEFAULT };
    on_ranks(2, &options, |world| {
        let settings = Settings::from_variables(|_| None).expect("defaults");
        let engine = Engine::in_world(world, &settings).expect("an engine");
        assert_eq!(ShmOptimizer::new(&engine, momentum(), &PARAMETERS, MIN_SHARDED).err(), Some(momentum()));
        engine.barrier(SetId::GLOBAL).expect("all ranks finish");
    });
}

#[test]
fn a_timeline_disables_the_shared_memory_optimizer() {
    let folder = tempfile::tempdir().expect("a folder");
    on_ranks(2, &Options::DEFAULT, |world| {
        let recorded = (world.rank() == 0).then(|| folder.path().join("timeline.json").display().to_string());
        let variable = |name: &str| recorded.clone().filter(|_| name == "HOROVOD_TIMELINE");
        let settings = Settings::from_variables(variable).expect("settings");
        let engine = Engine::in_world(world, &settings).expect("an engine");
        assert!(ShmOptimizer::new(&engine, momentum(), &PARAMETERS, MIN_SHARDED).is_err());
        engine.barrier(SetId::GLOBAL).expect("all ranks finish");
    });
}

#[test]
fn ranks_with_different_arguments_get_no_shared_memory() {
    each(&[2], |engine| {
        let min_elements = MIN_SHARDED + engine.rank_info().rank;
        assert!(ShmOptimizer::new(engine, momentum(), &PARAMETERS, min_elements).is_err());
        // The engine stays usable.
        shm_optimizer(engine).share_parameters(&mut values()).expect("all ranks share them");
    });
}

#[test]
fn steps_without_parameters_only_synchronize() {
    each(&[2], |engine| {
        let mut nothing = ShmOptimizer::new(engine, momentum(), &[], MIN_SHARDED).expect("the ranks share memory");
        for _ in 0..3 {
            nothing.step(&mut []).expect("a step");
        }
    });
}

#[test]
fn a_dead_rank_is_named() {
    on_ranks(3, &Options::DEFAULT, |world| {
        let settings = Settings::from_variables(|_| None).expect("defaults");
        let engine = Engine::in_world(world, &settings).expect("an engine");
        let (mut optimizer, mut values) = (shm_optimizer(&engine), values());
        optimizer.share_parameters(&mut values).expect("all ranks share them");
        if engine.rank_info().rank == 1 {
            return;
        }
        let error = optimizer.step(&mut values).expect_err("one is missing");
        let OptimizerError::Sync { cause } = &error else { panic!("{error:?}") };
        assert!(cause.to_string().contains("rank 1"), "{cause}");
    });
}
