//! File operations through the kernel, compared with the files on the server's disk: content, sizes, times, names, locks, free
//! space and large directories.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::io::Errno;

use super::fixture::{WRITE_MODES, fails, pattern, start_share, wait_until};

#[test]
fn file_operations_behave_as_on_a_local_directory() {
    WRITE_MODES.into_iter().for_each(check_file_operations);
}

fn check_file_operations(mode: &str) {
    let Some(share) = start_share() else { return };
    let at = share.mount("m", &format!("--file-mode 0640 --dir-mode 0750 {mode}"));
    // Content, compared with the server's disk.
    let content = pattern(9 << 20);
    fs::create_dir_all(at.join("a/b")).expect("made");
    fs::write(at.join("a/b/file"), &content).expect("written");
    assert_eq!(fs::read(share.on_disk("a/b/file")).expect("there"), content);
    assert_eq!(fs::read(at.join("a/b/file")).expect("read"), content);
    let file = File::open(at.join("a/b/file")).expect("opened");
    for start in [0, 5_000_000, 4095, 9 << 20, 1, 7 << 20] {
        let mut part = vec![0; 70_000];
        let n = file.read_at(&mut part, start).expect("read");
        let start = start as usize;
        assert_eq!(part[..n], content[start..(start + 70_000).min(content.len())]);
    }
    drop(file);
    let permissions = |name: &str| fs::metadata(at.join(name)).expect("there").permissions().mode() & 0o777;
    assert_eq!((permissions("a"), permissions("a/b/file")), (0o750, 0o640));
    // Random writes, read back before close.
    let mut file = OpenOptions::new().read(true).write(true).open(at.join("a/b/file")).expect("opened");
    file.write_all_at(b"changed", 1_000_000).expect("written");
    let mut back = [0; 9];
    file.read_exact_at(&mut back, 999_999).expect("read");
    assert_eq!(&back[1..8], b"changed");
    file.set_len(1_000_003).expect("cut");
    file.seek(SeekFrom::Start(1_000_000)).expect("moved");
    let mut rest = String::new();
    file.read_to_string(&mut rest).expect("read");
    assert_eq!(rest, "cha");
    drop(file);
    assert_eq!(fs::metadata(share.on_disk("a/b/file")).expect("there").len(), 1_000_003);
    // Sparse: a hole is a hole on the server too.
    let sparse = File::create(at.join("sparse")).expect("made");
    sparse.write_all_at(b"end", 1 << 30).expect("written");
    sparse.sync_all().expect("synced");
    let stored = fs::metadata(share.on_disk("sparse")).expect("there");
    assert!(stored.len() == (1 << 30) + 3 && stored.blocks() < 1000, "{} blocks", stored.blocks());
    // Times.
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_500_000_000, 123_456_700);
    sparse.set_modified(then).expect("set");
    assert_eq!(fs::metadata(share.on_disk("sparse")).expect("there").modified().expect("a time"), then);
    assert_eq!(fs::metadata(at.join("sparse")).expect("there").modified().expect("a time"), then);
    drop(sparse);
    // Names.
    fs::rename(at.join("a/b"), at.join("moved ü + #%")).expect("renamed");
    fs::write(at.join("target"), "old").expect("written");
    fs::rename(at.join("moved ü + #%/file"), at.join("target")).expect("renamed");
    assert_eq!(fs::metadata(at.join("target")).expect("there").len(), 1_000_003);
    let listed = |at: &Path| {
        let names = fs::read_dir(at).expect("listed").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().expect("text")).collect();
        names.sort();
        names
    };
    assert_eq!(listed(&at), ["a", "moved ü + #%", "sparse", "target"]);
    assert_eq!(listed(&share.on_disk("")), listed(&at));
    fails(fs::remove_dir(at.join("target")), Errno::NOTDIR);
    fails(File::create_new(at.join("target")), Errno::EXIST);
    fails(fs::read(at.join("nothing")), Errno::NOENT);
    fails(File::create(at.join("x".repeat(256))), Errno::NAMETOOLONG);
    fails(fs::hard_link(at.join("target"), at.join("link")), Errno::PERM);
    fs::write(at.join("a/inside"), "x").expect("written");
    fails(fs::remove_dir(at.join("a")), Errno::NOTEMPTY);
    // An open file outlives its name.
    let mut open = OpenOptions::new().read(true).write(true).open(at.join("a/inside")).expect("opened");
    fs::remove_file(at.join("a/inside")).expect("removed");
    fs::remove_dir(at.join("moved ü + #%")).expect("removed");
    open.write_all(b"still here").expect("written");
    open.rewind().expect("moved");
    let mut text = String::new();
    open.read_to_string(&mut text).expect("read");
    assert_eq!((text.as_str(), listed(&at.join("a"))), ("still here", vec![]));
    share.corro("unmount m").fails(1, &["in use", "--lazy"]);
    drop(open);
    wait_until("its end", || fs::read_dir(share.on_disk("a")).expect("there").next().is_none());
    // Locks hold between programs of this machine.
    let (one, two) = (File::open(at.join("target")).expect("opened"), File::open(at.join("target")).expect("opened"));
    one.lock().expect("free");
    assert!(matches!(two.try_lock(), Err(fs::TryLockError::WouldBlock)));
    drop((one, two));
    share.unmount("m");
}

