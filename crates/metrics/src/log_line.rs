//! Parses one log line printed for people: Keras progress bars, tqdm, PyTorch examples, Lightning, Hugging Face
//! dictionaries, `name=value`. Errs on the side of ignoring numbers: a metric needs a known name (`metric_names`), or
//! must appear in a progress bar or dictionary.

use crate::json_line::{self, Provenance};
use crate::number_scan::{Number, Separator, scan_numbers};
use crate::{ParsedLine, Value, metric_names};

/// Parses a line; `None` if it has no metrics and no epoch.
pub fn parse(line: &str) -> Option<ParsedLine> {
    let (rank, line) = strip_rank_prefix(line.trim());
    let parsed = match json_line::parse(line, Provenance::Log) {
        Some(parsed) => parsed,
        None => parse_free_text(line)?,
    };
    Some(ParsedLine { rank: parsed.rank.or(rank), ..parsed })
}

/// Recognised layout of a line.
struct LineFormat {
    /// A progress bar; every named number in it is a metric.
    bar: bool,
    /// A tqdm bar, whose rate is a metric even without others.
    tqdm: bool,
    dictionary: bool,
}

fn parse_free_text(line: &str) -> Option<ParsedLine> {
    // Printed settings (`argparse.Namespace`) are not metrics.
    if line.starts_with("Namespace(") || is_unrelated_bar(line) {
        return None;
    }
    let mut parsed = ParsedLine::default();
    let format = detect_format(line);
    let all: Vec<Number> = scan_numbers(line).collect();
    for number in &all {
        read_position(line, number, &mut parsed);
    }
    let has_position = parsed.step.is_some() || parsed.epoch.is_some();
    let set = dataset_prefix(line, &format);
    for number in &all {
        let named = number
            .name
            .and_then(|(name, separator)| metric_name(line, number, (name, separator), has_position, &format));
        let rate = metric_names::parse_rate(number.unit).filter(|_| has_position || format.bar);
        match (named, rate) {
            (Some(name), _) if !parsed.values.iter().any(|known| known.name == name) => {
                let name = with_dataset_prefix(set, name);
                let value = number.total.map_or(number.value, |of| number.value / of);
                let unit = if number.unit == "%" { Some("%") } else { metric_names::unit_for(&name) };
                parsed.values.push(Value { name, unit, value });
            }
            (None, Some((name, unit, rate))) => {
                let value = rate.per_second(number.value);
                parsed.values.extend(value.map(|value| Value { name: name.to_owned(), unit: Some(unit), value }));
            }
            _ => {}
        }
    }
    let only_rates = parsed.values.iter().all(|value| value.name.ends_with("_per_second"));
    if only_rates && format.bar && !(format.tqdm && is_training_bar(line)) {
        parsed.values.clear();
    }
    (!parsed.values.is_empty() || parsed.epoch.is_some()).then_some(parsed)
}

/// Progress bars of work other than training: validation, downloads, preprocessing.
fn is_unrelated_bar(line: &str) -> bool {
    let first = line.split(|char: char| !char.is_ascii_alphabetic()).next().unwrap_or_default();
    let asides =
        ["Validation", "Validating", "Sanity", "Testing", "Predicting", "Downloading", "Map", "Filter", "Loading"];
    asides.contains(&first) && (line.contains("%|") || line.contains('━'))
}

fn is_training_bar(line: &str) -> bool {
    let description = line.split(['|', '%']).next().unwrap_or_default().trim_start();
    let first = description.split(|char: char| !char.is_ascii_alphabetic()).next().unwrap_or_default();
    first.is_empty() || ["epoch", "train", "training", "step", "steps"].contains(&first.to_ascii_lowercase().as_str())
}

fn detect_format(line: &str) -> LineFormat {
    let tqdm = line.contains("%|") || (line.contains("it [") && line.contains("it/s"));
    let first = line.split_whitespace().next().unwrap_or_default();
    let counts = first.split_once('/').is_some_and(|(done, all)| {
        let whole = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        whole(done) && (whole(all) || all == "Unknown")
    });
    let rest = line.get(first.len()..).unwrap_or_default().trim_start();
    let keras = counts && (rest.starts_with(['[', '━', '╸', '╺']) || rest.starts_with("- "));
    // Keras 2 with `verbose=2`: ` - 3s - loss: 1.2`.
    let dashes = line.starts_with("- ") && line[2..].trim_start().starts_with(|first: char| first.is_ascii_digit());
    let dictionary = line.starts_with('{') && line.ends_with('}');
    LineFormat { bar: tqdm || keras || dashes || line.contains("━━"), tqdm, dictionary }
}

