//! File servers in one process, called directly through the interface of the `nfs3_server` crate.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use corro_model::GroupKey;
use corro_model::batchai::{Provisioning, ProvisioningState};
use corro_store::FileServerRecord;
use nfs3_server::nfs3_types::nfs3::{createverf3, nfsstat3, sattr3, set_size3, stable_how};
use nfs3_server::vfs::{NextResult, NfsFileSystem, NfsReadFileSystem, ReadDirPlusIterator};
use serde_json::json;

use super::tree::Handle;
use super::*;
use crate::http::tests::TestServer;

fn key() -> FileServerKey {
    GroupKey::new("g").workspace("w").file_server("nfs")
}

fn record(app: &App) -> FileServerRecord {
    let spec = json!({"vmSize": "D1", "sshConfiguration": {"userAccountSettings": {"adminUserName": "a"}},
        "dataDisks": {"diskSizeInGB": 1, "diskCount": 1, "storageAccountType": "Standard_LRS"}});
    FileServerRecord {
        name: "My_NFS".to_owned(),
        spec: serde_json::from_value(spec).expect("a literal"),
        fingerprint: String::new(),
        password_mark: None,
        provisioning: Provisioning::new(ProvisioningState::Succeeded, app.now()),
    }
}

struct Mounted {
    test_server: TestServer,
    vfs: Vfs,
    root: Handle,
    directory: PathBuf,
}

async fn mounted() -> Mounted {
    let test_server = TestServer::new().await;
    let app = test_server.app.clone();
    let record = record(&app);
    let put = record.clone();
    let keep = app.store.commit(move |txn| {
        txn.put(key(), put);
        Ok::<_, corro_model::ApiError>(())
    });
    keep.await.expect("it is kept");
    let vfs = Vfs(Arc::new(FileTrees::for_app(app.clone(), [3; 32])));
    let root = vfs.lookup_by_path(&app.storage.exports.export_path(&key(), &record)).await.expect("it can be mounted");
    let directory = app.storage.exports.directory(&key(), &record).expect("a directory");
    Mounted { test_server, vfs, root, directory }
}

#[tokio::test]
async fn only_the_export_secret_allows_a_mount() {
    let Mounted { test_server, vfs, root, directory } = mounted().await;
    assert!(directory.file_name().is_some_and(|name| name.to_string_lossy().starts_with("fmynfs-")), "{directory:?}");
    for path in ["", "/", "data", "/data", "/data/", "data/00000000000000000000000000000000", "etc"] {
        assert_eq!(vfs.lookup_by_path(path).await.err(), Some(nfsstat3::NFS3ERR_NOENT), "{path}");
    }
    let refused = Some(nfsstat3::NFS3ERR_BADHANDLE);
    assert_eq!(vfs.getattr(&vfs.root_dir()).await.err(), refused);
    let others = Vfs(Arc::new(FileTrees::for_app(test_server.app.clone(), [4; 32])));
    assert_eq!(others.getattr(&root).await.err(), refused, "a handle of another server is none");
    assert!(vfs.getattr(&root).await.is_ok());
}

