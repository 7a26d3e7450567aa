//! Properties in extended attributes and in sidecar files; quota; copies and snapshots.

mod common;

use std::{fs, os::unix::fs::PermissionsExt};

use common::{Fixture, code, p};
use corro_shares::{Properties, PropertyStorage, Share, SharePath, Shares, SnapshotId};

fn properties(pairs: &[(&str, &str)]) -> Properties {
    let mut properties = Properties::default();
    pairs.iter().for_each(|(name, value)| assert!(properties.set(name, value)));
    properties
}

fn stored(share: &Share, path: &str) -> Vec<(String, String)> {
    let (_, properties) = share.describe(&p(path)).expect("there");
    properties.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn read(share: &Share, path: &str) -> Vec<u8> {
    let (file, stat) = share.open_file(&p(path)).expect("there");
    let mut content = vec![0; stat.len as usize];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut content, 0).expect("read");
    content
}

#[test]
fn concurrent_changes_are_not_lost() {
    let fixture = Fixture::new();
    fixture.share.create_file(&p("f"), 1).expect("made");
    let before = fixture.share.stat(&p("f")).expect("there");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let share = &fixture.share;
            scope.spawn(move || {
                for number in 0..25 {
                    let name = format!("x-{thread}-{number}");
                    let changed = share.change_properties_keep_mtime(&p("f"), |props, _| {
                        assert!(props.set(&name, "1"));
                        Ok::<_, corro_shares::ShareError>(())
                    });
                    changed.expect("changed");
                }
            });
        }
    });
    let (after, properties) = fixture.share.describe(&p("f")).expect("there");
    assert_eq!((properties.iter().count(), after.etag), (100, before.etag));
}

#[test]
fn properties_of_accounts_and_descriptors_are_outside_of_the_trees() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let shares = Shares::open(dir.path()).expect("a root");
    assert_eq!(shares.account_properties("acc").expect("none").iter().count(), 0);
    shares.change_account_properties("acc", |props| assert!(props.set("a", "1"))).expect("stored");
    assert_eq!(shares.account_properties("acc").expect("stored").get("a"), Some("1"));
    assert_eq!(code(shares.store_permission("acc", "myshare", "1*1", "D:")), "ShareNotFound");
    shares.create_share("acc", "myshare").expect("a share");
    shares.store_permission("acc", "myshare", "1*1", "D:").expect("stored");
    let found = |key: &str| shares.permission("acc", "myshare", key).expect("looked for");
    assert_eq!((found("1*1").as_deref(), found("2*1"), found("../x")), (Some("D:"), None, None));
    assert_eq!(code(shares.store_permission("acc", "myshare", "../x", "D:")), "InternalError");
    assert!(shares.delete_share("acc", "myshare").expect("deleted").leftover.is_none());
    shares.create_share("acc", "myshare").expect("a share");
    assert_eq!(found("1*1"), None, "gone with its share");
}

#[test]
fn properties_follow_their_file_in_both_storages() {
    for storage in [PropertyStorage::ExtendedAttributes, PropertyStorage::SidecarsOnly] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let shares = Shares::open_with(dir.path(), storage).expect("a root");
        let share = shares.create_share("acc", "myshare").expect("a share");
        let host = shares.host_path("acc", "myshare").expect("good names");
        let props = properties(&[("content-type", "text/plain"), ("x-ms-meta-owner", "me")]);
        let made = share.create_file_with(&p("f"), 3, &props).expect("made");
        let both = [("content-type".to_owned(), "text/plain".to_owned()), ("x-ms-meta-owner".into(), "me".into())];
        assert_eq!(stored(&share, "f"), both, "{storage:?}");

        // They follow a rename by another program, and a new file at the old path has none.
        fs::rename(host.join("f"), host.join("g")).expect("renamed");
        fs::write(host.join("f"), "new").expect("written");
        assert_eq!((stored(&share, "g").len(), stored(&share, "f").len()), (2, 0), "{storage:?}");

        // Changing them is a modification; writing content keeps them.
        let changed = share.change_properties(&p("g"), |props| props.remove("content-type")).expect("changed");
        assert_ne!(changed.etag, made.etag);
        share.write_range(&p("g"), 0, b"abc").expect("written");
        assert_eq!(stored(&share, "g"), [("x-ms-meta-owner".to_owned(), "me".to_owned())]);

        // Another handle on the same disk finds them; creating the file anew drops them.
        let again = Shares::open_with(dir.path(), storage).expect("a root").share("acc", "myshare").expect("there");
        assert_eq!(stored(&again, "g").len(), 1);
        share.create_file(&p("g"), 1).expect("made");
        assert_eq!(stored(&share, "g"), []);

        // A directory and the share itself have properties.
        share.create_dir(&p("d")).expect("made");
        for path in ["d", ""] {
            share.change_properties(&p(path), |props| assert!(props.set("x-ms-meta-a", "1"))).expect("changed");
            assert_eq!(stored(&share, path).len(), 1, "{path}");
        }
        assert_eq!(shares.list_shares("acc").expect("listed")[0].properties.get("x-ms-meta-a"), Some("1"));
    }
}

