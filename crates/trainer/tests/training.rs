//! Complete trainings as real processes: ranks learn together, die, resume, and report errors. The test executable
//! starts itself once per rank.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use corro_trainer::network::Weights;
use corro_trainer::report::metrics::{self, EpochMetrics};
use corro_trainer::save::{checkpoint, keras};
use corro_trainer::train::{Options, Settings, run};

/// Settings of a small training. Epochs are divided among the ranks.
fn small(epochs: usize, seed: u64) -> String {
    let synthetic = r#"{"train": 160, "test": 60}"#;
    format!(r#"{{"epochs": {epochs}, "seed": {seed}, "learningRate": 0.0005, "threads": 1, "synthetic": {synthetic}}}"#)
}

/// Body of each child process: one rank, configured by its environment.
#[test]
#[ignore = "started by the other tests as a process"]
fn a_rank() {
    let variable = |name: &str| std::env::var(name).expect(name);
    let (settings, dir) = (variable("SETTINGS"), variable("DIR"));
    let settings: Settings = serde_json::from_str(&settings).expect("settings");
    let options =
        Options { dir: Path::new(&dir), fresh: std::env::var_os("FRESH").is_some(), terminal: None, on_step: None };
    if let Err(error) = run(&settings, &options, &mut std::io::stdout()) {
        let mut text = format!("error: {error}");
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            text += &format!(": {error}");
            cause = error.source();
        }
        eprintln!("{text}");
        std::process::exit(1);
    }
}

/// All ranks of a training; killed when dropped.
struct Gang(Vec<Child>);

/// Output and exit status of a rank.
#[derive(Debug)]
struct RankOutput {
    out: String,
    err: String,
    status: ExitStatus,
}

impl Gang {
    fn start(size: usize, settings: &str, dir: &Path, more: &[(&str, &str)]) -> Gang {
        static JOBS: AtomicU64 = AtomicU64::new(0);
        let job = format!("training {} {}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed));
        let start = |rank: usize| {
            let mut command = Command::new(std::env::current_exe().expect("a test has a file"));
            command.args(["--ignored", "--exact", "a_rank", "--nocapture"]);
            command.env_clear().env("SETTINGS", settings).env("DIR", dir).envs(more.iter().copied());
            // Variables as set by torchrun. The port is never opened; it only identifies the job.
            let [rank, size] = [rank, size].map(|number| number.to_string());
            command.envs([("RANK", &rank), ("LOCAL_RANK", &rank), ("WORLD_SIZE", &size), ("LOCAL_WORLD_SIZE", &size)]);
            command.env("MASTER_PORT", &job).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().expect("it starts")
        };
        Gang((0..size).map(start).collect())
    }

    /// Waits for all ranks. They write little, so no pipe fills up before it is read.
    fn wait(mut self) -> Vec<RankOutput> {
        let finish = |mut child: Child| {
            let (mut out, mut err) = (String::new(), String::new());
            child.stdout.take().map(|mut pipe| pipe.read_to_string(&mut out)).transpose().expect("text");
            child.stderr.take().expect("piped").read_to_string(&mut err).expect("text");
            RankOutput { out, err, status: child.wait().expect("it can be waited for") }
        };
        self.0.drain(..).map(finish).collect()
    }

    /// Waits for all ranks, which must succeed.
    fn wait_successfully(self) -> Vec<RankOutput> {
        let outputs = self.wait();
        assert!(outputs.iter().all(|rank| rank.status.success()), "{outputs:#?}");
        outputs
    }

    /// Reads rank 0's output until a line contains `words`. The rest is left for [`Gang::wait`].
    fn wait_for(&mut self, words: &str) {
        // No larger buffer: its contents would be lost.
        let out = self.0[0].stdout.as_mut().expect("piped");
        let mut lines = BufReader::with_capacity(1, out);
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert!(lines.read_line(&mut line).expect("text") > 0, "it ended before it printed {words:?}");
        }
    }
}