#[tokio::test]
async fn files_are_made_written_listed_moved_and_removed() {
    let Mounted { vfs, root, directory, test_server: _bench } = mounted().await;
    let (sub, _) = vfs.mkdir(&root, &b"sub"[..].into()).await.expect("a directory");
    let (file, made) = vfs.create(&sub, &b"a b"[..].into(), sattr3::default()).await.expect("a file");
    assert_eq!(made.size, 0);
    for (offset, data) in [(6, &b"world"[..]), (0, b"hello ")] {
        let (written, lasting) = vfs.write(&file, offset, data, stable_how::FILE_SYNC).await.expect("written");
        assert_eq!((written.size, lasting), (11, stable_how::FILE_SYNC));
    }
    vfs.commit(&file, 0, 0).await.expect("it lasts");
    assert_eq!(vfs.read(&file, 6, 100).await.expect("read"), (b"world".to_vec(), true));
    assert_eq!(std::fs::read_to_string(directory.join("sub/a b")).expect("jobs see it"), "hello world");
    vfs.rename(&root, &b"sub"[..].into(), &root, &b"moved"[..].into()).await.expect("moved");
    assert_eq!(vfs.getattr(&file).await.expect("its handle moves with it").size, 11);
    let shorter = sattr3 { size: set_size3::Some(5), ..sattr3::default() };
    assert_eq!(vfs.setattr(&file, shorter).await.expect("cut").size, 5);
    for number in 0..300 {
        std::fs::write(directory.join(format!("moved/{number}")), "x").expect("a job writes");
    }
    let mut entries = vfs.readdirplus(&sub, 0).await.expect("a list");
    let (mut names, mut last) = (Vec::new(), 0);
    while let NextResult::Ok(entry) = entries.next().await {
        assert!(entry.cookie > last, "in the order of their cookies");
        last = entry.cookie;
        names.push(String::from_utf8_lossy(&entry.name.0).into_owned());
    }
    assert_eq!((names.len(), names.contains(&"a b".to_owned())), (301, true));
    assert!(matches!(vfs.readdirplus(&sub, last).await.expect("the rest").next().await, NextResult::Eof));
    let again = vfs.remove(&root, &b"moved"[..].into()).await;
    assert_eq!(again.err(), Some(nfsstat3::NFS3ERR_NOTEMPTY));
    vfs.remove(&sub, &b"a b"[..].into()).await.expect("removed");
    assert_eq!(vfs.getattr(&file).await.err(), Some(nfsstat3::NFS3ERR_STALE));
    let verifier = createverf3([9; 8]);
    let first = vfs.create_exclusive(&sub, &b"one"[..].into(), verifier).await.expect("made");
    assert!(vfs.create_exclusive(&sub, &b"one"[..].into(), verifier).await.is_ok_and(|same| same == first));
    let other = vfs.create_exclusive(&sub, &b"one"[..].into(), createverf3([8; 8])).await;
    assert_eq!(other.err(), Some(nfsstat3::NFS3ERR_EXIST));
}

#[tokio::test]
async fn no_path_escapes_a_file_server() {
    let Mounted { vfs, root, directory, test_server } = mounted().await;
    let outside = test_server.path().join("outside");
    std::fs::create_dir(&outside).expect("made");
    std::fs::write(outside.join("secret"), "x").expect("written");
    symlink(&outside, directory.join("out")).expect("a link");
    let link = vfs.lookup(&root, &b"out"[..].into()).await.expect("the link itself");
    assert_eq!(&vfs.readlink(&link).await.expect("where it leads").0[..], outside.to_string_lossy().as_bytes());
    assert_eq!(vfs.lookup(&link, &b"secret"[..].into()).await.err(), Some(nfsstat3::NFS3ERR_NOTDIR));
    assert!(vfs.lookup(&root, &b".."[..].into()).await.is_ok_and(|parent| parent == root), "the root is the top");
    for name in [&b"../outside/secret"[..], b"a/b", b"", b"a\0"] {
        assert_eq!(vfs.lookup(&root, &name.into()).await.err(), Some(nfsstat3::NFS3ERR_INVAL), "{name:?}");
        let made = vfs.create(&root, &name.into(), sattr3::default()).await;
        assert_eq!(made.err(), Some(nfsstat3::NFS3ERR_INVAL), "{name:?}");
    }
    // A new file in the place of a removed one is not confused with it.
    let (file, _) = vfs.create(&root, &b"f"[..].into(), sattr3::default()).await.expect("a file");
    std::fs::remove_file(directory.join("f")).expect("removed");
    symlink(outside.join("secret"), directory.join("f")).expect("a link");
    assert_eq!(vfs.read(&file, 0, 1).await.err(), Some(nfsstat3::NFS3ERR_STALE));
    assert!(vfs.create(&root, &b"f"[..].into(), sattr3::default()).await.is_err(), "not through the link");
}

#[tokio::test]
async fn files_of_a_deleted_file_server_are_removed_and_its_successor_is_empty() {
    let Mounted { test_server, vfs, root, directory } = mounted().await;
    vfs.create(&root, &b"f"[..].into(), sattr3::default()).await.expect("a file");
    let app = test_server.app.clone();
    app.storage.exports.remove_orphans(|| app.snapshot()).expect("nothing to do");
    assert!(directory.join("f").exists());
    let remove = app.store.commit(|txn| {
        txn.remove::<FileServerRecord>(&key());
        Ok::<_, corro_model::ApiError>(())
    });
    remove.await.expect("gone");
    app.storage.exports.remove_orphans(|| app.snapshot()).expect("removed");
    assert!(!directory.exists());
    assert_eq!(vfs.getattr(&root).await.err(), Some(nfsstat3::NFS3ERR_STALE));
    let mut next = record(&app);
    next.provisioning.creation_time = next.provisioning.creation_time.plus(std::time::Duration::from_secs(1));
    assert_ne!(app.storage.exports.directory(&key(), &next).expect("a directory"), directory);
}
