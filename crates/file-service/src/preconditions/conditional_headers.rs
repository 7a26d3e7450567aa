//! Conditional headers of a request: `If-Match`, `If-None-Match`, `If-Modified-Since` and `If-Unmodified-Since`. Pure.
//! Applied to files. The file service ignores some of them on writes; to honour a condition is safer than to ignore it.

use std::time::{Duration, SystemTime};

use corro_shares::Stat;

use crate::protocol::error::StorageError;
use crate::protocol::request::StorageRequest;

#[derive(Debug, Default)]
pub(crate) struct ConditionalHeaders {
    matches: Option<String>,
    none_matches: Option<String>,
    modified_since: Option<SystemTime>,
    unmodified_since: Option<SystemTime>,
}

impl ConditionalHeaders {
    pub fn parse(request: &StorageRequest) -> Self {
        let text = |name: &str| request.header(name).map(str::to_owned);
        let date = |name: &str| request.header(name).and_then(|text| httpdate::parse_http_date(text).ok());
        ConditionalHeaders {
            matches: text("if-match"),
            none_matches: text("if-none-match"),
            modified_since: date("if-modified-since"),
            unmodified_since: date("if-unmodified-since"),
        }
    }

    /// Checks a read: 412, or 304 if the client has the current version.
    pub fn check_read(&self, stat: &Stat) -> Result<(), StorageError> {
        self.check(stat, "NotModified")
    }

    /// Checks a write: 412.
    pub fn check_write(&self, stat: &Stat) -> Result<(), StorageError> {
        self.check(stat, "ConditionNotMet")
    }

    /// Checks a write to a file that does not exist: no ETag matches.
    pub fn check_absent(&self) -> Result<(), StorageError> {
        match self.matches {
            Some(_) => Err(StorageError::new("ConditionNotMet")),
            None => Ok(()),
        }
    }

    fn check(&self, stat: &Stat, unchanged: &'static str) -> Result<(), StorageError> {
        let matches = |list: &str| list.split(',').map(str::trim).any(|tag| tag == "*" || tag == stat.etag);
        // Dates in headers have a resolution of one second.
        let newer = |than: SystemTime| stat.modified >= than + Duration::from_secs(1);
        let fails = match &self.matches {
            Some(list) => !matches(list),
            None => self.unmodified_since.is_some_and(newer),
        };
        if fails {
            return Err(StorageError::new("ConditionNotMet"));
        }
        let is_current = match &self.none_matches {
            Some(list) => matches(list),
            None => self.modified_since.is_some_and(|since| !newer(since)),
        };
        match is_current {
            true => Err(StorageError::new(unchanged)),
            false => Ok(()),
        }
    }
}
