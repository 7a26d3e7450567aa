//! Times and durations in Python's format, as `az` prints them and scripts expect. Text that is not a time is passed through.

use std::time::Duration;

use corro_model::Timestamp;

/// `2018-06-21T17:15:18.288Z` becomes `2018-06-21T17:15:18.288000+00:00`; a zero fraction is dropped.
pub fn date_time(wire: &str) -> String {
    iso_date_time(wire).unwrap_or_else(|| wire.to_owned())
}

/// `P7D` (or .NET's `7.00:00:00`) becomes `7 days, 0:00:00`.
pub fn duration(wire: &str) -> String {
    let micros = iso_duration(wire).or_else(|| dotnet_duration(wire));
    micros.map_or_else(|| wire.to_owned(), python_timedelta)
}

/// A time in a sentence: `2018-06-21 17:15:18.288000+00:00`.
pub fn python_date_time(time: Timestamp) -> String {
    date_time(&time.to_string()).replacen('T', " ", 1)
}

/// A duration in a sentence: `1:01:01`.
pub fn python_duration(duration: Duration) -> String {
    python_timedelta(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX))
}

fn iso_date_time(wire: &str) -> Option<String> {
    let (seconds, rest) = wire.split_at_checked(19)?;
    let well_formed = seconds.bytes().enumerate().all(|(at, byte)| match at {
        4 | 7 => byte == b'-',
        10 => byte == b'T' || byte == b' ',
        13 | 16 => byte == b':',
        _ => byte.is_ascii_digit(),
    });
    if !well_formed {
        return None;
    }
    let zone_at = rest.find(['Z', 'z', '+', '-'])?;
    let (fraction, zone) = rest.split_at(zone_at);
    let zone = match zone {
        "Z" | "z" => "+00:00",
        zone if zone.len() == 6 && zone.as_bytes()[3] == b':' => zone,
        _ => return None,
    };
    let micros = match fraction.strip_prefix('.') {
        None if fraction.is_empty() => String::new(),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            let digits: String = digits.chars().chain("000000".chars()).take(6).collect();
            if digits == "000000" { String::new() } else { format!(".{digits}") }
        }
        _ => return None,
    };
    Some(format!("{}T{}{micros}{zone}", &seconds[..10], &seconds[11..]))
}

/// Microseconds of an ISO 8601 duration in weeks, days, hours, minutes and seconds. Years and months have no fixed length.
fn iso_duration(text: &str) -> Option<i64> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let text = text.strip_prefix('P')?;
    let (mut total, mut number, mut in_time, mut parts) = (0_i64, String::new(), false, 0);
    for character in text.chars() {
        let unit_seconds = match character {
            '0'..='9' | '.' => {
                number.push(character);
                continue;
            }
            'T' if !in_time && number.is_empty() => {
                in_time = true;
                continue;
            }
            'W' if !in_time => 7 * 86_400,
            'D' if !in_time => 86_400,
            'H' if in_time => 3_600,
            'M' if in_time => 60,
            'S' if in_time => 1,
            _ => return None,
        };
        total = total.checked_add(micros(&number)?.checked_mul(unit_seconds)?)?;
        number.clear();
        parts += 1;
    }
    let complete = number.is_empty() && parts > 0;
    complete.then_some(if negative { -total } else { total })
}

/// Microseconds of `[days.]hh:mm:ss[.fraction]`.
fn dotnet_duration(text: &str) -> Option<i64> {
    let (before, seconds) = text.rsplit_once(':')?;
    let (before, minutes) = before.rsplit_once(':')?;
    let (days, hours) = before.split_once('.').unwrap_or(("0", before));
    let whole_minutes =
        micros(days)? / 1_000_000 * 1_440 + micros(hours)? / 1_000_000 * 60 + micros(minutes)? / 1_000_000;
    whole_minutes.checked_mul(60_000_000)?.checked_add(micros(seconds)?)
}

/// A decimal number times a million, exactly.
fn micros(number: &str) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction: String = fraction.chars().chain("000000".chars()).take(6).collect();
    whole.parse::<i64>().ok()?.checked_mul(1_000_000)?.checked_add(fraction.parse().ok()?)
}

fn python_timedelta(micros: i64) -> String {
    // Python normalises so that only the days can be negative.
    let days = micros.div_euclid(86_400_000_000);
    let rest = micros.rem_euclid(86_400_000_000);
    let (seconds, fraction) = (rest / 1_000_000, rest % 1_000_000);
    let mut text = match days {
        0 => String::new(),
        1 | -1 => format!("{days} day, "),
        _ => format!("{days} days, "),
    };
    text += &format!("{}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60);
    if fraction != 0 {
        text += &format!(".{fraction:06}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_times() {
        for (wire, printed) in [
            ("2018-06-21T17:15:18.288Z", "2018-06-21T17:15:18.288000+00:00"),
            ("2018-06-07T21:16:21.13Z", "2018-06-07T21:16:21.130000+00:00"),
            ("2018-07-18T22:41:28Z", "2018-07-18T22:41:28+00:00"),
            ("2018-07-18T22:41:28.000Z", "2018-07-18T22:41:28+00:00"),
            ("2018-07-18T22:41:28.1234567Z", "2018-07-18T22:41:28.123456+00:00"),
            ("2018-07-18T22:41:28+02:00", "2018-07-18T22:41:28+02:00"),
            ("yesterday", "yesterday"),
            ("2018-07-18T22:41:28", "2018-07-18T22:41:28"),
            ("ééééééééééééééééééé", "ééééééééééééééééééé"),
        ] {
            assert_eq!(date_time(wire), printed, "{wire}");
        }
    }

    #[test]
    fn durations() {
        for (wire, printed) in [
            ("P7D", "7 days, 0:00:00"),
            ("7.00:00:00", "7 days, 0:00:00"),
            ("P1DT2H3M4S", "1 day, 2:03:04"),
            ("PT90M", "1:30:00"),
            ("PT0.5S", "0:00:00.500000"),
            ("P1W", "7 days, 0:00:00"),
            ("00:10:00", "0:10:00"),
            ("-PT1S", "-1 day, 23:59:59"),
            ("P1Y", "P1Y"),
            ("P", "P"),
            ("soon", "soon"),
        ] {
            assert_eq!(duration(wire), printed, "{wire}");
        }
    }
}
