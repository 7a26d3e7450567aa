//! Steps of ranks on one host, in memory that all see: the same as over the engine, also those taken while a pass goes on.

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
/// What is shared out.
const FROM: usize = 11;

fn momentum() -> Momentum<3> {
    Momentum(PARAMETERS.map(|(_, size)| vec![0.0; size]))
}

impl FusedStep for Momentum<3> {
    fn step_averaged(&mut self, index: usize, first: usize, values: &mut [f32], sum: &AveragedGradient<'_>) {
        assert_eq!((sum.len(), sum.is_empty()), (values.len(), values.is_empty()));
        for (number, values) in values.chunks_mut(1000).enumerate() {
            let mut gradient = vec![f32::NAN; values.len()];
            sum.average_into(1000 * number, &mut gradient);
            self.step_shard(index, first + 1000 * number, values, &gradient);
        }
    }
}

fn together(engine: &Engine) -> ShmOptimizer<'_, Momentum<3>> {
    ShmOptimizer::new(engine, momentum(), &PARAMETERS, FROM).expect("the ranks share memory")
}

fn values() -> Vec<ParamStorage> {
    PARAMETERS.iter().map(|(_, size)| vec![1.0; *size].into()).collect()
}

/// Whole numbers, so that no order of additions can be told from another; 12 can be divided by every number of ranks here.
fn gradient(engine: &Engine, index: usize, step: usize) -> impl Iterator<Item = f32> {
    let rank = engine.rank_info().rank;
    (0..PARAMETERS[index].1).map(move |i| (12 * ((i + step + rank) % 50)) as f32)
}

fn submit(engine: &Engine, optimizer: &mut ShmOptimizer<'_, Momentum<3>>, index: usize, step: usize) {
    optimizer
        .gradient_buffer(index)
        .iter_mut()
        .zip(gradient(engine, index, step))
        .for_each(|(room, value)| *room = value);
    optimizer.ready(index);
}

#[test]
fn steps_in_common_memory_are_those_over_the_engine() {
    each(&[2, 3, 4], |engine| {
        let me = engine.rank_info().rank;
        let mut plain = DistributedOptimizer::new(engine, momentum(), &PARAMETERS, Config::PLAIN).expect("good");
        let mut plainly = values();
        let (mut optimizer, mut commonly) = (together(engine), values());
        assert!(!optimizer.is_sharded(0) && optimizer.is_sharded(1) && !optimizer.is_sharded(2));
        optimizer.share_parameters(&mut commonly).expect("all take them");
        for step in 0..20 {
            for index in [0, 1] {
                plain.submit(index, &gradient(engine, index, step).collect::<Vec<_>>()).expect("started");
            }
            let mut parts: Vec<&mut [f32]> = plainly.iter_mut().map(|values| &mut **values).collect();
            plain.step(&mut parts).expect("a step");
            // Some look between, some do not, and each in its own steps.
            let looks = (step + me) % 3;
            submit(engine, &mut optimizer, 1, step);
            for _ in 0..looks {
                // SAFETY: nobody holds a slice of the values.
                unsafe { optimizer.try_overlapped_step() };
                std::thread::yield_now();
            }
            submit(engine, &mut optimizer, 0, step);
            optimizer.step(&mut commonly).expect("a step");
            assert_eq!(plainly, commonly, "step {step}");
        }
        for index in 0..PARAMETERS.len() {
            optimizer.gather_state(index, |momentum| &mut momentum.0[index]).expect("gathered");
        }
        assert_eq!(optimizer.optimizer_mut(), plain.optimizer_mut());
    });
}

#[test]
fn large_parameters_are_stepped_with_while_the_pass_goes_on() {
    each(&[2, 3], |engine| {
        let (mut optimizer, mut values) = (together(engine), values());
        optimizer.share_parameters(&mut values).expect("all take them");
        for step in 0..3 {
            let before = optimizer.optimizer_mut().0[1].clone();
            // SAFETY: nobody holds a slice of the values.
            unsafe { optimizer.try_overlapped_step() };
            engine.barrier(SetId::GLOBAL).expect("all come");
            unsafe { optimizer.try_overlapped_step() };
            assert_eq!(optimizer.optimizer_mut().0[1], before, "nobody has offered anything");
            submit(engine, &mut optimizer, 1, step);
            // SAFETY: as above.
            unsafe { optimizer.try_overlapped_step() };
            engine.barrier(SetId::GLOBAL).expect("all have offered");
            unsafe { optimizer.try_overlapped_step() };
            let now = optimizer.optimizer_mut().0[1].clone();
            let own = engine.shard(LARGE);
            assert!(now.iter().zip(&before).enumerate().all(|(i, (now, before))| own.contains(&i) || now == before));
            assert_ne!(now[own.clone()], before[own], "it has stepped");
            // Nothing is done twice.
            unsafe { optimizer.try_overlapped_step() };
            submit(engine, &mut optimizer, 0, step);
            optimizer.step(&mut values).expect("the rest");
            assert_eq!(optimizer.optimizer_mut().0[1], now);
        }
    });
}

