//! What the kernel's two versions of control groups call the same thing: which file takes a limit, in which words. Pure.

/// What a group can hold its processes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// In bytes.
    Memory,
    /// Of processors; in processors.
    Time,
    /// How many processes and threads.
    Processes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    One,
    Two,
}

/// In microseconds: a group that has used its share of one waits for the next. The kernel's own value.
const PERIOD: u64 = 100_000;

impl Control {
    /// The kernel's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Control::Memory => "memory",
            Control::Time => "cpu",
            Control::Processes => "pids",
        }
    }

    /// The file that takes a limit, and what is written there.
    pub fn setting(self, version: Version, limit: Option<u64>) -> (&'static str, String) {
        let text = |none: &str, limit: Option<u64>| limit.map_or_else(|| none.to_owned(), |limit| limit.to_string());
        let time = limit.map(|processors| processors.saturating_mul(PERIOD));
        match (self, version) {
            (Control::Memory, Version::One) => ("memory.limit_in_bytes", text("-1", limit)),
            (Control::Memory, Version::Two) => ("memory.max", text("max", limit)),
            (Control::Time, Version::One) => ("cpu.cfs_quota_us", text("-1", time)),
            (Control::Time, Version::Two) => ("cpu.max", format!("{} {PERIOD}", text("max", time))),
            (Control::Processes, _) => ("pids.max", text("max", limit)),
        }
    }
}

/// The file in which the kernel counts processes that it killed for want of memory.
pub fn kills_file(version: Version) -> &'static str {
    match version {
        Version::One => "memory.oom_control",
        Version::Two => "memory.events",
    }
}

pub fn kills(text: &str) -> u64 {
    counter(text, "oom_kill ")
}

/// The file in which the kernel counts processes and threads that were not started because of the limit; the same in both versions.
pub const REFUSED_STARTS_FILE: &str = "pids.events";

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
    fn both_versions_are_told_in_their_words() {
        let check = |control: Control, version, limit, file: &str, text: &str| {
            assert_eq!(control.setting(version, limit), (file, text.to_owned()));
        };
        check(Control::Memory, Version::One, Some(7 << 29), "memory.limit_in_bytes", "3758096384");
        check(Control::Memory, Version::One, None, "memory.limit_in_bytes", "-1");
        check(Control::Memory, Version::Two, Some(4096), "memory.max", "4096");
        check(Control::Memory, Version::Two, None, "memory.max", "max");
        check(Control::Time, Version::One, Some(2), "cpu.cfs_quota_us", "200000");
        check(Control::Time, Version::One, None, "cpu.cfs_quota_us", "-1");
        check(Control::Time, Version::Two, Some(6), "cpu.max", "600000 100000");
        check(Control::Time, Version::Two, None, "cpu.max", "max 100000");
        assert_eq!(kills("low 0\noom 4\noom_kill 3\noom_group_kill 0\n"), 3);
        assert_eq!(kills(""), 0);
        for version in [Version::One, Version::Two] {
            check(Control::Processes, version, Some(5120), "pids.max", "5120");
            check(Control::Processes, version, None, "pids.max", "max");
        }
        assert_eq!((refused_starts("max 7\n"), refused_starts("")), (7, 0));
    }
}
