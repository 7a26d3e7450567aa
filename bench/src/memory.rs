//! Memory of a process as the kernel accounts it, in MB (10^6 bytes).

use std::fs;

use anyhow::{Context, Result};

/// Resident memory of one process.
#[derive(Clone, Copy, Debug)]
pub struct Resident {
    /// Every resident page.
    pub rss: f64,
    /// A shared page counts proportionally.
    pub pss: f64,
}

pub fn resident(pid: u32) -> Result<Resident> {
    let rollup = read(pid, "smaps_rollup")?;
    Ok(Resident { rss: field(&rollup, "Rss:")?, pss: field(&rollup, "Pss:")? })
}

/// Peak resident memory of the process.
pub fn peak(pid: u32) -> Result<f64> {
    field(&read(pid, "status")?, "VmHWM:")
}

fn read(pid: u32, file: &str) -> Result<String> {
    fs::read_to_string(format!("/proc/{pid}/{file}")).with_context(|| format!("cannot read {file} of process {pid}"))
}

fn field(text: &str, name: &str) -> Result<f64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse::<f64>().ok());
    value.map(|kib| kib * 1024.0 / 1e6).with_context(|| format!("no {name} in the kernel's statistics"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kilobytes_become_megabytes() {
        let text = "VmPeak:\t    9 kB\nVmHWM:\t  1000000 kB\n";
        assert_eq!(field(text, "VmHWM:").expect("the field exists"), 1024.0);
        assert!(field(text, "VmHWMs:").is_err());
    }

    #[test]
    fn this_process_holds_something() {
        let now = resident(std::process::id()).expect("readable");
        assert!(now.pss > 0.0 && now.pss <= now.rss && now.rss <= peak(std::process::id()).expect("readable"));
    }
}
