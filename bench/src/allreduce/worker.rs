//! Our rank of the benchmark: repeated in-place sums of floats. A mode of this binary, started by `gang`. The peers' ranks
//! (`peers/allreduce.c`, `peers/allreduce.py`) follow the same steps.
//!
//! For each case: one call on numbers that differ by rank and element, whose sum is checked. Then calls on zeros, so that no
//! number grows without bound: a warm-up of first one call, then doubling until an eighth of the time for this case has passed,
//! at least three times (unless calls are so slow that twice the whole time has passed), which also yields the best time of a
//! call. Then up to ten batches, with as many calls in each as fill a tenth of the time; rank 0 prints the mean of each batch.
//! Ranks agree on the number of calls by the operation itself. There is no barrier: a sum needs all ranks, so no rank is ever
//! more than one call ahead.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::cases::Case;
use super::ours;

/// The hidden first argument.
pub const WORD: &str = "allreduce-rank";
const BATCHES: usize = 10;
const FEWEST_BATCHES: usize = 3;
/// Floats per page: tensors are page-aligned, like the peers'.
const PAGE: usize = 1024;

/// An API variant that sums tensors over all ranks, in place.
pub trait Way {
    fn name(&self) -> &'static str;
    fn rank(&self) -> usize;
    fn size(&self) -> usize;
    /// One tensor is one call; several are a step.
    fn call(&mut self, tensors: &mut [&mut [f32]]) -> Result<()>;
}

/// `allreduce-rank CASE...`
pub fn run(words: &[String]) -> ExitCode {
    match measure_all(words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure_all(words: &[String]) -> Result<()> {
    let cases: Option<Vec<Case>> = words.iter().map(|word| Case::parse(word)).collect();
    let cases = cases.context("a case is NAME:BUDGET_US:LENGTHS")?;
    for open in ours::WAYS {
        let mut way = open()?;
        for case in &cases {
            let taken = measure(way.as_mut(), case)?;
            if way.rank() == 0 {
                let figures: Vec<String> = taken.iter().map(|us| format!("{:.0}", us * 1e3)).collect();
                println!("case {} {} {}", case.name, way.name(), figures.join(" "));
            }
        }
    }
    Ok(())
}

/// Microseconds per call, one value per batch.
fn measure(way: &mut dyn Way, case: &Case) -> Result<Vec<f64>> {
    let mut tensors: Vec<Tensor> = case.lengths.iter().map(|length| Tensor::new(*length)).collect();
    let mut tensors: Vec<&mut [f32]> = tensors.iter_mut().map(Tensor::floats).collect();
    let tensors = tensors.as_mut_slice();
    let (rank, size) = (way.rank(), way.size());
    for tensor in &mut *tensors {
        tensor.iter_mut().enumerate().for_each(|(at, float)| *float = (rank + 1 + at % 7) as f32);
    }
    way.call(tensors)?;
    for tensor in &mut *tensors {
        let wrong = tensor.iter().enumerate().find(|(at, float)| **float != sum_at(*at, size));
        ensure!(wrong.is_none(), "rank {rank}, case {}, {}: the sum is wrong at {wrong:?}", case.name, way.name());
        tensor.fill(0.0);
    }

    let budget = case.budget_us as f64;
    let (mut calls, mut rounds, mut each, mut took, mut total) = (1, 0, f64::MAX, 0.0, 0.0);
    while (took < budget / 8.0 || rounds < 3) && total < 2.0 * budget {
        if took < budget / 8.0 && rounds > 0 {
            calls *= 2;
        }
        took = time_of(way, tensors, calls)?;
        took = shared(way, tensors, took)?;
        total += took;
        rounds += 1;
        each = each.min(took / calls as f64).max(0.01);
    }
    let (in_batch, batches) = match (budget / BATCHES as f64 / each) as usize {
        0 => (1, FEWEST_BATCHES.max((budget / each) as usize)),
        calls => (calls, BATCHES),
    };
    (0..batches).map(|_| Ok(time_of(way, tensors, in_batch)? / in_batch as f64)).collect()
}

/// Sum of `rank + 1 + at % 7` over all ranks.
fn sum_at(at: usize, size: usize) -> f32 {
    (size * (size + 1) / 2 + size * (at % 7)) as f32
}

fn time_of(way: &mut dyn Way, tensors: &mut [&mut [f32]], calls: usize) -> Result<f64> {
    let began = Instant::now();
    for _ in 0..calls {
        way.call(tensors)?;
    }
    Ok(began.elapsed().as_secs_f64() * 1e6)
}

/// Broadcasts the measurement of rank 0.
fn shared(way: &mut dyn Way, tensors: &mut [&mut [f32]], value: f64) -> Result<f64> {
    tensors[0][0] = if way.rank() == 0 { value as f32 } else { 0.0 };
    way.call(tensors)?;
    Ok(f64::from(std::mem::take(&mut tensors[0][0])))
}

/// Page-aligned floats.
struct Tensor {
    memory: Vec<f32>,
    begin: usize,
    length: usize,
}

impl Tensor {
    fn new(length: usize) -> Self {
        let memory = vec![0.0_f32; length + PAGE];
        let begin = memory.as_ptr().align_offset(4 * PAGE);
        Self { begin: if begin < PAGE { begin } else { 0 }, memory, length }
    }

    fn floats(&mut self) -> &mut [f32] {
        &mut self.memory[self.begin..self.begin + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rank 0 of several ranks that all hold the same values.
    struct Alike {
        size: usize,
        calls: usize,
    }

    impl Way for Alike {
        fn name(&self) -> &'static str {
            "alike"
        }
        fn rank(&self) -> usize {
            0
        }
        fn size(&self) -> usize {
            self.size
        }
        fn call(&mut self, tensors: &mut [&mut [f32]]) -> Result<()> {
            self.calls += 1;
            let size = self.size as f32;
            tensors.iter_mut().for_each(|tensor| tensor.iter_mut().for_each(|float| *float *= size));
            Ok(())
        }
    }

    #[test]
    fn a_case_is_measured_in_batches() {
        let mut alone = Alike { size: 1, calls: 0 };
        let taken = measure(&mut alone, &Case { name: "x".into(), lengths: vec![1, 5000], budget_us: 2000 });
        let taken = taken.expect("the sum of one is itself");
        assert!(taken.len() >= FEWEST_BATCHES && taken.iter().all(|us| *us > 0.0), "{taken:?}");
        assert!(alone.calls > taken.len());
    }

    #[test]
    fn a_wrong_sum_is_no_measurement() {
        let mut wrong = Alike { size: 2, calls: 0 };
        let case = Case { name: "x".into(), lengths: vec![9], budget_us: 10 };
        let error = measure(&mut wrong, &case).expect_err("2 and 2 are not 1 and 2");
        assert!(error.to_string().contains("the sum is wrong at Some((0, 2.0))"), "{error}");
    }

    #[test]
    fn tensors_begin_at_a_page() {
        for length in [1, 1023, 100_000] {
            let mut tensor = Tensor::new(length);
            assert_eq!((tensor.floats().as_ptr().addr() % 4096, tensor.floats().len()), (0, length));
        }
    }
}
