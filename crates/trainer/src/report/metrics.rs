//! `metrics.jsonl`: one JSON object per epoch, written by rank 0. Each epoch appears once, however often the training
//! was interrupted.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use corro_base::atomic_file;
use serde::{Deserialize, Serialize};

pub const FILE: &str = "metrics.jsonl";

/// Metrics of an epoch over all ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochMetrics {
    /// From 1.
    pub epoch: usize,
    pub epochs: usize,
    /// Means over the training images of all ranks, each computed when the image was used.
    pub loss: f64,
    pub acc: f64,
    /// Over the test images, at the end of the epoch.
    pub val_loss: f64,
    pub val_acc: f64,
    /// Duration of the epoch, validation included.
    pub seconds: f64,
    /// Training throughput of all ranks together.
    pub images_per_second: f64,
    /// Learning rate before decay.
    pub rate: f64,
    pub ranks: usize,
    /// End of the epoch in seconds since 1970.
    pub time: u64,
}

impl EpochMetrics {
    pub fn now() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}

/// The metrics file of one directory, open for appending.
#[derive(Debug)]
pub struct MetricsFile {
    file: File,
}

impl MetricsFile {
    /// Opens the file and drops epochs after `after`: their checkpoint was lost, and they will be trained again.
    pub fn open(dir: &Path, after: usize) -> io::Result<MetricsFile> {
        let path = dir.join(FILE);
        let kept: String =
            parse_epochs(&read(&path)?).iter().filter(|epoch| epoch.epoch <= after).map(encode_line).collect();
        // Atomic, so that an interruption loses nothing.
        atomic_file::replace(&path, kept.as_bytes(), 0o644)?;
        Ok(MetricsFile { file: OpenOptions::new().append(true).open(path)? })
    }

    pub fn append(&mut self, epoch: &EpochMetrics) -> io::Result<()> {
        self.file.write_all(encode_line(epoch).as_bytes())
    }
}

/// Parses a metrics file. Incomplete lines are skipped.
pub fn parse_epochs(text: &str) -> Vec<EpochMetrics> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn read(path: &Path) -> io::Result<String> {
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

fn encode_line(epoch: &EpochMetrics) -> String {
    // NaN, as from a diverged training, becomes null.
    serde_json::to_string(epoch).expect("plain numbers") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(epoch: usize) -> EpochMetrics {
        let (loss, acc, val_loss, val_acc) = (1.5, 0.25, 1.25, 0.5);
        let (seconds, images_per_second, rate) = (2.0, 1000.0, 0.0004);
        EpochMetrics {
            epoch,
            epochs: 3,
            loss,
            acc,
            val_loss,
            val_acc,
            seconds,
            images_per_second,
            rate,
            ranks: 4,
            time: 9,
        }
    }

    #[test]
    fn every_epoch_appears_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(FILE);
        let mut metrics = MetricsFile::open(dir.path(), 0).expect("it can be made");
        metrics.append(&epoch(1)).expect("it can be written");
        metrics.append(&epoch(2)).expect("it can be written");
        metrics.file.write_all(b"{\"epoch\": 3, \"lo").expect("it can be written");
        assert_eq!(parse_epochs(&read(&path).expect("there")), [epoch(1), epoch(2)]);
        // The checkpoint of the second epoch was not written.
        let mut metrics = MetricsFile::open(dir.path(), 1).expect("it is there");
        metrics.append(&epoch(2)).expect("it can be written");
        let text = std::fs::read_to_string(&path).expect("there");
        assert_eq!(text, encode_line(&epoch(1)) + &encode_line(&epoch(2)));
    }

    #[test]
    fn the_json_keys_are_stable() {
        let expected = concat!(
            r#"{"epoch":1,"epochs":3,"loss":1.5,"acc":0.25,"val_loss":1.25,"val_acc":0.5,"seconds":2.0,"#,
            r#""images_per_second":1000.0,"rate":0.0004,"ranks":4,"time":9}"#,
            "\n"
        );
        assert_eq!(encode_line(&epoch(1)), expected);
    }
}
