//! What was found out about small files that are read again and again: what is kept with each, and the headers that describe it. Entered by
//! `download`. It is good as long as the file has the same [`Mark`]. Every thread remembers by itself, so nobody waits for anybody.

use std::{cell::RefCell, sync::Arc};

use corro_shares::Mark;
use http::HeaderMap;

use crate::context::OperationContext;
use crate::context::running_copies::is_pending;
use crate::files::file_headers::{FileDescription, set_file_headers};
use crate::preconditions::{lease, lease_headers};
use crate::protocol::request::StorageRequest;

/// Files that one thread remembers, of a few kB each.
const CACHE_SLOTS: usize = 512;

/// A file, and what every answer about it says.
pub(crate) struct DescribedFile {
    pub described: FileDescription,
    headers: HeaderMap,
}

impl DescribedFile {
    pub fn of(context: &OperationContext<'_>, mut described: FileDescription) -> Self {
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

    /// Leases and copies end by themselves, and the file stays as it is.
    fn is_cacheable(&self) -> bool {
        !lease::has_lease(&self.described.properties) && !is_pending(&self.described.properties)
    }
}

/// What the headers depend on besides the file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct HeaderVariant {
    is_blob_service: bool,
    supports_smb_headers: bool,
    reports_leases: bool,
}

struct CacheEntry {
    version: Mark,
    variant: HeaderVariant,
    file: Arc<DescribedFile>,
}

thread_local! {
    static CACHE: RefCell<Vec<Option<CacheEntry>>> = RefCell::new((0..CACHE_SLOTS).map(|_| None).collect());
}

/// What is file of the file with this version, or else what `load` finds out. One without a version is not cached_count.
pub(crate) fn get_or_load(
    request: &StorageRequest,
    version: Option<Mark>,
    load: impl FnOnce() -> Option<DescribedFile>,
) -> Option<Arc<DescribedFile>> {
    let Some(version) = version else { return load().map(Arc::new) };
    let (is_blob_service, supports_smb_headers) = (request.is_blob_service, request.supports_smb_headers());
    let variant = HeaderVariant {
        is_blob_service,
        supports_smb_headers,
        reports_leases: lease_headers::reports_file_leases(request),
    };
    // Files that were made together have numbers next to each other.
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

/// How many files this thread remembers.
#[cfg(test)]
pub(crate) fn cached_count() -> usize {
    CACHE.with_borrow(|cache| cache.iter().flatten().count())
}