impl Drop for Gang {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // The process may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn train(size: usize, settings: &str, dir: &Path) -> Vec<RankOutput> {
    Gang::start(size, settings, dir, &[]).wait_successfully()
}

fn model(dir: &Path) -> Weights {
    keras::read(&dir.join("saved_models/keras_cifar10_trained_model.h5")).expect("a model")
}

fn epochs(dir: &Path) -> Vec<EpochMetrics> {
    metrics::parse_epochs(&std::fs::read_to_string(dir.join(metrics::FILE)).expect("metrics"))
}

/// The final scores of a rank.
fn test_scores(outputs: &RankOutput) -> Vec<&str> {
    outputs.out.lines().filter(|line| line.starts_with("Test ")).collect()
}

fn last_checkpoint(dir: &Path) -> usize {
    let last = checkpoint::find_latest(&dir.join("checkpoints")).expect("a directory");
    last.checkpoint.map_or(0, |(_, checkpoint)| checkpoint.epoch)
}

#[test]
fn two_ranks_learn_together_and_print_what_the_script_prints() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = r#"{"epochs": 16, "learningRate": 0.0005, "threads": 1, "synthetic": {"train": 480, "test": 200}}"#;
    let outputs = train(2, settings, dir.path());
    for rank in &outputs {
        for words in [
            "Synthetic images, made from the seed: --data gives those of CIFAR-10.\n2 ranks share 16 epochs: each trains 8, with 2 times the learning rate.\nx_train shape: (480, 32, 32, 3)\n480 train samples\n200 test samples\nUsing real-time data augmentation.\nEpoch 1/8\n",
            "15/15 [==============================] - ",
            "/step - loss: ",
            " - val_acc: ",
            "saved_models/keras_cifar10_trained_model.h5 \n200/200 [==============================] - ",
        ] {
            assert!(rank.out.contains(words), "{words:?} in {}", rank.out);
        }
    }
    let epochs = epochs(dir.path());
    assert_eq!(epochs.iter().map(|epoch| epoch.epoch).collect::<Vec<_>>(), (1..=8).collect::<Vec<_>>());
    let last = epochs.last().expect("eight");
    assert_eq!((last.ranks, last.epochs), (2, 8));
    assert!(last.val_acc > 0.3 && last.val_loss < epochs[0].val_loss, "far better than chance: {last:?}");
    // Every rank prints the scores over all ranks.
    let scores = test_scores(&outputs[0]);
    assert_eq!(scores, test_scores(&outputs[1]));
    assert_eq!(scores[1], format!("Test accuracy: {}", last.val_acc));
    let loss: f64 = scores[0].trim_start_matches("Test loss: ").parse().expect("a number");
    assert!((loss - last.val_loss).abs() < 1e-9, "{loss}, {last:?}");
    assert!(dir.path().join("saved_models/keras_cifar10_trained_model.safetensors").is_file());
    let kept = std::fs::read_dir(dir.path().join("checkpoints")).expect("there").count();
    assert_eq!(kept, 3, "older checkpoints are removed");
}

