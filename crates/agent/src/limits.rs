//! The memory that a node's processes may use together, held by a control group of the kernel's. Made when the agent starts,
//! so that everything its warden forks is born inside; given a job's limit when the job begins. Both versions of control
//! groups are known. A machine that has less than the limit, or where no group can be made, has none: no job fails for it.

mod place;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use corro_model::node::Limits;

use crate::scratch;
use place::{Place, Version, place};

/// After its last process has ended a group can be removed; that takes milliseconds.
const REMOVED_WITHIN: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// The group of one node.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
    version: Version,
    /// What was last written.
    limit: Mutex<Option<u64>>,
}

/// A job's limit while it runs.
#[derive(Debug)]
pub struct MemoryLimit {
    /// For people.
    words: String,
    kills_before: u64,
}

impl Group {
    /// Makes the group of the node whose directory is `root`, or finds the one that an earlier agent left.
    pub fn make(root: &Path) -> Result<Group, String> {
        let Place { directory, version } = found()?;
        let path = directory.join(group_name(&scratch::name(root)));
        match fs::create_dir(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(format!("no control group can be made in {}: {error}", directory.display()));
            }
            _ => {}
        }
        let group = Group { path, version, limit: Mutex::new(None) };
        match group.write_limit(None) {
            Ok(()) => Ok(group),
            Err(error) => {
                let _ = fs::remove_dir(&group.path);
                Err(format!("the control group {} takes no limit: {error}", group.path.display()))
            }
        }
    }

    /// Whoever writes a process's number there puts it into the group.
    pub fn entrance(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// Sets what the job may use. The words say what was done.
    pub fn limit(&self, limits: Option<&Limits>, machine: u64) -> (Option<MemoryLimit>, String) {
        let wanted = limits.filter(|limits| limits.memory_bytes < machine);
        let bytes = wanted.map(|limits| limits.memory_bytes);
        let mut last = self.limit.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *last != bytes
            && let Err(error) = self.write_limit(bytes)
        {
            return (None, format!("NO limit of memory: {} refused it: {error}", self.path.display()));
        }
        *last = bytes;
        match (wanted, limits) {
            (Some(limits), _) => {
                let words = format!("{} GiB, the memory of {}", gib(limits.memory_bytes), limits.vm_size);
                let told = format!("at most {words}");
                (Some(MemoryLimit { words, kills_before: self.kills() }), told)
            }
            (None, Some(limits)) => {
                (None, format!("no limit of memory, as this machine has no more than {}", limits.vm_size))
            }
            (None, None) => (None, "no limit of memory".to_owned()),
        }
    }

    /// Whether processes were killed for want of memory since the job began; the limit and what to do, in words.
    pub fn exceeded(&self, limit: &MemoryLimit) -> Option<String> {
        (self.kills() > limit.kills_before).then(|| {
            format!(
                "the job's processes on this node may use {} together, and the kernel killed one when they wanted more: \
                 choose a larger vmSize for the cluster, or use less (smaller batches, fewer processes)",
                limit.words
            )
        })
    }

    /// Blocks until what was in it has ended. One that cannot be removed now is found by the node's next agent.
    pub fn remove(&self) -> io::Result<()> {
        remove_empty(&self.path)
    }

    fn kills(&self) -> u64 {
        let file = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
    }

    fn write_limit(&self, bytes: Option<u64>) -> io::Result<()> {
        let (file, none) = match self.version {
            Version::One => ("memory.limit_in_bytes", "-1"),
            Version::Two => ("memory.max", "max"),
        };
        fs::write(self.path.join(file), bytes.map_or_else(|| none.to_owned(), |bytes| bytes.to_string()))
    }
}

/// Removes the group of a node whose agent is dead; none is none. Blocks as [`Group::remove`] does.
pub fn remove(root: &Path) -> io::Result<()> {
    remove_named(&scratch::name(root))
}

/// The same for a node of which only its short name is known.
pub fn remove_named(node: &str) -> io::Result<()> {
    match found() {
        Ok(place) => remove_empty(&place.directory.join(group_name(node))),
        Err(_) => Ok(()),
    }
}

/// The machine's memory, in bytes.
pub fn machine_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    total.map_or(0, |kib: u64| kib * 1024)
}

fn found() -> Result<Place, String> {
    let read = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).map_err(|error| error.to_string());
    let place = place(&read("cgroup")?, &read("mountinfo")?).ok_or("this machine has no control groups for memory")?;
    match place.directory.is_dir() {
        true => Ok(place),
        false => Err(format!("the control group {} is not seen here", place.directory.display())),
    }
}

fn group_name(node: &str) -> String {
    format!("corro-{node}")
}

fn gib(bytes: u64) -> f64 {
    (bytes as f64 / f64::from(1 << 30) * 10.0).round() / 10.0
}

/// Waits for the last of its processes, which is on its way out.
fn remove_empty(group: &Path) -> io::Result<()> {
    for _ in 0..REMOVED_WITHIN {
        match fs::remove_dir(group) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => std::thread::sleep(PAUSE),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => return other,
        }
    }
    Err(ErrorKind::ResourceBusy.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(memory_bytes: u64) -> Limits {
        Limits { vm_size: "STANDARD_D1".into(), memory_bytes, cores: 1 }
    }

    #[test]
    fn a_limit_is_set_only_where_the_machine_has_more() {
        let base = tempfile::tempdir().expect("a directory in place of a group");
        let file = |name: &str| fs::read_to_string(base.path().join(name)).unwrap_or_default();
        for (version, name, none, events) in [
            (Version::One, "memory.limit_in_bytes", "-1", "memory.oom_control"),
            (Version::Two, "memory.max", "max", "memory.events"),
        ] {
            let group = Group { path: base.path().to_owned(), version, limit: Mutex::new(Some(1)) };
            let (limit, told) = group.limit(Some(&limits(8 << 30)), 8 << 30);
            assert!(limit.is_none() && told.contains("no more than STANDARD_D1"), "{told}");
            assert_eq!(file(name), none);
            fs::write(base.path().join(events), "low 0\noom_kill 3\n").expect("written");
            let (limit, told) = group.limit(Some(&limits(7 << 29)), 8 << 30);
            assert_eq!(
                (told.as_str(), file(name)),
                ("at most 3.5 GiB, the memory of STANDARD_D1", (7u64 << 29).to_string())
            );
            let limit = limit.expect("one is set");
            assert_eq!(group.exceeded(&limit), None);
            fs::write(base.path().join(events), "low 0\noom_kill 4\n").expect("written");
            let told = group.exceeded(&limit).expect("somebody was killed");
            assert!(told.contains("3.5 GiB") && told.contains("larger vmSize"), "{told}");
        }
    }
}
