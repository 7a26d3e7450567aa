//! Per-thread cache of attributes and response headers of small files that are read repeatedly. An entry is valid as
//! long as the file has the same [`FileVersion`].

use std::{cell::RefCell, sync::Arc};

use corro_shares::FileVersion;
use http::HeaderMap;

use crate::context::OperationContext;
use crate::context::running_copies::is_pending;
use crate::files::file_headers::{FileDescription, set_file_headers};
use crate::preconditions::{lease, lease_headers};
use crate::protocol::request::StorageRequest;

/// Entries per thread, a few kB each.
const CACHE_SLOTS: usize = 512;

/// A file with its response headers.
pub(crate) struct DescribedFile {
    pub described: FileDescription,
    headers: HeaderMap,
}

impl DescribedFile {
    pub fn new(context: &OperationContext<'_>, mut described: FileDescription) -> Self {
        context.state.copies.fail_if_interrupted(&mut described.properties);
        let mut headers = HeaderMap::new();
        set_file_headers(&mut headers, context.request, &described, (context.state.now)());
        DescribedFile { described, headers }
    }

    pub fn into_headers(self: Arc<Self>) -> HeaderMap {
        match Arc::try_unwrap(self) {
            Ok(own) => own.headers,
            Err(shared) => shared.headers.clone(),
        }
    }

    /// Leases and copies can end without a change of the file.
    fn is_cacheable(&self) -> bool {
        !lease::has_lease(&self.described.properties) && !is_pending(&self.described.properties)
    }
}

/// Properties of the request that the headers depend on.
#[derive(Clone, Copy, PartialEq, Eq)]
struct HeaderVariant {
    is_blob_service: bool,
    supports_smb_headers: bool,
    reports_leases: bool,
}

struct CacheEntry {
    version: FileVersion,
    variant: HeaderVariant,
    file: Arc<DescribedFile>,
}

thread_local! {
    static CACHE: RefCell<Vec<Option<CacheEntry>>> = RefCell::new((0..CACHE_SLOTS).map(|_| None).collect());
}

/// Returns the cached file, or loads and caches it. Without a version it is not cached.
pub(crate) fn get_or_load(
    request: &StorageRequest,
    version: Option<FileVersion>,
    load: impl FnOnce() -> Option<DescribedFile>,
) -> Option<Arc<DescribedFile>> {
    let Some(version) = version else { return load().map(Arc::new) };
    let (is_blob_service, supports_smb_headers) = (request.is_blob_service, request.supports_smb_headers());
    let variant = HeaderVariant {
        is_blob_service,
        supports_smb_headers,
        reports_leases: lease_headers::reports_file_leases(request),
    };
    // Files created together have consecutive inode numbers.
    let slot = (version.id() % CACHE_SLOTS as u64) as usize;
    CACHE.with_borrow_mut(|cache| {
        if let Some(entry) = cache[slot].as_ref().filter(|entry| entry.version == version && entry.variant == variant) {
            return Some(entry.file.clone());
        }
        let file = Arc::new(load()?);
        cache[slot] = file.is_cacheable().then(|| CacheEntry { version, variant, file: file.clone() });
        Some(file)
    })
}

/// Number of entries of this thread.
#[cfg(test)]
pub(crate) fn cached_count() -> usize {
    CACHE.with_borrow(|cache| cache.iter().flatten().count())
}
