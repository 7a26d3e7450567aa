//! Conditions on a read: `If-Match`, `If-None-Match` and the two dates, as HTTP has them. Pure. The file service looks
//! at them for files only.

use std::time::{Duration, SystemTime};

use corro_shares::Stat;

use super::{call::Call, refusal::Refusal};

/// Refuses a read that its own conditions rule out: 412, or 304 when the caller has it already.
pub(super) fn check(call: &Call, stat: &Stat) -> Result<(), Refusal> {
    let matches = |list: &str| list.split(',').map(str::trim).any(|tag| tag == "*" || tag == stat.etag);
    let date = |name: &str| call.header(name).and_then(|text| httpdate::parse_http_date(text).ok());
    // Dates in headers have whole seconds.
    let newer = |than: SystemTime| stat.modified >= than + Duration::from_secs(1);
    match call.header("if-match") {
        Some(list) if !matches(list) => return Err(Refusal::new("ConditionNotMet")),
        Some(_) => {}
        None if date("if-unmodified-since").is_some_and(newer) => return Err(Refusal::new("ConditionNotMet")),
        None => {}
    }
    let unchanged = match call.header("if-none-match") {
        Some(list) => matches(list),
        None => date("if-modified-since").is_some_and(|since| !newer(since)),
    };
    match unchanged {
        true => Err(Refusal::new("NotModified")),
        false => Ok(()),
    }
}
