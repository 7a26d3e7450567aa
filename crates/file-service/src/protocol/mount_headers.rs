//! Request headers of mounts on other machines (`x-corro-…`). Pure.

use crate::protocol::error::Refusal;
use crate::protocol::request::Call;

/// On a `comp=range`: the file grows where it is too short.
pub(crate) fn grows(call: &Call) -> Result<bool, Refusal> {
    call.flag("x-corro-grow")
}

/// On the making of a file: one that is there is left alone.
pub(crate) fn is_exclusive(call: &Call) -> Result<bool, Refusal> {
    call.flag("x-corro-exclusive")
}

/// How a mount wants to see links, by its header `x-corro-links`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    /// As links (`true`): the kernel of the mounting machine resolves them.
    Shown,
    /// As what they lead to (`false`), for the directory that is mounted.
    Followed,
    /// Without the header: earlier mounts know only files and directories. A link that leads to no file of the share is a file with the
    /// link's text for them, so that they cannot descend into it either.
    AsFiles,
}

impl Links {
    pub fn of(call: &Call) -> Result<Links, Refusal> {
        const HEADER: &str = "x-corro-links";
        Ok(match (call.headers.contains_key(HEADER), call.flag(HEADER)?) {
            (true, true) => Links::Shown,
            (true, false) => Links::Followed,
            (false, _) => Links::AsFiles,
        })
    }
}
