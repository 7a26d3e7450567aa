//! Metrics of one input file (a log or `metrics.jsonl`). Tracks epoch and step across lines and assigns each value a
//! point on an axis: steps accumulate over epochs, and a line without a position takes that of an earlier line.

use std::collections::HashMap;

use corro_model::metrics::{Axis, Source};

use crate::curves::{CurveKey, Curves};
use crate::json_line::{self, Provenance};
use crate::line_splitter::LineSplitter;
use crate::{ParsedLine, log_line};

/// Maximum number of metric names that are numbered by [`Axis::Count`].
const MAX_COUNTED_NAMES: usize = 256;

#[derive(Clone, Debug)]
pub struct MetricStream {
    lines: LineSplitter,
    source: Source,
    /// Rank that writes the file; a rank in the line itself takes precedence.
    rank: Option<u32>,
    /// Several ranks write the file and lines do not say which.
    shared: bool,
    position: TrainingPosition,
}

#[derive(Clone, Debug, Default)]
struct TrainingPosition {
    epoch: Option<f64>,
    /// Epochs are numbered from 0.
    zero_based: bool,
    /// Steps completed before the current count restarted, for logs without epochs.
    steps_before: f64,
    last_step: Option<f64>,
    /// Number of epochs of the training.
    epoch_total: Option<f64>,
    /// Completed fraction of the training, 0 to 1.
    progress: Option<f64>,
    counts: HashMap<String, u64>,
}

impl MetricStream {
    /// A log file.
    pub fn log(rank: Option<u32>, shared: bool) -> MetricStream {
        MetricStream {
            lines: LineSplitter::default(),
            source: Source::Log,
            rank,
            shared,
            position: TrainingPosition::default(),
        }
    }

    /// A `metrics.jsonl` file.
    pub fn file() -> MetricStream {
        MetricStream {
            lines: LineSplitter::default(),
            source: Source::File,
            rank: None,
            shared: false,
            position: TrainingPosition::default(),
        }
    }

    /// Adds bytes. `time` is when they were written, if known, in milliseconds since 1970.
    pub fn push(&mut self, bytes: &[u8], time: Option<i64>, curves: &mut Curves) {
        let MetricStream { lines, source, rank, shared, position } = self;
        lines.push(bytes, |line| parse_line(line, (*source, *rank, *shared), time, position, curves));
    }

    /// Completed fraction of the training, 0 to 1, for logs with numbered epochs ("Epoch 3/20"). An epoch advances with
    /// its reported steps, otherwise when the next one starts.
    pub fn progress(&self) -> Option<f64> {
        self.position.progress
    }

    /// Ends the input and parses the last, unterminated line.
    pub fn finish(&mut self, curves: &mut Curves) {
        let MetricStream { lines, source, rank, shared, position } = self;
        lines.finish(|line| parse_line(line, (*source, *rank, *shared), None, position, curves));
    }
}

fn parse_line(
    line: &str,
    (source, rank, shared): (Source, Option<u32>, bool),
    time: Option<i64>,
    position: &mut TrainingPosition,
    curves: &mut Curves,
) {
    let parsed = match source {
        Source::File => json_line::parse(line, Provenance::File),
        _ => log_line::parse(line),
    };
    let Some(parsed) = parsed else { return };
    let (axis, step) = position.locate(&parsed);
    let rank = parsed.rank.or(rank);
    let source = if parsed.explicit { Source::Lines } else { source };
    for value in parsed.values {
        let step = match axis {
            Axis::Count => position.next_count(&value.name),
            _ => step,
        };
        let key = CurveKey { name: value.name, source, axis, rank };
        curves.add(key, value.unit, (step, parsed.time.or(time), value.value), shared && rank.is_none());
    }
}

impl TrainingPosition {
    fn locate(&mut self, parsed: &ParsedLine) -> (Axis, f64) {
        let epoch_before = self.epoch;
        if let Some(epoch) = parsed.epoch {
            if self.epoch.is_none() || epoch == 0.0 {
                self.zero_based = epoch < 1.0;
            }
            if parsed.step.is_none() || self.epoch != Some(epoch) {
                self.last_step = self.last_step.filter(|_| parsed.step_total.is_none());
            }
            self.epoch = Some(epoch);
        }
        self.update_progress(parsed, self.epoch == epoch_before);
        let steps = if parsed.steps_are_samples { Axis::Sample } else { Axis::Step };
        match (parsed.step, parsed.step_total, self.epoch) {
            (Some(step), _, _) if parsed.explicit => (steps, step),
            (Some(step), Some(of), Some(epoch)) => (steps, self.whole_epochs_before(epoch) * of + step),
            (Some(step), of, _) => {
                // The progress bar restarted. A rank that is only a little behind does not count as a restart.
                if let Some(last) = self.last_step
                    && step < last / 2.0
                    && (of.is_some() || parsed.epoch.is_some())
                {
                    self.steps_before += of.unwrap_or(last);
                }
                self.last_step = Some(step);
                (steps, self.steps_before + step)
            }
            (None, _, Some(epoch)) => (Axis::Epoch, epoch),
            (None, _, None) => (Axis::Count, 0.0),
        }
    }

