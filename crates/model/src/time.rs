//! Timestamps in the service's format: UTC, milliseconds, trailing zeros trimmed (`2018-06-07T21:16:21.13Z`). Nothing
//! here reads a clock: the current time is always an argument.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Milliseconds since 1970 in UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    pub const fn millis(self) -> i64 {
        self.0
    }

    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span.as_millis() as i64))
    }

    /// Duration since `earlier`; zero when `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0).max(0) as u64)
    }

    /// Format inside node ids: `20180718t174802z`.
    pub fn compact(self) -> String {
        self.civil().strftime("%Y%m%dt%H%M%Sz").to_string()
    }

    /// Format of file times and log lines: `2018-06-07T21:16:21Z`.
    pub fn whole_seconds(self) -> String {
        self.civil().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<jiff::Timestamp>().ok().map(|t| Self(t.as_millisecond()))
    }

    /// Slow path of formatting; also handles years before 0.
    fn by_pattern(self) -> String {
        let whole = self.civil().strftime("%Y-%m-%dT%H:%M:%S").to_string();
        match self.0.rem_euclid(1000) {
            0 => format!("{whole}Z"),
            millis => format!("{whole}.{}Z", format!("{millis:03}").trim_end_matches('0')),
        }
    }

    fn civil(self) -> jiff::civil::DateTime {
        let time = jiff::Timestamp::from_millisecond(self.0).unwrap_or_default();
        jiff::tz::Offset::UTC.to_datetime(time)
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(span) => Self(span.as_millis() as i64),
            Err(before) => Self(-(before.duration().as_millis() as i64)),
        }
    }
}

/// Formats the digits by hand, since a page of jobs has thousands of timestamps.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (time, millis) = (self.civil(), self.0.rem_euclid(1000) as u16);
        let Ok(year) = u16::try_from(time.year()) else { return f.write_str(&self.by_pattern()) };
        let mut text = *b"0000-00-00T00:00:00.000Z";
        put(&mut text[..4], year);
        let parts = [time.month(), time.day(), time.hour(), time.minute(), time.second()];
        for (part, at) in parts.into_iter().zip([5, 8, 11, 14, 17]) {
            put(&mut text[at..at + 2], part.unsigned_abs().into());
        }
        put(&mut text[20..23], millis);
        let end = match millis {
            0 => 19,
            millis if millis % 100 == 0 => 21,
            millis if millis % 10 == 0 => 22,
            _ => 23,
        };
        text[end] = b'Z';
        f.write_str(std::str::from_utf8(&text[..=end]).expect("digits and separators are ASCII"))
    }
}

/// Writes a number into a field, padded with zeros.
fn put(place: &mut [u8], mut number: u16) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom(format!("'{text}' is not an ISO 8601 time")))
    }
}

/// A duration on the wire: serialized as ISO 8601 (`P7D`), parsed from ISO 8601 or the .NET form (`7.00:00:00`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

impl Span {
    pub const fn days(days: u64) -> Self {
        Self(Duration::from_secs(days * 86_400))
    }

    /// The two largest units, for sentences: `40 s`, `1 h 30 min`. Smaller ones are cut off.
    pub fn in_words(self) -> String {
        let total = self.0.as_secs();
        let units = [(total / 86_400, "d"), (total / 3_600 % 24, "h"), (total / 60 % 60, "min"), (total % 60, "s")];
        let largest = units.iter().position(|(count, _)| *count > 0).unwrap_or(units.len() - 1);
        let second = units.get(largest + 1).filter(|(count, _)| *count > 0);
        let words =
            [Some(&units[largest]), second].into_iter().flatten().map(|(count, unit)| format!("{count} {unit}"));
        words.collect::<Vec<_>>().join(" ")
    }

    pub fn parse(text: &str) -> Option<Self> {
        if text.starts_with('P') {
            let span = text.parse::<jiff::Span>().ok()?;
            let whole = span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok()?;
            return Duration::try_from(whole).ok().map(Self);
        }
        Self::parse_dotnet(text)
    }

    /// Parses `[d.]hh:mm:ss`.
    fn parse_dotnet(text: &str) -> Option<Self> {
        let (days, clock) = match text.split_once('.') {
            Some((days, clock)) => (days.parse::<u64>().ok()?, clock),
            None => (0, text),
        };
        let mut parts = clock.split(':').map(|part| part.parse::<u64>().ok());
        let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
        if parts.next().is_some() || hours > 23 || minutes > 59 || seconds > 59 || days > 1_000_000 {
            return None;
        }
        Some(Self(Duration::from_secs(days * 86_400 + hours * 3_600 + minutes * 60 + seconds)))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.0.as_secs();
        let (days, hours, minutes, seconds) = (total / 86_400, total / 3_600 % 24, total / 60 % 60, total % 60);
        f.write_str("P")?;
        if days > 0 {
            write!(f, "{days}D")?;
        }
        if total == 0 {
            return f.write_str("T0S");
        }
        if total.is_multiple_of(86_400) {
            return Ok(());
        }
        f.write_str("T")?;
        for (count, unit) in [(hours, 'H'), (minutes, 'M'), (seconds, 'S')] {
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        Ok(())
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| D::Error::custom(format!("'{text}' is not a duration: write it as 'P7D' or '7.00:00:00'")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_service_wrote_them() {
        for text in ["2018-06-07T21:16:21.13Z", "2018-06-06T18:39:26.491Z", "2018-07-18T22:41:28Z"] {
            assert_eq!(Timestamp::parse(text).map(|t| t.to_string()).as_deref(), Some(text));
        }
        let time = Timestamp::parse("2018-07-18T17:48:02.5Z").expect("a valid time");
        assert_eq!(time.compact(), "20180718t174802z");
        assert_eq!(time.whole_seconds(), "2018-07-18T17:48:02Z");
    }

    #[test]
    fn writing_by_hand_is_writing_by_pattern() {
        let around = [-377_705_000_000_000, -62_167_219_200_000, -1, 0, 951_782_400_000, 253_402_000_000_000, i64::MAX];
        for start in around {
            for n in 0..2_000_i64 {
                // Steps of about eight hours that cover all parts of a second.
                let time = Timestamp::from_millis(start.saturating_add(n * 28_799_990 + n % 7));
                assert_eq!(time.to_string(), time.by_pattern());
            }
        }
    }

    #[test]
    fn durations_in_sentences_have_two_units() {
        for (seconds, expected) in [
            (0, "0 s"),
            (5, "5 s"),
            (60, "1 min"),
            (125, "2 min 5 s"),
            (3_605, "1 h"),
            (5_400, "1 h 30 min"),
            (200_000, "2 d 7 h"),
        ] {
            assert_eq!(Span(Duration::from_secs(seconds)).in_words(), expected);
        }
    }

    #[test]
    fn durations_are_read_in_both_forms() {
        let check = |text: &str, seconds: u64, printed: &str| {
            let span = Span::parse(text).unwrap_or_else(|| panic!("{text} should parse"));
            assert_eq!((span.0.as_secs(), span.to_string().as_str()), (seconds, printed), "{text}");
        };
        check("P7D", 604_800, "P7D");
        check("7.00:00:00", 604_800, "P7D");
        check("PT1H30M", 5_400, "PT1H30M");
        check("00:00:10", 10, "PT10S");
        check("1.02:03:04", 93_784, "P1DT2H3M4S");
        assert_eq!(Span::parse("soon"), None);
        assert_eq!(Span::parse("00:61:00"), None);
    }
}
