//! The five steps from single-process to data-parallel training: init, pin, scale, wrap, broadcast. The problem is a linear fit of noisy points
//! by stochastic gradient descent; each rank trains on its own part of the points.
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
/// Learning rate for a batch of one point; it scales with the batch size.
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

    // 1. Init: connect to the other ranks. Without a launcher this process is the only rank.
    let engine = Engine::start()?;
    let (rank, size) = (engine.rank_info().rank, engine.rank_info().size);

    // 2. Pin: each rank computes on its own cores. A program that uses GPUs would select the one numbered `local_rank`.
    affinity::pin(engine.rank_info())?;

    // 3. Scale: the learning rate grows with the number of ranks.
    let rate = scale_learning_rate(&engine, RATE * batch as f32, ReduceOp::Average);

    // 4. Wrap: the optimizer, here a closure, gets the averaged gradients of all ranks.
    let descend = |_: usize, parameter: &mut [f32], gradient: &[f32]| {
        parameter.iter_mut().zip(gradient).for_each(|(value, slope)| *value -= rate * slope);
    };
    let mut optimizer = DistributedOptimizer::new(&engine, descend, &[("slope", 2), ("offset", 1)], Config::DEFAULT)?;

    // 5. Broadcast: all ranks start with the parameters of rank 0.
    let (mut slope, mut offset) = ([rank as f32; 2], [rank as f32]);
    broadcast_parameters(&engine, &mut [&mut slope, &mut offset], 0)?;

    for epoch in 0..N_EPOCHS {
        // Each step uses the next points, divided among the ranks.
        for points in (0..N_POINTS).step_by(batch * size).map(|start| start + rank * batch..start + (rank + 1) * batch)
        {
            let mut slope_gradient = [0.0; 2];
            let mut offset_gradient = 0.0;
            for (inputs, target) in points.map(point) {
                let error = slope[0] * inputs[0] + slope[1] * inputs[1] + offset[0] - target;
                slope_gradient[0] += 2.0 * error * inputs[0] / batch as f32;
                slope_gradient[1] += 2.0 * error * inputs[1] / batch as f32;
                offset_gradient += 2.0 * error / batch as f32;
            }
            // Each reduction runs while the next gradient is computed.
            optimizer.submit(1, &[offset_gradient])?;
            optimizer.submit(0, &slope_gradient)?;
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

/// Point number `index` near the line, the same on every rank.
fn point(index: usize) -> ([f32; 2], f32) {
    let mut state = index as u64 + 1;
    // SplitMix64, scaled to -1..1.
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
