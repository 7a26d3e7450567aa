//! A volume over a fake share that loses answers, against a model of what programs must see.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::fake_remote::FakeRemote;
use crate::inodes::ROOT;
use corro_test_support::rng::SplitMix64;

fn volume(seed: u64, losses: u64) -> Volume<FakeRemote> {
    let retry = RetryPolicy::new(Duration::from_secs(60), "the share".to_owned());
    Volume::new(FakeRemote::new(seed, losses), retry, Runtime::current())
}

const PLAIN: OpenOptions = OpenOptions { appends: false, truncates: false, exclusive: false, thread: 1 };
const APPENDS: OpenOptions = OpenOptions { appends: true, ..PLAIN };

#[tokio::test]
async fn writes_are_readable_before_and_after_the_upload() {
    let volume = volume(1, 0);
    let (found, opened) = volume.create(ROOT, "f", PLAIN).await.expect("made");
    volume.write(opened.handle, 0, b"hello").await.expect("written");
    volume.write(opened.handle, 8, b"!").await.expect("written");
    assert_eq!(volume.attributes(found.inode).await.expect("known").length, 9);
    assert_eq!(&volume.read(opened.handle, 0, 5).await.expect("read")[..], b"hello");
    assert_eq!(&volume.read(opened.handle, 0, 100).await.expect("read")[..], b"hello\0\0\0!");
    volume.flush(opened.handle).await.expect("sent");
    assert_eq!(volume.remote().content("f").as_deref(), Some(&b"hello\0\0\0!"[..]));
    volume.resize(found.inode, 2).await.expect("cut");
    assert_eq!(&volume.read(opened.handle, 0, 100).await.expect("read")[..], b"he");
    volume.release(opened.handle).await;
    assert!(matches!(volume.create(ROOT, "f", OpenOptions { exclusive: true, ..PLAIN }).await, Err(libc::EEXIST)));
    let (_, opened) = volume.create(ROOT, "f", OpenOptions { truncates: true, ..PLAIN }).await.expect("opened");
    assert_eq!(volume.read(opened.handle, 0, 9).await.expect("read").len(), 0);
}

#[tokio::test]
async fn small_scattered_writes_share_a_request() {
    let volume = volume(12, 0);
    let (_, opened) = volume.create(ROOT, "f", PLAIN).await.expect("made");
    let mut expected = vec![0; 3000];
    for at in (0..3000).step_by(3).rev() {
        expected[at] = at as u8;
        volume.write(opened.handle, at as u64, &[at as u8]).await.expect("written");
    }
    volume.flush(opened.handle).await.expect("sent");
    expected.truncate(2998);
    assert_eq!(volume.remote().content("f"), Some(expected));
    assert!(volume.remote().writes() < 10, "{} requests", volume.remote().writes());
}

#[tokio::test]
async fn opens_are_close_to_open_consistent() {
    let volume = volume(2, 0);
    volume.remote().put("f", b"one");
    let found = volume.look_up(ROOT, "f").await.expect("there");
    let first = volume.open(found.inode, PLAIN).await.expect("opened");
    assert_eq!(&volume.read(first.handle, 0, 9).await.expect("read")[..], b"one");
    let same = volume.open(found.inode, PLAIN).await.expect("opened");
    assert!(same.keeps_cache && !same.changed);
    volume.remote().put("f", b"another");
    let other = volume.open(found.inode, PLAIN).await.expect("opened");
    assert!(!other.keeps_cache && other.changed, "{other:?}");
    assert_eq!(&volume.read(other.handle, 0, 9).await.expect("read")[..], b"another");
}

