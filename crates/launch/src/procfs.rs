//! Looks at the process table. `guard` and `sweep` enter here. Never signals anyone, never fails: a process that went
//! away while being looked at is simply not there.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Every process id now in the table.
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
        if let Some(parent) = parent_of(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        // Taking the entry out also ends the walk if ids were recycled into a circle while we read.
        for child in children.remove(&parent).unwrap_or_default() {
            found.push(child);
            parents.push(child);
        }
    }
    found
}

/// The value of `variable` in the environment the process was started with, if it is ours to read.
pub fn variable_of(pid: i32, variable: &str) -> Option<String> {
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    value_in(&environ, variable)
}

/// All of them, as far as they are text.
pub fn variables_of(pid: i32) -> Option<BTreeMap<String, String>> {
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let entries = environ.split(|byte| *byte == 0).filter_map(|entry| std::str::from_utf8(entry).ok()?.split_once('='));
    Some(entries.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

pub fn owner_of(pid: i32) -> Option<u32> {
    fs::metadata(format!("/proc/{pid}")).ok().map(|m| m.uid())
}

fn parent_of(pid: i32) -> Option<i32> {
    // A program's name is bytes, cut at fifteen: it need not be text.
    parent_in(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
}

/// The parent id in a `stat` line. The second field is the program's name in brackets and may hold anything, brackets
/// and blanks too, so we count from the last bracket: state, then parent.
fn parent_in(stat: &str) -> Option<i32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
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
    fn parents_are_found_behind_odd_names() {
        for (stat, parent) in [
            ("12 (sh) S 7 12 12 0", Some(7)),
            ("12 (a) Z 99 (b) S 7 12 12 0", Some(7)),
            ("12 (sh) S", None),
            ("", None),
        ] {
            assert_eq!(parent_in(stat), parent, "{stat:?}");
        }
    }

    #[test]
    fn variables_match_whole_names_only() {
        let environ = b"XTAG=1\0TAG=job/0\0TAGS=2\0";
        assert_eq!(value_in(environ, "TAG").as_deref(), Some("job/0"));
        assert_eq!(value_in(environ, "TA"), None);
    }

    #[test]
    fn this_process_is_in_the_table() {
        let pid = i32::try_from(std::process::id()).expect("process ids fit in i32");
        assert!(pids().contains(&pid));
        assert!(descendants(parent_of(pid).expect("we have a parent")).contains(&pid));
    }
}