/// Stores the number in `parsed` if it is an epoch or a step.
fn read_position(line: &str, number: &Number, parsed: &mut ParsedLine) {
    match number.name {
        Some((name, _)) if metric_names::is_epoch(name) && parsed.epoch.is_none() && number.value.is_finite() => {
            (parsed.epoch, parsed.epoch_total) = (Some(number.value), number.total);
        }
        Some((name, _)) if metric_names::is_step(name) && parsed.step.is_none() && number.value.is_finite() => {
            (parsed.step, parsed.step_total) = (Some(number.value), number.total);
        }
        None if parsed.step.is_none() => {
            let before = line[..number.start].trim_end();
            let behind = line[number.end..].trim_start();
            let in_bar = before.ends_with(['|', '[', '━', '╸', '╺'])
                || (before.is_empty() && (behind.starts_with(['[', '━', '╸', '╺']) || behind.starts_with("- ")));
            if let (Some(of), true) = (number.total, in_bar) {
                (parsed.step, parsed.step_total) = (Some(number.value), Some(of));
                // `[640/60000 (1%)]` counts samples.
                parsed.steps_are_samples = before.ends_with('[') && behind.starts_with('(');
            } else if number.unit == "it" && behind.starts_with('[') {
                parsed.step = Some(number.value);
            }
        }
        _ => {}
    }
}

/// The metric name for a number, or `None` if it is not a metric.
fn metric_name(
    line: &str,
    number: &Number,
    (name, separator): (&str, Separator),
    has_position: bool,
    format: &LineFormat,
) -> Option<String> {
    if metric_names::is_excluded(name) || metric_names::is_step(name) || metric_names::is_epoch(name) {
        return None;
    }
    // Durations are ignored; percentages and rates are metrics.
    let is_known = if has_position { metric_names::is_metric(name) } else { metric_names::is_quality_metric(name) };
    let is_plain = matches!(number.unit, "" | "%") || metric_names::parse_rate(number.unit).is_some();
    let wanted = is_plain
        && match separator {
            Separator::Equals => is_known || has_position || format.bar,
            Separator::Colon => is_known || format.bar || format.dictionary,
            Separator::Space => is_known && has_position,
            Separator::Bracket => false,
        };
    if !wanted {
        return None;
    }
    let name = if metric_names::is_metric(name) && separator != Separator::Equals && !format.dictionary {
        name.to_ascii_lowercase()
    } else {
        name.to_owned()
    };
    let before = line[..number.start].trim_end_matches([' ', '\t', '=', ':', '\'', '"', '(']);
    let before = before.get(..before.len().saturating_sub(name.len())).unwrap_or_default();
    Some(with_qualifier(before, name))
}

/// Adds the data split before the name: `Train Loss: 0.5` is `train_loss`, `average loss: 0.5` is `loss`.
fn with_qualifier(before: &str, name: String) -> String {
    if !before.ends_with(' ') {
        return name;
    }
    let mut words_before = before.split_ascii_whitespace().rev();
    let mut word = words_before.next();
    if word.is_some_and(metric_names::is_filler) {
        word = words_before.next();
    }
    match word.and_then(metric_names::dataset_split) {
        Some("train") | None => match word {
            Some(train) if metric_names::dataset_split(train).is_some() => format!("train_{name}"),
            _ => name,
        },
        Some(set) => format!("{set}_{name}"),
    }
}

/// The data split that a line starts with, as in `Test set: …`. It applies to all metrics of the line.
fn dataset_prefix(line: &str, format: &LineFormat) -> Option<&'static str> {
    let first = line.split(|char: char| !char.is_ascii_alphabetic()).next().unwrap_or_default();
    metric_names::dataset_split(first).filter(|set| *set != "train" && !format.bar && !format.dictionary)
}

fn with_dataset_prefix(set: Option<&str>, name: String) -> String {
    match set {
        Some(set) if !["test", "val", "eval", "train"].iter().any(|known| name.starts_with(known)) => {
            format!("{set}_{name}")
        }
        _ => name,
    }
}

/// Removes the rank prefix of launchers: `[1,3]<stdout>:`, `[3]<stderr>:`, `[rank3]:`, `[rank 3]`, `rank 3:`.
fn strip_rank_prefix(line: &str) -> (Option<u32>, &str) {
    let found = (|| {
        if let Some(inside) = line.strip_prefix('[') {
            let (tag, rest) = inside.split_once(']')?;
            let number = tag.rsplit(',').next()?;
            let number = number.strip_prefix("rank").or_else(|| number.strip_prefix("Rank")).unwrap_or(number).trim();
            let stream = rest.strip_prefix("<stdout>").or_else(|| rest.strip_prefix("<stderr>"));
            let is_tag = stream.is_some() || tag.to_ascii_lowercase().contains("rank");
            return is_tag.then_some((number.parse().ok()?, stream.unwrap_or(rest).trim_start_matches([':', ' '])));
        }
        let rest = line.strip_prefix("rank").or_else(|| line.strip_prefix("Rank"))?.trim_start_matches([' ', '=']);
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = rest.split_at(digits);
        let rest = rest.strip_prefix([':', ',', ' ', ']'])?;
        Some((number.parse().ok()?, rest.trim_start()))
    })();
    found.map_or((None, line), |(rank, rest)| (Some(rank), rest))
}

#[cfg(test)]
#[path = "log_line_tests.rs"]
mod tests;
