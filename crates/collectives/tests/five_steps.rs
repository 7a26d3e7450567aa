//! Runs the example `five_steps` as real processes: it converges, and two ranks with half a batch each take the same steps as one rank with the
//! whole batch.

use std::process::{Child, Command, ExitCode, Output, Stdio};

#[path = "../examples/five_steps.rs"]
mod example;

/// Runs the example inside the test binary, because the example's own binary may not be built.
#[test]
#[ignore = "started by the other test as a process"]
fn a_rank() {
    assert_eq!(example::main(), ExitCode::SUCCESS, "the training ends well");
}

/// Rank process, killed when dropped.
struct Rank(Option<Child>);

impl Rank {
    fn start(rank: usize, size: usize, batch: usize) -> Rank {
        let mut command = Command::new(std::env::current_exe().expect("a test has a file"));
        command.args(["--ignored", "--exact", "a_rank", "--nocapture"]).stdout(Stdio::piped());
        command.env_clear().env("BATCH", batch.to_string());
        if size > 1 {
            // torchrun's variables. The port is never opened; it only identifies the job.
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
            // The process may have exited.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Output of rank 0: parameters after some epochs, and the final error. Other ranks print nothing.
fn train(size: usize, batch: usize) -> (Vec<f32>, f32) {
    let ranks: Vec<Rank> = (0..size).map(|rank| Rank::start(rank, size, batch)).collect();
    let mut outputs = ranks.into_iter().map(Rank::output).map(|output| {
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    });
    let first = outputs.next().expect("rank 0");
    assert!(outputs.all(|text| !text.contains("epoch") && !text.contains("ranks:")), "only rank 0 prints");
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
fn two_ranks_take_the_same_steps_as_one_with_twice_the_batch() {
    let (alone, off) = train(1, 64);
    assert!(off < 0.01, "off by {off}");
    let (together, off) = train(2, 32);
    assert!(off < 0.01, "off by {off}");
    let distance = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(distance(&alone, &together) < 1e-5, "{alone:?}, {together:?}");
    // A different batch size gives different parameters, so the comparison is meaningful.
    let (other, _) = train(1, 32);
    assert!(distance(&alone, &other) > 1e-3, "{alone:?}, {other:?}");
}
