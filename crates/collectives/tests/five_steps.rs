//! The example of the five steps, as real processes: it converges, and ranks with parts of a batch take the steps of one rank with all of it.

use std::process::{Child, Command, ExitCode, Output, Stdio};

#[path = "../examples/five_steps.rs"]
mod example;

/// Also where the example's own file is not built.
#[test]
#[ignore = "started by the other test as a process"]
fn a_rank() {
    assert_eq!(example::main(), ExitCode::SUCCESS, "the training ends well");
}

/// Ends with the test, however that ends.
struct Rank(Option<Child>);

impl Rank {
    fn start(rank: usize, size: usize, batch: usize) -> Rank {
        let mut command = Command::new(std::env::current_exe().expect("a test has a file"));
        command.args(["--ignored", "--exact", "a_rank", "--nocapture"]).stdout(Stdio::piped());
        command.env_clear().env("BATCH", batch.to_string());
        if size > 1 {
            // As torchrun sets them; the port is never opened, only part of the job's identity.
            let [rank, size] = [rank, size].map(|number| number.to_string());
            command.envs([("RANK", &rank), ("LOCAL_RANK", &rank), ("WORLD_SIZE", &size), ("LOCAL_WORLD_SIZE", &size)]);
            command.env("MASTER_PORT", format!("five steps {}", std::process::id()));
        }
        Rank(Some(command.spawn().expect("it starts")))
    }

    fn output(mut self) -> Output {
        let child = self.0.take().expect("only taken here");
        child.wait_with_output().expect("it can be waited for")
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What rank 0 found: parameters after some epochs, and how far off it is at the end. The others say nothing.
fn train(size: usize, batch: usize) -> (Vec<f32>, f32) {
    let ranks: Vec<Rank> = (0..size).map(|rank| Rank::start(rank, size, batch)).collect();
    let mut told = ranks.into_iter().map(Rank::output).map(|output| {
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    });
    let first = told.next().expect("rank 0");
    assert!(told.all(|text| !text.contains("epoch") && !text.contains("ranks:")), "only rank 0 speaks");
    let epochs = first.lines().filter_map(|line| line.split_once("epoch ")?.1.split_once(':'));
    let found: Vec<f32> = epochs
        .flat_map(|(_, values)| values.split([' ', ',']).filter_map(|word| word.parse().ok()).collect::<Vec<_>>())
        .collect();
    assert_eq!(found.len(), 4 * 3, "{first}");
    let (_, end) = first.split_once(&format!("ranks: {size}, off by: ")).expect("a last line");
    let off = end.lines().next().and_then(|word| word.parse().ok()).expect("a number");
    (found, off)
}

#[test]
fn two_ranks_take_the_steps_of_one_with_twice_the_batch() {
    let (alone, off) = train(1, 64);
    assert!(off < 0.01, "off by {off}");
    let (together, off) = train(2, 32);
    assert!(off < 0.01, "off by {off}");
    let apart = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(apart(&alone, &together) < 1e-5, "{alone:?}, {together:?}");
    // Not because everything leads there.
    let (other, _) = train(1, 32);
    assert!(apart(&alone, &other) > 1e-3, "{alone:?}, {other:?}");
}
