//! The second net: finds processes by the tag in their environment and kills them. Entered by `process` when a guard was
//! killed, and by an agent that starts after a crash. Never touches another user's process or this one.

use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};

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

fn sweep_where(matches: impl Fn(&str) -> bool) -> Vec<u32> {
    let mut killed = Vec::new();
    for _ in 0..ROUNDS {
        let found = tagged(&matches);
        if found.is_empty() {
            break;
        }
        for pid in found {
            kill(pid, &matches);
            if !killed.contains(&id(pid)) {
                killed.push(id(pid));
            }
        }
        sleep(PAUSE);
    }
    killed
}

fn tagged(matches: impl Fn(&str) -> bool) -> Vec<Pid> {
    let (me, my_user) = (std::process::id(), geteuid().as_raw());
    procfs::pids()
        .into_iter()
        .filter_map(Pid::from_raw)
        .filter(|pid| id(*pid) != me && procfs::owner_of(pid.as_raw_nonzero().get()) == Some(my_user))
        .filter(|pid| has_tag(*pid, &matches))
        .collect()
}

/// Holds the process by descriptor and looks again before it strikes, so that a recycled id is never hit.
fn kill(pid: Pid, matches: impl Fn(&str) -> bool) {
    if let Ok(held) = pidfd_open(pid, PidfdFlags::empty())
        && has_tag(pid, matches)
    {
        // A failure means that it is gone or not ours; the next round tells.
        let _ = pidfd_send_signal(&held, Signal::KILL);
    }
}

fn has_tag(pid: Pid, matches: impl Fn(&str) -> bool) -> bool {
    procfs::variable_of(pid.as_raw_nonzero().get(), TAG_VARIABLE).is_some_and(|tag| matches(&tag))
}

fn id(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}
