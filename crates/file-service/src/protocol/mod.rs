//! The wire protocol of the file and blob services: requests, operations, errors, headers and XML documents. Pure: no disk access.

pub(crate) mod cors;
pub(crate) mod crc64;
pub(crate) mod error;
pub(crate) mod error_codes;
pub(crate) mod error_response;
pub(crate) mod listing;
pub(crate) mod metadata_headers;
pub(crate) mod mount_headers;
pub(crate) mod operation;
pub(crate) mod range;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod smb_properties;
pub(crate) mod time_format;
pub(crate) mod xml;
