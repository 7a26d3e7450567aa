//! Hyperparameters of a training, as at the top of the tutorial's script. A JSON file may set any of them.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::compute;
use crate::data::Source;

/// Hyperparameters; the defaults are the script's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// For one rank; several ranks divide them.
    pub epochs: usize,
    /// Images per rank and step.
    pub batch: usize,
    /// For one rank; multiplied by the number of ranks.
    pub learning_rate: f32,
    /// After `n` steps the rate is divided by `1 + n * decay`.
    pub decay: f32,
    /// Random shifts by up to a tenth, and flips.
    pub augmentation: bool,
    pub dropout: bool,
    /// Path of CIFAR-10; without it, synthetic images are generated.
    pub data: Option<PathBuf>,
    /// Number of synthetic images.
    pub synthetic: Synthetic,
    /// Seed of all random numbers.
    pub seed: u64,
    pub precision: Precision,
    /// Threads per rank; by default one per CPU.
    pub threads: Option<usize>,
    /// Epochs between two checkpoints.
    pub checkpoint_every: usize,
    /// Number of checkpoints to keep.
    pub keep: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Synthetic {
    pub train: usize,
    pub test: usize,
}

/// Precision of multiplications; sums are always 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    F32,
    Bf16,
}

impl From<Precision> for compute::Precision {
    fn from(precision: Precision) -> compute::Precision {
        match precision {
            Precision::F32 => compute::Precision::F32,
            Precision::Bf16 => compute::Precision::Bf16,
        }
    }
}

/// As in a settings file.
impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
        })
    }
}

/// An invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}: it must be {requirement}; the default is {default}")]
pub struct SettingsError {
    pub field: &'static str,
    pub value: String,
    pub requirement: &'static str,
    pub default: String,
}

impl Default for Synthetic {
    fn default() -> Synthetic {
        Synthetic { train: 5000, test: 1000 }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            epochs: 100,
            batch: 32,
            learning_rate: 0.0001,
            decay: 1e-6,
            augmentation: true,
            dropout: true,
            data: None,
            synthetic: Synthetic::default(),
            seed: 1,
            precision: Precision::F32,
            threads: None,
            checkpoint_every: 1,
            keep: 3,
        }
    }
}

/// Upper limits; larger values would only exhaust memory.
const MAX_BATCH: usize = 4096;
const MAX_IMAGES: usize = 1_000_000;
const MAX_EPOCHS: usize = 1_000_000;
const MAX_THREADS: usize = 1024;

impl Settings {
    /// Checks that all values are valid.
    pub fn check(&self) -> Result<(), SettingsError> {
        let default = Settings::default();
        let images = "a whole number from 1 to 1000000";
        let threads = self.threads.unwrap_or(1);
        check_range("epochs", self.epochs, MAX_EPOCHS, "a whole number from 1 to 1000000", default.epochs)?;
        check_range("batch", self.batch, MAX_BATCH, "a whole number from 1 to 4096", default.batch)?;
        let rate = self.learning_rate.is_finite() && self.learning_rate > 0.0;
        check_value("learningRate", rate, self.learning_rate, "a number above 0", default.learning_rate)?;
        let decay = self.decay.is_finite() && self.decay >= 0.0;
        check_value("decay", decay, self.decay, "0 or a number above it", default.decay)?;
        check_range("synthetic.train", self.synthetic.train, MAX_IMAGES, images, default.synthetic.train)?;
        check_range("synthetic.test", self.synthetic.test, MAX_IMAGES, images, default.synthetic.test)?;
        check_range("threads", threads, MAX_THREADS, "a whole number from 1 to 1024", "one for each processor")?;
        check_range("checkpointEvery", self.checkpoint_every, usize::MAX, "at least 1", default.checkpoint_every)?;
        check_range(
            "keep",
            self.keep,
            usize::MAX,
            "at least 1: a training resumes from the last checkpoint",
            default.keep,
        )
    }

    /// Source of the images.
    pub fn source(&self) -> Source {
        match &self.data {
            Some(path) => Source::Cifar10(path.clone()),
            None => Source::Synthetic { train: self.synthetic.train, test: self.synthetic.test, seed: self.seed },
        }
    }
}

fn check_range(
    field: &'static str,
    value: usize,
    max: usize,
    requirement: &'static str,
    default: impl ToString,
) -> Result<(), SettingsError> {
    check_value(field, (1..=max).contains(&value), value, requirement, default)
}

fn check_value(
    field: &'static str,
    is_valid: bool,
    value: impl ToString,
    requirement: &'static str,
    default: impl ToString,
) -> Result<(), SettingsError> {
    if is_valid {
        return Ok(());
    }
    Err(SettingsError { field, value: value.to_string(), requirement, default: default.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, String> {
        let settings: Settings = serde_json::from_str(text).map_err(|error| error.to_string())?;
        settings.check().map_err(|error| error.to_string())?;
        Ok(settings)
    }

    #[test]
    fn the_defaults_are_the_scripts() {
        assert_eq!(read("{}"), Ok(Settings::default()));
        let text = serde_json::to_string(&Settings::default()).expect("plain data");
        let expected = concat!(
            r#"{"epochs":100,"batch":32,"learningRate":0.0001,"decay":0.000001,"augmentation":true,"dropout":true,"data":null,"#,
            r#""synthetic":{"train":5000,"test":1000},"seed":1,"precision":"f32","threads":null,"checkpointEvery":1,"keep":3}"#
        );
        assert_eq!(text, expected);
        assert_eq!(read(expected), Ok(Settings::default()));
    }

    #[test]
    fn invalid_values_are_rejected_by_name_with_the_default() {
        for (text, expected) in [
            (r#"{"epochs": 0}"#, "epochs is 0: it must be a whole number from 1 to 1000000; the default is 100"),
            (r#"{"batch": 0}"#, "batch is 0: it must be a whole number from 1 to 4096; the default is 32"),
            (r#"{"batch": 5000}"#, "batch is 5000: it must be a whole number from 1 to 4096; the default is 32"),
            (r#"{"learningRate": -0.5}"#, "learningRate is -0.5: it must be a number above 0; the default is 0.0001"),
            (r#"{"learningRate": 1e99}"#, "learningRate is inf: it must be a number above 0; the default is 0.0001"),
            (r#"{"decay": -1}"#, "decay is -1: it must be 0 or a number above it; the default is 0.000001"),
            (
                r#"{"synthetic": {"test": 0}}"#,
                "synthetic.test is 0: it must be a whole number from 1 to 1000000; the default is 1000",
            ),
            (
                r#"{"threads": 0}"#,
                "threads is 0: it must be a whole number from 1 to 1024; the default is one for each processor",
            ),
            (
                r#"{"keep": 0}"#,
                "keep is 0: it must be at least 1: a training resumes from the last checkpoint; the default is 3",
            ),
        ] {
            assert_eq!(read(text), Err(expected.to_owned()), "{text}");
        }
        let nan = Settings { learning_rate: f32::NAN, ..Settings::default() };
        assert!(nan.check().is_err_and(|error| error.value == "NaN"));
        for text in [r#"{"epoch": 3}"#, r#"{"epochs": -3}"#, r#"{"precision": "f64"}"#, "import keras"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
