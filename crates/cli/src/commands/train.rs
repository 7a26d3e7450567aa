//! `corro train`: the tutorial's training as one rank. In a job it replaces the Python interpreter: the settings file is in the place of the script, and
//! `--dir` is the script's own option. The trainer crate does the training.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::Args;
use corro_trainer::train::settings::Precision;
use corro_trainer::train::{self, Options, Settings, TrainError};

use crate::error::CliError;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  corro train --dir out
  corro run -np 4 corro train --dir out
  corro train settings.json --dir out --data cifar-10-binary.tar.gz

The first trains alone on generated images, the second with four ranks that
share the work, the third trains on CIFAR-10 with settings of your own.

Started again with the same --dir it resumes from the last checkpoint. The
model is DIR/saved_models/keras_cifar10_trained_model.h5, for Keras, and
.safetensors beside it; DIR/metrics.jsonl has a line for each epoch.

A settings file has what differs from the tutorial's script, for example
  {\"epochs\": 20, \"batch\": 64, \"learningRate\": 0.0005, \"seed\": 7,
   \"augmentation\": true, \"dropout\": true, \"decay\": 1e-6,
   \"data\": \"cifar-10-binary.tar.gz\", \"precision\": \"f32\", \"threads\": 2,
   \"synthetic\": {\"train\": 5000, \"test\": 1000},
   \"checkpointEvery\": 1, \"keep\": 3}
Epochs and rate are for one rank: n ranks do an nth of the epochs each, with
n times the rate.")]
pub struct TrainArgs {
    /// JSON file with settings; the defaults are those of the tutorial's script
    settings: Option<PathBuf>,

    /// Directory for checkpoints, metrics and the model; a later start resumes from it
    #[arg(long, short)]
    dir: PathBuf,

    /// CIFAR-10: its archive, or the unpacked directory [default: generated images]
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,

    /// Epochs of one rank; several ranks share them [default: 100]
    #[arg(long, value_name = "N")]
    epochs: Option<usize>,

    /// Images per rank and step [default: 32]
    #[arg(long, value_name = "N")]
    batch: Option<usize>,

    /// Learning rate of one rank; it is multiplied by the number of ranks [default: 0.0001]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    learning_rate: Option<f32>,

    /// Random seed; the same seed and number of ranks give the same weights [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Precision of matrix products: f32, or bf16 on processors with AMX [default: f32]
    #[arg(long, value_name = "PRECISION", value_parser = ["f32", "bf16"])]
    precision: Option<String>,

    /// Threads per rank [default: its share of the processors]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Train without random shifts and flips of the images
    #[arg(long)]
    no_augmentation: bool,

    /// Delete the checkpoints in the directory and start from the beginning
    #[arg(long)]
    fresh: bool,
}

/// Trains in this process, which is the rank. Returns when the training has ended.
pub fn run(args: TrainArgs) -> Result<(), CliError> {
    let settings = args.settings()?;
    let mut out = io::stdout();
    let options = Options { dir: &args.dir, fresh: args.fresh, terminal: out.is_terminal().then(terminal_columns) };
    match train::run(&settings, &options, &mut out) {
        Ok(_) => Ok(()),
        // The reader closed the pipe.
        Err(TrainError::Out(error)) if error.kind() == io::ErrorKind::BrokenPipe => Err(CliError::silent(1)),
        Err(error) => Err(CliError::from_error(&error)),
    }
}

fn terminal_columns() -> usize {
    let width = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| size.ws_col);
    // Terminals that report no width usually have 80 columns.
    if width == 0 { 80 } else { width.into() }
}

impl TrainArgs {
    /// The settings of the file, overridden by the command line.
    fn settings(&self) -> Result<Settings, CliError> {
        let from_file = self.settings.as_deref().map(read_settings).transpose()?.unwrap_or_default();
        let precision = self.precision.as_deref().map(|word| match word {
            "bf16" => Precision::Bf16,
            _ => Precision::F32,
        });
        Ok(Settings {
            epochs: self.epochs.unwrap_or(from_file.epochs),
            batch: self.batch.unwrap_or(from_file.batch),
            learning_rate: self.learning_rate.unwrap_or(from_file.learning_rate),
            seed: self.seed.unwrap_or(from_file.seed),
            precision: precision.unwrap_or(from_file.precision),
            threads: self.threads.or(from_file.threads),
            augmentation: from_file.augmentation && !self.no_augmentation,
            data: self.data.clone().or(from_file.data),
            ..from_file
        })
    }
}

fn read_settings(path: &Path) -> Result<Settings, CliError> {
    let failed = |error: &dyn std::error::Error| {
        CliError::new(format!("cannot read the settings in {}", path.display()))
            .cause(error)
            .hint("a settings file is JSON, such as {\"epochs\": 20}; 'corro train --help' shows all of them")
    };
    let text = std::fs::read(path).map_err(|error| failed(&error))?;
    serde_json::from_slice(&text).map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        train: TrainArgs,
    }

    fn settings(file: &str, flags: &[&str]) -> Result<Settings, CliError> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("settings.json");
        std::fs::write(&path, file).expect("it can be written");
        let words = ["train", path.to_str().expect("text"), "--dir", "out"];
        Line::parse_from(words.iter().chain(flags)).train.settings()
    }

    #[test]
    fn options_override_the_file() {
        let file = r#"{"epochs": 7, "batch": 8, "seed": 9, "data": "there"}"#;
        let plain = settings(file, &[]).expect("good");
        assert_eq!((plain.epochs, plain.batch, plain.seed, plain.learning_rate), (7, 8, 9, 0.0001));
        let flags = "--epochs 3 --learning-rate 0.5 --data here --precision bf16 --threads 2 --no-augmentation";
        let merged = settings(file, &flags.split(' ').collect::<Vec<_>>()).expect("good");
        let expected = Settings {
            epochs: 3,
            learning_rate: 0.5,
            data: Some("here".into()),
            precision: Precision::Bf16,
            threads: Some(2),
            augmentation: false,
            ..plain
        };
        assert_eq!(merged, expected);
    }

    #[test]
    fn invalid_settings_are_rejected_with_their_line() {
        let error = settings("{\n  \"epoch\": 3\n}", &[]).expect_err("not a setting");
        assert!(error.causes[0].contains("unknown field `epoch`") && error.causes[0].contains("line 2"), "{error}");
        assert!(settings("import keras", &[]).is_err());
    }
}
