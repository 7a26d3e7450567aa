//! Byte counts, durations and ages for tables in the terminal, with one unit each.

use std::time::Duration;

/// For example `310.0 MiB`, and `27 bytes` below 1 KiB.
pub fn format_bytes(bytes: u64) -> String {
    match bytes {
        1 => return "1 byte".to_owned(),
        0..1024 => return format!("{bytes} bytes"),
        _ => (),
    }
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

/// For example `0.4 s` or `5 min`.
pub fn format_millis(millis: u64) -> String {
    match millis {
        0..60_000 => format!("{:.1} s", millis as f64 / 1_000.0),
        60_000..3_600_000 => format!("{} min", millis / 60_000),
        _ => format!("{} h", millis / 3_600_000),
    }
}

/// How long ago something was: `2 min ago`.
pub fn format_age(age: Duration) -> String {
    match age.as_secs() {
        0..5 => "just now".to_owned(),
        seconds @ 5..120 => format!("{seconds} s ago"),
        seconds @ 120..7_200 => format!("{} min ago", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h ago", seconds / 3_600),
        seconds => format!("{} d ago", seconds / 86_400),
    }
}

/// A number with its noun: `1 node`, `4 nodes`.
pub fn format_count(n: i64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_the_unit_that_says_most() {
        let seconds = [0, 4, 5, 119, 120, 7_199, 7_200, 172_799, 172_800];
        let ages = seconds.map(|seconds| format_age(Duration::from_secs(seconds)));
        let expected = [
            "just now",
            "just now",
            "5 s ago",
            "119 s ago",
            "2 min ago",
            "119 min ago",
            "2 h ago",
            "47 h ago",
            "2 d ago",
        ];
        assert_eq!(ages, expected);
    }

    #[test]
    fn nouns_follow_their_number() {
        assert_eq!([0, 1, 2].map(|n| format_count(n, "node")), ["0 nodes", "1 node", "2 nodes"]);
    }

    #[test]
    fn one_unit_each() {
        assert_eq!([400, 61_000, 7_300_000].map(format_millis), ["0.4 s", "1 min", "2 h"]);
        assert_eq!(
            [0, 1, 1023, 1536, 5 << 30].map(format_bytes),
            ["0 bytes", "1 byte", "1023 bytes", "1.5 KiB", "5.0 GiB"]
        );
    }
}
