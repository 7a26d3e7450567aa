//! Cleanup of processes that guards could not kill, after a guard was killed or an agent crashed: finds them by the tag in their environment, by cgroup or
//! by the mount namespace of their job. Never kills this process; by tag, never another user's process.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};

use crate::mount_visibility::VisibleDirectory;
use corro_base::procfs;

/// The environment variable with the tag of every started process.
pub const TAG_VARIABLE: &str = "CORRO_PROCESS_TAG";

/// Rounds of killing and pausing, after which a process counts as unkillable. Killed processes usually end within milliseconds.
const MAX_ROUNDS: u32 = 200;
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Kills every process of this user whose tag starts with `tag_prefix`, and waits until none is left or the rest cannot be killed.
/// Returns the killed pids. An empty prefix matches nothing. Blocks.
pub fn kill_by_tag_prefix(tag_prefix: &str) -> Vec<u32> {
    kill_matching_tags(|tag| !tag_prefix.is_empty() && tag.starts_with(tag_prefix))
}

/// As [`kill_by_tag_prefix`], for one whole tag: `job/1` does not match `job/10`.
pub fn kill_by_tag(tag: &str) -> Vec<u32> {
    kill_matching_tags(|found| !tag.is_empty() && found == tag)
}

/// The processes of this user whose tag starts with `tag_prefix`.
pub fn processes_with_tag(tag_prefix: &str) -> Vec<u32> {
    let tagged = tagged(|tag| !tag_prefix.is_empty() && tag.starts_with(tag_prefix));
    tagged.into_iter().map(id).collect()
}

/// All processes of this user that have a tag, with their tags; for root, of all users.
pub fn tagged_processes() -> Vec<(i32, String)> {
    let my_user = geteuid().as_raw();
    let ours = procfs::pids().into_iter().filter(|pid| my_user == 0 || procfs::owner(*pid) == Some(my_user));
    ours.filter_map(|pid| Some((pid, procfs::environment_variable(pid, TAG_VARIABLE)?))).collect()
}

/// Kills every process of this user whose tag `matches`. Blocks as [`kill_by_tag_prefix`].
pub fn kill_matching_tags(matches: impl Fn(&str) -> bool) -> Vec<u32> {
    kill_all(|| tagged(&matches), |pid| has_tag(pid, &matches))
}

/// As [`kill_matching_tags`], only for processes whose pid matches `matches_pid`.
pub fn kill_matching_processes(matches: impl Fn(&str) -> bool, matches_pid: impl Fn(i32) -> bool) -> Vec<u32> {
    let matches_pid = |pid: Pid| matches_pid(pid.as_raw_nonzero().get());
    let find = || tagged(&matches).into_iter().filter(|pid| matches_pid(*pid)).collect();
    kill_all(find, |pid| has_tag(pid, &matches) && matches_pid(pid))
}

/// Kills all processes in the cgroup with the directory `group`, even if they changed their environment or
/// parents. A missing cgroup is empty. Blocks as [`kill_by_tag_prefix`].
pub fn kill_cgroup(group: &Path) -> Vec<u32> {
    // Forbids new processes where the pids controller is on, and kills all at once where the kernel has `cgroup.kill`.
    let _ = write_existing(&group.join("pids.max"), "0");
    let _ = write_existing(&group.join("cgroup.kill"), "1");
    kill_all(|| members_of(group), |pid| members_of(group).contains(&pid))
}

/// Kills every process in the mount namespace of a job in which `directory` is visible (see `namespaces::MountView`). Blocks as
/// [`kill_by_tag_prefix`].
pub fn kill_in_mount_namespace(directory: &Path) -> Vec<u32> {
    let Some(visible) = VisibleDirectory::new(directory) else { return Vec::new() };
    let is_visible = |pid: Pid| is_ours(pid) && visible.is_visible_to(pid.as_raw_nonzero().get());
    kill_all(|| other_processes().filter(|pid| is_visible(*pid)).collect(), is_visible)
}

/// Kills the processes of `find` until it finds none. `matches_pid` is checked again while the process is held by a pidfd, so
/// that a reused pid is never killed.
fn kill_all(find: impl Fn() -> Vec<Pid>, matches_pid: impl Fn(Pid) -> bool) -> Vec<u32> {
    let mut killed = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let found = find();
        if found.is_empty() {
            break;
        }
        for pid in found {
            if let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty())
                && matches_pid(pid)
            {
                // An error means that it has ended or may not be signalled; the next round checks.
                let _ = pidfd_send_signal(&pidfd, Signal::KILL);
            }
            if !killed.contains(&id(pid)) {
                killed.push(id(pid));
            }
        }
        sleep(POLL_INTERVAL);
    }
    killed
}

/// Processes of a cgroup and its descendants, except this one. Processes of another PID namespace are listed as 0.
fn members_of(group: &Path) -> Vec<Pid> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let listed = text.lines().filter_map(|line| line.trim().parse().ok());
    let own = listed.filter(|pid| *pid > 0).filter_map(Pid::from_raw).filter(|pid| id(*pid) != std::process::id());
    let inner = fs::read_dir(group).into_iter().flatten().flatten().map(|entry| entry.path());
    own.chain(inner.filter(|path| path.is_dir()).flat_map(|inner| members_of(&inner))).collect()
}

/// Writes to a file that exists: outside of a cgroup, no file must be created.
fn write_existing(path: &Path, text: &str) -> std::io::Result<()> {
    fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

fn other_processes() -> impl Iterator<Item = Pid> {
    let me = std::process::id();
    procfs::pids().into_iter().filter_map(Pid::from_raw).filter(move |pid| id(*pid) != me)
}

/// For root true for all processes, because a job of root may have changed its user.
fn is_ours(pid: Pid) -> bool {
    let my_user = geteuid().as_raw();
    my_user == 0 || procfs::owner(pid.as_raw_nonzero().get()) == Some(my_user)
}

fn tagged(matches: impl Fn(&str) -> bool) -> Vec<Pid> {
    let my_user = geteuid().as_raw();
    other_processes()
        .filter(|pid| procfs::owner(pid.as_raw_nonzero().get()) == Some(my_user))
        .filter(|pid| has_tag(*pid, &matches))
        .collect()
}

fn has_tag(pid: Pid, matches: impl Fn(&str) -> bool) -> bool {
    procfs::environment_variable(pid.as_raw_nonzero().get(), TAG_VARIABLE).is_some_and(|tag| matches(&tag))
}

fn id(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}
