//! Restored copy: a backup of the running server, restored and started beside it on the same machine. It has the same nodes and
//! jobs with the same ids, and must not end any process of the original.

use std::path::Path;
use std::time::Duration;

use super::harness::{Site, wait_for};

pub enum Twinning {
    /// The copy ran beside the server.
    Ran,
    /// The backup was interrupted, as by a full disk.
    NoBackup,
}

/// Starts a restored copy, lets it take over its nodes, and stops it.
pub fn run(site: &Site, directory: &Path, beside: Duration) -> Twinning {
    let mut twin = Site::unstarted(&["--no-containers", "--lease", "3"]);
    let file = directory.join("backup.db");
    let (from, to) = (site.data(), twin.data());
    let backup = site.corro(&format!("admin backup --data {} --to {}", from.display(), file.display()));
    if backup.code != 0 {
        eprintln!("no backup: {}", backup.stderr);
        return Twinning::NoBackup;
    }
    site.corro(&format!("admin restore --from {} --data {}", file.display(), to.display())).ok();
    std::fs::remove_file(file).expect("the backup was made");
    twin.up();
    let until = std::time::Instant::now() + beside;
    // The copy works by itself: it starts nodes of its own.
    wait_for("the twin to start agents", || !twin.agents().is_empty());
    std::thread::park_timeout(until.saturating_duration_since(std::time::Instant::now()));
    assert_eq!(twin.interrupt_server(), Some(0), "the twin ends in order; its log: {}", twin.up_log());
    assert!(twin.agents().is_empty() && twin.node_processes().is_empty(), "the twin ends what is its own");
    Twinning::Ran
}