/// In writeback mode a file whose size was changed elsewhere gets another number.
#[tokio::test]
async fn in_writeback_mode_a_changed_closed_file_gets_another_inode() {
    let volume = volume(13, 0).with_write_cache();
    volume.remote().put("f", b"one");
    let first = volume.look_up(ROOT, "f").await.expect("there").inode;
    let opened = volume.open(first, PLAIN).await.expect("opened");
    volume.release(opened.handle).await;
    assert_eq!(volume.look_up(ROOT, "f").await.expect("there").inode, first, "nobody has changed it");
    volume.remote().put("f", b"another");
    assert!(matches!(volume.open(first, PLAIN).await, Err(libc::ESTALE)), "who opens it has to look again");
    let second = volume.look_up(ROOT, "f").await.expect("there");
    assert!(second.inode != first && second.status.length == 7, "{second:?}");
    // While it is open it keeps its number.
    let opened = volume.open(second.inode, PLAIN).await.expect("opened");
    volume.remote().put("f", b"the third");
    let reopened = volume.open(second.inode, APPENDS).await.expect("opened");
    assert_eq!(volume.look_up(ROOT, "f").await.expect("there").inode, second.inode);
    // Pages have their offset, though they arrive by a handle that appends.
    volume.write_back(reopened.handle, 1, b"HE").await.expect("written");
    for handle in [opened.handle, reopened.handle] {
        volume.flush(handle).await.expect("sent");
        volume.release(handle).await;
    }
    assert_eq!(volume.remote().content("f").as_deref(), Some(&b"tHE third"[..]));
    let third = volume.look_up(ROOT, "f").await.expect("there").inode;
    assert_ne!(third, second.inode, "somebody may have changed it after it was closed here");
    let opened =
        volume.open(third, OpenOptions { truncates: true, ..PLAIN }).await.expect("a file that is cut is the kernel's");
    volume.release(opened.handle).await;
    // Also in a directory of which every name was known.
    let directory = volume.create_directory(ROOT, "d").await.expect("made").inode;
    let (found, opened) = volume.create(directory, "f", PLAIN).await.expect("made");
    volume.release(opened.handle).await;
    assert!(matches!(volume.open(found.inode, PLAIN).await, Err(libc::ESTALE)));
    assert!(volume.look_up(directory, "f").await.is_ok());
}

/// The kernel looks up once more: the result must be openable, though the file changes all the time.
#[tokio::test]
async fn in_writeback_mode_a_file_that_always_changes_can_be_opened() {
    let volume = volume(14, 0).with_write_cache();
    volume.remote().put("log", b"1");
    let first = volume.look_up(ROOT, "log").await.expect("there").inode;
    volume.remote().put("log", b"12");
    assert!(matches!(volume.open(first, PLAIN).await, Err(libc::ESTALE)));
    let second = volume.look_up(ROOT, "log").await.expect("there").inode;
    volume.remote().put("log", b"123");
    let opened = volume.open(second, PLAIN).await.expect("opened");
    volume.release(opened.handle).await;
    assert!(matches!(volume.open(second, PLAIN).await, Err(libc::ESTALE)), "the next one has to look again");
}

#[tokio::test]
async fn errors_are_returned_to_each_writing_handle() {
    let volume = volume(3, 0);
    let (found, writer) = volume.create(ROOT, "f", PLAIN).await.expect("made");
    let reader = volume.open(found.inode, PLAIN).await.expect("opened");
    volume.remote().set_quota(4);
    volume.write(writer.handle, 0, b"12345678").await.expect("not sent yet");
    assert_eq!(volume.flush(reader.handle).await, Err(libc::ENOSPC));
    // The writer gets the error though another handle has got it before, and only once.
    assert_eq!(volume.write(writer.handle, 0, b"1").await, Err(libc::ENOSPC));
    assert_eq!(volume.flush(writer.handle).await, Err(libc::ENOSPC));
    assert_eq!(volume.sync(writer.handle).await, Ok(()));
    volume.write(writer.handle, 0, b"1").await.expect("it fits");
    assert_eq!(volume.sync(writer.handle).await, Ok(()));
    assert_eq!(volume.remote().content("f").as_deref(), Some(&b"1"[..]));
    assert_eq!(volume.resize(found.inode, 100).await, Err(libc::ENOSPC));
}

#[tokio::test]
async fn an_unreachable_server_is_an_error_after_the_deadline() {
    let retry = RetryPolicy::new(Duration::from_millis(200), "the share".to_owned());
    let volume = Volume::new(FakeRemote::new(4, 0), retry, Runtime::current());
    let (_, opened) = volume.create(ROOT, "f", PLAIN).await.expect("made");
    volume.write(opened.handle, 0, b"1").await.expect("not sent yet");
    volume.remote().fail_always();
    assert_eq!(volume.flush(opened.handle).await, Err(libc::ETIMEDOUT));
    assert!(matches!(volume.look_up(ROOT, "g").await, Err(libc::ETIMEDOUT)));
}

