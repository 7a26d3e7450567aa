//! Nothing inside a share leads out of it: no name, no link, no link swapped in during the resolution of a path.

mod common;

use std::{
    fs,
    os::unix::fs::symlink,
    sync::atomic::{AtomicBool, Ordering},
};

use common::{Fixture, code, p};
use corro_shares::{Kind, ShareError, SharePath};
use proptest::prelude::*;

/// Every operation on a path that leads out: none may succeed, and none may touch the secret.
fn check_refused(fixture: &Fixture, path: &str) {
    let share = &fixture.share;
    share.create_file(&p("kept"), 1).expect("made");
    let path = &p(path);
    let below = &path.child("below").expect("a good name");
    for (operation, result) in [
        ("stat", code(share.stat(path))),
        ("open", code(share.open_file(path))),
        ("create", code(share.create_file(path, 1))),
        ("write", code(share.write_range(path, 0, b"x"))),
        ("clear", code(share.clear_range(path, 0, 1))),
        ("resize", code(share.resize(path, 0))),
        ("append", code(share.append(path, b"x"))),
        ("list", code(share.list(path))),
        ("delete below", code(share.delete_file(below))),
        ("mkdir below", code(share.create_dir(below))),
        ("mkdirs below", code(share.make_dirs(below))),
        ("create below", code(share.create_file(below, 1))),
        ("append below", code(share.append(below, b"x"))),
        ("rename below", code(share.rename(below, &p("taken"), Kind::File, true))),
        ("rename to below", code(share.rename(&p("kept"), below, Kind::File, true))),
        ("note", code(share.change_properties_keep_mtime(path, |_, _| Ok::<_, ShareError>(())))),
    ] {
        assert!(matches!(result, "ResourceNotFound" | "ParentNotFound"), "{operation}: {result}");
    }
}

#[test]
fn links_out_of_the_share_are_refused() {
    let fixture = Fixture::new();
    let outside = fixture.dir.path().join("outside");
    fs::create_dir(&outside).expect("made");
    fs::write(outside.join("secret"), "secret").expect("written");
    fs::write(outside.join("below"), "secret").expect("written");
    fixture.shares.create_share("acc", "other").expect("created");
    fs::create_dir(fixture.host().join("d")).expect("made");

    let absolute = outside.to_str().expect("UTF-8").to_owned();
    for (n, target) in [
        absolute.clone(),
        format!("{absolute}/secret"),
        "../../../outside".into(),
        "../../../outside/secret".into(),
        "../other".into(),
        "..".into(),
        "d/../../other".into(),
        "/proc/self/root".into(),
        "/".into(),
    ]
    .iter()
    .enumerate()
    {
        let from_d = if target.starts_with('/') { target.clone() } else { format!("../{target}") };
        for (link, target) in [(format!("link{n}"), target), (format!("d/link{n}"), &from_d)] {
            symlink(target, fixture.host().join(&link)).expect("linked");
            check_refused(&fixture, &link);
        }
        // Listed as a link: nothing is revealed about its target.
        let listed = fixture.share.list(&p("")).expect("listed");
        let link = listed.iter().find(|entry| entry.name == format!("link{n}")).expect("listed");
        assert_eq!((link.kind(), link.len()), (Kind::Link, target.len() as u64), "{target}");
        // The link itself can be renamed and removed; this is how a user gets rid of it.
        fixture.share.rename(&p(&format!("link{n}")), &p("moved"), Kind::File, false).expect("moved");
        fixture.share.rename(&p("moved"), &p(&format!("link{n}")), Kind::File, false).expect("moved back");
        fixture.share.delete_file(&p(&format!("link{n}"))).expect("deleted");
    }
    let left: Vec<_> = fs::read_dir(&outside).expect("there").collect();
    assert_eq!(left.len(), 2);
    assert_eq!(fs::read(outside.join("secret")).expect("there"), b"secret");
    assert_eq!(fs::read(outside.join("below")).expect("there"), b"secret");
}

