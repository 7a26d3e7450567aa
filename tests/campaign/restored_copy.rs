//! Restored copy: a backup of the running server, restored and started beside it on the same machine. It has the same nodes and
//! jobs with the same ids, and must not end any process of the original.

use std::path::Path;
use std::time::Duration;

use super::harness::{Site, wait_for};

pub enum CopyOutcome {
    /// The copy ran beside the server.
    Ran,
    /// The backup was interrupted, as by a full disk.
    NoBackup,
}

/// Starts a restored copy, lets it take over its nodes, and stops it.
pub fn run(site: &Site, directory: &Path, beside: Duration) -> CopyOutcome {
    let mut copy = Site::unstarted(&["--no-containers", "--lease", "3"]);
    let file = directory.join("backup.db");
    let (from, to) = (site.data(), copy.data());
    let backup = site.corro(&format!("admin backup --data {} --to {}", from.display(), file.display()));
    if backup.code != 0 {
        eprintln!("no backup: {}", backup.stderr);
        return CopyOutcome::NoBackup;
    }
    site.corro(&format!("admin restore --from {} --data {}", file.display(), to.display())).ok();
    std::fs::remove_file(file).expect("the backup was made");
    copy.up();
    let until = std::time::Instant::now() + beside;
    // The copy works by itself: it starts nodes of its own.
    wait_for("the restored copy to start agents", || !copy.agents().is_empty());
    std::thread::park_timeout(until.saturating_duration_since(std::time::Instant::now()));
    assert_eq!(copy.interrupt_server(), Some(0), "the restored copy ends in order; its log: {}", copy.up_log());
    assert!(copy.agents().is_empty() && copy.node_processes().is_empty(), "the restored copy ends what is its own");
    CopyOutcome::Ran
}
