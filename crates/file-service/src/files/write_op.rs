//! Common part of all writes to a file: preconditions, and the last write time that the request asks for.

use axum::response::Response;
use corro_shares::{Properties, Share, Stat};

use crate::context::Location;
use crate::preconditions::Preconditions;
use crate::protocol::error::StorageError;
use crate::protocol::request::StorageRequest;
use crate::protocol::response;
use crate::protocol::smb_properties::{self, SmbProperties};

pub(crate) struct WriteOp {
    preconditions: Preconditions,
    /// `x-ms-file-last-write-time: preserve`
    preserves_last_write_time: bool,
}

pub(crate) struct WriteResult {
    stat: Stat,
    properties: Properties,
}

impl WriteOp {
    pub fn parse(request: &StorageRequest, now: i64) -> Result<Self, StorageError> {
        const HEADER: &str = "x-ms-file-last-write-time";
        let preserves_last_write_time = match request.headers.contains_key(HEADER).then(|| request.header(HEADER)) {
            None => false,
            Some(Some(word)) if word.eq_ignore_ascii_case("now") => false,
            Some(Some(word)) if word.eq_ignore_ascii_case("preserve") => true,
            Some(_) => return Err(StorageError::invalid_header(HEADER)),
        };
        Ok(WriteOp { preconditions: Preconditions::parse(request, now)?, preserves_last_write_time })
    }

    pub fn execute(
        self,
        share: &Share,
        location: &Location,
        write: impl FnOnce(&Share, &Location) -> Result<Stat, StorageError>,
    ) -> Result<WriteResult, StorageError> {
        self.preconditions.check_write(share, &location.path)?;
        let before = match self.preserves_last_write_time {
            true => share
                .describe(&location.path)
                .ok()
                .map(|(stat, properties)| SmbProperties::load(&stat, &properties).written),
            false => None,
        };
        let mut stat = write(share, location)?;
        let mut properties = Properties::default();
        if let Some(before) = before {
            (stat, properties) = share.change_properties_keep_mtime(&location.path, |stored, stat| {
                smb_properties::keep_last_write_time(stored, &before, stat);
                Ok::<_, StorageError>(stored.clone())
            })?;
        }
        Ok(WriteResult { stat, properties })
    }
}

impl WriteResult {
    pub fn to_response(&self, request: &StorageRequest) -> Response {
        let mut response = response::empty(201);
        let headers = response.headers_mut();
        response::set_etag_and_modified(headers, &self.stat);
        response::set_header(headers, "x-ms-request-server-encrypted", "true");
        if request.supports_smb_headers() {
            let smb = SmbProperties::load(&self.stat, &self.properties);
            response::set_header(headers, "x-ms-file-last-write-time", &smb.written);
        }
        response
    }
}
