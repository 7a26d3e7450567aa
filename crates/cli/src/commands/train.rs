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

The first example trains on generated images with one rank, the second with
four ranks. The third trains on CIFAR-10 with your own settings.

If you start it again with the same --dir, it resumes from the last checkpoint.
The model is written to DIR/saved_models/keras_cifar10_trained_model.h5 for
Keras, and beside it as .safetensors. DIR/metrics.jsonl has a line per epoch.

A settings file contains only what differs from the tutorial, for example:
  {\"epochs\": 20, \"batch\": 64, \"learningRate\": 0.0005, \"seed\": 7,
   \"augmentation\": true, \"dropout\": true, \"decay\": 1e-6,
   \"data\": \"cifar-10-binary.tar.gz\", \"precision\": \"f32\", \"threads\": 2,
   \"synthetic\": {\"train\": 5000, \"test\": 1000},
   \"checkpointEvery\": 1, \"keep\": 3}
Epochs and learning rate are those of a single rank. With n ranks, each trains
1/n of the epochs with n times the learning rate. In an elastic job, whose ranks
change, the ranks share the images of each epoch instead, and a rank that dies
loses only its batch.")]
pub struct TrainArgs {
    /// JSON file with settings that differ from the tutorial's
    settings: Option<PathBuf>,

    /// Directory for checkpoints, metrics and the model. A later start resumes from it
    #[arg(long, short)]
    dir: PathBuf,

    /// The CIFAR-10 archive, or its unpacked directory [default: generated images]
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,

    /// Number of epochs, shared by all ranks [default: 100]
    #[arg(long, value_name = "N")]
    epochs: Option<usize>,

    /// Number of images per rank and step [default: 32]
    #[arg(long, value_name = "N")]
    batch: Option<usize>,

    /// Learning rate of a single rank. It is multiplied by the number of ranks [default: 0.0001]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    learning_rate: Option<f32>,

    /// Random seed. The same seed and number of ranks give the same weights [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Precision of matrix products: f32, or bf16 on processors with AMX [default: f32]
    #[arg(long, value_name = "PRECISION", value_parser = ["f32", "bf16"])]
    precision: Option<String>,

    /// Number of threads per rank [default: the rank's share of the processors]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Train without random shifts and flips of the images
    #[arg(long)]
    no_augmentation: bool,

    /// Delete the checkpoints in the directory, and train from the beginning
    #[arg(long)]
    fresh: bool,
}

/// Trains in this process, which is the rank. Returns when the training has ended.
pub fn run(args: TrainArgs) -> Result<(), CliError> {
    let settings = args.settings()?;
    let mut out = io::stdout();
    let terminal = out.is_terminal().then(terminal_columns);
    let options = Options { dir: &args.dir, fresh: args.fresh, terminal, on_step: None };
    match train::run(&settings, &options, &mut out) {
        Ok(_) => Ok(()),
        // The rest of an elastic training goes on without this process.
        Err(error) if error.is_dismissal() => Ok(()),
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
