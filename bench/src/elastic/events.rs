//! Events that ranks append to a file, one line each: what, generation, rank, size, process id, and nanoseconds (since the epoch, or of a
//! step). Our ranks and the peer's (`peers/elastic_torch.py`) write the same lines.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub kind: Kind,
    pub generation: u64,
    pub rank: usize,
    pub size: usize,
    pub pid: u32,
    pub ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Everything is imported; what follows is joining.
    Ready,
    /// The first step of a generation is done.
    Step,
    /// Time of a step, averaged over many.
    Pace,
}

const KINDS: [(&str, Kind); 3] = [("ready", Kind::Ready), ("step", Kind::Step), ("pace", Kind::Pace)];

/// The file.
#[derive(Clone, Debug)]
pub struct EventLog(pub PathBuf);

impl EventLog {
    pub fn append(&self, event: &Event) -> Result<()> {
        let Event { kind, generation, rank, size, pid, ns } = event;
        let name = KINDS.iter().find(|(_, known)| known == kind).map_or("", |(name, _)| *name);
        let mut file = OpenOptions::new().append(true).create(true).open(&self.0)?;
        file.write_all(format!("{name} {generation} {rank} {size} {pid} {ns}\n").as_bytes())?;
        Ok(())
    }

    /// All complete lines.
    pub fn read(&self) -> Result<Vec<Event>> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        lines.map(|line| parse(line).with_context(|| format!("an unknown event: {line}"))).collect()
    }

    /// Ranks end when this file exists.
    pub fn stop_file(&self) -> PathBuf {
        Path::new(&self.0).with_extension("stop")
    }
}

fn parse(line: &str) -> Option<Event> {
    let words: Vec<&str> = line.split(' ').collect();
    let [kind, generation, rank, size, pid, ns] = words[..] else { return None };
    let kind = KINDS.iter().find(|(name, _)| *name == kind)?.1;
    Some(Event {
        kind,
        generation: generation.parse().ok()?,
        rank: rank.parse().ok()?,
        size: size.parse().ok()?,
        pid: pid.parse().ok()?,
        ns: ns.parse().ok()?,
    })
}

/// Nanoseconds since the epoch, which processes can compare.
pub fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_as_they_were_written() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let log = EventLog(directory.path().join("events"));
        assert_eq!(log.read().expect("empty"), []);
        let event = Event { kind: Kind::Step, generation: 3, rank: 1, size: 4, pid: 77, ns: 5 };
        log.append(&event).expect("written");
        assert_eq!(log.read().expect("readable"), [event]);
    }
}
