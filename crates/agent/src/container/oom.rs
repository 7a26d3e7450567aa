//! Detects OOM kills and refused forks in a container from its cgroup, since not every engine reports them. Reads
//! `/proc` and `/sys` only. Reports an event only on evidence.

use std::fs;
use std::path::{Path, PathBuf};

/// File that counts OOM kills while the container runs; `None` if it cannot be found.
pub fn counter(pid: i64) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    counter_in(&groups, Path::new("/sys/fs/cgroup")).filter(|path| path.is_file())
}

/// File that counts refused forks.
pub fn refused_starts_file(pid: i64) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    cgroup_of(&groups, Path::new("/sys/fs/cgroup"), "pids")
        .map(|group| group.join("pids.events"))
        .filter(|path| path.is_file())
}

/// Number of refused forks so far.
pub fn refused_starts(counter: &Path) -> u64 {
    fs::read_to_string(counter).map_or(0, |text| count(&text, "max "))
}

/// Number of OOM kills so far.
pub fn killed(counter: &Path) -> u64 {
    fs::read_to_string(counter).map_or(0, |text| count(&text, "oom_kill "))
}

fn counter_in(groups: &str, root: &Path) -> Option<PathBuf> {
    let group = cgroup_of(groups, root, "memory")?;
    let is_version_one = group.starts_with(root.join("memory"));
    Some(group.join(if is_version_one { "memory.oom_control" } else { "memory.events" }))
}

/// Cgroup of a process in the hierarchy of `controller`. Lines are `4:memory:/docker/0123` with cgroup v1 and
/// `0::/docker/0123` with v2.
fn cgroup_of(groups: &str, root: &Path, controller: &str) -> Option<PathBuf> {
    let fields = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1).map(str::to_owned);
        Some((fields.next()?, fields.next()?.trim_start_matches('/').to_owned()))
    };
    let all: Vec<_> = groups.lines().filter_map(fields).collect();
    let own = all.iter().find(|(controllers, _)| controllers.split(',').any(|name| name == controller));
    if let Some((_, path)) = own {
        return Some(root.join(controller).join(path));
    }
    let (_, path) = all.iter().find(|(controllers, _)| controllers.is_empty())?;
    Some(root.join(path))
}

/// A counter in a file of `NAME NUMBER` lines, the format of both versions.
fn count(text: &str, name: &str) -> u64 {
    let number = text.lines().find_map(|line| line.strip_prefix(name));
    number.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_found_in_both_layouts() {
        let root = Path::new("/g");
        let old = "5:cpu,cpuacct:/docker/a\n4:memory:/docker/a\n0::/\n";
        assert_eq!(counter_in(old, root), Some("/g/memory/docker/a/memory.oom_control".into()));
        assert_eq!(
            counter_in("0::/system.slice/a.scope\n", root),
            Some("/g/system.slice/a.scope/memory.events".into())
        );
        assert_eq!(counter_in("", root), None);
        assert_eq!(cgroup_of("8:pids:/docker/a\n4:memory:/\n", root, "pids"), Some("/g/pids/docker/a".into()));
        assert_eq!(count("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", "oom_kill "), 3);
        assert_eq!(count("low 0\noom 1\noom_kill 0\noom_group_kill 0\n", "oom_kill "), 0);
    }
}
