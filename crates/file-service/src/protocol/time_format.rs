//! Date formats of response headers and documents: RFC 1123 and the SMB form with 100 ns. Pure.

use std::time::{Duration, SystemTime};

use corro_model::Timestamp;

/// RFC 1123 date. Times outside of its range, which jobs can set, are clamped.
pub(crate) fn http_date(time: SystemTime) -> String {
    const END_OF_9999: u64 = 253_402_300_799;
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let since = Duration::from_secs(since.as_secs().min(END_OF_9999));
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + since)
}

/// RFC 1123 date of Unix seconds.
pub(crate) fn http_date_of(seconds: i64) -> String {
    http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.max(0) as u64))
}

/// `2018-06-07T21:16:21.0000000Z`
pub(crate) fn smb_time(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let seconds = Timestamp::from(SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())).to_string();
    format!("{}.{:07}Z", seconds.trim_end_matches('Z'), since.subsec_nanos() / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_out_of_range_are_clamped() {
        let at = |seconds: u64, nanos: u32| SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos);
        assert_eq!(http_date(at(1_528_410_115, 5)), "Thu, 07 Jun 2018 22:21:55 GMT");
        assert_eq!(smb_time(at(1_528_410_115, 123_456_789)), "2018-06-07T22:21:55.1234567Z");
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(5);
        assert_eq!(http_date(before), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(smb_time(before), "1970-01-01T00:00:00.0000000Z");
        let far = at(1 << 42, 0);
        assert_eq!(http_date(far), "Fri, 31 Dec 9999 23:59:59 GMT");
        smb_time(far);
    }
}
