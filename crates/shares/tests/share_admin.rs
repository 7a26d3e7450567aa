//! Shares, directories and files through the public API: every operation and its errors.

mod common;

use std::{fs, os::unix::fs::PermissionsExt};

use common::{Fixture, code, p};
use corro_shares::{Kind, PageRequest, ShareError, Shares};

#[test]
fn shares_are_created_listed_and_deleted() {
    let Fixture { shares, dir, .. } = &Fixture::new();
    let mode = fs::metadata(dir.path().join("root")).expect("made").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);

    assert_eq!(code(shares.create_share("acc", "myshare")), "ShareAlreadyExists");
    assert_eq!(code(shares.create_share("acc", "abc")), "ok");
    assert_eq!(code(shares.create_share("acc", "../x")), "InvalidResourceName");
    assert_eq!(code(shares.create_share("../acc", "abc")), "InvalidResourceName");
    assert_eq!(code(shares.share("acc", "none")), "ShareNotFound");
    assert_eq!(code(shares.share("nobody", "abc")), "ShareNotFound");
    assert!(shares.exists("acc", "abc").expect("asked"));
    assert!(!shares.exists("nobody", "abc").expect("asked"));

    fs::write(dir.path().join("root/acc/afile"), "not a share").expect("written");
    fs::create_dir(dir.path().join("root/acc/.hidden")).expect("made");
    let names = |account| -> Vec<String> {
        let shares = shares.list_shares(account).expect("listed");
        shares.into_iter().map(|share| share.name).collect()
    };
    assert_eq!(names("acc"), ["abc", "myshare"]);
    assert!(names("nobody").is_empty());

    let removed = shares.delete_share("acc", "abc").expect("deleted");
    assert!(removed.leftover.is_none());
    assert_eq!(names("acc"), ["myshare"]);
    assert_eq!(code(shares.delete_share("acc", "abc")), "ShareNotFound");
    assert_eq!(code(shares.delete_share("nobody", "abc")), "ShareNotFound");
    assert!(shares.delete_account("acc").expect("deleted").leftover.is_none());
    assert!(names("acc").is_empty());
    assert!(shares.delete_account("acc").is_ok());
    assert_eq!(fs::read_dir(dir.path().join("root")).expect("there").count(), 0);
}

#[test]
fn a_reopened_root_has_the_same_shares() {
    let fixture = Fixture::new();
    fixture.share.append(&p("log"), b"x").expect("appended");
    let again = Shares::open(fixture.dir.path().join("root")).expect("opened again");
    assert!(again.leftovers().is_empty());
    let share = again.share("acc", "myshare").expect("still there");
    assert_eq!(share.stat(&p("log")).expect("still there").len, 1);
}

#[test]
fn directories() {
    let share = &Fixture::new().share;
    let create = |path: &str| code(share.create_dir(&p(path)));
    assert_eq!(create("a"), "ok");
    assert_eq!(create("a"), "ResourceAlreadyExists");
    assert_eq!(create("a/b"), "ok");
    assert_eq!(create("x/y"), "ParentNotFound");
    assert_eq!(create(""), "ResourceAlreadyExists");
    share.create_file(&p("f"), 0).expect("created");
    assert_eq!(create("f/y"), "ParentNotFound");
    assert_eq!(create("f"), "ResourceAlreadyExists");

    assert_eq!(code(share.make_dirs(&p("m/n/o"))), "ok");
    assert_eq!(code(share.make_dirs(&p("m/n/o"))), "ok");
    assert_eq!(code(share.make_dirs(&p(""))), "ok");
    assert_eq!(code(share.make_dirs(&p("f/n"))), "ParentNotFound");
    assert_eq!(code(share.make_dirs(&p("f"))), "ResourceTypeMismatch");

    let delete = |path: &str| code(share.delete_dir(&p(path)));
    assert_eq!(delete("a"), "DirectoryNotEmpty");
    assert_eq!(delete("a/b"), "ok");
    assert_eq!(delete("a"), "ok");
    assert_eq!(delete("a"), "ResourceNotFound");
    assert_eq!(delete("q/a"), "ResourceNotFound");
    assert_eq!(delete("f"), "ResourceTypeMismatch");
    assert_eq!(delete(""), "InvalidFileOrDirectoryPathName");
    assert_eq!(code(share.stat_dir(&p("f"))), "ResourceTypeMismatch");
    assert_eq!(code(share.stat_file(&p("m"))), "ResourceTypeMismatch");
}

