//! Request headers of mounts on other machines (`x-corro-…`). Pure.

use crate::protocol::error::StorageError;
use crate::protocol::request::StorageRequest;

/// On a `comp=range`: the file grows_file where it is too short.
pub(crate) fn grows_file(request: &StorageRequest) -> Result<bool, StorageError> {
    request.flag("x-corro-grow")
}

/// On the making of a file: one that is there is left alone.
pub(crate) fn is_exclusive(request: &StorageRequest) -> Result<bool, StorageError> {
    request.flag("x-corro-exclusive")
}

/// How a mount wants to see links, by its header `x-corro-links`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkView {
    /// As links (`true`): the kernel of the mounting machine resolves them.
    AsLinks,
    /// As what they lead to (`false`), for the directory that is mounted.
    Followed,
    /// Without the header: earlier mounts know only files and directories. A link that leads to no file of the share is a file with the
    /// link's text for them, so that they cannot descend into it either.
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
