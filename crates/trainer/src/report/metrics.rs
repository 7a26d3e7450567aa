//! `metrics.jsonl`: one JSON object for each epoch, for programs. Rank 0 writes it. An epoch stands in it once, however often the training
//! was interrupted.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

pub const FILE: &str = "metrics.jsonl";

/// How an epoch went, over all ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochMetrics {
    /// From 1.
    pub epoch: usize,
    pub epochs: usize,
    /// Means over the images of all ranks, as they were met; the network has changed meanwhile.
    pub loss: f64,
    pub acc: f64,
    /// Over the test images, at the end of the epoch.
    pub val_loss: f64,
    pub val_acc: f64,
    /// With the validation.
    pub seconds: f64,
    /// In training, by all ranks together.
    pub images_per_second: f64,
    /// Before its decay.
    pub rate: f64,
    pub ranks: usize,
    /// When it ended: seconds since 1970.
    pub time: u64,
}

impl EpochMetrics {
    pub fn now() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}

/// The file of one directory, open for more.
#[derive(Debug)]
pub struct MetricsFile {
    file: File,
}

impl MetricsFile {
    /// Keeps what is there up to that epoch: what came after it was lost with the rank that wrote it, and will come again.
    pub fn open(dir: &Path, after: usize) -> io::Result<MetricsFile> {
        let path = dir.join(FILE);
        let kept: String =
            parse_epochs(&read(&path)?).iter().filter(|epoch| epoch.epoch <= after).map(encode_line).collect();
        // Written aside first, so that nothing is lost if this is interrupted.
        let aside = path.with_extension("jsonl.new");
        std::fs::write(&aside, kept)?;
        std::fs::rename(&aside, &path)?;
        Ok(MetricsFile { file: OpenOptions::new().append(true).open(path)? })
    }

    pub fn append(&mut self, epoch: &EpochMetrics) -> io::Result<()> {
        self.file.write_all(encode_line(epoch).as_bytes())
    }
}

/// The epochs that a file tells of. A line that is not whole is no epoch.
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
    // Figures that are no numbers, as of a training that has failed, become null.
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
    fn an_epoch_stands_there_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(FILE);
        let mut metrics = MetricsFile::open(dir.path(), 0).expect("it can be made");
        metrics.append(&epoch(1)).expect("room");
        metrics.append(&epoch(2)).expect("room");
        metrics.file.write_all(b"{\"epoch\": 3, \"lo").expect("room");
        assert_eq!(parse_epochs(&read(&path).expect("there")), [epoch(1), epoch(2)]);
        // The checkpoint of the second epoch was not written.
        let mut metrics = MetricsFile::open(dir.path(), 1).expect("it is there");
        metrics.append(&epoch(2)).expect("room");
        let text = std::fs::read_to_string(&path).expect("there");
        assert_eq!(text, encode_line(&epoch(1)) + &encode_line(&epoch(2)));
    }

    #[test]
    fn programs_find_these_words() {
        let expected = concat!(
            r#"{"epoch":1,"epochs":3,"loss":1.5,"acc":0.25,"val_loss":1.25,"val_acc":0.5,"seconds":2.0,"#,
            r#""images_per_second":1000.0,"rate":0.0004,"ranks":4,"time":9}"#,
            "\n"
        );
        assert_eq!(encode_line(&epoch(1)), expected);
    }
}
