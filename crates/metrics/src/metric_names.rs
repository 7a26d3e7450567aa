//! Tables of metric names: words that identify metrics, names that are never metrics, units and rates. No parsing
//! logic.

/// Words in a name that identify a measure of quality. Names are split at characters that are not alphanumeric.
#[rustfmt::skip]
const QUALITY_WORDS: &[&str] = &[
    "loss", "losses", "acc", "accuracy", "auc", "auroc", "f1", "precision", "recall", "perplexity", "ppl", "bleu",
    "rouge", "mse", "mae", "rmse", "mape", "reward", "score", "top1", "top5", "iou", "miou", "dice", "psnr", "ssim",
    "fid", "wer", "cer", "kl", "entropy", "crossentropy", "nll", "elbo", "bpc", "bpb", "mcc", "kappa", "r2",
];

/// Words in a name that identify a metric only beside a step or an epoch. Printed settings contain them too.
#[rustfmt::skip]
const CONTEXTUAL_WORDS: &[&str] = &[
    "error", "err", "return", "map", "lr", "learning", "rate", "grad", "norm", "gradnorm", "momentum", "scale",
    "throughput", "tokens", "images", "samples", "img", "imgs", "examples", "mfu", "speed", "temperature", "beta",
    "gamma", "decay", "epsilon", "sec", "second",
];

/// Complete names that are never metrics of a training.
#[rustfmt::skip]
const EXCLUDED_NAMES: &[&str] = &[
    "eta", "pid", "ppid", "tid", "port", "host", "line", "lineno", "seed", "version", "v_num", "v", "id", "rank",
    "local_rank", "world_size", "size", "batch_size", "num_workers", "workers", "threads", "gpu", "gpus", "device",
    "cuda", "ranks", "elapsed", "remaining", "time", "timestamp", "date", "total", "epochs", "steps", "max_epochs",
    "max_steps", "total_steps", "num_epochs", "status", "code", "level", "errno", "exit", "returncode", "width",
    "height", "year", "month", "day", "error_code", "exit_code", "http", "https", "file", "path",
];

#[rustfmt::skip]
const STEP_NAMES: &[&str] = &[
    "step", "steps", "global_step", "globalstep", "iteration", "iter", "it", "itr", "batch", "trainer/global_step",
    "num_updates", "update",
];
const EPOCH_NAMES: &[&str] = &["epoch", "ep"];

/// Words before a name that say which part of the data was evaluated.
const SPLIT_WORDS: &[&str] = &["train", "training", "val", "valid", "validation", "test", "eval", "dev"];
/// Words before a name that carry no meaning.
const FILLER_WORDS: &[&str] = &["average", "avg", "mean", "current", "final", "running"];

pub fn is_step(name: &str) -> bool {
    STEP_NAMES.contains(&name.to_ascii_lowercase().as_str())
}

pub fn is_epoch(name: &str) -> bool {
    EPOCH_NAMES.contains(&name.to_ascii_lowercase().as_str())
}

pub fn is_excluded(name: &str) -> bool {
    EXCLUDED_NAMES.contains(&name.to_ascii_lowercase().as_str())
}

/// Whether the name alone identifies a measure of quality.
pub fn is_quality_metric(name: &str) -> bool {
    parts(name).any(|part| QUALITY_WORDS.contains(&part.as_str()) || part.ends_with("loss"))
}

/// Whether the name is a metric in a line that has a step or an epoch.
pub fn is_metric(name: &str) -> bool {
    is_quality_metric(name) || parts(name).any(|part| CONTEXTUAL_WORDS.contains(&part.as_str()))
}

pub fn is_filler(word: &str) -> bool {
    FILLER_WORDS.contains(&word.to_ascii_lowercase().as_str())
}

/// Normalised name of a data split: `Validation` becomes `val`.
pub fn dataset_split(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    Some(match *SPLIT_WORDS.iter().find(|known| **known == word)? {
        "train" | "training" => "train",
        "val" | "valid" | "validation" | "dev" => "val",
        "test" => "test",
        _ => "eval",
    })
}

