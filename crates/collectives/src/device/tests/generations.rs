//! A process of an elastic job keeps its device from one generation to the next. Engines that end because a rank has died leave no memory,
//! events or mappings behind.

use std::sync::{Arc, Barrier};

use super::elements::{Tensor, values};
use super::job::{HOST, Rank, request};
use super::ranks::on_ranks;
use crate::coordinator::Kind;
use crate::device::context::DeviceContext;
use crate::device::driver::Driver;
use crate::device::fake::FakeDriver;
use crate::settings::Settings;
use crate::{Dtype, Engine, Options};

const SIZE: usize = 3;
const N_GENERATIONS: usize = 8;
const N: usize = 5000;

fn settings(variables: &[(&str, &str)]) -> Settings {
    let read = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    Settings::from_variables(read).expect("good settings")
}

/// All ranks complete one operation; then the last one is found dead in another.
fn fail_a_generation(rank: &Rank, finished: &Barrier) {
    let submit = |name: &str| {
        let tensor = Tensor::new(rank, Dtype::F32, &values(Dtype::F32, rank.rank(), N));
        let requests = vec![request(name, Kind::Allreduce, Dtype::F32, &[N as u64])];
        let handle = rank.submit(requests, vec![tensor.in_place()]);
        (tensor, handle)
    };
    let (_first_tensor, first) = submit("first");
    rank.finish(&first);
    let (_second_tensor, second) = submit("second");
    if rank.rank() + 1 < SIZE {
        rank.engine.world.peer_table.on_died(SIZE - 1);
        let _ = rank.engine.synchronize(&second);
    }
    finished.wait();
}

#[test]
fn failed_generations_leave_nothing_on_the_device() {
    for variables in [&[], HOST] {
        println!("{variables:?}");
        let devices: Vec<_> = (0..SIZE)
            .map(|_| {
                let driver = FakeDriver::new(1);
                let context = DeviceContext::with_driver(driver.clone(), 0).expect("a stream");
                let stream = driver.new_stream().expect("a stream");
                (driver, context, stream)
            })
            .collect();
        let mut usage: Vec<Vec<(usize, usize)>> = Vec::new();
        for _generation in 0..N_GENERATIONS {
            let finished = Barrier::new(SIZE);
            on_ranks(SIZE, &Options::DEFAULT, |world| {
                let (driver, context, stream) = devices[world.rank()].clone();
                let engine = Engine::in_world(world, &settings(variables)).expect("an engine");
                fail_a_generation(&Rank { engine, driver, context, stream }, &finished);
            });
            let now = |(driver, ..): &(Arc<FakeDriver>, _, _)| (driver.allocated().len(), driver.n_events());
            usage.push(devices.iter().map(now).collect());
            for (driver, ..) in &devices {
                assert_eq!(*driver.imported.lock().expect("no panic"), [], "all memory of other ranks is unmapped");
                assert_eq!(driver.errors(), [""; 0]);
            }
        }
        for rank in 0..SIZE {
            assert!(usage[N_GENERATIONS - 1][rank].0 <= usage[2][rank].0, "memory: {usage:?}");
            assert!(usage[N_GENERATIONS - 1][rank].1 <= usage[2][rank].1 + 2, "events: {usage:?}");
        }
        devices.iter().for_each(|(driver, ..)| driver.end_streams());
    }
}
