//! The second net: finds processes by the tag in their environment, by their control group or by the mount name space of their job,
//! and kills them. Entered by `process` when a guard was
//! killed, and by an agent that starts after a crash. Never touches this process; by tag, never another user's process.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};

use crate::mountinfo::ShownDirectory;
use crate::procfs;

/// Every process we start carries this variable.
pub const TAG_VARIABLE: &str = "CORRO_PROCESS_TAG";

/// A killed process disappears within milliseconds; one that does not in all these rounds cannot be killed now.
const ROUNDS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(5);

/// Kills every process of ours whose tag starts with `tag_prefix` and returns once none is left (or cannot be killed).
/// Gives the ids that were killed. An empty prefix matches nothing. Blocks; call it on a thread that may.
pub fn sweep(tag_prefix: &str) -> Vec<u32> {
    sweep_where(|tag| !tag_prefix.is_empty() && tag.starts_with(tag_prefix))
}

/// Like `sweep`, for one whole tag: `job/1` does not match `job/10`.
pub fn sweep_exactly(tag: &str) -> Vec<u32> {
    sweep_where(|found| !tag.is_empty() && found == tag)
}

/// The processes of ours whose tag starts with `tag_prefix`.
pub fn processes_with_tag(tag_prefix: &str) -> Vec<u32> {
    let tagged = tagged(|tag| !tag_prefix.is_empty() && tag.starts_with(tag_prefix));
    tagged.into_iter().map(id).collect()
}

/// Every process of ours that carries a tag, with it.
pub fn tags() -> Vec<(i32, String)> {
    let my_user = geteuid().as_raw();
    let ours = procfs::pids().into_iter().filter(|pid| my_user == 0 || procfs::owner_of(*pid) == Some(my_user));
    ours.filter_map(|pid| Some((pid, procfs::variable_of(pid, TAG_VARIABLE)?))).collect()
}

/// Kills every process of ours whose tag `matches`. Blocks as [`sweep`] does.
pub fn sweep_where(matches: impl Fn(&str) -> bool) -> Vec<u32> {
    kill_all(|| tagged(&matches), |pid| has_tag(pid, &matches))
}

/// The same for processes of which also `is_one` holds, which is given their id.
pub fn sweep_processes(matches: impl Fn(&str) -> bool, is_one: impl Fn(i32) -> bool) -> Vec<u32> {
    let is_one = |pid: Pid| is_one(pid.as_raw_nonzero().get());
    let find = || tagged(&matches).into_iter().filter(|pid| is_one(*pid)).collect();
    kill_all(find, |pid| has_tag(pid, &matches) && is_one(pid))
}

/// Kills everything in the control group whose directory is `group`, whatever its processes did to their environment or their
/// parents. A group that is not there is empty. Blocks as [`sweep`] does.
pub fn sweep_group(group: &Path) -> Vec<u32> {
    // No new ones while the old ones are killed, where the group counts them; and all at once, where the kernel can.
    let _ = write_existing(&group.join("pids.max"), "0");
    let _ = write_existing(&group.join("cgroup.kill"), "1");
    kill_all(|| members_of(group), |pid| members_of(group).contains(&pid))
}

/// Kills every process in the mount name space of a job to which `directory` is shown (see `namespaces::View`). Blocks as [`sweep`] does.
pub fn sweep_shown(directory: &Path) -> Vec<u32> {
    let Some(shown) = ShownDirectory::new(directory) else { return Vec::new() };
    let is_shown = |pid: Pid| is_ours(pid) && shown.is_shown_to(pid.as_raw_nonzero().get());
    kill_all(|| others().filter(|pid| is_shown(*pid)).collect(), is_shown)
}

/// Kills what `find` finds, again and again until it finds nothing. `is_one` is asked once more with the process held by descriptor, so
/// that a recycled id is never hit.
fn kill_all(find: impl Fn() -> Vec<Pid>, is_one: impl Fn(Pid) -> bool) -> Vec<u32> {
    let mut killed = Vec::new();
    for _ in 0..ROUNDS {
        let found = find();
        if found.is_empty() {
            break;
        }
        for pid in found {
            if let Ok(held) = pidfd_open(pid, PidfdFlags::empty())
                && is_one(pid)
            {
                // A failure means that it is gone or not ours; the next round tells.
                let _ = pidfd_send_signal(&held, Signal::KILL);
            }
            if !killed.contains(&id(pid)) {
                killed.push(id(pid));
            }
        }
        sleep(PAUSE);
    }
    killed
}

/// Processes of a group and of the groups in it, but for this one. Those of another process name space are listed as 0.
fn members_of(group: &Path) -> Vec<Pid> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let listed = text.lines().filter_map(|line| line.trim().parse().ok());
    let own = listed.filter(|pid| *pid > 0).filter_map(Pid::from_raw).filter(|pid| id(*pid) != std::process::id());
    let inner = fs::read_dir(group).into_iter().flatten().flatten().map(|entry| entry.path());
    own.chain(inner.filter(|path| path.is_dir()).flat_map(|inner| members_of(&inner))).collect()
}

/// Elsewhere than in a control group, opening must not make a file.
fn write_existing(path: &Path, text: &str) -> std::io::Result<()> {
    fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

fn others() -> impl Iterator<Item = Pid> {
    let me = std::process::id();
    procfs::pids().into_iter().filter_map(Pid::from_raw).filter(move |pid| id(*pid) != me)
}

/// Root's processes may have become another user's.
fn is_ours(pid: Pid) -> bool {
    let my_user = geteuid().as_raw();
    my_user == 0 || procfs::owner_of(pid.as_raw_nonzero().get()) == Some(my_user)
}

fn tagged(matches: impl Fn(&str) -> bool) -> Vec<Pid> {
    let my_user = geteuid().as_raw();
    others()
        .filter(|pid| procfs::owner_of(pid.as_raw_nonzero().get()) == Some(my_user))
        .filter(|pid| has_tag(*pid, &matches))
        .collect()
}

fn has_tag(pid: Pid, matches: impl Fn(&str) -> bool) -> bool {
    procfs::variable_of(pid.as_raw_nonzero().get(), TAG_VARIABLE).is_some_and(|tag| matches(&tag))
}

fn id(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}