#[test]
fn listings_are_sorted_paged_and_can_be_asked_for() {
    let fixture = Fixture::new();
    let share = &fixture.share;
    for name in ["b", "B", "a10", "a1", "é"] {
        share.create_file(&p(name), name.len() as u64).expect("created");
    }
    share.create_dir(&p("a0")).expect("created");
    // None of these has a valid name, or is a file or directory.
    fs::write(fixture.host().join("back\\slash"), "").expect("written");
    std::os::unix::net::UnixListener::bind(fixture.host().join("socket")).expect("bound");

    let names =
        |entries: &[corro_shares::Entry]| -> Vec<String> { entries.iter().map(|entry| entry.name.clone()).collect() };
    let all = share.list(&p("")).expect("listed");
    assert_eq!(names(&all), ["B", "a0", "a1", "a10", "b", "é"]);
    assert_eq!((all[1].kind(), all[1].len()), (Kind::Directory, 0));
    assert_eq!((all[3].kind(), all[3].len()), (Kind::File, 3));
    for entry in &all {
        assert_eq!(share.stat(&p(&entry.name)).expect("asked for"), entry.stat);
    }

    let page = |prefix, from, limit| {
        let page = share.list_page(&p(""), PageRequest { prefix, from, limit, described: false }).expect("listed");
        (names(&page.entries), page.next)
    };
    let some = |name: &str| Some(name.to_owned());
    assert_eq!(page("a", "", 2), (vec!["a0".into(), "a1".into()], some("a10")));
    assert_eq!(page("a", "a10", 2), (vec!["a10".into()], None));
    assert_eq!(page("zzz", "", 2), (vec![], None));
    // Skipped entries do not count, and no page begins with one.
    assert_eq!(page("", "b", 2), (vec!["b".into(), "é".into()], None));
    assert_eq!(page("", "b", 1), (vec!["b".into()], some("é")));
    assert_eq!(page("", "d", 1), (vec!["é".into()], None));
    assert_eq!(code(share.list(&p("none"))), "ResourceNotFound");
    assert_eq!(code(share.list(&p("b"))), "ResourceNotFound");
}

#[test]
fn files() {
    let fixture = Fixture::new();
    let share = &fixture.share;
    let host = fixture.host().join("f");
    let content = || fs::read(&host).expect("readable");

    assert_eq!(code(share.create_file(&p("d/f"), 1)), "ParentNotFound");
    assert_eq!(code(share.create_file(&p(""), 1)), "ResourceTypeMismatch");
    assert_eq!(share.create_file(&p("f"), 8).expect("created").len, 8);
    assert_eq!(content(), [0; 8]);
    share.write_range(&p("f"), 2, b"abcd").expect("written");
    assert_eq!(content(), b"\0\0abcd\0\0");
    share.write_range(&p("f"), 8, b"").expect("nothing to write");
    assert_eq!(code(share.write_range(&p("f"), 5, b"abcd")), "InvalidRange");
    assert_eq!(code(share.write_range(&p("f"), u64::MAX, b"abcd")), "InvalidRange");
    assert_eq!(content(), b"\0\0abcd\0\0");

    let mut many: Vec<_> = (0..3000).map(|_| std::io::IoSlice::new(b"xy")).collect();
    share.create_file(&p("many"), 6000).expect("created");
    share.write_range_vectored(&p("many"), 0, &mut many).expect("written");
    assert_eq!(fs::read(fixture.host().join("many")).expect("readable"), b"xy".repeat(3000));

    share.clear_range(&p("f"), 3, 2).expect("cleared");
    assert_eq!(content(), b"\0\0a\0\0d\0\0");
    assert_eq!(code(share.clear_range(&p("f"), 7, 2)), "InvalidRange");
    assert_eq!(share.resize(&p("f"), 3).expect("resized").len, 3);
    share.resize(&p("f"), 5).expect("resized");
    assert_eq!(content(), b"\0\0a\0\0");
    share.create_file(&p("f"), 4).expect("replaced");
    assert_eq!(content(), [0; 4]);

    share.create_dir(&p("d")).expect("created");
    for (result, expected) in [
        (code(share.create_file(&p("d"), 1)), "ResourceTypeMismatch"),
        (code(share.write_range(&p("d"), 0, b"x")), "ResourceTypeMismatch"),
        (code(share.open_file(&p("d"))), "ResourceTypeMismatch"),
        (code(share.delete_file(&p("d"))), "ResourceTypeMismatch"),
        (code(share.write_range(&p("no"), 0, b"x")), "ResourceNotFound"),
        (code(share.resize(&p("no"), 1)), "ResourceNotFound"),
        (code(share.open_file(&p("f/x"))), "ResourceNotFound"),
        (code(share.delete_file(&p("no"))), "ResourceNotFound"),
        (code(share.delete_file(&p("f"))), "ok"),
        (code(share.stat(&p("f"))), "ResourceNotFound"),
    ] {
        assert_eq!(result, expected);
    }
}

