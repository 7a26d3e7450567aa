//! Ranks stopped with SIGSTOP: other ranks report which rank they wait for, and the job continues when it resumes.

mod processes;

use processes::{Gang, hostname};

/// Ranks use the named API (`Engine`).
const NAMED_API: (&str, &str) = ("RANK_API", "named");
/// Ranks use the ordered API (`Communicator`).
const ORDERED_API: (&str, &str) = ("RANK_API", "ordered");
const TCP: (&str, &str) = ("CORRO_TRANSPORT", "tcp");
const SHARED: (&str, &str) = ("CORRO_TRANSPORT", "shm");
/// Stall warnings after one second.
const EARLY_WARNING: (&str, &str) = ("HOROVOD_STALL_CHECK_TIME_SECONDS", "1");

#[test]
fn rank_0_reports_rank_host_and_tensor_of_a_stall() {
    let mut gang = Gang::connected(3, &[NAMED_API, EARLY_WARNING]);
    gang.run_all("reduce first 10");
    gang.ranks[2].stop();
    gang.send_all("reduce conv1.weight 10");
    gang.ranks[0].wait_for_stderr("Missing ranks:");
    gang.ranks[0].wait_for_stderr(&format!("2: [conv1.weight] on {}", hostname()));
    gang.ranks[2].resume();
    gang.wait_all("done conv1.weight");
    gang.run_all("reduce after 10");
    gang.leave();
}

#[test]
fn a_stopped_coordinator_is_reported_by_the_others() {
    for transport in [SHARED, TCP] {
        let mut gang = Gang::connected(3, &[NAMED_API, EARLY_WARNING, transport]);
        gang.run_all("reduce first 10");
        gang.ranks[0].stop();
        gang.send_all("reduce waits 10");
        for rank in [1, 2] {
            let host = hostname();
            let warning = format!("rank {rank} on host {host} has been waiting for rank 0 on host {host} for");
            gang.ranks[rank].wait_for_stderr(&warning);
        }
        gang.ranks[0].resume();
        gang.wait_all("done waits");
        gang.run_all("reduce after 10");
        assert_eq!(gang.ranks[0].stderr(), "", "rank 0 was the stopped one and reports nothing");
        gang.leave();
    }
}

#[test]
fn a_rank_stopped_during_operations_is_reported_with_the_tensor() {
    for (transport, victim) in [(SHARED, 1), (TCP, 2), (SHARED, 0)] {
        let mut gang = Gang::connected(3, &[NAMED_API, EARLY_WARNING, transport]);
        gang.send_all("again fc.bias 3000000");
        gang.wait_all("busy");
        gang.ranks[victim].stop();
        let named = format!("waiting for rank {victim} on host {}", hostname());
        let missing = format!("{victim}: [fc.bias] on {}", hostname());
        // The rank was stopped between two operations or during one: rank 0 or a peer reports it.
        processes::until("a rank names the stopped rank and the tensor", || {
            let stderr = gang.others(victim).map(|(_, rank)| rank.stderr()).collect::<Vec<_>>().join("\n");
            let inside = stderr.lines().any(|line| line.contains(&named) && (line.contains("fc.bias") || victim == 0));
            inside || stderr.contains(&missing)
        });
        gang.ranks[victim].resume();
    }
}

#[test]
fn a_rank_waiting_in_the_ordered_api_reports_the_missing_rank() {
    for (transport, victim) in [(SHARED, 0), (TCP, 2)] {
        let mut gang = Gang::connected(3, &[ORDERED_API, EARLY_WARNING, transport]);
        gang.run_all("reduce first 10");
        gang.ranks[victim].stop();
        gang.send_all("reduce waits 10");
        let named = format!("has been waiting for rank {victim} on host {} for", hostname());
        processes::until("a rank names the stopped rank", || {
            gang.others(victim).any(|(_, rank)| rank.stderr().contains(&named))
        });
        gang.ranks[victim].resume();
        gang.wait_all("done waits");
        gang.leave();
    }
}

#[test]
fn a_stall_shuts_the_job_down_if_configured() {
    let wanted = ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "2");
    let mut gang = Gang::connected(3, &[NAMED_API, EARLY_WARNING, wanted]);
    gang.run_all("reduce first 10");
    gang.ranks[1].stop();
    gang.send_all("reduce stalled 10");
    for rank in [0, 2] {
        let failed = gang.ranks[rank].wait_for("failed stalled");
        assert!(failed.starts_with("Horovod has been shut down."), "rank {rank}: {failed}");
    }
    gang.ranks[0].wait_for_stderr(&format!("1!: [stalled] on {}", hostname()));
    gang.ranks[1].resume();
    gang.ranks[1].wait_for("failed stalled");
}

#[test]
fn the_operation_timeout_ends_the_wait_for_a_stopped_rank() {
    let wanted = [EARLY_WARNING, ("HOROVOD_GLOO_TIMEOUT_SECONDS", "2"), ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "2")];
    for transport in [SHARED, TCP] {
        let mut gang = Gang::connected(3, &[&wanted[..], &[NAMED_API, transport]].concat());
        gang.send_all("again busy 3000000");
        gang.wait_all("busy");
        gang.ranks[1].stop();
        for rank in [0, 2] {
            let failed = gang.ranks[rank].wait_for("failed busy");
            // Between two operations rank 0 shuts the job down after reporting the stall; during one, the waiting rank times out.
            let named = failed.contains("rank 1 on host") || failed.starts_with("Horovod has been shut down.");
            assert!(named, "{transport:?}: rank {rank}: {failed}");
        }
    }
}
