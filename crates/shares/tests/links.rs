//! Symbolic links are entries of their own: listed, renamed and deleted as links, never descended into.

mod common;

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    time::{Duration, SystemTime},
};

use common::{Fixture, code, p};
use corro_shares::{FlatEntry, FlatRequest, Kind, Properties};

/// `checkpoints/best.h5`, and `old/` with links to the directory, to the file, to nothing, out of the share and to
/// itself.
fn share_with_links() -> Fixture {
    let fixture = Fixture::new();
    fixture.share.make_dirs(&p("checkpoints")).expect("made");
    fixture.share.make_dirs(&p("old")).expect("made");
    fixture.share.append(&p("checkpoints/best.h5"), b"weights").expect("written");
    for (text, link) in [
        ("../checkpoints", "latest"),
        ("../checkpoints/best.h5", "model.h5"),
        ("nowhere", "dangling"),
        ("/etc/passwd", "outside"),
        (".", "loop"),
    ] {
        symlink(text, fixture.host().join("old").join(link)).expect("linked");
    }
    fixture
}

fn is_link(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink())
}

#[test]
fn links_are_listed_as_links_and_read_with_the_length_that_the_listing_says() {
    let fixture = share_with_links();
    let listed: Vec<_> = (fixture.share.list(&p("old")).expect("listed").into_iter())
        .map(|entry| (entry.name.clone(), entry.kind(), entry.len(), entry.link.map(|link| link.text)))
        .collect();
    let link = |name: &str, kind, len, text: &str| (name.to_owned(), kind, len, Some(text.to_owned()));
    assert_eq!(
        listed,
        [
            link("dangling", Kind::Link, 7, "nowhere"),
            link("latest", Kind::Link, 14, "../checkpoints"),
            link("loop", Kind::Link, 1, "."),
            link("model.h5", Kind::File, 7, "../checkpoints/best.h5"),
            link("outside", Kind::Link, 11, "/etc/passwd"),
        ]
    );
    for (name, content) in [("latest", "../checkpoints"), ("model.h5", "weights"), ("outside", "/etc/passwd")] {
        let path = p(&format!("old/{name}"));
        let (file, stat) = fixture.share.open_content(&path).expect("opened");
        assert_eq!(std::io::read_to_string(file).expect("read"), content);
        assert_eq!(stat.len, content.len() as u64);
        assert_eq!(fixture.share.describe_content(&path).expect("described"), (stat, Properties::default()));
        assert_eq!(fixture.share.data_ranges(&path).expect("asked").0, [(0, content.len() as u64 - 1)]);
    }
    // A named path is resolved through links.
    assert_eq!(fixture.share.stat(&p("old/latest/best.h5")).expect("followed").len, 7);
    assert_eq!(code(fixture.share.open_content(&p("checkpoints"))), "ResourceTypeMismatch");
}

#[test]
fn deleting_a_link_keeps_its_target() {
    let fixture = share_with_links();
    for (index, name) in ["latest", "model.h5", "dangling", "outside", "loop"].into_iter().enumerate() {
        let path = p(&format!("old/{name}"));
        // Also when it is deleted as a directory.
        let deleted = if index % 2 == 0 { fixture.share.delete_dir(&path) } else { fixture.share.delete_file(&path) };
        assert_eq!(code(deleted), "ok", "{name}");
    }
    assert_eq!(code(fixture.share.delete_dir(&p("old"))), "ok");
    assert_eq!(fs::read(fixture.host().join("checkpoints/best.h5")).expect("there"), b"weights");
}

#[test]
fn renaming_a_link_renames_the_link() {
    let fixture = share_with_links();
    let rename = |from: &str, to: &str, kind| code(fixture.share.rename(&p(from), &p(to), kind, true));
    assert_eq!(rename("old/latest", "latest", Kind::Directory), "ResourceTypeMismatch");
    assert_eq!(rename("old/latest", "latest", Kind::File), "ok");
    assert!(is_link(&fixture.host().join("latest")), "though its text leads nowhere from there");
    assert!(fixture.host().join("checkpoints/best.h5").exists());
    // A rename to its path replaces the link.
    fixture.share.append(&p("new"), b"new").expect("written");
    assert_eq!(rename("new", "old/model.h5", Kind::File), "ok");
    assert_eq!(fs::read(fixture.host().join("checkpoints/best.h5")).expect("there"), b"weights");
}

