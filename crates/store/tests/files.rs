//! Database files: checked before SQLite opens them, complete after a close, and unchanged by every refusal.

use std::collections::BTreeMap;
use std::path::Path;

use corro_model::{GroupKey, Timestamp};
use corro_store::backup::{self, BackupError};
use corro_store::data_dir::{DATABASE, MASTER_KEY};
use corro_store::{DatabaseFileError, GroupRecord, Store, StoreError};

const WAL: &str = "corro.db-wal";

async fn put(store: &Store, names: &[&str]) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let commit = store.commit(move |txn| {
        for name in names {
            let location = "x".repeat(3000);
            let record = GroupRecord {
                name: name.clone(),
                location,
                tags: None,
                created: Timestamp::default(),
                deleting: false,
            };
            txn.put(GroupKey::new(&name), record);
        }
        Ok::<_, StoreError>(())
    });
    commit.await.expect("commits");
}

fn open(dir: &Path) -> Result<Store, StoreError> {
    Store::open(&dir.join(DATABASE))
}

fn groups(store: &Store) -> Vec<String> {
    store.snapshot().groups.values().map(|group| group.name.clone()).collect()
}

/// Files of a directory with their contents.
fn bytes(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).expect("a list").map(|entry| entry.expect("an entry"));
    entries.map(|e| (e.file_name().into_string().expect("text"), std::fs::read(e.path()).expect("bytes"))).collect()
}

/// Copy of `dir` in the state that `kill -9` leaves.
fn crashed(dir: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a temp dir");
    for name in [DATABASE, WAL, "corro.db-shm"] {
        std::fs::copy(dir.join(name), copy.path().join(name)).expect("copied");
    }
    copy
}

#[track_caller]
fn refused(dir: &Path, is_expected: impl Fn(&DatabaseFileError) -> bool) {
    let before = bytes(dir);
    match open(dir) {
        Err(StoreError::DatabaseFiles(refusal)) if is_expected(&refusal) => {}
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("it was opened"),
    }
    let looked = backup::verify(&dir.join(DATABASE));
    assert!(matches!(looked, Err(BackupError::DatabaseFiles(_) | BackupError::NoDatabase(_))), "{looked:?}");
    let to = tempfile::tempdir().expect("a temp dir");
    backup::back_up(dir, &to.path().join("copy"), Timestamp::default()).expect_err("refused");
    assert!(before == bytes(dir), "a refusal changed {:?}", bytes(dir).keys());
}

#[tokio::test]
async fn a_closed_database_is_one_whole_file() {
    let (dir, alone) = (tempfile::tempdir().expect("a temp dir"), tempfile::tempdir().expect("a temp dir"));
    let store = open(dir.path()).expect("opens");
    for name in ["a", "b", "c"] {
        put(&store, &[name]).await;
    }
    assert!(store.close().await.expect("closes"));
    assert!(matches!(store.close().await, Err(StoreError::Stopped)));
    assert_eq!(bytes(dir.path()).keys().collect::<Vec<_>>(), [DATABASE]);
    std::fs::copy(dir.path().join(DATABASE), alone.path().join(DATABASE)).expect("copied");
    assert_eq!(groups(&open(alone.path()).expect("opens")), ["a", "b", "c"]);
    // A check changes no files and leaves none.
    let before = bytes(dir.path());
    backup::verify(&dir.path().join(DATABASE)).expect("sound");
    assert!(before == bytes(dir.path()));
}

#[tokio::test]
async fn no_database_is_made_where_one_is_missing() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let store = open(dir.path()).expect("opens");
    put(&store, &["a"]).await;
    std::fs::write(dir.path().join(MASTER_KEY), [7; 32]).expect("a key");
    let dir = {
        let copy = crashed(dir.path());
        std::fs::copy(dir.path().join(MASTER_KEY), copy.path().join(MASTER_KEY)).expect("copied");
        copy
    };
    let (database, aside) = (dir.path().join(DATABASE), dir.path().join("aside"));
    let lost = |refusal: &DatabaseFileError| matches!(refusal, DatabaseFileError::DatabaseLost { .. });
    std::fs::rename(&database, &aside).expect("moved");
    refused(dir.path(), lost);
    std::fs::write(&database, "").expect("emptied");
    refused(dir.path(), lost);
    // The write-ahead log alone shows that there was a database.
    std::fs::remove_file(dir.path().join(MASTER_KEY)).expect("removed");
    refused(dir.path(), lost);
    std::fs::write(&database, "no database at all").expect("written");
    refused(dir.path(), |refusal| matches!(refusal, DatabaseFileError::NotADatabase(_)));
    std::fs::rename(&aside, &database).expect("put back");
    assert_eq!(groups(&open(dir.path()).expect("opens")), ["a"]);
}

