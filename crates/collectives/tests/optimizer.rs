//! Tests of `DistributedOptimizer`: overlapped reduction, compression, accumulation, sharded steps, errors.

mod ranks;

use corro_collectives::coordinator::SetId;
use corro_collectives::engine::ops::Reduce;
use corro_collectives::optimizer::{
    Config, DistributedOptimizer, Optimizer, OptimizerError, broadcast_parameters, scale_learning_rate,
};
use corro_collectives::settings::Settings;
use corro_collectives::{Compression, Engine, Options, ReduceOp, Transport};
use ranks::on_ranks;
use ranks::training::{Momentum, each};

const PARAMETERS: [(&str, usize); 3] = [("weight", 1000), ("bias", 3), ("unused", 2)];

/// Optimizer for tests that only check gradients.
fn no_step(_: usize, _: &mut [f32], _: &[f32]) {}

fn new_optimizer(engine: &Engine, config: Config) -> DistributedOptimizer<'_, impl Optimizer> {
    DistributedOptimizer::new(engine, no_step, &PARAMETERS, config).expect("good parameters")
}

#[test]
fn gradients_are_averaged_in_any_order_of_submission() {
    for compression in [Compression::None, Compression::Fp16, Compression::Bf16] {
        each(&[1, 2, 3], |engine| {
            let (me, n) = (engine.rank_info().rank, engine.rank_info().size);
            let mut optimizer = new_optimizer(engine, Config { compression, ..Config::DEFAULT });
            for step in 0..3 {
                let mine = (me + step) as f32;
                let order = if me == 1 { [1, 0] } else { [0, 1] };
                for index in order {
                    if index == 0 {
                        optimizer.gradient(0).expect("a buffer").iter_mut().for_each(|value| *value += mine);
                        optimizer.ready(0).expect("started");
                    } else {
                        optimizer.submit(1, &[mine, 2.0 * mine, 1.0]).expect("started");
                    }
                }
                let mean = (n - 1) as f32 / 2.0 + step as f32;
                let gradients = optimizer.synchronize().expect("averages");
                let close = |value: f32, expected: f32| (value - expected).abs() <= 0.01 * expected.abs();
                assert!(gradients[0].len() == 1000 && gradients[0].iter().all(|value| close(*value, mean)));
                assert!(close(gradients[1][0], mean) && close(gradients[1][1], 2.0 * mean), "{:?}", gradients[1]);
                assert_eq!((gradients[1][2], gradients[2].as_slice()), (1.0, [0.0, 0.0].as_slice()));
            }
        });
    }
}

#[test]
fn compressed_gradients_are_rounded_to_half_precision() {
    // 1 + 1/512 has 10 significant bits, 1 + 1/4096 has 13.
    let of = |compression| {
        let seen = std::sync::Mutex::new(Vec::new());
        each(&[2], |engine| {
            let mut optimizer = new_optimizer(engine, Config { compression, ..Config::DEFAULT });
            let sent = [1.0 + 1.0 / 512.0, 1.0 + 1.0 / 4096.0, 1.0];
            optimizer.submit(1, &sent).expect("started");
            let gradient = optimizer.synchronize().expect("averages")[1].clone();
            seen.lock().expect("no rank panics").push(gradient);
        });
        let seen = seen.into_inner().expect("no rank panics");
        assert_eq!(seen[0], seen[1]);
        seen[0].clone()
    };
    assert_eq!(of(Compression::None), [1.0 + 1.0 / 512.0, 1.0 + 1.0 / 4096.0, 1.0]);
    assert_eq!(of(Compression::Fp16), [1.0 + 1.0 / 512.0, 1.0, 1.0]);
    assert_eq!(of(Compression::Bf16), [1.0, 1.0, 1.0]);
}

