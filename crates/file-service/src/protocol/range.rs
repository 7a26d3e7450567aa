//! Byte ranges: what `x-ms-range` and `Range` ask for, and what of it a file of some length has.
//! Pure.

use crate::protocol::error::Refusal;
use crate::protocol::request::Call;

/// A range as asked; `last` included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// `bytes=first-last`
    Closed { first: u64, last: u64 },
    /// `bytes=first-`
    From(u64),
    /// `bytes=-count`
    Last(u64),
}

/// The bytes of a file that answer a request; `end` excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub start: u64,
    pub end: u64,
}

/// The range of a read; None means the whole file. `x-ms-range` wins and must be right; a plain
/// `Range` that makes no sense is ignored, as HTTP wants it.
pub(crate) fn of_read(call: &Call) -> Result<Option<Asked>, Refusal> {
    if call.headers.contains_key("x-ms-range") {
        let asked = call.header("x-ms-range").and_then(parse);
        return asked.map(Some).ok_or(Refusal::header("x-ms-range"));
    }
    Ok(call.header("range").and_then(parse))
}

/// The range of a write, which must have both ends: first byte and how many.
pub(crate) fn of_write(call: &Call) -> Result<(u64, u64), Refusal> {
    let text = call.header("x-ms-range").or(call.header("range"));
    match parse(text.ok_or(Refusal::missing_header("x-ms-range"))?) {
        Some(Asked::Closed { first, last }) if last < u64::MAX => Ok((first, last - first + 1)),
        _ => Err(Refusal::header("x-ms-range")),
    }
}

/// The range of the source of a write.
pub(crate) fn of_source(call: &Call) -> Result<(u64, u64), Refusal> {
    const HEADER: &str = "x-ms-source-range";
    match parse(call.header(HEADER).ok_or(Refusal::missing_header(HEADER))?) {
        Some(Asked::Closed { first, last }) if last < u64::MAX => Ok((first, last - first + 1)),
        _ => Err(Refusal::header(HEADER)),
    }
}

pub(crate) fn parse(text: &str) -> Option<Asked> {
    let (first, last) = text.trim().strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse::<u64>().ok()).flatten()
    };
    match (first, last) {
        ("", count) => number(count).map(Asked::Last),
        (first, "") => number(first).map(Asked::From),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Asked::Closed { first, last })
        }
    }
}

impl Asked {
    /// Clipped to the file; None when the file has none of it.
    pub fn within(self, len: u64) -> Option<Part> {
        let (start, end) = match self {
            Asked::Closed { first, last } => (first, last.saturating_add(1).min(len)),
            Asked::From(first) => (first, len),
            Asked::Last(count) => (len.saturating_sub(count), len),
        };
        (start < end).then_some(Part { start, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        let check = |text: &str, len: u64, expected: Option<(u64, u64)>| {
            let found = parse(text).expect(text).within(len).map(|part| (part.start, part.end));
            assert_eq!(found, expected, "{text} of {len}");
        };
        check("bytes=0-33554431", 10, Some((0, 10)));
        check("bytes=0-0", 10, Some((0, 1)));
        check("bytes=9-9", 10, Some((9, 10)));
        check("bytes=9-", 10, Some((9, 10)));
        check("bytes=10-", 10, None);
        check("bytes=10-20", 10, None);
        check("bytes=0-", 0, None);
        check("bytes=0-33554431", 0, None);
        check("bytes=-3", 10, Some((7, 10)));
        check("bytes=-30", 10, Some((0, 10)));
        check("bytes=-0", 10, None);
        check("bytes=0-18446744073709551615", 10, Some((0, 10)));
        for text in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "bytes=5-4",
            "bytes=0-1,3-4",
            "items=0-1",
            "bytes=+1-2",
            "bytes=1 -2",
            "bytes=99999999999999999999-",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
