//! Byte counts and durations for tables in the terminal, with one unit each.

/// For example `310.0 MiB`.
pub fn format_bytes(bytes: u64) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_unit_each() {
        assert_eq!([400, 61_000, 7_300_000].map(format_millis), ["0.4 s", "1 min", "2 h"]);
        assert_eq!([512, 5 << 30].map(format_bytes), ["0.5 KiB", "5.0 GiB"]);
    }
}
