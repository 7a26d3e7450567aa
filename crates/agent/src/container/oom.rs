//! Whether the kernel killed processes of a container for want of memory: asked of the container's control group, as not
//! every engine tells, and of the engine. Says yes only on evidence. Blocks on nothing but `/proc` and `/sys`.

use std::fs;
use std::path::{Path, PathBuf};

/// The file in which the kernel counts, while the container lives; `None` where it cannot be told.
pub fn counter(pid: i64) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    counter_in(&groups, Path::new("/sys/fs/cgroup")).filter(|path| path.is_file())
}

/// How many were killed so far.
pub fn killed(counter: &Path) -> u64 {
    fs::read_to_string(counter).map_or(0, |text| count(&text))
}

/// One line a hierarchy: `4:memory:/docker/0123`, or `0::/docker/0123` where there is only one.
fn counter_in(groups: &str, root: &Path) -> Option<PathBuf> {
    let mut lines = groups.lines().map(|line| line.splitn(3, ':').collect::<Vec<_>>());
    let fields = |line: &Vec<&str>| match line[..] {
        [_, controllers, path] => Some((controllers.to_owned(), path.trim_start_matches('/').to_owned())),
        _ => None,
    };
    let all: Vec<_> = lines.by_ref().filter_map(|line| fields(&line)).collect();
    let own = all.iter().find(|(controllers, _)| controllers.split(',').any(|name| name == "memory"));
    if let Some((_, path)) = own {
        return Some(root.join("memory").join(path).join("memory.oom_control"));
    }
    let (_, path) = all.iter().find(|(controllers, _)| controllers.is_empty())?;
    Some(root.join(path).join("memory.events"))
}

/// Both kinds of file have a line `oom_kill N`.
fn count(text: &str) -> u64 {
    let number = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
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
        assert_eq!(count("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), 3);
        assert_eq!(count("low 0\noom 1\noom_kill 0\noom_group_kill 0\n"), 0);
    }
}
