//! The built-in workload of `corro tutorial`: a small network trained by several ranks that average their gradients, so
//! that a first run needs no Python and no download. Started as a horovod job whose interpreter is
//! `corro workload`; reads its settings from the "script", takes `--dir` like the tutorial's own script.
//!
//! It meets its sibling ranks through the launcher's rendezvous server and nothing else. It stands in until the real
//! trainer is there.

mod classes;
mod exchange;
mod model;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use serde::{Deserialize, Serialize};

use exchange::Exchange;
use model::Softmax;

#[derive(Args, Debug)]
pub struct WorkloadArgs {
    /// A JSON file with epochs, steps, batch and learningRate
    settings: PathBuf,

    /// Where the trained model is saved
    #[arg(long, short)]
    dir: PathBuf,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// Of one rank alone; several ranks share them out, as the tutorial's script does.
    pub epochs: usize,
    /// Steps an epoch.
    pub steps: usize,
    /// Samples a rank and step.
    pub batch: usize,
    pub learning_rate: f32,
}

/// What rank 0 saves.
#[derive(Debug, Serialize)]
struct SavedModel<'a> {
    classes: usize,
    features: usize,
    ranks: usize,
    test_accuracy: f32,
    weights: &'a [f32],
}

const TEST_SAMPLES: usize = 2000;

pub fn run(args: &WorkloadArgs) -> Result<()> {
    let text = std::fs::read(&args.settings)
        .with_context(|| format!("cannot read the workload's settings from {}", args.settings.display()))?;
    let settings: Settings = serde_json::from_slice(&text)
        .with_context(|| format!("{} does not hold the workload's settings", args.settings.display()))?;
    let mut exchange = Exchange::from_environment()?;
    let (rank, size) = (exchange.rank, exchange.size);
    let epochs = settings.epochs.div_ceil(size);
    let mut out = io::stdout().lock();
    writeln!(out, "rank {rank} of {size}: {} samples a step", settings.batch)?;

    // Every rank begins with rank 0's weights, whatever it drew itself.
    let mut model = Softmax::random(rank as u64);
    exchange.broadcast(&mut model.weights)?;
    let test = classes::Samples::draw(TEST_SAMPLES, u64::MAX);
    let rate = settings.learning_rate * size as f32;
    let began = Instant::now();
    for epoch in 1..=epochs {
        if rank == 0 {
            writeln!(out, "Epoch {epoch}/{epochs}")?;
        }
        let (mut loss, mut right) = (0.0, 0.0);
        for step in 0..settings.steps {
            let seed = ((epoch * settings.steps + step) * size + rank) as u64;
            let batch = classes::Samples::draw(settings.batch, seed);
            let mut gradient = model.gradient(&batch);
            exchange.average(&mut gradient.values)?;
            model.descend(&gradient.values, rate);
            loss += gradient.loss;
            right += gradient.accuracy;
            let report = (step + 1) % settings.steps.div_ceil(4) == 0 || step + 1 == settings.steps;
            if report {
                let done = ((epoch - 1) * settings.steps + step + 1) as f32 / (epochs * settings.steps) as f32;
                let n = (step + 1) as f32;
                writeln!(
                    out,
                    "{} - ETA: {:.1}s - loss: {:.4} - acc: {:.4}",
                    bar(step + 1, settings.steps),
                    began.elapsed().as_secs_f32() * (1.0 - done) / done,
                    loss / n,
                    right / n,
                )?;
            }
        }
        out.flush()?;
    }
    let score = model.gradient(&test);
    if rank == 0 {
        let path = save(&args.dir, &model, size, score.accuracy)?;
        writeln!(out, "Saved trained model at {}", path.display())?;
        writeln!(out, "Test loss: {:.4}", score.loss)?;
        writeln!(out, "Test accuracy: {:.4}", score.accuracy)?;
    }
    exchange.finish()?;
    Ok(())
}

fn save(dir: &Path, model: &Softmax, ranks: usize, test_accuracy: f32) -> Result<PathBuf> {
    let dir = dir.join("saved_models");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let path = dir.join("softmax_model.json");
    let saved = SavedModel {
        classes: classes::CLASSES,
        features: classes::FEATURES,
        ranks,
        test_accuracy,
        weights: &model.weights,
    };
    std::fs::write(&path, serde_json::to_vec(&saved)?).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Keras' progress bar.
fn bar(done: usize, all: usize) -> String {
    const WIDTH: usize = 30;
    let filled = WIDTH * done / all.max(1);
    let head = if filled < WIDTH { ">" } else { "=" };
    let digits = all.to_string().len();
    format!(
        "{done:>digits$}/{all} [{}{}{}]",
        "=".repeat(filled.saturating_sub(1)),
        head,
        ".".repeat(WIDTH - filled.max(1))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rank_learns_far_better_than_chance() {
        let mut model = Softmax::random(1);
        for step in 0..300 {
            let gradient = model.gradient(&classes::Samples::draw(64, step));
            model.descend(&gradient.values, 0.5);
        }
        let score = model.gradient(&classes::Samples::draw(TEST_SAMPLES, u64::MAX));
        assert!(score.accuracy > 0.6, "accuracy {} should be far above 0.1", score.accuracy);
    }

    #[test]
    fn the_bar_fills_up() {
        assert_eq!(bar(1, 4), "1/4 [======>.......................]");
        assert_eq!(bar(4, 4), "4/4 [==============================]");
    }
}
