//! Table of operations: method, kind of target, `restype` and `comp` select one. All other combinations are rejected.
//! Pure.

use http::Method;

use crate::protocol::error::StorageError;
use crate::protocol::request::{StorageRequest, Target};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    ServiceProperties,
    SetServiceProperties,
    ListShares,
    CreateShare,
    ShareProperties,
    SetShare,
    DeleteShare,
    UndeleteShare,
    ShareStats,
    ShareAcl,
    SetShareAcl,
    LeaseShare,
    Permission,
    CreatePermission,
    CreateSnapshot,
    AccountInformation,
    ListContainers,
    CreateContainer,
    ContainerProperties,
    SetContainer,
    DeleteContainer,
    ListBlobs,
    PutBlob,
    PutBlock,
    PutBlockList,
    BlockList,
    CreateDirectory,
    DirectoryProperties,
    SetDirectory,
    ListDirectory,
    RenameDirectory,
    DeleteDirectory,
    CreateFile,
    CopyFile,
    AbortCopy,
    FileProperties,
    SetFile,
    LeaseFile,
    ListRanges,
    RenameFile,
    DeleteFile,
    WriteRange,
    WriteRangeFromUrl,
    ReadFile,
    /// From later versions of the service, for NFS shares.
    CreateLink,
    ReadLink,
    ListHandles,
    CloseHandles,
    /// From here on: extensions for mounts.
    Stat,
    ListCompact,
    Append,
    WriteRanges,
    SetModified,
    Sync,
    SpaceUsage,
}

impl Operation {
    pub fn resolve(request: &StorageRequest, target: &Target) -> Result<Self, StorageError> {
        let restype = request.parameter("restype").to_ascii_lowercase();
        let comp = request.parameter("comp").to_ascii_lowercase();
        let signature = (&request.method, target_kind(target), restype.as_str(), comp.as_str());
        let from_url = request.headers.contains_key("x-ms-copy-source");
        const GET: Method = Method::GET;
        const HEAD: Method = Method::HEAD;
        const PUT: Method = Method::PUT;
        const DELETE: Method = Method::DELETE;
        use Operation as O;
        use TargetKind::{Account, Path, ShareRoot};
        Ok(match signature {
            // With path-style URLs `restype` distinguishes containers from shares; with host-style URLs the host does.
            (&GET, Account, "container", "list") => O::ListContainers,
            (&GET, Account, "", "list") if request.is_blob_service => O::ListContainers,
            (&PUT, ShareRoot, "container", "") => O::CreateContainer,
            (&GET | &HEAD, ShareRoot, "container", "" | "metadata") => O::ContainerProperties,
            (&PUT, ShareRoot, "container", "metadata") => O::SetContainer,
            (&DELETE, ShareRoot, "container", "") => O::DeleteContainer,
            (&GET, ShareRoot, "container", "list") => O::ListBlobs,
            (&GET | &HEAD, ShareRoot, "container", "acl") if request.is_blob_service => O::ShareAcl,
            (&PUT, ShareRoot, "container", "acl") if request.is_blob_service => O::SetShareAcl,
            (&GET | &HEAD, _, "account", "properties") if request.is_blob_service => O::AccountInformation,
            (&PUT, Path, "", "") if request.is_blob_service && from_url => return Err(unsupported("copying blobs")),
            (&PUT, Path, "", "") if request.is_blob_service => O::PutBlob,
            (&PUT, Path, "", "block") if request.is_blob_service && from_url => {
                return Err(unsupported("copying blobs"));
            }
            (&PUT, Path, "", "block") if request.is_blob_service => O::PutBlock,
            (&PUT, Path, "", "blocklist") if request.is_blob_service => O::PutBlockList,
            (&GET, Path, "", "blocklist") if request.is_blob_service => O::BlockList,
            (&GET, Path, "", "") if request.is_blob_service => O::ReadFile,
            (&HEAD, Path, "", "" | "metadata") | (&GET, Path, "", "metadata") if request.is_blob_service => {
                O::FileProperties
            }
            (&PUT, Path, "", "properties" | "metadata") if request.is_blob_service => O::SetFile,
            (&DELETE, Path, "", "") if request.is_blob_service => O::DeleteFile,
            (_, _, _, "snapshot") if request.is_blob_service => return Err(unsupported("snapshots of blobs")),
            (_, _, _, "lease") if request.is_blob_service => return Err(unsupported("leases of blobs and containers")),
            (_, _, _, "tier") if request.is_blob_service => return Err(unsupported("tiers")),
            (_, _, _, "page" | "pagelist" | "appendblock") if request.is_blob_service => {
                return Err(unsupported("page blobs and append blobs"));
            }
            (&GET | &HEAD | &PUT | &DELETE, ..) if request.is_blob_service => {
                return Err(StorageError::new("InvalidQueryParameterValue"));
            }

            (&GET, Account, "", "list") => O::ListShares,
            (&GET, Account, "service", "properties") => O::ServiceProperties,
            (&PUT, Account, "service", "properties") => O::SetServiceProperties,

            (&PUT, ShareRoot, "share", "") => O::CreateShare,
            (&GET | &HEAD, ShareRoot, "share", "" | "metadata") => O::ShareProperties,
            (&PUT, ShareRoot, "share", "metadata" | "properties") => O::SetShare,
            (&DELETE, ShareRoot, "share", "") => O::DeleteShare,
            (&PUT, ShareRoot, "share", "undelete") => O::UndeleteShare,
            (&GET, ShareRoot, "share", "stats") => O::ShareStats,
            (&GET | &HEAD, ShareRoot, "share", "acl") => O::ShareAcl,
            (&PUT, ShareRoot, "share", "acl") => O::SetShareAcl,
            (&PUT, ShareRoot, "share", "lease") => O::LeaseShare,
            (&GET, ShareRoot, "share", "filepermission") => O::Permission,
            (&PUT, ShareRoot, "share", "filepermission") => O::CreatePermission,
            (&PUT, ShareRoot, "share", "snapshot") => O::CreateSnapshot,

            (&PUT, ShareRoot | Path, "directory", "") => O::CreateDirectory,
            (&GET | &HEAD, ShareRoot | Path, "directory", "" | "metadata") => O::DirectoryProperties,
            (&PUT, ShareRoot | Path, "directory", "metadata" | "properties") => O::SetDirectory,
            (&GET, ShareRoot | Path, "directory", "list") => O::ListDirectory,
            (&PUT, Path, "directory", "rename") => O::RenameDirectory,
            (&DELETE, ShareRoot | Path, "directory", "") => O::DeleteDirectory,

            (&PUT, Path, "symboliclink", "") => O::CreateLink,
            (&GET | &HEAD, Path, "symboliclink", "") => O::ReadLink,

            (&GET, ShareRoot | Path, "", "listhandles") => O::ListHandles,
            (&PUT, ShareRoot | Path, "", "forceclosehandles") => O::CloseHandles,

            (&PUT, Path, "", "") if from_url => O::CopyFile,
            (&PUT, Path, "", "copy") => O::AbortCopy,
            (&PUT, Path, "", "") => O::CreateFile,
            (&PUT, Path, "", "range") if from_url => O::WriteRangeFromUrl,
            (&PUT, Path, "", "range") => O::WriteRange,
            (&GET, Path, "", "") => O::ReadFile,
            (&HEAD, Path, "", "" | "metadata") | (&GET, Path, "", "metadata") => O::FileProperties,
            (&PUT, Path, "", "properties" | "metadata") => O::SetFile,
            (&PUT, Path, "", "lease") => O::LeaseFile,
            (&GET, Path, "", "rangelist") => O::ListRanges,
            (&PUT, Path, "", "rename") => O::RenameFile,
            (&DELETE, Path, "", "") => O::DeleteFile,

            (&GET | &HEAD, ShareRoot | Path, "", "corro-about") => O::Stat,
            (&GET, ShareRoot | Path, "", "corro-list") => O::ListCompact,
            (&GET | &HEAD, ShareRoot, "", "corro-room") => O::SpaceUsage,
            (&PUT, Path, "", "corro-append") => O::Append,
            (&PUT, Path, "", "corro-ranges") => O::WriteRanges,
            (&PUT, Path, "", "corro-modified") => O::SetModified,
            (&PUT, ShareRoot | Path, "", "corro-sync") => O::Sync,

            (&GET | &HEAD | &PUT | &DELETE, ..) => return Err(StorageError::new("InvalidQueryParameterValue")),
            _ => return Err(StorageError::new("UnsupportedHttpVerb")),
        })
    }

