//! ConditionalHeaders of a request: `If-Match`, `If-None-Match` and the two dates, as HTTP has them. Pure. Looked at for files
//! only, as the file service does; to pass over one that stands on a write would be worse than to keep it.

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

    /// Refuses a read that its own conditions rule out: 412, or 304 when the caller has it already.
    pub fn check_read(&self, stat: &Stat) -> Result<(), StorageError> {
        self.check(stat, "NotModified")
    }

    /// The same for a write, which is never answered with 304.
    pub fn check_write(&self, stat: &Stat) -> Result<(), StorageError> {
        self.check(stat, "ConditionNotMet")
    }

    /// For something that is not there yet: nothing matches it.
    pub fn check_absent(&self) -> Result<(), StorageError> {
        match self.matches {
            Some(_) => Err(StorageError::new("ConditionNotMet")),
            None => Ok(()),
        }
    }

    fn check(&self, stat: &Stat, unchanged: &'static str) -> Result<(), StorageError> {
        let matches = |list: &str| list.split(',').map(str::trim).any(|tag| tag == "*" || tag == stat.etag);
        // Dates in headers have whole seconds.
        let newer = |than: SystemTime| stat.modified >= than + Duration::from_secs(1);
        let fails = match &self.matches {
            Some(list) => !matches(list),
            None => self.unmodified_since.is_some_and(newer),
        };
        if fails {
            return Err(StorageError::new("ConditionNotMet"));
        }
        let known = match &self.none_matches {
            Some(list) => matches(list),
            None => self.modified_since.is_some_and(|since| !newer(since)),
        };
        match known {
            true => Err(StorageError::new(unchanged)),
            false => Ok(()),
        }
    }
}
