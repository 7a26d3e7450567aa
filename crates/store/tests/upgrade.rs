//! Schema versions: an old database is upgraded with all its data, a newer one is refused unchanged.

use std::path::Path;

use corro_model::history::HistoryFilter;
use corro_model::state::{JobEvent, JobState};
use corro_model::{ApiError, GroupKey, Timestamp};
use corro_store::{Store, StoreError, Vault, backup};
use rusqlite::Connection;

/// Database of the first version with a schema.
const SCHEMA_1: &str = include_str!("fixtures/schema1.sql");
/// Master key of that database.
const KEY: [u8; 32] = [
    0x2c, 0x67, 0xa2, 0x5c, 0x9a, 0xf9, 0xb6, 0x26, 0xc8, 0x78, 0xaa, 0x4a, 0x9c, 0x1d, 0x58, 0x07, 0x0d, 0x6b, 0xe0,
    0x67, 0xb5, 0xd9, 0xc1, 0xe0, 0xa5, 0x7a, 0xab, 0x34, 0x9e, 0x6d, 0x78, 0xa6,
];

fn old_database(dir: &Path) -> std::path::PathBuf {
    let path = dir.join(corro_store::data_dir::DATABASE);
    Connection::open(&path).expect("opens").execute_batch(SCHEMA_1).expect("a database of schema 1");
    std::fs::write(dir.join(corro_store::data_dir::MASTER_KEY), KEY).expect("a key");
    path
}

fn schema_of(path: &Path) -> i64 {
    let connection = Connection::open(path).expect("opens");
    connection.query_row("PRAGMA user_version", [], |row| row.get(0)).expect("a number")
}

#[tokio::test]
async fn a_database_of_the_first_schema_is_brought_forward_whole() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let path = old_database(dir.path());
    let store = Store::open(&path).expect("opens");
    assert!(schema_of(&path) >= 3);
    let state = store.snapshot();
    let counts = (state.groups.len(), state.workspaces.len(), state.experiments.len(), state.clusters.len());
    assert_eq!((counts, state.nodes.len(), state.accounts.len(), state.operations.len()), ((1, 1, 1, 1), 1, 1, 5));
    let experiment = GroupKey::new("old").workspace("ws").experiment("exp");
    let states: Vec<_> = state.jobs_of(&experiment).map(|(_, job)| job.state().name()).collect();
    assert_eq!(states, ["succeeded", "failed", "running", "queued"]);
    let cluster = GroupKey::new("old").workspace("ws").cluster("c1");
    assert_eq!(
        (state.queue_length(&cluster), state.active_jobs().count(), state.nodes_of(&cluster).count()),
        (1, 1, 1)
    );

    let vault = Vault::open(&dir.path().join(corro_store::data_dir::MASTER_KEY)).expect("the key");
    let instance = state.instance_record().expect("an instance");
    vault.open_sealed("token key", &instance.token_key).expect("what was sealed opens");

    // The upgraded database works: the running job ends, the next job gets the next number, the history begins.
    let (running, now) = (experiment.job("running"), Timestamp::from_millis(1));
    let key = running.clone();
    let commit = store.commit(move |txn| {
        assert_eq!(txn.next_sequence(), 5);
        txn.end_attempt(&key, JobEvent::Succeeded { at: now }, now).map_err(|e| ApiError::bad_body(e.to_string()))
    });
    commit.await.expect("commits");
    assert!(matches!(store.snapshot().jobs[&running].state(), JobState::Succeeded { .. }));
    let history = store.history(&HistoryFilter::newest(10)).expect("reads");
    assert_eq!(history.iter().map(|entry| entry.what.as_str()).collect::<Vec<_>>(), ["job.succeeded"]);
}

#[test]
fn a_database_of_a_newer_schema_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let path = old_database(dir.path());
    Connection::open(&path).expect("opens").execute_batch("PRAGMA user_version = 99").expect("a later schema");
    let before = std::fs::read(&path).expect("bytes");
    let error = Store::open(&path).err().expect("refused");
    assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error:?}");
    assert!(error.to_string().contains("newer version") && error.to_string().contains("use that version"), "{error}");
    assert_eq!(std::fs::read(&path).expect("bytes"), before);
    assert!(backup::verify(&path).is_err());
    let files: Vec<_> =
        std::fs::read_dir(dir.path()).expect("a list").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(files.len(), 2, "nothing is left beside it: {files:?}");
}