#[tokio::test]
async fn blocks_are_appended_exactly_once() {
    let volume = volume(5, 40);
    let (_, opened) = volume.create(ROOT, "log", APPENDS).await.expect("made");
    let mut expected = Vec::new();
    for number in 0..40 {
        let line = format!("line {number}\n");
        volume.write(opened.handle, 0, line.as_bytes()).await.expect("appended");
        expected.extend_from_slice(line.as_bytes());
    }
    assert_eq!(volume.remote().content("log"), Some(expected));
}

#[tokio::test]
async fn an_open_file_outlives_its_name() {
    let volume = volume(6, 0);
    let (_, opened) = volume.create(ROOT, "f", PLAIN).await.expect("made");
    volume.write(opened.handle, 0, b"data").await.expect("written");
    volume.remove(ROOT, "f", Kind::File).await.expect("removed");
    assert!(matches!(volume.look_up(ROOT, "f").await, Err(libc::ENOENT)));
    assert_eq!(&volume.read(opened.handle, 0, 9).await.expect("read")[..], b"data");
    assert!(volume.remote().paths().iter().all(|path| Volume::<FakeRemote>::is_hidden(path)));
    volume.release(opened.handle).await;
    assert!(volume.remote().paths().is_empty());
}

#[tokio::test]
async fn directories_are_read_page_by_page() {
    let volume = volume(7, 20);
    let directory = volume.create_directory(ROOT, "d").await.expect("made").inode;
    let names: Vec<String> = (0..20).map(|number| format!("f{number:02}")).collect();
    for name in &names {
        volume.remote().put(&format!("d/{name}"), b"x");
    }
    let handle = volume.open_directory();
    let mut listed = Vec::new();
    loop {
        let entries = volume.entries(directory, handle, listed.len(), 7).await.expect("listed");
        if entries.is_empty() {
            break;
        }
        listed.extend(entries.into_iter().map(|entry| entry.name));
    }
    assert_eq!(listed, names);
    volume.release_directory(handle);
    assert!(matches!(volume.entries(directory, handle, 0, 7).await, Err(libc::EBADF)));
    assert!(matches!(volume.remove(ROOT, "d", Kind::Directory).await, Err(libc::ENOTEMPTY)));
}

#[tokio::test]
async fn a_new_directory_is_fully_known_for_a_moment_only() {
    let volume = volume(8, 0);
    let directory = volume.create_directory(ROOT, "d").await.expect("made").inode;
    assert!(volume.is_fully_known(directory) && !volume.is_fully_known(ROOT));
    let (found, opened) = volume.create(directory, "f", PLAIN).await.expect("made");
    volume.release(opened.handle).await;
    assert_eq!(volume.look_up(directory, "f").await.expect("there").inode, found.inode);
    assert!(matches!(volume.look_up(directory, "g").await, Err(libc::ENOENT)));
    // A name that was renamed into it or forgotten must be looked up.
    volume.forget(found.inode, 2);
    assert!(volume.look_up(directory, "f").await.is_ok());
    let other = volume.create_directory(ROOT, "e").await.expect("made").inode;
    volume.remote().put("h", b"x");
    volume.rename((ROOT, "h"), (other, "h"), true).await.expect("renamed");
    assert!(volume.look_up(other, "h").await.is_ok());
    // One machine creates the log, the others append to it.
    let logs = volume.create_directory(ROOT, "logs").await.expect("made").inode;
    volume.remote().put("logs/stdout.txt", b"first\n");
    let (found, _) = volume.create(logs, "stdout.txt", APPENDS).await.expect("opened");
    assert_eq!(found.status.length, 6);
}

