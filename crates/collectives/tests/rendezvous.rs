//! Rendezvous at a rank 0 that is a separate process, and is killed.

use std::error::Error;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use corro_collectives::bootstrap::launch_env::Launch;
use corro_collectives::bootstrap::rendezvous::error::RendezvousError;
use corro_collectives::bootstrap::rendezvous::exchange;

/// Variables as torchrun sets them on one host; the port is only part of the job id, and never opened.
fn variables(rank: usize, size: usize, job: &str, secret: &str) -> Vec<(&'static str, String)> {
    let [rank, size] = [rank, size].map(|number| number.to_string());
    vec![
        ("RANK", rank.clone()),
        ("WORLD_SIZE", size.clone()),
        ("LOCAL_RANK", rank),
        ("LOCAL_WORLD_SIZE", size),
        ("MASTER_PORT", format!("{job} {}", std::process::id())),
        ("CORRO_JOB_SECRET", secret.to_owned()),
    ]
}

fn launch(rank: usize, size: usize, job: &str, secret: &str) -> Launch {
    let variables = variables(rank, size, job, secret);
    Launch::from_variables(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone()))
        .expect("the variables are right")
}

/// A process that is killed at the end of the test.
struct Process(Child);

impl Process {
    fn rank_0(size: usize, job: &str) -> Process {
        let mut command = Command::new(std::env::current_exe().expect("a test has a file"));
        command.args(["--ignored", "--exact", "a_process_that_is_rank_0"]).stdout(Stdio::null());
        Process(command.env_clear().envs(variables(0, size, job, "s3")).spawn().expect("it starts"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "started by the other tests as a process"]
fn a_process_that_is_rank_0() {
    let launch = Launch::from_environment().unwrap();
    exchange(&launch, 0, b"zero", soon()).unwrap();
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Joins repeatedly until it is refused for the reason.
fn wait_until_refused(launch: &Launch, reason: &str) {
    let deadline = soon();
    loop {
        let error = exchange(launch, 0, b"", Instant::now() + Duration::from_millis(100)).unwrap_err();
        let mut causes = std::iter::successors(Some(&error as &dyn Error), |error| (*error).source());
        if causes.any(|cause| cause.to_string().contains(reason)) {
            return;
        }
        assert!(Instant::now() < deadline, "never refused because {reason}: {error:?}");
    }
}

#[test]
fn processes_join_and_a_killed_rank_0_leaves_nothing_behind() {
    let rank_0 = Process::rank_0(2, "again");
    wait_until_refused(&launch(1, 2, "again", "wrong"), "does not know the job's secret");
    drop(rank_0);
    let mut rank_0 = Process::rank_0(2, "again");
    let all = exchange(&launch(1, 2, "again", "s3"), 0, b"one", soon()).unwrap();
    assert_eq!(all, [b"zero".to_vec(), b"one".to_vec()]);
    assert!(rank_0.0.wait().unwrap().success());
}

#[test]
fn the_death_of_rank_0_is_noticed_at_once_by_waiting_ranks() {
    let rank_0 = Process::rank_0(3, "killed");
    let launch = launch(1, 3, "killed", "s3");
    // One of the two is refused; the other then waits at rank 0.
    let (sender, outcomes) = std::sync::mpsc::channel();
    for _ in 0..2 {
        let (launch, sender) = (launch.clone(), sender.clone());
        thread::spawn(move || sender.send(exchange(&launch, 0, b"one", soon())));
    }
    let error = outcomes.recv().unwrap().unwrap_err();
    let refused = matches!(&error, RendezvousError::Refused { reason } if reason.contains("already joined as rank 1"));
    assert!(refused, "{error:?}");
    drop(rank_0);
    let error = outcomes.recv().unwrap().unwrap_err();
    assert!(matches!(error, RendezvousError::Rank0Lost(_)), "{error:?}");
}
