//! Deleting trees: complete, deep, read-only, interrupted by a crash; and never outside of the tree.

mod common;

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use common::{Fixture, p};
use corro_shares::Shares;

fn entries(path: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(path)
        .expect("there")
        .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_tree_with_links_is_deleted_without_their_targets() {
    let fixture = Fixture::new();
    let outside = fixture.dir.path().join("outside");
    fs::create_dir(&outside).expect("made");
    fs::write(outside.join("keep"), "keep").expect("written");
    fixture.share.make_dirs(&p("a/b/c")).expect("made");
    for place in ["", "a", "a/b/c"] {
        symlink(&outside, fixture.host().join(place).join("out")).expect("linked");
        symlink(outside.join("keep"), fixture.host().join(place).join("file")).expect("linked");
        fs::write(fixture.host().join(place).join("plain"), "x").expect("written");
    }
    let readonly = fixture.host().join("a/b/cache");
    fs::create_dir_all(readonly.join("deeper")).expect("made");
    fs::write(readonly.join("deeper/f"), "x").expect("written");
    for path in [readonly.join("deeper"), readonly] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o555)).expect("set");
    }

    let removed = fixture.shares.delete_share("acc", "myshare").expect("deleted");
    assert!(removed.leftover.is_none(), "{removed:?}");
    assert!(entries(&fixture.dir.path().join("root/acc")).is_empty());
    assert_eq!(entries(&outside), ["keep"]);
}

#[test]
fn a_very_deep_tree_is_deleted() {
    let fixture = Fixture::new();
    // Deeper than a path can be long: built step by step from below.
    let tip = fixture.dir.path().join("tip");
    fs::create_dir(&tip).expect("made");
    for n in 0..3000 {
        let wrap = fixture.dir.path().join("wrap");
        fs::create_dir(&wrap).expect("made");
        fs::rename(&tip, wrap.join(format!("level{n}"))).expect("moved");
        fs::rename(&wrap, &tip).expect("moved");
    }
    fs::rename(&tip, fixture.host().join("deep")).expect("moved");
    let removed = fixture.shares.delete_share("acc", "myshare").expect("deleted");
    assert!(removed.leftover.is_none(), "{removed:?}");
    assert!(entries(&fixture.dir.path().join("root/acc")).is_empty());
}

#[test]
fn leftovers_of_a_crash_are_removed_when_the_root_is_opened() {
    let fixture = Fixture::new();
    let root = fixture.dir.path().join("root");
    for trash in ["acc/.trash-1-0/sub", ".trash-1-1/someshare/sub"] {
        fs::create_dir_all(root.join(trash)).expect("made");
        fs::write(root.join(trash).join("file"), "x").expect("written");
    }
    fs::create_dir(root.join("acc/.other")).expect("made");
    let again = Shares::open(&root).expect("opened again");
    assert!(again.leftovers().is_empty());
    assert_eq!(entries(&root), ["acc"]);
    assert_eq!(entries(&root.join("acc")), [".other", "myshare"]);
}

#[test]
fn an_existing_temporary_name_is_skipped() {
    let fixture = Fixture::new();
    let acc = fixture.dir.path().join("root/acc");
    let taken: Vec<_> = (0..50).map(|n| format!(".trash-{}-{n}", std::process::id())).collect();
    for name in &taken {
        fs::create_dir(acc.join(name)).expect("made");
    }
    assert!(fixture.shares.delete_share("acc", "myshare").expect("deleted").leftover.is_none());
    assert_eq!(entries(&acc).len(), taken.len());
}

#[test]
fn a_handle_on_a_deleted_share_has_no_effect_on_others() {
    let fixture = Fixture::new();
    let old = &fixture.share;
    old.append(&p("log"), b"x").expect("appended");
    let appender = old.appender(&p("log")).expect("opened");
    let _ = fixture.shares.delete_share("acc", "myshare").expect("deleted");
    let new = fixture.shares.create_share("acc", "myshare").expect("made again");
    appender.append(b"y").expect("into the void");
    assert!(old.append(&p("log"), b"x").is_err());
    assert!(old.create_dir(&p("d")).is_err());
    assert!(new.list(&p("")).expect("listed").is_empty());
}
