//! Compares every relevant command of the real `az` with ours: same JSON, same tables, same exit codes, and equivalent errors.
//! The command lines are in `comparisons/`; `python/compare_az.py` runs them.

use super::real::RealSite;

fn play(scripts: &str) {
    let Some(real) = RealSite::start() else { return };
    let server = real.url();
    let vars = [("CORRO_PROGRAM", env!("CARGO_BIN_EXE_corro")), ("CORRO_SERVER", &server), ("SCRIPTS", scripts)];
    if let Some(ended) = real.python("az", "compare_az.py", &vars) {
        assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    }
}

#[test]
fn groups_and_accounts() {
    play("groups accounts");
}

#[test]
fn workspaces_and_clusters() {
    play("workspaces clusters");
}

#[test]
fn jobs() {
    play("jobs");
}

#[test]
fn containers_and_blobs() {
    play("blobs");
}

#[test]
fn shares_directories_and_files() {
    play("shares files");
}