#[test]
fn other_mounts_see_closed_writes_and_full_or_read_only_shares_fail() {
    WRITE_MODES.into_iter().for_each(check_second_mount_and_quota);
}

fn check_second_mount_and_quota(mode: &str) {
    let Some(share) = start_share() else { return };
    let (one, two) = (share.mount("one", mode), share.mount("two", "--read-only"));
    for round in 0..3 {
        let text = format!("round {round}{}", "!".repeat(round * 10));
        fs::write(one.join("f"), &text).expect("written");
        assert_eq!(fs::read_to_string(two.join("f")).expect("read"), text, "an open sees what was closed before");
    }
    fails(fs::write(two.join("g"), "x"), Errno::ROFS);
    fails(fs::remove_file(two.join("f")), Errno::ROFS);
    share.unmount("two");
    // Free space.
    share.corro("storage share update -n share --quota 1").ok();
    let space = rustix::fs::statvfs(&one).expect("statvfs works");
    assert_eq!(space.f_blocks * space.f_frsize, 1 << 30);
    assert!(space.f_bavail < space.f_blocks && space.f_namemax == 255);
    let file = File::create(one.join("large")).expect("made");
    fails(file.set_len(2 << 30), Errno::NOSPC);
    file.set_len((1 << 30) - (1 << 20)).expect("it fits");
    file.write_all_at(&[1; 2 << 20], (1 << 30) - (1 << 20)).expect("not sent yet");
    fails(file.sync_all(), Errno::NOSPC);
    drop(file);
    fs::remove_file(one.join("large")).expect("removed");
    fs::write(one.join("small"), "fits").expect("there is space again");
    share.unmount("one");
}

#[test]
fn a_large_directory_is_listed_completely_and_without_duplicates() {
    let Some(share) = start_share() else { return };
    const FILES: usize = 6_000;
    fs::create_dir(share.on_disk("many")).expect("made");
    for number in 0..FILES {
        fs::write(share.on_disk(&format!("many/file-{number:05}")), [7; 3]).expect("written");
    }
    let at = share.mount("m", "");
    let mut names: Vec<String> = fs::read_dir(at.join("many"))
        .expect("listed")
        .map(|entry| {
            let entry = entry.expect("an entry");
            assert_eq!(entry.metadata().expect("known").len(), 3);
            entry.file_name().into_string().expect("text")
        })
        .collect();
    names.sort();
    let expected: Vec<String> = (0..FILES).map(|number| format!("file-{number:05}")).collect();
    assert_eq!(names, expected);
    share.unmount("m");
}
