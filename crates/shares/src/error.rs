//! Everything that can be wrong with an access to a share, and the service's word for it. Paths in
//! messages are paths inside the share; where shares lie on the disk is never told.

use std::io;

use rustix::io::Errno;

use crate::{MAX_LINK_TEXT, PathError, SharePath};

#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    #[error("the account name {0:?} is not 3 to 24 lower-case letters and digits")]
    AccountName(String),
    #[error("the share name {0:?} is not 3 to 63 lower-case letters, digits and single dashes")]
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
    #[error("the share has no snapshot of {0}")]
    SnapshotNotFound(String),
    #[error("the copy to {0} was stopped")]
    CopyStopped(SharePath),
    #[error("{path} would make the share larger than its quota of {quota} bytes: it holds {used}")]
    QuotaReached { path: SharePath, used: u64, quota: u64 },
    #[error("{0} does not exist in the share")]
    NotFound(SharePath),
    #[error("the directory that should hold {0} does not exist")]
    ParentNotFound(SharePath),
    #[error("{0} already exists")]
    AlreadyExists(SharePath),
    #[error("the directory {0} is not empty")]
    DirectoryNotEmpty(SharePath),
    #[error("{0} is of another kind: a file was expected and a directory found, or the reverse")]
    WrongKind(SharePath),
    #[error("{0} leads out of the share through a symbolic link")]
    LeavesShare(SharePath),
    #[error("the text of the link {0} is empty, longer than {MAX_LINK_TEXT} bytes or has a zero byte")]
    LinkText(SharePath),
    #[error("a directory cannot be moved into itself, to {0}")]
    IntoItself(SharePath),
    #[error("the root of a share can be neither made nor removed as a directory or file")]
    Root,
    #[error("bytes {start} to {end} do not lie within {path}, which has {len}")]
    OutOfRange { path: SharePath, start: u64, end: u64, len: u64 },
    #[error("no space is left on the share's disk for {path}")]
    DiskFull { path: SharePath, source: io::Error },
    #[error("the server's account may not touch {path}")]
    PermissionDenied { path: SharePath, source: io::Error },
    #[error("could not {attempt} {path}")]
    Io { attempt: &'static str, path: SharePath, source: io::Error },
    #[error("could not {attempt} the share root or the share {name:?}")]
    ShareIo { attempt: &'static str, name: String, source: io::Error },
}

impl ShareError {
    /// The file service's error code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::AccountName(_) | Self::ShareName(_) => "InvalidResourceName",
            Self::Path(_) | Self::Root | Self::IntoItself(_) => "InvalidFileOrDirectoryPathName",
            Self::ShareNotFound(_) => "ShareNotFound",
            Self::ShareAlreadyExists(_) => "ShareAlreadyExists",
            Self::ContainerNotFound(_) => "ContainerNotFound",
            Self::ContainerAlreadyExists(_) => "ContainerAlreadyExists",
            // A link that leads out is, seen from inside, nothing.
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

    /// What an errno means for an access to `path`.
    pub(crate) fn at(attempt: &'static str, path: &SharePath, errno: Errno) -> Self {
        let path = path.clone();
        let source = io::Error::from(errno);
        match errno {
            Errno::NOENT | Errno::NOTDIR => Self::NotFound(path),
            Errno::XDEV | Errno::LOOP => Self::LeavesShare(path),
            Errno::EXIST => Self::AlreadyExists(path),
            Errno::NOTEMPTY => Self::DirectoryNotEmpty(path),
            // ENXIO: a pipe or socket that nobody reads.
            Errno::ISDIR | Errno::NXIO => Self::WrongKind(path),
            Errno::NOSPC | Errno::DQUOT => Self::DiskFull { path, source },
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Self::PermissionDenied { path, source },
            _ => Self::Io { attempt, path, source },
        }
    }

    /// The same for something that is to be made: what is missing is its directory.
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
    fn every_errno_that_users_meet_has_a_code_of_its_own() {
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
