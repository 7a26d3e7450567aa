//! What writing to a file needs besides the bytes: that nothing stands against it, and that the time of the last write
//! is what the request wants it to be.

use axum::response::Response;
use corro_shares::{Properties, Share, Stat};

use crate::context::Place;
use crate::preconditions::Guard;
use crate::protocol::error::Refusal;
use crate::protocol::request::Call;
use crate::protocol::response;
use crate::protocol::smb_properties::{self, Shown};

pub(crate) struct Writing {
    guard: Guard,
    /// The time of the last write stays what it was.
    preserves: bool,
}

pub(crate) struct Written {
    stat: Stat,
    properties: Properties,
}

impl Writing {
    pub fn of(call: &Call, now: i64) -> Result<Self, Refusal> {
        const HEADER: &str = "x-ms-file-last-write-time";
        let preserves = match call.headers.contains_key(HEADER).then(|| call.header(HEADER)) {
            None => false,
            Some(Some(word)) if word.eq_ignore_ascii_case("now") => false,
            Some(Some(word)) if word.eq_ignore_ascii_case("preserve") => true,
            Some(_) => return Err(Refusal::header(HEADER)),
        };
        Ok(Writing { guard: Guard::of(call, now)?, preserves })
    }

    pub fn perform(
        self,
        share: &Share,
        place: &Place,
        write: impl FnOnce(&Share, &Place) -> Result<Stat, Refusal>,
    ) -> Result<Written, Refusal> {
        self.guard.check_write(share, &place.path)?;
        let before = match self.preserves {
            true => share.describe(&place.path).ok().map(|(stat, properties)| Shown::of(&stat, &properties).written),
            false => None,
        };
        let mut stat = write(share, place)?;
        let mut properties = Properties::default();
        if let Some(before) = before {
            (stat, properties) = share.note_properties(&place.path, |kept, stat| {
                smb_properties::preserve_written(kept, &before, stat);
                Ok::<_, Refusal>(kept.clone())
            })?;
        }
        Ok(Written { stat, properties })
    }
}

impl Written {
    pub fn answer(&self, call: &Call) -> Response {
        let mut response = response::empty(201);
        let headers = response.headers_mut();
        response::set_stat(headers, &self.stat);
        response::set(headers, "x-ms-request-server-encrypted", "true");
        if call.speaks_smb() {
            let shown = Shown::of(&self.stat, &self.properties);
            response::set(headers, "x-ms-file-last-write-time", &shown.written);
        }
        response
    }
}
