//! Request headers of mounts on other machines (`x-corro-…`). Pure.

use crate::protocol::error::StorageError;
use crate::protocol::request::StorageRequest;

/// On `comp=range`: extend the file if the range lies beyond its end.
pub(crate) fn grows_file(request: &StorageRequest) -> Result<bool, StorageError> {
    request.flag("x-corro-grow")
}

/// On creation: fail if the file exists.
pub(crate) fn is_exclusive(request: &StorageRequest) -> Result<bool, StorageError> {
    request.flag("x-corro-exclusive")
}

/// How a mount wants symbolic links reported (`x-corro-links`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkView {
    /// `true`: as links. The kernel of the mounting host resolves them.
    AsLinks,
    /// `false`: as their target. For the root directory of a mount.
    Followed,
    /// No header: mounts of the previous version know only files and directories. A link whose target is not a file of
    /// the share is reported as a file whose content is the target path, so that the mount does not descend into it.
    AsFiles,
}

impl LinkView {
    pub fn parse(request: &StorageRequest) -> Result<LinkView, StorageError> {
        const HEADER: &str = "x-corro-links";
        Ok(match (request.headers.contains_key(HEADER), request.flag(HEADER)?) {
            (true, true) => LinkView::AsLinks,
            (true, false) => LinkView::Followed,
            (false, _) => LinkView::AsFiles,
        })
    }
}
