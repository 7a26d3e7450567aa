//! Formats progress lines exactly as Keras 2 does. Pure.

use std::time::Duration;

const WIDTH: usize = 30;

/// `  12/1563 [>.............................]`
pub fn format_bar(done: usize, all: usize) -> String {
    let digits = all.to_string().len();
    let filled = (WIDTH * done.min(all)).checked_div(all).unwrap_or(WIDTH);
    let head = match (filled, done < all) {
        (0, _) => "",
        (_, true) => ">",
        (_, false) => "=",
    };
    let (body, rest) = ("=".repeat(filled.saturating_sub(1)), ".".repeat(WIDTH - filled));
    format!("{done:>digits$}/{all} [{body}{head}{rest}]")
}

/// Remaining time: `9s`, `9:16`, `2:42:25`.
pub fn format_eta(left: Duration) -> String {
    let seconds = left.as_secs();
    match left.as_secs_f64() {
        long if long > 3600.0 => format!("{}:{:02}:{:02}", seconds / 3600, seconds % 3600 / 60, seconds % 60),
        some if some > 60.0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        _ => format!("{seconds}s"),
    }
}

/// Elapsed time, in total and per step: `42s 27ms/step`.
pub fn format_elapsed(all: Duration, units: usize) -> String {
    let each = all.as_secs_f64() / units.max(1) as f64;
    let each = match each {
        long if long >= 1.0 => format!("{each:.0}s"),
        some if some >= 1e-3 => format!("{:.0}ms", each * 1e3),
        _ => format!("{:.0}us", each * 1e6),
    };
    format!("{:.0}s {each}/step", all.as_secs_f64())
}

/// ` - loss: 1.9312 - acc: 0.2893`
pub fn format_metrics(metrics: &[(&str, f64)]) -> String {
    metrics.iter().map(|(name, value)| format!(" - {name}: {}", format_value(*value))).collect()
}

/// Four decimals, or scientific notation for values too small for them.
fn format_value(value: f64) -> String {
    if value.abs() > 1e-3 || !value.is_finite() {
        return format!("{value:.4}").replace("NaN", "nan");
    }
    // Python prints at least two digits of the exponent, and its sign.
    let text = format!("{value:.4e}");
    let (digits, exponent) = text.split_once('e').expect("it was asked for");
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
    format!("{digits}e{sign}{exponent:0>2}")
}

/// The line after `done` of `all` steps, `elapsed` after the start.
pub fn progress_line(done: usize, all: usize, elapsed: Duration, metrics: &[(&str, f64)]) -> String {
    let left = elapsed.div_f64(done.max(1) as f64).mul_f64(all.saturating_sub(done) as f64);
    format!("{} - ETA: {}{}", format_bar(done, all), format_eta(left), format_metrics(metrics))
}

/// The line when all are done.
pub fn final_line(all: usize, elapsed: Duration, metrics: &[(&str, f64)]) -> String {
    format!("{} - {}{}", format_bar(all, all), format_elapsed(elapsed, all), format_metrics(metrics))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// Lines that Keras 2 has printed, among them those of the tutorial.
    #[test]
    fn progress_lines_match_keras() {
        for (done, all, elapsed, shown, expected) in [
            (
                1,
                1563,
                6.2389,
                [2.3334, 0.03125],
                "   1/1563 [..............................] - ETA: 2:42:25 - loss: 2.3334 - acc: 0.0312",
            ),
            (
                1,
                1563,
                1.1757,
                [2.3175, 0.125],
                "   1/1563 [..............................] - ETA: 30:36 - loss: 2.3175 - acc: 0.1250",
            ),
            (
                4,
                1563,
                1.42671,
                [2.3316, 0.1015625],
                "   4/1563 [..............................] - ETA: 9:16 - loss: 2.3316 - acc: 0.1016",
            ),
            (
                521,
                1563,
                20.0,
                [1.9, 0.29],
                " 521/1563 [=========>....................] - ETA: 40s - loss: 1.9000 - acc: 0.2900",
            ),
            (
                1562,
                1563,
                60.0,
                [1.9, 0.29],
                "1562/1563 [============================>.] - ETA: 0s - loss: 1.9000 - acc: 0.2900",
            ),
            (
                53,
                1563,
                60.0,
                [1.0e-3, 0.0],
                "  53/1563 [>.............................] - ETA: 28:29 - loss: 1.0000e-03 - acc: 0.0000e+00",
            ),
        ] {
            let [loss, acc] = shown;
            assert_eq!(progress_line(done, all, seconds(elapsed), &[("loss", loss), ("acc", acc)]), expected);
        }
    }

    #[test]
    fn final_lines_match_keras() {
        for (all, elapsed, shown, expected) in [
            (
                1563,
                42.2,
                &[("loss", 1.9312), ("acc", 0.28934), ("val_loss", 1.60421), ("val_acc", 0.41229)][..],
                "1563/1563 [==============================] - 42s 27ms/step - loss: 1.9312 - acc: 0.2893 - val_loss: 1.6042 - val_acc: 0.4123",
            ),
            (10000, 2.31, &[], "10000/10000 [==============================] - 2s 231us/step"),
            (5, 12.6, &[("loss", f64::NAN)], "5/5 [==============================] - 13s 3s/step - loss: nan"),
            (1, 0.0, &[("loss", 1.2e-11)], "1/1 [==============================] - 0s 0us/step - loss: 1.2000e-11"),
        ] {
            assert_eq!(final_line(all, seconds(elapsed), shown), expected);
        }
    }

    #[test]
    fn remaining_times_match_keras() {
        for (left, expected) in
            [(0.0, "0s"), (59.9, "59s"), (60.0, "60s"), (60.5, "1:00"), (3600.0, "60:00"), (3601.0, "1:00:01")]
        {
            assert_eq!(format_eta(seconds(left)), expected);
        }
    }
}