#[test]
fn walks_and_flat_listings_do_not_descend_into_links() {
    let fixture = share_with_links();
    let names = |prefix: &str, delimiter: &str| -> Vec<String> {
        let request = FlatRequest { prefix, from: "", delimiter, limit: usize::MAX };
        let items = fixture.share.list_flat(request).expect("listed").items;
        let name = |item: FlatEntry| match item {
            FlatEntry::File { name, .. } | FlatEntry::Prefix(name) => name,
        };
        items.into_iter().map(name).collect()
    };
    let links = ["old/dangling", "old/latest", "old/loop", "old/model.h5", "old/outside"];
    assert_eq!(names("", ""), [&["checkpoints/best.h5"][..], &links].concat());
    assert_eq!(names("old/", "/"), links);
    assert!(names("old/latest/", "").is_empty() && names("old/loop/", "/").is_empty());
    assert_eq!(fixture.share.usage().expect("measured"), 7);
    let id = fixture.shares.create_snapshot("acc", "myshare", &Properties::default(), 1_500_000_000).expect("made");
    let snapshot = fixture.shares.snapshot("acc", "myshare", &id).expect("there");
    assert_eq!(snapshot.read_link(&p("old/latest")).expect("a link"), b"../checkpoints");
    assert_eq!(snapshot.list(&p("old")).expect("listed").len(), links.len());
}

/// Publishing at the path of a link replaces the link; directories behind links are not removed for it.
#[test]
fn a_published_file_replaces_a_link_and_not_its_target() {
    let fixture = share_with_links();
    let container = fixture.shares.create_container("acc", "con").expect("made");
    let host = fixture.shares.container_host_path("acc", "con").expect("good names");
    container.make_dirs(&p("real/hollow")).expect("made");
    container.make_dirs(&p("place")).expect("made");
    symlink("real", host.join("link")).expect("linked");
    symlink("../real", host.join("place/link")).expect("linked");
    let publish = |path: &str, replace| {
        let staged = fixture.shares.stage_file("acc", "con").expect("a staging file");
        code(staged.publish(&container, &p(path), replace, &Properties::default()))
    };
    assert_eq!(publish("link", false), "ResourceAlreadyExists");
    assert_eq!(publish("place", true), "ResourceTypeMismatch", "a directory with a link in it is not empty");
    assert!(host.join("real/hollow").is_dir(), "nothing behind a link was cleared away");
    assert_eq!(publish("link", true), "ok");
    assert!(host.join("link").is_file() && host.join("real/hollow").is_dir());
}

#[test]
fn links_can_be_made_and_have_a_time_of_their_own() {
    let fixture = share_with_links();
    let share = &fixture.share;
    assert_eq!(share.create_link(&p("new"), b"checkpoints/best.h5").expect("made").kind, Kind::Link);
    assert_eq!(code(share.create_link(&p("new"), b"x")), "ResourceAlreadyExists");
    assert_eq!(code(share.create_link(&p("none/new"), b"x")), "ParentNotFound");
    for text in [&b""[..], b"a\0b", &[b'x'; 4096]] {
        assert_eq!(code(share.create_link(&p("bad"), text)), "InvalidHeaderValue");
    }
    let file = share.stat(&p("new")).expect("followed").modified;
    let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_500_000_000_123_456_789);
    assert_eq!(share.set_entry_modified(&p("new"), time).expect("set").modified, time);
    assert_eq!(share.stat(&p("new")).expect("followed").modified, file);
    assert_eq!(share.set_entry_modified(&p("checkpoints/best.h5"), time).expect("set").modified, time);
    assert_eq!(code(share.read_link(&p("checkpoints"))), "ResourceTypeMismatch");
}

/// A copy on the server reads a link as a download does.
#[test]
fn a_copy_of_a_link_copies_its_content() {
    let fixture = share_with_links();
    for (from, content) in [("old/model.h5", "weights"), ("old/latest", "../checkpoints")] {
        let source = (&fixture.share, &p(from));
        let copied = fixture.share.copy_file(&p("copy"), source, &Properties::default(), &|| true).expect("copied");
        assert_eq!((copied.kind, copied.len), (Kind::File, content.len() as u64));
        assert_eq!(fs::read_to_string(fixture.host().join("copy")).expect("there"), content);
    }
}
