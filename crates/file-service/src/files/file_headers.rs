//! Response headers that describe a file.

use corro_shares::{Kind, Properties, Share, ShareError, SharePath, Stat};
use http::{HeaderMap, HeaderValue, header};

use crate::preconditions::lease::Lease;
use crate::preconditions::lease_headers;
use crate::protocol::metadata_headers;
use crate::protocol::request::StorageRequest;
use crate::protocol::response::{self, header_name};
use crate::protocol::time_format::http_date;

/// Attributes of a file that response headers describe.
pub(crate) struct FileDescription {
    pub stat: Stat,
    pub properties: Properties,
    pub parent: u64,
}

/// Sets the headers that describe a file, for HEAD and GET.
pub(crate) fn set_file_headers(headers: &mut HeaderMap, request: &StorageRequest, file: &FileDescription, now: i64) {
    let FileDescription { stat, properties, parent } = file;
    // Reserving once is cheaper than growing the map step by step.
    headers.reserve(FILE_HEADER_COUNT);
    response::set_etag_and_modified(headers, stat);
    response::set_smb_headers(headers, request, (stat, properties), *parent);
    if request.is_blob_service || lease_headers::reports_file_leases(request) {
        lease_headers::set_lease_headers(headers, &Lease::load(properties, now));
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    metadata_headers::set_headers(headers, properties);
    if stat.kind == Kind::Link {
        // As later versions of the service describe symbolic links on NFS shares: the content is the link's target
        // path.
        headers.insert(header_name!("x-ms-file-file-type"), HeaderValue::from_static("SymLink"));
    }
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    match request.is_blob_service {
        false => headers.insert(header_name!("x-ms-type"), HeaderValue::from_static("File")),
        true => {
            response::set_owned_header(headers, header_name!("x-ms-creation-time"), http_date(stat.created));
            headers.insert(header_name!("x-ms-blob-type"), HeaderValue::from_static("BlockBlob"))
        }
    };
    headers.insert(header_name!("x-ms-server-encrypted"), HeaderValue::from_static("true"));
}

/// Headers of a response about a file, including those that all responses have.
const FILE_HEADER_COUNT: usize = 24;

/// Id of the parent directory. 0 for the root, as in Azure, and if the parent was just removed.
pub(crate) fn parent_id(share: &Share, path: &SharePath) -> u64 {
    let parent = path.split().map(|(parent, _)| share.stat(&parent));
    parent.and_then(Result::<Stat, ShareError>::ok).map(|stat| stat.id).unwrap_or_default()
}
