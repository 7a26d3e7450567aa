//! Symbolic links of a share under common programs: `ls`, `find`, `cp`, `mv`, `ln`, `tar` and `rm` on a real mount, and the
//! batch commands of `corro storage`. Operations on a link affect the link, not its target.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use super::fixture::{Share, fails, start_share, wait_until};
use rustix::io::Errno;

/// Creates `checkpoints/best.h5`, and `old/` with links to that directory, to that file, to itself, to nothing and to this
/// machine's `/etc`.
fn plant(share: &Share) {
    for directory in ["checkpoints", "old"] {
        fs::create_dir(share.on_disk(directory)).expect("made");
    }
    fs::write(share.on_disk("checkpoints/best.h5"), "weights").expect("written");
    for (name, text) in [
        ("latest", "../checkpoints"),
        ("model.h5", "../checkpoints/best.h5"),
        ("loop", "."),
        ("dangling", "nowhere"),
        ("outside", "/etc"),
    ] {
        symlink(text, share.on_disk("old").join(name)).expect("linked");
    }
}

/// The standard output of a program that succeeds.
fn shell(at: &Path, line: &str) -> String {
    let ended = Command::new("sh").args(["-c", line]).current_dir(at).env("LC_ALL", "C").output().expect("it runs");
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && stderr.is_empty(), "{line}: {stderr}");
    String::from_utf8(ended.stdout).expect("text")
}

fn best(share: &Share) -> String {
    fs::read_to_string(share.on_disk("checkpoints/best.h5")).expect("best.h5 is still there")
}

#[test]
fn links_on_a_mount_are_links() {
    let Some(share) = start_share() else { return };
    plant(&share);
    for mode in ["", "--write-cache"] {
        let name = format!("m{}", mode.trim_matches('-'));
        let at = share.mount(&name, mode);
        assert_eq!(shell(&at, "readlink old/latest old/loop old/outside"), "../checkpoints\n.\n/etc\n");
        assert_eq!(shell(&at, "ls -l old | grep -c '^lrwxrwxrwx'"), "5\n");
        // Twice: from the listing, and by lookup of each.
        for _ in 0..2 {
            let found = shell(&at, "find . | sort");
            assert_eq!(
                found,
                ".\n./checkpoints\n./checkpoints/best.h5\n./old\n./old/dangling\n./old/latest\n./old/loop\n\
                 ./old/model.h5\n./old/outside\n"
            );
        }
        assert_eq!(shell(&at, "find . -type l | wc -l; find . -type d | wc -l"), "5\n3\n");
        // This machine's kernel follows them.
        assert_eq!(shell(&at, "cat old/latest/best.h5 old/model.h5 old/loop/loop/model.h5"), "weightsweightsweights");
        assert_eq!(fs::canonicalize(at.join("old/outside")).expect("followed"), Path::new("/etc"));
        fails(fs::read(at.join("old/dangling")), Errno::NOENT);
        fails(fs::remove_dir(at.join("old/latest")), Errno::NOTDIR);
        // Copied as links, within the mount and out of it, with their times.
        shell(&at, "cp -a old copy && rm -rf copy && cp -r old copy && touch -h -d 2018-06-07T00:00:00Z copy/latest");
        let copied = share.path("copied");
        shell(&at, &format!("cp -a copy '{0}' && tar cf - old | tar xf - -C '{0}'", copied.display()));
        assert_eq!(
            shell(&copied, "readlink latest old/outside; stat -c %Y latest"),
            "../checkpoints\n/etc\n1528329600\n"
        );
        fs::remove_dir_all(&copied).expect("removed");
        // A link is created, moved, replaced and removed.
        shell(&at, "ln -s ../checkpoints/best.h5 copy/new && mv copy/new copy/moved && mv copy/latest .");
        assert_eq!(fs::read_link(share.on_disk("copy/moved")).expect("a link"), Path::new("../checkpoints/best.h5"));
        assert_eq!(fs::read_link(share.on_disk("latest")).expect("a link"), Path::new("../checkpoints"));
        fails(symlink("x", at.join("latest")), Errno::EXIST);
        fails(symlink("x".repeat(5000), at.join("long")), Errno::NAMETOOLONG);
        shell(&at, "echo other > file && mv file copy/moved && cat copy/moved && rm copy/loop latest");
        assert_eq!(fs::read_to_string(share.on_disk("copy/moved")).expect("a file"), "other\n");
        // A write through a link goes to its target.
        shell(&at, "printf more >> old/model.h5");
        wait_until("what was written", || best(&share) == "weightsmore");
        shell(&at, "printf weights > old/model.h5 && rm -rf copy");
        wait_until("what was written", || best(&share) == "weights");
        share.unmount(&name);
    }
    let at = share.mount("last", "");
    shell(&at, "rm -rf old");
    assert!(!share.on_disk("old").exists());
    assert_eq!(best(&share), "weights");
    share.unmount("last");
}

/// A name that turns from a file into a link, and from a directory into one, while the kernel has the old type cached.
#[test]
fn a_link_that_others_put_in_the_place_of_something_is_seen() {
    let Some(share) = start_share() else { return };
    plant(&share);
    let at = share.mount("m", "");
    fs::write(at.join("file"), "plain").expect("written");
    fs::create_dir(at.join("directory")).expect("made");
    fs::remove_file(share.on_disk("file")).expect("removed");
    fs::remove_dir(share.on_disk("directory")).expect("removed");
    symlink("checkpoints/best.h5", share.on_disk("file")).expect("linked");
    symlink("checkpoints", share.on_disk("directory")).expect("linked");
    wait_until("the link to a file", || fs::read_to_string(at.join("file")).is_ok_and(|text| text == "weights"));
    wait_until("the link to a directory", || fs::read_link(at.join("directory")).is_ok());
    shell(&at, "rm -rf directory file");
    assert_eq!(best(&share), "weights");
    assert!(!share.on_disk("directory").is_symlink() && !share.on_disk("file").is_symlink());
}

#[test]
fn batch_commands_do_not_descend_into_links() {
    let Some(share) = start_share() else { return };
    plant(&share);
    let down = share.path("down");
    fs::create_dir(&down).expect("made");
    let ended = share.corro("storage file download-batch -s share -d down --no-progress").ok();
    for skipped in [
        "skipped old/latest: a link to ../checkpoints",
        "skipped old/loop: a link to .",
        "skipped old/dangling: a link to nowhere",
        "skipped old/outside: a link to /etc",
    ] {
        assert!(ended.stderr.contains(skipped), "{}", ended.stderr);
    }
    assert_eq!(shell(&down, "find . -type f | sort"), "./checkpoints/best.h5\n./old/model.h5\n");
    assert_eq!(shell(&down, "cat old/model.h5"), "weights");
    let listed = share.corro("storage file list -s share -p old -o table").ok();
    assert!(listed.stdout.contains("latest -> ../checkpoints"), "{}", listed.stdout);
    assert!(!listed.stdout.contains("dir"), "{}", listed.stdout);
    // An upload does not descend into local links either.
    symlink(".", down.join("circle")).expect("linked");
    share.corro("storage file upload-batch -s down -d share --destination-path up --no-progress").ok();
    assert_eq!(shell(&share.on_disk("up"), "find . -type f | sort"), "./checkpoints/best.h5\n./old/model.h5\n");
    // Every link matches, and none of their targets.
    share.corro("storage file delete-batch -s share --pattern old/*").ok();
    assert_eq!(fs::read_dir(share.on_disk("old")).expect("there").count(), 0);
    assert_eq!(best(&share), "weights");
    share.corro("storage directory delete -s share -n old").ok();
}