    /// Service that an account SAS must include.
    pub fn service_letter(self) -> char {
        match self {
            Self::ListContainers | Self::CreateContainer | Self::ContainerProperties => 'b',
            Self::SetContainer | Self::DeleteContainer | Self::ListBlobs => 'b',
            _ => 'f',
        }
    }

    /// Whether only the blob service has the operation, whatever address it was sent to.
    pub fn is_blob_operation(self) -> bool {
        self.service_letter() == 'b'
    }

    /// Snapshots can be read, and deleted as a whole.
    pub fn works_on_snapshots(self) -> bool {
        match self {
            Self::ShareProperties | Self::ShareStats | Self::DeleteShare => true,
            Self::DirectoryProperties | Self::ListDirectory | Self::ListHandles | Self::CloseHandles => true,
            Self::FileProperties | Self::ListRanges | Self::ReadFile | Self::ReadLink => true,
            Self::ServiceProperties | Self::SetServiceProperties | Self::ListShares | Self::CreateShare => false,
            Self::SetShare | Self::UndeleteShare | Self::ShareAcl | Self::SetShareAcl | Self::LeaseShare => false,
            Self::Permission | Self::CreatePermission | Self::CreateSnapshot => false,
            Self::ListContainers | Self::CreateContainer | Self::ContainerProperties => false,
            Self::SetContainer | Self::DeleteContainer | Self::AccountInformation => false,
            Self::ListBlobs | Self::PutBlob | Self::PutBlock | Self::PutBlockList | Self::BlockList => false,
            Self::CreateDirectory | Self::SetDirectory | Self::RenameDirectory | Self::DeleteDirectory => false,
            Self::CreateLink => false,
            Self::CreateFile | Self::CopyFile | Self::AbortCopy | Self::SetFile | Self::LeaseFile => false,
            Self::WriteRange | Self::WriteRangeFromUrl | Self::RenameFile | Self::DeleteFile => false,
            Self::Stat | Self::ListCompact | Self::SpaceUsage => true,
            Self::Append | Self::WriteRanges | Self::SetModified | Self::Sync => false,
        }
    }
}

/// A feature of Azure's blob service that is not implemented.
fn unsupported(what: &str) -> StorageError {
    StorageError::new("FeatureNotSupported").with_message(format!("This server does not support {what}."))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TargetKind {
    Account,
    ShareRoot,
    Path,
}

fn target_kind(target: &Target) -> TargetKind {
    match (target.share.is_empty(), target.path.is_root()) {
        (true, _) => TargetKind::Account,
        (false, true) => TargetKind::ShareRoot,
        (false, false) => TargetKind::Path,
    }
}
