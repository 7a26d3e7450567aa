//! What is read without waiting is what is read the usual way. Whether the kernel can do without the disk is its own affair: nothing here depends on
//! it, and `None` is an answer that every file may get.

mod common;

use std::time::{Duration, Instant};

use common::{Bench, p};
use corro_shares::{FileVersion, Properties, SharePath, read_nonblocking};

#[test]
fn a_file_is_the_same_with_and_without_waiting() {
    let bench = Bench::new();
    let (shares, share) = (&bench.shares, &bench.share);
    share.make_dirs(&p("d/e")).expect("made");
    let mut properties = Properties::default();
    assert!(properties.set("content-type", "text/plain"));
    for (place, kept) in [("top", &properties), ("d/e/deep", &properties), ("plain", &Properties::default())] {
        let place = p(place);
        share.create_file_with(&place, 5, kept).expect("made");
        share.write_range(&place, 0, b"hello").expect("written");
        let (parent, _) = place.split().expect("not the root");
        let parent = share.stat(&parent).expect("there").id;
        let (stat, described) = share.describe(&place).expect("there");
        let Some(cached) = shares.open_nonblocking("acc", "myshare", &place) else { continue };
        let found = shares.describe_nonblocking(&cached);
        assert!(found.is_none_or(|found| found == (stat, described)), "{}", place.as_str());
        assert!(
            shares.parent_id_nonblocking("acc", "myshare", &place).is_none_or(|above| above == parent),
            "{}",
            place.as_str()
        );
        assert!(read_nonblocking(&cached.file, 1..4).is_none_or(|bytes| bytes == b"ell"));
        assert!(read_nonblocking(&cached.file, 0..0).is_none_or(|bytes| bytes.is_empty()));
        assert_eq!(read_nonblocking(&cached.file, 3..9), None, "the file does not have them");
    }
}

#[test]
fn nothing_leads_out_of_a_share() {
    let bench = Bench::new();
    let (dir, shares, root) = (&bench.dir, &bench.shares, bench.host());
    std::fs::write(dir.path().join("secret"), "secret").expect("written");
    std::os::unix::fs::symlink(dir.path().join("secret"), root.join("absolute")).expect("linked");
    std::os::unix::fs::symlink("../../../secret", root.join("relative")).expect("linked");
    std::os::unix::fs::symlink("acc", dir.path().join("root/other")).expect("linked");
    std::fs::create_dir(root.join("directory")).expect("made");
    std::os::unix::fs::symlink("../../../..", root.join("directory/above")).expect("linked");
    // So that everything lies in the caches.
    let _ = std::fs::read_dir(&root).expect("there").count();
    for place in ["absolute", "relative", "directory", "directory/above/secret", "missing"] {
        assert!(shares.open_nonblocking("acc", "myshare", &p(place)).is_none(), "{place}");
    }
    std::fs::write(root.join("file"), "x").expect("written");
    for (account, name) in [("other", "myshare"), ("acc", ".."), ("..", "myshare"), ("acc", "missing")] {
        assert!(shares.open_nonblocking(account, name, &p("file")).is_none(), "{account}/{name}");
    }
}

#[test]
fn what_is_changed_loses_its_mark() {
    let bench = Bench::new();
    let (shares, share) = (&bench.shares, &bench.share);
    let mark = |place: &SharePath| shares.version_of(&shares.open_nonblocking("acc", "myshare", place)?);
    // A file that has just been changed has none.
    let settled = |place: &SharePath| -> Option<FileVersion> {
        assert_eq!(mark(place), None, "{}", place.as_str());
        let deadline = Instant::now() + Duration::from_secs(20);
        while shares.open_nonblocking("acc", "myshare", place).is_some() && Instant::now() < deadline {
            if let Some(mark) = mark(place) {
                return Some(mark);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        None
    };
    let (place, other) = (p("file"), p("other"));
    share.create_file_with(&place, 5, &Properties::default()).expect("made");
    let Some(first) = settled(&place) else { return };
    assert_eq!(mark(&place), Some(first), "nothing has changed");
    let mut properties = Properties::default();
    assert!(properties.set("content-type", "text/plain"));
    let keep = |kept: &mut Properties, _: &_| {
        kept.clone_from(&properties);
        Ok::<_, corro_shares::ShareError>(())
    };
    share.change_properties_keep_mtime(&place, keep).expect("kept");
    let second = settled(&place);
    assert_ne!(second, Some(first), "something else is kept");
    std::fs::rename(bench.host().join("file"), bench.host().join("other")).expect("renamed");
    let third = settled(&other);
    assert_ne!(third, second, "another name");
    std::fs::hard_link(bench.host().join("other"), bench.host().join("file")).expect("linked");
    assert_eq!(mark(&other), None, "two names");
}
