//! Helpers of the tests: a launcher with a guard, shell commands as processes, and waits with a deadline.
#![allow(dead_code, reason = "each test executable uses its own part")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use corro_launch::confinement::Confinement;
use corro_launch::exit::Exit;
use corro_launch::lines::{Mode, pump};
use corro_launch::process::{Launcher, Process};
use corro_launch::process_spec::ProcessSpec;

pub const DEADLINE: Duration = Duration::from_secs(30);

/// Path of an example of this crate; cargo puts them into a directory beside that of the test executables.
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this executable has a path");
    let path = test.parent().and_then(Path::parent).expect("a target folder").join("examples").join(name);
    assert!(path.exists(), "{} is built by `cargo test -p corro-launch`", path.display());
    path
}

pub fn launcher() -> Launcher {
    Launcher::new(example("guard"), Vec::new())
}

pub fn path_only() -> BTreeMap<String, String> {
    BTreeMap::from([("PATH".to_owned(), std::env::var("PATH").expect("PATH is set"))])
}

/// A tag that no other test uses.
pub fn tag(name: &str) -> String {
    format!("test/{}/{name}", std::process::id())
}

pub fn shell(tag: &str, script: &str) -> ProcessSpec {
    let argv = ["sh", "-c", script].map(String::from).to_vec();
    let (tag, confinement) = (tag.to_owned(), Confinement::default());
    ProcessSpec { argv, env: path_only(), cwd: std::env::temp_dir(), tag, confinement }
}

/// Exit and output of a process.
pub struct ProcessOutput {
    pub exit: Exit,
    pub stdout: String,
    pub stderr: String,
}

pub async fn run_to_end(mut process: Process) -> ProcessOutput {
    let (out, err) = (process.stdout.take().expect("not taken"), process.stderr.take().expect("not taken"));
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let all = async {
        tokio::join!(
            process.wait(),
            pump(out, Mode::Raw, None, |bytes| {
                stdout.extend_from_slice(bytes);
                Ok(())
            }),
            pump(err, Mode::Raw, None, |bytes| {
                stderr.extend_from_slice(bytes);
                Ok(())
            }),
        )
    };
    let (exit, out, err) = tokio::time::timeout(DEADLINE, all).await.expect("the process ends in time");
    out.expect("stdout can be read");
    err.expect("stderr can be read");
    ProcessOutput {
        exit: exit.expect("the process can be waited for"),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

/// Polls every few milliseconds until the condition holds.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let watch = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, watch).await.is_ok(), "timed out waiting for: {what}");
}

/// Whether the process exists and is not a zombie.
pub fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| Some(stat.rsplit_once(')')?.1.trim_start().chars().next()? != 'Z'))
        .unwrap_or(false)
}
