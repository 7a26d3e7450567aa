//! Reader of `/proc` (see proc(5)): the process table, processes and the memory of the machine. Never signals anyone, never
//! fails: a process that ended while it was read is absent, and what cannot be read is `None`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// The executable of this process, also after its file was replaced.
pub const SELF_EXE: &str = "/proc/self/exe";

/// The id of every process in the table.
pub fn pids() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// All processes below `root`, parents before their children.
pub fn descendants(root: i32) -> Vec<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for pid in pids() {
        if let Some(stat) = Stat::read(pid) {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        // Removing the entry also ends the walk if ids were recycled into a circle while the table was read.
        for child in children.remove(&parent).unwrap_or_default() {
            found.push(child);
            parents.push(child);
        }
    }
    found
}

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// `R`, `S`, `D`, `Z`, …
    pub state: char,
    pub parent: i32,
    /// Processor time in user and system mode, in clock ticks.
    pub cpu_ticks: u64,
    pub threads: u32,
    /// Start in clock ticks since boot.
    pub start_ticks: u64,
    pub resident_pages: u64,
}

impl Stat {
    pub fn read(pid: i32) -> Option<Stat> {
        // A program's name is bytes, cut at fifteen: it need not be text.
        Stat::parse(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
    }

    /// The second field is the program's name in brackets and may contain anything, brackets and blanks too, so fields are
    /// counted from the last bracket.
    pub fn parse(stat: &str) -> Option<Stat> {
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // proc(5) counts from 1, and the state is its third field.
        let number = |nth: usize| fields.get(nth - 3)?.parse::<u64>().ok();
        Some(Stat {
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            cpu_ticks: number(14)? + number(15)?,
            threads: number(20)? as u32,
            start_ticks: number(22)?,
            resident_pages: number(24)?,
        })
    }
}

/// A field of `/proc/PID/status` or `/proc/meminfo` that the kernel gives in kB, in bytes: `field_bytes(text, "VmRSS")`.
pub fn field_bytes(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Memory of the machine in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    pub total: u64,
    /// Free, or given back by the kernel at once when it is needed.
    pub available: u64,
}

impl Memory {
    pub fn read() -> Option<Memory> {
        Memory::parse(&fs::read_to_string("/proc/meminfo").ok()?)
    }

    pub fn parse(meminfo: &str) -> Option<Memory> {
        Some(Memory { total: field_bytes(meminfo, "MemTotal")?, available: field_bytes(meminfo, "MemAvailable")? })
    }
}

/// The value of `variable` in the environment with which the process was started, if this user may read it.
pub fn environment_variable(pid: i32, variable: &str) -> Option<String> {
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    value_in(&environ, variable)
}

/// The environment with which the process was started, as far as it is text.
pub fn environment(pid: i32) -> Option<BTreeMap<String, String>> {
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let entries = environ.split(|byte| *byte == 0).filter_map(|entry| std::str::from_utf8(entry).ok()?.split_once('='));
    Some(entries.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// The user id of a process.
pub fn owner(pid: i32) -> Option<u32> {
    fs::metadata(format!("/proc/{pid}")).ok().map(|metadata| metadata.uid())
}

/// An id that the kernel draws at every boot.
pub fn boot_id() -> Option<String> {
    Some(fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned())
}

fn value_in(environ: &[u8], variable: &str) -> Option<String> {
    environ.split(|byte| *byte == 0).find_map(|entry| {
        let value = entry.strip_prefix(variable.as_bytes())?.strip_prefix(b"=")?;
        Some(String::from_utf8_lossy(value).into_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_behind_odd_program_names() {
        let rest = "S 7 12 12 0 -1 4194304 100 0 0 0 30 12 0 0 20 0 3 0 555 1000 42";
        for name in ["sh", "a) Z 99 (b", "\u{fffd}"] {
            let stat = Stat::parse(&format!("12 ({name}) {rest}")).expect("a line");
            let expected =
                Stat { state: 'S', parent: 7, cpu_ticks: 42, threads: 3, start_ticks: 555, resident_pages: 42 };
            assert_eq!(stat, expected, "{name:?}");
        }
        assert_eq!(Stat::parse("12 (sh) S 7"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn fields_match_whole_names_only() {
        let environ = b"XTAG=1\0TAG=job/0\0TAGS=2\0";
        assert_eq!(value_in(environ, "TAG").as_deref(), Some("job/0"));
        assert_eq!(value_in(environ, "TA"), None);
        let meminfo = "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\n";
        assert_eq!(Memory::parse(meminfo), Some(Memory { total: 1000 * 1024, available: 400 * 1024 }));
        assert_eq!(field_bytes(meminfo, "Mem"), None);
    }

    #[test]
    fn this_process_is_in_the_table() {
        let pid = i32::try_from(std::process::id()).expect("process ids fit in i32");
        assert!(pids().contains(&pid));
        let stat = Stat::read(pid).expect("it is there");
        assert!(stat.resident_pages > 0 && descendants(stat.parent).contains(&pid));
        assert!(environment(pid).is_some() && owner(pid) == Some(rustix::process::geteuid().as_raw()));
        assert!(Memory::read().is_some_and(|memory| memory.total >= memory.available));
    }
}
