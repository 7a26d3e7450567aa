//! Measures the throughput of complete steps: `step [threads] [batch] [avx512|avx2|portable] [f32|bf16]`. For tuning
//! and profiling.

use std::time::{Duration, Instant};

use corro_trainer::compute::{Compute, Config, Isa, Precision};
use corro_trainer::network::{Batch, DropoutSeed, IMAGE, Weights};
use corro_trainer::random::Random;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize| arguments.get(index).map(String::as_str);
    let number = |index, otherwise| argument(index).map_or(otherwise, |text| text.parse().expect("a number"));
    let (threads, batch) = (number(0, 2), number(1, 32));
    let isa = match argument(2) {
        Some("avx512") => Isa::Avx512,
        Some("avx2") => Isa::Avx2,
        Some("portable") => Isa::Portable,
        _ => Isa::best(),
    };
    let precision = if argument(3) == Some("bf16") { Precision::Bf16 } else { Precision::F32 };
    let mut compute = Compute::new(&Config { threads, batch, precision, isa }).expect("this processor can");

    let mut random = Random::from_key(&[1]);
    let mut weights = Weights::zeros();
    weights.slices_mut().into_iter().flatten().for_each(|weight| *weight = random.uniform() * 0.1 - 0.05);
    let images: Vec<f32> = (0..batch * IMAGE).map(|_| random.uniform()).collect();
    let labels: Vec<u8> = (0..batch).map(|_| random.below(10) as u8).collect();
    let batch_of = Batch { images: &images, labels: &labels };
    let mut gradients = Weights::zeros();

    let mut times: Vec<Duration> = Vec::new();
    let start = Instant::now();
    for step in 0.. {
        let begun = Instant::now();
        compute.step(&weights, batch_of, Some(DropoutSeed { seed: 1, step, first: 0 }), &mut gradients);
        times.push(begun.elapsed());
        if start.elapsed() > Duration::from_secs(4) {
            break;
        }
    }
    times.sort();
    let rate = |time: Duration| batch as f64 / time.as_secs_f64();
    let (best, middle) = (rate(times[0]), rate(times[times.len() / 2]));
    println!(
        "{isa:?} {precision:?}, {threads} threads, batch {batch}: {middle:.0} images/s in the middle, {best:.0} at best"
    );
}
