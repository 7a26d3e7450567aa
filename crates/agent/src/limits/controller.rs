//! Cgroup controllers and the files and formats of their limits in cgroup v1 and v2. Pure.

/// A controller whose limit the agent sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// Limit in bytes.
    Memory,
    /// Limit in CPUs.
    Cpu,
    /// Limit on the number of processes and threads.
    Pids,
}

/// Version of the kernel's cgroup interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    V1,
    V2,
}

/// Scheduling period of CPU quotas in microseconds; the kernel's default. A cgroup that has used its quota waits for
/// the next period.
const CFS_PERIOD_US: u64 = 100_000;

impl Controller {
    /// The kernel's name of the controller.
    pub fn name(self) -> &'static str {
        match self {
            Controller::Memory => "memory",
            Controller::Cpu => "cpu",
            Controller::Pids => "pids",
        }
    }

    /// File that takes the limit, and the text to write.
    pub fn limit_file(self, version: CgroupVersion, limit: Option<u64>) -> (&'static str, String) {
        let text = |none: &str, limit: Option<u64>| limit.map_or_else(|| none.to_owned(), |limit| limit.to_string());
        let quota = limit.map(|cpus| cpus.saturating_mul(CFS_PERIOD_US));
        match (self, version) {
            (Controller::Memory, CgroupVersion::V1) => ("memory.limit_in_bytes", text("-1", limit)),
            (Controller::Memory, CgroupVersion::V2) => ("memory.max", text("max", limit)),
            (Controller::Cpu, CgroupVersion::V1) => ("cpu.cfs_quota_us", text("-1", quota)),
            (Controller::Cpu, CgroupVersion::V2) => ("cpu.max", format!("{} {CFS_PERIOD_US}", text("max", quota))),
            (Controller::Pids, _) => ("pids.max", text("max", limit)),
        }
    }
}

/// File that counts OOM kills.
pub fn oom_kills_file(version: CgroupVersion) -> &'static str {
    match version {
        CgroupVersion::V1 => "memory.oom_control",
        CgroupVersion::V2 => "memory.events",
    }
}

/// Number of OOM kills in the text of [`oom_kills_file`].
pub fn oom_kills(text: &str) -> u64 {
    counter(text, "oom_kill ")
}

/// File that counts refused forks; the same in both versions.
pub const PIDS_EVENTS_FILE: &str = "pids.events";

/// Number of refused forks in the text of [`PIDS_EVENTS_FILE`].
pub fn refused_starts(text: &str) -> u64 {
    counter(text, "max ")
}

fn counter(text: &str, name: &str) -> u64 {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_formatted_for_both_versions() {
        let check = |controller: Controller, version, limit, file: &str, text: &str| {
            assert_eq!(controller.limit_file(version, limit), (file, text.to_owned()));
        };
        check(Controller::Memory, CgroupVersion::V1, Some(7 << 29), "memory.limit_in_bytes", "3758096384");
        check(Controller::Memory, CgroupVersion::V1, None, "memory.limit_in_bytes", "-1");
        check(Controller::Memory, CgroupVersion::V2, Some(4096), "memory.max", "4096");
        check(Controller::Memory, CgroupVersion::V2, None, "memory.max", "max");
        check(Controller::Cpu, CgroupVersion::V1, Some(2), "cpu.cfs_quota_us", "200000");
        check(Controller::Cpu, CgroupVersion::V1, None, "cpu.cfs_quota_us", "-1");
        check(Controller::Cpu, CgroupVersion::V2, Some(6), "cpu.max", "600000 100000");
        check(Controller::Cpu, CgroupVersion::V2, None, "cpu.max", "max 100000");
        assert_eq!(oom_kills("low 0\noom 4\noom_kill 3\noom_group_kill 0\n"), 3);
        assert_eq!(oom_kills(""), 0);
        for version in [CgroupVersion::V1, CgroupVersion::V2] {
            check(Controller::Pids, version, Some(5120), "pids.max", "5120");
            check(Controller::Pids, version, None, "pids.max", "max");
        }
        assert_eq!((refused_starts("max 7\n"), refused_starts("")), (7, 0));
    }
}
