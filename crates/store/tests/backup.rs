//! Backups: consistent during commits, never overwritten, never partial, and refused when damaged.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use corro_model::{GroupKey, Timestamp};
use corro_store::backup::{self, BackupError};
use corro_store::dir_lock::DirLock;
use corro_store::{GroupRecord, InstanceRecord, Store, StoreError, Vault};

const NOW: Timestamp = Timestamp::from_millis(1_500_000_000_000);

fn group(name: &str) -> GroupRecord {
    GroupRecord { name: name.to_owned(), location: "x".to_owned(), tags: None, created: NOW, deleting: false }
}

async fn put_groups(store: &Store, names: Vec<String>) {
    let commit = store.commit(move |txn| {
        names.iter().for_each(|name| txn.put(GroupKey::new(name), group(name)));
        Ok::<_, StoreError>(())
    });
    commit.await.expect("commits");
}

/// A data directory in use by a server.
struct Data {
    store: Store,
    _lock: DirLock,
}

impl std::ops::Deref for Data {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

fn data(dir: &Path) -> Data {
    let lock = DirLock::exclusive(dir).expect("free");
    let store = Store::open(&dir.join(corro_store::data_dir::DATABASE)).expect("opens");
    Vault::open(&dir.join(corro_store::data_dir::MASTER_KEY)).expect("a key");
    Data { store, _lock: lock }
}

async fn close(data: Data) {
    assert!(data.close().await.expect("closes"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_made_while_commits_go_on_is_whole_and_holds_what_was_acknowledged() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let store = data(dir.path());
    std::fs::create_dir(dir.path().join("tls")).expect("a directory");
    for name in ["ca.pem", "ca.key"] {
        std::fs::write(dir.path().join("tls").join(name), name).expect("a file");
    }
    let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    // Two at a time: a copy with only one of them was not taken between commits.
    let writer = tokio::spawn({
        let (store, stop, acknowledged) = (store.store.clone(), stop.clone(), acknowledged.clone());
        async move {
            for i in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                put_groups(&store, vec![format!("a{i}"), format!("b{i}")]).await;
                acknowledged.store(i + 1, Ordering::SeqCst);
            }
        }
    });
    for round in 0..5 {
        let to = dir.path().join(format!("copy{round}"));
        let enough = acknowledged.load(Ordering::SeqCst) + 20;
        while acknowledged.load(Ordering::SeqCst) < enough {
            tokio::task::yield_now().await;
        }
        let before = acknowledged.load(Ordering::SeqCst);
        let (from, file) = (dir.path().to_owned(), to.clone());
        let made = tokio::task::spawn_blocking(move || backup::back_up(&from, &file, NOW)).await.expect("ends");
        let contents = made.expect("a backup");
        assert_eq!(contents.made, Some(NOW));
        assert_eq!(std::fs::metadata(&to).expect("there").permissions().mode() & 0o777, 0o600);

        let target = tempfile::tempdir().expect("a temp dir");
        backup::restore(&to, target.path()).expect("restored");
        let restored = Store::open(&target.path().join(corro_store::data_dir::DATABASE)).expect("opens");
        let state = restored.snapshot();
        for i in 0..before {
            assert!(state.groups.contains_key(&GroupKey::new(&format!("a{i}"))), "a{i} was acknowledged before");
        }
        let count = |letter: &str| state.groups.keys().filter(|key| key.as_str().starts_with(letter)).count();
        assert_eq!(count("a"), count("b"));
        assert_eq!(contents.history as usize, state.groups.len(), "the history fits the records");
        for name in [corro_store::data_dir::MASTER_KEY, "tls/ca.pem", "tls/ca.key"] {
            let [was, is] = [dir.path(), target.path()].map(|dir| std::fs::read(dir.join(name)).expect("a file"));
            assert_eq!(was, is, "{name}");
        }
    }
    stop.store(true, Ordering::Relaxed);
    writer.await.expect("ends");
}

#[tokio::test]
async fn existing_files_are_neither_overwritten_nor_lost() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let (data_dir, to) = (dir.path().join("data"), dir.path().join("copy"));
    std::fs::create_dir(&data_dir).expect("a directory");
    assert!(matches!(backup::back_up(&data_dir, &to, NOW), Err(BackupError::NoDatabase(_))));
    let store = data(&data_dir);
    put_groups(&store, vec!["first".to_owned()]).await;
    backup::back_up(&data_dir, &to, NOW).expect("a backup");
    let bytes = std::fs::read(&to).expect("bytes");
    assert!(matches!(backup::back_up(&data_dir, &to, NOW), Err(BackupError::Exists(_))));
    assert_eq!(std::fs::read(&to).expect("bytes"), bytes);
    put_groups(&store, vec!["second".to_owned()]).await;
    close(store).await;

    backup::restore(&to, &data_dir).expect("restored");
    let groups_of = |name: &str| backup::verify(&data_dir.join(name)).expect("sound").history;
    assert_eq!((groups_of("corro.db"), groups_of("corro.db.replaced-1")), (1, 2));
    backup::restore(&to, &data_dir).expect("restored again");
    assert_eq!((groups_of("corro.db.replaced-1"), groups_of("corro.db.replaced-2")), (2, 1));
}

#[tokio::test]
async fn an_unsound_backup_is_refused_and_nothing_is_created() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let store = data(dir.path());
    let names = (0..2_000).map(|i| format!("group-{i}")).collect();
    put_groups(&store, names).await;
    let good = dir.path().join("good");
    backup::back_up(dir.path(), &good, NOW).expect("a backup");
    let bytes = std::fs::read(&good).expect("bytes");
    let check = |name: &str, content: &[u8]| {
        let (file, target) = (dir.path().join(name), tempfile::tempdir().expect("a temp dir"));
        std::fs::write(&file, content).expect("a file");
        backup::restore(&file, target.path()).expect_err(name);
        assert_eq!(std::fs::read_dir(target.path()).expect("a list").count(), 0, "{name} left something behind");
    };
    check("empty", b"");
    check("text", b"this is no database at all, whatever its name says");
    check("cut", &bytes[..bytes.len() / 2]);
    let mut torn = bytes.clone();
    let middle = torn.len() / 2;
    torn[middle..middle + 4096].fill(0x5a);
    check("torn", &torn);
    // A database in use is no backup: its key may belong to another one.
    assert!(
        backup::restore(
            &dir.path().join(corro_store::data_dir::DATABASE),
            tempfile::tempdir().expect("a temp dir").path()
        )
        .is_err()
    );
}