#[test]
fn passes_are_summed_and_averaged_only_if_configured() {
    for (average_passes, expected) in [(false, 6.0), (true, 2.0)] {
        each(&[1, 2], |engine| {
            let config = Config { backward_passes_per_step: 3, average_passes, ..Config::DEFAULT };
            let mut optimizer = new_optimizer(engine, config);
            for _ in 0..2 {
                for pass in [1.0, 2.0, 3.0] {
                    optimizer.submit(1, &[pass; 3]).expect("added");
                }
                let error = optimizer.submit(1, &[1.0; 3]).expect_err("one too many");
                assert_eq!(error, OptimizerError::InFlight { name: "bias".into() });
                assert!(optimizer.gradient(1).is_err() && optimizer.ready(1).is_err());
                assert_eq!(optimizer.synchronize().expect("sums")[1], [expected; 3]);
            }
        });
    }
}

#[test]
fn only_the_first_pass_of_a_step_may_overwrite_the_gradient() {
    each(&[1, 2], |engine| {
        let mut optimizer = new_optimizer(engine, Config { backward_passes_per_step: 2, ..Config::DEFAULT });
        for value in [1.0, 5.0] {
            optimizer.gradient_buffer(1).expect("a buffer").fill(value);
            optimizer.ready(1).expect("the first pass");
            assert_eq!(
                optimizer.gradient_buffer(1).err(),
                Some(OptimizerError::AlreadyAccumulated { name: "bias".into() })
            );
            optimizer.submit(1, &[1.0; 3]).expect("the second pass");
            assert_eq!(optimizer.synchronize().expect("sums")[1], [value + 1.0; 3]);
        }
    });
}

#[test]
fn every_rank_takes_the_same_step_from_the_same_start() {
    each(&[1, 2, 4], |engine| {
        let (me, n) = (engine.rank_info().rank, engine.rank_info().size);
        let mut weight = vec![me as f32; 5];
        broadcast_parameters(engine, &mut [&mut weight], n as u32 - 1).expect("a broadcast");
        assert_eq!(weight, [n as f32 - 1.0; 5]);
        let rate = scale_learning_rate(engine, 0.5, ReduceOp::Average);
        assert_eq!((rate, scale_learning_rate(engine, 0.5, ReduceOp::Sum)), (0.5 * n as f32, 0.5));
        let descend = move |_: usize, parameter: &mut [f32], gradient: &[f32]| {
            parameter.iter_mut().zip(gradient).for_each(|(value, slope)| *value -= rate * slope);
        };
        let config = Config { reduce: Reduce::SUM, ..Config::DEFAULT };
        let mut optimizer = DistributedOptimizer::new(engine, descend, &[("w", 5)], config).expect("good");
        optimizer.submit(0, &[1.0; 5]).expect("started");
        optimizer.step(&mut [&mut weight]).expect("a step");
        assert_eq!(weight, [n as f32 - 1.0 - 0.5 * (n * n) as f32; 5]);
    });
}

#[test]
fn invalid_arguments_are_rejected_locally() {
    each(&[1], |engine| {
        let new = |parameters: &[(&str, usize)], config| {
            DistributedOptimizer::new(engine, no_step, parameters, config).map(drop)
        };
        assert_eq!(
            new(&[("a", 1), ("a", 2)], Config::DEFAULT),
            Err(OptimizerError::DuplicateName { name: "a".into() })
        );
        let none = Config { backward_passes_per_step: 0, ..Config::DEFAULT };
        assert_eq!(new(&[("a", 1)], none), Err(OptimizerError::NoPasses));
        let mut optimizer = new_optimizer(engine, Config::DEFAULT);
        assert_eq!(optimizer.ready(3), Err(OptimizerError::NoSuchParameter { index: 3, n_parameters: 3 }));
        let error = OptimizerError::LengthMismatch { name: "bias".into(), given: 2, size: 3 };
        assert_eq!(optimizer.submit(1, &[0.0; 2]), Err(error.clone()));
        let step = optimizer.step(&mut [&mut [0.0; 1000], &mut [0.0; 2], &mut [0.0; 2]]);
        assert_eq!(step, Err(error));
        assert_eq!(optimizer.step(&mut []), Err(OptimizerError::ParameterCount { given: 0, n_parameters: 3 }));
    });
}