#[test]
fn the_same_seed_gives_the_same_weights_and_another_does_not() {
    let dirs = [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
    for (dir, seed) in dirs.iter().zip([1, 1, 2]) {
        train(3, &small(3, seed), dir.path());
    }
    let [one, again, other] = dirs.map(|dir| model(dir.path()));
    assert!(one == again, "the same to the last bit");
    assert!(one != other);
}

/// Once with each rank as the victim. The training is long enough not to finish before the kill.
#[test]
fn a_killed_training_resumes_to_the_same_weights() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    for (victim, dir) in dirs.iter().enumerate() {
        let mut gang = Gang::start(2, &small(100_000, 1), dir.path(), &[]);
        gang.wait_for("Epoch 3/");
        gang.0[victim].kill().expect("it lives");
        let outputs = gang.wait();
        let survivor = &outputs[1 - victim];
        assert!(!survivor.status.success(), "{outputs:#?}");
        assert!(survivor.err.contains(&format!("rank {victim}")), "it names who died: {survivor:#?}");
    }
    let lasts = [0, 1].map(|victim| last_checkpoint(dirs[victim].path()));
    assert!(lasts.iter().all(|last| *last >= 2), "{lasts:?}");
    let n_epochs = lasts[0].max(lasts[1]) + 1;
    let settings = small(2 * n_epochs, 1);
    let whole = tempfile::tempdir().expect("a directory");
    train(2, &settings, whole.path());
    for (last, dir) in lasts.iter().zip(&dirs) {
        for rank in &train(2, &settings, dir.path()) {
            let words =
                format!("checkpoint-{last}.h5 after epoch {last} of {n_epochs}\nEpoch {}/{n_epochs}\n", last + 1);
            assert!(rank.out.contains(&words), "{words:?} in {}", rank.out);
        }
        assert!(model(dir.path()) == model(whole.path()), "the same to the last bit after epoch {last}");
        let recorded: Vec<usize> = epochs(dir.path()).iter().map(|epoch| epoch.epoch).collect();
        assert_eq!(recorded, (1..=n_epochs).collect::<Vec<_>>());
    }
}

#[test]
fn a_finished_training_is_only_scored_unless_fresh_or_extended() {
    let dir = tempfile::tempdir().expect("a directory");
    let first = train(1, &small(2, 1), dir.path());
    let before = model(dir.path());
    let again = train(1, &small(2, 1), dir.path());
    assert!(again[0].out.contains("This training is finished") && !again[0].out.contains("Epoch"), "{}", again[0].out);
    assert_eq!(test_scores(&first[0]), test_scores(&again[0]));
    assert!(model(dir.path()) == before);
    assert_eq!(epochs(dir.path()).len(), 2);

    let further = train(1, &small(3, 1), dir.path());
    assert!(further[0].out.contains("Epoch 3/3") && !further[0].out.contains("Epoch 2/3"), "{}", further[0].out);
    let anew = Gang::start(1, &small(2, 1), dir.path(), &[("FRESH", "1")]).wait_successfully();
    assert!(anew[0].out.contains("Epoch 1/2"), "{}", anew[0].out);
    assert!(model(dir.path()) == before, "the seed decides");
    assert_eq!((epochs(dir.path()).len(), last_checkpoint(dir.path())), (2, 2));
}

#[test]
fn another_run_in_the_same_directory_is_rejected_by_all_ranks() {
    let dir = tempfile::tempdir().expect("a directory");
    train(1, &small(1, 1), dir.path());
    let outputs = Gang::start(2, &small(2, 7), dir.path(), &[]).wait();
    assert!(outputs.iter().all(|rank| !rank.status.success()), "{outputs:#?}");
    for words in ["checkpoint-1.h5 is of another training (ranks 1, not 2; seed 1, not 7)", "--fresh"] {
        assert!(outputs[0].err.contains(words), "{}", outputs[0].err);
    }
    assert!(outputs[1].err.contains("rank 0 could not begin; its own message says why"), "{}", outputs[1].err);
}

#[test]
fn invalid_settings_and_paths_fail_before_training() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("it can be written");
    let small = small(1, 1);
    for (settings, dir, words) in [
        (r#"{"epochs": 0}"#, dir.path(), "epochs is 0: it must be a whole number"),
        (r#"{"data": "/nowhere/at/all"}"#, dir.path(), "no CIFAR-10 at /nowhere/at/all"),
        (&small, file.as_path(), "cannot create the directory"),
        (&small, Path::new("/proc/training"), "cannot create the directory"),
    ] {
        let outputs = Gang::start(1, settings, dir, &[]).wait();
        assert!(!outputs[0].status.success() && outputs[0].err.contains(words), "{words:?} in {outputs:#?}");
        assert!(!outputs[0].out.contains("Epoch"), "{outputs:#?}");
    }
}