#[tokio::test]
async fn a_log_of_another_database_or_time_is_refused() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a temp dir"));
    let [one, other] = [0, 1].map(|idx| open(dirs[idx].path()).expect("opens"));
    put(&one, &["a"]).await;
    put(&one, &["b"]).await;
    put(&other, &["z"]).await;
    put(&other, &["y"]).await;
    let foreign = |refusal: &DatabaseFileError| matches!(refusal, DatabaseFileError::WalForeign { .. });
    let damaged = |refusal: &DatabaseFileError| matches!(refusal, DatabaseFileError::WalDamaged { .. });
    let (first, theirs) = (crashed(dirs[0].path()), crashed(dirs[1].path()));
    let sound = bytes(first.path());
    let log = |dir: &Path, bytes: &[u8]| std::fs::write(dir.join(WAL), bytes).expect("written");
    log(first.path(), &bytes(theirs.path())[WAL]);
    refused(first.path(), foreign);
    log(first.path(), b"garbage");
    refused(first.path(), damaged);
    let mut flipped = sound[WAL].clone();
    flipped[200] ^= 1;
    log(first.path(), &flipped);
    refused(first.path(), damaged);
    // A newer write-ahead log with an older database.
    one.close().await.expect("closes");
    let one = open(dirs[0].path()).expect("opens again");
    put(&one, &["c"]).await;
    put(&one, &["d"]).await;
    let later = crashed(dirs[0].path());
    log(first.path(), &bytes(later.path())[WAL]);
    refused(first.path(), foreign);
    // An older write-ahead log with a newer database.
    one.close().await.expect("closes");
    std::fs::copy(dirs[0].path().join(DATABASE), later.path().join(DATABASE)).expect("copied");
    log(later.path(), &sound[WAL]);
    refused(later.path(), foreign);
    // With its own write-ahead log, a database has all rows.
    log(first.path(), &sound[WAL]);
    assert_eq!(groups(&open(first.path()).expect("opens")), ["a", "b"]);
    assert_eq!(groups(&open(theirs.path()).expect("opens")), ["y", "z"]);
}

#[tokio::test]
async fn a_crash_at_any_byte_of_the_log_starts_with_what_was_whole() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let store = open(dir.path()).expect("opens");
    for name in ["a", "b", "c"] {
        put(&store, &[name]).await;
    }
    let crashed = crashed(dir.path());
    let sound = bytes(crashed.path());
    let mut seen = 0;
    for len in (0..sound[WAL].len()).step_by(1501).chain([sound[WAL].len()]) {
        std::fs::write(crashed.path().join(DATABASE), &sound[DATABASE]).expect("written");
        std::fs::write(crashed.path().join(WAL), &sound[WAL][..len]).expect("written");
        let store = open(crashed.path()).unwrap_or_else(|error| panic!("{len} bytes: {error:?}"));
        assert!(groups(&store).len() >= seen, "{len} bytes");
        seen = groups(&store).len();
        store.close().await.expect("closes");
    }
    assert_eq!(seen, 3);
}

#[tokio::test]
async fn a_database_in_use_is_not_opened_twice_by_whatever_name() {
    let (dir, other) = (tempfile::tempdir().expect("a temp dir"), tempfile::tempdir().expect("a temp dir"));
    let store = open(dir.path()).expect("opens");
    put(&store, &["a"]).await;
    std::fs::hard_link(dir.path().join(DATABASE), other.path().join(DATABASE)).expect("linked");
    assert!(matches!(open(other.path()), Err(StoreError::InUse { .. })));
    put(&store, &["b"]).await;
    assert_eq!(groups(&store), ["a", "b"]);
}