#[test]
fn a_failed_reduction_is_reported_and_the_next_step_works() {
    each(&[2], |engine| {
        // The ranks have different sizes of the second parameter.
        let parameters = [("same", 4), ("other", 4 + engine.rank_info().rank)];
        let mut optimizer = DistributedOptimizer::new(engine, no_step, &parameters, Config::DEFAULT).expect("good");
        let failed = optimizer.synchronize().expect_err("shapes differ");
        assert!(matches!(&failed, OptimizerError::Reduction { name, .. } if name == "other"), "{failed:?}");
        assert_eq!(optimizer.gradient(1).expect("a buffer").len(), parameters[1].1);
        assert!(optimizer.synchronize().is_err());
        let mut other = new_optimizer(engine, Config::DEFAULT);
        other.submit(1, &[1.0; 3]).expect("started");
        assert_eq!(other.synchronize().expect("the engine goes on")[1], [1.0; 3]);
    });
}

#[test]
fn sharded_steps_equal_unsharded_steps() {
    // Large enough for every shared-memory algorithm, and not divisible by the number of ranks.
    for large in [70_001, 2_000_003] {
        for transport in [Transport::Auto, Transport::Tcp] {
            let options = Options { transport, ..Options::DEFAULT };
            on_ranks(3, &options, |world| {
                let settings = Settings::from_variables(|_| None).expect("defaults");
                let engine = Engine::in_world(world, &settings).expect("an engine");
                let parameters = [("large", large), ("small", 10)];
                let new = || {
                    let memory = Momentum([vec![0.0; large], vec![0.0; 10]]);
                    DistributedOptimizer::new(&engine, memory, &parameters, Config::DEFAULT).expect("good")
                };
                let (mut plain, mut shared) = (new(), new().with_sharded_steps(11));
                assert!(shared.is_sharded(0) && !shared.is_sharded(1) && !plain.is_sharded(0));
                let mut weights = [(); 2].map(|()| (vec![1.0f32; large], vec![1.0f32; 10]));
                for step in 0..3 {
                    // Integers, so that the order of additions does not matter.
                    let gradient: Vec<f32> =
                        (0..large).map(|i| (3 * ((i + step + engine.rank_info().rank) % 50)) as f32).collect();
                    for (optimizer, (large, small)) in [&mut plain, &mut shared].into_iter().zip(&mut weights) {
                        optimizer.submit(0, &gradient).expect("started");
                        optimizer.submit(1, &gradient[..10]).expect("started");
                        optimizer.step(&mut [large, small]).expect("a step");
                    }
                }
                assert_eq!(weights[0], weights[1]);
                let before = shared.optimizer_mut().0[0].clone();
                shared.gather_state(0, |momentum| &mut momentum.0[0]).expect("gathered");
                shared.gather_state(1, |momentum| &mut momentum.0[1]).expect("nothing to do");
                assert_eq!(shared.optimizer_mut().0, plain.optimizer_mut().0);
                assert_ne!(before, shared.optimizer_mut().0[0], "the state was valid only in the own shard");
                engine.barrier(SetId::GLOBAL).expect("all ranks finish");
            });
        }
    }
}

#[test]
fn only_uncompressed_sums_and_averages_are_sharded() {
    each(&[1, 2], |engine| {
        let shared = |config| {
            let memory = Momentum([vec![0.0; 100], vec![]]);
            DistributedOptimizer::new(engine, memory, &[("w", 100)], config)
                .expect("good")
                .with_sharded_steps(1)
                .is_sharded(0)
        };
        assert_eq!(shared(Config::DEFAULT), engine.rank_info().size == 2);
        assert!(!shared(Config { compression: Compression::Fp16, ..Config::DEFAULT }));
        assert!(!shared(Config { reduce: Reduce { op: ReduceOp::Adasum, ..Reduce::SUM }, ..Config::DEFAULT }));
    });
}
