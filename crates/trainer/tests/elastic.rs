//! Elastic trainings as real processes: members are killed, join and are dismissed. Afterwards every image of an epoch was used once, and
//! the same seed and history of sizes have given the same weights.

#[path = "../../collectives/src/bootstrap/rendezvous/tests/kv_server.rs"]
mod kv_server;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use corro_trainer::network::Weights;
use corro_trainer::network::glorot_init::glorot_uniform;
use corro_trainer::report::metrics::{self, EpochMetrics};
use corro_trainer::save::keras;
use corro_trainer::train::{CompletedStep, Options, Settings, run};
use kv_server::KvServer;

const N_IMAGES: usize = 160;
const LIMIT: Duration = Duration::from_secs(120);

fn settings(epochs: usize) -> String {
    format!(
        r#"{{"epochs": {epochs}, "batch": 8, "seed": 5, "learningRate": 0.0005, "threads": 1,
            "synthetic": {{"train": {N_IMAGES}, "test": 30}}}}"#
    )
}

/// Body of each child process, configured by its environment.
#[test]
#[ignore = "started by the other tests as a process"]
fn a_process() {
    let variable = |name: &str| std::env::var(name).expect(name);
    let settings: Settings = serde_json::from_str(&variable("SETTINGS")).expect("settings");
    let (dir, traces) = (PathBuf::from(variable("DIR")), PathBuf::from(variable("TRACES")));
    let own = traces.join(variable("CORRO_ELASTIC_PROCESS"));
    let trace = OpenOptions::new().create(true).append(true).open(own).expect("a trace");
    // The step after which this process kills itself, once these processes have completed it, too.
    let end: Option<u64> = std::env::var("END").ok().map(|step| step.parse().expect("a number"));
    let others: Vec<String> =
        std::env::var("OTHERS").unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    let on_step = move |step: &CompletedStep| {
        let CompletedStep { iterations, epoch, positions } = step;
        let line = format!("{iterations} {epoch} {} {}\n", positions.start, positions.end);
        (&trace).write_all(line.as_bytes()).expect("written");
        if Some(*iterations) == end {
            let done =
                |other: &String| read_trace(&traces.join(other)).iter().any(|step| step.iterations == *iterations);
            until("the others have completed the step", || others.iter().all(done));
            // SAFETY: a signal to this process.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
    };
    let options = Options { dir: &dir, fresh: false, terminal: None, on_step: Some(&on_step) };
    match run(&settings, &options, &mut std::io::stdout()) {
        Ok(_) => println!("complete"),
        Err(error) if error.is_dismissal() => println!("dismissed"),
        Err(error) => panic!("{}", corro_base::error_chain::join(&error)),
    }
}

/// An elastic job whose driver does as the test says.
struct Job {
    server: KvServer,
    folder: tempfile::TempDir,
    settings: String,
    processes: BTreeMap<u64, Process>,
}

/// Killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Job {
    fn new(epochs: usize) -> Job {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("traces")).expect("a folder");
        Job { server: KvServer::start(true), folder, settings: settings(epochs), processes: BTreeMap::new() }
    }

    fn start(&mut self, process: u64, more: &[(&str, &str)]) {
        let mut command = Command::new(std::env::current_exe().expect("a test has a file"));
        command.args(["--ignored", "--exact", "a_process", "--nocapture"]).stdin(Stdio::null());
        command.stdout(fs::File::create(self.output(process)).expect("a file"));
        command.env_clear().env("SETTINGS", &self.settings).env("DIR", self.folder.path().join("out"));
        command.env("TRACES", self.folder.path().join("traces")).envs(more.iter().copied());
        command.env("HOROVOD_ELASTIC", "1").env("CORRO_ELASTIC_PROCESS", process.to_string());
        command.env("HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1").env("HOROVOD_HOSTNAME", "here");
        command.env("HOROVOD_GLOO_RENDEZVOUS_PORT", self.server.port().to_string());
        self.processes.insert(process, Process(command.spawn().expect("it starts")));
    }

    fn output(&self, process: u64) -> PathBuf {
        self.folder.path().join(format!("output-{process}"))
    }

    /// Answers those that ask for a generation later than `after` with this one.
    fn begin(&self, generation: u64, members: &[u64]) {
        let size = members.len();
        let places = members.iter().enumerate().flat_map(|(rank, process)| {
            let place = format!("{generation} {rank} {size} {rank} {size} 0 1");
            // A new process asks after 0, a member after the generation before.
            let afters = if generation == 1 { vec![0] } else { vec![0, generation - 1] };
            afters.into_iter().map(move |after| (format!("/corro_elastic/place.{process}.{after}"), place.clone()))
        });
        self.server.put_all(places);
    }

    fn wait(&mut self, process: u64) -> std::process::ExitStatus {
        let mut child = self.processes.remove(&process).expect("it was started");
        let mut status = None;
        until(&format!("process {process} ends"), || {
            status = child.0.try_wait().expect("a child can be waited for");
            status.is_some()
        });
        status.expect("it has ended")
    }

    fn completes(&mut self, process: u64, how: &str) {
        let status = self.wait(process);
        let text = fs::read_to_string(self.output(process)).expect("its output");
        assert!(status.success() && text.contains(how), "process {process} {status}: {text}");
    }

    /// Checks that every image of every epoch was used once, in steps without a gap. Returns the sizes of the steps' batches.
    fn check_images(&self, epochs: usize) -> Vec<usize> {
        let traces = fs::read_dir(self.folder.path().join("traces")).expect("a folder");
        let mut steps: Vec<CompletedStep> = traces.flat_map(|file| read_trace(&file.expect("a file").path())).collect();
        steps.sort_by_key(|step| (step.iterations, step.positions.start, step.positions.end));
        let mut sizes: Vec<usize> = Vec::new();
        let mut used = vec![Vec::new(); epochs];
        for step in &steps {
            sizes.resize(step.iterations as usize, 0);
            sizes[step.iterations as usize - 1] += step.positions.len();
            used[step.epoch].extend(step.positions.clone());
        }
        for (epoch, used) in used.iter().enumerate() {
            assert_eq!(*used, (0..N_IMAGES).collect::<Vec<_>>(), "epoch {epoch}: {steps:?}");
        }
        sizes
    }

    fn metrics(&self) -> Vec<EpochMetrics> {
        let text = fs::read_to_string(self.folder.path().join("out").join(metrics::FILE)).expect("metrics");
        metrics::parse_epochs(&text)
    }

    fn weights(&self) -> Weights {
        let path = self.folder.path().join("out/saved_models/keras_cifar10_trained_model.h5");
        keras::read(&path).expect("the model was saved")
    }
}

