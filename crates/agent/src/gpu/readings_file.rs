//! GPUs of a JSON file instead of the driver, for tests on machines without GPUs: the file has their readings and the
//! lines of a kernel log, and is read anew each time. `docs/src/reference/variables.md` describes it.

use std::fs;
use std::path::PathBuf;

use corro_model::gpu::GpuReading;
use serde::Deserialize;

use super::kernel_log::{KernelLog, LogPosition};
use super::{GpuSource, MachineGpu, ReadError};

/// Names the file.
pub const READINGS_VARIABLE: &str = "CORRO_TEST_GPUS";

pub struct ReadingsFile {
    path: PathBuf,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Content {
    gpus: Vec<GpuReading>,
    kernel_log: Vec<String>,
}

impl ReadingsFile {
    pub fn from_environment() -> Option<ReadingsFile> {
        std::env::var_os(READINGS_VARIABLE).map(|path| ReadingsFile { path: path.into() })
    }

    fn content(&self) -> Result<Content, String> {
        let text = fs::read_to_string(&self.path).map_err(|error| format!("{}: {error}", self.path.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", self.path.display()))
    }

    fn log(&self) -> Vec<String> {
        self.content().map(|content| content.kernel_log).unwrap_or_default()
    }
}

impl GpuSource for ReadingsFile {
    fn read(&mut self) -> Result<Vec<MachineGpu>, ReadError> {
        let gpus = self.content().map_err(ReadError::Failed)?.gpus.into_iter();
        Ok(gpus.map(|reading| MachineGpu { reading, ..MachineGpu::default() }).collect())
    }
}

impl KernelLog for ReadingsFile {
    fn position(&mut self) -> LogPosition {
        LogPosition::Line(self.log().len())
    }

    fn since(&mut self, position: &mut LogPosition) -> Vec<String> {
        let LogPosition::Line(first) = position else { return Vec::new() };
        let mut lines = self.log();
        let new = lines.split_off((*first).min(lines.len()));
        *first = lines.len() + new.len();
        new
    }
}

/// Numbers of the GPUs in the file, and its path; `None` without the variable.
pub fn fake_numbers() -> Option<(Vec<u16>, PathBuf)> {
    let file = ReadingsFile::from_environment()?;
    let gpus = file.content().unwrap_or_default().gpus;
    let numbers = gpus.iter().filter_map(|reading| u16::try_from(reading.gpu).ok()).collect();
    Some((numbers, file.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_read_anew_and_its_log_from_a_position() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("gpus.json");
        let mut source = ReadingsFile { path: path.clone() };
        assert!(matches!(source.read(), Err(ReadError::Failed(why)) if why.contains("gpus.json")));
        let write = |text: &str| fs::write(&path, text).expect("written");
        write(r#"{"gpus": [{"gpu": 3, "name": "A"}], "kernelLog": ["a"]}"#);
        let gpus = source.read().expect("readings");
        assert_eq!((gpus.len(), gpus[0].reading.gpu), (1, 3));
        let mut position = source.position();
        assert_eq!(source.since(&mut position), Vec::<String>::new());
        write(r#"{"kernelLog": ["a", "b", "c"]}"#);
        assert_eq!(source.since(&mut position), ["b", "c"]);
        assert_eq!(source.since(&mut position), Vec::<String>::new());
        write(r#"{"gpu": []}"#);
        assert!(matches!(source.read(), Err(ReadError::Failed(why)) if why.contains("unknown field")));
    }
}
