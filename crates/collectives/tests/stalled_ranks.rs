//! Ranks that are stopped: somebody says whom the others wait for, and when the rank goes on, all is well.

mod processes;

use processes::{Gang, hostname};

const NEGOTIATED: (&str, &str) = ("RANK_DOOR", "negotiated");
const DIRECT: (&str, &str) = ("RANK_DOOR", "direct");
const TCP: (&str, &str) = ("CORRO_TRANSPORT", "tcp");
const SHARED: (&str, &str) = ("CORRO_TRANSPORT", "shm");
const SOON_TOLD: (&str, &str) = ("HOROVOD_STALL_CHECK_TIME_SECONDS", "1");

#[test]
fn rank_0_names_rank_host_and_tensor_of_who_is_missing() {
    let mut gang = Gang::connected(3, &[NEGOTIATED, SOON_TOLD]);
    gang.all_do("reduce first 10");
    gang.ranks[2].stop();
    gang.tell_all("reduce conv1.weight 10");
    gang.ranks[0].complains("Missing ranks:");
    gang.ranks[0].complains(&format!("2: [conv1.weight] on {}", hostname()));
    gang.ranks[2].go_on();
    gang.all_say("done conv1.weight");
    gang.all_do("reduce after 10");
    gang.leave();
}

#[test]
fn a_stopped_coordinator_is_named_by_the_others() {
    for transport in [SHARED, TCP] {
        let mut gang = Gang::connected(3, &[NEGOTIATED, SOON_TOLD, transport]);
        gang.all_do("reduce first 10");
        gang.ranks[0].stop();
        gang.tell_all("reduce waits 10");
        for rank in [1, 2] {
            let host = hostname();
            let told = format!("rank {rank} on host {host} has been waiting for rank 0 on host {host} for");
            gang.ranks[rank].complains(&told);
        }
        gang.ranks[0].go_on();
        gang.all_say("done waits");
        gang.all_do("reduce after 10");
        assert_eq!(gang.ranks[0].complaints(), "", "rank 0 was late, nobody else");
        gang.leave();
    }
}

#[test]
fn a_rank_stopped_amid_operations_is_named_with_what_is_done() {
    for (transport, victim) in [(SHARED, 1), (TCP, 2), (SHARED, 0)] {
        let mut gang = Gang::connected(3, &[NEGOTIATED, SOON_TOLD, transport]);
        gang.tell_all("again fc.bias 3000000");
        gang.all_say("busy");
        gang.ranks[victim].stop();
        let named = format!("waiting for rank {victim} on host {}", hostname());
        let missing = format!("{victim}: [fc.bias] on {}", hostname());
        // It was stopped between two operations or inside of one: rank 0 or a neighbour tells.
        processes::until("somebody names the stopped rank and the tensor", || {
            let told = gang.others(victim).map(|(_, rank)| rank.complaints()).collect::<Vec<_>>().join("\n");
            let inside = told.lines().any(|line| line.contains(&named) && (line.contains("fc.bias") || victim == 0));
            inside || told.contains(&missing)
        });
        gang.ranks[victim].go_on();
    }
}

#[test]
fn who_waits_in_the_direct_door_says_for_whom() {
    for (transport, victim) in [(SHARED, 0), (TCP, 2)] {
        let mut gang = Gang::connected(3, &[DIRECT, SOON_TOLD, transport]);
        gang.all_do("reduce first 10");
        gang.ranks[victim].stop();
        gang.tell_all("reduce waits 10");
        let named = format!("has been waiting for rank {victim} on host {} for", hostname());
        processes::until("somebody names the stopped rank", || {
            gang.others(victim).any(|(_, rank)| rank.complaints().contains(&named))
        });
        gang.ranks[victim].go_on();
        gang.all_say("done waits");
        gang.leave();
    }
}

#[test]
fn a_stall_ends_the_job_when_that_is_wanted() {
    let wanted = ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "2");
    let mut gang = Gang::connected(3, &[NEGOTIATED, SOON_TOLD, wanted]);
    gang.all_do("reduce first 10");
    gang.ranks[1].stop();
    gang.tell_all("reduce stalled 10");
    for rank in [0, 2] {
        let failed = gang.ranks[rank].says("failed stalled");
        assert!(failed.starts_with("Horovod has been shut down."), "rank {rank}: {failed}");
    }
    gang.ranks[0].complains(&format!("1!: [stalled] on {}", hostname()));
    gang.ranks[1].go_on();
    gang.ranks[1].says("failed stalled");
}

#[test]
fn a_rank_stopped_amid_operations_is_not_waited_for_longer_than_wanted() {
    let wanted = [SOON_TOLD, ("HOROVOD_GLOO_TIMEOUT_SECONDS", "2"), ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "2")];
    for transport in [SHARED, TCP] {
        let mut gang = Gang::connected(3, &[&wanted[..], &[NEGOTIATED, transport]].concat());
        gang.tell_all("again busy 3000000");
        gang.all_say("busy");
        gang.ranks[1].stop();
        for rank in [0, 2] {
            let failed = gang.ranks[rank].says("failed busy");
            // Between two operations rank 0 ends the job, and has said why; inside of one, whoever waits does.
            let named = failed.contains("rank 1 on host") || failed.starts_with("Horovod has been shut down.");
            assert!(named, "{transport:?}: rank {rank}: {failed}");
        }
    }
}