#[test]
fn links_inside_the_share_work() {
    let fixture = Fixture::new();
    let share = &fixture.share;
    share.make_dirs(&p("runs/7")).expect("made");
    share.append(&p("runs/7/log"), b"line\n").expect("appended");
    symlink("runs/7", fixture.host().join("latest")).expect("linked");
    symlink("../7/log", fixture.host().join("runs/7/again")).expect("linked");
    assert_eq!(share.stat(&p("latest/log")).expect("followed").len, 5);
    assert_eq!(share.stat(&p("latest/again")).expect("followed").len, 5);
    let names: Vec<_> = share.list(&p("latest")).expect("listed").into_iter().map(|e| e.name).collect();
    assert_eq!(names, ["again", "log"]);
    share.create_file(&p("latest/new"), 1).expect("created");
    assert!(fixture.host().join("runs/7/new").is_file());
}

#[test]
fn a_link_in_place_of_a_share_or_account_is_not_found() {
    let fixture = Fixture::new();
    let outside = fixture.dir.path().join("outside");
    fs::create_dir_all(outside.join("evil")).expect("made");
    fs::write(outside.join("evil/keep"), "keep").expect("written");
    symlink(outside.join("evil"), fixture.dir.path().join("root/acc/evil")).expect("linked");
    symlink(&outside, fixture.dir.path().join("root/linked")).expect("linked");
    assert_eq!(code(fixture.shares.share("acc", "evil")), "ShareNotFound");
    assert_eq!(code(fixture.shares.share("linked", "evil")), "ShareNotFound");
    assert_eq!(fixture.shares.list_shares("acc").expect("listed").len(), 1);
    assert!(fixture.shares.list_shares("linked").is_err());
    // Deletion removes the link and not its target.
    assert!(fixture.shares.delete_account("linked").expect("deleted").leftover.is_none());
    assert!(fixture.shares.delete_share("acc", "evil").expect("deleted").leftover.is_none());
    assert!(outside.join("evil/keep").exists());
}

/// One thread swaps a directory for a link to the outside and back; a reader never gets anything from the outside.
#[test]
fn a_link_swapped_in_during_the_walk_leads_nowhere() {
    let fixture = Fixture::new();
    let outside = fixture.dir.path().join("outside");
    for (root, content) in [(fixture.host().join("a"), "inside"), (outside.clone(), "secret")] {
        fs::create_dir_all(root.join("b")).expect("made");
        fs::write(root.join("b/file"), content).expect("written");
    }
    let host = fixture.host();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2000 {
                fs::rename(host.join("a"), host.join("away")).expect("moved");
                symlink(&outside, host.join("a")).expect("linked");
                fs::remove_file(host.join("a")).expect("unlinked");
                fs::rename(host.join("away"), host.join("a")).expect("moved back");
            }
            done.store(true, Ordering::Relaxed);
        });
        let mut read = 0;
        while !done.load(Ordering::Relaxed) || read == 0 {
            match fixture.share.open_file(&p("a/b/file")) {
                Ok((file, _)) => {
                    let text = std::io::read_to_string(file).expect("read");
                    assert_eq!(text, "inside");
                    read += 1;
                }
                Err(ShareError::NotFound(_) | ShareError::LeavesShare(_)) => {}
                Err(other) => panic!("{other:?}"),
            }
            match fixture.share.append(&p("a/b/new"), b"x") {
                Ok(()) | Err(ShareError::ParentNotFound(_) | ShareError::LeavesShare(_)) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
    });
    assert!(!outside.join("b/new").exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever text becomes a path, what it creates is in the share.
    #[test]
    fn nothing_is_ever_made_outside(texts in prop::collection::vec("(\\.\\.|[./\\\\%a2eA~é]|\\x00){0,10}", 20)) {
        let fixture = Fixture::new();
        for text in texts {
            if let Ok(path) = SharePath::parse(&text) {
                let _ = fixture.share.make_dirs(&path);
                if let Ok(child) = path.child("leaf") {
                    fixture.share.create_file(&child, 1).expect("its directory was just made");
                }
            }
        }
        let count = |path: &std::path::Path| fs::read_dir(path).expect("there").count();
        prop_assert_eq!(count(fixture.dir.path()), 1);
        prop_assert_eq!(count(&fixture.dir.path().join("root")), 1);
        prop_assert_eq!(count(&fixture.dir.path().join("root/acc")), 1);
    }
}
