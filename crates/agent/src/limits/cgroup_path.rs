//! Where this process may make control groups, from what the kernel says about it. Pure. Only `limits` enters here.

use std::path::{Path, PathBuf};

use super::controller::{Control, Version};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub directory: PathBuf,
    pub version: Version,
}

/// `cgroup` says in which groups a process is, `mountinfo` where groups are seen. Version one has a tree for each control, in
/// which groups are made below one's own; a control without such a tree is version two's. There a group that holds
/// processes cannot give limits to groups in it, so they are made beside one's own, unless that is the root.
pub fn place(cgroup: &str, mountinfo: &str, control: Control) -> Option<Place> {
    let group = |matches: &dyn Fn(&str) -> bool| {
        let line = |line: &str| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            matches(controllers).then(|| PathBuf::from(path))
        };
        cgroup.lines().find_map(line)
    };
    let has_it = |list: &str| list.split(',').any(|controller| controller == control.name());
    if let Some(own) = group(&has_it) {
        let directory = seen(mountinfo, &own, "cgroup", has_it)?;
        return Some(Place { directory, version: Version::One });
    }
    let own = group(&str::is_empty)?;
    let beside = own.parent().unwrap_or(&own).to_owned();
    let directory = seen(mountinfo, &beside, "cgroup2", |_| true)?;
    Some(Place { directory, version: Version::Two })
}

/// The path of a group in a tree of that kind. A mount may show only a part of the tree.
fn seen(mountinfo: &str, group: &Path, kind: &str, options: impl Fn(&str) -> bool) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let (mut mount, mut system) = (mount.split(' ').skip(3), system.split(' '));
        let (root, at) = (mount.next()?, mount.next()?);
        (system.next()? == kind && options(system.nth(1)?)).then_some(())?;
        let within = group.strip_prefix(root).ok()?;
        Some(if within.as_os_str().is_empty() { PathBuf::from(at) } else { Path::new(at).join(within) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(control: Control, cgroup: &str, mountinfo: &str, expected: Option<(&str, Version)>) {
        let expected = expected.map(|(directory, version)| Place { directory: directory.into(), version });
        assert_eq!(place(cgroup, mountinfo, control), expected, "{cgroup}");
    }

    #[test]
    fn groups_are_made_where_the_kernel_lets_them() {
        use Control::{Memory, Time};
        let hybrid = "30 29 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
            31 29 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
            32 29 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let own = "4:memory:/a/b\n3:cpuset:/\n1:cpu,cpuacct:/c\n0::/\n";
        check(Memory, own, hybrid, Some(("/sys/fs/cgroup/memory/a/b", Version::One)));
        check(Time, own, hybrid, Some(("/sys/fs/cgroup/cpu/c", Version::One)));
        // Some machines have one control in each version.
        check(Time, "4:memory:/a/b\n0::/x/y\n", hybrid, Some(("/sys/fs/cgroup/unified/x", Version::Two)));
        check(
            Memory,
            "4:cpu,memory:/\n",
            &hybrid.replace("rw,memory", "rw,cpu,memory"),
            Some(("/sys/fs/cgroup/memory", Version::One)),
        );
        let unified = "29 23 0:25 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        let own = "0::/user.slice/user-1000.slice/session-2.scope\n";
        for control in [Memory, Time] {
            check(control, own, unified, Some(("/sys/fs/cgroup/user.slice/user-1000.slice", Version::Two)));
            check(control, "0::/\n", unified, Some(("/sys/fs/cgroup", Version::Two)));
            // A container that sees its own part only.
            let part = "29 23 0:25 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
            check(control, "0::/docker/x/y/z\n", part, Some(("/sys/fs/cgroup/y", Version::Two)));
            check(control, "0::/elsewhere/y\n", part, None);
            check(control, "", "", None);
        }
        check(Memory, "4:memory:/\n", unified, None);
    }
}
