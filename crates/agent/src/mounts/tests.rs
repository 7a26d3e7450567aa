//! Volumes of every kind on a real disk; those that the kernel mounts only where this user may mount.

use std::fs;

use corro_model::node::VolumeKind;
use tempfile::TempDir;

use super::*;
use crate::testing;

struct Bench {
    root: TempDir,
    share: TempDir,
    handle: OwnedFd,
    spare: Spare,
    node: NodeId,
}

impl Bench {
    fn new() -> Bench {
        let (root, share) = (tempfile::tempdir().expect("a root"), tempfile::tempdir().expect("a share"));
        fs::write(share.path().join("file"), "x").expect("a file on the share");
        let handle = tree::open_directory(root.path()).expect("the root");
        let spare = Spare::open(&handle).expect("a store");
        Bench { root, share, handle, spare, node: testing::node(1) }
    }

    fn mount(&self, volume: &Volume) -> Result<PathBuf, BatchAiError> {
        mount(&self.handle, self.root.path(), volume, Site { node: &self.node, spare: &self.spare, remotes: None })
    }

    fn unmount(&self, volume: &Volume) -> bool {
        let site = Site { node: &self.node, spare: &self.spare, remotes: None };
        unmount(&self.handle, self.root.path(), volume, site).expect("it can be taken away")
    }

    fn here(&self) -> VolumeSource {
        VolumeSource::LocalDirectory(self.share.path().to_owned())
    }
}

fn volume(relative: &str, source: VolumeSource) -> Volume {
    let label = "//acc.file.core.windows.net/logs".into();
    Volume { kind: VolumeKind::FileShare, relative: relative.into(), label, source, read_only: false }
}

fn command(text: &str) -> Volume {
    let source = VolumeSource::Command { command: text.to_owned() };
    Volume { kind: VolumeKind::Unmanaged, label: "the unmanaged file system".into(), ..volume("deep/u", source) }
}

fn info(error: &BatchAiError) -> &str {
    assert_eq!((error.details[0].name.as_str(), error.details[1].name.as_str()), ("Info", "Node"));
    &error.details[0].value
}

/// Says so where it may not.
fn may_mount() -> bool {
    let directory = tempfile::tempdir().expect("a directory");
    let may = command::run("mount -t tmpfs tmpfs", directory.path(), "probe").is_ok();
    let _ = table::take_away(directory.path());
    if !may {
        eprintln!("PASSED OVER: this user may not mount, so nothing is mounted by the kernel");
    }
    may
}

#[test]
fn a_volume_comes_and_goes_and_the_share_stays() {
    let bench = Bench::new();
    let volume = volume("deep/logs", bench.here());
    for _ in 0..2 {
        let at = bench.mount(&volume).expect("it mounts");
        assert_eq!(fs::read_to_string(at.join("file")).expect("the share is seen"), "x");
    }
    assert!(bench.unmount(&volume) && !bench.unmount(&volume));
    assert!(bench.share.path().join("file").exists() && !bench.root.path().join("deep/logs").exists());
}

#[test]
fn refusals_say_what_and_why_and_where() {
    let bench = Bench::new();
    let at = bench.root.path().join("logs");
    let check = |volume: Volume, code: &str, expected: &str| {
        let error = bench.mount(&volume).expect_err("it cannot be mounted");
        assert_eq!((error.code.as_str(), error.details[1].value.as_str()), (code, bench.node.as_str()));
        assert!(info(&error).contains(expected), "{}", info(&error));
    };
    let missing = "the share 'logs' does not exist";
    check(
        volume("logs", VolumeSource::Unavailable { why: missing.into() }),
        "AZFMountError",
        &format!("Could not mount Azure File Share //acc.file.core.windows.net/logs at {}: {missing}", at.display()),
    );
    check(volume("logs", VolumeSource::LocalDirectory("/nowhere/logs".into())), "AZFMountError", "/nowhere/logs");
    let why = "Azure Blob Container 'data' doesn't exist";
    let container = volume("data", VolumeSource::Unavailable { why: why.into() });
    check(Volume { kind: VolumeKind::Container, ..container }, "BFSMountError", why);
    check(volume("../logs", bench.here()), "AZFMountError", "leads out");
    check(volume("", bench.here()), "AZFMountError", "empty");
    let elsewhere = VolumeSource::LocalDirectory("/nowhere/data".into());
    let server = Volume { kind: VolumeKind::FileServer, label: "file server f".into(), ..volume("f", elsewhere) };
    check(server, "FileServerMountError", "Could not mount file server f at ");
    check(command("echo out of order; exit 3 #"), "UnmanagedMountError", "ended with exit status: 3: out of order");
    assert!(!bench.root.path().join("deep/u").exists(), "nothing is left of a mount that failed");
    fs::create_dir(&at).expect("a directory in the way");
    check(volume("logs", bench.here()), "AZFMountError", "something else is there already");
}

#[test]
fn mounts_of_the_kernel_come_and_go_and_nothing_goes_into_them() {
    let bench = Bench::new();
    if !may_mount() {
        return;
    }
    let read_only = Volume { read_only: true, ..volume("deep/logs", bench.here()) };
    for volume in [&command("mount -t tmpfs tmpfs"), &read_only] {
        let at = bench.mount(volume).expect("it mounts");
        assert_eq!(bench.mount(volume).expect("again is no change"), at);
        assert!(table::is_mounted(&at).expect("a table"));
        assert!(tree::remove(&bench.handle, "deep").is_err() && table::is_mounted(&at).expect("a table"));
        assert!(bench.unmount(volume) && !bench.unmount(volume) && !at.exists());
    }
    let at = bench.mount(&read_only).expect("it mounts");
    assert_eq!(fs::read_to_string(at.join("file")).expect("it can be read"), "x");
    let refused = fs::write(at.join("file"), "y").expect_err("it cannot be written");
    assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
    bench.mount(&command("mount -t tmpfs tmpfs")).expect("it mounts");
    assert_eq!(take_away_below(bench.root.path()).expect("all can go"), 2);
    tree::remove(&bench.handle, "deep").expect("nothing is mounted any more");
    assert_eq!(fs::read_to_string(bench.share.path().join("file")).expect("it is still there"), "x");
}