/// The unit implied by a metric name.
pub fn unit_for(name: &str) -> Option<&'static str> {
    match name.to_ascii_lowercase().as_str() {
        "images_per_second" | "images_per_sec" | "images/sec" | "img/sec" => Some("images/s"),
        "samples_per_second" | "train_samples_per_second" | "eval_samples_per_second" => Some("samples/s"),
        "steps_per_second" | "train_steps_per_second" | "eval_steps_per_second" => Some("steps/s"),
        "tokens_per_second" | "tokens_per_sec" => Some("tokens/s"),
        "seconds" | "train_runtime" | "eval_runtime" => Some("s"),
        _ => None,
    }
}

/// The static string for a unit read from a file; `None` for unknown units.
pub fn intern_unit(unit: &str) -> Option<&'static str> {
    ["%", "s", "images/s", "samples/s", "steps/s", "tokens/s"].into_iter().find(|known| *known == unit)
}

/// Parses a unit that is a rate: metric name, unit, and whether it is a rate or its inverse (`ms/step`).
pub fn parse_rate(unit: &str) -> Option<(&'static str, &'static str, Rate)> {
    let (above, below) = unit.split_once('/')?;
    let seconds = |text: &str| match text {
        "s" | "sec" | "second" => Some(1.0),
        "ms" => Some(1e-3),
        "us" | "µs" => Some(1e-6),
        "min" => Some(60.0),
        _ => None,
    };
    let counted = |text: &str| {
        Some(match text {
            "step" | "it" | "batch" | "steps" | "iter" | "batches" | "its" => ("steps_per_second", "steps/s"),
            "img" | "imgs" | "images" | "image" => ("images_per_second", "images/s"),
            "samples" | "sample" | "examples" | "ex" => ("samples_per_second", "samples/s"),
            "tokens" | "tok" | "token" => ("tokens_per_second", "tokens/s"),
            _ => return None,
        })
    };
    if let (Some((name, unit)), Some(seconds)) = (counted(above), seconds(below)) {
        return Some((name, unit, Rate::ItemsPerInterval(seconds)));
    }
    let ((name, unit), seconds) = (counted(below)?, seconds(above)?);
    Some((name, unit, Rate::SecondsPerItem(seconds)))
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Items per interval of so many seconds.
    ItemsPerInterval(f64),
    /// The number is the duration of one item, in units of so many seconds.
    SecondsPerItem(f64),
}

impl Rate {
    pub fn per_second(self, number: f64) -> Option<f64> {
        let rate = match self {
            Rate::ItemsPerInterval(seconds) => number / seconds,
            Rate::SecondsPerItem(seconds) => 1.0 / (number * seconds),
        };
        rate.is_finite().then_some(rate)
    }
}

fn parts(name: &str) -> impl Iterator<Item = String> + '_ {
    name.split(|char: char| !char.is_ascii_alphanumeric()).filter(|part| !part.is_empty()).map(str::to_ascii_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quality_metrics_are_recognised_by_words_in_their_names() {
        for name in ["loss", "val_loss", "train/loss", "Acc@1", "f1-score", "xloss", "top1", "eval_accuracy"] {
            assert!(is_quality_metric(name), "{name}");
        }
        for name in ["lossless", "port", "lr", "access", "mapping"] {
            assert!(!is_quality_metric(name), "{name}");
        }
        assert!(is_metric("lr") && is_metric("grad_norm") && !is_metric("host"));
    }

    #[test]
    fn rates_and_their_inverses_are_parsed() {
        let of = |unit: &str, number: f64| {
            parse_rate(unit).and_then(|(name, _, rate)| Some((name, rate.per_second(number)?)))
        };
        assert_eq!(of("ms/step", 20.0), Some(("steps_per_second", 50.0)));
        assert_eq!(of("it/s", 8.5), Some(("steps_per_second", 8.5)));
        assert_eq!(of("s/it", 2.0), Some(("steps_per_second", 0.5)));
        assert_eq!(of("img/sec", 3.0), Some(("images_per_second", 3.0)));
        assert_eq!(of("us/step", 0.0), None);
        assert_eq!(of("MB/s", 3.0), None);
        assert_eq!(of("s/epoch", 3.0), None);
    }
}