#[test]
fn a_gradient_that_nobody_wrote_counts_as_zeros() {
    each(&[2], |engine| {
        let (mut optimizer, mut values) = (together(engine), values());
        optimizer.share_parameters(&mut values).expect("all take them");
        submit(engine, &mut optimizer, 1, 0);
        optimizer.step(&mut values).expect("a step");
        let after = values.clone();
        assert_eq!((&*after[0], &*after[2]), (&[1.0; 10][..], &[1.0; 2][..]));
        // Momentum alone moves on; what was in the room before does not count again.
        optimizer.step(&mut values).expect("a step");
        assert!(values[1].iter().zip(&after[1]).all(|(now, before)| (before - now) * 2.0 == 1.0 - before));
    });
}

#[test]
fn values_that_others_do_not_see_are_refused_before_anything_happens() {
    each(&[2], |engine| {
        let (mut optimizer, mut values) = (together(engine), values());
        let told = optimizer.step(&mut values).expect_err("not taken");
        assert_eq!(told, OptimizerError::NotShared { name: "large".into() });
        optimizer.share_parameters(&mut values).expect("all take them");
        assert_eq!(optimizer.step(&mut values.clone()).expect_err("a copy is its owner's"), told);
        let told = optimizer.step(&mut values[..2]).expect_err("one is missing");
        assert_eq!(told, OptimizerError::ParameterCount { given: 2, n_parameters: 3 });
        let small = std::mem::replace(&mut values[0], vec![0.0; 3].into());
        let told = optimizer.step(&mut values).expect_err("too short");
        assert_eq!(told, OptimizerError::LengthMismatch { name: "small".into(), given: 3, size: 10 });
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
        together(engine).share_parameters(&mut values).expect("all take them");
        assert!(values[1].iter().all(|value| *value == 7.0));
    });
}

#[test]
fn where_memory_is_not_shared_the_optimizer_comes_back() {
    each(&[1], |engine| assert!(ShmOptimizer::new(engine, momentum(), &PARAMETERS, FROM).is_err()));
    let options = Options { transport: Transport::Tcp, ..Options::DEFAULT };
    on_ranks(2, &options, |world| {
        let settings = Settings::from_variables(|_| None).expect("defaults");
        let engine = Engine::in_world(world, &settings).expect("an engine");
        assert_eq!(ShmOptimizer::new(&engine, momentum(), &PARAMETERS, FROM).err(), Some(momentum()));
        engine.barrier(SetId::GLOBAL).expect("all come to the end");
    });
}

#[test]
fn a_timeline_shows_gradients_so_they_travel() {
    let folder = tempfile::tempdir().expect("a folder");
    on_ranks(2, &Options::DEFAULT, |world| {
        let recorded = (world.rank() == 0).then(|| folder.path().join("timeline.json").display().to_string());
        let variable = |name: &str| recorded.clone().filter(|_| name == "HOROVOD_TIMELINE");
        let settings = Settings::from_variables(variable).expect("settings");
        let engine = Engine::in_world(world, &settings).expect("an engine");
        assert!(ShmOptimizer::new(&engine, momentum(), &PARAMETERS, FROM).is_err());
        engine.barrier(SetId::GLOBAL).expect("all come to the end");
    });
}

#[test]
fn ranks_of_two_minds_share_nothing() {
    each(&[2], |engine| {
        let from = FROM + engine.rank_info().rank;
        assert!(ShmOptimizer::new(engine, momentum(), &PARAMETERS, from).is_err());
        // And can go on.
        together(engine).share_parameters(&mut values()).expect("all take them");
    });
}

#[test]
fn ranks_can_meet_without_any_parameters() {
    each(&[2], |engine| {
        let mut nothing = ShmOptimizer::new(engine, momentum(), &[], FROM).expect("the ranks share memory");
        for _ in 0..3 {
            nothing.step(&mut []).expect("they meet");
        }
    });
}

#[test]
fn who_is_gone_is_named() {
    on_ranks(3, &Options::DEFAULT, |world| {
        let settings = Settings::from_variables(|_| None).expect("defaults");
        let engine = Engine::in_world(world, &settings).expect("an engine");
        let (mut optimizer, mut values) = (together(&engine), values());
        optimizer.share_parameters(&mut values).expect("all take them");
        if engine.rank_info().rank == 1 {
            return;
        }
        let told = optimizer.step(&mut values).expect_err("one is missing");
        let OptimizerError::Sync { cause } = &told else { panic!("{told:?}") };
        assert!(cause.to_string().contains("rank 1"), "{cause}");
    });
}
