//! Values of the options of `corro submit`: durations, amounts of memory, environment variables and mounts. Pure, but for variables that are taken from
//! the caller's environment.

use std::time::Duration;

use corro_model::time::Span;

/// Parses a duration: `90s`, `30m`, `2h`, `1d12h`, `1:30:00` or `2-00:00:00` as in Slurm, or ISO 8601 (`PT2H`).
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("'{text}' is not a duration: write it as 90s, 30m, 2h, 1d12h or 1:30:00");
    let seconds = if text.starts_with('P') {
        Span::parse(text).map(|span| span.0.as_secs())
    } else if text.contains(':') {
        clock_seconds(text)
    } else {
        unit_seconds(text)
    };
    match seconds.ok_or_else(invalid)? {
        0 => Err("the duration is zero".to_owned()),
        seconds => Ok(Duration::from_secs(seconds)),
    }
}

/// `[DAYS-]HOURS:MINUTES:SECONDS` or `MINUTES:SECONDS`.
fn clock_seconds(text: &str) -> Option<u64> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (days.parse::<u64>().ok()?, clock),
        None => (0, text),
    };
    let parts: Vec<u64> = clock.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let seconds = match parts[..] {
        [hours, minutes, seconds] if minutes < 60 && seconds < 60 => {
            hours.checked_mul(3600)?.checked_add(minutes * 60 + seconds)?
        }
        [minutes, seconds] if days == 0 && seconds < 60 => minutes.checked_mul(60)?.checked_add(seconds)?,
        _ => return None,
    };
    days.checked_mul(86_400)?.checked_add(seconds)
}

/// Numbers with units, the largest unit first: `1d12h`.
fn unit_seconds(text: &str) -> Option<u64> {
    let mut total: u64 = 0;
    let mut rest = text;
    let mut previous = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let unit = match rest.as_bytes()[digits] {
            b'd' => 86_400,
            b'h' => 3_600,
            b'm' => 60,
            b's' => 1,
            _ => return None,
        };
        if unit >= previous {
            return None;
        }
        previous = unit;
        total = total.checked_add(number.checked_mul(unit)?)?;
        rest = &rest[digits + 1..];
    }
    (!text.is_empty()).then_some(total)
}

/// Parses an amount of memory in whole GiB: `16`, `16G`, `16GiB`, `16GB`.
pub fn parse_memory(text: &str) -> Result<u32, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[number.len()..].to_ascii_lowercase();
    match (number.parse::<u32>(), unit.as_str()) {
        (Ok(gib), "" | "g" | "gb" | "gib") if gib > 0 => Ok(gib),
        _ => Err(format!("'{text}' is not an amount of memory: write whole GiB, such as 16 or 16G")),
    }
}

/// An environment variable of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    pub name: String,
    pub value: String,
}

/// Parses `NAME=VALUE`, or `NAME` for the value in the caller's environment.
pub fn parse_variable(text: &str, environment: impl Fn(&str) -> Option<String>) -> Result<Variable, String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, value.to_owned()),
        None => (text, environment(text).ok_or_else(|| format!("the variable {text} is not set: write {text}=VALUE"))?),
    };
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(is_name_char) || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!("'{name}' is not the name of a variable: use letters, digits and '_'"));
    }
    Ok(Variable { name: name.to_owned(), value })
}

/// A share that a job mounts besides its own directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareMount {
    /// `None`: the account that holds the job's directory.
    pub account: Option<String>,
    pub share: String,
    /// Mount path below `$AZ_BATCHAI_JOB_MOUNT_ROOT`.
    pub path: String,
}

/// Parses `[ACCOUNT/]SHARE[:PATH]`.
pub fn parse_mount(text: &str) -> Result<ShareMount, String> {
    let (source, path) = text.split_once(':').map_or((text, None), |(source, path)| (source, Some(path)));
    let (account, share) = source.split_once('/').map_or((None, source), |(account, share)| (Some(account), share));
    let path = path.unwrap_or(share);
    let is_valid = |part: &str| !part.is_empty() && !part.contains('/');
    let path_is_relative = !path.is_empty() && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if !is_valid(share) || account.is_some_and(|account| !is_valid(account)) || !path_is_relative {
        return Err(format!("'{text}' is not a share: write SHARE, SHARE:PATH or ACCOUNT/SHARE:PATH"));
    }
    Ok(ShareMount { account: account.map(str::to_owned), share: share.to_owned(), path: path.to_owned() })
}

/// Quotes a word for a POSIX shell, only if it needs quotes.
pub fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Words as one shell command line.
pub fn shell_line(words: &[String]) -> String {
    words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let check = |text: &str, seconds: Option<u64>| {
            assert_eq!(parse_duration(text).ok().map(|duration| duration.as_secs()), seconds, "{text}");
        };
        for (text, seconds) in [
            ("90s", 90),
            ("30m", 1800),
            ("2h", 7200),
            ("1d12h", 129_600),
            ("1:30:00", 5400),
            ("10:05", 605),
            ("2-00:00:00", 172_800),
            ("PT2H", 7200),
            ("P1D", 86_400),
        ] {
            check(text, Some(seconds));
        }
        for text in ["", "2", "h", "2x", "1m1h", "1h1h", "1:60:00", "1:2:3:4", "-1s", "0s", "99999999999999999999d"] {
            check(text, None);
        }
    }

    #[test]
    fn memory() {
        for (text, gib) in
            [("16", Some(16)), ("16G", Some(16)), ("8gib", Some(8)), ("0", None), ("1.5G", None), ("5M", None)]
        {
            assert_eq!(parse_memory(text).ok(), gib, "{text}");
        }
    }

    #[test]
    fn variables() {
        let environment = |name: &str| (name == "TOKEN").then(|| "t".to_owned());
        let check = |text: &str, expected: Result<(&str, &str), &str>| {
            let parsed = parse_variable(text, environment);
            let parsed = parsed.as_ref().map(|variable| (variable.name.as_str(), variable.value.as_str()));
            assert_eq!(parsed.map_err(String::as_str), expected);
        };
        check("A=1", Ok(("A", "1")));
        check("A=", Ok(("A", "")));
        check("A=b=c", Ok(("A", "b=c")));
        check("TOKEN", Ok(("TOKEN", "t")));
        check("MISSING", Err("the variable MISSING is not set: write MISSING=VALUE"));
        check("1A=2", Err("'1A' is not the name of a variable: use letters, digits and '_'"));
        check("=2", Err("'' is not the name of a variable: use letters, digits and '_'"));
    }

    #[test]
    fn mounts() {
        let check = |text: &str, expected: Option<(Option<&str>, &str, &str)>| {
            let parsed = parse_mount(text).ok();
            let parsed = parsed.as_ref().map(|m| (m.account.as_deref(), m.share.as_str(), m.path.as_str()));
            assert_eq!(parsed, expected, "{text}");
        };
        check("data", Some((None, "data", "data")));
        check("data:sets/cifar", Some((None, "data", "sets/cifar")));
        check("team/data:d", Some((Some("team"), "data", "d")));
        for text in ["", ":d", "/data", "a/b/c", "data:", "data:/abs", "data:../up"] {
            check(text, None);
        }
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        let words = ["python", "train.py", "--name", "it's", "", "a b", "$HOME"].map(str::to_owned);
        assert_eq!(shell_line(&words), r"python train.py --name 'it'\''s' '' 'a b' '$HOME'");
    }
}
