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
use super::engine_apis;

/// Hidden subcommand of this binary.
pub const SUBCOMMAND: &str = "allreduce-rank";
const BATCHES: usize = 10;
const MIN_BATCHES: usize = 3;
/// Floats per page: tensors are page-aligned, like the peers'.
const PAGE_FLOATS: usize = 1024;

/// An API variant that sums tensors over all ranks, in place.
pub trait CollectiveApi {
    fn name(&self) -> &'static str;
    fn rank(&self) -> usize;
    fn size(&self) -> usize;
    /// One tensor is one call; several are a step.
    fn call(&mut self, tensors: &mut [&mut [f32]]) -> Result<()>;
}

/// `allreduce-rank CASE...`
pub fn run(arguments: &[String]) -> ExitCode {
    match measure_all(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure_all(arguments: &[String]) -> Result<()> {
    let cases: Option<Vec<Case>> = arguments.iter().map(|argument| Case::parse(argument)).collect();
    let cases = cases.context("a case is NAME:BUDGET_US:LENGTHS")?;
    for connect in engine_apis::APIS {
        let mut api = connect()?;
        for case in &cases {
            let times_us = measure(api.as_mut(), case)?;
            if api.rank() == 0 {
                let ns: Vec<String> = times_us.iter().map(|us| format!("{:.0}", us * 1e3)).collect();
                println!("case {} {} {}", case.name, api.name(), ns.join(" "));
            }
        }
    }
    Ok(())
}

/// Microseconds per call, one value per batch.
fn measure(api: &mut dyn CollectiveApi, case: &Case) -> Result<Vec<f64>> {
    let mut tensors: Vec<Tensor> = case.lengths.iter().map(|length| Tensor::new(*length)).collect();
    let mut tensors: Vec<&mut [f32]> = tensors.iter_mut().map(Tensor::floats).collect();
    let tensors = tensors.as_mut_slice();
    let (rank, size) = (api.rank(), api.size());
    for tensor in &mut *tensors {
        tensor.iter_mut().enumerate().for_each(|(at, float)| *float = (rank + 1 + at % 7) as f32);
    }
    api.call(tensors)?;
    for tensor in &mut *tensors {
        let wrong = tensor.iter().enumerate().find(|(at, float)| **float != expected_sum(*at, size));
        ensure!(wrong.is_none(), "rank {rank}, case {}, {}: the sum is wrong at {wrong:?}", case.name, api.name());
        tensor.fill(0.0);
    }

    let budget = case.budget_us as f64;
    let (mut calls, mut rounds, mut each, mut took, mut total) = (1, 0, f64::MAX, 0.0, 0.0);
    while (took < budget / 8.0 || rounds < 3) && total < 2.0 * budget {
        if took < budget / 8.0 && rounds > 0 {
            calls *= 2;
        }
        took = time_calls(api, tensors, calls)?;
        took = broadcast(api, tensors, took)?;
        total += took;
        rounds += 1;
        each = each.min(took / calls as f64).max(0.01);
    }
    let (in_batch, batches) = match (budget / BATCHES as f64 / each) as usize {
        0 => (1, MIN_BATCHES.max((budget / each) as usize)),
        calls => (calls, BATCHES),
    };
    (0..batches).map(|_| Ok(time_calls(api, tensors, in_batch)? / in_batch as f64)).collect()
}

/// Sum of `rank + 1 + at % 7` over all ranks.
fn expected_sum(at: usize, size: usize) -> f32 {
    (size * (size + 1) / 2 + size * (at % 7)) as f32
}

fn time_calls(api: &mut dyn CollectiveApi, tensors: &mut [&mut [f32]], calls: usize) -> Result<f64> {
    let began = Instant::now();
    for _ in 0..calls {
        api.call(tensors)?;
    }
    Ok(began.elapsed().as_secs_f64() * 1e6)
}

/// Broadcasts the measurement of rank 0.
fn broadcast(api: &mut dyn CollectiveApi, tensors: &mut [&mut [f32]], value: f64) -> Result<f64> {
    tensors[0][0] = if api.rank() == 0 { value as f32 } else { 0.0 };
    api.call(tensors)?;
    Ok(f64::from(std::mem::take(&mut tensors[0][0])))
}

/// Floats in page-aligned memory.
struct Tensor {
    memory: Vec<f32>,
    begin: usize,
    length: usize,
}

impl Tensor {
    fn new(length: usize) -> Self {
        let memory = vec![0.0_f32; length + PAGE_FLOATS];
        let begin = memory.as_ptr().align_offset(4 * PAGE_FLOATS);
        Self { begin: if begin < PAGE_FLOATS { begin } else { 0 }, memory, length }
    }

    fn floats(&mut self) -> &mut [f32] {
        &mut self.memory[self.begin..self.begin + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rank 0 of several ranks that all hold the same values.
    struct IdenticalRanks {
        size: usize,
        calls: usize,
    }

    impl CollectiveApi for IdenticalRanks {
        fn name(&self) -> &'static str {
            "identical"
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
        let mut alone = IdenticalRanks { size: 1, calls: 0 };
        let times_us = measure(&mut alone, &Case { name: "x".into(), lengths: vec![1, 5000], budget_us: 2000 });
        let times_us = times_us.expect("the sum of one is itself");
        assert!(times_us.len() >= MIN_BATCHES && times_us.iter().all(|us| *us > 0.0), "{times_us:?}");
        assert!(alone.calls > times_us.len());
    }

    #[test]
    fn a_wrong_sum_is_no_measurement() {
        let mut wrong = IdenticalRanks { size: 2, calls: 0 };
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
