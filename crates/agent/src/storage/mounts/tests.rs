//! Volumes of every kind on a real disk. Bind mounts are tested only if this user may mount.

use std::fs;

use corro_model::node::VolumeKind;
use corro_test_support::skip;
use tempfile::TempDir;

use super::*;
use crate::testing;

struct Bench {
    root: TempDir,
    share: TempDir,
    handle: OwnedFd,
    dir_reuse: DirReuse,
    node: NodeId,
    tags: TagPrefix,
}

impl Bench {
    fn new() -> Bench {
        let (root, share) = (tempfile::tempdir().expect("a root"), tempfile::tempdir().expect("a share"));
        fs::write(share.path().join("file"), "x").expect("a file on the share");
        let handle = dirfd::open_directory(root.path()).expect("the root");
        let dir_reuse = DirReuse::open(&handle).expect("a store");
        let tags = TagPrefix::new(&testing::node(1), "0123");
        Bench { root, share, handle, dir_reuse, node: testing::node(1), tags }
    }

    fn context(&self, commands: MountCommands) -> MountContext<'_> {
        MountContext { node: &self.node, tags: &self.tags, dir_reuse: &self.dir_reuse, fuse_mounts: None, commands }
    }

    fn mount(&self, volume: &Volume) -> Result<PathBuf, BatchAiError> {
        let mounted = mount(&self.handle, self.root.path(), volume, self.context(MountCommands::Cluster));
        mounted.map(|mounted| mounted.at).map_err(|failure| failure.error)
    }

    fn unmount(&self, volume: &Volume) -> bool {
        let context = self.context(MountCommands::Cluster);
        unmount(&self.handle, self.root.path(), volume, context).expect("it can be taken away")
    }

    fn here(&self) -> VolumeSource {
        VolumeSource::LocalDirectory(self.share.path().to_owned())
    }
}

fn volume(relative: &str, source: VolumeSource) -> Volume {
    let label = "//acc.file.core.windows.net/logs".into();
    Volume { kind: VolumeKind::FileShare, relative: relative.into(), label, source, read_only: false, beneath: None }
}

fn command(text: &str) -> Volume {
    let source = VolumeSource::Command { command: text.to_owned() };
    Volume { kind: VolumeKind::Unmanaged, label: "the unmanaged file system".into(), ..volume("deep/u", source) }
}

fn info(error: &BatchAiError) -> &str {
    assert_eq!((error.details[0].name.as_str(), error.details[1].name.as_str()), ("Info", "Node"));
    &error.details[0].value
}

/// Prints a note if this user may not mount.
fn may_mount() -> bool {
    let directory = tempfile::tempdir().expect("a directory");
    let may = command::run("mount -t tmpfs tmpfs", directory.path(), "probe", &mut String::new()).is_ok();
    let _ = mountinfo::unmount_layers(directory.path());
    if !may {
        skip::unsupported_machine("this user may not mount, so nothing is mounted by the kernel");
    }
    may
}