#[test]
fn properties_too_large_for_an_attribute_go_to_a_sidecar() {
    let fixture = Fixture::new();
    let long = "x".repeat(7000);
    let props = properties(&[("x-ms-meta-a", &long), ("x-ms-meta-b", &long)]);
    fixture.share.create_file_with(&p("f"), 0, &props).expect("made");
    assert_eq!(stored(&fixture.share, "f")[1].1.len(), 7000);
    fixture.share.change_properties(&p("f"), |props| props.retain(|_| false)).expect("changed");
    assert_eq!(stored(&fixture.share, "f"), []);
}

#[test]
fn properties_written_by_a_job_cannot_break_a_response() {
    let fixture = Fixture::new();
    fs::write(fixture.host().join("f"), "x").expect("written");
    let file = fs::File::open(fixture.host().join("f")).expect("opened");
    let garbage = b"content-type: a\r\nx: y\n\xff\xfe: z\nContent-Length: 9\nok: 1\n";
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::fsetxattr(&file, "user.corro.properties", garbage, flags).is_ok() {
        assert_eq!(stored(&fixture.share, "f"), [("ok".to_owned(), "1".to_owned()), ("x".to_owned(), "y".to_owned())]);
    }
}

#[test]
fn a_quota_counts_existing_files() {
    let fixture = Fixture::new();
    let share = &fixture.share;
    share.create_dir(&p("d")).expect("made");
    share.create_file(&p("d/f"), 600).expect("made");
    std::os::unix::fs::symlink("f", fixture.host().join("d/link")).expect("linked");
    assert_eq!(share.usage().expect("measured"), 600);
    assert_eq!(code(share.reserve_quota(&p("x"), 400, 1000)), "ok");
    // Decided by what the tree holds now, not by reservations that were never used.
    assert_eq!(code(share.reserve_quota(&p("y"), 500, 1000)), "ShareSizeLimitReached");
    assert_eq!(code(share.reserve_quota(&p("y"), 0, 1)), "ok");
    share.delete_file(&p("d/f")).expect("deleted");
    assert_eq!(code(share.reserve_quota(&p("y"), 1000, 1000)), "ok");
}

