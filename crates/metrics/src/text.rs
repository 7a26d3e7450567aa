//! One line of a log, written for people: Keras' progress, tqdm, PyTorch's examples and Lightning, Hugging Face's dictionaries,
//! `name=value`. Says what is told, and takes nothing for a figure that only looks like one: names are known
//! (`words`), or stand in a bar or dictionary where only figures stand.

use crate::numbers::{Number, Tie, numbers};
use crate::object::{self, Trust};
use crate::{Reading, Value, words};

/// What the line says; `None` when that is nothing.
pub fn read(line: &str) -> Option<Reading> {
    let (rank, line) = rank_before(line.trim());
    let reading = match object::read(line, Trust::Log) {
        Some(reading) => reading,
        None => in_words(line)?,
    };
    Some(Reading { rank: reading.rank.or(rank), ..reading })
}

/// What kind of line it is, by its looks.
struct Looks {
    /// Something fills up; the figures behind it have no words between them.
    bar: bool,
    /// tqdm's, whose rate is worth telling even alone.
    tqdm: bool,
    dictionary: bool,
}

fn in_words(line: &str) -> Option<Reading> {
    // Settings: what was asked for, not what came of it.
    if line.starts_with("Namespace(") || is_aside(line) {
        return None;
    }
    let mut reading = Reading::default();
    let looks = looks(line);
    let all: Vec<Number> = numbers(line).collect();
    for number in &all {
        place(line, number, &mut reading);
    }
    let placed = reading.step.is_some() || reading.epoch.is_some();
    let set = set_of(line, &looks);
    for number in &all {
        let named = number.name.and_then(|(name, tie)| figure(line, number, (name, tie), placed, &looks));
        let rate = words::rate(number.unit).filter(|_| placed || looks.bar);
        match (named, rate) {
            (Some(name), _) if !reading.values.iter().any(|known| known.name == name) => {
                let name = with_set(set, name);
                let value = number.of.map_or(number.value, |of| number.value / of);
                let unit = if number.unit == "%" { Some("%") } else { words::unit_of(&name) };
                reading.values.push(Value { name, unit, value });
            }
            (None, Some((name, unit, rate))) => {
                let value = rate.per_second(number.value);
                reading.values.extend(value.map(|value| Value { name: name.to_owned(), unit: Some(unit), value }));
            }
            _ => {}
        }
    }
    let only_rates = reading.values.iter().all(|value| value.name.ends_with("_per_second"));
    if only_rates && looks.bar && !(looks.tqdm && is_training_bar(line)) {
        reading.values.clear();
    }
    (!reading.values.is_empty() || reading.epoch.is_some()).then_some(reading)
}

/// Bars and messages that have numbers of something else.
fn is_aside(line: &str) -> bool {
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

fn looks(line: &str) -> Looks {
    let tqdm = line.contains("%|") || (line.contains("it [") && line.contains("it/s"));
    let first = line.split_whitespace().next().unwrap_or_default();
    let counts = first.split_once('/').is_some_and(|(done, all)| {
        let whole = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        whole(done) && (whole(all) || all == "Unknown")
    });
    let rest = line.get(first.len()..).unwrap_or_default().trim_start();
    let keras = counts && (rest.starts_with(['[', '━', '╸', '╺']) || rest.starts_with("- "));
    // `verbose=2` of older ones: ` - 3s - loss: 1.2`.
    let dashes = line.starts_with("- ") && line[2..].trim_start().starts_with(|first: char| first.is_ascii_digit());
    let dictionary = line.starts_with('{') && line.ends_with('}');
    Looks { bar: tqdm || keras || dashes || line.contains("━━"), tqdm, dictionary }
}

/// Does the number say how far the training is?
fn place(line: &str, number: &Number, reading: &mut Reading) {
    match number.name {
        Some((name, _)) if words::is_epoch(name) && reading.epoch.is_none() && number.value.is_finite() => {
            (reading.epoch, reading.epochs) = (Some(number.value), number.of);
        }
        Some((name, _)) if words::is_step(name) && reading.step.is_none() && number.value.is_finite() => {
            (reading.step, reading.of) = (Some(number.value), number.of);
        }
        None if reading.step.is_none() => {
            let before = line[..number.start].trim_end();
            let behind = line[number.end..].trim_start();
            let in_bar = before.ends_with(['|', '[', '━', '╸', '╺'])
                || (before.is_empty() && (behind.starts_with(['[', '━', '╸', '╺']) || behind.starts_with("- ")));
            if let (Some(of), true) = (number.of, in_bar) {
                (reading.step, reading.of) = (Some(number.value), Some(of));
                // `[640/60000 (1%)]`
                reading.samples = before.ends_with('[') && behind.starts_with('(');
            } else if number.unit == "it" && behind.starts_with('[') {
                reading.step = Some(number.value);
            }
        }
        _ => {}
    }
}

/// The name of the figure that the number is, if it is one.
fn figure(line: &str, number: &Number, (name, tie): (&str, Tie), placed: bool, looks: &Looks) -> Option<String> {
    if words::is_never(name) || words::is_step(name) || words::is_epoch(name) {
        return None;
    }
    // Lengths of time are of no interest here; what is a share of something is.
    let is_known = if placed { words::is_figure(name) } else { words::is_result(name) };
    let is_plain = matches!(number.unit, "" | "%") || words::rate(number.unit).is_some();
    let wanted = is_plain
        && match tie {
            Tie::Equals => is_known || placed || looks.bar,
            Tie::Colon => is_known || looks.bar || looks.dictionary,
            Tie::Space => is_known && placed,
            Tie::Bracket => false,
        };
    if !wanted {
        return None;
    }
    let name = if words::is_figure(name) && tie != Tie::Equals && !looks.dictionary {
        name.to_ascii_lowercase()
    } else {
        name.to_owned()
    };
    let before = line[..number.start].trim_end_matches([' ', '\t', '=', ':', '\'', '"', '(']);
    let before = before.get(..before.len().saturating_sub(name.len())).unwrap_or_default();
    Some(with_qualifier(before, name))
}

/// `Train Loss: 0.5` is `train_loss`, `average loss: 0.5` is `loss`.
fn with_qualifier(before: &str, name: String) -> String {
    if !before.ends_with(' ') {
        return name;
    }
    let mut words_before = before.split_ascii_whitespace().rev();
    let mut word = words_before.next();
    if word.is_some_and(words::is_filler) {
        word = words_before.next();
    }
    match word.and_then(words::qualifier) {
        Some("train") | None => match word {
            Some(train) if words::qualifier(train).is_some() => format!("train_{name}"),
            _ => name,
        },
        Some(set) => format!("{set}_{name}"),
    }
}

/// `Test set: …`: all that follows is of that set.
fn set_of(line: &str, looks: &Looks) -> Option<&'static str> {
    let first = line.split(|char: char| !char.is_ascii_alphabetic()).next().unwrap_or_default();
    words::qualifier(first).filter(|set| *set != "train" && !looks.bar && !looks.dictionary)
}

fn with_set(set: Option<&str>, name: String) -> String {
    match set {
        Some(set) if !["test", "val", "eval", "train"].iter().any(|known| name.starts_with(known)) => {
            format!("{set}_{name}")
        }
        _ => name,
    }
}

/// `[1,3]<stdout>:`, `[3]<stderr>:`, `[rank3]:`, `[rank 3]`, `rank 3:`, as launchers put before a line.
fn rank_before(line: &str) -> (Option<u32>, &str) {
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
#[path = "text_tests.rs"]
mod tests;