#[test]
fn unmounting_a_volume_keeps_the_share() {
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
fn mount_errors_name_volume_cause_and_node() {
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
    check(volume("logs", bench.here()), "AZFMountError", "the mount point exists and is not empty");
}

#[test]
fn a_jobs_mount_command_is_refused_or_its_output_kept_out_of_the_error() {
    let bench = Bench::new();
    let made = bench.root.path().join("made");
    let volume = command(&format!("touch {}; echo the key; exit 3 #", made.display()));
    let tried =
        |commands| mount(&bench.handle, bench.root.path(), &volume, bench.context(commands)).expect_err("it fails");
    let refused = tried(MountCommands::Refused);
    assert!(!made.exists(), "nothing ran");
    assert_eq!((refused.error.code.as_str(), refused.output.as_str()), ("UnmanagedMountError", ""));
    for word in ["mountCommand", "nodeSetup.mountVolumes.unmanagedFileSystems"] {
        assert!(info(&refused.error).contains(word), "{}", info(&refused.error));
    }
    let ran = tried(MountCommands::Job);
    assert!(made.exists() && !format!("{:?}", ran.error).contains("the key"), "{:?}", ran.error);
    assert!(
        info(&ran.error).contains("ended with exit status: 3: its output is in the execution log"),
        "{}",
        info(&ran.error)
    );
    assert_eq!(ran.output, "the key");
}

#[test]
fn a_directory_of_a_file_server_is_shown_only_if_it_is_one() {
    let bench = Bench::new();
    let share = bench.share.path().canonicalize().expect("a path");
    fs::create_dir_all(share.join("own/real")).expect("directories");
    std::os::unix::fs::symlink("..", share.join("own/up")).expect("a link");
    std::os::unix::fs::symlink("real", share.join("own/near")).expect("a link");
    let inside = |name: &str, read_only: bool| Volume {
        read_only,
        beneath: Some(share.join("own")),
        kind: VolumeKind::FileServer,
        ..volume("nfs", VolumeSource::LocalDirectory(share.join("own").join(name)))
    };
    for read_only in [false, true] {
        let error = bench.mount(&inside("up", read_only)).expect_err("it leads to others");
        assert!(info(&error).contains("leads out of the volume"), "{}", info(&error));
    }
    for _ in 0..2 {
        bench.mount(&inside("near", false)).expect("it mounts, and again is no change");
    }
    let at = bench.root.path().join("nfs");
    match may_mount() {
        true => assert!(mountinfo::is_mounted(&at).expect("a table")),
        false => assert_eq!(fs::read_link(&at).expect("a link"), share.join("own/real")),
    }
    fs::write(at.join("written"), "x").expect("it can be written");
    assert!(share.join("own/real/written").exists());
    assert!(bench.unmount(&inside("near", false)) && !bench.unmount(&inside("near", false)));
}

#[test]
fn a_link_that_a_job_replaced_is_recreated() {
    let bench = Bench::new();
    let volume = volume("deep/logs", bench.here());
    let at = bench.mount(&volume).expect("it mounts");
    let outside = tempfile::tempdir().expect("a directory");
    fs::write(outside.path().join("kept"), "x").expect("a file");
    let restore = || {
        let context = bench.context(MountCommands::Cluster);
        restore_links(&bench.handle, bench.root.path(), std::slice::from_ref(&volume), context).expect("made anew");
        assert_eq!(fs::read_link(&at).expect("a link"), bench.share.path());
    };
    restore();
    fs::remove_file(&at).expect("removed");
    fs::create_dir_all(at.join("fake")).expect("directories");
    std::os::unix::fs::symlink(outside.path(), at.join("fake/link")).expect("a link");
    restore();
    fs::remove_file(&at).expect("removed");
    fs::remove_dir(bench.root.path().join("deep")).expect("removed");
    std::os::unix::fs::symlink(outside.path(), bench.root.path().join("deep")).expect("a link");
    restore();
    assert!(outside.path().join("kept").exists() && !outside.path().join("logs").exists());
    assert_eq!(fs::read_to_string(at.join("file")).expect("the share is as it was"), "x");
}

#[test]
fn bind_mounts_are_unmounted_and_never_entered() {
    let bench = Bench::new();
    if !may_mount() {
        return;
    }
    let read_only = Volume { read_only: true, ..volume("deep/logs", bench.here()) };
    for volume in [&command("mount -t tmpfs tmpfs"), &read_only] {
        let at = bench.mount(volume).expect("it mounts");
        assert_eq!(bench.mount(volume).expect("again is no change"), at);
        assert!(mountinfo::is_mounted(&at).expect("a table"));
        assert!(dirfd::remove(&bench.handle, "deep").is_err() && mountinfo::is_mounted(&at).expect("a table"));
        assert!(bench.unmount(volume) && !bench.unmount(volume) && !at.exists());
    }
    let at = bench.mount(&read_only).expect("it mounts");
    assert_eq!(fs::read_to_string(at.join("file")).expect("it can be read"), "x");
    let refused = fs::write(at.join("file"), "y").expect_err("it cannot be written");
    assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
    bench.mount(&command("mount -t tmpfs tmpfs")).expect("it mounts");
    assert_eq!(unmount_below(bench.root.path()).expect("all can go"), 2);
    dirfd::remove(&bench.handle, "deep").expect("nothing is mounted any more");
    assert_eq!(fs::read_to_string(bench.share.path().join("file")).expect("it is still there"), "x");
}