#[test]
fn copies_are_complete_and_keep_holes() {
    let fixture = Fixture::new();
    let share = &fixture.share;
    share.create_file(&p("a"), 8 << 20).expect("made");
    share.write_range(&p("a"), 5 << 20, b"middle").expect("written");
    let props = properties(&[("x-ms-meta-a", "1")]);
    let copied = share.copy_file(&p("b"), (share, &p("a")), &props, &|| true).expect("copied");
    assert_eq!(copied.len, 8 << 20);
    assert!(read(share, "a") == read(share, "b"));
    assert_eq!(stored(share, "b").len(), 1);
    assert_eq!(share.data_ranges(&p("b")).expect("ranges").0.len(), 1);

    assert_eq!(code(share.copy_file(&p("a"), (share, &p("a")), &props, &|| true)), "ok");
    assert_eq!(&read(share, "a")[5 << 20..][..6], b"middle", "a copy onto itself harms nothing");
    assert_eq!(code(share.copy_file(&p("no/c"), (share, &p("a")), &props, &|| true)), "ParentNotFound");
    assert_eq!(code(share.copy_file(&p("c"), (share, &p("none")), &props, &|| true)), "ResourceNotFound");
    assert_eq!(code(share.stat(&p("c"))), "ResourceNotFound", "nothing is made for a source that is not there");
    // With reflinks the copy is complete before it can be stopped.
    let stopped = code(share.copy_file(&p("c"), (share, &p("a")), &props, &|| false));
    assert!(matches!(stopped, "CopyAborted" | "ok"), "{stopped}");
    assert_eq!(share.stat(&p("c")).expect("there").len, if stopped == "ok" { 8 << 20 } else { 0 });
}

#[test]
fn a_snapshot_does_not_change() {
    let fixture = Fixture::new();
    let (shares, share) = (&fixture.shares, &fixture.share);
    share.create_dir(&p("d")).expect("made");
    share.create_file_with(&p("d/f"), 3, &properties(&[("x-ms-meta-a", "1")])).expect("made");
    share.write_range(&p("d/f"), 0, b"old").expect("written");
    std::os::unix::fs::symlink("d/f", fixture.host().join("link")).expect("linked");
    let before = share.stat(&p("d/f")).expect("there");

    let first = shares.create_snapshot("acc", "myshare", &properties(&[("x", "y")]), 1_528_410_115).expect("made");
    let second = shares.create_snapshot("acc", "myshare", &properties(&[("x", "y")]), 1_528_410_115).expect("made");
    assert_eq!(first.as_str(), "2018-06-07T22:21:55.0000000Z");
    assert_eq!(shares.list_snapshots("acc", "myshare").expect("listed"), [first.clone(), second.clone()]);

    share.write_range(&p("d/f"), 0, b"new").expect("written");
    share.create_file(&p("later"), 0).expect("made");
    let snapshot = shares.snapshot("acc", "myshare", &first).expect("there");
    assert_eq!(read(&snapshot, "d/f"), b"old");
    assert_eq!(read(&snapshot, "link"), b"old", "a link leads to the snapshot's file");
    assert_eq!((stored(&snapshot, "d/f").len(), stored(&snapshot, "").len(), stored(share, "").len()), (1, 1, 0));
    assert_eq!(snapshot.stat(&p("d/f")).expect("there").modified, before.modified);
    assert_eq!(code(snapshot.stat(&p("later"))), "ResourceNotFound");
    let host = fixture.dir.path().join("root/acc/.snapshots/myshare").join(first.as_str()).join("d/f");
    assert_eq!(fs::metadata(host).expect("there").permissions().mode() & 0o222, 0);

    assert!(shares.delete_snapshot("acc", "myshare", &first).expect("deleted").leftover.is_none());
    assert_eq!(code(shares.snapshot("acc", "myshare", &first)), "ShareSnapshotNotFound");
    assert_eq!(code(shares.delete_snapshot("acc", "myshare", &first)), "ShareSnapshotNotFound");
    assert!(shares.delete_snapshots("acc", "myshare").expect("deleted").leftover.is_none());
    assert_eq!(shares.list_snapshots("acc", "myshare").expect("listed"), []);
    assert!(shares.list_shares("acc").expect("listed").len() == 1 && share.stat(&SharePath::ROOT).is_ok());
    assert_eq!(SnapshotId::parse("../../x"), None);
}

#[test]
fn an_incomplete_snapshot_is_removed() {
    let fixture = Fixture::new();
    let left = fixture.dir.path().join("root/acc/.snapshots/myshare/.trash-1-1/d");
    fs::create_dir_all(&left).expect("made");
    let shares = Shares::open(fixture.dir.path().join("root")).expect("a root");
    assert!(!left.exists());
    assert_eq!(shares.list_snapshots("acc", "myshare").expect("listed"), []);
}
