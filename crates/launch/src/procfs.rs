//! Reads the process table (`/proc`). Never signals a process, never fails: a process that ends meanwhile is skipped.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// All pids in the process table.
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
        // Removing the entry also ends the walk if reused pids form a cycle.
        for child in children.remove(&parent).unwrap_or_default() {
            found.push(child);
            parents.push(child);
        }
    }
    found
}

/// The value of `variable` in the initial environment of the process; `None` if it cannot be read.
pub fn variable_of(pid: i32, variable: &str) -> Option<String> {
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    value_in(&environ, variable)
}

/// All variables that are UTF-8.
pub fn variables_of(pid: i32) -> Option<BTreeMap<String, String>> {
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let entries = environ.split(|byte| *byte == 0).filter_map(|entry| std::str::from_utf8(entry).ok()?.split_once('='));
    Some(entries.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

pub fn owner_of(pid: i32) -> Option<u32> {
    fs::metadata(format!("/proc/{pid}")).ok().map(|m| m.uid())
}

fn parent_of(pid: i32) -> Option<i32> {
    // The program name is truncated to 15 bytes and need not be UTF-8.
    parent_in(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
}

/// The parent pid in a `stat` line. The second field is the program's name in parentheses and may contain parentheses
/// and blanks, so fields are counted from the last parenthesis: state, then parent.
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
    fn parents_are_found_after_odd_names() {
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
