//! Runs the fuzz targets on their corpus and on a bounded number of mutations, which are the same in every run. `CORRO_FUZZ_RUNS`
//! sets the number of mutations, `CORRO_FUZZ_SEED` the seed. A failure prints seed and input; add the input to the corpus with the
//! fix.

#[path = "../../../fuzz/mutate.rs"]
mod mutate;
#[path = "../../../fuzz/targets.rs"]
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use mutate::{Random, mutate, read_corpus};
use targets::{TARGETS, Target};

const MUTATIONS: u64 = 4_000;
/// Mutations of targets that use the disk for every input.
const MUTATIONS_ON_DISK: u64 = 400;
const MAX_INPUT_BYTES: usize = 16 * 1024;
const SEED: u64 = 0x00C0_2202_6115;

#[test]
fn targets_hold_on_the_corpus_and_its_mutations() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = number("CORRO_FUZZ_SEED").unwrap_or(SEED);
    for (name, target) in TARGETS {
        let default_runs = if *name == "nfs" { MUTATIONS_ON_DISK } else { MUTATIONS };
        let runs = number("CORRO_FUZZ_RUNS").unwrap_or(default_runs);
        let corpus = read_corpus(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name));
        assert!(corpus.len() >= 3, "the corpus of {name} is missing");
        corpus.iter().for_each(|input| check(name, *target, input, "corpus"));
        let mut random = Random(seed);
        for run in 0..runs {
            let input = mutate(&corpus, &mut random, MAX_INPUT_BYTES);
            check(name, *target, &input, &format!("seed {seed}, run {run}"));
        }
    }
}

fn check(name: &str, target: Target, input: &[u8], origin: &str) {
    if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
        panic!("the target {name} failed ({origin}) on:\n{}", input.escape_ascii());
    }
}
