//! Errors of operations on shares, with the error code of the REST API. Messages have paths inside the share; the
//! location on disk is never revealed.

use std::io;

use rustix::io::Errno;

use crate::{MAX_LINK_TEXT, PathError, SharePath};

#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    #[error("the account name {0:?} must have 3 to 24 lower-case letters and digits")]
    AccountName(String),
    #[error("the share name {0:?} must have 3 to 63 lower-case letters, digits and single dashes")]
    ShareName(String),
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("the share {0:?} does not exist")]
    ShareNotFound(String),
    #[error("the share {0:?} already exists")]
    ShareAlreadyExists(String),
    #[error("the container {0:?} does not exist")]
    ContainerNotFound(String),
    #[error("the container {0:?} already exists")]
    ContainerAlreadyExists(String),
    #[error("the share has no snapshot {0}")]
    SnapshotNotFound(String),
    #[error("the copy to {0} was stopped")]
    CopyStopped(SharePath),
    #[error("{path} would exceed the quota of the share: {used} of {quota} bytes are used")]
    QuotaReached { path: SharePath, used: u64, quota: u64 },
    #[error("{0} does not exist in the share")]
    NotFound(SharePath),
    #[error("the parent directory of {0} does not exist")]
    ParentNotFound(SharePath),
    #[error("{0} already exists")]
    AlreadyExists(SharePath),
    #[error("the directory {0} is not empty")]
    DirectoryNotEmpty(SharePath),
    #[error("{0} has another type: expected a file and found a directory, or the reverse")]
    WrongKind(SharePath),
    #[error("{0} leads out of the share through a symbolic link")]
    LeavesShare(SharePath),
    #[error("the target of the link {0} is empty, longer than {MAX_LINK_TEXT} bytes or has a NUL byte")]
    LinkText(SharePath),
    #[error("a directory cannot be moved into itself, to {0}")]
    IntoItself(SharePath),
    #[error("the root of a share cannot be created or deleted as a directory or file")]
    Root,
    #[error("bytes {start} to {end} are outside of {path}, which has {len} bytes")]
    OutOfRange { path: SharePath, start: u64, end: u64, len: u64 },
    #[error("no space left on the share's disk for {path}")]
    DiskFull { path: SharePath, source: io::Error },
    #[error("the server has no permission to access {path}")]
    PermissionDenied { path: SharePath, source: io::Error },
    #[error("could not {attempt} {path}")]
    Io { attempt: &'static str, path: SharePath, source: io::Error },
    #[error("could not {attempt} the share root or the share {name:?}")]
    ShareIo { attempt: &'static str, name: String, source: io::Error },
}

impl ShareError {
    /// Error code of the REST API.
    pub fn code(&self) -> &'static str {
        match self {
            Self::AccountName(_) | Self::ShareName(_) => "InvalidResourceName",
            Self::Path(_) | Self::Root | Self::IntoItself(_) => "InvalidFileOrDirectoryPathName",
            Self::ShareNotFound(_) => "ShareNotFound",
            Self::ShareAlreadyExists(_) => "ShareAlreadyExists",
            Self::ContainerNotFound(_) => "ContainerNotFound",
            Self::ContainerAlreadyExists(_) => "ContainerAlreadyExists",
            // A link that leads out of the share does not exist for clients.
            Self::NotFound(_) | Self::LeavesShare(_) => "ResourceNotFound",
            Self::ParentNotFound(_) => "ParentNotFound",
            Self::AlreadyExists(_) => "ResourceAlreadyExists",
            Self::DirectoryNotEmpty(_) => "DirectoryNotEmpty",
            Self::WrongKind(_) => "ResourceTypeMismatch",
            Self::LinkText(_) => "InvalidHeaderValue",
            Self::OutOfRange { .. } => "InvalidRange",
            Self::SnapshotNotFound(_) => "ShareSnapshotNotFound",
            Self::CopyStopped(_) => "CopyAborted",
            Self::DiskFull { .. } | Self::QuotaReached { .. } => "ShareSizeLimitReached",
            Self::PermissionDenied { .. } => "InsufficientAccountPermissions",
            Self::Io { .. } | Self::ShareIo { .. } => "InternalError",
        }
    }

    /// Error of an operation on `path` that failed with `errno`.
    pub(crate) fn at(attempt: &'static str, path: &SharePath, errno: Errno) -> Self {
        let path = path.clone();
        let source = io::Error::from(errno);
        match errno {
            Errno::NOENT | Errno::NOTDIR => Self::NotFound(path),
            Errno::XDEV | Errno::LOOP => Self::LeavesShare(path),
            Errno::EXIST => Self::AlreadyExists(path),
            Errno::NOTEMPTY => Self::DirectoryNotEmpty(path),
            // ENXIO: a FIFO or socket without a reader.
            Errno::ISDIR | Errno::NXIO => Self::WrongKind(path),
            Errno::NOSPC | Errno::DQUOT => Self::DiskFull { path, source },
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Self::PermissionDenied { path, source },
            _ => Self::Io { attempt, path, source },
        }
    }

    /// For an entry to be created: `NotFound` means that its parent is missing.
    pub(crate) fn for_creation(self, path: &SharePath) -> Self {
        match self {
            Self::NotFound(_) => Self::ParentNotFound(path.clone()),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn errnos_map_to_error_codes() {
        let path = SharePath::parse("out/model.h5").expect("a good path");
        for (errno, code, keeps_cause) in [
            (Errno::NOENT, "ResourceNotFound", false),
            (Errno::NOTDIR, "ResourceNotFound", false),
            (Errno::XDEV, "ResourceNotFound", false),
            (Errno::LOOP, "ResourceNotFound", false),
            (Errno::EXIST, "ResourceAlreadyExists", false),
            (Errno::NOTEMPTY, "DirectoryNotEmpty", false),
            (Errno::ISDIR, "ResourceTypeMismatch", false),
            (Errno::NOSPC, "ShareSizeLimitReached", true),
            (Errno::DQUOT, "ShareSizeLimitReached", true),
            (Errno::ACCESS, "InsufficientAccountPermissions", true),
            (Errno::ROFS, "InsufficientAccountPermissions", true),
            (Errno::IO, "InternalError", true),
        ] {
            let error = ShareError::at("write to", &path, errno);
            assert_eq!(error.code(), code, "{errno:?}");
            assert!(error.to_string().contains("/out/model.h5"), "{error}");
            assert_eq!(error.source().is_some(), keeps_cause, "{errno:?}");
        }
    }
}
