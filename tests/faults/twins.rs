//! A backup restored, or a data directory copied, on the machine on which the server runs. The copy has the same nodes and jobs
//! with the same ids, but must not touch the live server's agents, ranks and directories, and works by itself.

use std::path::Path;
use std::process::Command;

use super::harness::fault_injection::waiting_rank;
use super::harness::{Site, is_alive};
use super::{DAEMON, assert_succeeded, daemons};

#[test]
fn a_restored_backup_leaves_the_live_server_alone() {
    check(|site, copied| {
        let file = site.path().join("backup.db");
        let (from, to) = (site.data(), copied.data());
        site.corro(&format!("admin backup --data {} --to {}", from.display(), file.display())).ok();
        site.corro(&format!("admin restore --from {} --data {}", file.display(), to.display())).ok();
        copy(&from.join("shares"), &to.join("shares"));
    });
}

#[test]
fn a_copy_of_the_data_directory_leaves_the_live_server_alone() {
    check(|site, copied| copy(&site.data(), &copied.data()));
}

fn copy(from: &Path, to: &Path) {
    // Files that vanish meanwhile are no failure: the directory is in use.
    let copied = Command::new("cp").arg("-a").args([from, to]).output().expect("cp runs");
    assert!(to.join("mystorageaccount").exists() || to.join("corro.db").exists(), "{copied:?}");
}

/// A live server with a running job, and a copy of it that starts, runs and ends.
fn check(make: impl FnOnce(&Site, &Site)) {
    let site = Site::start_with(&["--no-containers", "--lease", "3"]);
    site.prepare(1);
    site.submit_ranks("job1", 1, &waiting_rank(DAEMON));
    let live = site.wait_for_starts(1).remove(0);
    super::harness::wait_for("the daemon", || daemons(&site).len() == 1);
    let (agent, daemon) = (site.agent_of(&live.node), daemons(&site)[0]);
    let assert_untouched = |when: &str| {
        for (what, pid) in [("agent", agent), ("rank", live.pid), ("background process", daemon)] {
            assert!(is_alive(pid), "the live server's {what} was ended {when}");
        }
        assert!(site.data().join("nodes").join(&live.node).join("credential.json").exists(), "{when}");
    };

    let mut copied = Site::unstarted(&["--no-containers", "--lease", "3"]);
    make(&site, &copied);
    copied.up();
    // The copy has no agent of that node: it gives the node up, starts its own and runs the job again there.
    let again = copied.wait_for_starts(2).remove(1);
    assert_untouched("when the copy gave up its node");
    copied.release_ranks();
    assert_succeeded(&copied.wait_for_end("job1"));
    copied.submit_custom("own", 1, "echo of the copy");
    assert_succeeded(&copied.wait_for_end("own"));
    copied.interrupt_server();
    assert_untouched("when the copy ended");
    assert!(!is_alive(again.pid) && copied.agents().is_empty(), "the copy ends what is its own");

    assert_eq!(site.agent_of(&live.node), agent);
    site.release_ranks();
    let job = site.wait_for_end("job1");
    assert_succeeded(&job);
    assert!(job["lostAttempts"].as_array().is_none_or(Vec::is_empty), "{job:#}");
    assert_eq!(site.starts(), [live], "one attempt, of one process");
}
