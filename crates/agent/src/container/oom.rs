//! Whether the kernel killed processes of a container for want of memory, or did not start any because there were too many: asked of the container's control group, as not
//! every engine tells, and of the engine. Says yes only on evidence. Blocks on nothing but `/proc` and `/sys`.

use std::fs;
use std::path::{Path, PathBuf};

/// The file in which the kernel counts, while the container lives; `None` where it cannot be told.
pub fn counter(pid: i64) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    counter_in(&groups, Path::new("/sys/fs/cgroup")).filter(|path| path.is_file())
}

/// The same for processes and threads that were not started.
pub fn refused_starts_file(pid: i64) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    group_of(&groups, Path::new("/sys/fs/cgroup"), "pids")
        .map(|group| group.join("pids.events"))
        .filter(|path| path.is_file())
}

/// How many were not started so far.
pub fn refused_starts(counter: &Path) -> u64 {
    fs::read_to_string(counter).map_or(0, |text| count(&text, "max "))
}

/// How many were killed so far.
pub fn killed(counter: &Path) -> u64 {
    fs::read_to_string(counter).map_or(0, |text| count(&text, "oom_kill "))
}

fn counter_in(groups: &str, root: &Path) -> Option<PathBuf> {
    let group = group_of(groups, root, "memory")?;
    let is_version_one = group.starts_with(root.join("memory"));
    Some(group.join(if is_version_one { "memory.oom_control" } else { "memory.events" }))
}

/// One line a hierarchy: `4:memory:/docker/0123`, or `0::/docker/0123` where there is only one.
fn group_of(groups: &str, root: &Path, controller: &str) -> Option<PathBuf> {
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

/// Files of both versions have lines of a name and a number.
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
        assert_eq!(group_of("8:pids:/docker/a\n4:memory:/\n", root, "pids"), Some("/g/pids/docker/a".into()));
        assert_eq!(count("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", "oom_kill "), 3);
        assert_eq!(count("low 0\noom 1\noom_kill 0\noom_group_kill 0\n", "oom_kill "), 0);
    }
}
