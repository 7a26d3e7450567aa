//! Non-blocking reads return the same as blocking ones. Whether the kernel can answer without the disk is not tested:
//! `None` is valid for every file.

mod common;

use std::time::{Duration, Instant};

use common::{Fixture, p};
use corro_shares::{FileVersion, Properties, SharePath, read_nonblocking};

#[test]
fn nonblocking_reads_equal_blocking_ones() {
    let fixture = Fixture::new();
    let (shares, share) = (&fixture.shares, &fixture.share);
    share.make_dirs(&p("d/e")).expect("made");
    let mut properties = Properties::default();
    assert!(properties.set("content-type", "text/plain"));
    for (path, stored) in [("top", &properties), ("d/e/deep", &properties), ("plain", &Properties::default())] {
        let path = p(path);
        share.create_file_with(&path, 5, stored).expect("made");
        share.write_range(&path, 0, b"hello").expect("written");
        let (parent, _) = path.split().expect("not the root");
        let parent = share.stat(&parent).expect("there").id;
        let (stat, described) = share.describe(&path).expect("there");
        let Some(cached) = shares.open_nonblocking("acc", "myshare", &path) else { continue };
        let found = shares.describe_nonblocking(&cached);
        assert!(found.is_none_or(|found| found == (stat, described)), "{}", path.as_str());
        assert!(
            shares.parent_id_nonblocking("acc", "myshare", &path).is_none_or(|above| above == parent),
            "{}",
            path.as_str()
        );
        assert!(read_nonblocking(&cached.file, 1..4).is_none_or(|bytes| bytes == b"ell"));
        assert!(read_nonblocking(&cached.file, 0..0).is_none_or(|bytes| bytes.is_empty()));
        assert_eq!(read_nonblocking(&cached.file, 3..9), None, "the file does not have them");
    }
}

#[test]
fn nothing_leads_out_of_a_share() {
    let fixture = Fixture::new();
    let (dir, shares, root) = (&fixture.dir, &fixture.shares, fixture.host());
    std::fs::write(dir.path().join("secret"), "secret").expect("written");
    std::os::unix::fs::symlink(dir.path().join("secret"), root.join("absolute")).expect("linked");
    std::os::unix::fs::symlink("../../../secret", root.join("relative")).expect("linked");
    std::os::unix::fs::symlink("acc", dir.path().join("root/other")).expect("linked");
    std::fs::create_dir(root.join("directory")).expect("made");
    std::os::unix::fs::symlink("../../../..", root.join("directory/above")).expect("linked");
    // So that everything is in the caches.
    let _ = std::fs::read_dir(&root).expect("there").count();
    for path in ["absolute", "relative", "directory", "directory/above/secret", "missing"] {
        assert!(shares.open_nonblocking("acc", "myshare", &p(path)).is_none(), "{path}");
    }
    std::fs::write(root.join("file"), "x").expect("written");
    for (account, name) in [("other", "myshare"), ("acc", ".."), ("..", "myshare"), ("acc", "missing")] {
        assert!(shares.open_nonblocking(account, name, &p("file")).is_none(), "{account}/{name}");
    }
}

#[test]
fn a_changed_file_has_another_version() {
    let fixture = Fixture::new();
    let (shares, share) = (&fixture.shares, &fixture.share);
    let mark = |path: &SharePath| shares.version_of(&shares.open_nonblocking("acc", "myshare", path)?);
    // A file that was just changed has no version.
    let settled = |path: &SharePath| -> Option<FileVersion> {
        assert_eq!(mark(path), None, "{}", path.as_str());
        let deadline = Instant::now() + Duration::from_secs(20);
        while shares.open_nonblocking("acc", "myshare", path).is_some() && Instant::now() < deadline {
            if let Some(mark) = mark(path) {
                return Some(mark);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        None
    };
    let (path, other) = (p("file"), p("other"));
    share.create_file_with(&path, 5, &Properties::default()).expect("made");
    let Some(first) = settled(&path) else { return };
    assert_eq!(mark(&path), Some(first), "nothing has changed");
    let mut properties = Properties::default();
    assert!(properties.set("content-type", "text/plain"));
    let set = |props: &mut Properties, _: &_| {
        props.clone_from(&properties);
        Ok::<_, corro_shares::ShareError>(())
    };
    share.change_properties_keep_mtime(&path, set).expect("stored");
    let second = settled(&path);
    assert_ne!(second, Some(first), "other properties are stored");
    std::fs::rename(fixture.host().join("file"), fixture.host().join("other")).expect("renamed");
    let third = settled(&other);
    assert_ne!(third, second, "another name");
    std::fs::hard_link(fixture.host().join("other"), fixture.host().join("file")).expect("linked");
    assert_eq!(mark(&other), None, "two names");
}