    fn update_progress(&mut self, parsed: &ParsedLine, same_epoch: bool) {
        self.epoch_total = parsed.epoch_total.or(self.epoch_total);
        let (Some(epoch), Some(epochs)) = (self.epoch, self.epoch_total.filter(|epochs| *epochs >= 1.0)) else {
            return;
        };
        let in_epoch = match (parsed.step, parsed.step_total) {
            (Some(step), Some(of)) if of > 0.0 && !parsed.explicit => (step / of).clamp(0.0, 1.0),
            _ => 0.0,
        };
        let done = self.whole_epochs_before(epoch) + in_epoch;
        let progress = (done / epochs).clamp(0.0, 1.0);
        // The progress bar of an evaluation runs over the same epoch again; progress must not go back.
        self.progress = Some(self.progress.filter(|_| same_epoch).map_or(progress, |before| before.max(progress)));
    }

    /// Number of epochs completed when `epoch` starts.
    fn whole_epochs_before(&self, epoch: f64) -> f64 {
        (epoch - if self.zero_based { 0.0 } else { 1.0 }).max(0.0).floor()
    }

    fn next_count(&mut self, name: &str) -> f64 {
        if self.counts.len() >= MAX_COUNTED_NAMES && !self.counts.contains_key(name) {
            return 0.0;
        }
        let count = self.counts.entry(name.to_owned()).or_default();
        *count += 1;
        *count as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the points of `loss`, as `step:value`.
    fn check(log: &str, axis: Axis, expected: &str) {
        let (mut curves, mut stream) = (Curves::default(), MetricStream::log(None, false));
        stream.push(log.as_bytes(), None, &mut curves);
        stream.finish(&mut curves);
        let key = CurveKey { name: "loss".into(), source: Source::Log, axis, rank: None };
        let points = curves.points(&key).map(|point| format!("{}:{}", point.step, point.value));
        assert_eq!(points.collect::<Vec<_>>().join(" "), expected, "{log}");
    }

    #[test]
    fn steps_accumulate_over_epochs() {
        let keras =
            "Epoch 1/2\n1/4 [..] - loss: 4\r4/4 [==] - loss: 3\nEpoch 2/2\n2/4 [..] - loss: 2\r4/4 [==] - loss: 1\n";
        check(keras, Axis::Step, "1:4 4:3 6:2 8:1");
        let lightning =
            "Epoch 0:  50%|█| 2/4 [00:01<00:01, 45.2it/s, loss=3]\rEpoch 1:  50%|█| 2/4 [0<0, 1it/s, loss=2]\n";
        check(lightning, Axis::Step, "2:3 6:2");
        let tqdm = " 50%|█| 2/4 [00:01<00:01, 45.2it/s, loss=4]\r100%|█| 4/4 [0<0, 1it/s, loss=3]\n  0%|█| 1/4 [0<0, 1it/s, loss=2]\n";
        check(tqdm, Axis::Step, "2:4 4:3 5:2");
        let samples = "Train Epoch: 1 [0/100 (0%)]\tLoss: 3\nTrain Epoch: 2 [50/100 (50%)]\tLoss: 2\n";
        check(samples, Axis::Sample, "0:3 150:2");
        check(
            "epoch 1 step 100 loss 3\nepoch 2 step 10 loss 2\nepoch 2 step 20 loss 1\n",
            Axis::Step,
            "100:3 110:2 120:1",
        );
        check("step=5 loss=2\nstep=10 loss=1\n", Axis::Step, "5:2 10:1");
    }

    #[test]
    fn progress_needs_numbered_epochs() {
        let after = |log: &str| {
            let (mut curves, mut stream) = (Curves::default(), MetricStream::log(None, false));
            stream.push(log.as_bytes(), None, &mut curves);
            stream.finish(&mut curves);
            stream.progress()
        };
        assert_eq!(after("Epoch 1/4\n"), Some(0.0));
        assert_eq!(after("Epoch 2/4\n2/4 [..] - loss: 2\r"), Some(0.375));
        assert_eq!(after("Epoch 4/4\n4/4 [==] - loss: 2\n"), Some(1.0));
        assert_eq!(after("Epoch 2/4\n4/4 [==] - loss: 2\n1/9 [..] - loss: 3\n"), Some(0.5), "an evaluation");
        assert_eq!(after("Epoch 4/4\n4/4 [==] - loss: 2\nEpoch 1/2\n"), Some(0.0), "a second training");
        assert_eq!(after("Epoch 0/4, loss: 2\nEpoch 2/4, loss: 1\n"), Some(0.5));
        assert_eq!(after("[1]<stdout>:Epoch 3/20\n"), Some(0.1));
        for unnumbered in [
            "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.3\n",
            "{'loss': 0.5, 'epoch': 0.25}\n",
            "50%|█| 2/4 [00:01<00:01, 45.2it/s, loss=4]\n",
            "Epoch 1/0\n",
        ] {
            assert_eq!(after(unnumbered), None, "{unnumbered}");
        }
    }

    #[test]
    fn the_axis_falls_back_to_epochs_then_to_line_counts() {
        check("Epoch 1/2\n - 3s - loss: 2\nEpoch 2/2\n - 3s - loss: 1\n", Axis::Epoch, "1:2 2:1");
        check("loss: 2\nloss: 1\n", Axis::Count, "1:2 2:1");
        check("{'loss': 0.5, 'epoch': 0.25}\n{'loss': 0.25, 'epoch': 0.5}\n", Axis::Epoch, "0.25:0.5 0.5:0.25");
    }
}
