//! The five steps that turn a training of one process into one of many: init, pin, scale, wrap, broadcast. The problem is small and real:
//! a line through noisy points, by stochastic gradient descent, each rank on its own part of the points.
//!
//! Alone: `cargo run --example five_steps`. With four ranks: `corro run -np 4 target/debug/examples/five_steps`, or `torchrun
//! --no-python`, `mpirun`, `srun`. `BATCH` is the number of points for each rank and step: 2 ranks with 32 take the steps that one
//! rank takes with 64.

use std::error::Error;
use std::process::ExitCode;

use corro_collectives::optimizer::{Config, DistributedOptimizer, broadcast_parameters, scale_learning_rate};
use corro_collectives::{Engine, ReduceOp, affinity};

const SLOPE: [f32; 2] = [3.0, -2.0];
const OFFSET: f32 = 0.5;
const N_POINTS: usize = 1024;
const N_EPOCHS: usize = 30;
/// For a batch of one point; steps over larger batches are larger.
const RATE: f32 = 0.002;

pub fn main() -> ExitCode {
    let Err(error) = train() else { return ExitCode::SUCCESS };
    eprint!("five_steps: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        eprint!(": {error}");
        cause = error.source();
    }
    eprintln!();
    ExitCode::FAILURE
}

fn train() -> Result<(), Box<dyn Error>> {
    let batch: usize = std::env::var("BATCH").map_or(Ok(32), |text| text.parse())?;

    // 1. Init: find the other ranks. Without any launcher this one is alone.
    let engine = Engine::start()?;
    let (rank, size) = (engine.rank_info().rank, engine.rank_info().size);

    // 2. Pin: every rank computes on processors of its own; who has devices would take the one numbered `local_rank`.
    affinity::pin(engine.rank_info())?;

    // 3. Scale: more ranks make larger steps.
    let rate = scale_learning_rate(&engine, RATE * batch as f32, ReduceOp::Average);

    // 4. Wrap: the optimizer, here a closure, will see the gradients of all ranks.
    let descend = |_: usize, parameter: &mut [f32], gradient: &[f32]| {
        parameter.iter_mut().zip(gradient).for_each(|(value, slope)| *value -= rate * slope);
    };
    let mut optimizer = DistributedOptimizer::new(&engine, descend, &[("slope", 2), ("offset", 1)], Config::PLAIN)?;

    // 5. Broadcast: all ranks begin where rank 0 begins.
    let (mut slope, mut offset) = ([rank as f32; 2], [rank as f32]);
    broadcast_parameters(&engine, &mut [&mut slope, &mut offset], 0)?;

    for epoch in 0..N_EPOCHS {
        // Each step takes the next points; every rank looks at its own part of them.
        for points in (0..N_POINTS).step_by(batch * size).map(|start| start + rank * batch..start + (rank + 1) * batch)
        {
            let mut of_slope = [0.0; 2];
            let mut of_offset = 0.0;
            for (inputs, target) in points.map(point) {
                let error = slope[0] * inputs[0] + slope[1] * inputs[1] + offset[0] - target;
                of_slope[0] += 2.0 * error * inputs[0] / batch as f32;
                of_slope[1] += 2.0 * error * inputs[1] / batch as f32;
                of_offset += 2.0 * error / batch as f32;
            }
            // One gradient travels while the next is made.
            optimizer.submit(1, &[of_offset])?;
            optimizer.submit(0, &of_slope)?;
            optimizer.step(&mut [&mut slope, &mut offset])?;
        }
        if rank == 0 && (epoch == 0 || epoch % 10 == 9) {
            println!("epoch {}: slope {:.6} {:.6}, offset {:.6}", epoch + 1, slope[0], slope[1], offset[0]);
        }
    }
    if rank == 0 {
        let far = (slope[0] - SLOPE[0]).abs() + (slope[1] - SLOPE[1]).abs() + (offset[0] - OFFSET).abs();
        println!("ranks: {size}, off by: {far:.6}");
    }
    drop(optimizer);
    engine.shut_down();
    Ok(())
}

/// The same on every rank: a point near the line, from its number.
fn point(index: usize) -> ([f32; 2], f32) {
    let mut state = index as u64 + 1;
    // Numbers between -1 and 1 out of a few rounds of mixing.
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let inputs = [next(), next()];
    let noise = 0.01 * next();
    (inputs, SLOPE[0] * inputs[0] + SLOPE[1] * inputs[1] + OFFSET + noise)
}
