//! Mounts of an unprivileged user, over TLS.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use corro_test_support::skip;
use rustix::io::Errno;
use rustix::process::{Signal, kill_process};

use super::fixture::{fails, is_mounted, mount_process, start_share, wait_until};
use crate::harness::CommandOutput;
use crate::harness::host::find_program;

/// An unprivileged user mounts through `fusermount3`, with the server's certificate authority.
#[test]
fn an_ordinary_user_mounts_over_tls() {
    let Some(mut share) = start_share() else { return };
    let can_switch_user =
        rustix::process::geteuid().is_root() && ["setpriv", "fusermount3"].iter().all(|p| find_program(p).is_some());
    let dir = tempfile::Builder::new().prefix("corro-user-").tempdir_in("/tmp").expect("a directory");
    let as_user = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]).args(words);
        command.current_dir(dir.path()).stdin(Stdio::null()).env_clear().env("HOME", dir.path());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
    };
    std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).expect("root may");
    let corro = env!("CARGO_BIN_EXE_corro");
    if !can_switch_user || !as_user(&[corro, "--version"]).output().is_ok_and(|output| output.status.success()) {
        return skip::unsupported_machine("no other user here could run this program with setpriv and fusermount3");
    }
    if !as_user(&["sh", "-c", "exec 3<>/dev/fuse"]).output().is_ok_and(|output| output.status.success()) {
        return skip::unsupported_machine("/dev/fuse is open to root only on this machine");
    }
    share.kill_server();
    let mut command = share.command("files --data data --account one --listen 127.0.0.1:0 --tls --name files.test");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut first = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut first).expect("a first line");
    share.server = Some(child);
    assert!(first.contains("https://files.test:"), "{first}");
    let connection = share.connection().replace("files.test", "127.0.0.1");
    let mount_point = dir.path().join("m");
    fs::copy(share.path("data/tls/ca.pem"), dir.path().join("ca.pem")).expect("the authority");
    let mount = |words: &[&str], ca: Option<&str>| {
        let mut command = as_user(&[&[corro][..], words].concat());
        command.env("AZURE_STORAGE_CONNECTION_STRING", &connection).envs(ca.map(|ca| ("CORRO_CA", ca)));
        CommandOutput::from(command.output().expect("it runs"))
    };
    assert!(as_user(&["mkdir", "m"]).status().expect("it runs").success());
    let words = ["mount", "share", "m", "--log-file", "m.log", "--timeout", "5"];
    mount(&words, None).fails(1, &["is not trusted"]);
    mount(&words, Some("ca.pem")).ok();
    assert!(is_mounted(&mount_point));
    assert!(as_user(&["sh", "-c", "echo mine > m/f && cat m/f"]).status().expect("it runs").success());
    assert_eq!(fs::read_to_string(share.on_disk("f")).expect("there"), "mine\n");
    // Not even root can read a user's mount.
    fails(fs::read_dir(&mount_point), Errno::ACCESS);
    mount(&["unmount", "m"], None).ok();
    assert!(!is_mounted(&mount_point));
    mount(&words, Some("ca.pem")).ok();
    kill_process(mount_process(&mount_point), Signal::KILL).expect("it runs");
    wait_until("the end of the mount", || !is_mounted(&mount_point));
}