fn read_trace(path: &Path) -> Vec<CompletedStep> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let parse = |line: &str| {
        let numbers: Vec<usize> = line.split(' ').map(|number| number.parse().expect("a number")).collect();
        let [iterations, epoch, start, end] = numbers[..] else { panic!("{line}") };
        CompletedStep { iterations: iterations as u64, epoch, positions: start..end }
    };
    // A line that is being written has no end yet.
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(parse).collect()
}

/// Polls a condition every few milliseconds until it holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Three ranks, of which one dies after 5 steps; then four, of which one dies after 9; then three.
fn train_with_deaths() -> Weights {
    let mut job = Job::new(2);
    job.start(1, &[]);
    job.start(2, &[]);
    job.start(3, &[("END", "5"), ("OTHERS", "1 2")]);
    job.begin(1, &[1, 2, 3]);
    job.wait(3);
    job.start(4, &[]);
    job.start(5, &[("END", "9"), ("OTHERS", "1 2 4")]);
    job.begin(2, &[1, 2, 4, 5]);
    job.wait(5);
    job.begin(3, &[1, 2, 4]);
    for process in [1, 2, 4] {
        job.completes(process, "complete");
    }
    assert_eq!(job.check_images(2), [24, 24, 24, 24, 24, 32, 8, 32, 32, 24, 24, 24, 24]);
    let epochs = job.metrics();
    let epochs: Vec<_> = epochs.iter().map(|epoch| (epoch.epoch, epoch.epochs, epoch.ranks)).collect();
    assert_eq!(epochs, [(1, 2, 4), (2, 2, 3)]);
    let text = fs::read_to_string(job.output(1)).expect("its output");
    assert!(text.contains("Generation 1 has ended: ") && text.contains("rank 2 on host here has died"), "{text}");
    assert!(text.contains("Generation 2: 4 ranks with 4 times the learning rate, from step 5 in epoch 1"), "{text}");
    job.weights()
}

#[test]
fn the_same_history_of_sizes_gives_the_same_weights() {
    let weights = train_with_deaths();
    assert!(weights == train_with_deaths(), "the weights differ");
    assert!(weights != glorot_uniform(5), "nothing was learned");
}

#[test]
fn the_first_rank_may_die() {
    let mut job = Job::new(2);
    job.start(1, &[("END", "12"), ("OTHERS", "2")]);
    job.start(2, &[]);
    job.begin(1, &[1, 2]);
    job.wait(1);
    job.begin(2, &[2]);
    job.completes(2, "complete");
    let sizes = job.check_images(2);
    assert_eq!((sizes.len(), &sizes[10..13]), (10 + 2 + 16, [16, 16, 8].as_slice()));
    // The files of the first rank are continued by the other one.
    let epochs = job.metrics();
    assert_eq!(epochs.iter().map(|epoch| (epoch.epoch, epoch.ranks)).collect::<Vec<_>>(), [(1, 2), (2, 1)]);
}

#[test]
fn ranks_join_and_leave_without_a_loss() {
    let mut job = Job::new(6);
    // Announced before the beginning, so that the changes come within the training.
    let value = |path: &str, value: &str| (format!("/corro_elastic/{path}"), value.to_owned());
    job.server.put_all([value("update.1", "2"), value("update.2", "1"), value("place.3.2", "dismissed")]);
    for (generation, members) in [(3, vec![1, 2]), (2, vec![1, 2, 3]), (1, vec![1, 2])] {
        job.begin(generation, &members);
    }
    (1..=3).for_each(|process| job.start(process, &[]));
    job.completes(1, "complete");
    job.completes(2, "complete");
    job.completes(3, "dismissed");
    let sizes = job.check_images(6);
    assert!(sizes.contains(&16) && sizes.contains(&24), "{sizes:?}");
}