/// A data directory whose instance has encrypted a value with its key.
async fn sealed_data(dir: &Path) -> Data {
    let store = data(dir);
    let vault = Vault::read(&dir.join(corro_store::data_dir::MASTER_KEY)).expect("reads").expect("a key");
    let instance = InstanceRecord {
        subscription: "s".to_owned(),
        tenant: "t".to_owned(),
        token_key: vault.seal(InstanceRecord::TOKEN_KEY, "hush"),
    };
    let commit = store.commit(move |txn| {
        txn.put(corro_store::state::SELF.to_owned(), instance);
        Ok::<_, StoreError>(())
    });
    commit.await.expect("commits");
    store
}

#[tokio::test]
async fn a_key_that_is_missing_or_wrong_is_found_before_it_is_needed() {
    let dir = tempfile::tempdir().expect("a temp dir");
    close(sealed_data(dir.path()).await).await;
    let (database, key) =
        (dir.path().join(corro_store::data_dir::DATABASE), dir.path().join(corro_store::data_dir::MASTER_KEY));
    let right = std::fs::read(&key).expect("a key");
    backup::verify(&database).expect("sound");
    backup::back_up(dir.path(), &dir.path().join("good"), NOW).expect("a backup");
    let check = |is_expected: fn(&BackupError) -> bool| {
        let error = backup::verify(&database).expect_err("no key opens it");
        assert!(is_expected(&error), "{error:?}");
        let to = dir.path().join("bad");
        let error = backup::back_up(dir.path(), &to, NOW).expect_err("no key opens it");
        assert!(is_expected(&error) && !to.exists(), "{error:?}");
    };
    std::fs::write(&key, [7; 32]).expect("another key");
    check(|error| matches!(error, BackupError::WrongKey { .. }));
    std::fs::write(&key, [7; 31]).expect("no key");
    check(|error| matches!(error, BackupError::WrongKey { .. }));
    std::fs::remove_file(&key).expect("gone");
    check(|error| matches!(error, BackupError::NoKey { .. }));
    backup::verify(&dir.path().join("good")).expect("it has the key in it");
    std::fs::write(&key, right).expect("the key");
    backup::verify(&database).expect("sound again");
}