#[test]
fn sparse_files_report_their_data_ranges() {
    let share = &Fixture::new().share;
    const MIB: u64 = 1 << 20;
    share.create_file(&p("f"), 64 * MIB).expect("created");
    assert_eq!(share.data_ranges(&p("f")).expect("asked").0, []);
    share.write_range(&p("f"), 8 * MIB, &[1; 1 << 20]).expect("written");
    share.write_range(&p("f"), 63 * MIB, &[1; 1 << 20]).expect("written");
    let ranges = [(8 * MIB, 9 * MIB - 1), (63 * MIB, 64 * MIB - 1)];
    assert_eq!(share.data_ranges(&p("f")).expect("asked").0, ranges);
    share.clear_range(&p("f"), 8 * MIB, MIB).expect("cleared");
    assert_eq!(share.data_ranges(&p("f")).expect("asked").0, ranges[1..]);
}

#[test]
fn an_etag_lasts_until_the_content_is_modified() {
    let share = &Fixture::new().share;
    let first = share.create_file(&p("f"), 4).expect("created").etag;
    let etag = || share.stat(&p("f")).expect("there").etag;
    let (handle, opened) = share.open_file(&p("f")).expect("there");
    std::io::Read::read(&mut &handle, &mut [0; 4]).expect("read");
    assert_eq!((first.clone(), first.clone()), (opened.etag, etag()));

    let mut seen = vec![first];
    let mut changed = |etag: String| {
        assert!(!seen.contains(&etag), "{etag} was seen before");
        seen.push(etag);
    };
    changed(share.write_range(&p("f"), 0, b"abcd").expect("written").etag);
    changed(share.write_range(&p("f"), 0, b"abcd").expect("written").etag);
    changed(share.resize(&p("f"), 5).expect("resized").etag);
    changed(share.clear_range(&p("f"), 0, 5).expect("cleared").etag);
    changed(share.create_file(&p("f"), 5).expect("replaced").etag);
    share.append(&p("f"), b"x").expect("appended");
    changed(etag());
}

#[test]
fn a_pipe_in_a_share_neither_blocks_nor_opens() {
    let fixture = Fixture::new();
    let status = std::process::Command::new("mkfifo").arg(fixture.host().join("pipe")).status();
    assert!(status.expect("mkfifo is there").success());
    let share = &fixture.share;
    assert_eq!(code(share.open_file(&p("pipe"))), "ResourceTypeMismatch");
    assert_eq!(code(share.create_file(&p("pipe"), 3)), "ResourceTypeMismatch");
    assert_eq!(code(share.appender(&p("pipe"))), "ResourceTypeMismatch");
    assert_eq!(code(share.stat(&p("pipe"))), "ResourceTypeMismatch");
    assert_eq!(code(share.delete_file(&p("pipe"))), "ok");
}

#[test]
fn a_failure_of_the_disk_names_the_path_and_keeps_its_cause() {
    let fixture = Fixture::new();
    // Larger than any file system allows: the kernel rejects the length.
    let error = fixture.share.create_file(&p("big"), u64::MAX >> 1).expect_err("too large");
    let ShareError::Io { path, source, .. } = &error else { panic!("{error:?}") };
    assert_eq!(path, &p("big"));
    assert!(source.raw_os_error().is_some());
    assert!(error.to_string().contains("/big"), "{error}");
}

#[test]
fn containers_are_trees_in_a_namespace_of_their_own() {
    let fixture = Fixture::new();
    let container = fixture.shares.create_container("acc", "myshare").expect("a share may have the same name");
    assert_eq!(code(fixture.shares.create_container("acc", "myshare")), "ContainerAlreadyExists");
    container.create_dir(&p("d")).expect("made");
    let host = fixture.shares.container_host_path("acc", "myshare").expect("good names");
    assert!(host.join("d").is_dir() && !fixture.host().join("d").exists());
    assert_eq!(fixture.shares.list_containers("acc").expect("listed").len(), 1);
    assert_eq!(fixture.shares.list_shares("acc").expect("listed").len(), 1);
    assert_eq!(fixture.shares.list_containers("other").expect("listed"), []);
    assert_eq!(code(fixture.shares.container_host_path("acc", "..")), "InvalidResourceName");
    assert!(fixture.shares.delete_container("acc", "myshare").expect("deleted").leftover.is_none());
    assert_eq!(code(fixture.shares.container("acc", "myshare")), "ContainerNotFound");
    assert_eq!(code(fixture.shares.delete_container("none", "myshare")), "ContainerNotFound");
    assert!(fixture.host().is_dir(), "the share stays");
}
