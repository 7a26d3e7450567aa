//! Byte ranges of `x-ms-range` and `Range`, and their intersection with a file. Pure.

use crate::protocol::error::StorageError;
use crate::protocol::request::StorageRequest;

/// Range in a header; `last` is inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeSpec {
    /// `bytes=first-last`
    Closed { first: u64, last: u64 },
    /// `bytes=first-`
    From(u64),
    /// `bytes=-count`
    Last(u64),
}

/// Bytes of a file; `end` is exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteRange {
    pub start: u64,
    pub end: u64,
}

/// Range of a read; `None` is the whole file. `x-ms-range` has priority and must be valid; an invalid `Range` is
/// ignored, as RFC 9110 requires.
pub(crate) fn parse_read_range(request: &StorageRequest) -> Result<Option<RangeSpec>, StorageError> {
    if request.headers.contains_key("x-ms-range") {
        let spec = request.header("x-ms-range").and_then(parse);
        return spec.map(Some).ok_or(StorageError::invalid_header("x-ms-range"));
    }
    Ok(request.header("range").and_then(parse))
}

/// Offset and length of a write. Both ends are required.
pub(crate) fn parse_write_range(request: &StorageRequest) -> Result<(u64, u64), StorageError> {
    let text = request.header("x-ms-range").or(request.header("range"));
    match parse(text.ok_or(StorageError::missing_header("x-ms-range"))?) {
        Some(RangeSpec::Closed { first, last }) if last < u64::MAX => Ok((first, last - first + 1)),
        _ => Err(StorageError::invalid_header("x-ms-range")),
    }
}

/// Offset and length of the source of a write.
pub(crate) fn parse_source_range(request: &StorageRequest) -> Result<(u64, u64), StorageError> {
    const HEADER: &str = "x-ms-source-range";
    match parse(request.header(HEADER).ok_or(StorageError::missing_header(HEADER))?) {
        Some(RangeSpec::Closed { first, last }) if last < u64::MAX => Ok((first, last - first + 1)),
        _ => Err(StorageError::invalid_header(HEADER)),
    }
}

pub(crate) fn parse(text: &str) -> Option<RangeSpec> {
    let (first, last) = text.trim().strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse::<u64>().ok()).flatten()
    };
    match (first, last) {
        ("", count) => number(count).map(RangeSpec::Last),
        (first, "") => number(first).map(RangeSpec::From),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(RangeSpec::Closed { first, last })
        }
    }
}

impl RangeSpec {
    /// Clips the range to a file; `None` if nothing remains.
    pub fn clip(self, len: u64) -> Option<ByteRange> {
        let (start, end) = match self {
            RangeSpec::Closed { first, last } => (first, last.saturating_add(1).min(len)),
            RangeSpec::From(first) => (first, len),
            RangeSpec::Last(count) => (len.saturating_sub(count), len),
        };
        (start < end).then_some(ByteRange { start, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        let check = |text: &str, len: u64, expected: Option<(u64, u64)>| {
            let found = parse(text).expect(text).clip(len).map(|range| (range.start, range.end));
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