/// A file that is created and written goes to the server in one request.
#[tokio::test]
async fn a_deferred_file_is_created_on_close_or_lookup() {
    const CUT: OpenOptions = OpenOptions { truncates: true, ..PLAIN };
    let volume = volume(15, 0);
    let directory = volume.create_directory(ROOT, "d").await.expect("made").inode;
    let is_there = |path: &str| volume.remote().paths().contains(&path.to_owned());
    let (found, opened) = volume.create(directory, "f", CUT).await.expect("made");
    volume.write(opened.handle, 0, b"content").await.expect("written");
    assert!(!is_there("d/f") && volume.attributes(found.inode).await.expect("known").length == 7);
    assert_eq!(volume.look_up(directory, "f").await.expect("there").inode, found.inode);
    volume.flush(opened.handle).await.expect("sent");
    volume.release(opened.handle).await;
    assert_eq!((volume.remote().content("d/f").as_deref(), volume.remote().writes()), (Some(&b"content"[..]), 1));
    // A file that another machine creates meanwhile is truncated, as if this one had come later.
    let (_, opened) = volume.create(directory, "g", CUT).await.expect("made");
    volume.remote().put("d/g", b"another's, which is longer");
    volume.write(opened.handle, 0, b"mine").await.expect("written");
    volume.flush(opened.handle).await.expect("sent");
    assert_eq!(volume.remote().content("d/g").as_deref(), Some(&b"mine"[..]));
    // Empty, read, renamed, removed while open.
    let (_, empty) = volume.create(directory, "empty", CUT).await.expect("made");
    volume.flush(empty.handle).await.expect("sent");
    assert_eq!(volume.remote().content("d/empty").as_deref(), Some(&b""[..]));
    let (_, read) = volume.create(directory, "read", CUT).await.expect("made");
    assert!(volume.read(read.handle, 0, 9).await.expect("read").is_empty());
    let (_, moved) = volume.create(directory, "old", CUT).await.expect("made");
    volume.write(moved.handle, 0, b"moved").await.expect("written");
    volume.rename((directory, "old"), (directory, "new"), true).await.expect("renamed");
    assert_eq!(volume.remote().content("d/new").as_deref(), Some(&b"moved"[..]));
    let (_, removed) = volume.create(directory, "removed", CUT).await.expect("made");
    volume.remove(directory, "removed", Kind::File).await.expect("removed");
    volume.release(removed.handle).await;
    assert!(volume.remote().paths().iter().all(|path| !Volume::<FakeRemote>::is_hidden(path) && path != "d/removed"));
    // Listing the directory includes it.
    assert!(matches!(volume.look_up(directory, "listed").await, Err(libc::ENOENT)));
    let (_, _listed) = volume.create(directory, "listed", CUT).await.expect("made");
    assert!(!is_there("d/listed"));
    let handle = volume.open_directory();
    let mut names: Vec<String> = Vec::new();
    loop {
        let entries = volume.entries(directory, handle, names.len(), 100).await.expect("listed");
        if entries.is_empty() {
            break;
        }
        names.extend(entries.into_iter().map(|entry| entry.name));
    }
    assert_eq!(names, ["empty", "f", "g", "listed", "new", "read"]);
    let other = volume.create_directory(ROOT, "e").await.expect("made").inode;
    let (_, _kept) = volume.create(other, "kept", CUT).await.expect("made");
    assert_eq!(volume.remove(ROOT, "e", Kind::Directory).await, Err(libc::ENOTEMPTY));
    // A file that stays open is created soon.
    let (_, _open) = volume.create(other, "open", CUT).await.expect("made");
    let began = Instant::now();
    while !is_there("e/open") {
        assert!(began.elapsed() < Duration::from_secs(30), "it is not made");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_failed_deferred_creation_is_an_error_of_the_close() {
    const CUT: OpenOptions = OpenOptions { truncates: true, ..PLAIN };
    let volume = volume(16, 0);
    let directory = volume.create_directory(ROOT, "d").await.expect("made").inode;
    let (_, opened) = volume.create(directory, "f", CUT).await.expect("made");
    volume.remote().remove("d", Kind::Directory).await.expect("by somebody else");
    volume.write(opened.handle, 0, b"content").await.expect("not sent yet");
    assert_eq!(volume.flush(opened.handle).await, Err(libc::ENOENT));
    assert_eq!(volume.flush(opened.handle).await, Ok(()), "told once");
    volume.release(opened.handle).await;
    // In a directory without earlier creations, and with `exclusive`, the server is asked at once.
    assert!(matches!(volume.look_up(ROOT, "g").await, Err(libc::ENOENT)));
    let (_, _opened) = volume.create(ROOT, "g", CUT).await.expect("made");
    assert!(volume.remote().content("g").is_some());
    for (name, options) in [("h", OpenOptions { exclusive: true, ..CUT }), ("i", PLAIN), ("j", APPENDS)] {
        assert!(matches!(volume.look_up(ROOT, name).await, Err(libc::ENOENT)));
        let (_, _opened) = volume.create(ROOT, name, options).await.expect("made");
        assert!(volume.remote().content(name).is_some(), "{name}");
    }
    assert!(matches!(volume.look_up(ROOT, "k").await, Err(libc::ENOENT)));
    let (_, _opened) = volume.create(ROOT, "k", CUT).await.expect("made");
    assert!(volume.remote().content("k").is_none(), "that one can wait");
}

/// Whatever answers are lost, programs see what they wrote, and so does the share in the end.
#[tokio::test(start_paused = true)]
async fn random_work_ends_as_on_a_local_disk() {
    for seed in 0..60 {
        let mut rng = SplitMix64::new(seed);
        let volume = volume(seed, 15);
        let volume = if seed % 3 == 0 { volume.with_write_cache() } else { volume };
        let mut model: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut open: Vec<(String, u64, u64)> = Vec::new();
        for step in 0..60u8 {
            let name = format!("f{}", rng.below(3));
            match rng.below(7) {
                0 | 1 if open.len() < 4 => {
                    let truncates = rng.below(3) == 0;
                    // As the kernel does.
                    let _ = volume.look_up(ROOT, &name).await;
                    let (found, opened) =
                        volume.create(ROOT, &name, OpenOptions { truncates, ..PLAIN }).await.expect("opened");
                    let content = model.entry(name.clone()).or_default();
                    if truncates {
                        content.clear();
                    }
                    open.push((name, found.inode, opened.handle));
                }
                2 | 3 if !open.is_empty() => {
                    let (name, _, handle) = &open[rng.below(open.len() as u64) as usize];
                    let (offset, length) = (rng.below(40) as usize, 1 + rng.below(20) as usize);
                    volume.write(*handle, offset as u64, &vec![step + 1; length]).await.expect("written");
                    let content = model.get_mut(name).expect("open");
                    content.resize(content.len().max(offset + length), 0);
                    content[offset..offset + length].fill(step + 1);
                }
                4 if !open.is_empty() => {
                    let (name, inode, handle) = &open[rng.below(open.len() as u64) as usize];
                    match rng.below(3) {
                        0 => volume.flush(*handle).await.expect("sent"),
                        1 => volume.sync(*handle).await.expect("on the disk"),
                        _ => {
                            let length = rng.below(30);
                            volume.resize(*inode, length).await.expect("resized");
                            model.get_mut(name).expect("open").resize(length as usize, 0);
                        }
                    }
                }
                5 if !open.is_empty() => {
                    let (_, _, handle) = open.swap_remove(rng.below(open.len() as u64) as usize);
                    volume.flush(handle).await.expect("sent");
                    volume.release(handle).await;
                }
                6 if !open.iter().any(|(open, ..)| *open == name) && model.contains_key(&name) => {
                    let target = format!("f{}", rng.below(3));
                    if target != name && !open.iter().any(|(open, ..)| *open == target) {
                        volume.rename((ROOT, &name), (ROOT, &target), true).await.expect("renamed");
                        let content = model.remove(&name).expect("there");
                        model.insert(target, content);
                    }
                }
                _ => {}
            }
            for (name, inode, handle) in &open {
                let expected = &model[name];
                let (start, length) = (rng.below(30), 1 + rng.below(40));
                let seen_errors = volume.read(*handle, start, length).await.expect("read");
                let from = (start as usize).min(expected.len());
                let to = ((start + length) as usize).min(expected.len());
                assert_eq!(&seen_errors[..], &expected[from..to], "seed {seed} step {step}");
                let status = volume.attributes(*inode).await.expect("known");
                assert_eq!(status.length, expected.len() as u64, "seed {seed} step {step}");
            }
        }
        for (_, _, handle) in open {
            volume.flush(handle).await.expect("sent");
            volume.release(handle).await;
        }
        let retired_name: BTreeMap<String, Vec<u8>> = volume
            .remote()
            .paths()
            .into_iter()
            .map(|path| (path.clone(), volume.remote().content(&path).expect("there")))
            .collect();
        assert_eq!(retired_name, model, "seed {seed}");
    }
}
