//! Finds the directory in which this process may create cgroups, from `/proc/self/cgroup` and `/proc/self/mountinfo`.
//! Pure.

use std::path::{Path, PathBuf};

use super::controller::{CgroupVersion, Controller};

/// Directory in which cgroups are created, and the version of its hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupParent {
    pub directory: PathBuf,
    pub version: CgroupVersion,
}

/// Parent directory for new cgroups of a controller. Cgroup v1 has a hierarchy for each controller, in which cgroups
/// are created below the process's own. A controller without such a hierarchy belongs to v2. There a cgroup with
/// processes cannot limit its children, so they are created beside the process's own cgroup, unless that is the root.
pub fn find_parent(cgroup: &str, mountinfo: &str, controller: Controller) -> Option<CgroupParent> {
    let find = |matches: &dyn Fn(&str) -> bool| {
        let line = |line: &str| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            matches(controllers).then(|| PathBuf::from(path))
        };
        cgroup.lines().find_map(line)
    };
    let has_it = |list: &str| list.split(',').any(|name| name == controller.name());
    if let Some(own) = find(&has_it) {
        let directory = mounted_path(mountinfo, &own, "cgroup", has_it)?;
        return Some(CgroupParent { directory, version: CgroupVersion::V1 });
    }
    let own = find(&str::is_empty)?;
    let beside = own.parent().unwrap_or(&own).to_owned();
    let directory = mounted_path(mountinfo, &beside, "cgroup2", |_| true)?;
    Some(CgroupParent { directory, version: CgroupVersion::V2 })
}

/// Path of a cgroup below the mount of its hierarchy. A mount may show only a part of the hierarchy.
fn mounted_path(mountinfo: &str, cgroup: &Path, kind: &str, options: impl Fn(&str) -> bool) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let (mut mount, mut system) = (mount.split(' ').skip(3), system.split(' '));
        let (root, at) = (mount.next()?, mount.next()?);
        (system.next()? == kind && options(system.nth(1)?)).then_some(())?;
        let within = cgroup.strip_prefix(root).ok()?;
        Some(if within.as_os_str().is_empty() { PathBuf::from(at) } else { Path::new(at).join(within) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(controller: Controller, cgroup: &str, mountinfo: &str, expected: Option<(&str, CgroupVersion)>) {
        let expected = expected.map(|(directory, version)| CgroupParent { directory: directory.into(), version });
        assert_eq!(find_parent(cgroup, mountinfo, controller), expected, "{cgroup}");
    }

    #[test]
    fn cgroup_parents_are_found_in_all_hierarchies() {
        use Controller::{Cpu, Memory};
        let hybrid = "30 29 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
            31 29 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
            32 29 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let own = "4:memory:/a/b\n3:cpuset:/\n1:cpu,cpuacct:/c\n0::/\n";
        check(Memory, own, hybrid, Some(("/sys/fs/cgroup/memory/a/b", CgroupVersion::V1)));
        check(Cpu, own, hybrid, Some(("/sys/fs/cgroup/cpu/c", CgroupVersion::V1)));
        // Some machines have one controller in each version.
        check(Cpu, "4:memory:/a/b\n0::/x/y\n", hybrid, Some(("/sys/fs/cgroup/unified/x", CgroupVersion::V2)));
        check(
            Memory,
            "4:cpu,memory:/\n",
            &hybrid.replace("rw,memory", "rw,cpu,memory"),
            Some(("/sys/fs/cgroup/memory", CgroupVersion::V1)),
        );
        let unified = "29 23 0:25 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        let own = "0::/user.slice/user-1000.slice/session-2.scope\n";
        for controller in [Memory, Cpu] {
            check(controller, own, unified, Some(("/sys/fs/cgroup/user.slice/user-1000.slice", CgroupVersion::V2)));
            check(controller, "0::/\n", unified, Some(("/sys/fs/cgroup", CgroupVersion::V2)));
            // A container that sees only its own part of the hierarchy.
            let part = "29 23 0:25 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
            check(controller, "0::/docker/x/y/z\n", part, Some(("/sys/fs/cgroup/y", CgroupVersion::V2)));
            check(controller, "0::/elsewhere/y\n", part, None);
            check(controller, "", "", None);
        }
        check(Memory, "4:memory:/\n", unified, None);
    }
}
